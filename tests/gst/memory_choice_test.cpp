// SPDX-License-Identifier: MIT
// Who gets GPU memory: an element that names it. One that takes anything gets ordinary memory, without padding.
#include <gmock/gmock.h>

#include <fstream>

#include "caps.hpp"
#include "cuda_caps.hpp"
#include "pipeline.hpp"
#include "temporary_folder.hpp"

namespace gpumap::gst::test {
namespace {

/// Whether what is behind `name` in `description` names memory:GPUMap for these caps.
bool names(const std::string& description, const char* caps) {
  const Pipeline pipeline("identity name=before ! " + description);
  const Pad pad(gst_element_get_static_pad(pipeline.element("before"), "src"));
  return peer_names_gpu_memory(pad.get(), new_caps(caps).get());
}

constexpr const char* video = "video/x-raw,format=NV12,width=33,height=7,framerate=30/1";

TEST(MemoryChoice, KernelsNameIt) {
  const TemporaryFolder folder;
  const std::string own = folder.path() / "own.comp";
  std::ofstream(own) << "#version 460\n#include <gpumap.glsl>\nvoid main() {}\n";
  for (const std::string& kernel :
       {std::string("kernel=identity"), std::string("kernel=checksum"), std::string("kernel=convert"),
        "location=" + own, "location=" + own + " output-caps=video/x-raw,format=GRAY8"}) {
    for (const char* way : {"", "queue ! ", "identity ! ", "capsfilter caps=video/x-raw(ANY) ! ", "tee ! queue ! "}) {
      for (const char* end : {"", " ! fakesink", " ! video/x-raw ! fakesink"}) {
        const std::string description = std::string(way) + "gpumapkernel " + kernel + end;
        EXPECT_TRUE(names(description, video)) << description;
      }
    }
  }
  for (const char* kernel : {"kernel=identity", "kernel=checksum", "kernel=iq-power", "kernel=magnitude"}) {
    const std::string description = std::string("gpumapkernel ") + kernel + " ! fakesink";
    EXPECT_TRUE(names(description, "audio/x-raw,format=S16LE,layout=interleaved,channels=2,rate=48000")) << description;
  }
  EXPECT_TRUE(names("gpumapkernel kernel=checksum ! fakesink", "application/octet-stream"));
}

TEST(MemoryChoice, WhoeverTakesItByNameNamesIt) {
  for (const char* description :
       {"capsfilter caps=video/x-raw(memory:GPUMap) ! fakesink", "appsink caps=video/x-raw(memory:GPUMap)",
        "queue ! capsfilter caps=video/x-raw(memory:GPUMap);video/x-raw ! queue ! filesink location=/dev/null"}) {
    EXPECT_TRUE(names(description, video)) << description;
  }
}

TEST(MemoryChoice, WhoeverTakesAnythingDoesNot) {
  for (const char* description :
       {"fakesink", "filesink location=/dev/null", "appsink", "queue ! fakesink", "tee ! queue ! fakesink",
        "identity ! fakesink", "capsfilter caps=video/x-raw(ANY) ! fakesink", "videocrop ! fakesink",
        "video/x-raw ! fakesink", "jpegenc ! fakesink", "appsink caps=audio/x-raw(memory:GPUMap)",
        "tee name=t ! queue ! gpumapkernel ! fakesink t. ! queue ! jpegenc ! fakesink"}) {
    EXPECT_FALSE(names(description, video)) << description;
  }
  const Pipeline alone("identity name=before");
  const Pad pad(gst_element_get_static_pad(alone.element("before"), "src"));
  EXPECT_FALSE(peer_names_gpu_memory(pad.get(), new_caps(video).get()));
}

/// The sample that `end`, an appsink named out, gets of a frame behind gpumapkernel.
Sample sample_at(const std::string& kernel, const std::string& end, const Data& data) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                     "gpumapkernel name=kernel " +
                     kernel + " ! " + end));
  gst_app_src_set_caps(pipeline.appsrc(), new_caps(video).get());
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), new_buffer(data));
  Sample sample = pull(pipeline.appsink());
  EXPECT_NE(sample, nullptr) << pipeline.wait(1ms);
  return sample;
}

TEST(MemoryChoice, AKernelGivesOrdinaryMemoryToAnyone) {
  const Data data = random_data(frame_bytes(new_caps(video).get()), 5);
  for (const char* kernel : {"kernel=identity", "kernel=checksum"}) {
    for (const char* end :
         {"appsink name=out sync=false", "queue ! appsink name=out sync=false",
          "tee name=t ! queue ! appsink name=out sync=false t. ! queue ! fakesink", "video/x-raw ! appsink name=out"}) {
      const Sample sample = sample_at(kernel, end, data);
      ASSERT_NE(sample, nullptr) << end;
      EXPECT_TRUE(is_system_caps(gst_sample_get_caps(sample.get()))) << kernel << " ! " << end;
      EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data) << kernel << " ! " << end;
    }
  }
  const Sample sample = sample_at("kernel=identity", "appsink name=out caps=video/x-raw(memory:GPUMap)", data);
  ASSERT_NE(sample, nullptr);
  EXPECT_TRUE(is_gpu_caps(gst_sample_get_caps(sample.get())));
  EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data);
}

}  // namespace
}  // namespace gpumap::gst::test
