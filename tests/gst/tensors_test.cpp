// SPDX-License-Identifier: MIT
// Tensors in GStreamer's own metas: what a kernel wrote arrives, whole, through queues, and what others wrote arrives
// in a kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gst/analytics/analytics_metas.hpp"
#include "kernel_file.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {

// What tests of GStreamer's own metas of tensors and results begin with.

class Tensors : public testing::Test {
 protected:
  void SetUp() override {
    const AnalyticsLibrary& library = AnalyticsLibrary::get();
    if (!library.tensors_problem.empty()) GTEST_SKIP() << library.tensors_problem;
  }
};

inline constexpr int width = 37, height = 23;
inline const std::string gray = "video/x-raw,format=GRAY8,width=37,height=23,framerate=30/1";

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<gsize> dims_of(const GstTensor& tensor) {
  return {tensor.dims(), tensor.dims() + tensor.num_dims};
}

template <typename Value>
std::vector<Value> values_of(const GstTensor& tensor) {
  const Data data = data_of(tensor.data);
  std::vector<Value> values(data.size() / sizeof(Value));
  std::memcpy(values.data(), data.data(), values.size() * sizeof(Value));
  return values;
}

/// Rows of GRAY8 without their padding to 4 bytes.
std::vector<std::uint8_t> pixels_of(const Data& frame) {
  std::vector<std::uint8_t> pixels;
  for (std::size_t i = 0; i < frame.size(); ++i) {
    if (i % 40 < width) pixels.push_back(std::to_integer<std::uint8_t>(frame[i]));
  }
  return pixels;
}

/// Doubles and counts the pixels, as two tensors.
const std::string doubling = R"(
// gpumap: output unchanged
// gpumap: output-tensor bright.count uint32 1
// gpumap: output-tensor doubled uint16 1x{height}x{width}
void main() {
  uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;
  if (x >= frame.in_view.width || y >= frame.in_view.height) return;
  uint value = load_u8(frame.in_view.plane[0] + uint64_t(y) * frame.in_view.stride[0] + x);
  gpumap_tensor doubled = frame.out_tensors[1];
  store_u16(doubled.address + 2ul * (uint64_t(y) * doubled.dims[2] + x), 2u * value);
  if (value >= 128u) atomic_add_u32(frame.out_tensors[0].address, 1u);
}
)";

/// What `buffer` has of them, for a frame.
void expect_doubled(GstBuffer* buffer, const Data& frame) {
  const std::vector<std::uint8_t> pixels = pixels_of(frame);
  const GstTensor* doubled = find_tensor(buffer, "doubled");
  const GstTensor* count = find_tensor(buffer, "bright.count");
  ASSERT_TRUE(doubled != nullptr && count != nullptr) << tensor_ids(buffer);
  EXPECT_THAT(dims_of(*doubled), ElementsAre(1, height, width));
  EXPECT_EQ(type_of(*doubled), NumberType::u16);
  EXPECT_EQ(doubled->dims_order, GST_TENSOR_DIM_ORDER_ROW_MAJOR);
  EXPECT_THAT(dims_of(*count), ElementsAre(1));
  std::vector<std::uint16_t> expected(pixels.begin(), pixels.end());
  for (std::uint16_t& value : expected) value = static_cast<std::uint16_t>(2 * value);
  EXPECT_EQ(values_of<std::uint16_t>(*doubled), expected);
  const auto bright = std::count_if(pixels.begin(), pixels.end(), [](std::uint8_t value) { return value >= 128; });
  EXPECT_THAT(values_of<std::uint32_t>(*count), ElementsAre(bright));
}

// The picture goes on as it came, in either memory; each frame's tensors are its own while others are made.
TEST_F(Tensors, GoThroughQueuesAndATee) {
  const KernelFile file(doubling);
  for (const char* memory : {"video/x-raw", "video/x-raw(memory:GPUMap)"}) {
    SCOPED_TRACE(memory);
    Pipeline pipeline(on_new_channel(
        "appsrc name=in format=time caps=" + gray +
        " ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel location=" + file.path() + " ! " + memory +
        " ! queue ! identity ! tee name=t t. ! queue ! appsink name=out sync=false t. ! queue ! "
        "appsink name=other sync=false"));
    pipeline.set_state(GST_STATE_PLAYING);
    std::vector<Data> frames;
    for (std::size_t i = 0; i < 6; ++i) {
      frames.push_back(random_data(std::size_t{40} * height, i));
      push(pipeline.appsrc(), new_buffer(frames.back(), i * GST_SECOND / 30));
    }
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < frames.size(); ++i) {
      samples.push_back(pull(pipeline.appsink()));
      samples.push_back(pull(pipeline.appsink("other")));
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
      ASSERT_TRUE(samples[i]) << pipeline.wait(1ms);
      GstBuffer* buffer = gst_sample_get_buffer(samples[i].get());
      expect_doubled(buffer, frames[i / 2]);
      EXPECT_EQ(pixels_of(data_of(buffer)), pixels_of(frames[i / 2]));
    }
  }
}

// From GStreamer 1.28 on, whose elements ask for it; what comes in has none of it.
TEST_F(Tensors, CapsAnnounceThem) {
  const KernelFile file(doubling + "// gpumap: tensor-group pair\n");
  Pipeline pipeline(on_new_channel("videotestsrc num-buffers=1 ! " + gray +
                                   " ! gpumapsink $CHANNEL gpumapsrc name=src $CHANNEL ! gpumapkernel location=" +
                                   file.path() + " ! videoconvert ! appsink name=out sync=false"));
  pipeline.set_state(GST_STATE_PLAYING);
  const Sample sample = pull(pipeline.appsink());
  ASSERT_TRUE(sample) << pipeline.wait(1ms);
  const auto tensors_in = [](GstCaps* caps) {
    const GValue* value = gst_structure_get_value(gst_caps_get_structure(caps, 0), "tensors");
    gchar* text = value != nullptr ? gst_value_serialize(value) : g_strdup("none");
    std::string made = text;
    g_free(text);
    std::erase_if(made, [](char c) { return c == '\\' || c == ' '; });
    return made;
  };
  const Pad pad(gst_element_get_static_pad(pipeline.element("src"), "src"));
  const Caps before(gst_pad_get_current_caps(pad.get()));
  EXPECT_EQ(tensors_in(before.get()), "none");
  const std::string told = tensors_in(gst_sample_get_caps(sample.get()));
  guint major = 0, minor = 0, micro = 0, nano = 0;
  gst_version(&major, &minor, &micro, &nano);
  if (minor < 28) {
    EXPECT_EQ(told, "none");
    return;
  }
  EXPECT_THAT(told, HasSubstr("tensorgroups,pair=(/uniquelist){"));
  EXPECT_THAT(told, HasSubstr("tensor-id=(string)doubled,dims=(int)<1,23,37>,dims-order=(string)row-major,"
                              "type=(string)uint16"));
  EXPECT_THAT(told, HasSubstr("tensor-id=(string)bright.count,dims=(int)<1>,dims-order=(string)row-major,"));
}

/// Half of the tensor of the kernel before, less one, as the picture; the tensor's size as a result.
const std::string halving = R"(
// gpumap: output unchanged
// gpumap: input-tensor doubled uint16 1x?x{width}
// gpumap: output-tensor doubled uint16 {height}x{width}
// gpumap: results rank=u64,rows=u64,count=u64
void main() {
  gpumap_tensor doubled = frame.in_tensors[0];
  for (uint64_t i = gpumap_thread(); i < doubled.count; i += gpumap_thread_count()) {
    store_u16(frame.out_tensors[0].address + 2ul * i, load_u16(doubled.address + 2ul * i) / 2u + 7u);
  }
  if (gpumap_thread() != 0ul) return;
  store_u64(frame.result, uint64_t(doubled.rank));
  store_u64(frame.result + 8ul, uint64_t(doubled.dims[1]));
  store_u64(frame.result + 16ul, doubled.count);
}
)";

void expect_halved(GstBuffer* buffer, const Data& frame) {
  const GstTensor* halved = find_tensor(buffer, "doubled");
  ASSERT_NE(halved, nullptr) << tensor_ids(buffer);
  EXPECT_THAT(dims_of(*halved), ElementsAre(height, width)) << "the one that was taken is replaced";
  const std::vector<std::uint8_t> pixels = pixels_of(frame);
  std::vector<std::uint16_t> expected(pixels.begin(), pixels.end());
  for (std::uint16_t& value : expected) value = static_cast<std::uint16_t>(value + 7);
  EXPECT_EQ(values_of<std::uint16_t>(*halved), expected);
  GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, "GpumapResult");
  ASSERT_NE(meta, nullptr);
  guint64 rank = 0, rows = 0, count = 0;
  gst_structure_get(gst_custom_meta_get_structure(meta), "rank", G_TYPE_UINT64, &rank, "rows", G_TYPE_UINT64, &rows,
                    "count", G_TYPE_UINT64, &count, nullptr);
  EXPECT_THAT(std::make_tuple(rank, rows, count), std::make_tuple(3U, guint64{height}, guint64{width} * height));
}

// From kernel to kernel it stays where it is.
TEST_F(Tensors, AreTakenFromAnotherKernel) {
  const KernelFile first(doubling), second(halving);
  Frames frames("location=" + first.path() + " ! gpumapkernel location=" + second.path(), gray);
  for (std::size_t i = 0; i < 3; ++i) {
    const Data frame = random_data(std::size_t{40} * height, i);
    frames.pipeline().set_state(GST_STATE_PLAYING);
    push(frames.pipeline().appsrc(), new_buffer(frame, i * GST_SECOND / 30));
    const Sample sample = pull(frames.pipeline().appsink());
    ASSERT_TRUE(sample) << frames.pipeline().wait(1ms);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    expect_halved(buffer, frame);
    EXPECT_NE(find_tensor(buffer, "bright.count"), nullptr) << "what was not taken goes on";
  }
}

/// `frame` with "doubled" as an element on the CPU would give it.
Buffer with_tensor(const Data& frame, gsize rows = height, NumberType type = NumberType::u16) {
  const std::vector<std::uint8_t> pixels = pixels_of(frame);
  Data doubled(rows * width * (type == NumberType::u16 ? 2 : 1));
  for (std::size_t i = 0; 2 * i + 1 < doubled.size(); ++i) {
    const auto value = static_cast<std::uint16_t>(2 * pixels.at(i % pixels.size()));
    std::memcpy(&doubled[2 * i], &value, 2);
  }
  Buffer buffer = new_buffer(frame, 0);
  const std::uint64_t dims[] = {1, rows, width};
  const NewTensor tensor{.id = "doubled", .type = type, .dims = dims, .data = new_buffer(doubled).release()};
  add_tensors(buffer.get(), {&tensor, 1});
  return buffer;
}

// Ordinary memory, before gpumapsink, whose frames are other buffers.
TEST_F(Tensors, AreTakenFromTheCpu) {
  const KernelFile file(halving);
  Frames frames("location=" + file.path(), gray);
  frames.pipeline().set_state(GST_STATE_PLAYING);
  const Data frame = random_data(std::size_t{40} * height, 5);
  push(frames.pipeline().appsrc(), with_tensor(frame));
  const Sample sample = pull(frames.pipeline().appsink());
  ASSERT_TRUE(sample) << frames.pipeline().wait(1ms);
  expect_halved(gst_sample_get_buffer(sample.get()), frame);
}

TEST_F(Tensors, ThatAreMissingOrOthersAreErrors) {
  const KernelFile file(halving);
  const Data frame = random_data(std::size_t{40} * height, 5);
  const auto error_with = [&](Buffer buffer) {
    Frames frames("location=" + file.path(), gray);
    frames.pipeline().set_state(GST_STATE_PLAYING);
    push(frames.pipeline().appsrc(), std::move(buffer));
    return frames.pipeline().wait();
  };
  EXPECT_THAT(error_with(new_buffer(frame, 0)),
              HasSubstr("it takes tensor \"doubled\", and a frame came with these: none"));
  EXPECT_THAT(error_with(with_tensor(frame, height, NumberType::u8)),
              HasSubstr("tensor \"doubled\" is u8 1x23x37, and the line input-tensor says u16 1x?x37"));
  Buffer buffer = new_buffer(frame, 0);
  const std::uint64_t dims[] = {1, height, width - 1};
  const NewTensor tensor{.id = "doubled",
                         .type = NumberType::u16,
                         .dims = dims,
                         .data = new_buffer(random_data(std::size_t{2} * height * (width - 1), 1)).release()};
  add_tensors(buffer.get(), {&tensor, 1});
  EXPECT_THAT(error_with(std::move(buffer)), HasSubstr("is u16 1x23x36, and the line input-tensor says u16 1x?x37"));
}

// application/x-tensor describes itself, in the same memory.
TEST_F(Tensors, ConvertMakesOne) {
  const std::tuple<const char*, std::vector<gsize>, NumberType, const char*> cases[] = {
      {"application/x-tensor", {1, 3, height, width}, NumberType::f32, "gpumap-picture"},
      {"application/x-tensor,type=float16,layout=hwc", {1, height, width, 3}, NumberType::f16, "gpumap-picture"},
      {"application/x-tensor,type=uint8,width=10,height=9,tensor-id=pixels", {1, 3, 9, 10}, NumberType::u8, "pixels"},
  };
  for (const auto& [caps, dims, type, id] : cases) {
    SCOPED_TRACE(caps);
    Frames frames("kernel=convert ! " + std::string(caps), gray);
    frames.pipeline().set_state(GST_STATE_PLAYING);
    push(frames.pipeline().appsrc(), new_buffer(random_data(std::size_t{40} * height, 5), 0));
    const Sample sample = pull(frames.pipeline().appsink());
    ASSERT_TRUE(sample) << frames.pipeline().wait(1ms);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    const GstTensor* tensor = find_tensor(buffer, id);
    ASSERT_NE(tensor, nullptr) << tensor_ids(buffer);
    EXPECT_EQ(dims_of(*tensor), dims);
    EXPECT_EQ(type_of(*tensor), type);
    EXPECT_EQ(data_of(tensor->data), data_of(buffer));
    EXPECT_EQ(gst_buffer_peek_memory(tensor->data, 0), gst_buffer_peek_memory(buffer, 0));
  }
}

// So does one that a kernel of the user's makes, of any dimensions.
TEST_F(Tensors, AKernelMakesOneOfDimensions) {
  const KernelFile file(
      "// gpumap: output application/x-tensor,type=int16,dims=(int)<2,{height},{width}>\n"
      "void main() {\n"
      "  for (uint64_t i = gpumap_thread(); i < frame.out_view.bytes / 2ul; i += gpumap_thread_count())\n"
      "    store_u16(frame.out_view.plane[0] + 2ul * i, uint(i) * 7u + load_u8(frame.in_view.plane[0] + i % 40ul));\n"
      "}\n");
  for (const auto& [filter, id] :
       {std::pair{"identity", "gpumap-tensor"}, {"application/x-tensor(memory:GPUMap),tensor-id=scores", "scores"}}) {
    SCOPED_TRACE(filter);
    Frames frames("location=" + file.path() + " ! " + filter, gray);
    frames.pipeline().set_state(GST_STATE_PLAYING);
    const Data frame = random_data(std::size_t{40} * height, 5);
    push(frames.pipeline().appsrc(), new_buffer(frame, 0));
    const Sample sample = pull(frames.pipeline().appsink());
    ASSERT_TRUE(sample) << frames.pipeline().wait(1ms);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    const GstTensor* tensor = find_tensor(buffer, id);
    ASSERT_NE(tensor, nullptr) << tensor_ids(buffer);
    EXPECT_THAT(dims_of(*tensor), ElementsAre(2, height, width));
    EXPECT_EQ(type_of(*tensor), NumberType::i16);
    EXPECT_EQ(gst_buffer_peek_memory(tensor->data, 0), gst_buffer_peek_memory(buffer, 0));
    const auto values = values_of<std::uint16_t>(*tensor);
    ASSERT_EQ(values.size(), std::size_t{2} * height * width);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<std::uint16_t>(7 * i + std::to_integer<unsigned>(frame[i % 40]))) << i;
    }
  }
}

// NNStreamer's caps, by lines that kernels had before: sizes innermost first. Without its elements, by the text alone.
TEST(OtherTensors, GoInAndOutByCaps) {
  const std::string copy =
      "void main() {\n"
      "  for (uint64_t i = gpumap_thread(); i < frame.out_view.bytes; i += gpumap_thread_count())\n"
      "    store_u8(frame.out_view.plane[0] + i, load_u8(frame.in_view.plane[0] + i % frame.in_view.bytes) ^ 1u);\n}\n";
  const KernelFile first(
      "// gpumap: input video/x-raw,format=GRAY8\n"
      "// gpumap: output other/tensors,format=static,num_tensors=1,dimensions=(string)3:{width}:{height}:1,"
      "types=uint8\n// gpumap: bytes 3*width*height\n" +
      copy);
  const KernelFile second("// gpumap: input other/tensors,format=(string)static,types=(string)uint8\n" + copy);
  Frames frames("location=" + first.path() + " ! gpumapkernel location=" + second.path(), gray);
  frames.pipeline().set_state(GST_STATE_PLAYING);
  const Data frame = random_data(std::size_t{40} * height, 7);
  push(frames.pipeline().appsrc(), new_buffer(frame, 0));
  const Sample sample = pull(frames.pipeline().appsink());
  ASSERT_TRUE(sample) << frames.pipeline().wait(1ms);
  const Caps expected = new_caps(
      "other/tensors,format=(string)static,num_tensors=1,dimensions=(string)3:37:23:1,types=(string)uint8,"
      "framerate=30/1");
  EXPECT_TRUE(gst_caps_is_equal(gst_sample_get_caps(sample.get()), expected.get()))
      << std::string(gst_caps_to_string(gst_sample_get_caps(sample.get())));
  const Data got = data_of(gst_sample_get_buffer(sample.get()));
  ASSERT_EQ(got.size(), std::size_t{3} * width * height);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], frame[i % frame.size()]) << i;
}

// Where GStreamer has no such library, it is a clear error of the element, before the first frame.
TEST(WithoutLibrary, ItIsAnError) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  if (library.tensors_problem.empty()) GTEST_SKIP() << "libgstanalytics is there";
  const KernelFile file(doubling);
  EXPECT_THAT(start_error("location=" + file.path()),
              HasSubstr("it declares output-tensor: libgstanalytics-1.0.so.0 "));
  EXPECT_THAT(start_error("location=" + file.path()), HasSubstr("GStreamer 1.26 or newer"));
  Frames frames("kernel=convert ! application/x-tensor", gray);
  EXPECT_FALSE(frames.run(random_data(std::size_t{40} * height, 5)).empty()) << "of what needs none nothing changes";
}

// Results in GStreamer's own metas of analytics, and tensors at its own elements that read them.

using ::testing::HasSubstr;

/// Of each region: label, place, size, confidence.
using Region = std::tuple<std::string, int, int, int, int, float>;
std::vector<Region> regions_of(GstBuffer* buffer) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  GstAnalyticsRelationMeta* meta = library.gst_buffer_get_analytics_relation_meta(buffer);
  std::vector<Region> regions;
  gpointer state = nullptr;
  GstAnalyticsMtd one{};
  while (meta != nullptr && library.gst_analytics_relation_meta_iterate(meta, &state, 0, &one) != 0) {
    gint x = 0, y = 0, width = 0, height = 0;
    gfloat confidence = 0;
    library.gst_analytics_od_mtd_get_location(&one, &x, &y, &width, &height, &confidence);
    const gchar* name = g_quark_to_string(library.gst_analytics_od_mtd_get_obj_type(&one));
    regions.emplace_back(name != nullptr ? name : "", x, y, width, height, confidence);
  }
  return regions;
}

/// A detector of SSD's form whose boxes are the picture's own bytes: 9 candidates, of which the first byte of the
/// picture says how many count.
std::string detector(bool newer) {
  const std::string prefix = newer ? "ssd-mobilenet-v1-variant-1-out-" : "Gst.Model.ObjectDetector.";
  const std::string count = newer ? "generic-variant-1-out-count" : prefix + "NumDetections";
  return "// gpumap: output unchanged\n// gpumap: tensor-group ssd-mobilenet-v1-variant-1-out\n// gpumap: "
         "output-tensor " +
         count + " float32 1\n// gpumap: output-tensor " + prefix + (newer ? "scores" : "Scores") +
         " float32 1x9?\n// gpumap: output-tensor " + prefix + (newer ? "boxes" : "Boxes") +
         " float32 1x9?x4\n// gpumap: output-tensor " + prefix + (newer ? "classes" : "Classes") + " float32 1x9?\n" +
         R"(
float share(uint at) { return float(load_u8(frame.in_view.plane[0] + at)) / 256.0; }
void main() {
  uint i = uint(gpumap_thread());
  if (i == 0u) store_f32(frame.out_tensors[0].address, float(load_u8(frame.in_view.plane[0]) % 10u));
  if (i >= 9u) return;
  store_f32(frame.out_tensors[1].address + 4u * i, share(1u + i));
  for (uint j = 0u; j < 4u; ++j) store_f32(frame.out_tensors[2].address + 16u * i + 4u * j, share(10u + 4u * i + j));
  store_f32(frame.out_tensors[3].address + 4u * i, float(i % 3u));
}
)";
}

/// As the decoder reckons.
std::vector<Region> expected_regions(const Data& frame) {
  const auto share = [&](std::size_t at) { return static_cast<float>(std::to_integer<unsigned>(frame[at])) / 256.0F; };
  std::vector<Region> regions;
  for (std::size_t i = 0; i < std::to_integer<std::size_t>(frame[0]) % 10; ++i) {
    const float score = share(1 + i), y = share(10 + 4 * i), x = share(11 + 4 * i), bottom = share(12 + 4 * i),
                right = share(13 + 4 * i);
    if (score < 0.3F || right * bottom > 0.9F) continue;
    const int left = static_cast<int>(x * width), top = static_cast<int>(y * height);
    regions.emplace_back("", left, top, static_cast<int>(right * width - static_cast<float>(left)),
                         static_cast<int>(bottom * height - static_cast<float>(top)), score);
  }
  return regions;
}

// GStreamer's own decoder of tensors finds them, on the CPU, behind a queue.
TEST_F(Tensors, AreReadByGStreamersDecoder) {
  const Element newer(gst_element_factory_make("ssdtensordec", nullptr));
  const Element older(gst_element_factory_make("ssdobjectdetector", nullptr));
  if (!newer && !older) GTEST_SKIP() << "this GStreamer has no decoder of tensors";
  const KernelFile file(detector(newer != nullptr));
  Pipeline pipeline(on_new_channel("appsrc name=in format=time caps=" + gray +
                                   " ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel location=" + file.path() +
                                   " ! queue ! identity ! " + (newer ? "ssdtensordec" : "ssdobjectdetector") +
                                   " ! appsink name=out sync=false"));
  pipeline.set_state(GST_STATE_PLAYING);
  std::size_t found = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    const Data frame = random_data(std::size_t{40} * height, i);
    push(pipeline.appsrc(), new_buffer(frame, i * GST_SECOND / 30));
    const Sample sample = pull(pipeline.appsink());
    ASSERT_TRUE(sample) << pipeline.wait(1ms);
    const std::vector<Region> regions = regions_of(gst_sample_get_buffer(sample.get()));
    EXPECT_EQ(regions, expected_regions(frame));
    found += regions.size();
  }
  EXPECT_GT(found, 20U);
}

TEST_F(Tensors, DetectionsAreRegions) {
  const KernelFile file(R"(
// gpumap: output unchanged
// gpumap: analytics detections cat,dog
void main() {
  uint i = uint(gpumap_thread());
  uint64_t at = frame.in_view.plane[0];
  if (i == 0u) store_u64(frame.result, uint64_t(load_u8(at)));
  if (i >= 10u) return;
  uint64_t to = frame.result + 8ul + 24ul * i;
  for (uint j = 0u; j < 4u; ++j) store_i32(to + 4u * j, int(load_u8(at + 1u + j)) - 100 + int(i));
  store_f32(to + 16ul, float(i) / 8.0);
  store_u32(to + 20ul, i);
}
)");
  Frames frames("location=" + file.path(), gray);
  for (const unsigned count : {3U, 0U, 10U, 200U}) {
    SCOPED_TRACE(count);
    Data frame = random_data(std::size_t{40} * height, count);
    frame[0] = static_cast<std::byte>(count);
    frames.pipeline().set_state(GST_STATE_PLAYING);
    push(frames.pipeline().appsrc(), new_buffer(frame, 0));
    const Sample sample = pull(frames.pipeline().appsink());
    ASSERT_TRUE(sample) << frames.pipeline().wait(1ms);
    std::vector<Region> expected;
    for (int i = 0; i < static_cast<int>(std::min(count, 10U)); ++i) {  // 31 words have room for ten
      const auto number = [&](std::size_t j) { return std::to_integer<int>(frame[1 + j]) - 100 + i; };
      expected.emplace_back(i == 0   ? "cat"
                            : i == 1 ? "dog"
                                     : "",
                            number(0), number(1), number(2), number(3), static_cast<float>(i) / 8);
    }
    EXPECT_EQ(regions_of(gst_sample_get_buffer(sample.get())), expected);
  }
}

TEST_F(Tensors, NamedResultsAreAClassification) {
  const KernelFile file(R"(
// gpumap: output unchanged
// gpumap: results cat=f32,dog=f64,fish=u64
// gpumap: analytics classification
void main() {
  if (gpumap_thread() != 0ul) return;
  uint64_t at = frame.in_view.plane[0];
  store_f32(frame.result, float(load_u8(at)) / 256.0);
  store_u64(frame.result + 8ul, 0x3fd8000000000000ul);
  store_u64(frame.result + 16ul, uint64_t(load_u8(at + 1ul)));
}
)");
  Frames frames("location=" + file.path(), gray);
  frames.pipeline().set_state(GST_STATE_PLAYING);
  const Data frame = random_data(std::size_t{40} * height, 3);
  push(frames.pipeline().appsrc(), new_buffer(frame, 0));
  const Sample sample = pull(frames.pipeline().appsink());
  ASSERT_TRUE(sample) << frames.pipeline().wait(1ms);
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  GstAnalyticsRelationMeta* meta = library.gst_buffer_get_analytics_relation_meta(gst_sample_get_buffer(sample.get()));
  ASSERT_NE(meta, nullptr);
  gpointer state = nullptr;
  GstAnalyticsMtd one{};
  ASSERT_TRUE(library.gst_analytics_relation_meta_iterate(meta, &state, 0, &one));
  ASSERT_EQ(library.gst_analytics_cls_mtd_get_length(&one), 3U);
  const auto byte = [&](std::size_t at) { return static_cast<float>(std::to_integer<unsigned>(frame[at])); };
  const float levels[] = {byte(0) / 256, 0.375F, byte(1)};
  const char* const names[] = {"cat", "dog", "fish"};
  for (gsize i = 0; i < 3; ++i) {
    EXPECT_EQ(library.gst_analytics_cls_mtd_get_level(&one, i), levels[i]);
    EXPECT_STREQ(g_quark_to_string(library.gst_analytics_cls_mtd_get_quark(&one, i)), names[i]);
  }
}

/// The first block of `language`.
std::string block_of(const std::string& text, const std::string& language) {
  const std::string fence = "\n```";
  const std::size_t begin = text.find(fence + language + "\n") + fence.size() + language.size() + 1;
  return text.substr(begin, text.find(fence, begin) - begin);
}

// As lib/kernel/TENSORS.md has it: the kernel, and the pipeline into GStreamer's own overlay.
TEST_F(Tensors, TheDocumentedPipelineRuns) {
  const Element overlay(gst_element_factory_make("objectdetectionoverlay", nullptr));
  if (!overlay) GTEST_SKIP() << "this GStreamer has no objectdetectionoverlay";
  std::ifstream file(GPUMAP_KERNEL_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "rows.comp") << block_of(page, "glsl");
  std::string pipeline = block_of(page, "sh");
  ASSERT_THAT(pipeline, testing::StartsWith("gst-launch-1.0 ")) << pipeline;
  pipeline.erase(0, sizeof "gst-launch-1.0");
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"\\\n", ""},
                                 {"location=rows", "location=" + (folder.path() / "rows").string()}}) {
    for (std::size_t at = 0; (at = pipeline.find(from, at)) != pipeline.npos; at += to.size()) {
      pipeline.replace(at, from.size(), to);
    }
  }
  EXPECT_EQ(Pipeline(pipeline).run(), "eos") << pipeline;
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "rows-9.png"));
}

TEST_F(Tensors, AnalyticsAndLateResultsAreAnError) {
  const KernelFile file("// gpumap: analytics detections\nvoid main() { store_u64(frame.result, 0ul); }\n");
  EXPECT_THAT(start_error("location=" + file.path() + " late-results=true"),
              HasSubstr("it declares analytics, which go with their frame, and late-results is true: leave one of them "
                        "out"));
}

}  // namespace
}  // namespace gpumap::gst::test
