// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/gpu_span.hpp"

namespace gpumap {

/// The spans of one CUDA queue: two timed events each, used again once a span was read or is gone.
/// Ownership: shared by the queue and its spans. Thread safety: begin() and end() in the queue's thread; spans give
/// their events back from any.
class CudaSpans : public std::enable_shared_from_this<CudaSpans> {
 public:
  explicit CudaSpans(std::shared_ptr<GpuDevice> device) : device_(std::move(device)), context_(*device_->cuda()) {}
  ~CudaSpans();
  CudaSpans(const CudaSpans&) = delete;
  CudaSpans& operator=(const CudaSpans&) = delete;

  /// Null where there is no telling; reason() says why. Call inside a Scope.
  [[nodiscard]] std::shared_ptr<GpuSpan> begin(CUstream stream);
  /// Throws Error(invalid) for a span that is not of these or has ended. Call inside a Scope.
  void end(GpuSpan& span, CUstream stream);
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  friend class CudaSpan;
  struct Events {
    CUevent began = nullptr, ended = nullptr;
  };
  [[nodiscard]] bool take(Events& events);
  void give_back(const Events& events) noexcept;

  const std::shared_ptr<GpuDevice> device_;
  const CudaContext& context_;
  std::string reason_;

  std::mutex mutex_;
  std::vector<Events> idle_;
  std::size_t made_ = 0;
};

}  // namespace gpumap
