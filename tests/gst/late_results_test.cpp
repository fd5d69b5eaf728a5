// SPDX-License-Identifier: MIT
// Results that come without their frame waiting for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "gst/memory/gpumap_memory.hpp"
#include "result_stream.hpp"

namespace gpumap::gst::test {
namespace {

/// The number of bytes 7 in the frame, and a long while in some threads where the first byte is 9.
constexpr const char* count_sevens =
    "// gpumap: results sevens=u64,spent=u64\n"
    "void main() {\n"
    "  for (uint64_t i = gpumap_thread(); i < frame.in_view.bytes; i += gpumap_thread_count()) {\n"
    "    if (load_u8(frame.in_view.plane[0] + i) == 7u) atomic_add_u32(frame.result, 1u);\n"
    "  }\n"
    "  if (load_u8(frame.in_view.plane[0]) != 9u || gpumap_thread() >= frame.in_view.bytes / 512ul) return;\n"
    "  uint kept = uint(gpumap_thread());\n"
    "  for (uint i = 0u; i < 60000u; ++i) kept = kept * 1664525u + load_u8(frame.in_view.plane[0] + uint64_t(kept & "
    "63u));\n"
    "  if (kept == 12345u) store_u32(frame.result + 8ul, kept);\n"
    "}\n";

std::uint64_t sevens_in(const Data& data) {
  return static_cast<std::uint64_t>(std::count(data.begin(), data.end(), std::byte{7}));
}

std::string stream_of(const std::string& kernel, const std::string& memory) {
  return on_new_channel(
      "appsrc name=in format=time caps=application/octet-stream ! gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! "
      "gpumapkernel name=kernel late-results=true " +
      kernel + " ! capsfilter caps=application/octet-stream" + memory + " ! appsink name=out sync=false");
}

/// Calls `look` with each buffer and event that reaches the sink, in the streaming thread.
void watch(Pipeline& pipeline, std::function<void(GstPadProbeInfo*)> look) {
  const Pad pad(gst_element_get_static_pad(pipeline.element("out"), "sink"));
  gst_pad_add_probe(
      pad.get(), static_cast<GstPadProbeType>(GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM),
      [](GstPad*, GstPadProbeInfo* info, gpointer call) {
        (*static_cast<std::function<void(GstPadProbeInfo*)>*>(call))(info);
        return GST_PAD_PROBE_OK;
      },
      new std::function<void(GstPadProbeInfo*)>(std::move(look)),
      [](gpointer call) { delete static_cast<std::function<void(GstPadProbeInfo*)>*>(call); });
}

TEST(LateResults, ComeInOrderAndNoneIsLost) {
  const ShaderFile file("// gpumap: output unchanged\n" + std::string(count_sevens));
  for (const char* memory : {"", "(memory:GPUMap)"}) {
    SCOPED_TRACE(memory);
    Pipeline pipeline(stream_of("location=" + file.path(), memory));
    const Messages messages(pipeline);
    std::atomic<std::size_t> told_at_eos{0};
    watch(pipeline, [&](GstPadProbeInfo* info) {
      if ((GST_PAD_PROBE_INFO_TYPE(info) & GST_PAD_PROBE_TYPE_BUFFER) != 0) return;
      if (GST_EVENT_TYPE(gst_pad_probe_info_get_event(info)) == GST_EVENT_EOS) told_at_eos = messages.count();
    });
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    Numbers sevens, times, offsets;
    constexpr std::uint64_t frames = 150;
    for (std::uint64_t i = 0; i < frames; ++i) {
      Data data = random_data(1 + i * 997 % 20011, i);
      if (i % 10 == 3) data[0] = std::byte{9};
      Buffer buffer = new_buffer(data, i * 3 * GST_MSECOND);
      GST_BUFFER_OFFSET(buffer.get()) = 1000 + i * i;
      ASSERT_TRUE(push(pipeline.appsrc(), std::move(buffer)));
      sevens.push_back(sevens_in(data));
      times.push_back(i * 3 * GST_MSECOND);
      offsets.push_back(1000 + i * i);
    }
    gst_app_src_end_of_stream(pipeline.appsrc());
    // Each is let go of at once: it is a slot of the ring. With metas all have come that did so while there was a frame
    // to come with.
    Numbers in_metas, pts_in_metas;
    std::size_t pulled = 0;
    for (; const Sample sample = pull(pipeline.appsink()); ++pulled) {
      GstBuffer* buffer = gst_sample_get_buffer(sample.get());
      EXPECT_EQ(gst_buffer_get_custom_meta(buffer, "GpumapResult"), nullptr);
      for (const std::uint64_t pts : late_in(buffer, "pts")) {
        EXPECT_LE(pts, GST_BUFFER_PTS(buffer)) << "never before its frame";
        pts_in_metas.push_back(pts);
      }
      for (const std::uint64_t number : late_in(buffer, "sevens")) in_metas.push_back(number);
    }
    ASSERT_EQ(pulled, frames) << pipeline.wait(1s);
    EXPECT_EQ(told_at_eos, frames) << "all before EOS";
    EXPECT_EQ(messages.numbers("sevens"), sevens);
    EXPECT_EQ(messages.numbers("pts"), times);
    EXPECT_EQ(messages.numbers("offset"), offsets);
    ASSERT_LE(in_metas.size(), frames);
    EXPECT_GE(in_metas.size(), *memory == '\0' ? frames : frames / 4);
    times.resize(in_metas.size());
    sevens.resize(in_metas.size());
    EXPECT_EQ(pts_in_metas, times);
    EXPECT_EQ(in_metas, sevens);
  }
}

// The version of before has results under way when another takes over, whose block is of another size.
TEST(LateResults, OfBeforeAReloadAreToldToo) {
  const auto version = [](const std::string& number) {
    return "// gpumap: output unchanged\n// gpumap: result-words " + std::to_string(32 * std::stoi(number)) +
           "\n// gpumap: results version=u64,sevens=u64\n" +
           "void main() { if (gpumap_thread() == 0ul) store_u64(frame.result, " + number +
           "ul);\n"
           "  for (uint64_t i = gpumap_thread(); i < frame.in_view.bytes; i += gpumap_thread_count())\n"
           "    if (load_u8(frame.in_view.plane[0] + i) == 7u) atomic_add_u32(frame.result + 8ul, 1u);\n}\n";
  };
  const ShaderFile file(version("1"));
  Pipeline pipeline(stream_of("reload=true location=" + file.path(), "(memory:GPUMap)"));
  (void)pipeline.set_state(GST_STATE_PLAYING);
  const Messages messages(pipeline);
  Numbers times, sevens;
  const auto versions = [&] { return messages.numbers("version"); };
  const auto pass = [&] {
    const Data data = random_data(4001, times.size());
    sevens.push_back(sevens_in(data));
    times.push_back(times.size());
    EXPECT_TRUE(push(pipeline.appsrc(), new_buffer(data, times.back())));
    EXPECT_TRUE(pull(pipeline.appsink())) << pipeline.wait(1ms);
  };
  pass();
  file.write(version("2"));
  EXPECT_TRUE(eventually([&] {
    pass();
    const Numbers told = versions();
    return !told.empty() && told.back() == 2;
  }));
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.wait(), "eos");
  EXPECT_EQ(messages.numbers("pts"), times);
  EXPECT_EQ(messages.numbers("sevens"), sevens);
  EXPECT_EQ(versions().front(), 1U);
}

// Two kernels: each one's results come, and the second leaves those of the first where they are.
TEST(LateResults, OfSeveralKernelsStandBesideEachOther) {
  const ShaderFile file("// gpumap: output unchanged\n" + std::string(count_sevens));
  Pipeline pipeline(stream_of("kernel=checksum ! gpumapkernel late-results=true location=" + file.path(), ""));
  const Messages messages(pipeline);
  (void)pipeline.set_state(GST_STATE_PLAYING);
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(501, i), i)));
  gst_app_src_end_of_stream(pipeline.appsrc());
  std::size_t in_metas = 0;
  for (const Sample& sample : pull_all(pipeline.appsink())) {
    in_metas += late_in(gst_sample_get_buffer(sample.get()), "pts").size();
  }
  EXPECT_EQ(messages.count(), 40U);
  EXPECT_GT(in_metas, 20U) << "of both";
}

}  // namespace
}  // namespace gpumap::gst::test
