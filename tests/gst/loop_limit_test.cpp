// SPDX-License-Identifier: MIT
// A software driver ends loops that are too long and says nothing: who asks for a grid of too few threads hears of it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "gpumap/device.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t frame_bytes = std::size_t{320} * 240;

/// Adds 1 to every byte, whatever the grid.
constexpr const char* increment = R"(#version 460
// gpumap: block 1
#include <gpumap.glsl>
void main() {
  for (uint64_t i = gpumap_thread(); i < frame.in_view.bytes; i += gpumap_thread_count()) {
    store_u8(frame.out_view.plane[0] + i, load_u8(frame.in_view.plane[0] + i) + 1u);
  }
}
)";

class LoopLimit : public testing::Test {
 protected:
  void SetUp() override {
    if (!Device::open()->info().software) GTEST_SKIP() << "a GPU ends no loop";
    path_ = testing::TempDir() + "gpumap-loops-" + std::to_string(getpid()) + ".comp";
    std::ofstream(path_) << increment;
  }
  void TearDown() override { (void)std::remove(path_.c_str()); }

  /// Plays three frames of GRAY8 in a grid of so many threads. Whether they came out right.
  bool play(const std::string& grid) {
    Pipeline pipeline(
        on_new_channel("appsrc name=in format=time caps=video/x-raw,format=GRAY8,width=320,height=240,framerate=30/1 ! "
                       "gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel location=" +
                       path_ + " " + grid + " ! appsink name=out sync=false"));
    infos_.clear();
    GstBus* bus = gst_element_get_bus(pipeline.get());
    gst_bus_set_sync_handler(
        bus,
        [](GstBus* /*bus*/, GstMessage* message, gpointer to) {
          const bool of_kernel = g_str_has_prefix(GST_MESSAGE_SRC_NAME(message), "gpumapkernel") != 0;
          if (GST_MESSAGE_TYPE(message) != GST_MESSAGE_INFO || !of_kernel) return GST_BUS_PASS;
          GError* info = nullptr;
          gst_message_parse_info(message, &info, nullptr);
          static_cast<std::vector<std::string>*>(to)->emplace_back(info->message);
          g_error_free(info);
          return GST_BUS_PASS;
        },
        &infos_, nullptr);
    gst_object_unref(bus);
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    bool right = true;
    for (GstClockTime i = 0; i < 3; ++i) {
      Data data = random_data(frame_bytes, i);
      push(pipeline.appsrc(), new_buffer(data, i * 33 * GST_MSECOND));
      const Sample sample = pull(pipeline.appsink());
      if (!sample) {
        ADD_FAILURE() << pipeline.wait(1ms);
        return false;
      }
      for (std::byte& byte : data) byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) + 1);
      right = right && data_of(gst_sample_get_buffer(sample.get())) == data;
    }
    EXPECT_EQ(pipeline.wait(1ms), "timeout");
    warnings_ = pipeline.warnings();
    return right;
  }

  std::string path_;
  std::vector<std::string> warnings_, infos_;
};

// How often a loop turns nobody can tell before: the first kernel of the user's with one is reported, once in a
// process.
TEST_F(LoopLimit, OfLoopsIsToldOnce) {
  EXPECT_TRUE(play(""));
  EXPECT_THAT(infos_, ElementsAre(AllOf(HasSubstr("has a loop"), HasSubstr("65535 turns"), HasSubstr("many threads"))));
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_TRUE(play(""));
  EXPECT_THAT(infos_, IsEmpty());
}

TEST_F(LoopLimit, IsToldOnceWhereTheGridAskedForReachesIt) {
  const bool right = play("declare=\"grid 1\"");
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("1 thread(s) in its grid for 76800"), HasSubstr("65535 turns"),
                                           HasSubstr("a grid of 2 threads or more"))));
  // Another driver may well go on to the end.
  std::printf("with one thread the frames came out %s\n", right ? "right" : "wrong");
}

TEST_F(LoopLimit, IsNotToldWhereItIsFar) {
  for (const char* grid : {"declare=\"grid 2\"", "declare=\"grid 3x2\"", ""}) {
    EXPECT_TRUE(play(grid)) << grid;
    EXPECT_THAT(warnings_, IsEmpty()) << grid;
  }
}

}  // namespace
}  // namespace gpumap::gst::test
