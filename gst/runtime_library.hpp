// SPDX-License-Identifier: MIT
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

namespace gpumap::gst {

/// A library of GStreamer's, opened at run time. It stays: its types and metas are registered with GLib.
class RuntimeLibrary {
 public:
  explicit RuntimeLibrary(const char* file)
      : file_(file), handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {}

  /// Null where it is not; then problem() names it.
  template <typename Function>
  void find(const char* symbol, Function*& function) {
    function = handle_ != nullptr ? reinterpret_cast<Function*>(dlsym(handle_, symbol)) : nullptr;
    if (function == nullptr) missing_ = missing_ + " " + symbol;
  }

  /// What is missing of all that was looked for since the last call, and how to get it: the `packages`, or GStreamer
  /// from a `version` on. Empty where it all is there.
  [[nodiscard]] std::string problem(const std::string& packages, const std::string& version) {
    const std::string missing = std::exchange(missing_, {});
    if (handle_ == nullptr) return file_ + " was not found: install " + packages;
    return missing.empty() ? "" : file_ + " lacks" + missing + ": install GStreamer " + version + " or newer";
  }

 private:
  std::string file_;
  void* handle_;
  std::string missing_;
};

}  // namespace gpumap::gst
