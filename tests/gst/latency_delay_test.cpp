// SPDX-License-Identifier: MIT
// A delay in the way of a frame is in the stage where it was, and in no other.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "latency_frames.hpp"

namespace gpumap::gst::test {
namespace {

class LatencyDelay : public Latency {};

/// The stage that has most of the time of the median frame, but for those named.
std::int64_t median(const std::vector<FrameRecord>& frames, Stage stage) {
  std::vector<std::int64_t> times;
  for (const FrameRecord& frame : frames) {
    times.push_back(stage_times(frame)[static_cast<std::size_t>(stage)].value_or(0));
  }
  if (times.empty()) return -1;
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

/// What a busy machine adds is in any stage: of so many runs one shows the delay alone.
constexpr int runs = 10;

/// 20 ms are in `delayed` and in no other: where that is not so, else "".
std::string misplaced(const std::vector<FrameRecord>& frames, Stage delayed) {
  std::string text;
  for (std::size_t i = 0; i < stage_count; ++i) {
    const auto stage = static_cast<Stage>(i);
    const std::int64_t time = median(frames, stage);
    const bool right = stage == delayed ? time >= 20 * ms && time < 1'000 * ms : time < 15 * ms;
    if (!right) text += std::string(to_string(stage)) + " " + std::to_string(time) + " ns  ";
  }
  return text;
}

void expect_delay_in(const std::function<std::vector<FrameRecord>()>& run, Stage delayed) {
  std::string wrong;
  for (int turn = 0; turn < runs; ++turn) {
    const auto frames = run();
    ASSERT_FALSE(frames.empty());
    wrong = misplaced(frames, delayed);
    if (wrong.empty()) return;
  }
  ADD_FAILURE() << "delayed was " << to_string(delayed) << ", but in the last run " << wrong;
}

/// Frames written by hand: acquire, map, unmap and push with `pause` told before each step but the first.
std::vector<FrameRecord> written_by_hand(const std::function<void(int)>& pause) {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in caps=video/x-raw,format=GRAY8,width=64,height=33,framerate=0/1 ! "
                   "gpumapsink name=sink channel=$CHANNEL stamps=true   gpumapsrc channel=$CHANNEL ! "
                   "gpumapkernel kernel=checksum ! fakesink enable-last-sample=false async=false"));
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Caps caps = new_caps("video/x-raw,format=GRAY8,width=64,height=33,framerate=0/1");
  const Pad pad(gst_element_get_static_pad(pipeline.element("sink"), "sink"));
  GstQuery* query = gst_query_new_allocation(caps.get(), TRUE);
  EXPECT_TRUE(gst_pad_query(pad.get(), query));
  GstBufferPool* pool = nullptr;
  gst_query_parse_nth_allocation_pool(query, 0, &pool, nullptr, nullptr, nullptr);
  EXPECT_NE(pool, nullptr);
  gst_query_unref(query);
  EXPECT_TRUE(gst_buffer_pool_set_active(pool, TRUE));
  for (int n = 0; n < 6; ++n) {
    GstBuffer* buffer = nullptr;
    GstMapInfo map;
    // One that is written and never pushed: nothing may be left of it.
    EXPECT_EQ(gst_buffer_pool_acquire_buffer(pool, &buffer, nullptr), GST_FLOW_OK);
    EXPECT_TRUE(gst_buffer_map(buffer, &map, GST_MAP_WRITE));
    gst_buffer_unmap(buffer, &map);
    gst_buffer_unref(buffer);
    EXPECT_EQ(gst_buffer_pool_acquire_buffer(pool, &buffer, nullptr), GST_FLOW_OK);
    pause(0);
    EXPECT_TRUE(gst_buffer_map(buffer, &map, GST_MAP_WRITE));
    std::fill_n(map.data, map.size, static_cast<guint8>(n));
    pause(1);
    gst_buffer_unmap(buffer, &map);
    pause(2);
    EXPECT_EQ(gst_app_src_push_buffer(pipeline.appsrc(), buffer), GST_FLOW_OK);
    EXPECT_TRUE(watched.ended(static_cast<std::uint64_t>(n) + 1));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.wait(), "eos");
  gst_buffer_pool_set_active(pool, FALSE);
  gst_object_unref(pool);
  pipeline.stop();
  return watched.frames_but_the_first();
}

TEST_F(LatencyDelay, InTheProducer) {
  const std::array<Stage, 3> stages{Stage::hold, Stage::write, Stage::publish};
  for (int step = 0; step < 3; ++step) {
    const auto run = [step] {
      auto frames = written_by_hand([step](int at) {
        if (at == step) std::this_thread::sleep_for(20ms);
      });
      EXPECT_EQ(frames.size(), 5U);
      return frames;
    };
    expect_delay_in(run, stages.at(static_cast<std::size_t>(step)));
  }
}

/// Frames one after the other, with `after_src` behind the gpumapsrc.
std::vector<FrameRecord> run_line(const std::string& after_src) {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in caps=video/x-raw,format=NV12,width=64,height=48,framerate=0/1 ! gpumapsink "
                   "channel=$CHANNEL stamps=true   gpumapsrc channel=$CHANNEL ! " +
                   after_src + " ! fakesink enable-last-sample=false sync=false async=false"));
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  constexpr std::uint64_t count = 9;
  for (std::uint64_t n = 0; n < count; ++n) {
    EXPECT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(std::size_t{64} * 48 * 3 / 2, n))));
    EXPECT_TRUE(watched.ended(n + 1));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.wait(), "eos");
  pipeline.stop();
  auto frames = watched.frames_but_the_first();
  EXPECT_EQ(frames.size(), count - 1);
  return frames;
}

TEST_F(LatencyDelay, BeforeTheKernel) {
  expect_delay_in([] { return run_line("identity sleep-time=20000 ! gpumapkernel kernel=checksum"); }, Stage::dispatch);
}

TEST_F(LatencyDelay, OnTheGpu) {
  const std::string file = testing::TempDir() + "gpumap-latency-" + std::to_string(getpid()) + ".comp";
  // Every thread, as software drivers end a loop after 65,535 turns.
  std::ofstream(file) << "#version 460\n#include <gpumap.glsl>\n// gpumap: params turns=1\n// gpumap: results sum=u64\n"
                         "// gpumap: output unchanged\n"
                         "void main() {\n  uint sum = uint(gpumap_thread()) + 1u;\n"
                         "  for (uint i = 0u; i < uint(frame.params[0]); ++i) {\n"
                         "    sum ^= sum << 13; sum ^= sum >> 17; sum ^= sum << 5;\n  }\n"
                         "  if (sum == 0u) gpumap_u64_at(frame.result).value = 1ul;\n}\n";
  const auto run = [&file](std::uint64_t turns) {
    return run_line("gpumapkernel location=" + file + " params=turns=" + std::to_string(turns));
  };
  std::uint64_t turns = 1000;
  while (turns < 1'000'000'000 && median(run(turns), Stage::kernel) < 20 * ms) turns *= 4;
  EXPECT_LT(turns, 1'000'000'000U) << "no kernel took 20 ms";
  std::string wrong;
  for (int turn = 0; turn < runs; ++turn) {
    const auto frames = run(turns);
    wrong = misplaced(frames, Stage::kernel);
    if (wrong.empty()) break;
    // It took so long because something else did: it is to do so by itself.
    if (median(frames, Stage::kernel) < 20 * ms && turns < 1'000'000'000) turns *= 4;
  }
  EXPECT_EQ(wrong, "") << "in the last run";
  (void)std::remove(file.c_str());
}

TEST_F(LatencyDelay, AfterTheKernel) {
  const std::string line = "gpumapkernel kernel=checksum ! video/x-raw(memory:GPUMap) ! identity sleep-time=20000";
  expect_delay_in([&line] { return run_line(line); }, Stage::release);
}

/// Times in the ring of the first and the last of six frames, which come at once and are taken every 25 ms.
std::pair<std::int64_t, std::int64_t> queued() {
  Watched watched(new_channel());
  Pipeline pipeline(
      watched.line("appsrc name=in caps=application/octet-stream ! gpumapsink channel=$CHANNEL "
                   "stamps=true slots=8 slot-size=100   gpumapsrc name=src channel=$CHANNEL ! "
                   "identity sleep-time=25000 ! gpumapkernel kernel=checksum ! fakesink "
                   "enable-last-sample=false"));
  for (std::uint64_t n = 0; n < 6; ++n) EXPECT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(100, n))));
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.run(), "eos");
  pipeline.stop();
  EXPECT_TRUE(watched.ended(6));
  const auto frames = watched.frames();
  EXPECT_EQ(frames.size(), 6U);
  const auto time_of = [](const FrameRecord& frame) {
    return stage_times(frame)[static_cast<std::size_t>(Stage::queue)].value_or(0);
  };
  return frames.empty() ? std::pair<std::int64_t, std::int64_t>()
                        : std::pair(time_of(frames[0]), time_of(frames.back()));
}

TEST_F(LatencyDelay, InTheRing) {
  std::int64_t first = 0;
  std::int64_t last = 0;
  // Each waits for those before it.
  const auto is_right = [&] { return first < 20 * ms && last >= 100 * ms; };
  for (int turn = 0; turn < runs && !is_right(); ++turn) std::tie(first, last) = queued();
  EXPECT_TRUE(is_right()) << "the first waited for " << first << " ns, the last for " << last;
}

TEST_F(LatencyDelay, BuffersThatAreNeverPushedLeaveNothing) {
  const auto frames = written_by_hand([](int) {});
  ASSERT_EQ(frames.size(), 5U);
  for (std::size_t n = 0; n < frames.size(); ++n) {
    EXPECT_EQ(frames[n].sequence, n + 1);
    expect_in_order(frames[n]);
    expect_stamps(frames[n], all);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
