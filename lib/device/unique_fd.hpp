// SPDX-License-Identifier: MIT
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

namespace gpumap {

/// Owner of a file descriptor. Move-only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Give the descriptor up: the caller closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// Throws Error(no_resources) where this process has no file descriptor left, of which drivers say that memory is
/// short, and the loader that a library is not there. `what` finishes "… while", behind `name` of the one that failed.
void check_descriptors(std::string_view name, std::string_view what);

/// Owner of a library opened at run time. Move-only.
class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  explicit DynamicLibrary(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  DynamicLibrary(DynamicLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~DynamicLibrary() {
    if (handle_ != nullptr) dlclose(handle_);
  }

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }

  /// Point `function` at a symbol; false (and null) when the library lacks it.
  template <typename Function>
  bool find(const char* symbol, Function*& function) const noexcept {
    function = reinterpret_cast<Function*>(dlsym(handle_, symbol));
    return function != nullptr;
  }

 private:
  void* handle_ = nullptr;
};

}  // namespace gpumap
