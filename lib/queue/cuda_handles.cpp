// SPDX-License-Identifier: MIT
#include "gpumap/cuda.hpp"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "device/cuda_driver.hpp"
#include "device/cuda_timeline.hpp"
#include "gpumap/error.hpp"
#include "queue/queues.hpp"

namespace gpumap {

namespace {

/// One event on a stream that is somebody else's. Comes to 1.
class StreamEvent final : public Timeline {
 public:
  StreamEvent(std::shared_ptr<GpuDevice> device, CUstream stream)
      : device_(std::move(device)), context_(*device_->cuda()) {
    const CudaContext::Scope scope(context_);
    context_.check(context_.driver().cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "creating an event");
    const CUresult recorded = context_.driver().cuEventRecord(event_, stream);
    if (recorded == CUDA_SUCCESS) return;
    context_.driver().cuEventDestroy(event_);
    context_.check(recorded, "recording an event on a stream that must be one of the GPU's primary context");
  }
  ~StreamEvent() override {
    // The driver keeps one that is pending.
    if (const CudaContext::CleanupScope scope(context_); scope) context_.driver().cuEventDestroy(event_);
  }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  [[nodiscard]] std::uint64_t completed() override {
    if (done_) return 1;
    if (context_.health().lost()) return 0;
    try {
      const CudaContext::Scope scope(context_);
      done_ = context_.driver().cuEventQuery(event_) == CUDA_SUCCESS;
    } catch (const Error&) {
      // Lost meanwhile.
    }
    return done_ ? 1 : 0;
  }
  void check() override {
    const CudaContext::Scope scope(context_);
    const CUresult result = context_.driver().cuEventQuery(event_);
    if (result != CUDA_ERROR_NOT_READY) context_.check(result, "running what reads a frame");
  }
  void give_up(const Fence& end, const std::string& work) override { context_.stuck_work().note(end, work); }

 private:
  const std::shared_ptr<GpuDevice> device_;
  const CudaContext& context_;
  CUevent event_ = nullptr;
  std::atomic<bool> done_{false};
};

/// Throws where there is no CUDA.
GpuDevice& with_cuda(Device& device) {
  auto* const gpu = dynamic_cast<GpuDevice*>(&device);
  if (gpu == nullptr || gpu->cuda() == nullptr) {
    throw Error(ErrorCode::not_supported,
                device.info().name + " has no CUDA here, so no CUDA stream either: take what Vulkan and the CPU offer");
  }
  gpu->check_alive();
  return *gpu;
}

}  // namespace

CudaHandles cuda_handles(const Device& device) noexcept {
  const auto* gpu = dynamic_cast<const GpuDevice*>(&device);
  if (gpu == nullptr || gpu->cuda() == nullptr) return {};
  return {.context = gpu->cuda()->handle(), .device = gpu->cuda()->device()};
}

std::unique_ptr<Queue> create_cuda_queue(Device& device, const CudaQueueOptions& options) {
  auto* const gpu = dynamic_cast<GpuDevice*>(&device);
  if (gpu == nullptr || gpu->cuda() == nullptr) {
    throw Error(ErrorCode::not_supported, device.info().name + " has no CUDA here: leave priority and sm-share out");
  }
  gpu->check_alive();
  return create_cuda_queue(gpu->self(), options);
}

void* cuda_stream(Queue& queue) {
  return stream_of(queue);
}

void wait_for_cuda_stream(Queue& queue, void* stream) {
  order_after(queue, static_cast<CUstream>(stream));
}

void let_cuda_stream_wait(Queue& queue, void* stream) {
  order_before(queue, static_cast<CUstream>(stream));
}

bool let_cuda_stream_wait(Device& device, const Fence& fence, void* stream, std::chrono::nanoseconds longest) {
  const CudaContext& context = *with_cuda(device).cuda();
  if (fence.signalled()) return true;
  auto* const timeline = dynamic_cast<CudaTimeline*>(fence.timeline().get());
  if (timeline == nullptr || &timeline->context() != &context) return fence.wait_for(longest) == WaitResult::ready;
  const CudaContext::Scope scope(context);
  timeline->make_wait(static_cast<CUstream>(stream), fence.value());
  return true;
}

Fence fence_of_cuda_stream(Device& device, void* stream) {
  return {std::make_shared<StreamEvent>(with_cuda(device).self(), static_cast<CUstream>(stream)), 1};
}

}  // namespace gpumap
