// SPDX-License-Identifier: MIT
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace gpumap::gst {

/// A library of GStreamer's, opened at run time. It stays: its types and metas are registered with GLib.
class RuntimeLibrary {
 public:
  explicit RuntimeLibrary(const char* file)
      : file_(file), handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    // The loader says of all that they are not there where it has no descriptor to open them.
    const int any = handle_ == nullptr ? open("/", O_PATH | O_CLOEXEC) : -1;
    starved_ = handle_ == nullptr && any < 0;
    if (any >= 0) close(any);
  }

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
    if (starved_) return file_ + " cannot be opened: no file descriptor is left for this process: raise ulimit -n";
    if (handle_ == nullptr) return file_ + " was not found: install " + packages;
    return missing.empty() ? "" : file_ + " lacks" + missing + ": install GStreamer " + version + " or newer";
  }

 private:
  std::string file_;
  void* handle_;
  bool starved_ = false;
  std::string missing_;
};

}  // namespace gpumap::gst
