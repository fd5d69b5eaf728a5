// SPDX-License-Identifier: MIT
// spans: what GPU times cost the thread that asks for them and the one that reads them, beside the launch that they
// time. As in gpumapkernel, CUDA's context stays current meanwhile. Only the calls that a row names are timed, by the
// CPU's clock (some 25 ns are its own); the work is four bytes cleared.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <gpumap/error.hpp>

#include "bench.hpp"
#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "queue/queues.hpp"

namespace bench {
namespace {

using gpumap::CUevent;
using gpumap::GpuSpan;

class Queued {
 public:
  explicit Queued(const Context& context)
      : memory_(context.allocate(gpumap::Placement::device, 4096)), queue_(context.create_queue()) {}

  [[nodiscard]] gpumap::Queue& queue() { return *queue_; }
  void work() { queue_->clear(*memory_, 0, 4); }
  /// As a pipeline does: a few frames in flight, and no more.
  void submit() {
    fences_.push_back(queue_->submit());
    if (fences_.size() <= 8) return;
    poll(fences_.front());
    fences_.pop_front();
  }
  [[nodiscard]] std::shared_ptr<GpuSpan> begin() {
    auto span = queue_->begin_span();
    if (!span) throw std::runtime_error(queue_->no_span_reason());
    return span;
  }

 private:
  const std::shared_ptr<gpumap::Mapping> memory_;
  const std::unique_ptr<gpumap::Queue> queue_;  // goes first, and waits for what uses the memory
  const gpumap::Queue::Current current_{*queue_};
  std::deque<gpumap::Fence> fences_;
};

template <typename Call>
std::int64_t time(const Call& call) {
  const std::int64_t began = now_ns();
  call();
  return now_ns() - began;
}

/// What a span cannot be cheaper than: the two calls of CUDA that it consists of.
class TwoEvents {
 public:
  TwoEvents(const Context& context, Queued& frames)
      : context_(*std::dynamic_pointer_cast<gpumap::GpuDevice>(context.device)->cuda()),
        scope_(context_),
        stream_(gpumap::stream_of(frames.queue())) {
    for (CUevent& one : events_) {
      context_.check(context_.driver().cuEventCreate(&one, gpumap::CU_EVENT_DEFAULT), "creating an event");
    }
  }
  ~TwoEvents() {
    for (CUevent one : events_) context_.driver().cuEventDestroy(one);
  }
  TwoEvents(const TwoEvents&) = delete;
  TwoEvents& operator=(const TwoEvents&) = delete;
  std::int64_t record(std::size_t which) {
    return time(
        [&] { context_.check(context_.driver().cuEventRecord(events_[which], stream_), "recording an event"); });
  }

 private:
  const gpumap::CudaContext& context_;
  const gpumap::CudaContext::Scope scope_;
  const gpumap::CUstream stream_;
  std::array<CUevent, 2> events_{};
};

}  // namespace

nlohmann::json run_spans(Context& context) {
  ModeReport report{.mode = "spans",
                    .what = "what GPU times cost the threads that ask for them and read them, a frame"};
  report.not_measured = {"what the GPU itself loses between a launch and the next"};
  const unsigned frames = context.small() ? 50 : 20'000;
  const auto add = [&](const char* path, const std::function<std::int64_t()>& one) {
    std::vector<std::int64_t> ns;
    for (unsigned i = 0; i < frames; ++i) ns.push_back(one());
    report.rows.push_back({.path = path, .time = summarise(ns), .rate = false});
  };
  Queued frame(context);
  add("a launch", [&] {
    const std::int64_t took = time([&] { frame.work(); });
    frame.submit();
    return took;
  });
  add("begin and end a span", [&] {
    std::shared_ptr<GpuSpan> span;
    std::int64_t took = time([&] { span = frame.begin(); });
    frame.work();
    took += time([&] { frame.queue().end_span(*span); });
    frame.submit();
    return took;
  });
  std::int64_t error_ns = 0;
  add("read a span", [&] {
    const auto span = frame.begin();
    frame.work();
    frame.queue().end_span(*span);
    poll(frame.queue().submit());
    std::optional<gpumap::GpuTimes> times;
    const std::int64_t took = time([&] { times = span->times(); });
    if (times) error_ns = std::max(error_ns, times->error_ns);
    return took;
  });
  report.extra["error_ns"] = error_ns;
  if (context.backend == gpumap::Backend::cuda) {
    TwoEvents events(context, frame);
    add("record two events", [&] {
      std::int64_t took = events.record(0);
      frame.work();
      took += events.record(1);
      frame.submit();
      return took;
    });
  }
  return make_report(report);
}

}  // namespace bench
