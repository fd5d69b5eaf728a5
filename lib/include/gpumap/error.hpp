// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

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
  io,             ///< the operating system refused (file, descriptor, mapping)
};

/// Every failure of the library. The text names the cause, the figures and the remedy, in that order.
class GPUMAP_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ~Error() override;
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// The same error with another remedy, which is what stands behind the last colon.
[[nodiscard]] inline Error with_remedy(const Error& error, const std::string& remedy) {
  const std::string text = error.what();
  return {error.code(), text.substr(0, text.rfind(": ")) + ": " + remedy};
}

}  // namespace gpumap
