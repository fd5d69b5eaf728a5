// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gpumap/export.hpp"

namespace gpumap {

/// What kind of thing went wrong; lets a caller choose a fallback without reading the text.
enum class ErrorCode {
  no_driver,      ///< no Vulkan loader, no installable client driver, or no CUDA where CUDA is needed
  no_device,      ///< the selector names no GPU on this machine
  no_memory,      ///< the BAR window, device memory or page-locked memory is exhausted
  not_supported,  ///< the device or driver lacks a feature that was asked for
  invalid,        ///< a bad argument: size, count, selector, file, parameter
  compile,        ///< a kernel did not compile or load; the text holds the compiler's log
  device_lost,    ///< a kernel faulted; the GPU context of this process is unusable
  io,             ///< the operating system refused (descriptor, mapping, connection)
  not_found,      ///< there is no such file or folder, or nobody has this name
  open_read,      ///< a file cannot be read
  open_write,     ///< a file or socket cannot be made or written
  no_resources,   ///< no descriptor, thread, mapping or memory of the CPU is left for this process
  busy,           ///< it is there, and has no place left or does not answer
};
/// As messages and programs name it, such as "no_memory".
[[nodiscard]] GPUMAP_API const char* to_string(ErrorCode code) noexcept;
/// Of a call that failed with this errno: no_resources where something ran out, else io.
[[nodiscard]] GPUMAP_API ErrorCode code_of_errno(int number) noexcept;

/// Where in the source. As std::source_location, which Clang 14 does not have; names of functions are without types.
struct SourcePlace {
  const char* file;
  const char* function;
  unsigned line;
  /// The caller's; as a default argument, that of the caller's caller.
  [[nodiscard]] static constexpr SourcePlace here(const char* file = __builtin_FILE(),
                                                  const char* function = __builtin_FUNCTION(),
                                                  unsigned line = __builtin_LINE()) noexcept {
    return {file, function, line};
  }
};

/// Every failure of the library. The text names the cause, the figures and the remedy, in that order.
class GPUMAP_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text, const SourcePlace& where = SourcePlace::here())
      : Error(code, text, text.size(), where) {}
  /// "cause: remedy", for a caller who may know a better remedy, see with_remedy().
  Error(ErrorCode code, const std::string& cause, const std::string& remedy,
        const SourcePlace& where = SourcePlace::here())
      : Error(code, cause + ": " + remedy, cause.size(), where) {}
  ~Error() override;
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  /// Where it was made.
  [[nodiscard]] const SourcePlace& where() const noexcept { return where_; }
  /// The text without the remedy, where that was given apart; else all of it.
  [[nodiscard]] std::string cause() const { return std::string(what()).substr(0, cause_length_); }

 private:
  Error(ErrorCode code, const std::string& text, std::size_t cause_length, const SourcePlace& where)
      : std::runtime_error(text), code_(code), cause_length_(cause_length), where_(where) {}

  ErrorCode code_;
  std::size_t cause_length_;
  SourcePlace where_;
};

/// The GPU was lost while a kernel ran on it, which the text names.
class GPUMAP_API KernelFault : public Error {
 public:
  KernelFault(const std::string& kernel, const Error& cause);
  ~KernelFault() override;
};

/// The same error with another remedy.
[[nodiscard]] inline Error with_remedy(const Error& error, const std::string& remedy) {
  return {error.code(), error.cause(), remedy, error.where()};
}

/// What an error's text says in numbers and names, for programs: {"asked-bytes", 4096}. Names are as those of
/// properties.
using Figure = std::variant<std::uint64_t, std::string>;
using Figures = std::vector<std::pair<const char*, Figure>>;

/// An error with its figures. A copy as Error has the text alone.
class GPUMAP_API FiguredError : public Error {
 public:
  FiguredError(const Error& error, Figures figures);
  ~FiguredError() override;
  [[nodiscard]] const Figures& figures() const noexcept { return *figures_; }

 private:
  std::shared_ptr<const Figures> figures_;  ///< shared, so that copying throws nothing
};

/// Of a FiguredError; of another error none.
[[nodiscard]] GPUMAP_API Figures figures_of(const Error& error);
/// What its text says behind the cause; empty where that was not given apart.
[[nodiscard]] GPUMAP_API std::string remedy_of(const Error& error);
/// The same error of `what`, as in "8 slots of 4 MiB", which its text then begins with; with figures of its own, behind
/// those that it has.
[[nodiscard]] GPUMAP_API FiguredError within(const std::string& what, const Error& error, const Figures& more = {});

}  // namespace gpumap
