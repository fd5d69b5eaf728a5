// SPDX-License-Identifier: MIT
// The ways of frames from one process to another: what the producer stamped is where the consumer counts.
#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gpumap/latency.hpp"
#include "gst/latency/latency_meta.h"
#include "launched.hpp"
#include "link_sides.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

GpumapLatencyMeta* meta_of(GstBuffer* buffer) {
  return reinterpret_cast<GpumapLatencyMeta*>(gst_buffer_get_meta(buffer, g_type_from_name(GPUMAP_LATENCY_META_API)));
}

struct LinkStamps : LinkSides {
  /// Field `latency` of an element's stats; null where there is none.
  static Ptr<GstStructure> latency(GstElement* element) {
    GstStructure* stats = nullptr;
    GstStructure* found = nullptr;
    g_object_get(element, "stats", &stats, nullptr);
    gst_structure_get(stats, "latency", GST_TYPE_STRUCTURE, &found, nullptr);
    gst_structure_free(stats);
    return Ptr<GstStructure>(found);
  }
  static std::uint64_t count(const GstStructure* latency, const char* field) {
    guint64 value = 0;
    EXPECT_TRUE(gst_structure_get_uint64(latency, field, &value)) << field;
    return value;
  }
  /// Times of one stage or total, ns.
  static double mean(const GstStructure* latency, const char* stage) {
    GstStructure* figures = nullptr;
    EXPECT_TRUE(gst_structure_get(latency, stage, GST_TYPE_STRUCTURE, &figures, nullptr)) << stage;
    if (figures == nullptr) return -1;
    gdouble value = 0;
    EXPECT_TRUE(gst_structure_get_double(figures, "mean", &value));
    gst_structure_free(figures);
    return value;
  }
  static void expect_way(GstBuffer* buffer) {
    const GpumapLatencyMeta* meta = meta_of(buffer);
    ASSERT_NE(meta, nullptr);
    EXPECT_EQ(meta->sequence, GST_BUFFER_PTS(buffer) / GST_MSECOND) << "the producer's number";
    EXPECT_GT(meta->at_ns[GPUMAP_LATENCY_ACQUIRED], 0);
    for (int stamp = GPUMAP_LATENCY_FIRST_STORE; stamp <= GPUMAP_LATENCY_RECEIVED; ++stamp) {
      EXPECT_GE(meta->at_ns[stamp], meta->at_ns[stamp - 1]) << stamp;
    }
    EXPECT_LE(meta->at_ns[GPUMAP_LATENCY_RECEIVED], monotonic_ns());
    EXPECT_EQ(meta->at_ns[GPUMAP_LATENCY_LAUNCHED], 0);
  }
};

TEST_F(LinkStamps, OfTheProducerAreTheFramesOwn) {
  Pipeline producer(from_appsrc("stamps=true"));
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  const std::int64_t before = monotonic_ns();
  for (std::uint64_t n = 1; n <= 30; ++n) push_frame(producer, n);
  push_eos(producer);
  std::uint64_t frames = 0;
  while (const Sample sample = pull(consumer.appsink())) {
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    expect_way(buffer);
    if (GST_BUFFER_PTS(buffer) != 0 && meta_of(buffer) != nullptr) {
      EXPECT_GE(meta_of(buffer)->at_ns[GPUMAP_LATENCY_ACQUIRED], before);
    }
    ++frames;
  }
  // An appsink keeps its last one.
  ASSERT_TRUE(eventually([&] { return count(latency(consumer.element("src")).get(), "frames") >= frames - 1; }));
  const auto counted = latency(consumer.element("src"));
  EXPECT_EQ(count(counted.get(), "dropped"), 0U) << "those before it came are not missed";
  double sum = 0;
  for (const char* const stage : {"hold", "write", "publish", "queue"}) sum += mean(counted.get(), stage);
  EXPECT_GT(sum, 0);
  EXPECT_LE(sum, mean(counted.get(), "whole"));
}

TEST_F(LinkStamps, OffAtTheProducerThereAreNone) {
  Pipeline producer(from_appsrc());
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  push_frame(producer, 1);
  const Sample sample = pull(consumer.appsink());
  ASSERT_TRUE(sample);
  EXPECT_EQ(meta_of(gst_sample_get_buffer(sample.get())), nullptr);
  EXPECT_EQ(latency(consumer.element("src")), nullptr);
}

// The next producer's frames begin anew, with or without.
TEST_F(LinkStamps, FollowTheProducerOfTheMoment) {
  Pipeline consumer(to_appsink());
  start(consumer);
  for (const bool stamps : {true, false, true}) {
    Pipeline producer(from_appsrc(stamps ? "stamps=true" : ""));
    start(producer);
    push_frame(producer, 0);
    ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
    push_frame(producer, 1);
    Sample sample = pull(consumer.appsink());
    if (sample && GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())) == 0) sample = pull(consumer.appsink());
    ASSERT_TRUE(sample);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    EXPECT_EQ(meta_of(buffer) != nullptr, stamps);
    if (stamps) expect_way(buffer);
  }
}

TEST_F(LinkStamps, FramesThatAClientMissesAreCounted) {
  Pipeline producer(from_appsrc("stamps=true"));
  start(producer);
  push_frame(producer, 0);
  Pipeline consumer(to_appsink("leaky=oldest") + " max-buffers=1");
  start(consumer);
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  for (std::uint64_t n = 1; n <= 60; ++n) push_frame(producer, n);
  push_eos(producer);
  // Who reads while they come may miss none.
  ASSERT_TRUE(eventually([&] { return stat(producer.element("sink"), "frames") == 61; }));
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t frames = 0;
  while (const Sample sample = pull(consumer.appsink())) {
    expect_way(gst_sample_get_buffer(sample.get()));
    last = GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())) / GST_MSECOND;
    if (frames++ == 0) first = last;
  }
  EXPECT_LT(frames, 60U);
  EXPECT_EQ(count(latency(consumer.element("src")).get(), "dropped"), last - first + 1 - frames);
}

TEST_F(LinkStamps, AreCountedToTheKernelsEndInAnotherProcess) {
  if (sanitized) GTEST_SKIP() << "gst-launch-1.0 has no sanitizer's run time";
  Launched producer(
      "videotestsrc num-buffers=20 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink stamps=true "
      "wait-for-connection=true " +
      socket());
  Pipeline consumer("gpumapsrc name=src " + socket() +
                    " ! gpumapkernel name=kernel kernel=checksum ! fakesink enable-last-sample=false");
  const std::int64_t began = monotonic_ns();
  EXPECT_EQ(consumer.run(), "eos");
  EXPECT_TRUE(producer.succeeded());
  for (const char* const name : {"src", "kernel"}) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(eventually([&] { return count(latency(consumer.element(name)).get(), "frames") == 20; }));
    const auto counted = latency(consumer.element(name));
    EXPECT_EQ(count(counted.get(), "dropped"), 0U);
    double sum = 0;
    for (const char* const stage :
         {"hold", "write", "publish", "queue", "dispatch", "start", "kernel", "notice", "release"}) {
      sum += mean(counted.get(), stage);
    }
    EXPECT_NEAR(sum, mean(counted.get(), "whole"), 1.0);
    EXPECT_LT(mean(counted.get(), "kernel"), static_cast<double>(monotonic_ns() - began));
  }
}

TEST_F(LinkStamps, ATracerInEachProcessTellsItsPart) {
  if (sanitized) GTEST_SKIP() << "gst-launch-1.0 has no sanitizer's run time";
  const std::string plugin = std::filesystem::path(std::getenv("GPUMAP_PLUGIN")).parent_path();
  const std::string line = "env G_DEBUG= GST_PLUGIN_PATH='" + plugin +
                           "' GST_TRACERS='gpumaplatency(interval=0)' timeout 60 gst-launch-1.0 -q gpumapsrc " +
                           socket() + " ! gpumapkernel kernel=checksum ! fakesink enable-last-sample=false 2>&1";
  const std::string wanted = "channel \"" + path + "\": 15 frames, 0 dropped";
  std::string text;
  // What is told at the end leaves out frames of whose kernels the times are not known yet, for which busy cores that
  // play a GPU take a while.
  for (int turn = 0; turn < 5 && text.find(wanted) == std::string::npos; ++turn) {
    Launched producer(
        "videotestsrc num-buffers=15 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink stamps=true "
        "wait-for-connection=true " +
        socket());
    FILE* pipe = popen(line.c_str(), "r");
    std::array<char, 4096> part{};
    text.clear();
    while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), got);
    EXPECT_EQ(pclose(pipe), 0) << text;
    EXPECT_TRUE(producer.succeeded());
  }
  EXPECT_THAT(text, HasSubstr(wanted));
}

}  // namespace
}  // namespace gpumap::gst::test
