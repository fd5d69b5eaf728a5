// SPDX-License-Identifier: MIT
// What GST_DEBUG=gpumapkernel:6 tells: how caps were agreed on, the way of a frame, and why one was left out.
#include <gmock/gmock.h>

#include <mutex>

#include "gpu_buffer.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

/// The lines of the category gpumapkernel while it lives.
class Log {
 public:
  Log() {
    gst_debug_set_threshold_for_name("gpumapkernel", GST_LEVEL_LOG);
    (gst_debug_add_log_function)(&Log::take, this, nullptr);  // the macro compares what C++ does not
  }
  ~Log() {
    gst_debug_remove_log_function_by_data(this);
    gst_debug_unset_threshold_for_name("gpumapkernel");
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  [[nodiscard]] std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  static void take(GstDebugCategory* category, GstDebugLevel /*level*/, const gchar* /*file*/,
                   const gchar* /*function*/, gint /*line*/, GObject* /*object*/, GstDebugMessage* message,
                   gpointer self) {
    if (std::string_view(gst_debug_category_get_name(category)) != "gpumapkernel") return;
    auto* log = static_cast<Log*>(self);
    const std::lock_guard lock(log->mutex_);
    log->lines_.emplace_back(gst_debug_message_get(message));
  }

  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST(KernelLog, FollowsANegotiationAFrameAndADrop) {
  const Log log;
  Pipeline pipeline(
      "appsrc name=in format=time caps=video/x-raw(memory:GPUMap),format=NV12,width=34,height=8,framerate=30/1 ! "
      "gpumapkernel kernel=convert ! fakesink sync=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), on_gpu(random_data(std::size_t{36} * 12, 1)));
  push(pipeline.appsrc(), on_gpu(random_data(7, 1)));
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  pipeline.stop();
  const auto lines = log.lines();
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("for video/x-raw(memory:GPUMap)"), HasSubstr("downstream takes"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("chose video/x-raw"), HasSubstr("format=(string)RGBA"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("convert runs on video/x-raw(memory:GPUMap)"), HasSubstr("gives"))));
  EXPECT_THAT(lines, Contains(HasSubstr("downstream gets frames without padding")));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr(" gave buffer: "), HasSubstr("size 1088"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("dropped buffer: "), HasSubstr("a frame of 7 bytes"))));
}

}  // namespace
}  // namespace gpumap::gst::test
