// SPDX-License-Identifier: MIT
// What kernels find out about a frame, in messages and metas: of this frame alone, and no longer than it holds.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <optional>

#include "gst/kernel/runner.hpp"
#include "pipeline.hpp"

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
  const auto may = [](Language language, const char* code) {
    return ResultBlocks::may_name({.language = language, .name = "k", .code = code, .function = {}}, "result");
  };
  EXPECT_FALSE(may(Language::glsl, "#include <gpumap.glsl>\nvoid main() {}"));
  EXPECT_FALSE(may(Language::cuda, "#  include\t<gpumap/kernel.h>\n"));
  EXPECT_TRUE(may(Language::cuda, "#include <gpumap/kernel.h>\nauto p = frame.result;"));
  EXPECT_TRUE(may(Language::cuda, "#include <gpumap/kernel.h>\n#include \"mine.h\"\n"));
  EXPECT_TRUE(may(Language::glsl, "#include"));
  EXPECT_TRUE(may(Language::spirv, "anything"));
}

}  // namespace
}  // namespace gpumap::gst::test
