// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/gpu_span.hpp"
#include "gpumap/kernel.h"
#include "gpumap/memory.hpp"

namespace gpumap {

class Kernel;

/// Blocks of threads: CUDA grid and block, Vulkan workgroup count and size.
struct Grid {
  std::array<std::uint32_t, 3> blocks{1, 1, 1};
  std::array<std::uint32_t, 3> threads{1, 1, 1};
};

/// What was asked of a queue was given up, because what Queue::set_wait() was given is false. What was asked before
/// runs, until the fence of submit(), which does not throw this.
class GPUMAP_API QueueCancelled : public std::exception {
 public:
  ~QueueCancelled() override;
  [[nodiscard]] const char* what() const noexcept override;
};

/// GPU work in order: a CUDA stream, or a Vulkan command stream. Work is asynchronous; what is submitted after a
/// publish sees the published bytes. Thread safety: one thread at a time for each queue; queues are independent.
/// Errors: Error(device_lost) once a kernel of this process faulted. Destruction waits for the work for 5 s at most.
class GPUMAP_API Queue {
 public:
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  virtual ~Queue() = default;

  /// While it lives, calls in a row are cheaper: what CUDA makes current in a thread, which else each call does and
  /// undoes, stays so. (In Vulkan it does nothing.) One at a time for a queue, and in one thread, which also calls the
  /// queue meanwhile. Throws as launch() does.
  class Current {
   public:
    explicit Current(Queue& queue) : queue_(queue) { queue_.make_current(); }
    ~Current() { queue_.end_current(); }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    Queue& queue_;
  };

  [[nodiscard]] virtual Backend backend() const noexcept = 0;
  /// That its share of the GPU (CudaQueueOptions::sm_share) gave it; 0: it runs on all.
  [[nodiscard]] virtual std::uint32_t multiprocessors() const noexcept { return 0; }

  /// Later work starts after `fence`: on the GPU where both sides are the same backend, else by a CPU wait, which ends
  /// with `cancelled` once `cancel` is set.
  virtual WaitResult wait(const Fence& fence, const std::atomic<bool>& cancel) = 0;
  /// Launch on one frame. `frame` is copied before this returns. The kernel's backend is this queue's: Error(invalid).
  /// In CUDA this, copy() and clear() wait as set_wait() says where 240 commands are pending.
  virtual void launch(const Kernel& kernel, const Grid& grid, const gpumap_frame& frame) = 0;
  /// DMA between two mappings of this queue's device. Ranges checked: Error(invalid).
  virtual void copy(const Mapping& from, std::size_t from_offset, const Mapping& to, std::size_t to_offset,
                    std::size_t bytes) = 0;
  /// Fill a range of a mapping with zeros; offset and bytes are multiples of 4. Ranges checked: Error(invalid).
  virtual void clear(const Mapping& mapping, std::size_t offset, std::size_t bytes) = 0;
  /// Hand over everything since the last submit; the fence is signalled when it, and all before it, is done
  /// and its writes to host memory are visible to the CPU.
  [[nodiscard]] virtual Fence submit() = 0;

  /// How calls that have to wait for this queue's own work wait, until the fence is signalled; false: the call gives up
  /// and throws QueueCancelled. Where this is not set they wait for a minute at most, and then throw Error(io).
  /// Calls that wait for something else look whether it is `given_up` meanwhile: then they throw QueueCancelled, too.
  void set_wait(std::function<bool(const Fence&)> wait, std::function<bool()> given_up = nullptr) {
    wait_ = std::move(wait);
    given_up_ = std::move(given_up);
  }
  /// Submit, and wait until all of it is done: memory that it uses may be freed then. For what seldom happens, such as
  /// memory that grows. Throws QueueCancelled, Error(device_lost).
  void finish();

  /// Tell later when the GPU worked on what is asked for from here to end_span(). Spans may overlap and may cross a
  /// submit(). Two small commands each, and nothing where it is not called; the first one of a device prepares and
  /// compares the clocks, which may take some ms. Null where there is no telling: no_span_reason() says why. Null too,
  /// rather than a wait, while GpuSpan::max_per_queue spans of this queue are held unread (CUDA itself waits with some
  /// 1000 commands pending). Throws as launch() does.
  [[nodiscard]] virtual std::shared_ptr<GpuSpan> begin_span() { return nullptr; }
  /// The span ends here; submit() hands this over too. Error(invalid) for a span of another queue or one that ended.
  virtual void end_span(GpuSpan& span);
  /// Why the last begin_span() gave null, and what helps; empty when it did not.
  [[nodiscard]] virtual std::string no_span_reason() const { return "this queue does not tell the time"; }

 protected:
  /// As set_wait() says; false: give up. Throws Error(io) where that is not set.
  [[nodiscard]] bool waited_for(const Fence& fence) const;
  [[nodiscard]] bool is_given_up() const { return given_up_ && given_up_(); }

 private:
  virtual void make_current() {}
  virtual void end_current() noexcept {}

  std::function<bool(const Fence&)> wait_;
  std::function<bool()> given_up_;
};

}  // namespace gpumap
