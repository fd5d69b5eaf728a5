// SPDX-License-Identifier: MIT
// A kernel that faults ends the GPU's context for this process, so this program does nothing else. It must end in an
// element's error, with the process alive and every wait over; and later pipelines must be told.
#include <gmock/gmock.h>

#include <cstdlib>

#include "gpu_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using testing::HasSubstr;

class LostGpuTest : public GpuPipeline {};

/// Whether an error that says `text` comes, after others maybe.
bool error_comes(const Pipeline& pipeline, const std::string& text) {
  GstBus* bus = gst_element_get_bus(pipeline.get());
  bool found = false;
  while (!found) {
    GstMessage* message = gst_bus_timed_pop_filtered(bus, 10 * GST_SECOND, GST_MESSAGE_ERROR);
    if (message == nullptr) break;
    GError* error = nullptr;
    gst_message_parse_error(message, &error, nullptr);
    found = std::string_view(error->message).find(text) != std::string_view::npos;
    g_error_free(error);
    gst_message_unref(message);
  }
  gst_object_unref(bus);
  return found;
}

TEST_F(LostGpuTest, AFaultIsAnErrorOfThisAndLaterPipelines) {
  if (!device_->has(Backend::cuda))
    GTEST_SKIP() << "only CUDA kernels fault; " << device_->info().name << " has no CUDA";
  alarm(100);
  const std::string file = folder_.add("fault.cu",
                                       "#include <gpumap/kernel.h>\n"
                                       "extern \"C\" __global__ void fault(gpumap_frame frame) {\n"
                                       "  *reinterpret_cast<volatile gpumap_u32*>(frame.duration + 1) = 1;\n"
                                       "}\n");
  Pipeline pipeline(on_new_channel(
      "appsrc name=in format=time caps=application/octet-stream ! gpumapsink $CHANNEL slots=2 gpumapsrc $CHANNEL ! "
      "gpumapkernel location=" +
      file + (std::getenv("GPUMAP_TEST_RESIDENT") != nullptr ? " mode=resident" : "") + " ! fakesink sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  // More than the ring has slots: waits for frames that never end are under way when the fault is found.
  for (unsigned i = 0; i < 20; ++i) (void)push(pipeline.appsrc(), new_buffer(random_data(100'000, i), i * GST_MSECOND));
  gst_app_src_end_of_stream(pipeline.appsrc());
  const std::string verdict = pipeline.wait(20s);
  EXPECT_THAT(verdict, HasSubstr("lost"));
  EXPECT_THAT(verdict, HasSubstr("restart the process"));
  // Who waits for a slot may be the first to meet the fault; the kernel's element names the kernel.
  EXPECT_TRUE(verdict.find("fault.cu") != std::string::npos || error_comes(pipeline, "fault.cu"));
  EXPECT_LT(pipeline.stop(), 10s);
  EXPECT_FALSE(device_->lost().empty());

  for (const char* later : {"kernel=identity", "kernel=checksum"}) {
    Pipeline next(on_new_channel(std::string("videotestsrc num-buffers=3 ! video/x-raw,format=NV12 ! gpumapsink "
                                             "$CHANNEL gpumapsrc $CHANNEL ! gpumapkernel ") +
                                 later + " ! fakesink sync=false"));
    EXPECT_THAT(next.run(20s), HasSubstr("lost")) << later;
    EXPECT_LT(next.stop(), 10s);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
