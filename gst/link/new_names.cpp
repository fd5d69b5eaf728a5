// SPDX-License-Identifier: MIT
#include "gst/link/new_names.hpp"

#include <glib.h>

#include <atomic>
#include <cstring>

namespace gpumap::gst {
namespace {

/// What GLib's tables take beside the letters.
constexpr std::size_t around = 64;
std::atomic<std::size_t> process_spent{0};

}  // namespace

bool NewNames::admit(const char* name) {
  const std::size_t length = std::strlen(name);
  if (length == 0) return false;  // GStreamer may know it, all the same
  if (g_quark_try_string(name) != 0) return true;
  if (length > longest || g_utf8_validate(name, static_cast<gssize>(length), nullptr) == 0) return false;
  const std::size_t cost = length + around;
  if (cost > left_) return false;
  if (process_spent.fetch_add(cost) > most_of_process - cost) {
    process_spent -= cost;
    return false;
  }
  left_ -= cost;
  return true;
}

}  // namespace gpumap::gst
