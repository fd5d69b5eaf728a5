// SPDX-License-Identifier: MIT
// What the fuzz targets of gst/ have in common.
//
// GLib's slices hide memory from AddressSanitizer: tests/run sets G_SLICE=always-malloc.
#pragma once

#include <gst/gst.h>
#include <sanitizer/lsan_interface.h>

#include <cstdio>
#include <cstdlib>

/// Of libraries without frame pointers only this tells where memory is from.
extern "C" const char* __asan_default_options() {  // NOLINT
  return "fast_unwind_on_malloc=0";
}
extern "C" const char* __lsan_default_options() {  // NOLINT
  return "print_suppressions=0";
}
/// GStreamer's reader forgets a list that it gives up within; GLib leaves a table of quarks for a larger one, the first
/// of which is made as the library is loaded.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT
  return "leak:gst_structure_from_string\nleak:gst_caps_from_string\n"
         "leak:g_quark_from\nleak:g_intern_string\nleak:ld-linux\n";
}

namespace gpumap::gst::fuzz {

inline void expect(bool holds) {
  if (!holds) std::abort();
}

/// GStreamer's reader complains of what it cannot read, of a range that ends before it begins too, and goes on: no
/// finding while read() has it read.
inline bool may_complain = false;
template <typename Reading>
auto read(Reading reading) {
  may_complain = true;
  auto what = reading();
  may_complain = false;
  return what;
}

/// Once, before all inputs. No plugin is loaded, and what else GLib or GStreamer complain of is a finding.
inline void start_gstreamer() {
  __lsan_disable();  // what is made once is kept
  setenv("GST_REGISTRY_DISABLE", "yes", 1);
  gst_init(nullptr, nullptr);
  g_log_set_default_handler(
      [](const gchar* domain, GLogLevelFlags level, const gchar* message, gpointer) {
        constexpr int complaints = G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL | G_LOG_LEVEL_WARNING;
        if ((level & complaints) == 0 || (may_complain && (level & G_LOG_LEVEL_ERROR) == 0)) return;
        std::fprintf(stderr, "%s: %s\n", domain != nullptr ? domain : "?", message);
        std::abort();
      },
      nullptr);
  __lsan_enable();
}

}  // namespace gpumap::gst::fuzz
