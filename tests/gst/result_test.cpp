// SPDX-License-Identifier: MIT
// What kernels find out about a frame, in messages and metas: of this frame alone, and no longer than it holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <optional>

#include "gst/kernel/runner.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "pipeline.hpp"
#include "result_stream.hpp"

namespace gpumap::gst::test {
namespace {

using Words = std::vector<std::uint64_t>;

/// A compute shader in a file that goes with it.
class Shader {
 public:
  explicit Shader(const std::string& main)
      : path_(testing::TempDir() + "gpumap-result-" + std::to_string(getpid()) + "-" + std::to_string(made_++) +
              ".comp") {
    std::ofstream(path_) << "#version 460\n#include <gpumap.glsl>\nvoid main() {\n"
                         << "  if (gpumap_thread() != 0ul) return;\n"
                         << main << "}\n";
  }
  ~Shader() { (void)std::remove(path_.c_str()); }
  Shader(const Shader&) = delete;
  Shader& operator=(const Shader&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static inline int made_ = 0;
  std::string path_;
};

Words words_of(const GstStructure* structure) {
  Words words;
  const GValue* array = gst_structure_get_value(structure, "words");
  if (array == nullptr) return words;
  for (guint i = 0; i < gst_value_array_get_size(array); ++i) {
    words.push_back(g_value_get_uint64(gst_value_array_get_value(array, i)));
  }
  return words;
}

/// What the "GpumapResult" metas of a buffer say; the test fails where there are several.
const GstStructure* meta_of(GstBuffer* buffer) {
  gpointer state = nullptr;
  const GstStructure* found = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
    if (!gst_meta_info_is_custom(meta->info)) continue;
    auto* custom = reinterpret_cast<GstCustomMeta*>(meta);
    if (gst_custom_meta_has_name(custom, "GpumapResult") == 0) continue;
    EXPECT_EQ(found, nullptr) << "two metas";
    found = gst_custom_meta_get_structure(custom);
  }
  return found;
}

std::optional<std::uint64_t> checksum_in(GstBuffer* buffer) {
  const GstStructure* structure = meta_of(buffer);
  guint64 sum = 0;
  if (structure == nullptr || gst_structure_get_uint64(structure, "checksum", &sum) == 0) return {};
  return sum;
}

/// appsrc, these kernels, appsink; frames of bytes.
class Result : public testing::Test {
 protected:
  void start(const std::string& kernels, const std::string& memory = "") {
    pipeline_.emplace(on_new_channel(
        "appsrc name=in format=time caps=application/octet-stream ! gpumapsink $CHANNEL gpumapsrc "
        "$CHANNEL ! " +
        kernels + "capsfilter caps=application/octet-stream" + memory + " ! appsink name=out sync=false"));
    ASSERT_NE(pipeline_->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  Sample pass(const Data& data) {
    push(pipeline_->appsrc(), new_buffer(data));
    Sample sample = pull(pipeline_->appsink());
    if (!sample) ADD_FAILURE() << pipeline_->wait(1ms);
    return sample;
  }
  /// The messages of user kernels so far.
  std::vector<Words> messages() {
    std::vector<Words> found;
    GstBus* bus = gst_element_get_bus(pipeline_->get());
    while (GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_ELEMENT)) {
      const GstStructure* structure = gst_message_get_structure(message);
      if (gst_structure_has_name(structure, "gpumap-result")) found.push_back(words_of(structure));
      gst_message_unref(message);
    }
    gst_object_unref(bus);
    return found;
  }

  Ptr<GstMessage> next_element_message() {
    GstBus* bus = gst_element_get_bus(pipeline_->get());
    Ptr<GstMessage> found(gst_bus_timed_pop_filtered(bus, 10 * GST_SECOND, GST_MESSAGE_ELEMENT));
    gst_object_unref(bus);
    return found;
  }

  std::optional<Pipeline> pipeline_;
};

// The last frame's launch was not waited for, and has left its sum in the block.
TEST_F(Result, ChecksumAfterAFlushIsOfItsFrameAlone) {
  start("", "(memory:GPUMap)");
  const Data large = random_data(std::size_t{32} << 20, 1);
  const Data small = random_data(1000, 2);
  const Sample first = pass(large);
  const Sample second = pass(small);
  ASSERT_TRUE(first && second);
  KernelRunner runner({.kernel = "checksum"});
  const GstCaps* caps = gst_sample_get_caps(first.get());
  runner.set_caps(caps, caps);
  runner.cancel(true);
  EXPECT_EQ(runner.run(gst_sample_get_buffer(first.get())).outcome, FrameOutput::Outcome::cancelled);
  runner.cancel(false);
  const Buffer out(runner.run(gst_sample_get_buffer(second.get())).buffer);
  ASSERT_NE(out, nullptr);
  EXPECT_EQ(checksum_in(out.get()), checksum_of(small));
}

// Zero before each launch, read after it: into system memory and where the frame stays on the GPU.
TEST_F(Result, WordsOfAUserKernel) {
  const Shader shader(
      "  store_u64(frame.result, load_u64(frame.result) + frame.in_view.bytes);\n"
      "  if (frame.sequence == 1ul) store_u64(frame.result + 8ul * 31ul, 77ul);\n");
  for (const char* memory : {"", "(memory:GPUMap)"}) {
    SCOPED_TRACE(memory);
    start("gpumapkernel location=" + shader.path() + " ! ", memory);
    std::vector<Words> expected;
    for (std::size_t i = 0; i < 3; ++i) {
      Words words(GPUMAP_RESULT_WORDS, 0);
      words.front() = 102 - i;
      words.back() = i == 1 ? 77 : 0;
      const Sample sample = pass(random_data(102 - i, i));
      ASSERT_NE(sample, nullptr);
      const GstStructure* meta = meta_of(gst_sample_get_buffer(sample.get()));
      ASSERT_NE(meta, nullptr);
      EXPECT_EQ(words_of(meta), words);
      expected.push_back(words);
    }
    EXPECT_EQ(messages(), expected);
  }
}

// As a built-in's figure is told, so is a user's: by its own name, in a message of its own, zero or not.
TEST_F(Result, MessagesAreNamedAsDeclared) {
  const Shader shader(
      "// gpumap: results size=u64,zero=u64\n"
      "// gpumap: message my-figures\n"
      "  store_u64(frame.result, frame.in_view.bytes);\n");
  start("gpumapkernel location=" + shader.path() + " ! ");
  const Sample sample = pass(random_data(123, 1));
  ASSERT_NE(sample, nullptr);
  guint64 size = 0;
  EXPECT_TRUE(gst_structure_get_uint64(meta_of(gst_sample_get_buffer(sample.get())), "size", &size));
  EXPECT_EQ(size, 123U);
  const Ptr<GstMessage> message = next_element_message();
  ASSERT_NE(message, nullptr);
  const GstStructure* told = gst_message_get_structure(message.get());
  EXPECT_STREQ(gst_structure_get_name(told), "my-figures");
  guint64 zero = 1;
  EXPECT_TRUE(gst_structure_get_uint64(told, "size", &size) && gst_structure_get_uint64(told, "zero", &zero));
  EXPECT_EQ(size, 123U);
  EXPECT_EQ(zero, 0U);
}

// As many as are declared, in the file or by the property, which is all that a .spv has.
TEST_F(Result, BlocksOfManyWords) {
  const std::string fill =
      "  for (uint i = 0u; i < frame.result_words; ++i) {\n"
      "    uint64_t word = uint64_t(load_u8(frame.in_view.plane[0] + uint64_t(i) % frame.in_view.bytes));\n"
      "    store_u64(frame.result + 8ul * i, word * 0x0101010101010101ul + frame.result_words);\n"
      "  }\n";
  const Shader declared("// gpumap: result-words 4096\n" + fill), plain(fill);
  for (const auto& [options, count] : {std::pair{declared.path(), 4096U},
                                       {plain.path(), 32U},
                                       {plain.path() + " declare=\"result-words 1000\"", 1000U},
                                       {declared.path() + " declare=\"result-words 33\"", 33U}}) {
    SCOPED_TRACE(options);
    start("gpumapkernel location=" + options + " ! ");
    for (std::size_t frame = 0; frame < 3; ++frame) {
      const Data data = random_data(601 + frame, count + frame);
      Words expected;
      for (std::size_t i = 0; i < count; ++i) {
        expected.push_back(std::to_integer<std::uint64_t>(data[i % data.size()]) * 0x0101010101010101 + count);
      }
      const Sample sample = pass(data);
      ASSERT_NE(sample, nullptr);
      const GstStructure* meta = meta_of(gst_sample_get_buffer(sample.get()));
      ASSERT_NE(meta, nullptr);
      EXPECT_EQ(words_of(meta), expected);
    }
    EXPECT_EQ(messages().size(), 3U);
  }
  Pipeline refused(on_new_channel(
      "gpumapsrc $CHANNEL ! gpumapkernel declare=\"result-words 31\" location=" + plain.path() + " ! fakesink"));
  EXPECT_THAT(refused.run(),
              testing::HasSubstr("declare: result-words: a result block of 31 words: choose from 32 to 4096"));
}

TEST_F(Result, NothingWrittenIsNothingTold) {
  const Shader shader("  if (frame.sequence == 1ul) store_u64(frame.result, 5ul);\n");
  start("gpumapkernel location=" + shader.path() + " ! ");
  for (std::size_t i = 0; i < 3; ++i) {
    const Sample sample = pass(random_data(100, i));
    ASSERT_NE(sample, nullptr);
    EXPECT_EQ(meta_of(gst_sample_get_buffer(sample.get())) != nullptr, i == 1);
  }
  EXPECT_EQ(messages().size(), 1U);
}

TEST_F(Result, OfBytesThatChangedSinceGoes) {
  const std::string invert = "gpumapkernel location=" GPUMAP_EXAMPLES "/kernels/invert.comp ! ";
  const Data data = random_data(1000, 3);
  Data inverted = data;
  for (std::byte& byte : inverted) byte = ~byte;
  for (const char* memory : {"", "(memory:GPUMap)"}) {
    SCOPED_TRACE(memory);
    start("gpumapkernel kernel=checksum ! " + invert, memory);
    const Sample without = pass(data);
    ASSERT_NE(without, nullptr);
    EXPECT_EQ(meta_of(gst_sample_get_buffer(without.get())), nullptr);
    start("gpumapkernel kernel=checksum ! " + invert + "gpumapkernel kernel=checksum ! ", memory);
    const Sample again = pass(data);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(checksum_in(gst_sample_get_buffer(again.get())), checksum_of(inverted));
  }
}

// checksum changes nothing: what was found out before holds beside it.
TEST_F(Result, OfTheSameBytesStay) {
  const Shader shader("  store_u64(frame.result, 5ul);\n  store_u8(frame.out_view.plane[0], 9u);\n");
  start("gpumapkernel location=" + shader.path() + " ! gpumapkernel kernel=checksum ! gpumapkernel kernel=checksum ! ");
  const Sample sample = pass(random_data(1, 4));
  ASSERT_NE(sample, nullptr);
  const GstStructure* meta = meta_of(gst_sample_get_buffer(sample.get()));
  ASSERT_NE(meta, nullptr);
  EXPECT_EQ(words_of(meta).size(), std::size_t{GPUMAP_RESULT_WORDS});
  EXPECT_EQ(checksum_in(gst_sample_get_buffer(sample.get())), checksum_of({std::byte{9}}));
}

// A kernel that never names the result is not waited for; in doubt it is.
TEST(ResultMayBeNamed, IsSeenInTheSource) {
  const auto may = [](Language language, const char* code, std::vector<std::string> defines = {}) {
    return ResultBlocks::may_name(
        {.language = language, .name = "k", .code = code, .function = {}, .defines = std::move(defines)}, "result");
  };
  EXPECT_FALSE(may(Language::glsl, "#include <gpumap.glsl>\nvoid main() {}"));
  EXPECT_FALSE(may(Language::cuda, "#  include\t<gpumap/kernel.h>\n"));
  EXPECT_TRUE(may(Language::cuda, "#include <gpumap/kernel.h>\nauto p = frame.result;"));
  EXPECT_TRUE(may(Language::cuda, "#include <gpumap/kernel.h>\n#include \"mine.h\"\n"));
  EXPECT_TRUE(may(Language::glsl, "#include"));
  EXPECT_FALSE(may(Language::glsl, "#include <gpumap.glsl>\n#include <gpumap_pixels.glsl>\n", {"FAST", "N=3"}));
  EXPECT_TRUE(may(Language::glsl, "#include <gpumap.glsl>\n#include <gpumap_mine.glsl>\n"));
  EXPECT_TRUE(may(Language::cuda, "#include <gpumap/kernel.h>\n#include <gpumap/mine.h>\n"));
  EXPECT_TRUE(may(Language::cuda, "#include <gpumap/kernel.h>\n#include <gpumap"));
  EXPECT_TRUE(
      may(Language::glsl, "#include <gpumap.glsl>\nvoid main() { TELL; }", {"TELL=store_u64(frame.result,1ul)"}));
  EXPECT_TRUE(may(Language::spirv, "anything"));
}

// Results that come without their frame waiting for them.

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
