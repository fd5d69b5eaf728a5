// SPDX-License-Identifier: MIT
// A kernel that stays on the GPU beside GStreamer's own CUDA elements in the same process, which load modules, free
// memory and wait for the whole context: both go on, and both give what they give alone.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "cuda_pipeline.hpp"
#include "mode_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

class BesideCudaElements : public KernelModes {
 protected:
  void SetUp() override {
    KernelModes::SetUp();
    if (!IsSkipped() && !cuda_) GTEST_SKIP() << device_->info().name << " has no CUDA";
  }
  /// Whole runs of `pipeline`, from NULL to NULL, while frames go through a kernel that is tested.
  void runs_beside(const std::string& pipeline, unsigned runs, std::vector<Data>* alone) {
    const auto frames_of = [&] {
      Pipeline theirs(pipeline);
      (void)theirs.set_state(GST_STATE_PLAYING);
      std::vector<Data> seen;
      while (const Sample sample = pull(theirs.appsink())) {
        const GstCaps* caps = gst_sample_get_caps(sample.get());
        const bool raw = gst_structure_has_name(gst_caps_get_structure(caps, 0), "video/x-raw") != 0;
        // What lies between the rows of a picture is nobody's.
        seen.push_back(raw ? pixels_of(sample) : data_of(gst_sample_get_buffer(sample.get())));
      }
      const std::string verdict = theirs.wait(1s);
      EXPECT_EQ(verdict, "eos");
      return seen;
    };
    *alone = frames_of();
    ASSERT_FALSE(alone->empty());

    Pipeline ours(line(kernel(mixing, "name=kernel resident-idle=3600000")));
    ASSERT_NE(ours.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::atomic<bool> ended{false}, right{true};
    std::atomic<unsigned> frames{0};
    std::thread producer([&] {
      Mixed mixed;
      for (unsigned i = 0; !ended && right; ++i, ++frames) {
        right = through(ours, any_frame(i)) == mixed.next(any_frame(i));
      }
    });
    const auto began = std::chrono::steady_clock::now();
    for (unsigned run = 0; run < runs; ++run) {
      const unsigned before = frames;
      EXPECT_TRUE(frames_of() == *alone) << "run " << run;
      EXPECT_TRUE(eventually([&] { return frames > before || !right; })) << "ours stand still";
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    ended = true;
    producer.join();
    EXPECT_TRUE(right) << "frame " << frames;
    std::printf("%s: %u runs of theirs in %.2f s beside %u frames of ours\n", mode().c_str(), runs, took.count(),
                frames.load());
    expect_mode(ours);
  }
  static std::string lacking(const std::vector<const char*>& elements) {
    for (const char* name : elements) {
      GstElementFactory* factory = gst_element_factory_find(name);
      if (factory == nullptr) return fmt::format("no element {} here", name);
      gst_object_unref(factory);
    }
    return {};
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, BesideCudaElements, testing::Values("launch", "resident"), mode_name);

TEST_P(BesideCudaElements, CudauploadAndCudadownload) {
  const std::string none = lacking({"cudaupload", "cudadownload"});
  if (!none.empty()) GTEST_SKIP() << none;
  std::vector<Data> alone;
  runs_beside(
      "videotestsrc num-buffers=60 pattern=ball ! video/x-raw,format=NV12,width=322,height=242 ! cudaupload ! "
      "cudadownload ! video/x-raw ! appsink name=out sync=false",
      times(10, 1), &alone);
  EXPECT_EQ(alone.size(), 60U);
}

// Its kernels are compiled and loaded at each start: a load waits until the GPU runs nothing.
TEST_P(BesideCudaElements, Cudaconvert) {
  const std::string none = lacking({"cudaupload", "cudaconvert", "cudadownload"});
  if (!none.empty()) GTEST_SKIP() << none;
  Pipeline probe(
      "videotestsrc num-buffers=1 ! video/x-raw,format=NV12 ! cudaupload ! cudaconvert ! "
      "video/x-raw(memory:CUDAMemory),format=RGBA ! fakesink");
  const std::string verdict = probe.run(20s);
  if (verdict != "eos") GTEST_SKIP() << "cudaconvert does not work here, with nothing beside it: " << verdict;
  std::vector<Data> alone;
  runs_beside(
      "videotestsrc num-buffers=60 pattern=ball ! video/x-raw,format=NV12,width=322,height=242 ! cudaupload ! "
      "cudaconvert ! video/x-raw(memory:CUDAMemory),format=RGBA ! cudadownload ! video/x-raw ! "
      "appsink name=out sync=false",
      times(10, 1), &alone);
  EXPECT_EQ(alone.size(), 60U);
}

TEST_P(BesideCudaElements, Nvh264enc) {
  const std::string none = lacking({"nvh264enc"});
  if (!none.empty()) GTEST_SKIP() << none;
  std::vector<Data> alone;
  runs_beside(
      "videotestsrc num-buffers=60 pattern=ball ! video/x-raw,format=NV12,width=320,height=240,framerate=30/1 ! "
      "nvh264enc ! appsink name=out sync=false",
      times(5, 1), &alone);
  EXPECT_EQ(alone.size(), 60U);
}

}  // namespace
}  // namespace gpumap::gst::test
