// SPDX-License-Identifier: MIT
// What gpumapkernel reports while it runs.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "kernel_file.hpp"
#include "own_kernel.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

struct Stats {
  std::string name, kernel, backend;
  guint64 frames = 0, followed = 0;
};

Stats stats_of(GstElement* kernel) {
  GstStructure* raw = nullptr;
  g_object_get(kernel, "stats", &raw, nullptr);
  const Ptr<GstStructure> stats(raw);
  const auto text = [&](const char* field) {
    const gchar* value = gst_structure_get_string(raw, field);
    return std::string(value != nullptr ? value : "");
  };
  Stats made{.name = gst_structure_get_name(raw), .kernel = text("kernel"), .backend = text("backend")};
  gst_structure_get_uint64(raw, "frames", &made.frames);
  GstStructure* latency = nullptr;
  if (gst_structure_get(raw, "latency", GST_TYPE_STRUCTURE, &latency, nullptr)) {
    gst_structure_get_uint64(latency, "frames", &made.followed);
    gst_structure_free(latency);
  }
  return made;
}

TEST(KernelStats, CountSinceTheStart) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=9 ! video/x-raw,format=NV12,width=65,height=33 ! gpumapsink "
                     "stamps=true $CHANNEL   gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum name=first ! "
                     "gpumapkernel name=second ! fakesink enable-last-sample=false"));
  GstElement* const first = pipeline.element("first");
  EXPECT_EQ(stats_of(first).name, "gpumapkernel-stats") << "before the start";
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_EQ(pipeline.run(), "eos");
    for (const auto& [name, kernel] : {std::pair{"first", "checksum"}, {"second", "identity"}}) {
      // A frame counts once the times of its kernels are known, for which busy cores that play a GPU take a while.
      GstElement* const element = pipeline.element(name);
      EXPECT_TRUE(eventually([&] { return stats_of(element).followed == 9; })) << name;
      const Stats stats = stats_of(element);
      EXPECT_EQ(stats.kernel, kernel);
      EXPECT_THAT(stats.backend, testing::AnyOf("vulkan", "cuda"));
      EXPECT_EQ(stats.frames, 9U) << name;
      EXPECT_EQ(stats.followed, 9U) << name;
    }
    pipeline.stop();
    EXPECT_EQ(stats_of(first).frames, 0U);
  }
}

// A path may be any bytes, a field of a structure only text.
TEST(KernelStats, NameAKernelWhosePathIsNoText) {
  const KernelFile file(gray("", "1u"));
  const std::string path = file.beside("odd\xff.comp");
  std::filesystem::copy_file(file.path(), path);
  Own own("");
  g_object_set(own.pipeline().element("kernel"), "location", path.c_str(), nullptr);
  ASSERT_TRUE(own.frame());
  EXPECT_THAT(stats_of(own.pipeline().element("kernel")).kernel, testing::HasSubstr("odd\\xff"));
}

TEST(KernelStats, HaveNoLatencyOfFramesThatNobodyFollows) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=32 ! gpumapsink $CHANNEL   "
                     "gpumapsrc $CHANNEL ! gpumapkernel name=kernel ! fakesink enable-last-sample=false"));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(stats_of(pipeline.element("kernel")).frames, 3U);
  EXPECT_EQ(stats_of(pipeline.element("kernel")).followed, 0U);
}

}  // namespace
}  // namespace gpumap::gst::test
