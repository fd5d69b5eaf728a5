// SPDX-License-Identifier: MIT
// When the GPU worked, in the CPU's time. On whatever Vulkan driver there is; on a GPU in CUDA too.
#include "gpumap/gpu_span.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "backend_bench.hpp"
#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"
#include "span_helpers.hpp"

namespace gpumap {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t us = 1'000, ms = 1'000'000;

/// One thread that counts: how long is up to the frame.
constexpr const char* cuda_count = R"(#include <gpumap/kernel.h>
extern "C" __global__ void count(gpumap_frame frame) {
  volatile unsigned* word = (volatile unsigned*)frame.out.plane[0];
  if (blockIdx.x + threadIdx.x == 0) for (gpumap_u64 i = 0; i < frame.sequence; ++i) *word = *word * 5u + 1u;
}
)";
constexpr const char* glsl_count = R"(#version 460
#include <gpumap.glsl>
void main() {
  uint value = 1u;
  if (gl_GlobalInvocationID.x == 0u) for (uint64_t i = 0ul; i < frame.sequence; ++i) {
    value = load_u32(frame.out_view.plane[0]) * 5u + value;
    store_u32(frame.out_view.plane[0], value);
  }
}
)";

/// Where the fallback compares the clocks, the GPU's turn and the CPU's decide how closely.
bool brackets() {
  const char* vulkan = std::getenv("GPUMAP_VULKAN_CLOCK");
  const char* cuda = std::getenv("GPUMAP_CUDA_TIMELINE");
  return (vulkan != nullptr && std::string_view(vulkan) == "bracket") || cuda != nullptr;
}

class GpuSpanTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (IsSkipped()) return;
    queue_ = new_queue();
    const bool cuda = GetParam() == Backend::cuda;
    kernel_ = Kernel::load(bench_->device(), {.language = cuda ? Language::cuda : Language::glsl,
                                              .name = cuda ? "count.cu" : "count.comp",
                                              .code = cuda ? cuda_count : glsl_count,
                                              .function = cuda ? "count" : ""});
    count(*queue_, 1);
    ASSERT_EQ(queue_->submit().wait_for(std::chrono::minutes(1)),
              WaitResult::ready);  // the first launch of a kernel takes long
    std::int64_t shortest = INT64_MAX;
    for (int turn = 0; turn < 3; ++turn) {
      const std::int64_t began = monotonic_ns();
      for (unsigned i = 0; i < launches; ++i) count(*queue_, max_counts);
      ASSERT_EQ(queue_->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
      shortest = std::min(shortest, monotonic_ns() - began);
    }
    ns_a_count_ = static_cast<double>(shortest) / (launches * max_counts);
  }

  [[nodiscard]] std::unique_ptr<Queue> new_queue() const { return bench_->device()->create_queue(GetParam()); }

  void count(Queue& queue, std::uint64_t times) const {
    gpumap_frame frame{};
    frame.sequence = times;
    frame.out.bytes = 4;
    frame.out.plane[0] = bench_->out();
    queue.launch(*kernel_, kernel_->grid_for(frame), frame);
  }
  /// Work of roughly this duration.
  void work(Queue& queue, std::int64_t ns) const {
    auto counts = static_cast<std::uint64_t>(static_cast<double>(ns) / ns_a_count_) + 1;
    for (; counts > max_counts; counts -= max_counts) count(queue, max_counts);
    count(queue, counts);
  }
  /// A span of roughly this duration, handed over.
  std::shared_ptr<GpuSpan> spanned(Queue& queue, std::int64_t ns, Fence& fence) const {
    auto span = queue.begin_span();
    if (!span) throw std::runtime_error(queue.no_span_reason());
    if (ns != 0) work(queue, ns);
    queue.end_span(*span);
    fence = queue.submit();
    return span;
  }
  /// The same, and done.
  std::shared_ptr<GpuSpan> done(Queue& queue, std::int64_t ns) const {
    Fence fence;
    auto span = spanned(queue, ns, fence);
    EXPECT_EQ(fence.wait_for(std::chrono::minutes(1)), WaitResult::ready);
    return span;
  }

  static void expect_between(GpuSpan& span, std::int64_t before, std::int64_t after) {
    const auto times = told(span);
    ASSERT_TRUE(times);
    EXPECT_GE(times->began_ns, before - times->error_ns);
    EXPECT_LE(times->ended_ns, after + times->error_ns);
    EXPECT_LE(times->began_ns, times->ended_ns);
    EXPECT_GT(times->error_ns, 0);
    // Where this thread was stopped while the clocks were compared, that is told, too.
    EXPECT_LT(times->error_ns, 20'000 * ms);
  }

  /// Others use this machine, too: what its own pace decides has to be seen in one of many tries.
  static bool seen(const std::function<bool()>& seen_once) {
    for (int i = 0; i < 100; ++i) {
      if (seen_once()) return true;
    }
    return false;
  }

  static constexpr unsigned launches = 10;
  static constexpr std::uint64_t max_counts = 20'000;  // lavapipe ends a loop after 65535 rounds

  std::unique_ptr<Queue> queue_;
  std::shared_ptr<Kernel> kernel_;
  double ns_a_count_ = 0;
};

TEST_P(GpuSpanTest, LiesBetweenTheTimesOfTheCpu) {
  for (int i = 0; i < 20; ++i) {
    const std::int64_t before = monotonic_ns();
    const auto span = done(*queue_, 200 * us);
    const std::int64_t after = monotonic_ns();
    expect_between(*span, before, after);
    const auto before_that = span->times();
    ASSERT_TRUE(before_that);
    std::this_thread::sleep_for(2ms);
    EXPECT_EQ(span->times()->began_ns, before_that->began_ns) << "told once and for all";
  }
}

TEST_P(GpuSpanTest, ComparesTheClocksClosely) {
  const std::int64_t enough = brackets() ? 10 * ms : 1 * ms;
  EXPECT_LT(smallest_error_ns(enough, [&] { return done(*queue_, 0); }), enough);
}

TEST_P(GpuSpanTest, FillsTheTimeInWhichTheCpuWaited) {
  EXPECT_TRUE(seen([&] {
    const std::int64_t before = monotonic_ns();
    const auto span = done(*queue_, 50 * ms);
    const std::int64_t after = monotonic_ns();
    const auto times = told(*span).value();
    return times.ended_ns - times.began_ns > (after - before) / 2;
  }));
}

TEST_P(GpuSpanTest, LongerWorkIsALongerSpan) {
  const auto length = [&](std::int64_t ns) {
    const auto times = told(*done(*queue_, ns)).value();
    return times.ended_ns - times.began_ns;
  };
  std::int64_t shorter = INT64_MAX, longer = INT64_MAX;
  EXPECT_TRUE(seen([&] {
    shorter = std::min(shorter, length(2 * ms));
    longer = std::min(longer, length(20 * ms));
    return longer > 5 * shorter;
  })) << longer
      << " ns, and a tenth of the work " << shorter;
}

TEST_P(GpuSpanTest, SpansOfAQueueComeInOrder) {
  std::vector<std::shared_ptr<GpuSpan>> spans;
  Fence last;
  for (int i = 0; i < 30; ++i) {
    auto span = queue_->begin_span();
    work(*queue_, 100 * us);
    queue_->end_span(*span);
    if (i % 3 == 0) last = queue_->submit();  // some share a submission
    spans.push_back(std::move(span));
  }
  ASSERT_EQ(queue_->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  std::int64_t before = 0, error = 0;
  for (const auto& span : spans) {
    const auto times = told(*span);
    ASSERT_TRUE(times);
    EXPECT_GE(times->began_ns, before - error - times->error_ns);
    EXPECT_GT(times->ended_ns, times->began_ns);
    before = times->ended_ns;
    error = times->error_ns;
  }
}

TEST_P(GpuSpanTest, BeginsAfterTheWorkBefore) {
  EXPECT_TRUE(seen([&] {
    const std::int64_t before = monotonic_ns();
    work(*queue_, 30 * ms);
    const auto span = done(*queue_, 100 * us);
    const std::int64_t after = monotonic_ns();
    const auto times = told(*span).value();
    const std::int64_t half = (after - before) / 2;
    return times.began_ns > before + half && times.ended_ns - times.began_ns < half;
  }));
}

TEST_P(GpuSpanTest, SpansOverlapAndCrossSubmissions) {
  const auto all = queue_->begin_span();
  const auto first = done(*queue_, 1 * ms);
  const auto second = done(*queue_, 1 * ms);
  queue_->end_span(*all);
  EXPECT_FALSE(all->times() && GetParam() == Backend::vulkan) << "not handed over";
  ASSERT_EQ(queue_->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  const auto whole = told(*all).value(), a = told(*first).value(), b = told(*second).value();
  EXPECT_LE(whole.began_ns, a.began_ns + whole.error_ns + a.error_ns);
  EXPECT_GE(whole.ended_ns, b.ended_ns - whole.error_ns - b.error_ns);
  EXPECT_GE(whole.ended_ns - whole.began_ns, a.ended_ns - a.began_ns + b.ended_ns - b.began_ns);
}

TEST_P(GpuSpanTest, AnEmptySpanIsShort) {
  EXPECT_TRUE(seen([&] {
    const std::int64_t before = monotonic_ns();
    const auto span = done(*queue_, 0);
    const std::int64_t after = monotonic_ns();
    expect_between(*span, before, after);
    const auto times = span->times();
    return times->ended_ns - times->began_ns < 5 * ms;
  }));
}

TEST_P(GpuSpanTest, IsEmptyUntilTheGpuIsPastIt) {
  static_cast<void>(done(*queue_, 1 * ms));  // its events hold times, and the next span uses them
  EXPECT_TRUE(seen([&] {
    const std::int64_t before = monotonic_ns();
    const auto open = queue_->begin_span();
    EXPECT_FALSE(open->times());
    work(*queue_, 100 * ms);
    EXPECT_FALSE(open->times()) << "not ended";
    queue_->end_span(*open);
    const Fence fence = queue_->submit();
    // The work may end while this thread is stopped: then it is told, and its own times.
    const auto early = open->times();
    const bool busy = !fence.signalled();
    if (early) {
      EXPECT_GE(early->began_ns, before - early->error_ns) << "told before it was done";
    }
    EXPECT_EQ(fence.wait_for(std::chrono::minutes(1)), WaitResult::ready);
    expect_between(*open, before, monotonic_ns());
    return busy && !early;
  })) << "told only when it was done";
}

TEST_P(GpuSpanTest, ReadLateAndOutOfOrder) {
  const std::int64_t before = monotonic_ns();
  const auto early = done(*queue_, 200 * us);
  const std::int64_t between = monotonic_ns();
  for (int i = 0; i < 3; ++i) {  // the clocks are compared again and again meanwhile
    std::this_thread::sleep_for(std::chrono::nanoseconds(GpuSpan::comparison_ns) + 10ms);
    const std::int64_t then = monotonic_ns();
    const auto span = done(*queue_, 200 * us);
    expect_between(*span, then, monotonic_ns());
  }
  expect_between(*early, before, between);
}

TEST_P(GpuSpanTest, ManyUnreadNeverBlock) {
  std::vector<std::shared_ptr<GpuSpan>> spans;
  // The GPU comes to none of them meanwhile. Beside work that is long enough for a busy machine: what waits for the GPU
  // waits for any.
  bool waited = true;
  std::int64_t took = 0;
  for (std::int64_t length = 300 * ms; waited && length < 10'000 * ms; length *= 2) {
    spans.clear();
    waited = false;
    work(*queue_, length);
    const Fence busy = queue_->submit();
    const std::int64_t began = monotonic_ns();
    while (auto span = queue_->begin_span()) {
      EXPECT_EQ(queue_->no_span_reason(), "");
      queue_->end_span(*span);
      spans.push_back(std::move(span));
      // One for each slot of the largest ring. Far beyond that CUDA itself waits, with some 1000 commands pending.
      if (spans.size() == 256) waited = busy.signalled();
      ASSERT_LE(spans.size(), GpuSpan::max_per_queue);
    }
    took = monotonic_ns() - began;
    EXPECT_EQ(spans.size(), GpuSpan::max_per_queue);
    if (GetParam() == Backend::vulkan) waited = busy.signalled();
  }
  EXPECT_FALSE(waited) << "that waited for the GPU, for " << took << " ns";
  EXPECT_NE(queue_->no_span_reason().find("1024"), std::string::npos) << queue_->no_span_reason();
  EXPECT_NE(new_queue()->begin_span(), nullptr) << "each queue has its own";
  ASSERT_EQ(queue_->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);

  ASSERT_TRUE(told(*spans[7]));
  ASSERT_NE(queue_->begin_span(), nullptr) << "one was read";
  spans.erase(spans.begin(), spans.begin() + 100);
  const std::int64_t before = monotonic_ns();
  const auto span = done(*queue_, 100 * us);
  expect_between(*span, before, monotonic_ns());
  // Each time may be off by its own error: the clocks are compared again and again, now better, now worse.
  std::int64_t least = 0;
  for (const auto& one : spans) {
    const auto times = told(*one);
    ASSERT_TRUE(times);
    EXPECT_GE(times->ended_ns + times->error_ns, least);
    least = times->ended_ns - times->error_ns;
  }
}

TEST_P(GpuSpanTest, OutlivesItsQueue) {
  const std::int64_t before = monotonic_ns();
  Fence fence;
  const auto span = spanned(*queue_, 5 * ms, fence);
  const auto open = queue_->begin_span();
  work(*queue_, 1 * us);
  queue_.reset();
  expect_between(*span, before, monotonic_ns());
  EXPECT_FALSE(open->times()) << "never ended";
}

TEST_P(GpuSpanTest, GoneBeforeTheGpuCameToIt) {
  for (int i = 0; i < 50; ++i) {
    Fence fence;
    spanned(*queue_, 100 * us, fence).reset();
  }
  const std::int64_t before = monotonic_ns();
  Fence fence;
  const auto span = spanned(*queue_, 100 * us, fence);
  static_cast<void>(queue_->begin_span());
  ASSERT_EQ(fence.wait_for(std::chrono::minutes(1)), WaitResult::ready);
  expect_between(*span, before, monotonic_ns());
}

TEST_P(GpuSpanTest, ForeignAndEndedSpansAreRefused) {
  const auto other = new_queue();
  const auto span = queue_->begin_span();
  EXPECT_THROW(other->end_span(*span), Error) << "a queue without spans";
  const auto its_own = other->begin_span();
  EXPECT_THROW(other->end_span(*span), Error);
  queue_->end_span(*span);
  EXPECT_THROW(queue_->end_span(*span), Error);
  ASSERT_EQ(queue_->submit().wait_for(std::chrono::minutes(1)), WaitResult::ready);
  EXPECT_TRUE(told(*span));
  EXPECT_THROW(queue_->end_span(*span), Error);
}

TEST_P(GpuSpanTest, QueuesAndReadersInThreads) {
  std::vector<std::thread> threads;
  for (int queue_number = 0; queue_number < 2; ++queue_number) {
    threads.emplace_back([&] {
      const auto queue = new_queue();
      for (int i = 0; i < 30; ++i) {
        const std::int64_t before = monotonic_ns();
        Fence fence;
        const auto span = spanned(*queue, 100 * us, fence);
        const auto read = [&] {
          while (!span->times() && !fence.signalled()) std::this_thread::yield();
          expect_between(*span, before, monotonic_ns());
        };
        std::thread reader(read);
        read();
        reader.join();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

/// In a process of its own, whose clocks were not compared yet.
bool first_span_comes_at_once(Queue& busy, const std::function<void()>& keep_busy, Queue& queue) {
  keep_busy();
  const Fence fence = busy.submit();
  const auto span = queue.begin_span();
  queue.end_span(*span);
  const bool at_once = !fence.signalled();
  if (queue.submit().wait_for(std::chrono::minutes(1)) != WaitResult::ready) return false;
  return told(*span) && at_once;
}

// Where the GPU is too busy to compare the clocks, that is given up, and done later.
TEST_P(GpuSpanTest, TheFirstSpanDoesNotWaitForTheGpu) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto busy = new_queue();
  // Beside work that is long enough for a busy machine: what waits for the GPU waits for any.
  bool at_once = false;
  const auto exits = [&at_once](int status) {
    at_once = ::testing::ExitedWithCode(0)(status);
    return at_once || ::testing::ExitedWithCode(1)(status);
  };
  for (std::int64_t length = 300 * ms; !at_once && length < 10'000 * ms; length *= 2) {
    const auto keep_busy = [&] { work(*busy, length); };
    EXPECT_EXIT(std::exit(first_span_comes_at_once(*busy, keep_busy, *queue_) ? 0 : 1), exits, "");
  }
  EXPECT_TRUE(at_once);
}

// What one queue runs does not hold up the reader of another's spans: it must not wait for its turn on the GPU.
TEST_P(GpuSpanTest, ReadingDoesNotWaitForOtherWork) {
  if (bench_->device()->info().software) GTEST_SKIP() << "lavapipe waits for all of its work to read a timestamp";
  const std::int64_t before = monotonic_ns();
  const auto span = done(*queue_, 100 * us);
  const std::int64_t after = monotonic_ns();
  std::this_thread::sleep_for(std::chrono::nanoseconds(GpuSpan::comparison_ns) + 10ms);
  const auto other = new_queue();
  work(*other, 500 * ms);
  const Fence busy = other->submit();
  EXPECT_TRUE(span->times());
  EXPECT_FALSE(busy.signalled()) << "that waited";
  expect_between(*span, before, after);
  ASSERT_EQ(busy.wait_for(std::chrono::minutes(1)), WaitResult::ready);
}

GPUMAP_ON_BACKENDS(GpuSpanTest);

}  // namespace
}  // namespace gpumap
