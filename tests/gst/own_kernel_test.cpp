// SPDX-License-Identifier: MIT
// Kernels of the user's, in files that declare what they give and take.
#include <gmock/gmock.h>
#include <gst/controller/gstdirectcontrolbinding.h>
#include <gst/controller/gstinterpolationcontrolsource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "gpumap/kernel.h"
#include "result_stream.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using File = ShaderFile;

/// One thread an output pixel: its value is `value`, of uint x and y.
std::string gray(const std::string& declarations, const std::string& value) {
  return declarations +
         "void main() {\n"
         "  uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;\n"
         "  if (x >= frame.out_view.width || y >= frame.out_view.height) return;\n"
         "  store_u8(frame.out_view.plane[0] + uint64_t(y) * frame.out_view.stride[0] + x, " +
         value + ");\n}\n";
}

constexpr const char* input_pixel =
    "load_u8(frame.in_view.plane[0] + uint64_t(2 * y) * frame.in_view.stride[0] + 2 * x)";
constexpr const char* halved = "// gpumap: output video/x-raw,format=GRAY8,width={width/2},height={height/2}\n";

/// Frames of 65x43 GRAY8 of random bytes into a gpumapkernel with `options`, and out to an appsink.
class Own {
 public:
  explicit Own(const std::string& options, const std::string& after = "")
      : pipeline_(on_new_channel("appsrc name=in format=time caps=video/x-raw,format=GRAY8,width=65,height=43,"
                                 "framerate=30/1 ! gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! "
                                 "gpumapkernel name=kernel " +
                                 options + " ! " + after + " appsink name=out sync=false")),
        data_(random_data(frame_bytes, 11)) {}

  static constexpr int stride = 68;
  static constexpr std::size_t frame_bytes = std::size_t{stride} * 43;
  Pipeline& pipeline() { return pipeline_; }
  [[nodiscard]] unsigned pixel(int x, int y) const { return std::to_integer<unsigned>(data_[y * stride + x]); }

  Sample frame(GstClockTime pts = 0) {
    EXPECT_NE(pipeline_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push(pipeline_.appsrc(), new_buffer(data_, pts));
    return pull(pipeline_.appsink());
  }
  /// The first bytes of the next frame out.
  Data bytes(GstClockTime pts = 0) {
    const Sample sample = frame(pts);
    return sample ? data_of(gst_sample_get_buffer(sample.get())) : Data();
  }

 private:
  Pipeline pipeline_;
  Data data_;
};

std::string caps_of(const Sample& sample) {
  gchar* text = gst_caps_to_string(gst_sample_get_caps(sample.get()));
  std::string made = text;
  g_free(text);
  return made;
}

TEST(OwnKernel, GivesWhatItsFileDeclares) {
  const File file(gray(halved, input_pixel));
  Own own("location=" + file.path());
  const Sample sample = own.frame();
  ASSERT_TRUE(sample) << own.pipeline().wait(1s);
  EXPECT_THAT(caps_of(sample), testing::AllOf(HasSubstr("format=(string)GRAY8"), HasSubstr("width=(int)32"),
                                              HasSubstr("height=(int)21"), HasSubstr("framerate=(fraction)30/1")));
  const Data data = data_of(gst_sample_get_buffer(sample.get()));
  ASSERT_EQ(data.size(), 32U * 21);
  for (int y = 0; y < 21; ++y) {
    for (int x = 0; x < 32; ++x) {
      ASSERT_EQ(std::to_integer<unsigned>(data[y * 32 + x]), own.pixel(2 * x, 2 * y)) << x << "," << y;
    }
  }
}

TEST(OwnKernel, PropertiesComeBeforeTheFile) {
  const File file(gray(halved, input_pixel));
  Own own("location=" + file.path() + " output-caps=\"video/x-raw,format=GRAY8,width=8,height={height-40}\"");
  const Sample sample = own.frame();
  ASSERT_TRUE(sample) << own.pipeline().wait(1s);
  EXPECT_THAT(caps_of(sample), testing::AllOf(HasSubstr("width=(int)8"), HasSubstr("height=(int)3")));
}

// The caps are those of the kernel that runs: one that trusts its declaration would write out of bounds in others.
TEST(OwnKernel, CapsAndCodeAreOfOneVersion) {
  const File file(gray("// gpumap: output video/x-raw,format=GRAY8,width=8,height=8\n", "7u"));
  Own own("location=" + file.path());
  const Pad pad(gst_element_get_static_pad(own.pipeline().element("kernel"), "src"));
  const auto shown = [&pad] {
    const Caps caps(gst_pad_query_caps(pad.get(), nullptr));
    gint width = 0;
    if (gst_caps_is_any(caps.get())) return width;
    gst_structure_get_int(gst_caps_get_structure(caps.get(), 0), "width", &width);
    return width;
  };
  EXPECT_EQ(shown(), 0);
  file.write(gray("// gpumap: output video/x-raw,format=GRAY8,width=68,height=5\n", "9u"));
  EXPECT_THAT(own.bytes(), testing::AllOf(testing::SizeIs(68 * 5), testing::Each(std::byte{9})));
  // Neither another file nor another property counts before the next start.
  file.write(gray("// gpumap: output video/x-raw,format=GRAY8,width=200,height=200\n", "11u"));
  g_object_set(own.pipeline().element("kernel"), "location", "elsewhere.comp", "output-caps", "video/x-raw,width=12",
               nullptr);
  EXPECT_EQ(shown(), 68);
  ASSERT_TRUE(gst_pad_send_event(pad.get(), gst_event_new_reconfigure()));
  EXPECT_THAT(own.bytes(), testing::AllOf(testing::SizeIs(68 * 5), testing::Each(std::byte{9})));
}

TEST(OwnKernel, FramesOfOtherMediaTypesAndSizes) {
  const File file(
      "// gpumap: output application/x-histogram\n"
      "// gpumap: bytes width*4+height\n"
      "void main() { if (gpumap_thread() < frame.out_view.bytes) store_u8(frame.out_view.plane[0] + gpumap_thread(), "
      "uint(frame.out_view.bytes)); }\n");
  Own own("location=" + file.path());
  const Sample sample = own.frame();
  ASSERT_TRUE(sample) << own.pipeline().wait(1s);
  EXPECT_THAT(caps_of(sample), HasSubstr("application/x-histogram"));
  const Data data = data_of(gst_sample_get_buffer(sample.get()));
  ASSERT_EQ(data.size(), 65U * 4 + 43);
  EXPECT_THAT(data, testing::Each(std::byte{(65 * 4 + 43) % 256}));
}

TEST(OwnKernel, ExpressionsKnowStridesAndWhatIsLess) {
  const File file(
      "// gpumap: output application/x-rows,wide={min(width,64)},odd={height%2}\n"
      "// gpumap: bytes stride*max(height,50)\n"
      "void main() {}\n");
  Own own("location=" + file.path());
  const Sample sample = own.frame();
  ASSERT_TRUE(sample) << own.pipeline().wait(1s);
  EXPECT_THAT(caps_of(sample), testing::AllOf(HasSubstr("wide=(int)64"), HasSubstr("odd=(int)1")));
  EXPECT_EQ(gst_buffer_get_size(gst_sample_get_buffer(sample.get())), std::size_t{Own::stride} * 50);
}

TEST(OwnKernel, SeveralFunctionsAndNamedResults) {
  const std::string body =
      "{ uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;\n"
      "  if (x >= frame.out_view.width || y >= frame.out_view.height) return;\n"
      "  uint64_t in_at = frame.in_view.plane[0] + uint64_t(y) * frame.in_view.stride[0] + x;\n"
      "  uint64_t out_at = frame.out_view.plane[0] + uint64_t(y) * frame.out_view.stride[0] + x;\n";
  const File file(
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
  const File file(gray("// gpumap: results found=u64,level=f32\n", "0u"));
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
  const File file(
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
  const File file(
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
    const File file(declared + counts);
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

TEST(OwnKernel, TakesWhatItsFileDeclares) {
  const File grey(gray("// gpumap: input video/x-raw,format={GRAY8,NV12}\n", input_pixel));
  Own fits("location=" + grey.path());
  EXPECT_TRUE(fits.frame()) << fits.pipeline().wait(1s);
  const File other(gray("// gpumap: input video/x-raw,format=I420\n" + std::string(halved), input_pixel));
  Own refused("location=" + other.path());
  push(refused.pipeline().appsrc(), new_buffer(random_data(Own::frame_bytes, 1)));
  EXPECT_THAT(refused.pipeline().run(), testing::AllOf(HasSubstr("GRAY8"), HasSubstr("I420")));
  Own overruled("location=" + other.path() + " input-caps=video/x-raw,format=GRAY8");
  EXPECT_TRUE(overruled.frame()) << overruled.pipeline().wait(1s);
}

TEST(OwnKernel, MacrosAreThoseOfTheProperty) {
  const File file(gray("", "VALUE + OTHER"));
  Own own("location=" + file.path() + " defines=VALUE=40u,OTHER");
  const Data data = own.bytes();
  ASSERT_FALSE(data.empty());
  EXPECT_EQ(std::to_integer<unsigned>(data[0]), 41U);
}

TEST(OwnKernel, StateBeginsAnewAfterAHoleAndAFlush) {
  // Frames are counted once all threads of the frame have read the count.
  const File file(
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
  const File file(gray("", "x == 0u ? frame.flags : x == 1u ? frame.frame_rate : frame.frame_rate_scale"));
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

constexpr const char* shows_gain = "uint(frame.params[0])";

TEST(OwnKernel, ParametersAreChildren) {
  const File file(gray("// gpumap: params gain=3,taps=[1,2]\n", "uint(frame.params[0] * 10 + frame.params[2])"));
  Own own("location=" + file.path() + " params=taps=[4,5] gain::value=7");
  const auto first = [&own] {
    const Data data = own.bytes();
    return data.empty() ? -1 : std::to_integer<int>(data[0]);
  };
  EXPECT_EQ(first(), 75);
  auto* proxy = GST_CHILD_PROXY(own.pipeline().element("kernel"));
  gst_child_proxy_set(proxy, "taps[1]::value", 9.0, nullptr);
  EXPECT_EQ(first(), 79);
  g_object_set(proxy, "params", "gain=1", nullptr);
  EXPECT_EQ(first(), 79) << "a child's value holds over params";
  gst_child_proxy_set(proxy, "gain::value", 2.0, nullptr);
  EXPECT_EQ(first(), 29);
  EXPECT_EQ(gst_child_proxy_get_children_count(proxy), 3U);
}

double value_of(GstElement* kernel, const char* name) {
  gdouble value = -1;
  gst_child_proxy_get(GST_CHILD_PROXY(kernel), name, &value, nullptr);
  return value;
}

TEST(OwnKernel, AsManyChildrenAsThereAreNumbersBesideParams) {
  std::string ones = "1", twos = "2";
  for (int i = 1; i < 40; ++i) {
    ones += ",1";
    twos += ",2";
  }
  const File file(gray("// gpumap: params taps=[" + ones + "],gain=1\n",
                       "uint(frame.params[0] + frame.params[24] * 5 + frame.params[25] * 25 + frame.params[40])"));
  const std::string at = "location=" + file.path() + " params=\"";
  for (const auto& [params, last] :
       {std::pair{"taps=[" + twos + "]", 2}, {"taps[25]=9,gain=1,taps=[" + twos + "]", 2}, {"taps[25]=4", 4}}) {
    Own own(at + params + "\"");
    for (int i = 0; i < 25; ++i) {
      gst_child_proxy_set(GST_CHILD_PROXY(own.pipeline().element("kernel")),
                          ("taps[" + std::to_string(i) + "]::value").c_str(), 3.0, nullptr);
    }
    const Data data = own.bytes();
    ASSERT_FALSE(data.empty()) << params << own.pipeline().wait(1s);
    EXPECT_EQ(std::to_integer<int>(data[0]), 3 + 3 * 5 + last * 25 + 1) << params;
    EXPECT_THAT(own.pipeline().warnings(), testing::IsEmpty());
  }
}

TEST(OwnKernel, ChildrenAreTheParametersThatThereAre) {
  const File file(gray("// gpumap: params gain=3,taps=[1,2]\n", "0u"));
  const Element kernel(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("gpumapkernel", nullptr))));
  auto* proxy = GST_CHILD_PROXY(kernel.get());
  std::vector<std::string> added;
  g_signal_connect(proxy, "child-added",
                   G_CALLBACK(+[](GstChildProxy*, GObject*, const gchar* name, std::vector<std::string>* names) {
                     names->emplace_back(name);
                   }),
                   &added);
  g_object_set(proxy, "location", file.path().c_str(), nullptr);
  EXPECT_THAT(added, ElementsAre("gain", "taps[0]", "taps[1]"));
  for (const char* unknown : {"speed", "taps", "taps[2]", "taps[x]", "gain[", "", "["}) {
    EXPECT_EQ(gst_child_proxy_get_child_by_name(proxy, unknown), nullptr) << unknown;
  }
  EXPECT_EQ(gst_child_proxy_get_children_count(proxy), 3U);
  // They show what holds.
  EXPECT_EQ(value_of(kernel.get(), "gain::value"), 3);
  g_object_set(proxy, "params", "gain=2.5,taps[1]=7", nullptr);
  EXPECT_EQ(value_of(kernel.get(), "gain::value"), 2.5);
  EXPECT_EQ(value_of(kernel.get(), "taps[0]::value"), 1);
  EXPECT_EQ(value_of(kernel.get(), "taps[1]::value"), 7);
  g_object_set(proxy, "params", "taps=[8,9]", nullptr);
  EXPECT_EQ(value_of(kernel.get(), "taps[1]::value"), 9);
  // And those of another kernel are others.
  g_object_set(proxy, "location", nullptr, "kernel", "spectrum", nullptr);
  EXPECT_EQ(gst_child_proxy_get_child_by_name(proxy, "gain"), nullptr);
  EXPECT_EQ(gst_child_proxy_get_children_count(proxy), 5U);
  g_object_set(proxy, "params", nullptr, nullptr);
  EXPECT_EQ(value_of(kernel.get(), "size::value"), 1024);
}

TEST(OwnKernel, AMistakeInParamsWhilePlayingIsAWarning) {
  const File file(gray("// gpumap: params gain=3\n", shows_gain));
  Own own("location=" + file.path());
  ASSERT_FALSE(own.bytes().empty());
  std::size_t told = 0;
  for (const char* wrong : {"gian=4", "gain=", "gain=[1,2]"}) {
    g_object_set(own.pipeline().element("kernel"), "params", wrong, nullptr);
    const Data data = own.bytes();
    ASSERT_FALSE(data.empty()) << wrong;
    EXPECT_EQ(data[0], std::byte{3}) << wrong;
    EXPECT_EQ(own.pipeline().wait(1ms), "timeout");
    ASSERT_EQ(own.pipeline().warnings().size(), ++told) << wrong;
    EXPECT_THAT(own.pipeline().warnings().back(), HasSubstr("keeping the previous parameters"));
  }
  g_object_set(own.pipeline().element("kernel"), "params", "gain=5", nullptr);
  const Data data = own.bytes();
  ASSERT_FALSE(data.empty());
  EXPECT_EQ(data[0], std::byte{5});
}

TEST(OwnKernel, ParametersFollowAControlSource) {
  const File file(gray("// gpumap: params gain=3\n", shows_gain));
  Own own("location=" + file.path() + " gain::value=0");
  GObject* child = gst_child_proxy_get_child_by_name(GST_CHILD_PROXY(own.pipeline().element("kernel")), "gain");
  GstControlSource* source = gst_interpolation_control_source_new();
  g_object_set(source, "mode", GST_INTERPOLATION_MODE_LINEAR, nullptr);
  gst_object_add_control_binding(GST_OBJECT_CAST(child),
                                 gst_direct_control_binding_new_absolute(GST_OBJECT_CAST(child), "value", source));
  auto* timed = GST_TIMED_VALUE_CONTROL_SOURCE(source);
  EXPECT_TRUE(gst_timed_value_control_source_set(timed, 0, 0));
  EXPECT_TRUE(gst_timed_value_control_source_set(timed, GST_SECOND, 100));
  for (const int percent : {0, 25, 50, 100}) {
    const Data data = own.bytes(10 * GST_MSECOND * static_cast<GstClockTime>(percent));
    ASSERT_FALSE(data.empty());
    EXPECT_EQ(std::to_integer<int>(data[0]), percent);
  }
  gst_object_unref(source);
  g_object_unref(child);
}

TEST(OwnKernel, WritingBehindTheOutputIsTold) {
  const File file(
      "void main() { if (gpumap_thread() == 0ul) store_u8(frame.out_view.plane[0] + frame.out_view.bytes + OVER, 1u);"
      "}\n");
  for (const int over : {0, 60000}) {
    Own own("check-bounds=true defines=OVER=" + std::to_string(over) + " location=" + file.path());
    push(own.pipeline().appsrc(), new_buffer(random_data(Own::frame_bytes, 1)));
    EXPECT_THAT(own.pipeline().run(),
                testing::AllOf(HasSubstr(file.path() + " writes out of bounds"), HasSubstr("output of 2924 bytes"),
                               HasSubstr("the first one " + std::to_string(over) + " behind the end")));
  }
  const File within(
      "void main() { if (gpumap_thread() < frame.out_view.bytes) "
      "store_u8(frame.out_view.plane[0] + gpumap_thread(), 7u); }\n");
  Own own("check-bounds=true location=" + within.path());
  EXPECT_THAT(own.bytes(), testing::Each(std::byte{7}));
}

TEST(OwnKernel, ErrorsNameWhatIsWrong) {
  const File declares_wrongly("// gpumap: blok 3\nvoid main() {}\n");
  const File wrong_caps("// gpumap: output video/x-raw,width={width/depth}\nvoid main() {}\n");
  const File no_caps("// gpumap: output 7\nvoid main() {}\n");
  const File no_input("// gpumap: input 7\nvoid main() {}\n");
  const File fine("void main() {}\n");
  const std::pair<std::string, const char*> cases[] = {
      {"location=" + declares_wrongly.path(), "line 3: // gpumap: no declaration \"blok\""},
      {"location=" + wrong_caps.path(), "no variable 'depth' here: there are width, height, rate, channels"},
      {"location=" + no_caps.path(), "output caps \"7\" are none"},
      {"location=" + no_input.path(), "input caps \"7\" are none"},
      {"location=" + fine.path() + " block=3y", "block: \"3y\" is no dimension"},
      {"location=" + fine.path() + " function=a,,b", "function: \"a,,b\": a name is missing"},
      {"location=" + fine.path() + " shared-bytes=64", "dynamic shared memory is CUDA's"},
      {"location=" + fine.path() + " function=nothing", "no function 'nothing' in it"},
      {"location=" + fine.path() + " output-bytes=1/0", "division by zero"},
      {"location=" + fine.path() + " state-bytes=900000000000", "lower the state that the kernel asks for"},
      {"location=" + fine.path() + " state-bytes=18446744073709551615", "lower the state that the kernel asks for"},
      {"kernel=blend grid=3", "no built-in kernel \"blend\": choose one of identity"},
      {"kernel=convert grid=3", "grid=3 is for a kernel of yours in a file, and kernel=convert is built in"},
  };
  for (const auto& [options, message] : cases) {
    Own own(options);
    push(own.pipeline().appsrc(), new_buffer(random_data(Own::frame_bytes, 1)));
    EXPECT_THAT(own.pipeline().run(), HasSubstr(message)) << options;
    EXPECT_EQ(own.pipeline().culprit(), "kernel");
  }
}

// A kernel that keeps to the contract would write behind what is allocated.
TEST(OwnKernel, OutputsHaveRoomForTheirPicture) {
  const File pixels(gray("", "1u"));
  const std::string at = "location=" + pixels.path();
  const std::pair<std::string, const char*> cases[] = {
      {at + " output-bytes=100",
       "output of 100 bytes (\"100\") has no room for the picture that its caps say, which "
       "takes 2924"},
      {at + " output-bytes=2923", "has no room"},
      {at + " output-bytes=16 output-caps=video/x-raw,format=RGBA,width=1920,height=1080", "takes 8294400"},
      {at + " output-bytes=16 output-caps=video/x-bayer,format=bggr,width=40,height=4", "takes 160"},
      {at + " output-bytes=16 output-caps=application/x-tensor,width=4,height=4", "takes 192"},
      {at + " output-bytes=18446744073709551615 check-bounds=true", "no memory has room for it"},
      {at + " output-caps=\"video/x-raw,format=GRAY8,width={width/100}\"", "its width has to be from 1 to 32767"},
      {at + " output-caps=video/x-raw,format=GRAY8,width=100000,height=100000", "its width has to be from 1 to 32767"},
      {at + " output-caps=\"application/x-tensor,width=7,height={0}\"", "its height has to be from 1 to"},
  };
  for (const auto& [options, message] : cases) {
    Own own(options);
    push(own.pipeline().appsrc(), new_buffer(random_data(Own::frame_bytes, 1)));
    EXPECT_THAT(own.pipeline().run(), HasSubstr(message)) << options;
  }
  for (const char* enough : {"2924", "2*bytes", "width*height+129"}) {
    Own own(at + " output-bytes=" + enough);
    EXPECT_GE(own.bytes().size(), Own::frame_bytes) << enough;
  }
}

TEST(OwnKernel, WhatOnlyLooksGivesAsManyBytesAsItTook) {
  const File file("// gpumap: output unchanged\n// gpumap: bytes 2*bytes\nvoid main() {}\n");
  Own own("location=" + file.path());
  EXPECT_EQ(own.bytes(), random_data(Own::frame_bytes, 11));
}

/// What a frame shows, again and again until it is `wanted`.
bool comes_to_show(Own& own, unsigned wanted) {
  return eventually(
      [&] {
        const Data data = own.bytes();
        return !data.empty() && std::to_integer<unsigned>(data[0]) == wanted;
      },
      20s);
}

TEST(OwnKernel, ReloadsWhatCompilesAndKeepsWhatRuns) {
  const File file(gray("// gpumap: params gain=1\n", "uint(frame.params[0]) + 10"));
  Own own("reload=true params=gain=5 location=" + file.path());
  ASSERT_TRUE(comes_to_show(own, 15));
  file.write(gray("// gpumap: params other=1,gain=2\n", "uint(frame.params[0] * 100 + frame.params[1])"));
  EXPECT_TRUE(comes_to_show(own, 105)) << "parameters keep their names";

  const auto warning = [&own] {
    GstBus* bus = gst_element_get_bus(own.pipeline().get());
    std::string text;
    (void)eventually([&] {
      (void)own.bytes();
      GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_WARNING);
      if (message == nullptr) return false;
      GError* error = nullptr;
      gst_message_parse_warning(message, &error, nullptr);
      text = error->message;
      g_error_free(error);
      gst_message_unref(message);
      return true;
    });
    gst_object_unref(bus);
    return text;
  };
  file.write("void main() { broken(); }\n");
  EXPECT_THAT(warning(), testing::AllOf(HasSubstr("broken"), HasSubstr("keeping the previous kernel")));
  EXPECT_TRUE(comes_to_show(own, 105));
  file.write(gray("// gpumap: params speed=1\n", "1u"));
  EXPECT_THAT(warning(), HasSubstr("no parameter 'gain'"));
  file.write(gray(halved, "1u"));
  EXPECT_THAT(warning(), HasSubstr("start the pipeline again"));
  EXPECT_TRUE(comes_to_show(own, 105));
  file.write(gray("// gpumap: params gain=1\n", "uint(frame.params[0]) + 20"));
  EXPECT_TRUE(comes_to_show(own, 25));
  EXPECT_EQ(std::remove(file.path().c_str()), 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(comes_to_show(own, 25)) << "a file that is gone changes nothing";
}

}  // namespace
}  // namespace gpumap::gst::test
