// SPDX-License-Identifier: MIT
// How a kernel in a file is launched, and what it sees and tells: functions in sequence, frames that it only looks at,
// launches by field, state, gaps, results by name, writes out of bounds.
#include <gmock/gmock.h>

#include <array>

#include "fake_device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.h"
#include "gst/kernel/kernel_element.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "own_kernel.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OwnKernel, SeveralFunctionsAndNamedResults) {
  const std::string body =
      "{ uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;\n"
      "  if (x >= frame.out_view.width || y >= frame.out_view.height) return;\n"
      "  uint64_t in_at = frame.in_view.plane[0] + uint64_t(y) * frame.in_view.stride[0] + x;\n"
      "  uint64_t out_at = frame.out_view.plane[0] + uint64_t(y) * frame.out_view.stride[0] + x;\n";
  const ShaderFile file(
      "// gpumap: functions invert,halve\n// gpumap: results last=u64,half=f32,minus=i64,third=f64\n"
      "void invert() " +
      body +
      "  store_u8(out_at, 255u - load_u8(in_at)); }\n"
      "void halve() " +
      body +
      "  store_u8(out_at, load_u8(in_at) / 2u);\n"
      "  if (x == 0u && y == 0u) { store_u64(frame.result, frame.sequence + 1000ul); store_f32(frame.result + 8, "
      "0.5);\n"
      "    store_u64(frame.result + 16, uint64_t(-7l)); store_u64(frame.result + 24, 0x3fd5555555555555ul); } }\n");
  Own own("location=" + file.path());
  const Data data = own.bytes();
  ASSERT_FALSE(data.empty());
  EXPECT_EQ(std::to_integer<unsigned>(data[3]), (255 - own.pixel(3, 0)) / 2);
  GstBus* bus = gst_element_get_bus(own.pipeline().get());
  GstMessage* message = gst_bus_timed_pop_filtered(bus, GST_SECOND, GST_MESSAGE_ELEMENT);
  gst_object_unref(bus);
  ASSERT_NE(message, nullptr);
  guint64 last = 0;
  gdouble half = 0;
  gint64 minus = 0;
  gdouble third = 0;
  EXPECT_TRUE(gst_structure_get(gst_message_get_structure(message), "last", G_TYPE_UINT64, &last, "half", G_TYPE_DOUBLE,
                                &half, "minus", G_TYPE_INT64, &minus, "third", G_TYPE_DOUBLE, &third, nullptr));
  EXPECT_EQ(last, 1000U);
  EXPECT_EQ(half, 0.5);
  EXPECT_EQ(minus, -7);
  EXPECT_NEAR(third, 1.0 / 3, 1e-15);
  gst_message_unref(message);
}

// A frame of which nothing was found, or whose figure is 0, is not one of which nothing is known.
TEST(OwnKernel, NamedResultsAreToldThoughTheyAreZero) {
  const ShaderFile file(gray("// gpumap: results found=u64,level=f32\n", "0u"));
  Own own("location=" + file.path());
  const Sample sample = own.frame();
  ASSERT_TRUE(sample) << own.pipeline().wait(1s);
  GstCustomMeta* meta = gst_buffer_get_custom_meta(gst_sample_get_buffer(sample.get()), "GpumapResult");
  ASSERT_NE(meta, nullptr);
  guint64 found = 1;
  gdouble level = 1;
  EXPECT_TRUE(gst_structure_get(gst_custom_meta_get_structure(meta), "found", G_TYPE_UINT64, &found, "level",
                                G_TYPE_DOUBLE, &level, nullptr));
  EXPECT_EQ(found, 0U);
  EXPECT_EQ(level, 0.0);
}

TEST(OwnKernel, AKernelThatOnlyLooksHandsTheFrameOn) {
  const ShaderFile file(
      "// gpumap: output unchanged\n// gpumap: results first=u64\n"
      "void main() { if (gpumap_thread() == 0ul) store_u64(frame.result, uint64_t(load_u8(frame.in_view.plane[0]))); "
      "}\n");
  for (const char* checked : {"", "check-bounds=true "}) {
    Own own(checked + ("location=" + file.path()));
    const Sample sample = own.frame();
    ASSERT_TRUE(sample) << own.pipeline().wait(1s);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    EXPECT_EQ(data_of(buffer), random_data(Own::frame_bytes, 11));
    GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, "GpumapResult");
    ASSERT_NE(meta, nullptr);
    guint64 first = 999;
    EXPECT_TRUE(gst_structure_get_uint64(gst_custom_meta_get_structure(meta), "first", &first));
    EXPECT_EQ(first, own.pixel(0, 0));
  }
}

TEST(OwnKernel, SeveralFunctionsThatOnlyLookSeeTheSameFrame) {
  const ShaderFile file(
      "// gpumap: functions first,other,last\n// gpumap: output unchanged\n// gpumap: results a=u64,b=u64,c=u64\n"
      "void tell(uint word) { if (gpumap_thread() == 0ul) store_u64(frame.result + 8 * word,\n"
      "  uint64_t(load_u32(frame.in_view.plane[0])) | uint64_t(frame.in_view.plane[0] == frame.out_view.plane[0]) << "
      "32);"
      " }\n"
      "void first() { tell(0); }\nvoid other() { tell(1); }\nvoid last() { tell(2); }\n");
  Own own("location=" + file.path());
  const Sample sample = own.frame();
  ASSERT_TRUE(sample) << own.pipeline().wait(1s);
  guint64 wanted = 1;
  for (int x = 3; x >= 0; --x) wanted = wanted << 8U | own.pixel(x, 0);
  GstCustomMeta* meta = gst_buffer_get_custom_meta(gst_sample_get_buffer(sample.get()), "GpumapResult");
  ASSERT_NE(meta, nullptr);
  for (const char* name : {"a", "b", "c"}) {
    guint64 found = 0;
    EXPECT_TRUE(gst_structure_get_uint64(gst_custom_meta_get_structure(meta), name, &found));
    EXPECT_EQ(found, wanted) << name;
  }
}

/// What a frame of interlaced NV12 of 16x8 shows of its launches: their number so far, how often the result was added
/// to, and the height that the last one saw.
std::array<guint64, 3> launches_of(Pipeline& pipeline) {
  std::array<guint64, 3> found{};
  push(pipeline.appsrc(), new_buffer(Data(16 * 8 * 3 / 2)));
  const Sample sample = pull(pipeline.appsink());
  if (!sample) return found;
  GstCustomMeta* meta = gst_buffer_get_custom_meta(gst_sample_get_buffer(sample.get()), "GpumapResult");
  if (meta == nullptr) return found;
  gst_structure_get(gst_custom_meta_get_structure(meta), "launches", G_TYPE_UINT64, &found[0], "added", G_TYPE_UINT64,
                    &found[1], "height", G_TYPE_UINT64, &found[2], nullptr);
  return found;
}

TEST(OwnKernel, InterlacedFramesAreLaunchedByFieldOnRequest) {
  const std::string counts =
      "// gpumap: results launches=u64,added=u64,height=u64\n// gpumap: state 8\n"
      "void main() { if (gpumap_thread() != 0ul) return;\n"
      "  store_u32(frame.state, load_u32(frame.state) + 1u); store_u64(frame.result, "
      "uint64_t(load_u32(frame.state)));\n"
      "  store_u64(frame.result + 8, load_u64(frame.result + 8) + 1ul);\n"
      "  store_u64(frame.result + 16, uint64_t(frame.in_view.height)); }\n";
  const std::string gray_out = "// gpumap: output video/x-raw,format=GRAY8\n";
  for (const auto& [declared, launches, height] : {std::tuple<std::string, guint64, guint64>{gray_out, 1, 8},
                                                   {"// gpumap: launch per-frame\n" + gray_out, 1, 8},
                                                   {"", 1, 8},
                                                   {"// gpumap: launch per-field\n" + gray_out, 2, 4},
                                                   {"// gpumap: launch per-field\n", 2, 4}}) {
    const ShaderFile file(declared + counts);
    Pipeline pipeline(
        on_new_channel("appsrc name=in format=time caps=video/x-raw,format=NV12,width=16,height=8,framerate=25/1,"
                       "interlace-mode=interleaved ! gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel "
                       "location=" +
                       file.path() + " ! appsink name=out sync=false"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (guint64 frame = 1; frame <= 2; ++frame) {
      EXPECT_THAT(launches_of(pipeline), ElementsAre(frame * launches, launches, height)) << declared;
    }
  }
}

TEST(OwnKernel, StateBeginsAnewAfterAHoleAndAFlush) {
  // Frames are counted once all threads of the frame have read the count.
  const ShaderFile file(
      "// gpumap: functions show,count\n// gpumap: state 8\n"
      "void show() { if (gpumap_thread() < frame.out_view.bytes) store_u8(frame.out_view.plane[0] + gpumap_thread(), "
      "load_u32(frame.state)); }\n"
      "void count() { uint64_t t = gpumap_thread(); if (t < frame.out_view.bytes) "
      "store_u8(frame.out_view.plane[0] + t, load_u8(frame.in_view.plane[0] + t));\n"
      "  if (t == 0ul) store_u32(frame.state, load_u32(frame.state) + 1u); }\n");
  Own own("location=" + file.path());
  for (unsigned i = 0; i < 3; ++i) {
    const Data data = own.bytes();
    ASSERT_FALSE(data.empty());
    EXPECT_EQ(std::to_integer<unsigned>(data[0]), i);
  }
  for (const int expected : {0, 1}) {
    Buffer buffer = new_buffer(random_data(Own::frame_bytes, 2));
    if (expected == 0) GST_BUFFER_FLAG_SET(buffer.get(), GST_BUFFER_FLAG_DISCONT);
    push(own.pipeline().appsrc(), std::move(buffer));
    const Sample sample = pull(own.pipeline().appsink());
    ASSERT_TRUE(sample);
    EXPECT_EQ(std::to_integer<int>(data_of(gst_sample_get_buffer(sample.get()))[0]), expected);
  }
  GstElement* source = own.pipeline().element("in");
  ASSERT_TRUE(gst_element_send_event(source, gst_event_new_flush_start()));
  ASSERT_TRUE(gst_element_send_event(source, gst_event_new_flush_stop(TRUE)));
  const Data data = own.bytes();
  ASSERT_FALSE(data.empty());
  EXPECT_EQ(std::to_integer<unsigned>(data[0]), 0U);
}

TEST(OwnKernel, GapsAndTheFrameRateAreTold) {
  const ShaderFile file(gray("", "x == 0u ? frame.flags : x == 1u ? frame.frame_rate : frame.frame_rate_scale"));
  Own own("location=" + file.path());
  GstElement* source = own.pipeline().element("in");
  const auto gap_at = [&own](bool discont = false, std::size_t bytes = Own::frame_bytes) {
    EXPECT_NE(own.pipeline().set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    Buffer buffer = new_buffer(random_data(bytes, 2), 0);
    if (discont) GST_BUFFER_FLAG_SET(buffer.get(), GST_BUFFER_FLAG_DISCONT);
    push(own.pipeline().appsrc(), std::move(buffer));
    if (bytes != Own::frame_bytes) return -1;
    const Sample sample = pull(own.pipeline().appsink());
    if (!sample) return -2;
    const Data data = data_of(gst_sample_get_buffer(sample.get()));
    EXPECT_EQ(data[1], std::byte{30});
    EXPECT_EQ(data[2], std::byte{1});
    return std::to_integer<int>(data[0]);
  };
  EXPECT_EQ(gap_at(), GPUMAP_FRAME_GAP) << "the first";
  EXPECT_EQ(gap_at(), 0);
  EXPECT_EQ(gap_at(true), GPUMAP_FRAME_GAP) << "marked";
  EXPECT_EQ(gap_at(), 0);
  EXPECT_EQ(gap_at(false, 100), -1);
  EXPECT_EQ(gap_at(), GPUMAP_FRAME_GAP) << "one was too short and was left out";
  EXPECT_EQ(gap_at(), 0);
  ASSERT_TRUE(gst_element_send_event(source, gst_event_new_gap(0, GST_SECOND)));
  EXPECT_EQ(gap_at(), GPUMAP_FRAME_GAP) << "a gap event";
  EXPECT_EQ(gap_at(), 0);
  ASSERT_TRUE(gst_element_send_event(source, gst_event_new_flush_start()));
  ASSERT_TRUE(gst_element_send_event(source, gst_event_new_flush_stop(TRUE)));
  EXPECT_EQ(gap_at(), GPUMAP_FRAME_GAP) << "after a flush";
  EXPECT_EQ(gap_at(), 0);
}

TEST(OwnKernel, WritingBehindTheOutputIsTold) {
  const ShaderFile file(
      "void main() { if (gpumap_thread() == 0ul) store_u8(frame.out_view.plane[0] + frame.out_view.bytes + OVER, 1u);"
      "}\n");
  for (const int over : {0, 60000}) {
    Own own("check-bounds=true defines=OVER=" + std::to_string(over) + " location=" + file.path());
    push(own.pipeline().appsrc(), new_buffer(random_data(Own::frame_bytes, 1)));
    EXPECT_THAT(own.pipeline().run(),
                testing::AllOf(HasSubstr(file.path() + " writes out of bounds"), HasSubstr("output of 2924 bytes"),
                               HasSubstr("the first one " + std::to_string(over) + " behind the end")));
  }
  const ShaderFile within(
      "void main() { if (gpumap_thread() < frame.out_view.bytes) "
      "store_u8(frame.out_view.plane[0] + gpumap_thread(), 7u); }\n");
  Own own("check-bounds=true location=" + within.path());
  EXPECT_THAT(own.bytes(), testing::Each(std::byte{7}));
}

// Which GPU a gpumapkernel runs on. There may be one here, so the other one is a device that runs nothing.

using ::testing::AllOf;

/// One of several of a kind.
class Twin : public gpumap::test::FakeDevice {
 public:
  explicit Twin(const char* address) {
    info_ = FakeDevice::info();
    info_.name = "Twin GPU";
    info_.pci_address = address;
  }
  [[nodiscard]] const DeviceInfo& info() const noexcept override { return info_; }

 private:
  DeviceInfo info_;
};

Buffer frame_on(const std::shared_ptr<Device>& device) {
  constexpr std::size_t bytes = 64;
  MemoryBlock block{device->allocate({.placement = Placement::host, .bytes = bytes}, {}), {}};
  auto made = std::make_unique<FrameMemory>(device, std::move(block), bytes, nullptr);
  Buffer buffer(gst_buffer_new());
  gst_buffer_append_memory(buffer.get(),
                           memory_new(wrapping_allocator(), std::move(made), bytes, GST_MEMORY_FLAG_READONLY));
  return buffer;
}

TEST(DeviceChoice, AutoFollowsTheFrames) {
  const auto here = std::make_shared<Twin>("0000:3b:00.0"), there = std::make_shared<Twin>("0000:86:00.0");
  EXPECT_EQ(device_to_follow("auto", *here, there), there);
  EXPECT_EQ(device_to_follow("auto", *here, here), nullptr);
  EXPECT_EQ(device_to_follow("auto", *here, nullptr), nullptr);
  EXPECT_EQ(device_to_follow("0", *here, here), nullptr);
  EXPECT_EQ(device_of(frame_on(there).get()), there);
  EXPECT_EQ(device_of(new_buffer(random_data(9, 1)).get()), nullptr);
}

TEST(DeviceChoice, ADeviceThatWasChosenDoesNotAndSaysWhichTwoTheyAre) {
  const auto here = std::make_shared<Twin>("0000:3b:00.0"), there = std::make_shared<Twin>("0000:86:00.0");
  try {
    (void)device_to_follow("0", *here, there);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("a frame in the memory of Twin GPU at 0000:86:00.0"),
                                    HasSubstr("device=0, which is Twin GPU at 0000:3b:00.0"),
                                    HasSubstr("leave device out"), HasSubstr("set device=0000:86:00.0")));
  }
}

/// What becomes of a frame on `device` in a kernel with these options.
std::string error_of(const std::shared_ptr<Device>& device, const std::string& options) {
  Pipeline pipeline(
      "appsrc name=in format=time caps=application/octet-stream ! gpumapkernel name=kernel kernel=checksum " + options +
      " ! fakesink");
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), frame_on(device));
  std::string error = pipeline.wait();
  EXPECT_EQ(pipeline.culprit(), "kernel");
  return error;
}

TEST(DeviceChoice, TheElementGoesWhereItsFramesAre) {
  const auto there = std::make_shared<Twin>("0000:86:00.0");
  // This one runs nothing, which shows that the kernel was taken there.
  EXPECT_THAT(error_of(there, ""), HasSubstr("kernel checksum: no device"));
  EXPECT_THAT(error_of(there, "device=0"), HasSubstr("a frame in the memory of Twin GPU at 0000:86:00.0 reached"));
}

}  // namespace
}  // namespace gpumap::gst::test
