// SPDX-License-Identifier: MIT
// The floor: what the same stores, fence, launch and wait take with nothing around them.
#include <atomic>
#include <cstring>
#include <gpumap/color.hpp>
#include <gpumap/copy.hpp>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <memory>
#include <thread>

#include "first_light.hpp"

namespace first_light {
namespace {

using gpumap::Backend;
using gpumap::Placement;

class Bare {
 public:
  Bare(const Options& options, const NamedKernel& kernel)
      : options_(options), device_(gpumap::Device::open(options.device)), black_(options.frame_bytes(), std::byte{16}) {
    const std::size_t luma = std::size_t{options.width} * options.height;
    std::memset(black_.data() + luma, 128, black_.size() - luma);
    kernel_ = gpumap::Kernel::load(device_, kernel.source(options.backend));
    queue_ = device_->create_queue(options.backend);
    slot_ = device_->allocate({.placement = Placement::bar, .bytes = black_.size()});
    output_ = device_->allocate({.placement = Placement::device, .bytes = black_.size()});
    result_ = device_->allocate({.placement = Placement::host, .bytes = GPUMAP_RESULT_WORDS * sizeof(std::uint64_t)},
                                options.backend);
    frame_.in = view(slot_->address(options.backend));
    frame_.out = view(output_->address(options.backend));
    frame_.result = result_->address(options.backend);
    frame_.color = gpumap::color_matrix(gpumap::ColorMatrix::bt709, gpumap::ColorRange::limited);
    grid_ = kernel_->grid_for(frame_);
  }

  /// What videotestsrc does for a pattern that stands still: line by line from a picture that it keeps.
  std::int64_t fill() {
    const std::size_t line = options_.width;
    for (std::size_t at = 0; at < black_.size(); at += line) {
      std::memcpy(slot_->host() + at, black_.data() + at, line);
    }
    return now_ns();
  }
  void publish() const {
    gpumap::store_fence();
    slot_->flush(0, black_.size());
  }
  gpumap::Fence launch(std::uint64_t sequence) {
    frame_.sequence = sequence;
    queue_->launch(*kernel_, grid_, frame_);
    return queue_->submit();
  }

  [[nodiscard]] unsigned count() const { return options_.warmup + options_.frames; }
  [[nodiscard]] unsigned warmup() const { return options_.warmup; }

 private:
  [[nodiscard]] gpumap_view view(std::uint64_t address) const {
    gpumap_view made{};
    made.plane[0] = address;
    made.plane[1] = address + std::uint64_t{options_.width} * options_.height;
    made.stride[0] = made.stride[1] = options_.width;
    made.width = options_.width;
    made.height = options_.height;
    made.format = GPUMAP_FORMAT_NV12;
    made.bytes = black_.size();
    return made;
  }

  const Options& options_;
  std::shared_ptr<gpumap::Device> device_;
  std::vector<std::byte> black_;
  std::shared_ptr<gpumap::Kernel> kernel_;
  std::shared_ptr<gpumap::Mapping> slot_, output_, result_;
  gpumap_frame frame_{};
  gpumap::Grid grid_;
  std::unique_ptr<gpumap::Queue> queue_;  // last: ends, and waits for the GPU, before the memory goes
};

struct Times {
  Histogram total, fenced, seen, launched, done, period;
};

void wait_for(const gpumap::Fence& fence) {
  if (spin_until([&] { return fence.signalled(); })) return;
  fence.timeline()->check();
  throw gpumap::Error(gpumap::ErrorCode::device_lost, "a kernel did not end within 10 s");
}

void run_one_thread(Bare& bare, Times& times) {
  std::int64_t before = 0;
  for (unsigned i = 0; i < bare.count(); ++i) {
    const std::int64_t stored = bare.fill();
    bare.publish();
    const std::int64_t fenced = now_ns();
    const gpumap::Fence fence = bare.launch(i);
    const std::int64_t launched = now_ns();
    wait_for(fence);
    const std::int64_t done = now_ns();
    if (i >= bare.warmup()) {
      times.total.add(done - stored);
      times.fenced.add(fenced - stored);
      times.launched.add(launched - fenced);
      times.done.add(done - launched);
      if (before != 0) times.period.add(stored - before);
    }
    before = stored;
  }
}

void run_two_threads(Bare& bare, Times& times) {
  constexpr unsigned gave_up = ~0U;
  std::atomic<unsigned> published{0};
  std::atomic<unsigned> completed{0};
  std::int64_t seen = 0;  // written before `completed`, read after it
  std::int64_t launched = 0;
  std::int64_t done = 0;
  std::exception_ptr failure;
  std::thread consumer([&] {
    try {
      for (unsigned i = 0; i < bare.count(); ++i) {
        if (!spin_until([&] { return published.load(std::memory_order_acquire) > i; })) return;
        seen = now_ns();
        const gpumap::Fence fence = bare.launch(i);
        launched = now_ns();
        wait_for(fence);
        done = now_ns();
        completed.store(i + 1, std::memory_order_release);
      }
    } catch (...) {
      failure = std::current_exception();
      completed.store(gave_up, std::memory_order_release);
    }
  });
  std::int64_t before = 0;
  for (unsigned i = 0; i < bare.count(); ++i) {
    const std::int64_t stored = bare.fill();
    bare.publish();
    const std::int64_t fenced = now_ns();
    published.store(i + 1, std::memory_order_release);
    if (!spin_until([&] { return completed.load(std::memory_order_acquire) > i; }) || completed == gave_up) break;
    if (i >= bare.warmup()) {
      times.total.add(done - stored);
      times.fenced.add(fenced - stored);
      times.seen.add(seen - fenced);
      times.launched.add(launched - seen);
      times.done.add(done - launched);
      if (before != 0) times.period.add(stored - before);
    }
    before = stored;
  }
  consumer.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

Result run_bare(const Options& options, const NamedKernel& kernel, Threads threads) {
  Bare bare(options, kernel);
  Times times;
  if (threads == Threads::one) {
    run_one_thread(bare, times);
  } else {
    run_two_threads(bare, times);
  }
  Result result;
  result.kernel = kernel.name;
  result.path = threads == Threads::one ? "bare, one thread" : "bare, two threads";
  result.total = times.total;
  result.stages.emplace_back("last store to store fence done", summarise(times.fenced));
  if (threads == Threads::two) result.stages.emplace_back("to seen by the second thread", summarise(times.seen));
  result.stages.emplace_back("to launched", summarise(times.launched));
  result.stages.emplace_back("to done", summarise(times.done));
  result.period_us = summarise(times.period).median_us;
  return result;
}

}  // namespace first_light
