// SPDX-License-Identifier: MIT
// A kernel in a pipeline, launched and resident, through all that happens to pipelines: flushes, seeks, other caps, the
// end, pauses, other states, parameters and files that change, a process that is stopped. Every byte of every frame is
// known.
#include <gmock/gmock.h>
#include <gst/check/gstharness.h>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "../unit/thread_names.hpp"
#include "cuda_pipeline.hpp"
#include "mode_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point began) {
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

class Modes : public KernelModes {};
INSTANTIATE_TEST_SUITE_P(Gpu, Modes, testing::Values("launch", "resident"), mode_name);

TEST_P(Modes, FramesOfAnySizeAreRight) {
  Pipeline pipeline(line(kernel(mixing, "name=kernel")));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Mixed mixed;
  for (unsigned i = 0; i < times(3000, 60); i += 3) {
    // Some at a time, so that frames wait behind frames.
    for (unsigned k = i; k < i + 3; ++k) ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(any_frame(k), k)));
    for (unsigned k = i; k < i + 3; ++k) ASSERT_EQ(next_of(pipeline), mixed.next(any_frame(k))) << "frame " << k;
  }
  expect_mode(pipeline);
}

// thread-cpus is for the element's own thread; a launch has none.
TEST_P(Modes, TheThreadThatWatchesHasTheCpusOfTheElement) {
  if (mode() != "resident") GTEST_SKIP() << "nobody watches a launch";
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int cpu = 0;
  while (CPU_ISSET(cpu, &allowed) == 0) ++cpu;
  Pipeline pipeline(line(kernel(mixing, "name=kernel thread-cpus=" + std::to_string(cpu))));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(any_frame(1), 1)));
  Mixed mixed;
  ASSERT_EQ(next_of(pipeline), mixed.next(any_frame(1)));
  EXPECT_TRUE(eventually([&] {
    const auto states = gpumap::test::thread_states("gpumap-watcher");
    return !states.empty() &&
           std::ranges::all_of(states, [&](const auto& state) { return state.cpus == std::to_string(cpu); });
  }));
  expect_mode(pipeline);
}

// Whatever was under way is gone, and what follows remembers nothing of it.
TEST_P(Modes, GoOnAfterAFlush) {
  const std::string channel = new_channel();
  GstHarness* in = gst_harness_new_parse(("gpumapsink sync=false slots=4 channel=" + channel).c_str());
  Pipeline out("gpumapsrc channel=" + channel + " ! " + kernel(mixing, "name=kernel") +
               " ! appsink name=out sync=false");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  gst_harness_set_src_caps(in, new_caps("application/octet-stream").release());
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  Mixed mixed;
  std::uint64_t number = 0;
  for (unsigned round = 0; round < times(100, 15); ++round) {
    const std::uint64_t first = number;
    for (unsigned k = 0; k < 3; ++k, ++number) {
      ASSERT_EQ(gst_harness_push(in, new_buffer(any_frame(number), number).release()), GST_FLOW_OK);
    }
    mixed.forget();
    for (std::uint64_t k = first; k < number; ++k) {
      const Data expected = mixed.next(any_frame(k));
      Sample sample;
      // Frames from before the flush may still lie at the end.
      do {
        sample = pull(out.appsink());
      } while (sample != nullptr && GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())) < k);
      ASSERT_NE(sample, nullptr) << out.wait(1s);
      ASSERT_EQ(data_of(gst_sample_get_buffer(sample.get())), expected) << "round " << round << ", frame " << k;
    }
    // These are cut off at any point of their way.
    for (unsigned k = 0; k < round % 4; ++k, ++number) {
      ASSERT_EQ(gst_harness_push(in, new_buffer(any_frame(number), number).release()), GST_FLOW_OK);
    }
    ASSERT_TRUE(gst_harness_push_event(in, gst_event_new_flush_start()));
    ASSERT_TRUE(gst_harness_push_event(in, gst_event_new_flush_stop(TRUE)));
    ASSERT_TRUE(gst_harness_push_event(in, gst_event_new_segment(&segment)));
  }
  expect_mode(out);
  out.stop();
  gst_harness_teardown(in);
}

/// A source that can be sought: frame n lies at n milliseconds. It outlives the pipeline.
struct Sought {
  void feed(GstAppSrc* source) {
    g_object_set(source, "stream-type", GST_APP_STREAM_TYPE_SEEKABLE, nullptr);
    g_signal_connect(source, "seek-data", G_CALLBACK(+[](GstAppSrc*, guint64 time, gpointer user) -> gboolean {
                       static_cast<Sought*>(user)->next = time / GST_MSECOND;
                       return TRUE;
                     }),
                     this);
    g_signal_connect(source, "need-data", G_CALLBACK(+[](GstAppSrc* from, guint, gpointer user) {
                       const std::uint64_t number = static_cast<Sought*>(user)->next++;
                       push(from, new_buffer(random_data(1 + number * 31 % 5000, number + 1), number * GST_MSECOND));
                     }),
                     this);
  }
  [[nodiscard]] static Data frame(std::uint64_t number) { return random_data(1 + number * 31 % 5000, number + 1); }
  std::atomic<std::uint64_t> next{0};
};

TEST_P(Modes, GoOnAfterAFlushingSeek) {
  Sought source;
  Pipeline pipeline(line(kernel(mixing, "name=kernel")));
  g_object_set(pipeline.appsink(), "max-buffers", 3, nullptr);
  source.feed(pipeline.appsrc());
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  for (const std::uint64_t place : {0U, 5000U, 17U, 90'001U, 17U, 3U}) {
    if (place != 0) {
      ASSERT_TRUE(gst_element_seek_simple(pipeline.element("out"), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH,
                                          static_cast<gint64>(place * GST_MSECOND)));
    }
    Mixed mixed;
    for (std::uint64_t number = place; number < place + 20; ++number) {
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
      GstBuffer* buffer = gst_sample_get_buffer(sample.get());
      ASSERT_EQ(GST_BUFFER_PTS(buffer), number * GST_MSECOND) << "sought " << place;
      ASSERT_EQ(data_of(buffer), mixed.next(Sought::frame(number))) << "frame " << number << ", sought " << place;
    }
  }
  expect_mode(pipeline);
}

TEST_P(Modes, OtherCapsInMidStream) {
  constexpr KernelText turning{
      "",
      "  U64 count = U64(VIEW_IN.width) * VIEW_IN.height;\n"
      "  for (U64 i = gpumap_thread(); i < count; i += gpumap_thread_count()) {\n"
      "    U32 x = U32(i % VIEW_IN.width), y = U32(i / VIEW_IN.width);\n"
      "    U32 value = LOAD(VIEW_IN.plane[0] + U64(y) * VIEW_IN.stride[0] + x) * 3u + x + 2u * y;\n"
      "    STORE(VIEW_OUT.plane[0] + U64(y) * VIEW_OUT.stride[0] + x, value);\n"
      "  }\n"};
  // Not into CUDA memory, where no kernel stays.
  Pipeline pipeline(line(kernel(turning, "name=kernel") + "! video/x-raw", ""));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const auto sizes = [](unsigned round) { return std::pair(3 + round * 137 % 701, 1 + round * 59 % 477); };
  const unsigned rounds = times(60, 12);
  std::uint64_t seed = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    const auto [width, height] = sizes(round);
    const Caps caps = video_caps("GRAY8", static_cast<int>(width), static_cast<int>(height));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    for (unsigned k = 0; k < 3; ++k) {
      ++seed;
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(frame_bytes(caps.get()), seed), seed)));
    }
  }
  seed = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    const auto [width, height] = sizes(round);
    const Caps caps = video_caps("GRAY8", static_cast<int>(width), static_cast<int>(height));
    for (unsigned k = 0; k < 3; ++k) {
      Data expected = pixels_of(random_data(frame_bytes(caps.get()), ++seed), caps.get());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] = static_cast<std::byte>(std::to_integer<unsigned>(expected[i]) * 3 +
                                             static_cast<unsigned>(i % width + 2 * (i / width)));
      }
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1s);
      ASSERT_EQ(pixels_of(sample), expected) << width << "x" << height << ", frame " << k;
    }
  }
  expect_mode(pipeline);
}

TEST_P(Modes, TheEndComesBehindEveryFrame) {
  for (const unsigned frames : {1U, 2U, 57U}) {
    Pipeline pipeline(line(kernel(mixing, "name=kernel")));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (unsigned i = 0; i < frames; ++i) ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(any_frame(i), i)));
    gst_app_src_end_of_stream(pipeline.appsrc());
    Mixed mixed;
    for (unsigned i = 0; i < frames; ++i) ASSERT_EQ(next_of(pipeline), mixed.next(any_frame(i))) << "frame " << i;
    EXPECT_EQ(pull(pipeline.appsink()), nullptr);
    EXPECT_EQ(pipeline.wait(), "eos");
    expect_mode(pipeline);
  }
}

// Pauses longer than a kernel stays without frames, and shorter ones.
TEST_P(Modes, GoOnAfterAPause) {
  Pipeline pipeline(line(kernel(mixing, "name=kernel resident-idle=50")));
  Mixed mixed;
  std::uint64_t number = 0;
  ASSERT_NE(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  for (const unsigned pause_ms : {0U, 150U, 10U, 300U, 1U, 60U}) {
    // The sink takes the first one and waits in it; the others lie behind it on their way.
    for (unsigned k = 0; k < 3; ++k)
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(any_frame(number + k), number + k)));
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    g_usleep(pause_ms * 1000UL);
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    for (unsigned k = 0; k < 3; ++k, ++number) {
      ASSERT_EQ(next_of(pipeline), mixed.next(any_frame(number))) << "frame " << number << ", pause " << pause_ms;
    }
    g_usleep(pause_ms * 1000UL);
    ASSERT_EQ(through(pipeline, any_frame(number)), mixed.next(any_frame(number))) << "frame " << number;
    ++number;
    ASSERT_NE(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
  }
  expect_mode(pipeline);
}

TEST_P(Modes, StopSoonAndStartAgain) {
  Pipeline pipeline(line(kernel(mixing, "name=kernel resident-idle=3600000")));
  double longest = 0;
  std::uint64_t number = 0;
  for (unsigned round = 0; round < times(20, 6); ++round) {
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    Mixed mixed;
    for (unsigned k = 0; k < 5; ++k, ++number) {
      ASSERT_EQ(through(pipeline, any_frame(number)), mixed.next(any_frame(number))) << "round " << round;
    }
    expect_mode(pipeline);
    const auto began = Clock::now();
    EXPECT_EQ(gst_element_set_state(pipeline.element("kernel"), GST_STATE_READY), GST_STATE_CHANGE_SUCCESS);
    longest = std::max(longest, ms_since(began));
    ASSERT_NE(pipeline.set_state(round % 2 == 0 ? GST_STATE_READY : GST_STATE_NULL), GST_STATE_CHANGE_FAILURE);
  }
  // 10 ms are the aim; a busy machine may take more.
  std::printf("%s: the kernel was in READY after %.2f ms at most\n", mode().c_str(), longest);
  EXPECT_LT(longest, 20'000);
}

/// This process is stopped, as by Ctrl+Z or under a debugger.
void stand_still(std::chrono::milliseconds time) {
  const pid_t process = getpid();
  const pid_t other = fork();
  if (other == 0) {
    (void)kill(process, SIGSTOP);
    usleep(static_cast<useconds_t>(std::chrono::microseconds(time).count()));
    (void)kill(process, SIGCONT);
    _exit(0);
  }
  ASSERT_EQ(waitpid(other, nullptr, 0), other);
}

// For longer than a kernel stays, and than one frame may take.
TEST_P(Modes, GoOnAfterTheProcessWasStopped) {
  Pipeline pipeline(line(kernel(mixing, "name=kernel timeout=2000 resident-idle=50")));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Mixed mixed;
  std::uint64_t number = 0;
  for (const Time time : {20ms, 300ms, 20ms, 3000ms}) {
    for (unsigned k = 0; k < 3; ++k)
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(any_frame(number + k), number + k)));
    ASSERT_NO_FATAL_FAILURE(stand_still(std::chrono::duration_cast<std::chrono::milliseconds>(time)));
    for (unsigned k = 0; k < 3; ++k, ++number) ASSERT_EQ(next_of(pipeline), mixed.next(any_frame(number))) << number;
  }
  EXPECT_EQ(pipeline.wait(1ms), "timeout");
  expect_mode(pipeline);
}

// Its file changes while frames pass: each frame is of one version, and the newest one comes. A version that does not
// compile, or cannot stay, changes nothing.
TEST_P(Modes, ReloadWhileFramesPass) {
  const std::string name = cuda_ ? "reloaded.cu" : "reloaded.comp";
  const auto write = [&](const std::string& added, const std::string& more = "") {
    const std::string body =
        "  for (U64 i = gpumap_thread(); i < VIEW_IN.bytes; i += gpumap_thread_count())\n"
        "    STORE(VIEW_OUT.plane[0] + i, LOAD(VIEW_IN.plane[0] + i) + " +
        added + ");\n" + more;
    return folder_.add(name, text_of({"", body.c_str()}, cuda_));
  };
  const std::string path = write("0u");
  Pipeline pipeline(line("gpumapkernel name=kernel reload=true mode=" + mode() + " location=" + path));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  unsigned shown = 0;
  std::uint64_t number = 0;
  /// A frame is of the version that showed last, or of `newest`.
  const auto pass = [&](unsigned newest) {
    const Data in = any_frame(++number);
    Data out = through(pipeline, in);
    ASSERT_EQ(out.size(), in.size());
    const auto of =
        static_cast<unsigned>(static_cast<unsigned char>(std::to_integer<int>(out[0]) - std::to_integer<int>(in[0])));
    ASSERT_TRUE(of == shown || of == newest) << of << " behind " << shown << ", frame " << number;
    for (std::byte& byte : out) byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) - of);
    ASSERT_EQ(out, in) << "frame " << number;
    shown = of;
  };
  for (unsigned newest = 1; newest <= times(12, 3); ++newest) {
    if (newest % 3 == 0) {
      const auto warnings = pipeline.warnings().size();
      (void)write(mode() == "resident" ? "1u" : "nothing",
                  "  if (VIEW_IN.bytes == U64(0)) return;\n  __syncthreads();\n");
      EXPECT_TRUE(eventually([&] {
        pass(shown);
        EXPECT_EQ(pipeline.wait(1ms), "timeout");
        return pipeline.warnings().size() != warnings || HasFailure();
      }));
    }
    (void)write(std::to_string(newest) + "u");
    EXPECT_TRUE(eventually([&] {
      pass(newest);
      return shown == newest || HasFailure();
    }));
    ASSERT_FALSE(HasFailure());
  }
  expect_mode(pipeline);
}

// With mode=auto a version may stay and the next one not, or not for another reason.
TEST_P(Modes, TellWhyTheVersionThatRunsIsLaunched) {
  if (!cuda_ || mode() != "resident") GTEST_SKIP() << "a kernel that stays is CUDA's";
  const auto write = [&](const char* more) {
    const std::string body = std::string(
                                 "  for (U64 i = gpumap_thread(); i < VIEW_IN.bytes; i += gpumap_thread_count())\n"
                                 "    STORE(VIEW_OUT.plane[0] + i, LOAD(VIEW_IN.plane[0] + i));\n") +
                             more;
    return folder_.add("versions.cu", text_of({"", body.c_str()}, true));
  };
  constexpr const char* waits = "  if (VIEW_IN.bytes == U64(0)) return;\n  __syncthreads();\n";
  constexpr const char* reads =
      "  if (VIEW_IN.bytes == U64(0)) __ldg(reinterpret_cast<const int*>(VIEW_IN.plane[0]));\n";
  Pipeline pipeline(line("gpumapkernel name=kernel reload=true mode=auto location=" + write(waits)));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::uint64_t number = 0;
  const auto comes_to = [&](const char* mode, const char* reason) {
    return eventually([&] {
      const Data in = any_frame(++number);
      EXPECT_EQ(through(pipeline, in), in);
      return HasFailure() || (stat_text(pipeline.element("kernel"), "mode") == mode &&
                              stat_text(pipeline.element("kernel"), "mode-reason").find(reason) != std::string::npos);
    });
  };
  EXPECT_TRUE(comes_to("launch", "__syncthreads"));
  (void)write(reads);
  EXPECT_TRUE(comes_to("launch", "__ldg"));
  (void)write("");
  EXPECT_TRUE(comes_to("resident", "doorbell"));
  (void)write(waits);
  EXPECT_TRUE(comes_to("launch", "__syncthreads"));
  EXPECT_EQ(pipeline.wait(1ms), "timeout");
}

// An application sets them a thousand times a second: each frame has one value in all of its bytes, and no older one
// than when it went in.
TEST_P(Modes, ParametersChangeAThousandTimesASecond) {
  constexpr unsigned values = 251;
  Pipeline pipeline(line(kernel(mixing, "name=kernel params=add=0")));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::atomic<unsigned> begun{0}, set{0};
  std::atomic<bool> ended{false};
  GstElement* element = pipeline.element("kernel");
  std::thread application([&] {
    auto next = Clock::now();
    while (!ended) {
      const unsigned value = ++begun;
      g_object_set(element, "params", ("add=" + std::to_string(value % values)).c_str(), nullptr);
      set = value;
      std::this_thread::sleep_until(next += 1ms);
    }
  });
  Mixed mixed;
  const auto began = Clock::now();
  unsigned frames = 0;
  bool right = true;
  for (; right && (frames < times(3000, 100) || set < times(3000, 300)); ++frames) {
    const unsigned oldest = set;
    const Data in = any_frame(frames, 5000);
    const Data out = through(pipeline, in);
    const unsigned newest = begun;
    const Data of_zero = mixed.next(in, 0);
    right = !out.empty() && out.size() == of_zero.size();
    if (!right) break;
    const auto value = std::to_integer<unsigned>(out[0]) - std::to_integer<unsigned>(of_zero[0]);
    const unsigned add = value & 255U;
    for (std::size_t i = 0; right && i < out.size(); ++i) {
      right = out[i] == static_cast<std::byte>(std::to_integer<unsigned>(of_zero[i]) + add);
    }
    EXPECT_TRUE(right) << "frame " << frames << " has two values in its bytes";
    const bool in_time = newest - oldest >= values || (add + values - oldest % values) % values <= newest - oldest;
    EXPECT_TRUE(in_time) << "frame " << frames << ": " << add << " is none of " << oldest << " to " << newest;
    right = right && in_time;
  }
  ended = true;
  application.join();
  EXPECT_TRUE(right) << "frame " << frames;
  std::printf("%s: %u values and %u frames in %.0f ms\n", mode().c_str(), set.load(), frames, ms_since(began));
  expect_mode(pipeline);
}

// Two that stay, each for itself, and a third one that is launched behind them.
TEST_P(Modes, ThreeInARow) {
  Pipeline pipeline(line(kernel(mixing, "name=one params=add=1") + "! " + kernel(mixing, "name=two params=add=2") +
                         "! " + kernel_in("launch", mixing, "name=three params=add=3")));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Mixed one, two, three;
  for (unsigned i = 0; i < times(3000, 60); i += 3) {
    for (unsigned k = i; k < i + 3; ++k) ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(any_frame(k), k)));
    for (unsigned k = i; k < i + 3; ++k) {
      ASSERT_EQ(next_of(pipeline), three.next(two.next(one.next(any_frame(k), 1), 2), 3)) << "frame " << k;
    }
  }
  for (const char* name : {"one", "two"}) expect_mode(pipeline, name);
  EXPECT_EQ(stat_text(pipeline.element("three"), "mode"), "launch");
}

/// A kernel that stays beside another one that needs just the multiprocessors that it may stand on, or several at a
/// time: one launched on a share, and one of clusters.
class BesideAShareAndACluster : public Modes {
 protected:
  /// Frames through both, in this order.
  void frames_through(bool stays_first) {
    if (mode() != "resident") GTEST_SKIP() << "what is launched stands in nobody's way";
    const std::string cluster = folder_.add(
        "cluster.cu",
        "// gpumap: block 128\n// gpumap: grid 16\n#include <gpumap/kernel.h>\n"
        "extern \"C\" __global__ void __cluster_dims__(8, 1, 1) cluster(gpumap_frame frame) {\n"
        "  for (gpumap_u64 i = 128ull * blockIdx.x + threadIdx.x; i < frame.in.bytes; i += 128 * gridDim.x) {\n"
        "    ((gpumap_u8*)frame.out.plane[0])[i] = ((const gpumap_u8*)frame.in.plane[0])[i] + 1;\n  }\n}\n");
    struct Case {
      std::string other;
      const char* blocks;
      bool of_share;
    };
    for (const Case& one : {Case{kernel_in("launch", mixing, "name=other sm-share=0.07"), "131", true},
                            Case{"gpumapkernel name=other location=" + cluster + " ", "120", false}}) {
      const std::string stays = kernel(mixing, std::string("name=kernel resident-blocks=") + one.blocks);
      Pipeline pipeline(line(stays_first ? stays + "! " + one.other : one.other + "! " + stays));
      if (!pipeline.reach(GST_STATE_READY) || pipeline.set_state(GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) {
        // An older driver, or a GPU without clusters.
        std::printf("%s: %s\n", one.other.c_str(), pipeline.wait(5s).c_str());
        continue;
      }
      Mixed mixed, shared;
      const auto through_other = [&](Data frame) {
        if (one.of_share) return shared.next(frame);
        for (std::byte& byte : frame) byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) + 1);
        return frame;
      };
      for (unsigned i = 0; i < times(300, 20); i += 3) {
        for (unsigned k = i; k < i + 3; ++k) ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(any_frame(k), k)));
        for (unsigned k = i; k < i + 3; ++k) {
          const Data expected =
              stays_first ? through_other(mixed.next(any_frame(k))) : mixed.next(through_other(any_frame(k)));
          ASSERT_EQ(next_of(pipeline), expected) << "frame " << k;
        }
      }
      expect_mode(pipeline);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, BesideAShareAndACluster, testing::Values("launch", "resident"), mode_name);

// It comes, and may stand where the other one still has to run before its frame is there.
TEST_P(BesideAShareAndACluster, BehindAShareAndACluster) {
  frames_through(false);
}

// The other one begins behind its frames: it is not to stay there.
TEST_P(BesideAShareAndACluster, BeforeAShareAndACluster) {
  frames_through(true);
}

// The share comes while the kernel stays, and frames go on.
TEST_P(BesideAShareAndACluster, BeforeAShareThatComesLater) {
  if (mode() != "resident") GTEST_SKIP() << "what is launched stands in nobody's way";
  Pipeline first(line(kernel(mixing, "name=kernel resident-blocks=131")));
  ASSERT_NE(first.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Mixed mixed;
  for (unsigned i = 0; i < 10; ++i) ASSERT_EQ(through(first, any_frame(i)), mixed.next(any_frame(i)));
  for (unsigned turn = 0; turn < 2; ++turn) {
    Pipeline second(line(kernel_in("launch", mixing, "name=other sm-share=0.07")));
    if (!second.reach(GST_STATE_READY) || second.set_state(GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) {
      GTEST_SKIP() << second.wait(5s);
    }
    Mixed shared;
    for (unsigned i = 0; i < times(300, 20); ++i) {
      ASSERT_EQ(through(first, any_frame(i)), mixed.next(any_frame(i))) << "frame " << i;
      ASSERT_EQ(through(second, any_frame(i)), shared.next(any_frame(i))) << "frame " << i << " on the share";
    }
  }
  expect_mode(first);
}

TEST_P(Modes, OnAShareOfTheGpu) {
  if (!cuda_) GTEST_SKIP() << "sm-share is CUDA's";
  for (unsigned turn = 0; turn < 3; ++turn) {
    // More than half, again and again: a part that was not given back would be missed.
    Pipeline pipeline(line(kernel(mixing, "name=kernel sm-share=0.6 priority=1")));
    if (!pipeline.reach(GST_STATE_READY) || pipeline.set_state(GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) {
      const std::string why = pipeline.wait(5s);
      if (why.find("12.4") != std::string::npos) GTEST_SKIP() << why;
      FAIL() << why;
    }
    Mixed mixed;
    for (unsigned i = 0; i < times(500, 20); ++i) {
      ASSERT_EQ(through(pipeline, any_frame(i)), mixed.next(any_frame(i))) << "frame " << i;
    }
    expect_mode(pipeline);
    GstStructure* stats = nullptr;
    g_object_get(pipeline.element("kernel"), "stats", &stats, nullptr);
    guint multiprocessors = 0;
    EXPECT_TRUE(gst_structure_get_uint(stats, "multiprocessors", &multiprocessors));
    gst_structure_free(stats);
    EXPECT_GT(multiprocessors, 0U);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
