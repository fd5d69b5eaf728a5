// SPDX-License-Identifier: MIT
// Kernels that do wrong, launched and resident: one that takes too long meets the watchdog, one that writes behind its
// output is reported by check-bounds. The pipelines that come next are none the worse for it.
#include <gmock/gmock.h>

#include <thread>

#include "mode_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using testing::HasSubstr;

class ModesFault : public KernelModes {
 protected:
  /// Goes wrong by `how` in frames that begin with this byte, and is `mixing` in others.
  static constexpr std::byte wrong{251};
  [[nodiscard]] static std::string going_wrong(const std::string& how) {
    return "  if (LOAD(VIEW_IN.plane[0]) == 251u) {\n" + how + "  }\n" + mixing.body;
  }
  [[nodiscard]] static Data frame(std::uint64_t number, bool goes_wrong, std::size_t largest = 100'000) {
    Data made = any_frame(number, largest);
    if (goes_wrong) {
      made[0] = wrong;
    } else if (made[0] == wrong) {
      made[0] = std::byte{1};
    }
    return made;
  }
  void goes_right() const {
    Pipeline next(line(kernel(mixing, "name=kernel")));
    ASSERT_NE(next.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    Mixed mixed;
    for (unsigned i = 0; i < times(300, 20); ++i) {
      ASSERT_EQ(through(next, any_frame(i)), mixed.next(any_frame(i))) << "frame " << i << " of the next pipeline";
    }
    expect_mode(next);
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, ModesFault, testing::Values("launch", "resident"), mode_name);

TEST_P(ModesFault, AWriteBehindTheOutputIsToldOf) {
  const std::string body =
      going_wrong("    if (gpumap_thread() == U64(0)) STORE(VIEW_OUT.plane[0] + VIEW_OUT.bytes + U64(5), 77u);\n");
  const KernelText careless{mixing.declarations, body.c_str()};
  Pipeline pipeline(line(kernel(careless, "name=careless check-bounds=true")));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Mixed mixed;
  for (unsigned i = 0; i < times(300, 20); ++i) {
    const Data in = frame(i, false);
    ASSERT_EQ(through(pipeline, in), mixed.next(in)) << "frame " << i;
  }
  expect_mode(pipeline, "careless");
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(frame(1000, true), 0)));
  const std::string verdict = pipeline.wait();
  EXPECT_THAT(verdict, HasSubstr("writes out of bounds"));
  EXPECT_THAT(verdict, HasSubstr("the first one 5 behind the end"));
  EXPECT_EQ(pipeline.culprit(), "careless");
  EXPECT_LT(pipeline.stop(), patience);
  goes_right();
}

// A frame that takes seconds, behind frames that were right. Longer than a kernel stays in one go, too. The last test:
// it keeps a software driver busy.
TEST_P(ModesFault, AFrameThatTakesTooLongMeetsTheWatchdog) {
  const std::string body = going_wrong("    SPIN\n");
  const KernelText slow{mixing.declarations, body.c_str()};
  // A CPU that others want, too, may take its time for frames that are right.
  const std::string limit = software_ ? "4000" : "2000";
  Pipeline pipeline(line(kernel(slow, "name=slow timeout=" + limit)));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Mixed mixed;
  for (unsigned i = 0; i < 10; ++i) {
    const Data in = frame(i, false);
    ASSERT_EQ(through(pipeline, in), mixed.next(in)) << "frame " << i;
  }
  expect_mode(pipeline, "slow");
  // More than the ring has slots.
  Data endless = random_data(200'003, 1);
  endless[0] = wrong;
  for (unsigned i = 0; i < 8; ++i) (void)push(pipeline.appsrc(), new_buffer(endless, i));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THAT(pipeline.wait(), HasSubstr("has not ended for " + limit + " ms"));
  EXPECT_EQ(pipeline.culprit(), "slow");
  EXPECT_LT(std::chrono::steady_clock::now() - began, patience);
  EXPECT_LT(pipeline.stop(), patience);
  // What it was given still runs then; a launch of anyone else comes behind it, at the latest.
  if (!software_) goes_right();
}

// Radio built-ins behind a kernel that keeps the GPU for long: stopping the pipeline does not wait for it.
TEST_P(ModesFault, ARadioKernelBehindOneThatTakesTooLongCanBeStopped) {
  if (software_) GTEST_SKIP() << "a software driver has no kernel that takes as long";
  std::string keeps = "  if (gpumap_thread() == U64(0)) {\n";
  for (int i = 0; i < 7; ++i) keeps += "    SPIN\n";  // 21 s
  keeps += "  }\n" + std::string(mixing.body);
  const KernelText endless{mixing.declarations, keeps.c_str()};
  for (const char* built_in : {"channelizer", "ddc params=rate=48000"}) {
    Pipeline pipeline(
        line(kernel(endless, "name=endless timeout=2000") + "! gpumapkernel timeout=2000 kernel=" + built_in,
             "caps=audio/x-raw,format=S16LE,rate=96000,channels=2,layout=interleaved"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(400'000, 1), 0)));
    EXPECT_THAT(pipeline.wait(), HasSubstr("has not ended for 2000 ms")) << built_in;
    // The first that stops may wait 5 s for what it launched, and so may the ring.
    EXPECT_LT(pipeline.stop(), 15s) << built_in;
    // The next one begins on a GPU that runs nothing.
    std::this_thread::sleep_for(22s);
  }
  goes_right();
}

}  // namespace
}  // namespace gpumap::gst::test
