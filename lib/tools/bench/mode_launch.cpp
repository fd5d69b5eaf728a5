// SPDX-License-Identifier: MIT
// launch: where the time of a launch goes, and what it is worth beside a GPU that is full. 4 KiB that the CPU writes
// into device memory, a KernelLauncher and a kernel that does nothing, one frame in flight, the CPU spinning: no
// GStreamer, no ring. First what the call takes and when the end is seen, by graphs and without them, with GPU times
// and without, and where the kernel stays on the GPU; then, in rounds of their own as this costs some 50 ns a call,
// each call of the CUDA driver. Last a launch beside kernels that fill all multiprocessors, with and without priority
// and sm-share.
// spans: what GPU times cost the thread that asks for them and the one that reads them, beside the launch that they
// time. As in gpumapkernel, CUDA's context stays current meanwhile. Only the calls that a row names are timed, by the
// CPU's clock (some 25 ns are its own); the work is four bytes cleared.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <gpumap/copy.hpp>
#include <gpumap/cuda.hpp>
#include <gpumap/error.hpp>
#include <gpumap/kernel_launcher.hpp>
#include <thread>

#include "../../../tests/unit/driver_calls.hpp"
#include "../../../tests/unit/temporary_folder.hpp"
#include "bench.hpp"
#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "queue/queues.hpp"

namespace bench {
namespace {

using namespace gpumap;  // NOLINT

constexpr std::size_t frame_bytes = 4096;

// Of kernels that fill the GPU: blocks of 1024 threads, two a multiprocessor.
constexpr unsigned hog_blocks = 264, hog_us = 2000;

struct Times {
  std::vector<std::int64_t> called, seen;  // ns from the frame's last store
};

/// A producer and a launcher in one thread.
class Frames {
 public:
  Frames(const std::shared_ptr<Device>& device, const KernelSettings& settings) : launcher_(settings, device) {
    slot_ = device->allocate({.placement = Placement::bar, .bytes = frame_bytes}, launcher_.backend());
    launcher_.set_stream({}, {});
    in_.mapping = slot_.get();
    in_.address = in_.view.plane[0] = slot_->address(launcher_.backend());
    in_.bytes = in_.view.bytes = frame_bytes;
  }
  [[nodiscard]] std::uint32_t multiprocessors() const { return launcher_.multiprocessors(); }

  void run(unsigned count, bool with_gpu_times, Times* times) {
    for (unsigned i = 0; i < count; ++i) {
      std::memset(slot_->host(), static_cast<int>(i), frame_bytes);
      store_fence();
      slot_->flush(0, frame_bytes);
      if (with_gpu_times) in_.trace = std::make_shared<FrameTrace>(log_, FrameRecord{});
      in_.sequence = i;
      const std::int64_t began = now_ns();
      const FrameOutput out = launcher_.launch(in_, {});
      const std::int64_t called = now_ns();
      if (!spin_until([&] { return out.done.signalled(); })) throw std::runtime_error("a kernel did not end");
      if (times == nullptr) continue;
      times->seen.push_back(now_ns() - began);
      times->called.push_back(called - began);
    }
  }

 private:
  KernelLauncher launcher_;
  std::shared_ptr<Mapping> slot_;
  std::shared_ptr<LatencyLog> log_ = std::make_shared<LatencyLog>("gpumap-bench");
  FrameInput in_;
};

/// Kernels that fill what they may run on, back to back, until it goes.
class Hog {
 public:
  Hog(const std::shared_ptr<Device>& device, const CudaQueueOptions& how)
      : kernel_(Kernel::load(device, source())), queue_(create_cuda_queue(*device, how)) {
    gpumap_frame frame{};
    frame.sequence = std::uint64_t{hog_us} * 1000;
    const Grid grid{.blocks = {hog_blocks, 1, 1}, .threads = {1024, 1, 1}};
    thread_ = std::thread([this, frame, grid] {
      std::deque<Fence> under_way;
      while (!ended_) {
        queue_->launch(*kernel_, grid, frame);
        under_way.push_back(queue_->submit());
        if (under_way.size() <= 3) continue;
        static_cast<void>(under_way.front().wait_for(std::chrono::minutes(1)));
        under_way.pop_front();
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ~Hog() {
    ended_ = true;
    // Ends: the thread looks at ended_, and waits a minute at most.
    thread_.join();
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

 private:
  static KernelSource source() {
    KernelSource made;
    made.name = "hog.cu";
    made.code =
        "#include <gpumap/kernel.h>\n"
        "static __device__ unsigned long long now() {\n"
        "  unsigned long long ns;\n"
        "  asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(ns));\n"
        "  return ns;\n"
        "}\n"
        "extern \"C\" __global__ void hog(gpumap_frame frame) {\n"
        "  const unsigned long long began = now();\n"
        "  while (now() - began < frame.sequence) {\n  }\n"
        "}\n";
    return made;
  }
  std::shared_ptr<Kernel> kernel_;
  std::unique_ptr<Queue> queue_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

class Launches {
 public:
  Launches(const Context& context, ModeReport& report)
      : device_(context.device),
        report_(report),
        cuda_(context.backend == Backend::cuda),
        nothing_((folder_.path() / (cuda_ ? "nothing.cu" : "nothing.comp")).string()),
        frames_(context.small() ? 20 : 2000),
        rounds_(context.small() ? 1 : 5) {
    std::ofstream(nothing_) << nothing_kernel(context.backend).code;
    if (cuda_) driver_ = &const_cast<cuda::Driver&>(cuda::Driver::get());  // this program alone uses it
  }

  void run() {
    ways();
    if (!cuda_) return;
    calls();
    beside();
  }

 private:
  static constexpr unsigned warmup = 100;
  struct Way {
    const char* name;
    bool graphs, gpu_times;
    std::unique_ptr<Frames> frames;
    Times times;
  };

  [[nodiscard]] KernelSettings settings() const {
    KernelSettings made;
    made.location = nothing_;
    return made;
  }
  std::unique_ptr<Frames> frames(bool graphs, KernelSettings how) {
    const bool had = driver_ != nullptr && std::exchange(driver_->has_graphs, graphs && driver_->has_graphs);
    auto made = std::make_unique<Frames>(device_, how);
    if (driver_ != nullptr) driver_->has_graphs = had;
    return made;
  }

  void ways() {
    std::vector<Way> ways;
    ways.push_back({cuda_ ? "by a graph" : "in Vulkan", true, false, frames(true, settings()), {}});
    if (cuda_) ways.push_back({"by cuLaunchKernel", false, false, frames(false, settings()), {}});
    ways.push_back(
        {cuda_ ? "by a graph, GPU times" : "in Vulkan, GPU times", true, true, frames(true, settings()), {}});
    if (cuda_) ways.push_back({"by cuLaunchKernel, GPU times", false, true, frames(false, settings()), {}});
    if (cuda_) {
      KernelSettings stays = settings();
      stays.mode = KernelMode::resident;
      ways.push_back({"it stays on the GPU", true, false, frames(true, stays), {}});
    }
    for (unsigned round = 0; round < rounds_; ++round) {
      for (Way& way : ways) {
        way.frames->run(warmup, way.gpu_times, nullptr);
        way.frames->run(frames_, way.gpu_times, &way.times);
      }
    }
    for (Way& way : ways) {
      add(way.name, "returned", way.times.called);
      add(way.name, "seen", way.times.seen);
    }
  }

  void calls() {
    fmt::print("\ncalls of the CUDA driver a frame, and us each (mean)\n");
    for (const bool gpu_times : {false, true}) {
      for (const bool graphs : {true, false}) {
        const auto one = frames(graphs, settings());
        one->run(warmup, gpu_times, nullptr);
        driver_calls::count_all(*driver_, true);
        driver_calls::forget();
        Times times;
        one->run(frames_, gpu_times, &times);
        driver_calls::count_all(*driver_, false);
        const std::string name =
            fmt::format("{}{}", graphs ? "by a graph" : "by cuLaunchKernel", gpu_times ? ", GPU times" : "");
        fmt::print("{}: launched after {:.2f}\n", name, summarise(times.called).median_us);
        nlohmann::json functions = nlohmann::json::array();
        for (const auto* count : driver_calls::counts()) {
          if (count->calls == 0) continue;
          const double a_frame = static_cast<double>(count->calls) / frames_;
          const double us = static_cast<double>(count->ns) / 1e3 / static_cast<double>(count->calls);
          fmt::print("  {:<38} {:>9.2f} {:>9.2f}\n", count->name, a_frame, us);
          functions.push_back({{"function", count->name}, {"a_frame", a_frame}, {"us", us}});
        }
        report_.extra["calls"].push_back({{"way", name}, {"functions", functions}});
      }
    }
  }

  void beside() {
    struct Case {
      const char* name;
      bool hog;
      CudaQueueOptions ours, hogs;
      bool stays = false;
    };
    std::vector<Case> cases{{"alone", false, {}, {}},
                            {"beside a full GPU", true, {}, {}},
                            {"beside it, priority=5", true, {.priority = 5}, {}},
                            {"it stays, alone", false, {}, {}, true},
                            {"it stays, beside a full GPU", true, {}, {}, true}};
    if (driver_->has_partitions) {
      cases.push_back({"sm-share=0.125, alone", false, {.sm_share = 0.125}, {}});
      cases.push_back({"sm-share=0.125, beside one that has none", true, {.sm_share = 0.125}, {}});
      cases.push_back({"sm-share=0.125, beside sm-share=0.875", true, {.sm_share = 0.125}, {.sm_share = 0.875}});
      cases.push_back({"it stays, sm-share=0.125, alone", false, {.sm_share = 0.125}, {}, true});
      cases.push_back(
          {"it stays, sm-share=0.125, beside sm-share=0.875", true, {.sm_share = 0.125}, {.sm_share = 0.875}, true});
    }
    for (const Case& one : cases) {
      KernelSettings how = settings();
      how.priority = one.ours.priority;
      how.sm_share = one.ours.sm_share;
      if (one.stays) how.mode = KernelMode::resident;
      // What cannot be here takes no other case with it.
      try {
        beside(one.name, how, one.hog ? &one.hogs : nullptr);
      } catch (const std::exception& error) {
        report_.not_measured.push_back(fmt::format("{}: {}", one.name, error.what()));
      }
    }
  }
  void beside(const char* name, const KernelSettings& how, const CudaQueueOptions* hogs) {
    const auto ours = frames(true, how);
    ours->run(warmup, false, nullptr);
    std::unique_ptr<Hog> hog;
    if (hogs != nullptr) hog = std::make_unique<Hog>(device_, *hogs);
    Times times;
    ours->run(frames_ * 2, false, &times);
    hog.reset();
    add(name, "beside", times.seen);
    report_.extra["multiprocessors"].push_back({{"case", name}, {"number", ours->multiprocessors()}});
  }
  void add(const char* path, const char* detail, std::vector<std::int64_t>& ns) {
    report_.add({.path = path, .detail = detail, .bytes = frame_bytes}, ns);
  }

  std::shared_ptr<Device> device_;
  ModeReport& report_;
  bool cuda_;
  const TemporaryFolder folder_;
  const std::string nothing_;  // a kernel that does nothing, in a file, as a user's
  unsigned frames_, rounds_;
  cuda::Driver* driver_ = nullptr;  // null without CUDA
};

class Queued {
 public:
  explicit Queued(const Context& context)
      : memory_(context.allocate(Placement::device, 4096)), queue_(context.create_queue()) {}

  [[nodiscard]] Queue& queue() { return *queue_; }
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
  const std::shared_ptr<Mapping> memory_;
  const std::unique_ptr<Queue> queue_;  // goes first, and waits for what uses the memory
  const Queue::Current current_{*queue_};
  std::deque<Fence> fences_;
};

template <typename Call>
std::int64_t time(const Call& call) {
  const std::int64_t began = now_ns();
  call();
  return now_ns() - began;
}

}  // namespace

void run_launch(Context& context, ModeReport& report) {
  report.what = fmt::format(
      "from the last store of 4 KiB until the call returned, until the kernel was seen done, and that beside kernels "
      "of "
      "{} us on {} blocks",
      hog_us, hog_blocks);
  report.not_measured = {"GStreamer and the ring: see gpumap-latency"};
  Launches(context, report).run();
}

void run_spans(Context& context, ModeReport& report) {
  report.what = "what GPU times cost the threads that ask for them and read them, a frame";
  report.not_measured = {"what the GPU itself loses between a launch and the next"};
  const unsigned frames = context.small() ? 50 : 20'000;
  const auto add = [&](const char* path, const std::function<std::int64_t()>& one) {
    std::vector<std::int64_t> ns;
    for (unsigned i = 0; i < frames; ++i) ns.push_back(one());
    report.add({.path = path}, ns);
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
    std::optional<GpuTimes> times;
    const std::int64_t took = time([&] { times = span->times(); });
    if (times) error_ns = std::max(error_ns, times->error_ns);
    return took;
  });
  report.extra["error_ns"] = error_ns;
  if (context.backend != Backend::cuda) return;
  // What a span cannot be cheaper than: the two calls of CUDA that it consists of.
  const CudaContext& cuda = *std::dynamic_pointer_cast<GpuDevice>(context.device)->cuda();
  const CudaContext::Scope scope(cuda);
  const CUstream stream = stream_of(frame.queue());
  std::array<CUevent, 2> events{};
  for (CUevent& one : events) cuda.check(cuda.driver().cuEventCreate(&one, CU_EVENT_DEFAULT), "creating an event");
  const auto record = [&](CUevent event) {
    return time([&] { cuda.check(cuda.driver().cuEventRecord(event, stream), "recording an event"); });
  };
  add("record two events", [&] {
    std::int64_t took = record(events[0]);
    frame.work();
    took += record(events[1]);
    frame.submit();
    return took;
  });
  for (CUevent one : events) cuda.driver().cuEventDestroy(one);
}

}  // namespace bench
