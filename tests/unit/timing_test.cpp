// SPDX-License-Identifier: MIT
// Percentiles against sorted times, stages that add up, a log that stays small and waits for the GPU's times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "figures.hpp"
#include "gpumap/latency.hpp"
#include "test_helpers.hpp"
#include "timing/clock_comparison.hpp"

namespace {

using gpumap::FrameRecord;
using gpumap::FrameTrace;
using gpumap::GpuSpan;
using gpumap::GpuTimes;
using gpumap::Histogram;
using gpumap::LatencyLog;
using gpumap::Percentiles;
using gpumap::Stage;
using gpumap::Stamp;
using gpumap::Total;

void set(FrameRecord& frame, Stamp stamp, std::int64_t at_ns) {
  frame.at_ns[static_cast<std::size_t>(stamp)] = at_ns;
}

/// All stamps, each stage `step` longer than the one before.
FrameRecord whole_frame(std::int64_t begin, std::int64_t step) {
  FrameRecord frame;
  std::int64_t at = begin;
  for (std::size_t i = 0; i < gpumap::stamp_count; ++i) {
    at += static_cast<std::int64_t>(i) * step;
    frame.at_ns[i] = at;
  }
  return frame;
}

/// The log's own thread asks it while the test changes it.
class FakeSpan : public GpuSpan {
 public:
  std::optional<GpuTimes> times() override {
    const std::lock_guard lock(mutex_);
    if (fails_) throw std::runtime_error("lost");
    return times_;
  }
  void end(GpuTimes times) {
    const std::lock_guard lock(mutex_);
    times_ = times;
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    fails_ = true;
  }

 private:
  std::mutex mutex_;
  std::optional<GpuTimes> times_;
  bool fails_ = false;
};

TEST(Histogram, AgreesWithSortedTimes) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(0, 11);  // 1 ns to 100 s
  for (const std::size_t count : {1U, 2U, 3U, 10U, 999U, 100'000U}) {
    Histogram histogram;
    std::vector<std::int64_t> times(count);
    for (auto& time : times) {
      time = static_cast<std::int64_t>(std::pow(10, exponent(random)));
      histogram.add(time);
    }
    std::ranges::sort(times);
    const auto exact = [&](double share) {
      return static_cast<double>(times[static_cast<std::size_t>(std::ceil(share * static_cast<double>(count))) - 1]);
    };
    const Percentiles got = histogram.percentiles();
    EXPECT_EQ(got.count, count);
    EXPECT_EQ(got.min, times.front());
    EXPECT_EQ(got.max, times.back());
    EXPECT_NEAR(got.mean, std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(count),
                got.mean * 1e-9);
    EXPECT_NEAR(static_cast<double>(got.p50), exact(0.5), exact(0.5) * 0.01 + 0.5);
    EXPECT_NEAR(static_cast<double>(got.p90), exact(0.9), exact(0.9) * 0.01 + 0.5);
    EXPECT_NEAR(static_cast<double>(got.p99), exact(0.99), exact(0.99) * 0.01 + 0.5);
    EXPECT_NEAR(static_cast<double>(got.p999), exact(0.999), exact(0.999) * 0.01 + 0.5);
    std::uint64_t before = 0;
    for (const auto& [time, times_of_it] : histogram.counts()) {
      ASSERT_NEAR(static_cast<double>(time), static_cast<double>(times[before]),
                  static_cast<double>(times[before]) * 0.02 + 0.5);
      before += times_of_it;
    }
    EXPECT_EQ(before, count);
    for (const double share : {0.25, 0.5, 0.999, 1.0}) {
      EXPECT_NEAR(static_cast<double>(histogram.percentile(share)), exact(share), exact(share) * 0.01 + 0.5);
    }
  }
}

TEST(Histogram, EveryTimeIsWithinOnePercent) {
  for (std::int64_t time = 1; time < std::int64_t{1} << 42; time += time / 37 + 1) {
    Histogram histogram;
    histogram.add(0);
    histogram.add(time);
    histogram.add(std::numeric_limits<std::int64_t>::max());  // so that the middle one is not clamped
    EXPECT_NEAR(static_cast<double>(histogram.percentiles().p50), static_cast<double>(time),
                static_cast<double>(time) * 0.008);
  }
}

TEST(Histogram, CountsWhatIsNoTimeApart) {
  Histogram histogram;
  EXPECT_EQ(histogram.percentiles().count, 0U);
  EXPECT_EQ(histogram.percentile(0.5), 0);
  for (const std::int64_t none : {std::int64_t{-5}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    histogram.add(none);
  }
  EXPECT_EQ(histogram.percentiles().count, 0U) << "a time below 0 is not 0";
  EXPECT_EQ(histogram.percentiles().negative, 3U);
  histogram.add(7);
  histogram.add(std::numeric_limits<std::int64_t>::max());
  const Percentiles got = histogram.percentiles();
  EXPECT_EQ(got.count, 2U);
  EXPECT_EQ(got.negative, 3U);
  EXPECT_EQ(got.min, 7);
  EXPECT_EQ(got.p50, 7);
  EXPECT_EQ(got.max, std::numeric_limits<std::int64_t>::max());
  histogram.clear();
  EXPECT_EQ(histogram.percentiles().count, 0U);
  EXPECT_EQ(histogram.negative(), 0U);
}

TEST(Stages, AddUpToTheWholeWhateverIsMissing) {
  for (unsigned missing = 0; missing < 1U << gpumap::stamp_count; ++missing) {
    FrameRecord frame = whole_frame(1000, 7);
    for (std::size_t i = 0; i < gpumap::stamp_count; ++i) {
      if ((missing >> i & 1U) != 0) frame.at_ns[i] = 0;
    }
    std::int64_t sum = 0;
    for (const auto& time : stage_times(frame)) sum += time.value_or(0);
    EXPECT_EQ(sum, total_time(frame, Total::whole).value_or(0)) << "without stamps " << missing;
  }
}

TEST(Stages, HaveTheTimesBetweenTheirStamps) {
  const auto times = stage_times(whole_frame(1000, 7));
  for (std::size_t i = 0; i < gpumap::stage_count; ++i) EXPECT_EQ(times[i], static_cast<std::int64_t>(i + 1) * 7);
}

TEST(Stages, TheNextStampHasTheTimeOfOneThatIsMissing) {
  FrameRecord frame = whole_frame(1000, 7);
  set(frame, Stamp::kernel_started, 0);
  set(frame, Stamp::kernel_ended, 0);
  const auto times = stage_times(frame);
  EXPECT_EQ(times[static_cast<std::size_t>(Stage::start)], std::nullopt);
  EXPECT_EQ(times[static_cast<std::size_t>(Stage::kernel)], std::nullopt);
  EXPECT_EQ(times[static_cast<std::size_t>(Stage::notice)], 7 * (6 + 7 + 8));
}

TEST(Totals, ResultIsWhatWasSeenOfIt) {
  FrameRecord frame = whole_frame(1000, 10);
  frame.due_ns = frame.at(Stamp::last_store) - 3;
  EXPECT_EQ(total_time(frame, Total::result), frame.at(Stamp::visible) - frame.at(Stamp::last_store));
  EXPECT_EQ(total_time(frame, Total::lateness), frame.at(Stamp::visible) - frame.due_ns);
  set(frame, Stamp::visible, 0);
  EXPECT_EQ(total_time(frame, Total::result), frame.at(Stamp::kernel_ended) - frame.at(Stamp::last_store));
  set(frame, Stamp::kernel_ended, 0);
  EXPECT_EQ(total_time(frame, Total::result), frame.at(Stamp::received) - frame.at(Stamp::last_store));
  frame.due_ns = 0;
  EXPECT_EQ(total_time(frame, Total::lateness), std::nullopt);
}

TEST(LatencyLog, CountsWhatFramesSay) {
  LatencyLog log("one");
  for (int i = 1; i <= 100; ++i) log.add(whole_frame(std::int64_t{1'000'000} * i, i));
  log.add_dropped(3);
  const auto summary = log.summary();
  EXPECT_EQ(summary.frames, 100U);
  EXPECT_EQ(summary.dropped, 3U);
  EXPECT_EQ(summary.of(Stage::hold).count, 100U);
  EXPECT_EQ(summary.of(Stage::hold).p50, 50);
  EXPECT_EQ(summary.of(Stage::hold).max, 100);
  EXPECT_EQ(summary.of(Stage::release).min, 9);
  EXPECT_EQ(summary.of(Total::whole).max, 45 * 100);
  log.reset();
  EXPECT_EQ(log.summary().frames, 0U);
  EXPECT_EQ(log.summary().of(Total::whole).count, 0U);
}

TEST(LatencyLog, IsOnePerChannelWhileSomebodyHoldsIt) {
  auto first = LatencyLog::of_channel("same");
  EXPECT_EQ(first, LatencyLog::of_channel("same"));
  EXPECT_NE(first, LatencyLog::of_channel("other"));
  first->add(whole_frame(1, 1));
  first.reset();
  EXPECT_EQ(LatencyLog::of_channel("same")->summary().frames, 0U);
}

TEST(LatencyLog, IsFoundWhileSomebodyHoldsIt) {
  EXPECT_EQ(LatencyLog::find("followed"), nullptr);
  auto held = LatencyLog::of_channel("followed");
  EXPECT_EQ(LatencyLog::find("followed"), held);
  held.reset();
  EXPECT_EQ(LatencyLog::find("followed"), nullptr);
}

TEST(LatencyLog, WaitsForTheGpu) {
  LatencyLog log("gpu");
  FrameRecord frame = whole_frame(1000, 10);
  set(frame, Stamp::kernel_started, 0);
  set(frame, Stamp::kernel_ended, 0);
  auto first = std::make_shared<FakeSpan>();
  auto second = std::make_shared<FakeSpan>();
  log.add(frame, {first, second});
  EXPECT_EQ(log.summary().frames, 0U);
  first->end({.began_ns = frame.at(Stamp::launched) + 5, .ended_ns = frame.at(Stamp::launched) + 8, .error_ns = 2});
  EXPECT_EQ(log.summary().frames, 0U);
  second->end({.began_ns = frame.at(Stamp::launched) + 9, .ended_ns = frame.at(Stamp::launched) + 17, .error_ns = 4});
  const auto summary = log.summary();
  EXPECT_EQ(summary.frames, 1U);
  EXPECT_EQ(summary.of(Stage::start).max, 5);
  EXPECT_EQ(summary.of(Stage::kernel).max, 12);
  EXPECT_EQ(summary.gpu_error_ns, 4);
}

TEST(LatencyLog, KeepsTheOrderOfCauseAndEffect) {
  LatencyLog log("order");
  log.keep_frames(1);
  FrameRecord frame = whole_frame(1000, 10);
  auto span = std::make_shared<FakeSpan>();
  span->end({.began_ns = frame.at(Stamp::launched) - 5, .ended_ns = frame.at(Stamp::visible) + 5, .error_ns = 9});
  log.add(frame, {span});
  const FrameRecord got = log.take_frames().at(0);
  EXPECT_EQ(got.at(Stamp::kernel_started), got.at(Stamp::launched));
  EXPECT_EQ(got.at(Stamp::kernel_ended), got.at(Stamp::visible));
}

TEST(LatencyLog, ASlotIsReleasedWhenTheGpuIsDone) {
  LatencyLog log("released");
  log.keep_frames(1);
  FrameRecord frame;
  set(frame, Stamp::launched, 100);
  set(frame, Stamp::released, 110);
  auto span = std::make_shared<FakeSpan>();
  span->end({.began_ns = 120, .ended_ns = 150});
  log.add(frame, {span});
  EXPECT_EQ(log.take_frames().at(0).at(Stamp::released), 150);
}

TEST(LatencyLog, AFrameEndsWithWhatComesOfIt) {
  LatencyLog log("row");
  log.keep_frames(1);
  FrameRecord frame;
  set(frame, Stamp::launched, 100);
  set(frame, Stamp::released, 110);  // the first kernel of several is done with the slot
  set(frame, Stamp::visible, 150);
  log.add(frame);
  EXPECT_EQ(log.take_frames().at(0).at(Stamp::released), 150);
}

TEST(LatencyLog, StaysSmallWhenTheGpuNeverEnds) {
  LatencyLog log("endless");
  log.keep_frames(10);
  auto endless = std::make_shared<FakeSpan>();
  constexpr std::uint64_t more = 50;
  for (std::uint64_t i = 0; i < LatencyLog::max_pending + more; ++i) {
    FrameRecord frame = whole_frame(1000, 1);
    frame.sequence = i;
    log.add(frame, {endless});
  }
  EXPECT_LE(endless.use_count(), 1 + static_cast<long>(LatencyLog::max_pending));
  auto summary = log.summary();
  constexpr std::uint64_t given_up = LatencyLog::max_pending / 2 + more;
  EXPECT_EQ(summary.frames, given_up);
  EXPECT_EQ(summary.without_gpu_times, given_up);
  EXPECT_EQ(log.take_frames().size(), 10U);
  endless->fail();
  summary = log.summary();
  EXPECT_EQ(summary.frames, LatencyLog::max_pending + more);
  EXPECT_EQ(summary.without_gpu_times, LatencyLog::max_pending + more);
}

TEST(LatencyLog, ReadsTheGpuInAThreadOfItsOwn) {
  LatencyLog log("thread");
  log.keep_frames(1);
  std::atomic<std::thread::id> reader;
  class Watched : public GpuSpan {
   public:
    explicit Watched(std::atomic<std::thread::id>& by) : by_(by) {}
    std::optional<GpuTimes> times() override {
      by_ = std::this_thread::get_id();
      return GpuTimes{.began_ns = 1, .ended_ns = 2};
    }

   private:
    std::atomic<std::thread::id>& by_;
  };
  const auto span = std::make_shared<Watched>(reader);
  log.add(whole_frame(1000, 1), {span});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (span.use_count() > 1 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_NE(reader.load(), std::thread::id());
  EXPECT_NE(reader.load(), std::this_thread::get_id());
  EXPECT_EQ(log.summary().frames, 1U);
}

TEST(LatencyLog, AMillionFramesTakeNoMoreMemory) {
  LatencyLog log("million");
  log.keep_frames(1000);
  constexpr int frames = 1'000'000;
  for (int i = 1; i <= frames; ++i) log.add(whole_frame(i, i % 1000));
  EXPECT_EQ(log.summary().frames, static_cast<std::uint64_t>(frames));
  EXPECT_EQ(log.summary().of(Total::whole).count, static_cast<std::uint64_t>(frames));
  EXPECT_EQ(log.take_frames().size(), 1000U);
}

TEST(LatencyLog, OneSpanThatNeverEndsHoldsUpNoOther) {
  LatencyLog log("stuck");
  constexpr std::uint64_t others = 10'000;
  log.keep_frames(others + 1);
  auto stuck = std::make_shared<FakeSpan>();
  auto done = std::make_shared<FakeSpan>();
  done->end({.began_ns = 1, .ended_ns = 2, .error_ns = 1});
  for (std::uint64_t i = 0; i <= others; ++i) {
    FrameRecord frame = whole_frame(1000 + static_cast<std::int64_t>(i), 10);
    frame.sequence = i;
    log.add(frame, {i == 3 ? stuck : done});
    if (i % 1000 == 999) {
      EXPECT_EQ(log.summary().frames, i);
    }
  }
  auto summary = log.summary();
  EXPECT_EQ(summary.frames, others);
  EXPECT_EQ(summary.without_gpu_times, 0U);
  stuck->fail();
  summary = log.summary();
  EXPECT_EQ(summary.frames, others + 1);
  EXPECT_EQ(summary.without_gpu_times, 1U);
  const auto frames = log.take_frames();
  ASSERT_EQ(frames.size(), others + 1);
  for (std::uint64_t i = 0; i <= others; ++i) ASSERT_EQ(frames[i].sequence, i) << "in the order of their publishing";
}

// As where a kernel hangs with all that is queued behind it, and another one is started in its place.
TEST(LatencyLog, FramesBehindManyThatNeverEndHaveTheirTimes) {
  LatencyLog log("behind");
  const auto stuck = std::make_shared<FakeSpan>();
  const auto done = std::make_shared<FakeSpan>();
  done->end({.began_ns = 1, .ended_ns = 2, .error_ns = 1});
  constexpr std::uint64_t endless = LatencyLog::max_pending + 77;
  for (std::uint64_t i = 0; i < endless; ++i) log.add(whole_frame(1000 + static_cast<std::int64_t>(i), 10), {stuck});
  const auto before = log.summary();
  EXPECT_EQ(before.frames, before.without_gpu_times) << "those that are given up are told";
  EXPECT_GT(before.frames, 0U);
  constexpr std::uint64_t others = 10'000;
  for (std::uint64_t i = 0; i < others; ++i) {
    log.add(whole_frame(100'000 + static_cast<std::int64_t>(i), 10), {done});
    if (i % 1000 == 999) (void)log.summary();
  }
  const auto after = log.summary();
  EXPECT_EQ(after.frames, before.frames + others);
  EXPECT_EQ(after.without_gpu_times, before.without_gpu_times) << "every later frame has its times";
}

// A frame's end is no place for an error: the figures come without the thread.
TEST(LatencyLog, CountsWhereNoThreadCanBeHad) {
  LatencyLog log("no thread");
  testing::internal::CaptureStderr();
  {
    const gpumap::test::NoThreads none;
    for (int i = 1; i <= 100; ++i) EXPECT_NO_THROW(log.add(whole_frame(std::int64_t{1'000'000} * i, i)));
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("no thread for"), std::string::npos) << told;
  EXPECT_EQ(told.find("no thread for"), told.rfind("no thread for")) << "once: " << told;
  EXPECT_EQ(log.summary().frames, 100U);
}

TEST(LatencyLog, KeepsTheLastFramesInOrder) {
  LatencyLog log("kept");
  log.keep_frames(8);
  for (std::uint64_t i = 0; i < 21; ++i) {
    FrameRecord frame = whole_frame(1000, 1);
    frame.sequence = i;
    log.add(frame);
  }
  std::vector<std::uint64_t> got;
  for (const FrameRecord& frame : log.take_frames()) got.push_back(frame.sequence);
  EXPECT_THAT(got, testing::ElementsAre(13, 14, 15, 16, 17, 18, 19, 20));
  EXPECT_TRUE(log.take_frames().empty());
}

TEST(FrameTrace, GoesIntoTheLogOnceTheLastLetsGo) {
  auto log = std::make_shared<LatencyLog>("trace");
  log->keep_frames(4);
  FrameRecord begun;
  begun.sequence = 42;
  set(begun, Stamp::published, 10);
  auto trace = std::make_shared<FrameTrace>(log, begun);
  auto held_elsewhere = trace;
  trace->stamp(Stamp::launched, 20);
  trace->stamp(Stamp::launched, 30);  // the second kernel
  trace->stamp(Stamp::visible, 40);
  trace->stamp(Stamp::visible, 50);
  EXPECT_EQ(trace->record().at(Stamp::launched), 20);
  trace.reset();
  EXPECT_EQ(log->summary().frames, 0U);
  held_elsewhere.reset();
  const FrameRecord got = log->take_frames().at(0);
  EXPECT_EQ(got.sequence, 42U);
  EXPECT_EQ(got.at(Stamp::launched), 20);
  EXPECT_EQ(got.at(Stamp::visible), 50);
}

TEST(FrameTrace, ManyThreadsMayStamp) {
  auto log = std::make_shared<LatencyLog>("threads");
  {
    auto trace = std::make_shared<FrameTrace>(log, whole_frame(1000, 1));
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([trace] {
        for (int turn = 0; turn < 1000; ++turn) {
          trace->stamp(Stamp::visible);
          trace->add_span(nullptr);
          (void)trace->record();
        }
      });
    }
  }
  EXPECT_EQ(log->summary().frames, 1U);
}

}  // namespace

// What the benchmarks make of the times that they took.
namespace bench {
namespace {

std::vector<std::int64_t> some_times(std::size_t count) {
  std::mt19937_64 random(count);
  std::vector<std::int64_t> times(count);
  for (auto& time : times) time = static_cast<std::int64_t>(random() % 1'000'000) + 1;
  return times;
}

/// By its definition: the smallest time that at least that share of them does not exceed.
double nearest_rank(const std::vector<std::int64_t>& times, std::size_t thousandths) {
  std::vector<std::int64_t> sorted = times;
  std::ranges::sort(sorted);
  for (const std::int64_t one : sorted) {
    const auto no_more = static_cast<std::size_t>(std::ranges::count_if(sorted, [&](auto t) { return t <= one; }));
    if (no_more * 1000 >= thousandths * sorted.size()) return static_cast<double>(one) / 1000;
  }
  return -1;
}

TEST(Summary, HasPercentilesByNearestRank) {
  for (const std::size_t count : {1U, 2U, 3U, 10U, 99U, 100U, 101U, 999U, 1000U, 1001U}) {
    std::vector<std::int64_t> times = some_times(count);
    const Summary summary = summarise(times);
    EXPECT_EQ(summary.count, count);
    EXPECT_DOUBLE_EQ(summary.min_us, nearest_rank(times, 0));
    EXPECT_DOUBLE_EQ(summary.median_us, nearest_rank(times, 500)) << count;
    EXPECT_DOUBLE_EQ(summary.p90_us, nearest_rank(times, 900)) << count;
    EXPECT_DOUBLE_EQ(summary.p99_us, nearest_rank(times, 990)) << count;
    EXPECT_DOUBLE_EQ(summary.p999_us, nearest_rank(times, 999)) << count;
    EXPECT_DOUBLE_EQ(summary.max_us, nearest_rank(times, 1000)) << count;
  }
}

TEST(Summary, OfBatchesIsOfOneInAllItsFigures) {
  std::vector<std::int64_t> batches = some_times(501);
  const Summary whole = summarise(batches);
  Summary one = whole;
  one /= 16;
  for (const auto figure : {&Summary::min_us, &Summary::median_us, &Summary::p90_us, &Summary::p99_us,
                            &Summary::p999_us, &Summary::max_us}) {
    EXPECT_DOUBLE_EQ(one.*figure, whole.*figure / 16);
  }
  EXPECT_EQ(one.count, 501U);
}

TEST(Summary, RefusesTimesBelowZero) {
  std::vector<std::int64_t> none;
  EXPECT_EQ(summarise(none).count, 0U);
  std::vector<std::int64_t> times{3, -1, 0, 5};
  EXPECT_THROW((void)summarise(times), std::runtime_error);
}

}  // namespace
}  // namespace bench

// Times of one clock in times of another, with clocks that are made up: what the error says must hold.

namespace gpumap {
namespace {

constexpr std::int64_t us = 1'000, ms = 1'000'000, s = 1'000'000'000;

/// A CPU clock that goes `rate` times as fast as the GPU's, looked at with an error of up to 3 us.
class Clocks {
 public:
  explicit Clocks(double rate) : rate_(rate) {}
  [[nodiscard]] std::int64_t cpu_ns(std::int64_t gpu_ns) const {
    return 77 * s + std::llround(static_cast<double>(gpu_ns) * rate_);
  }
  ClockPair look(std::int64_t gpu_ns) {
    return {.gpu_ns = gpu_ns, .cpu_ns = cpu_ns(gpu_ns) + error_(random_), .error_ns = 3 * us};
  }

 private:
  double rate_;
  std::mt19937 random_{1};
  std::uniform_int_distribution<std::int64_t> error_{-3 * us, 3 * us};
};

void expect_true(const ClockComparison& comparison, const Clocks& clocks, std::int64_t gpu_ns, std::int64_t max_ns) {
  const auto reading = comparison.read(gpu_ns);
  EXPECT_LE(std::abs(reading.cpu_ns - clocks.cpu_ns(gpu_ns)), reading.error_ns) << gpu_ns;
  EXPECT_GT(reading.error_ns, 0);
  EXPECT_LE(reading.error_ns, max_ns) << gpu_ns;
}

TEST(ClockComparison, OnePairHoldsNearby) {
  for (const double rate : {1 - 100e-6, 1.0, 1 + 100e-6}) {
    Clocks clocks(rate);
    ClockComparison comparison;
    EXPECT_EQ(comparison.add(clocks.look(5 * s)), 0U);
    for (const auto at : {4 * s, 5 * s - 1, 5 * s, 5 * s + 10 * ms, 6 * s}) {
      expect_true(comparison, clocks, at, 4 * us + std::abs(at - 5 * s) / 4000);
    }
  }
}

TEST(ClockComparison, PairsTellTheRate) {
  for (const double rate : {1 - 100e-6, 1.0, 1 + 100e-6}) {
    Clocks clocks(rate);
    ClockComparison comparison;
    for (int i = 0; i < 20; ++i) static_cast<void>(comparison.add(clocks.look(i * s / 4)));
    for (std::int64_t at = 0; at < 5 * s; at += 10 * ms + 1) expect_true(comparison, clocks, at, 8 * us);
    expect_true(comparison, clocks, -10 * s, 150 * us);  // read late: a larger error, and a true one
    expect_true(comparison, clocks, 15 * s, 150 * us);
  }
}

TEST(ClockComparison, OldPairsGo) {
  Clocks clocks(1 + 20e-6);
  ClockComparison comparison;
  std::size_t dropped = 0;
  for (std::size_t i = 0; i < 3 * ClockComparison::kept; ++i) {
    dropped += comparison.add(clocks.look(static_cast<std::int64_t>(i) * s / 4));
  }
  EXPECT_EQ(comparison.pairs().size(), ClockComparison::kept);
  EXPECT_EQ(dropped, 2 * ClockComparison::kept);
}

TEST(ClockComparison, ARateThatBendsMakesTheErrorGrow) {
  Clocks straight(1.0);
  ClockComparison comparison;
  for (int i = 0; i < 8; ++i) static_cast<void>(comparison.add(straight.look(i * s)));
  const auto calm = comparison.read(8 * s).error_ns;
  // NTP takes a step of 300 ppm in the rate: at the next pair it shows.
  static_cast<void>(comparison.add({.gpu_ns = 8 * s, .cpu_ns = straight.cpu_ns(8 * s) + 300 * us, .error_ns = 3 * us}));
  EXPECT_GT(comparison.read(9 * s).error_ns, calm + 300 * us);
  EXPECT_GE(comparison.read(7 * s + s / 2).error_ns, 150 * us) << "between the two the bend may be anywhere";
  for (std::int64_t i = 9; i < 40; ++i) {
    static_cast<void>(comparison.add({i * s, straight.cpu_ns(i * s) + (i - 7) * 300 * us, 3 * us}));
  }
  EXPECT_LT(comparison.read(40 * s).error_ns, 2 * ms) << "and calms down";
}

TEST(ClockComparison, AClockThatWasSetForgetsWhatWas) {
  Clocks clocks(1.0);
  ClockComparison comparison;
  for (int i = 0; i < 4; ++i) static_cast<void>(comparison.add(clocks.look(i * s)));
  EXPECT_EQ(comparison.add({.gpu_ns = 1 * s, .cpu_ns = 200 * s, .error_ns = us}), 4U) << "the GPU's went back";
  EXPECT_EQ(comparison.add({.gpu_ns = 2 * s, .cpu_ns = 209 * s, .error_ns = us}), 1U) << "the CPU's leapt";
  EXPECT_EQ(comparison.pairs().size(), 1U);
  EXPECT_EQ(comparison.read(2 * s + ms).cpu_ns, 209 * s + ms);
}

TEST(TicksBetween, CountersWrap) {
  EXPECT_EQ(ticks_between(5, 9, 64), 4);
  EXPECT_EQ(ticks_between(9, 5, 64), -4);
  EXPECT_EQ(ticks_between(~0ULL, 3, 64), 4);
  const std::uint64_t top = (1ULL << 36U) - 1;
  EXPECT_EQ(ticks_between(top, 3, 36), 4);
  EXPECT_EQ(ticks_between(3, top, 36), -4);
  EXPECT_EQ(ticks_between(top | 0xABULL << 40U, 3 | 0xCDULL << 50U, 36), 4) << "bits that mean nothing";
  EXPECT_EQ(ticks_between(0, 1ULL << 34U, 36), std::int64_t{1} << 34U);
}

}  // namespace
}  // namespace gpumap
