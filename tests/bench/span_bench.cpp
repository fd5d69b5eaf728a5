// SPDX-License-Identifier: MIT
// What a span costs the thread that asks for it and the one that reads it, beside the launch that it times. As in
// gpumapkernel, CUDA's context stays current meanwhile. Only the calls that a name says are timed, by the CPU's clock
// (some 25 ns are its own); the work is four bytes cleared. Not measured: what the GPU itself loses between a launch
// and the next. Medians over repetitions say more than means: --benchmark_repetitions=9. Figures as JSON:
// --benchmark_out=FILE --benchmark_out_format=json.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/device.hpp"
#include "queue/queues.hpp"

namespace {

using namespace gpumap;  // NOLINT

class Queued {
 public:
  explicit Queued(Backend backend)
      : memory_(Device::open()->allocate({Placement::device, 4096})), queue_(Device::open()->create_queue(backend)) {}

  [[nodiscard]] Queue& queue() { return *queue_; }
  void work() { queue_->clear(*memory_, 0, 4); }
  /// As a pipeline does: a few frames in flight, and no more.
  void submit() {
    fences_.push_back(queue_->submit());
    if (fences_.size() <= 8) return;
    static_cast<void>(fences_.front().wait_for(std::chrono::minutes(1)));
    fences_.pop_front();
  }

 private:
  const std::shared_ptr<Mapping> memory_;
  const std::unique_ptr<Queue> queue_;  // goes first, and waits for what uses the memory
  const Queue::Current current_{*queue_};
  std::deque<Fence> fences_;
};

template <typename Call>
double seconds(const Call& call) {
  const auto began = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - began).count();
}

void Launch(benchmark::State& state, Backend backend) {
  Queued frames(backend);
  for (auto _ : state) {
    state.SetIterationTime(seconds([&] { frames.work(); }));
    frames.submit();
  }
}

void BeginAndEndASpan(benchmark::State& state, Backend backend) {
  Queued frames(backend);
  for (auto _ : state) {
    std::shared_ptr<GpuSpan> span;
    const double begin = seconds([&] { span = frames.queue().begin_span(); });
    if (!span) return state.SkipWithError(frames.queue().no_span_reason().c_str());
    frames.work();
    state.SetIterationTime(begin + seconds([&] { frames.queue().end_span(*span); }));
    frames.submit();
  }
}

// What a span cannot be cheaper than: the two calls of CUDA that it consists of.
void RecordTwoEvents(benchmark::State& state, Backend backend) {
  Queued frames(backend);
  const auto device = std::dynamic_pointer_cast<GpuDevice>(Device::open());
  const CudaContext& context = *device->cuda();
  const CudaContext::Scope scope(context);
  CUevent began = nullptr, ended = nullptr;
  context.check(context.driver().cuEventCreate(&began, CU_EVENT_DEFAULT), "creating an event");
  context.check(context.driver().cuEventCreate(&ended, CU_EVENT_DEFAULT), "creating an event");
  CUstream stream = stream_of(frames.queue());
  for (auto _ : state) {
    const auto record = [&](CUevent event) {
      return seconds([&] { context.check(context.driver().cuEventRecord(event, stream), "recording an event"); });
    };
    const double first = record(began);
    frames.work();
    state.SetIterationTime(first + record(ended));
    frames.submit();
  }
  context.driver().cuEventDestroy(began);
  context.driver().cuEventDestroy(ended);
}

void ReadASpan(benchmark::State& state, Backend backend) {
  Queued frames(backend);
  std::int64_t worst = 0, error = 0;
  for (auto _ : state) {
    const auto span = frames.queue().begin_span();
    if (!span) return state.SkipWithError(frames.queue().no_span_reason().c_str());
    frames.work();
    frames.queue().end_span(*span);
    static_cast<void>(frames.queue().submit().wait_for(std::chrono::minutes(1)));
    std::optional<GpuTimes> times;
    const double took = seconds([&] { times = span->times(); });
    state.SetIterationTime(took);
    worst = std::max(worst, static_cast<std::int64_t>(took * 1e9));
    if (times) error = std::max(error, times->error_ns);
  }
  state.counters["worst_ns"] = static_cast<double>(worst);
  state.counters["error_ns"] = static_cast<double>(error);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const auto& [name, backend] : {std::pair{"cuda", Backend::cuda}, {"vulkan", Backend::vulkan}}) {
    if (!Device::open()->has(backend)) continue;
    for (const auto& [what, run] :
         {std::pair{"Launch", &Launch}, {"BeginAndEndASpan", &BeginAndEndASpan}, {"ReadASpan", &ReadASpan}}) {
      benchmark::RegisterBenchmark((std::string(what) + "/" + name).c_str(), run, backend)->UseManualTime();
    }
  }
  if (Device::open()->has(Backend::cuda)) {
    benchmark::RegisterBenchmark("RecordTwoEvents/cuda", &RecordTwoEvents, Backend::cuda)->UseManualTime();
  }
  benchmark::RunSpecifiedBenchmarks();
}
