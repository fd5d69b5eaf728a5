// SPDX-License-Identifier: MIT
// Kernels that drop frames and shorten what comes out.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "gpumap/kernel.hpp"
#include "result_stream.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The complement of each byte; how many of these go on hangs on the first byte.
constexpr const char* complement_some =
    "void main() {\n"
    "  for (uint64_t i = gpumap_thread(); i < frame.out_view.bytes; i += gpumap_thread_count()) {\n"
    "    store_u8(frame.out_view.plane[0] + i, 255u - load_u8(frame.in_view.plane[0] + i));\n"
    "  }\n"
    "  if (gpumap_thread() != 0ul) return;\n"
    "  uint64_t first = uint64_t(load_u8(frame.in_view.plane[0]));\n"
    "  store_u64(frame.result, first);\n"
    "  store_u64(frame.given, first < 80ul ? 0ul : min(frame.out_view.bytes, first * 7ul));\n"
    "}\n";

std::size_t given_of(const Data& data) {
  const auto first = std::to_integer<std::size_t>(data[0]);
  return first < 80 ? 0 : std::min(data.size(), first * 7);
}

Data complement(const Data& data, std::size_t bytes) {
  Data made(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(bytes));
  for (std::byte& byte : made) byte = ~byte;
  return made;
}

Buffer timed(const Data& data, GstClockTime pts, GstClockTime duration) {
  Buffer buffer = new_buffer(data, pts);
  GST_BUFFER_DURATION(buffer.get()) = duration;
  return buffer;
}

/// A pad's gap events.
class Gaps {
 public:
  explicit Gaps(GstElement* element) : pad_(gst_element_get_static_pad(element, "src")) {
    gst_pad_add_probe(pad_.get(), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, &note, this, nullptr);
  }
  [[nodiscard]] std::vector<std::pair<GstClockTime, GstClockTime>> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  static GstPadProbeReturn note(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer self) {
    GstEvent* event = gst_pad_probe_info_get_event(info);
    if (GST_EVENT_TYPE(event) == GST_EVENT_GAP) {
      auto* gaps = static_cast<Gaps*>(self);
      const std::lock_guard lock(gaps->mutex_);
      auto& [pts, duration] = gaps->all_.emplace_back();
      gst_event_parse_gap(event, &pts, &duration);
    }
    return GST_PAD_PROBE_OK;
  }
  Pad pad_;
  mutable std::mutex mutex_;
  std::vector<std::pair<GstClockTime, GstClockTime>> all_;
};

std::string stream_of(const std::string& caps, const std::string& kernel, const std::string& after = "") {
  return on_new_channel("appsrc name=in format=time caps=" + caps +
                        " ! gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel name=kernel " + kernel +
                        " ! " + after + "appsink name=out sync=false");
}
const std::string bytes_caps = "application/octet-stream";
const std::string gray_caps = "video/x-raw,format=GRAY8,width=65,height=43,framerate=25/1";

TEST(Given, FramesAreDroppedAndShortened) {
  const ShaderFile file("// gpumap: output-may drop,shorten\n// gpumap: results first=u64\n" +
                        std::string(complement_some));
  for (const char* memory : {"", "(memory:GPUMap)"}) {
    SCOPED_TRACE(memory);
    Pipeline pipeline(
        stream_of(bytes_caps, "location=" + file.path(), "capsfilter caps=" + bytes_caps + memory + " ! "));
    const Messages messages(pipeline);
    const Gaps gaps(pipeline.element("kernel"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::vector<std::pair<GstClockTime, Data>> expected;
    std::vector<std::uint64_t> firsts, bytes;
    std::vector<std::pair<GstClockTime, GstClockTime>> dropped;
    for (std::uint64_t i = 0; i < 60; ++i) {
      const Data data = random_data(i == 7 ? 1 : 1 + i * 37 % 3001, 100 + i);
      const GstClockTime pts = i * 40 * GST_MSECOND + i % 3, duration = 40 * GST_MSECOND - i;
      ASSERT_TRUE(push(pipeline.appsrc(), timed(data, pts, duration)));
      firsts.push_back(std::to_integer<std::uint64_t>(data[0]));
      bytes.push_back(given_of(data));
      if (given_of(data) == 0) {
        dropped.emplace_back(pts, duration);
      } else {
        expected.emplace_back(pts, complement(data, given_of(data)));
      }
    }
    ASSERT_GT(dropped.size(), 5U);
    ASSERT_GT(expected.size(), 20U);
    gst_app_src_end_of_stream(pipeline.appsrc());
    const std::vector<Sample> samples = pull_all(pipeline.appsink());
    ASSERT_EQ(samples.size(), expected.size()) << pipeline.wait(1s);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      GstBuffer* buffer = gst_sample_get_buffer(samples[i].get());
      EXPECT_EQ(GST_BUFFER_PTS(buffer), expected[i].first);
      EXPECT_EQ(data_of(buffer), expected[i].second) << i;
      EXPECT_EQ(GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DISCONT) != 0, i == 0) << i;
    }
    EXPECT_EQ(messages.numbers("first"), firsts);
    EXPECT_EQ(messages.numbers("bytes"), bytes);
    EXPECT_EQ(gaps.all(), dropped);
    EXPECT_EQ(stat(pipeline.element("kernel"), "dropped-by-kernel"), dropped.size());
    EXPECT_EQ(stat(pipeline.element("kernel"), "frames"), firsts.size());
  }
}

/// Keeps a picture, or the frame as it came, whose first pixel is odd.
std::string keep_odd(const std::string& declared, const std::string& rest = "") {
  return "// gpumap: output-may drop\n" + declared + "void main() {\n" + rest +
         "  bool is_odd = (load_u8(frame.in_view.plane[0]) & 1u) != 0u;\n"
         "  if (gpumap_thread() == 0ul && is_odd) store_u64(frame.given, 1ul);\n}\n";
}

bool is_odd(const Data& data) {
  return (data[0] & std::byte{1}) != std::byte{0};
}

TEST(Given, PicturesAreDroppedAcrossChangesOfCapsAndFlushes) {
  const ShaderFile looks(keep_odd("// gpumap: output unchanged\n"));
  const ShaderFile copies(
      keep_odd("",
               "  for (uint64_t i = gpumap_thread(); i < frame.out_view.bytes; i += "
               "gpumap_thread_count())\n"
               "    store_u8(frame.out_view.plane[0] + i, load_u8(frame.in_view.plane[0] + i));\n"));
  for (const ShaderFile* file : {&looks, &copies}) {
    for (const char* memory : {"video/x-raw", "video/x-raw(memory:GPUMap)"}) {
      SCOPED_TRACE(memory);
      Pipeline pipeline(
          stream_of(gray_caps, "location=" + file->path(), "capsfilter caps=" + std::string(memory) + " ! "));
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      std::uint64_t seed = 0;
      for (const auto& [width, height] : {std::pair{65, 43}, {33, 7}, {128, 1}}) {
        const Caps caps = video_caps("GRAY8", width, height);
        gst_app_src_set_caps(pipeline.appsrc(), caps.get());
        std::vector<Data> kept;
        for (int i = 0; i < 12; ++i) {
          const Data data = random_data(frame_bytes(caps.get()), ++seed);
          if (is_odd(data)) kept.push_back(data);
          ASSERT_TRUE(push(pipeline.appsrc(), timed(data, seed * GST_MSECOND, GST_MSECOND)));
        }
        ASSERT_THAT(kept.size(), testing::AllOf(testing::Gt(0U), testing::Lt(12U)));
        for (const Data& data : kept) {
          const Sample sample = pull(pipeline.appsink());
          ASSERT_TRUE(sample) << pipeline.wait(1s);
          EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data);
        }
        GstElement* source = pipeline.element("in");
        ASSERT_TRUE(gst_element_send_event(source, gst_event_new_flush_start()));
        ASSERT_TRUE(gst_element_send_event(source, gst_event_new_flush_stop(TRUE)));
      }
    }
  }
}

// A hole that a dropped frame told of is told by the next one.
TEST(Given, TheNextFrameTellsOfADiscontinuity) {
  const ShaderFile file(keep_odd("// gpumap: output unchanged\n"));
  Pipeline pipeline(stream_of(bytes_caps, "location=" + file.path()));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  // odd, odd, even and marked, even, odd, odd
  for (int i = 0; i < 6; ++i) {
    Data data = random_data(77, static_cast<std::uint64_t>(i));
    data[0] = i == 2 || i == 3 ? std::byte{4} : std::byte{5};
    Buffer buffer = new_buffer(data, static_cast<GstClockTime>(i) * GST_SECOND);
    if (i == 2) GST_BUFFER_FLAG_SET(buffer.get(), GST_BUFFER_FLAG_DISCONT);
    ASSERT_TRUE(push(pipeline.appsrc(), std::move(buffer)));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  std::vector<std::pair<GstClockTime, bool>> got;
  for (const Sample& sample : pull_all(pipeline.appsink())) {
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    got.emplace_back(GST_BUFFER_PTS(buffer) / GST_SECOND, GST_BUFFER_IS_DISCONT(buffer) != 0);
  }
  EXPECT_THAT(got, testing::ElementsAre(testing::Pair(0, true), testing::Pair(1, false), testing::Pair(4, true),
                                        testing::Pair(5, false)));
}

TEST(Given, WhereAllIsDroppedSinksPrerollAndEnd) {
  const ShaderFile file(
      "// gpumap: output-may drop\nvoid main() { if (gpumap_thread() == 0ul) store_u64(frame.given, "
      "0ul); }\n");
  for (const bool has_times : {true, false}) {
    SCOPED_TRACE(has_times);
    Pipeline pipeline(stream_of(gray_caps, "location=" + file.path()));
    ASSERT_NE(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
    for (GstClockTime i = 0; i < 3; ++i) {
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(frame_bytes(new_caps(gray_caps).get()), i),
                                                     has_times ? i * GST_SECOND : GST_CLOCK_TIME_NONE)));
    }
    // A gap prerolls; of what has no time, only the end does.
    if (has_times) {
      EXPECT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    }
    gst_app_src_end_of_stream(pipeline.appsrc());
    EXPECT_EQ(pipeline.run(), "eos");
    EXPECT_EQ(stat(pipeline.element("kernel"), "dropped-by-kernel"), 3U);
  }
}

// A mixer waits for each of its inputs, unless it knows that nothing comes.
TEST(Given, MixersDoNotWaitForDroppedFrames) {
  GstElementFactory* factory = gst_element_factory_find("compositor");
  if (factory == nullptr) GTEST_SKIP() << "no compositor: install gstreamer1.0-plugins-base";
  gst_object_unref(factory);
  const ShaderFile file(
      "// gpumap: output-may drop\n// gpumap: output unchanged\n"
      "void main() { if (gpumap_thread() == 0ul && frame.sequence == 99ul) store_u64(frame.given, 1ul); "
      "}\n");
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time caps=video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! "
                     "gpumapsink sync=false "
                     "$CHANNEL gpumapsrc $CHANNEL ! gpumapkernel location=" +
                     file.path() +
                     " ! video/x-raw ! compositor name=mix ! appsink name=out sync=false videotestsrc num-buffers=5 ! "
                     "video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! mix."));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (GstClockTime i = 0; i < 5; ++i) {
    ASSERT_TRUE(
        push(pipeline.appsrc(), timed(random_data(64 * 48 * 3 / 2, i), i * 40 * GST_MSECOND, 40 * GST_MSECOND)));
  }
  // No EOS comes on that side.
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(pull(pipeline.appsink())) << i << pipeline.wait(1ms);
}

TEST(Given, TheOtherBranchOfATeeHasAll) {
  const ShaderFile file("// gpumap: output-may drop,shorten\n" + std::string(complement_some));
  Pipeline pipeline(on_new_channel(
      "appsrc name=in format=time caps=application/octet-stream ! gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! "
      "tee name=t ! queue ! gpumapkernel location=" +
      file.path() + " ! appsink name=out sync=false t. ! queue ! appsink name=all sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<Data> all, given;
  for (std::uint64_t i = 0; i < 20; ++i) {
    all.push_back(random_data(901, 500 + i));
    if (given_of(all.back()) != 0) given.push_back(complement(all.back(), given_of(all.back())));
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(all.back(), i)));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  const auto data_from = [&](const char* sink) {
    std::vector<Data> made;
    for (const Sample& sample : pull_all(pipeline.appsink(sink)))
      made.push_back(data_of(gst_sample_get_buffer(sample.get())));
    return made;
  };
  EXPECT_EQ(data_from("out"), given);
  EXPECT_EQ(data_from("all"), all);
}

constexpr const char* places_of_sevens =
    "void main() {\n"
    "  for (uint64_t i = gpumap_thread(); i < frame.in_view.bytes; i += gpumap_thread_count()) {\n"
    "    if (load_u8(frame.in_view.plane[0] + i) != 7u) continue;\n"
    "    store_u32(frame.out_view.plane[0] + atomic_add_u32(frame.given, 4u), uint(i));\n"
    "  }\n"
    "}\n";

// The word is 0 before each frame. Of a .spv only the properties say what it may.
TEST(Given, ThreadsCountInTheWord) {
  const ShaderFile source(places_of_sevens);
  const std::string compiled = source.path() + ".spv";
  std::ofstream(compiled, std::ios::binary) << compile_glsl(load_kernel_file(source.path()));
  for (const std::string& file : {source.path(), compiled}) {
    Pipeline pipeline(
        stream_of(bytes_caps, "declare=\"output-may drop,shorten; bytes 4*bytes; result-words 64\" location=" + file));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::vector<std::vector<std::uint32_t>> expected, got;
    for (std::uint64_t i = 0; i < 30; ++i) {
      const Data data = random_data(1 + i * 101, i);
      std::vector<std::uint32_t> places;
      for (std::uint32_t at = 0; at < data.size(); ++at) {
        if (data[at] == std::byte{7}) places.push_back(at);
      }
      if (!places.empty()) expected.push_back(places);
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(data, i)));
    }
    gst_app_src_end_of_stream(pipeline.appsrc());
    for (const Sample& sample : pull_all(pipeline.appsink())) {
      const Data data = data_of(gst_sample_get_buffer(sample.get()));
      std::vector<std::uint32_t>& places = got.emplace_back(data.size() / 4);
      std::memcpy(places.data(), data.data(), data.size());
      std::sort(places.begin(), places.end());
    }
    EXPECT_EQ(got, expected) << file << pipeline.wait(1ms);
  }
  EXPECT_EQ(std::remove(compiled.c_str()), 0);
}

TEST(Given, SamplesLastAsLongAsThereAre) {
  const ShaderFile file(
      "// gpumap: output-may shorten\n"
      "void main() { if (gpumap_thread() == 0ul) store_u64(frame.given, 4ul * 48ul); }\n");
  Pipeline pipeline(
      stream_of("audio/x-raw,format=S16LE,rate=48000,channels=2,layout=interleaved", "location=" + file.path()));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(push(pipeline.appsrc(), timed(random_data(std::size_t{4} * 480, 1), 0, 10 * GST_MSECOND)));
  const Sample sample = pull(pipeline.appsink());
  ASSERT_TRUE(sample) << pipeline.wait(1s);
  GstBuffer* buffer = gst_sample_get_buffer(sample.get());
  EXPECT_EQ(gst_buffer_get_size(buffer), 4U * 48);
  EXPECT_EQ(GST_BUFFER_DURATION(buffer), GST_MSECOND);
}

TEST(Given, ErrorsNameTheFigures) {
  const auto says = [](const std::string& number) {
    return "void main() { if (gpumap_thread() == 0ul) store_u64(frame.given, " + number + "); }\n";
  };
  const ShaderFile much("// gpumap: output-may drop,shorten\n" + says("frame.out_view.bytes + 1ul"));
  const ShaderFile huge("// gpumap: output-may shorten\n" + says("0xfffffffffffffffful"));
  const ShaderFile none("// gpumap: output-may shorten\n" + says("0ul"));
  const ShaderFile silent("// gpumap: output-may drop\nvoid main() {}\n");
  const ShaderFile unchanged("// gpumap: output-may shorten\n// gpumap: output unchanged\n" + says("3ul"));
  const ShaderFile three(says("3ul"));
  const std::string audio = "audio/x-raw,format=S16LE,rate=48000,channels=1,layout=interleaved";
  const std::tuple<std::string, std::string, const char*> cases[] = {
      {bytes_caps, much.path(), "gives 101 bytes of an output that has 100"},
      {bytes_caps, huge.path(), "gives 18446744073709551615 bytes of an output that has 100"},
      {bytes_caps, none.path(), "gives 0 bytes of an output of 100, which is to drop the frame"},
      {bytes_caps, silent.path(), "declares output-may and never writes to frame.given"},
      {bytes_caps, unchanged.path(), "unchanged cannot be shortened"},
      {gray_caps, three.path() + " declare=\"output-may shorten\"",
       "every frame of these caps has 2924 bytes: leave shorten out"},
      {"video/x-bayer,format=bggr,width=10,height=10,framerate=1/1", three.path() + " declare=\"output-may shorten\"",
       "cannot be shortened"},
      {audio, three.path() + " declare=\"output-may shorten\"",
       "wrote 3 to frame.given, no multiple of the 2 bytes of a sample"},
      {bytes_caps, three.path() + " declare=\"output-may vanish\"",
       "declare: output-may: an output may not \"vanish\""},
      {bytes_caps, three.path() + " declare=\"output-may drop\" late-results=true",
       "late-results is true: leave one of them out"},
  };
  for (const auto& [caps, file, message] : cases) {
    Pipeline pipeline(stream_of(caps, "location=" + file));
    push(pipeline.appsrc(), new_buffer(random_data(caps == gray_caps ? 2924 : caps == bytes_caps ? 100 : 120, 1), 0));
    EXPECT_THAT(pipeline.run(), HasSubstr(message)) << file;
    EXPECT_EQ(pipeline.culprit(), "kernel");
  }
  Pipeline built_in(stream_of(bytes_caps, "declare=\"output-may drop\""));
  EXPECT_THAT(built_in.run(), HasSubstr("declare=output-may drop is for a kernel of yours"));
}

}  // namespace
}  // namespace gpumap::gst::test
