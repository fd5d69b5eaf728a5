// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace gpumap::gst {

/// The parameters of a kernel as children of its element (GstChildProxy), each with a controllable property `value`:
/// `gpumapkernel gain::value=2.5`, gst_child_proxy_set(kernel, "gain::value", 2.5, NULL), or a GstControlSource bound
/// to `value` of the child "gain". `value` is a gint64 where the kernel declares integers (i32, u32, i64), else a
/// double. A number of a list is the child "taps[1]". One that was not set shows what the
/// element's `params` say. Thread safety: every member from any thread.
class KernelParameters {
 public:
  KernelParameters();
  ~KernelParameters();
  KernelParameters(const KernelParameters&) = delete;
  KernelParameters& operator=(const KernelParameters&) = delete;

  /// The kernel of `element` is another one: its parameters are the children from here on. Those that it has not go.
  void adopt(GstElement* element);
  /// The child, transfer full; null where the kernel has no such parameter. Of a file that declares none it has any.
  [[nodiscard]] GObject* child(GstElement* element, const std::string& name);
  /// Transfer full, or null.
  [[nodiscard]] GObject* child(guint index) const;
  [[nodiscard]] guint count() const;

  /// For a warning at the start: which children were asked for, or set, that the kernel of `element` does not have, and
  /// what it has. Empty: none.
  [[nodiscard]] std::string unknown_children(GstElement* element);

  /// Bring controlled values to stream time `time`; then true where any value differs from those of the last call.
  [[nodiscard]] bool changed(GstClockTime time);
  /// `params` with the children's values in place of, or beside, what it says. Throws Error(invalid).
  [[nodiscard]] std::string over(const std::string& params) const;

  /// Give `type`, an element's, the GstChildProxy interface over what `of` finds.
  using Of = KernelParameters& (*)(GObject* element);
  static void add_interface(GType type, Of of);

 private:
  struct Child;
  GObject* find_or_add(GstElement* element, const std::string& name, bool whole);
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Child>> children_;
  std::set<std::string> missed_;  ///< that were asked for while the kernel had no such parameter, or went with a value
};

}  // namespace gpumap::gst
