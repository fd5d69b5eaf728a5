// SPDX-License-Identifier: MIT
// Caps change while slots of the old size are out: every frame arrives whole, under its own caps.
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

struct Step {
  const char* format;
  int width, height;
};
// Up, down, another format, the same again.
constexpr Step steps[] = {{"NV12", 64, 48},    {"NV12", 1917, 1081}, {"NV12", 33, 7},  {"RGB", 33, 7},
                          {"GRAY8", 640, 480}, {"NV12", 64, 48},     {"NV12", 64, 48}, {"AYUV", 801, 601}};

TEST(CapsChange, FromForeignBuffers) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink name=sink slots=4 $CHANNEL "
                     "gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! appsink name=out sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<std::uint64_t> sums;
  std::vector<Caps> caps;
  for (const Step& step : steps) {
    Caps now = video_caps(step.format, step.width, step.height);
    gst_app_src_set_caps(pipeline.appsrc(), now.get());
    for (int i = 0; i < 3; ++i) {
      const Data data = random_data(frame_bytes(now.get()), sums.size());
      sums.push_back(checksum_of(data));
      caps.emplace_back(gst_caps_ref(now.get()));
      push(pipeline.appsrc(), new_buffer(data));
    }
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << "frame " << i << ": " << pipeline.wait(1ms);
    GstVideoInfo info;
    ASSERT_TRUE(gst_video_info_from_caps(&info, gst_sample_get_caps(sample.get())));
    GstVideoInfo pushed;
    ASSERT_TRUE(gst_video_info_from_caps(&pushed, caps[i].get()));
    EXPECT_EQ(GST_VIDEO_INFO_FORMAT(&info), GST_VIDEO_INFO_FORMAT(&pushed)) << i;
    EXPECT_EQ(info.width, pushed.width) << i;
    EXPECT_EQ(info.height, pushed.height) << i;
    EXPECT_EQ(checksum_of(data_of(gst_sample_get_buffer(sample.get()))), sums[i]) << i;
  }
  ASSERT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(pipeline.results()[i].checksum, sums[i]) << i;
    EXPECT_EQ(pipeline.results()[i].sequence, i) << "a larger ring began to count anew";
  }
}

/// Gives `filter` its caps while a frame is in it: a source that is asked in the middle of choosing caps, as for the
/// caps set before, may choose some that its filter no longer takes, and its stream ends.
void set_caps_at_a_frame(GstElement* filter, Caps caps) {
  const Pad pad(gst_element_get_static_pad(filter, "sink"));
  gst_pad_add_probe(
      pad.get(), GST_PAD_PROBE_TYPE_BUFFER,
      [](GstPad* at, GstPadProbeInfo*, gpointer data) {
        g_object_set(GST_PAD_PARENT(at), "caps", static_cast<GstCaps*>(data), nullptr);
        return GST_PAD_PROBE_REMOVE;
      },
      caps.release(), [](gpointer data) { gst_caps_unref(static_cast<GstCaps*>(data)); });
}

// From the sink's own pool, with slots of the rings before held by the application.
TEST(CapsChange, FromThePoolWithOldSlotsHeld) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc pattern=snow ! capsfilter name=filter caps=video/x-raw,format=NV12,width=64,height=48 ! "
      "gpumapsink name=sink slots=16 $CHANNEL gpumapsrc $CHANNEL ! "
      "appsink name=out sync=false max-buffers=1"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<Sample> held;
  std::vector<std::uint64_t> sums;
  for (const Step& step : steps) {
    set_caps_at_a_frame(pipeline.element("filter"),
                        Caps(gst_caps_new_simple("video/x-raw", "format", G_TYPE_STRING, step.format, "width",
                                                 G_TYPE_INT, step.width, "height", G_TYPE_INT, step.height, nullptr)));
    bool arrived = false;
    for (int i = 0; i < 40 && !arrived; ++i) {
      Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << step.format << " " << step.width << ": " << pipeline.wait(1ms);
      GstVideoInfo info;
      ASSERT_TRUE(gst_video_info_from_caps(&info, gst_sample_get_caps(sample.get())));
      arrived = info.width == step.width && info.height == step.height &&
                std::string_view(gst_video_format_to_string(GST_VIDEO_INFO_FORMAT(&info))) == step.format;
      if (!arrived) continue;
      EXPECT_GE(gst_buffer_get_size(gst_sample_get_buffer(sample.get())), info.size);
      sums.push_back(checksum_of(data_of(gst_sample_get_buffer(sample.get()))));
      held.push_back(std::move(sample));
    }
    ASSERT_TRUE(arrived) << step.format << " " << step.width << "x" << step.height;
  }
  EXPECT_EQ(stat(pipeline.element("sink"), "copied-frames"), 0U);
  pipeline.stop();
  // What the application holds is not written again.
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(checksum_of(data_of(gst_sample_get_buffer(held[i].get()))), sums[i]);
  }
}

/// What is said where what follows asks for `wanted` while 64x48 of I420 play, and whether that came. `apart`: from
/// another pipeline.
struct Asked {
  std::string said;
  bool arrived = false;
};
Asked ask_for(const std::string& upstream, const std::string& behind, const char* wanted, int width, bool apart) {
  const std::string channel = "channel=" + new_channel();
  const std::string in = upstream + " ! gpumapsink " + channel + " ";
  const std::string out = "gpumapsrc " + channel + " ! " + behind +
                          "capsfilter name=filter caps=video/x-raw,format=I420,width=64,height=48 ! "
                          "appsink name=out sync=false max-buffers=1";
  const auto producer = apart ? std::make_unique<Pipeline>(in) : nullptr;
  Pipeline pipeline(apart ? out : in + out);
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  if (producer) {
    EXPECT_NE(producer->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  for (int i = 0; i < 3; ++i) EXPECT_NE(pull(pipeline.appsink()), nullptr) << pipeline.wait(1ms);
  g_object_set(pipeline.element("filter"), "caps", new_caps(wanted).get(), nullptr);
  Asked asked;
  // The old ones are those that lie in the ring, and a few on their way there.
  for (int i = 0; i < 100 && !asked.arrived; ++i) {
    const Sample sample = pull(pipeline.appsink());
    if (!sample) break;
    GstVideoInfo info;
    EXPECT_TRUE(gst_video_info_from_caps(&info, gst_sample_get_caps(sample.get())));
    asked.arrived = info.width == width;
  }
  asked.said = pipeline.wait(1ms);
  return asked;
}

// What upstream cannot give is an error, as behind a queue: it is not that the old frames go on.
TEST(CapsChange, ThatUpstreamCannotMakeIsAnError) {
  for (const char* wanted : {"video/x-raw,format=RGB,width=64,height=48", "audio/x-raw"}) {
    for (const bool apart : {false, true}) {
      const Asked asked = ask_for("videotestsrc ! video/x-raw,format=I420,width=64,height=48", "", wanted, 1, apart);
      EXPECT_NE(asked.said.find("what follows gpumapsrc does not take video/x-raw"), std::string::npos)
          << wanted << (apart ? ", two pipelines: " : ": ") << asked.said;
    }
  }
}

// Frames of the size before fill the ring, and an element that converts refuses each of them.
TEST(CapsChange, ForgivesEachFrameThatWasMadeBefore) {
  for (const char* behind : {"", "videoconvert ! "}) {
    for (const bool apart : {false, true}) {
      const Asked asked = ask_for("videotestsrc", behind, "video/x-raw,format=I420,width=32,height=24", 32, apart);
      EXPECT_TRUE(asked.arrived) << '"' << behind << (apart ? "\", two pipelines: " : "\": ") << asked.said;
    }
  }
}

// A new ring is made by the thread that asks for larger frames, which need not be the thread that sends frames: an
// encoder with a queue behind it. No frame is lost, takes another's time or overtakes another on the way from ring to
// ring.

struct Params {
  const char* slots;
  bool half_in_host_memory;
};

class Rings : public testing::TestWithParam<Params> {};

/// Frames from the thread that allocates to the one that pushes.
class Handover {
 public:
  void give(Buffer buffer) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return frames_.size() < 4; });
    frames_.push_back(std::move(buffer));
    changed_.notify_all();
  }
  Buffer take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !frames_.empty(); });
    Buffer buffer = std::move(frames_.front());
    frames_.pop_front();
    changed_.notify_all();
    return buffer;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Buffer> frames_;
};

/// What gpumapsink proposes to upstream of `pad`.
Element allocator_at(GstPad* pad, const char* caps, GstAllocationParams& params) {
  GstAllocator* allocator = nullptr;
  GstQuery* query = gst_query_new_allocation(new_caps(caps).get(), TRUE);
  EXPECT_TRUE(gst_pad_query(pad, query));
  if (gst_query_get_n_allocation_params(query) != 0) {
    gst_query_parse_nth_allocation_param(query, 0, &allocator, &params);
  }
  gst_query_unref(query);
  return Element(reinterpret_cast<GstElement*>(allocator));
}

TEST_P(Rings, OfGrowingFramesFromAnotherThread) {
  constexpr std::uint32_t frames = 3000;
  constexpr const char* caps = "application/x-mine";
  Pipeline pipeline(on_new_channel(std::string("identity name=in ! gpumapsink $CHANNEL slots=") + GetParam().slots +
                                   " gpumapsrc $CHANNEL ! appsink name=out sync=false async=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Pad in(gst_element_get_static_pad(pipeline.element("in"), "sink"));
  gst_pad_send_event(in.get(), gst_event_new_stream_start("frames"));
  gst_pad_send_event(in.get(), gst_event_new_caps(new_caps(caps).get()));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_send_event(in.get(), gst_event_new_segment(&segment));
  GstAllocationParams params;
  gst_allocation_params_init(&params);
  const Element allocator = allocator_at(in.get(), caps, params);
  ASSERT_NE(allocator, nullptr);

  Handover handover;
  std::thread pushes([&] {
    for (std::uint32_t i = 0; i < frames; ++i) {
      EXPECT_EQ(gst_pad_chain(in.get(), handover.take().release()), GST_FLOW_OK);
    }
    gst_pad_send_event(in.get(), gst_event_new_eos());
  });
  std::thread allocates([&] {
    for (std::uint32_t i = 0; i < frames; ++i) {
      const bool in_host = GetParam().half_in_host_memory && i % 2 == 1;
      auto* from = in_host ? nullptr : reinterpret_cast<GstAllocator*>(allocator.get());
      Buffer buffer(gst_buffer_new_allocate(from, 64 + i / 3 * 16, &params));
      gst_buffer_fill(buffer.get(), 0, &i, sizeof i);
      GST_BUFFER_PTS(buffer.get()) = i * GST_MSECOND;
      handover.give(std::move(buffer));
    }
  });
  std::uint32_t expected = 0;
  for (; expected < frames; ++expected) {
    const Sample sample = pull(pipeline.appsink());
    if (!sample) break;
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    std::uint32_t number = 0;
    gst_buffer_extract(buffer, 0, &number, sizeof number);
    EXPECT_EQ(number, expected);
    EXPECT_EQ(GST_BUFFER_PTS(buffer), number * GST_MSECOND) << number;
    EXPECT_EQ(gst_buffer_get_size(buffer), 64 + number / 3 * 16);
    if (testing::Test::HasFailure()) break;
    if (number % 7 == 0) g_usleep(300);
  }
  EXPECT_EQ(expected, frames);
  if (expected < frames) pipeline.stop();
  allocates.join();
  pushes.join();
}

INSTANTIATE_TEST_SUITE_P(Passage, Rings, testing::Values(Params{"2", false}, Params{"8", false}, Params{"8", true}),
                         [](const auto& test) {
                           return std::string(test.param.slots) + (test.param.half_in_host_memory ? "mixed" : "slots");
                         });

// A slot holds what was there before, and upstream writes its frame alone: who wants zeros behind that gets them.
TEST(Allocations, HaveTheZerosThatAreAskedFor) {
  constexpr gsize bytes = 1003;
  Pipeline pipeline(
      on_new_channel("identity name=in ! gpumapsink $CHANNEL slots=3 gpumapsrc $CHANNEL ! "
                     "appsink name=out sync=false async=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Pad in(gst_element_get_static_pad(pipeline.element("in"), "sink"));
  gst_pad_send_event(in.get(), gst_event_new_stream_start("frames"));
  gst_pad_send_event(in.get(), gst_event_new_caps(new_caps("application/x-mine").get()));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_send_event(in.get(), gst_event_new_segment(&segment));
  GstAllocationParams params;
  gst_allocation_params_init(&params);
  const Element found = allocator_at(in.get(), "application/x-mine", params);
  ASSERT_NE(found, nullptr);
  auto* allocator = reinterpret_cast<GstAllocator*>(found.get());
  params.padding = 332;
  for (std::uint64_t i = 0; i < 12; ++i) {
    // The first half leave their marks in each slot.
    const bool zeros = i >= 6;
    params.flags = zeros ? GST_MEMORY_FLAG_ZERO_PADDED : static_cast<GstMemoryFlags>(0);
    Buffer buffer(gst_buffer_new_allocate(allocator, zeros ? bytes : bytes + params.padding, &params));
    if (zeros) {
      GstMapInfo map;
      ASSERT_TRUE(gst_memory_map(gst_buffer_peek_memory(buffer.get(), 0), &map, GST_MAP_WRITE));
      ASSERT_GE(map.maxsize, bytes + params.padding);
      for (gsize at = bytes; at < bytes + params.padding; ++at) ASSERT_EQ(map.data[at], 0) << at;
      gst_memory_unmap(gst_buffer_peek_memory(buffer.get(), 0), &map);
    }
    const Data data = random_data(gst_buffer_get_size(buffer.get()), i);
    gst_buffer_fill(buffer.get(), 0, data.data(), data.size());
    ASSERT_EQ(gst_pad_chain(in.get(), buffer.release()), GST_FLOW_OK);
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr);
    EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
