// SPDX-License-Identifier: MIT
#include "queue/queues.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda_span.hpp"
#include "device/cuda_timeline.hpp"
#include "gpumap/error.hpp"
#include "memory/gpu_mapping.hpp"

namespace gpumap {
namespace {

/// Launches kernels as a graph of one node, whose parameters are set each time: with these two calls the CPU is done
/// sooner than with cuLaunchKernel, and so is the GPU (tests/bench/README.md). Keeps what it launched last loaded.
/// Thread safety: one thread at a time, inside a Scope.
class CudaGraph {
 public:
  /// Not `enabled`, or with a driver that has no graphs, it launches nothing.
  CudaGraph(const CudaContext& context, bool enabled)
      : context_(context), enabled_(enabled && context.driver().has_graphs) {}
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// False: not launched; cuLaunchKernel will do, or say what is wrong.
  [[nodiscard]] bool launch(const CudaKernel& kernel, const Grid& grid, void** arguments, CUstream stream) noexcept;
  /// Nothing of it runs any more. To be called unless the context is lost.
  void destroy() noexcept;

 private:
  [[nodiscard]] bool make(const CUDA_KERNEL_NODE_PARAMS& launch) noexcept;

  const CudaContext& context_;
  const bool enabled_;
  CUgraph graph_ = nullptr;
  CUgraphNode node_ = nullptr;
  CUgraphExec made_ = nullptr;
  // Of the functions that the driver still knows: the graph's own, and that of the last launch.
  std::shared_ptr<const void> first_, last_;
};

bool CudaGraph::launch(const CudaKernel& kernel, const Grid& grid, void** arguments, CUstream stream) noexcept {
  if (!enabled_) return false;
  const auto& [blocks, threads] = grid;
  const CUDA_KERNEL_NODE_PARAMS launch{.func = kernel.function(),
                                       .gridDimX = blocks[0],
                                       .gridDimY = blocks[1],
                                       .gridDimZ = blocks[2],
                                       .blockDimX = threads[0],
                                       .blockDimY = threads[1],
                                       .blockDimZ = threads[2],
                                       .sharedMemBytes = kernel.shared_bytes(),
                                       .kernelParams = arguments,
                                       .extra = nullptr,
                                       .kern = nullptr,
                                       .ctx = nullptr};
  const auto& driver = context_.driver();
  if (made_ == nullptr) {
    if (!make(launch)) return false;
    first_ = kernel.owner();
  } else if (driver.cuGraphExecKernelNodeSetParams(made_, node_, &launch) != CUDA_SUCCESS) {
    return false;  // a kernel with dynamic parallelism after one without, or a grid that the GPU does not take
  }
  last_ = kernel.owner();
  if (driver.cuGraphLaunch(made_, stream) == CUDA_SUCCESS) return true;
  destroy();
  return false;
}

bool CudaGraph::make(const CUDA_KERNEL_NODE_PARAMS& launch) noexcept {
  const auto& driver = context_.driver();
  if (driver.cuGraphCreate(&graph_, 0) == CUDA_SUCCESS &&
      driver.cuGraphAddKernelNode(&node_, graph_, nullptr, 0, &launch) == CUDA_SUCCESS &&
      driver.cuGraphInstantiate(&made_, graph_, 0) == CUDA_SUCCESS) {
    return true;
  }
  made_ = nullptr;
  destroy();
  return false;
}

void CudaGraph::destroy() noexcept {
  const auto& driver = context_.driver();
  if (made_ != nullptr) driver.cuGraphExecDestroy(std::exchange(made_, nullptr));
  if (graph_ != nullptr) driver.cuGraphDestroy(std::exchange(graph_, nullptr));
}

/// A non-blocking CUDA stream. Work starts as it is called; submit() only adds the signal.
class CudaQueue final : public Queue {
 public:
  CudaQueue(std::shared_ptr<GpuDevice> device, const CudaQueueOptions& options)
      : device_(std::move(device)),
        context_(*device_->cuda()),
        timeline_(create_cuda_timeline(device_, options)),
        // A graph's kernel would run on the whole GPU: it belongs to the context that its function is of.
        graph_(context_, timeline_->multiprocessors() == 0) {}

  ~CudaQueue() override {
    if (!end_stream(timeline_, submitted_, last_kernel_.empty() ? std::string() : "kernel " + last_kernel_)) {
      for (const Awaited& one : awaited_) keep_for_good(one.timeline);
      return;
    }
    if (const CudaContext::CleanupScope scope(context_); scope) {
      if (crossing_ != nullptr) context_.driver().cuEventDestroy(crossing_);
      graph_.destroy();
    }
  }

  [[nodiscard]] Backend backend() const noexcept override { return Backend::cuda; }
  [[nodiscard]] std::uint32_t multiprocessors() const noexcept override { return timeline_->multiprocessors(); }

  WaitResult wait(const Fence& fence, const std::atomic<bool>& cancel) override {
    device_->check_alive();
    if (fence.signalled()) return WaitResult::ready;
    const auto timeline = std::dynamic_pointer_cast<CudaTimeline>(fence.timeline());
    if (timeline == timeline_) return WaitResult::ready;  // a stream is in order
    if (!timeline || &timeline->context() != &context_) return fence.wait(cancel);
    const CudaContext::Scope scope(context_);
    keep(timeline);
    timeline->make_wait(timeline_->stream(), fence.value());
    ++commands_;
    dirty_ = true;
    return WaitResult::ready;
  }

  void launch(const Kernel& kernel, const Grid& grid, const gpumap_frame& frame) override {
    const auto* cuda_kernel = dynamic_cast<const CudaKernel*>(&kernel);
    if (cuda_kernel == nullptr) {
      throw Error(ErrorCode::invalid,
                  fmt::format("kernel {} is a compute shader and this queue runs CUDA: use a Vulkan queue or its CUDA "
                              "twin",
                              kernel.name()));
    }
    make_room();
    const CudaContext::Scope scope(context_);
    void* arguments[] = {const_cast<gpumap_frame*>(&frame)};  // which is read, before the call returns
    dirty_ = true;
    last_kernel_ = kernel.name();
    if (graph_.launch(*cuda_kernel, grid, arguments, timeline_->stream())) return;
    const auto& [blocks, threads] = grid;
    const CUresult result = context_.driver().cuLaunchKernel(
        cuda_kernel->function(), blocks[0], blocks[1], blocks[2], threads[0], threads[1], threads[2],
        cuda_kernel->shared_bytes(), timeline_->stream(), arguments, nullptr);
    if (result == CUDA_SUCCESS) return;
    context_.check(result, fmt::format("launching kernel {} with {}x{}x{} blocks of {}x{}x{} threads", kernel.name(),
                                       blocks[0], blocks[1], blocks[2], threads[0], threads[1], threads[2]));
  }

  void copy(const Mapping& from, std::size_t from_offset, const Mapping& to, std::size_t to_offset,
            std::size_t bytes) override {
    const auto& source = own_mapping(from, *device_);
    const auto& target = own_mapping(to, *device_);
    check_copy(source, from_offset, target, to_offset, bytes);
    const std::uint64_t source_address = cuda_address(source, "copy") + from_offset;
    const std::uint64_t target_address = cuda_address(target, "copy") + to_offset;
    if (bytes == 0) return;
    make_room();
    const CudaContext::Scope scope(context_);
    context_.check(context_.driver().cuMemcpyAsync(target_address, source_address, bytes, timeline_->stream()),
                   "copying");
    dirty_ = true;
  }

  void clear(const Mapping& mapping, std::size_t offset, std::size_t bytes) override {
    const auto& target = own_mapping(mapping, *device_);
    check_clear(target, offset, bytes);
    const std::uint64_t address = cuda_address(target, "clear");
    if (bytes == 0) return;
    make_room();
    const CudaContext::Scope scope(context_);
    context_.check(context_.driver().cuMemsetD32Async(address + offset, 0, bytes / 4, timeline_->stream()), "clearing");
    dirty_ = true;
  }

  [[nodiscard]] std::shared_ptr<GpuSpan> begin_span() override {
    const CudaContext::Scope scope(context_);
    if (!spans_) spans_ = std::make_shared<CudaSpans>(device_);
    ++commands_;
    return spans_->begin(timeline_->stream());
  }

  void end_span(GpuSpan& span) override {
    if (!spans_) return Queue::end_span(span);  // none of its spans
    const CudaContext::Scope scope(context_);
    spans_->end(span, timeline_->stream());
    ++commands_;
    dirty_ = true;
  }

  [[nodiscard]] std::string no_span_reason() const override { return spans_ ? spans_->reason() : std::string(); }

  [[nodiscard]] CUstream use_stream() noexcept {
    ++commands_;
    dirty_ = true;
    return timeline_->stream();
  }

  void order_after(CUstream other) {
    cross(other, timeline_->stream());
    ++commands_;
    dirty_ = true;
  }
  void order_before(CUstream other) {
    cross(timeline_->stream(), other);
    ++commands_;
  }

  [[nodiscard]] Fence submit() override {
    device_->check_alive();
    if (dirty_) {
      const CudaContext::Scope scope(context_);
      timeline_->signal(submitted_ + 1);
      ++submitted_;
      forget_ended();
      pending_.push_back({.value = submitted_, .commands = commands_ + 1});
      pending_commands_ += std::exchange(commands_, 0) + 1;
      dirty_ = false;
    }
    return {timeline_, submitted_};
  }

 private:
  struct Submission {
    std::uint64_t value;     ///< of the timeline, when it has ended
    std::uint64_t commands;  ///< that were asked of the driver
  };
  void forget_ended() {
    for (const std::uint64_t completed = timeline_->completed();
         !pending_.empty() && pending_.front().value <= completed; pending_.pop_front()) {
      pending_commands_ -= pending_.front().commands;
    }
  }
  /// For a command. With some 1000 pending the driver itself waits, which nobody can end: this does earlier. It counts
  /// those of all streams that share a connection to the GPU, of which a process has 8 by default: with this, four
  /// queues have room on each.
  void make_room() {
    constexpr std::uint64_t most = 240;
    if (pending_commands_ + ++commands_ <= most) return;
    for (forget_ended(); pending_commands_ + commands_ > most && !pending_.empty(); forget_ended()) {
      if (!waited_for({timeline_, pending_.front().value})) throw QueueCancelled();
    }
  }

  /// `later` goes on after what `earlier` has now. One event does for all: a wait is for its last record before.
  void cross(CUstream earlier, CUstream later) {
    device_->check_alive();
    const CudaContext::Scope scope(context_);
    const cuda::Driver& driver = context_.driver();
    if (crossing_ == nullptr) {
      context_.check(driver.cuEventCreate(&crossing_, CU_EVENT_DISABLE_TIMING), "creating an event between streams");
    }
    context_.check(driver.cuEventRecord(crossing_, earlier), "recording an event on a stream of another library");
    context_.check(driver.cuStreamWaitEvent(later, crossing_, 0), "waiting for a stream of another library");
  }

  struct Awaited {
    std::shared_ptr<CudaTimeline> timeline;
    std::uint64_t until;  ///< of this queue's timeline: then its stream is past the wait
  };
  /// The stream may come to the wait when nobody else has the timeline any more, and the word that the driver reads is
  /// the timeline's.
  void keep(const std::shared_ptr<CudaTimeline>& timeline) {
    const auto known = std::ranges::find(awaited_, timeline, &Awaited::timeline);
    if (known != awaited_.end()) {
      known->until = submitted_ + 1;
      return;
    }
    const std::uint64_t completed = timeline_->completed();
    std::erase_if(awaited_, [completed](const Awaited& one) { return one.until <= completed; });
    awaited_.push_back({timeline, submitted_ + 1});
  }

  void make_current() override { current_.emplace(context_); }
  void end_current() noexcept override { current_.reset(); }

  const std::shared_ptr<GpuDevice> device_;
  const CudaContext& context_;
  const std::shared_ptr<CudaTimeline> timeline_;
  CudaGraph graph_;
  std::vector<Awaited> awaited_;
  std::optional<CudaContext::Scope> current_;
  std::shared_ptr<CudaSpans> spans_;  // null until asked for
  CUevent crossing_ = nullptr;        // likewise: from stream to stream
  std::string last_kernel_;           // its name
  std::uint64_t submitted_ = 0;
  std::deque<Submission> pending_;      // submissions that may not have ended, in order
  std::uint64_t pending_commands_ = 0;  // of them
  std::uint64_t commands_ = 0;          // since the last submit
  bool dirty_ = false;                  // something was asked for since the last submit
};

}  // namespace

std::unique_ptr<Queue> create_cuda_queue(std::shared_ptr<GpuDevice> device, const CudaQueueOptions& options) {
  return std::make_unique<CudaQueue>(std::move(device), options);
}

namespace {

CudaQueue& cuda_queue(Queue& queue) {
  auto* own = dynamic_cast<CudaQueue*>(&queue);
  if (own == nullptr) throw Error(ErrorCode::invalid, "a queue that is not CUDA's has no stream");
  return *own;
}

}  // namespace

CUstream stream_of(Queue& queue) {
  return cuda_queue(queue).use_stream();
}

void order_after(Queue& queue, CUstream stream) {
  cuda_queue(queue).order_after(stream);
}

void order_before(Queue& queue, CUstream stream) {
  cuda_queue(queue).order_before(stream);
}

}  // namespace gpumap
