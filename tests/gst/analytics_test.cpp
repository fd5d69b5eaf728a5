// SPDX-License-Identifier: MIT
// Results in GStreamer's own metas of analytics, and tensors at its own elements that read them.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tensor_frames.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

/// A function of libgstanalytics that the plugin does not need.
template <typename Function>
Function* symbol(const char* name) {
  void* library = dlopen("libgstanalytics-1.0.so.0", RTLD_NOW);
  return reinterpret_cast<Function*>(library != nullptr ? dlsym(library, name) : nullptr);
}

/// Of each region: label, place, size, confidence.
using Region = std::tuple<std::string, int, int, int, int, float>;
std::vector<Region> regions_of(GstBuffer* buffer) {
  GstAnalyticsRelationMeta* meta = AnalyticsLibrary::get().gst_buffer_get_analytics_relation_meta(buffer);
  std::vector<Region> regions;
  gpointer state = nullptr;
  GstAnalyticsMtd one{};
  auto* iterate = symbol<gboolean(GstAnalyticsRelationMeta*, gpointer*, guintptr, GstAnalyticsMtd*)>(
      "gst_analytics_relation_meta_iterate");
  auto* place = symbol<gboolean(const GstAnalyticsMtd*, gint*, gint*, gint*, gint*, gfloat*)>(
      "gst_analytics_od_mtd_get_location");
  auto* label = symbol<GQuark(const GstAnalyticsMtd*)>("gst_analytics_od_mtd_get_obj_type");
  while (meta != nullptr && iterate(meta, &state, 0, &one) != 0) {
    gint x = 0, y = 0, width = 0, height = 0;
    gfloat confidence = 0;
    place(&one, &x, &y, &width, &height, &confidence);
    const gchar* name = g_quark_to_string(label(&one));
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
  GstAnalyticsRelationMeta* meta =
      AnalyticsLibrary::get().gst_buffer_get_analytics_relation_meta(gst_sample_get_buffer(sample.get()));
  ASSERT_NE(meta, nullptr);
  gpointer state = nullptr;
  GstAnalyticsMtd one{};
  ASSERT_TRUE((symbol<gboolean(GstAnalyticsRelationMeta*, gpointer*, guintptr, GstAnalyticsMtd*)>(
      "gst_analytics_relation_meta_iterate")(meta, &state, 0, &one)));
  ASSERT_EQ(symbol<gsize(const GstAnalyticsMtd*)>("gst_analytics_cls_mtd_get_length")(&one), 3U);
  const auto byte = [&](std::size_t at) { return static_cast<float>(std::to_integer<unsigned>(frame[at])); };
  const float levels[] = {byte(0) / 256, 0.375F, byte(1)};
  const char* const names[] = {"cat", "dog", "fish"};
  for (gsize i = 0; i < 3; ++i) {
    EXPECT_EQ((symbol<gfloat(const GstAnalyticsMtd*, gsize)>("gst_analytics_cls_mtd_get_level")(&one, i)), levels[i]);
    const GQuark name = symbol<GQuark(const GstAnalyticsMtd*, gsize)>("gst_analytics_cls_mtd_get_quark")(&one, i);
    EXPECT_STREQ(g_quark_to_string(name), names[i]);
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
