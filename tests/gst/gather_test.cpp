// SPDX-License-Identifier: MIT
// Small buffers put together to frames, by gpumapsink and gpumapupload: no byte is lost or doubled, and frames end
// where they must, whatever the sizes. What is expected is worked out byte by byte.
#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <random>

#include "gst/gpumap/gstgpumapmemory.h"
#include "pipeline.hpp"
#include "temporary_folder.hpp"

namespace gpumap::gst::test {
namespace {

constexpr GstClockTime none = GST_CLOCK_TIME_NONE;

struct Frame {
  Data bytes;
  GstClockTime pts = none, duration = none;
  bool discont = false;
  [[nodiscard]] bool operator==(const Frame&) const = default;
};

void PrintTo(const Frame& frame, std::ostream* to) {
  *to << frame.bytes.size() << " bytes, checksum " << checksum_of(frame.bytes) << ", pts " << frame.pts << ", duration "
      << frame.duration << (frame.discont ? ", DISCONT" : "");
}

/// Upstream is a pad of the test's own; what follows keeps what it gets.
class Way {
 public:
  Way(const std::string& form, const std::string& options) {
    const std::string end = " ! fakesink name=out signal-handoffs=true sync=false";
    if (form == "upload") {
      in_ = std::make_unique<Pipeline>("gpumapupload name=in " + options + end);
    } else if (form == "socket") {
      const std::string socket = " socket-path=" + (folder_.path() / "link").string();
      in_ = std::make_unique<Pipeline>("gpumapsink name=in wait-for-connection=true " + options + socket);
      out_ = std::make_unique<Pipeline>("gpumapsrc " + socket + end);
    } else {
      in_ = std::make_unique<Pipeline>(
          on_new_channel("gpumapsink name=in $CHANNEL " + options + " gpumapsrc $CHANNEL" + end));
    }
    g_signal_connect(behind().element("out"), "handoff", G_CALLBACK(&Way::take), this);
    const Pad in(gst_element_get_static_pad(element(), "sink"));
    EXPECT_EQ(gst_pad_link(pad_.get(), in.get()), GST_PAD_LINK_OK);
    gst_pad_set_active(pad_.get(), TRUE);
  }
  ~Way() {
    stop();
    gst_pad_set_active(pad_.get(), FALSE);
  }
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  [[nodiscard]] Pipeline& in() const { return *in_; }
  [[nodiscard]] Pipeline& behind() const { return out_ ? *out_ : *in_; }
  [[nodiscard]] GstElement* element() const { return in_->element("in"); }
  [[nodiscard]] std::uint64_t count(const char* field) const { return stat(element(), field); }
  void set_state(GstState state) const {
    ASSERT_NE(in_->set_state(state), GST_STATE_CHANGE_FAILURE);
    if (out_ == nullptr) return;
    ASSERT_NE(out_->set_state(state), GST_STATE_CHANGE_FAILURE);
  }
  void stop() const {
    in_->stop();
    if (out_) out_->stop();
  }

  /// Caps "": none.
  void start(const std::string& caps) const {
    send(gst_event_new_stream_start("small buffers"));
    if (!caps.empty()) send(gst_event_new_caps(new_caps(caps).get()));
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    send(gst_event_new_segment(&segment));
  }
  void send(GstEvent* event) const { EXPECT_TRUE(gst_pad_push_event(pad_.get(), event)); }
  [[nodiscard]] GstFlowReturn push(const Frame& buffer, std::size_t cut = 0) const {
    Buffer made = new_buffer(Data(buffer.bytes.begin() + static_cast<std::ptrdiff_t>(cut), buffer.bytes.end()));
    if (cut != 0) {
      const Buffer first =
          new_buffer(Data(buffer.bytes.begin(), buffer.bytes.begin() + static_cast<std::ptrdiff_t>(cut)));
      made.reset(gst_buffer_append(gst_buffer_ref(first.get()), made.release()));
    }
    made.reset(gst_buffer_make_writable(made.release()));
    GST_BUFFER_PTS(made.get()) = buffer.pts;
    GST_BUFFER_DURATION(made.get()) = buffer.duration;
    if (buffer.discont) GST_BUFFER_FLAG_SET(made.get(), GST_BUFFER_FLAG_DISCONT);
    return gst_pad_push(pad_.get(), made.release());
  }
  [[nodiscard]] GstFlowReturn push(Buffer buffer) const { return gst_pad_push(pad_.get(), buffer.release()); }
  /// What the element offers for `caps`; null: nothing.
  [[nodiscard]] Ptr<GstAllocator> allocator(const std::string& caps) const {
    const Ptr<GstQuery> query(gst_query_new_allocation(new_caps(caps).get(), FALSE));
    EXPECT_TRUE(gst_pad_peer_query(pad_.get(), query.get()));
    GstAllocator* offered = nullptr;
    if (gst_query_get_n_allocation_params(query.get()) > 0) {
      gst_query_parse_nth_allocation_param(query.get(), 0, &offered, nullptr);
    }
    return Ptr<GstAllocator>(offered);
  }
  [[nodiscard]] std::vector<Frame> frames() const {
    const std::lock_guard lock(mutex_);
    return frames_;
  }
  [[nodiscard]] bool got(std::size_t number) const {
    return eventually([&] { return frames().size() >= number; });
  }
  /// Ends the stream.
  [[nodiscard]] std::vector<Frame> all() const {
    send(gst_event_new_eos());
    EXPECT_EQ(behind().wait(), "eos");
    return frames();
  }
  [[nodiscard]] GstPad* pad() const { return pad_.get(); }

 private:
  static void take(GstElement* /*sink*/, GstBuffer* buffer, GstPad* /*pad*/, Way* way) {
    Frame frame{data_of(buffer), GST_BUFFER_PTS(buffer), GST_BUFFER_DURATION(buffer),
                GST_BUFFER_IS_DISCONT(buffer) != 0};
    const std::lock_guard lock(way->mutex_);
    way->frames_.push_back(std::move(frame));
  }

  const TemporaryFolder folder_;
  std::unique_ptr<Pipeline> in_, out_;
  const Ptr<GstPad> pad_{GST_PAD(gst_object_ref_sink(gst_pad_new("out", GST_PAD_SRC)))};
  mutable std::mutex mutex_;
  std::vector<Frame> frames_;
};

/// Frames of `most` bytes from buffers that may be cut anywhere.
class Expected {
 public:
  explicit Expected(std::size_t most) : most_(most) {}
  void add(const Frame& buffer) {
    if (buffer.discont) end();
    const std::size_t size = buffer.bytes.size();
    const auto until = [&](std::size_t at) { return gst_util_uint64_scale(buffer.duration, at, size); };
    for (std::size_t i = 0; i < size; ++i) {
      if (!open_) frames.push_back({{}, buffer.pts + until(i), 0, buffer.discont && i == 0});
      open_ = true;
      frames.back().bytes.push_back(buffer.bytes[i]);
      frames.back().duration += until(i + 1) - until(i);
      if (frames.back().bytes.size() == most_) open_ = false;
    }
  }
  void end() { open_ = false; }
  std::vector<Frame> frames;

 private:
  std::size_t most_;
  bool open_ = false;
};

class GatherIn : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Form, GatherIn, testing::Values("sink", "upload", "socket"),
                         [](const auto& test) { return std::string(test.param); });

// Sizes from 1 byte to more than two frames, and frames' own; discontinuities by the flag and by time; events between.
TEST_P(GatherIn, RandomSizesLoseNoByte) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto upto = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(1, most)(random); };
  for (const bool pinned : {false, true}) {
    if (pinned && GetParam() == std::string("socket")) continue;  // which knows bar alone
    const std::size_t most = 500 + upto(3000);
    Way way(GetParam(), "slots=4 gather=" + std::to_string(most) + (pinned ? " transport=pinned" : ""));
    way.set_state(GST_STATE_PLAYING);
    way.start("application/octet-stream");
    Expected expected(most);
    GstClockTime pts = 12345;
    std::uint64_t buffers = 0;
    for (std::size_t n = 0; n < 400; ++n) {
      const std::size_t kind = upto(20);
      const std::size_t size = kind == 1 ? most : kind == 2 ? upto(most * 5 / 2) : kind < 6 ? upto(7) : upto(most / 3);
      if (kind == 7) pts += GST_SECOND + upto(1000);
      const Frame buffer{random_data(size, seed + n), pts, upto(99999), kind == 8};
      if (kind == 7) expected.end();
      if (kind == 9) {
        way.send(gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("between")));
        expected.end();
      }
      if (size == most && (expected.frames.empty() || expected.frames.back().bytes.size() == most)) --buffers;
      expected.add(buffer);
      ++buffers;
      pts += buffer.duration;
      ASSERT_EQ(way.push(buffer, size > 1 && upto(3) == 1 ? upto(size - 1) : 0), GST_FLOW_OK) << n;
    }
    std::vector<Frame> got = way.all();
    ASSERT_EQ(got.size(), expected.frames.size());
    got.at(0).discont = expected.frames.at(0).discont;  // the first frame may be marked by gpumapsrc
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected.frames[i]) << i;
    EXPECT_EQ(way.count("frames"), got.size());
    EXPECT_EQ(way.count("copied-frames"), got.size());
    std::size_t bytes = 0;
    for (const Frame& frame : got) bytes += frame.bytes.size();
    EXPECT_EQ(way.count("bytes-copied"), bytes);
    EXPECT_LE(way.count("gathered-buffers"), 400U);
    EXPECT_GE(way.count("gathered-buffers"), buffers - 40);
    EXPECT_EQ(way.count("drops"), 0U);
  }
}

// The time limit's thread and upstream's meet at every frame.
TEST_P(GatherIn, TheTimeLimitLosesNoByte) {
  constexpr std::size_t most = 5000;
  Way way(GetParam(), "slots=4 gather-time=1 gather=" + std::to_string(most));
  way.set_state(GST_STATE_PLAYING);
  way.start("application/octet-stream");
  Data all;
  std::mt19937 random(3);
  for (std::size_t n = 0; n < 2000; ++n) {
    const Frame buffer{random_data(1 + random() % 999, n)};
    all.insert(all.end(), buffer.bytes.begin(), buffer.bytes.end());
    ASSERT_EQ(way.push(buffer), GST_FLOW_OK) << n;
    if (random() % 4 == 0) g_usleep(random() % 100);  // else it is mostly full before its time is over
  }
  Data got;
  for (const Frame& frame : way.all()) {
    EXPECT_LE(frame.bytes.size(), most);
    got.insert(got.end(), frame.bytes.begin(), frame.bytes.end());
  }
  EXPECT_TRUE(got == all) << got.size() << " bytes of " << all.size();
}

TEST_P(GatherIn, AFrameGoesOnAfterTheTimeLimit) {
  Way way(GetParam(), "gather=100000 gather-time=20000");
  way.set_state(GST_STATE_PLAYING);
  way.start("application/octet-stream");
  const Frame first{random_data(777, 1), 5, none, true};
  ASSERT_EQ(way.push(first), GST_FLOW_OK);
  ASSERT_TRUE(way.got(1));
  const Frame second{random_data(77, 2), none, 6, false};
  ASSERT_EQ(way.push(second), GST_FLOW_OK);
  ASSERT_TRUE(way.got(2));
  EXPECT_EQ(way.frames(), (std::vector<Frame>{first, second}));
}

// An event comes behind the bytes before it, and before those after it.
TEST_P(GatherIn, SerializedEventsEndAFrame) {
  Way way(GetParam(), "gather=1000");
  way.set_state(GST_STATE_PLAYING);
  way.start("application/octet-stream");
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  std::size_t frames = 0;
  for (GstEvent* event :
       {gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("custom")),
        gst_event_new_caps(new_caps("application/x-other").get()), gst_event_new_segment(&segment),
        gst_event_new_gap(0, 1), gst_event_new_tag(gst_tag_list_new(GST_TAG_TITLE, "title", nullptr))}) {
    const Frame buffer{random_data(300 + frames, frames), 1, 2, false};
    ASSERT_EQ(way.push(buffer), GST_FLOW_OK);
    way.send(event);
    ++frames;
    ASSERT_TRUE(way.got(frames)) << frames;
    EXPECT_EQ(way.frames().back().bytes, buffer.bytes) << frames;
  }
  // Out of band it may overtake them.
  ASSERT_EQ(way.push({random_data(3, 98)}), GST_FLOW_OK);
  way.send(gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM_OOB, gst_structure_new_empty("oob")));
  ASSERT_EQ(way.push({random_data(4, 99)}), GST_FLOW_OK);
  const auto all = way.all();
  ASSERT_EQ(all.size(), frames + 1);
  EXPECT_EQ(all.back().bytes.size(), 7U);
}

TEST_P(GatherIn, AFlushDropsWhatIsOpen) {
  Way way(GetParam(), "gather=1000");
  way.set_state(GST_STATE_PLAYING);
  way.start("application/octet-stream");
  ASSERT_EQ(way.push({random_data(1500, 1), 0, none, false}), GST_FLOW_OK);
  ASSERT_TRUE(way.got(1));
  way.send(gst_event_new_flush_start());
  way.send(gst_event_new_flush_stop(TRUE));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  way.send(gst_event_new_segment(&segment));
  const Data after = random_data(999, 2);
  ASSERT_EQ(way.push({after, GST_SECOND, none, true}), GST_FLOW_OK);
  const auto all = way.all();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].bytes, after);
  EXPECT_EQ(all[1].pts, GST_SECOND);
}

// A sample is not cut, and its time comes of the rate.
TEST_P(GatherIn, SamplesStayWhole) {
  Way way(GetParam(), "gather=1001");
  way.set_state(GST_STATE_PLAYING);
  way.start("audio/x-raw,format=S24LE,channels=2,layout=interleaved,rate=96000");
  const Data data = random_data(6UL * 500, 1);
  for (std::size_t at = 0; at < data.size(); at += 60) {
    const auto from = data.begin() + static_cast<std::ptrdiff_t>(at);
    const GstClockTime pts = gst_util_uint64_scale(at / 6, GST_SECOND, 96000);
    ASSERT_EQ(way.push({Data(from, from + 60), pts, none, false}), GST_FLOW_OK);
  }
  const auto all = way.all();
  ASSERT_EQ(all.size(), 4U);
  Data got;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].bytes.size(), i < 3 ? 996U : 12U);
    // Of 166 samples, some of which come of a buffer's middle: as near as its own time is.
    EXPECT_NEAR(static_cast<double>(all[i].pts), static_cast<double>(i) * 166e9 / 96000, 2.0);
    EXPECT_NEAR(static_cast<double>(all[i].duration), static_cast<double>(all[i].bytes.size()) / 6 * 1e9 / 96000, 20.0);
    got.insert(got.end(), all[i].bytes.begin(), all[i].bytes.end());
  }
  EXPECT_EQ(got, data);
}

// Packets of a protocol: a frame has whole ones.
TEST_P(GatherIn, OtherBuffersStayWhole) {
  Way way(GetParam(), "gather=1000");
  way.set_state(GST_STATE_PLAYING);
  way.start("application/x-rtp");
  std::size_t n = 0;
  for (const std::size_t size : {400, 300, 301, 700, 1000, 2000, 1, 999, 1}) {
    ASSERT_EQ(way.push({random_data(size, n++)}), GST_FLOW_OK);
  }
  std::vector<std::size_t> sizes;
  for (const Frame& frame : way.all()) sizes.push_back(frame.bytes.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{700, 301, 700, 1000, 2000, 1000, 1})) << testing::PrintToString(sizes);
}

TEST_P(GatherIn, PicturesPass) {
  Way way(GetParam(), "gather=100000");
  way.set_state(GST_STATE_PLAYING);
  way.start("video/x-raw,format=GRAY8,width=32,height=17,framerate=30/1");
  for (std::size_t n = 0; n < 3; ++n) ASSERT_EQ(way.push({random_data(32UL * 17, n), n}), GST_FLOW_OK);
  const auto all = way.all();
  ASSERT_EQ(all.size(), 3U);
  for (std::size_t n = 0; n < 3; ++n) EXPECT_EQ(all[n].bytes, random_data(32UL * 17, n));
  EXPECT_EQ(way.count("gathered-buffers"), 0U);
}

TEST_P(GatherIn, ADrainEndsAFrame) {
  Way way(GetParam(), "gather=1000");
  way.set_state(GST_STATE_PLAYING);
  way.start("");
  ASSERT_EQ(way.push({random_data(1300, 1)}), GST_FLOW_OK);
  const Ptr<GstQuery> drain(gst_query_new_drain());
  (void)gst_pad_peer_query(way.pad(), drain.get());
  ASSERT_TRUE(way.got(2));
  EXPECT_EQ(way.frames()[1].bytes.size(), 300U);
}

TEST_P(GatherIn, StopsWithAFrameOpenAndStartsAnew) {
  Way way(GetParam(), "gather=1000");
  for (std::size_t round = 0; round < 2; ++round) {
    const std::size_t before = way.frames().size();
    way.set_state(GST_STATE_PLAYING);
    way.start("application/octet-stream");
    ASSERT_EQ(way.push({random_data(1500, round)}), GST_FLOW_OK);
    ASSERT_TRUE(way.got(before + 1));
    Data first = random_data(1500, round);
    first.resize(1000);
    EXPECT_EQ(way.frames().back().bytes, first) << round;
    way.stop();
  }
}

// What is paused has its first frame when that is full, or its time over, and holds the rest back.
TEST_P(GatherIn, PausedItHoldsFramesBack) {
  Way way(GetParam(), "slots=3 gather=1000 gather-time=1000");
  way.set_state(GST_STATE_PAUSED);
  way.start("application/octet-stream");
  Data all;
  std::atomic<int> flow{GST_FLOW_OK};
  std::thread upstream([&] {
    for (std::size_t n = 0; n < 200 && flow == GST_FLOW_OK; ++n) {
      const Data bytes = random_data(50 + n, n);
      all.insert(all.end(), bytes.begin(), bytes.end());
      flow = way.push({bytes});
    }
    way.send(gst_event_new_eos());
  });
  EXPECT_TRUE(way.behind().reach(GST_STATE_PAUSED));
  way.set_state(GST_STATE_PLAYING);
  EXPECT_EQ(way.behind().wait(), "eos");
  upstream.join();
  EXPECT_EQ(flow, GST_FLOW_OK);
  Data got;
  for (const Frame& frame : way.frames()) got.insert(got.end(), frame.bytes.begin(), frame.bytes.end());
  EXPECT_TRUE(got == all) << got.size() << " bytes of " << all.size();
}

constexpr const char* bytes_caps = "application/octet-stream";

Buffer allocated(GstAllocator* allocator, std::size_t bytes) {
  return Buffer(gst_buffer_new_allocate(allocator, bytes, nullptr));
}
bool is_lent(GstBuffer* buffer) {
  return gst_is_gpumap_memory(gst_buffer_peek_memory(buffer, 0)) != 0;
}
/// From byte `at` on.
void write(GstBuffer* buffer, const Data& data, std::size_t at = 0, GstMapFlags flags = GST_MAP_WRITE) {
  GstMapInfo map;
  ASSERT_TRUE(gst_buffer_map(buffer, &map, flags));
  ASSERT_LE(at + data.size(), map.size);
  std::copy(data.begin(), data.end(), reinterpret_cast<std::byte*>(map.data) + at);
  gst_buffer_unmap(buffer, &map);
}
Buffer written(GstAllocator* allocator, const Data& data) {
  Buffer buffer = allocated(allocator, data.size());
  write(buffer.get(), data);
  return buffer;
}

/// What comes of frames, one behind the other.
Data bytes_of(const std::vector<Frame>& frames) {
  Data all;
  for (const Frame& frame : frames) all.insert(all.end(), frame.bytes.begin(), frame.bytes.end());
  return all;
}

// An upstream that pushes what it allocated before it allocates more writes into the slot. What lies across two frames,
// or would begin where a CPU's instructions do not expect it, is copied.
TEST_P(GatherIn, UpstreamWritesIntoTheSlot) {
  for (const auto& [size, copied] : {std::pair<std::size_t, std::size_t>{152, 0}, {1216, 0}, {160, 160}, {38, 912}}) {
    Way way(GetParam(), "slots=4 gather=1216");
    way.set_state(GST_STATE_PLAYING);
    way.start(bytes_caps);
    const Ptr<GstAllocator> allocator = way.allocator(bytes_caps);
    ASSERT_TRUE(allocator);
    Data all;
    for (std::size_t n = 0; n * size < std::size_t{1216} * 40; ++n) {
      const Data data = random_data(size, n);
      all.insert(all.end(), data.begin(), data.end());
      ASSERT_EQ(way.push(written(allocator.get(), data)), GST_FLOW_OK);
    }
    const auto frames = way.all();
    EXPECT_TRUE(bytes_of(frames) == all) << size;
    EXPECT_EQ(frames.size(), 40U);
    EXPECT_EQ(way.count("zero-copy-frames"), copied == 0 ? 40U : 0U) << size;
    EXPECT_EQ(way.count("bytes-in-place") + way.count("bytes-copied"), all.size()) << size;
    EXPECT_LE(way.count("bytes-copied"), copied * 40) << size;
    EXPECT_EQ(way.count("cpu-reads"), 0U);
  }
}

// In another order, shorter, from behind its beginning, never, twice, kept, read, written while a frame ends or once it
// was pushed: whatever comes is what was pushed, and what is kept stays what it is.
TEST_P(GatherIn, WhateverUpstreamDoesWithPartsNoByteIsLost) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto upto = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(1, most)(random); };
  enum Trouble { other, readwrite, event, caps, slow, cut, discont, read, hold, drop, twice, keep, troubles };
  struct Part {
    Buffer buffer;
    Data data;
  };
  std::uint64_t in_place = 0;
  for (std::size_t round = 0; round < 10; ++round) {
    const bool pinned = round % 2 == 1 && GetParam() != std::string("socket");  // which knows bar alone
    const std::size_t most = 1000 + upto(3000);
    std::array<bool, troubles> on{};
    std::generate(on.begin(), on.end(), [&] { return upto(3) == 1; });
    const auto now = [&](Trouble trouble) { return on.at(trouble) && upto(10) == 1; };
    Way way(GetParam(), "slots=6 gather=" + std::to_string(most) + (pinned ? " transport=pinned" : "") +
                            (round % 3 == 2 ? " gather-time=500" : ""));
    way.set_state(GST_STATE_PLAYING);
    way.start(bytes_caps);
    const Ptr<GstAllocator> allocator = way.allocator(bytes_caps);
    ASSERT_TRUE(allocator);
    Data all;
    std::vector<Part> held, kept;
    const auto push = [&](Part part) {
      all.insert(all.end(), part.data.begin(), part.data.end());
      if (now(keep)) kept.push_back({Buffer(gst_buffer_ref(part.buffer.get())), part.data});
      return way.push(std::move(part.buffer));
    };
    for (std::size_t n = 0; n < 300; ++n) {
      const std::size_t size = upto(10) == 1 ? upto(most) : upto(most / 5);
      Part part{nullptr, random_data(upto(10) == 1 ? size : (size + 7) / 8 * 8, seed + n)};
      part.buffer = allocated(now(other) ? nullptr : allocator.get(), part.data.size());
      const auto middle = part.data.begin() + static_cast<std::ptrdiff_t>(upto(part.data.size()));
      write(part.buffer.get(), Data(part.data.begin(), middle), 0, now(readwrite) ? GST_MAP_READWRITE : GST_MAP_WRITE);
      if (now(event)) {
        way.send(gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("between")));
      }
      if (now(caps)) way.send(gst_event_new_caps(new_caps(bytes_caps + (",n=" + std::to_string(n))).get()));
      if (now(slow)) g_usleep(700);
      write(part.buffer.get(), Data(middle, part.data.end()), static_cast<std::size_t>(middle - part.data.begin()));
      if (now(cut)) {
        const std::size_t from = upto(3) == 1 ? upto(part.data.size()) - 1 : 0, count = upto(part.data.size() - from);
        gst_buffer_resize(part.buffer.get(), static_cast<gssize>(from), static_cast<gssize>(count));
        const auto begin = part.data.begin() + static_cast<std::ptrdiff_t>(from);
        part.data = Data(begin, begin + static_cast<std::ptrdiff_t>(count));
      }
      if (now(discont)) GST_BUFFER_FLAG_SET(part.buffer.get(), GST_BUFFER_FLAG_DISCONT);
      if (now(read)) {
        EXPECT_TRUE(data_of(part.buffer.get()) == part.data) << n;
      }
      if (now(drop)) continue;
      if (now(hold)) {
        held.push_back(std::move(part));
        continue;
      }
      if (now(twice)) {
        ASSERT_EQ(push({Buffer(gst_buffer_ref(part.buffer.get())), part.data}), GST_FLOW_OK) << n;
      }
      ASSERT_EQ(push(std::move(part)), GST_FLOW_OK) << n;
      if (!held.empty() && upto(20) == 1) {
        const std::size_t which = upto(held.size()) - 1;
        ASSERT_EQ(push(std::move(held[which])), GST_FLOW_OK) << n;
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      }
      if (kept.size() > 2) {
        EXPECT_TRUE(data_of(kept.front().buffer.get()) == kept.front().data) << n;
        kept.erase(kept.begin());
      }
      // What was pushed is not written any more: a map() copies.
      if (!kept.empty() && upto(4) == 1 && gst_buffer_is_writable(kept.back().buffer.get())) {
        kept.back().data = random_data(kept.back().data.size(), seed + n + 1);
        write(kept.back().buffer.get(), kept.back().data);
      }
    }
    const auto frames = way.all();
    for (const Frame& frame : frames) EXPECT_LE(frame.bytes.size(), most);
    const Data got = bytes_of(frames);
    EXPECT_TRUE(got == all) << got.size() << " bytes of " << all.size() << ", round " << round;
    EXPECT_EQ(way.count("bytes-in-place") + way.count("bytes-copied"), all.size());
    in_place += way.count("bytes-in-place");
    for (const Part& part : kept) EXPECT_TRUE(data_of(part.buffer.get()) == part.data);
  }
  EXPECT_GT(in_place, 0U);
}

// The frame goes on without the part that is out, whose slot nobody else gets.
TEST_P(GatherIn, APartThatIsLateIsCopied) {
  Way way(GetParam(), "slots=3 gather=1000 gather-time=20000");
  way.set_state(GST_STATE_PLAYING);
  way.start(bytes_caps);
  const Ptr<GstAllocator> allocator = way.allocator(bytes_caps);
  Data all = random_data(96, 1);
  Buffer first = written(allocator.get(), all);
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  way.send(gst_event_new_segment(&segment));  // as sources do
  ASSERT_EQ(way.push(std::move(first)), GST_FLOW_OK);
  const Data late = random_data(200, 2);
  Buffer part = allocated(allocator.get(), late.size());
  ASSERT_TRUE(is_lent(part.get()));
  write(part.get(), Data(late.begin(), late.begin() + 100));
  ASSERT_TRUE(way.got(1));
  EXPECT_EQ(way.frames()[0].bytes, all);
  write(part.get(), Data(late.begin() + 100, late.end()), 100);
  for (std::size_t n = 0; n < 20; ++n) {
    const Data other = random_data(1000, 10 + n);
    all.insert(all.end(), other.begin(), other.end());
    ASSERT_EQ(way.push({other}), GST_FLOW_OK);
  }
  all.insert(all.end(), late.begin(), late.end());
  ASSERT_EQ(way.push(std::move(part)), GST_FLOW_OK);
  EXPECT_TRUE(bytes_of(way.all()) == all);
  EXPECT_EQ(way.count("bytes-in-place"), 96U);
}

TEST_P(GatherIn, AFlushLeavesAPartWhereItIs) {
  Way way(GetParam(), "slots=3 gather=1000");
  way.set_state(GST_STATE_PLAYING);
  way.start(bytes_caps);
  const Ptr<GstAllocator> allocator = way.allocator(bytes_caps);
  ASSERT_EQ(way.push(written(allocator.get(), random_data(304, 1))), GST_FLOW_OK);
  Buffer part = allocated(allocator.get(), 200);
  ASSERT_TRUE(is_lent(part.get()));
  way.send(gst_event_new_flush_start());
  EXPECT_FALSE(is_lent(allocated(allocator.get(), 100).get()));
  way.send(gst_event_new_flush_stop(TRUE));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  way.send(gst_event_new_segment(&segment));
  Data all = random_data(200, 2);
  write(part.get(), all);
  ASSERT_EQ(way.push(std::move(part)), GST_FLOW_OK);
  const Data after = random_data(400, 3);
  ASSERT_EQ(way.push(written(allocator.get(), after)), GST_FLOW_OK);
  all.insert(all.end(), after.begin(), after.end());
  EXPECT_TRUE(bytes_of(way.all()) == all);
  EXPECT_EQ(way.count("bytes-in-place"), 400U);
}

// Neither an upstream that reads what it writes, nor one that pushes other buffers before what was lent.
TEST_P(GatherIn, WhoReadsOrOvertakesGetsOrdinaryMemory) {
  for (const bool reads : {true, false}) {
    Way way(GetParam(), "slots=4 gather=1000");
    way.set_state(GST_STATE_PLAYING);
    way.start(bytes_caps);
    const Ptr<GstAllocator> allocator = way.allocator(bytes_caps);
    Data all = random_data(104, 1);
    Buffer part = allocated(allocator.get(), all.size());
    ASSERT_TRUE(is_lent(part.get()));
    if (reads) {
      write(part.get(), all, 0, GST_MAP_READWRITE);
      ASSERT_EQ(way.push(std::move(part)), GST_FLOW_OK);
    } else {
      write(part.get(), all);
      const Data other = random_data(96, 2);
      ASSERT_EQ(way.push({other}), GST_FLOW_OK);
      ASSERT_EQ(way.push(std::move(part)), GST_FLOW_OK);
      all.insert(all.begin(), other.begin(), other.end());
    }
    EXPECT_FALSE(is_lent(allocated(allocator.get(), 8).get())) << reads;
    EXPECT_TRUE(bytes_of(way.all()) == all) << reads;
    EXPECT_EQ(way.count("bytes-copied"), all.size()) << reads;
  }
}

// The slot that was open for the part holds 5 bytes less than the frames that follow.
TEST_P(GatherIn, NewCapsTakeAnotherSlot) {
  Way way(GetParam(), "slots=4 gather=4097");
  const std::string samples = "audio/x-raw,format=S24LE,channels=2,layout=interleaved,rate=96000";
  way.set_state(GST_STATE_PLAYING);
  way.start(samples);
  const Ptr<GstAllocator> allocator = way.allocator(samples);
  for (const bool kept : {false, true}) {
    Buffer part = allocated(allocator.get(), 60);
    ASSERT_TRUE(is_lent(part.get()));
    if (!kept) part.reset();
    way.send(gst_event_new_caps(new_caps(bytes_caps).get()));
    for (const std::size_t size : {4000, 97}) {
      ASSERT_EQ(way.push({random_data(size, size)}), GST_FLOW_OK);
    }
    way.send(gst_event_new_caps(new_caps(samples).get()));
  }
  std::vector<std::size_t> sizes;
  for (const Frame& frame : way.all()) sizes.push_back(frame.bytes.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4097, 4097}));
}

// Behind a queue buffers are allocated ahead of those that wait in it.
TEST(Gather, NothingIsLentAcrossAQueue) {
  Pipeline pipeline(
      on_new_channel("appsrc name=src ! queue name=queue ! gpumapsink name=in gather=1000 $CHANNEL  "
                     "gpumapsrc $CHANNEL ! appsink name=out sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  GstElement* src = pipeline.element("src");
  const Caps caps = new_caps(bytes_caps);
  gst_app_src_set_caps(GST_APP_SRC(src), caps.get());
  ASSERT_EQ(gst_app_src_push_buffer(GST_APP_SRC(src), new_buffer(random_data(1000, 0)).release()), GST_FLOW_OK);
  ASSERT_TRUE(pull(pipeline.appsink()));
  const Pad pad(gst_element_get_static_pad(pipeline.element("queue"), "src"));
  const Ptr<GstQuery> query(gst_query_new_allocation(caps.get(), FALSE));
  ASSERT_TRUE(gst_pad_peer_query(pad.get(), query.get()));
  GstAllocator* offered = nullptr;
  gst_query_parse_nth_allocation_param(query.get(), 0, &offered, nullptr);
  const Ptr<GstAllocator> allocator(offered);
  ASSERT_TRUE(allocator);
  EXPECT_FALSE(is_lent(allocated(allocator.get(), 100).get()));
}

TEST_P(GatherIn, APartAndTheAllocatorOutliveTheElement) {
  const Data data = random_data(100, 1);
  Ptr<GstAllocator> allocator;
  Buffer part;
  {
    Way way(GetParam(), "gather=1000");
    way.set_state(GST_STATE_PLAYING);
    way.start(bytes_caps);
    allocator = way.allocator(bytes_caps);
    part = allocated(allocator.get(), data.size());
    ASSERT_TRUE(is_lent(part.get()));
    EXPECT_FALSE(is_lent(allocated(allocator.get(), 100).get()));  // one at a time
    write(part.get(), data);
    way.stop();
    EXPECT_FALSE(is_lent(allocated(allocator.get(), 100).get()));
  }
  EXPECT_EQ(data_of(part.get()), data);
  EXPECT_FALSE(is_lent(allocated(allocator.get(), 100).get()));
}

// Upstream waits for a slot of which it is to have a part.
TEST(Gather, StopsWhileUpstreamWaitsForAPart) {
  Way way("sink", "slots=3 gather=1000");
  way.set_state(GST_STATE_PAUSED);
  way.start(bytes_caps);
  const Ptr<GstAllocator> allocator = way.allocator(bytes_caps);
  std::thread upstream([&] {
    while (way.push(written(allocator.get(), random_data(500, 1))) == GST_FLOW_OK) {
    }
  });
  EXPECT_TRUE(way.behind().reach(GST_STATE_PAUSED));
  EXPECT_LT(way.in().stop(), at_once);
  upstream.join();
}

/// Of a live source without a latency of its own.
GstClockTime latency_behind(const std::string& form, const std::string& options, const std::string& caps) {
  Way way(form, options);
  gst_pad_set_query_function(way.pad(), [](GstPad* pad, GstObject* parent, GstQuery* query) -> gboolean {
    if (GST_QUERY_TYPE(query) != GST_QUERY_LATENCY) return gst_pad_query_default(pad, parent, query);
    gst_query_set_latency(query, TRUE, 0, GST_CLOCK_TIME_NONE);
    return TRUE;
  });
  way.set_state(GST_STATE_PLAYING);
  way.start(caps);
  EXPECT_EQ(way.push({random_data(9600, 1)}), GST_FLOW_OK);
  EXPECT_TRUE(way.got(1));
  const Ptr<GstQuery> query(gst_query_new_latency());
  const Pad sink(gst_element_get_static_pad(way.behind().element("out"), "sink"));
  EXPECT_TRUE(gst_pad_peer_query(sink.get(), query.get()));
  gboolean live = FALSE;
  GstClockTime least = none;
  gst_query_parse_latency(query.get(), &live, &least, nullptr);
  EXPECT_TRUE(live);
  return least;
}

TEST_P(GatherIn, CountsInTheLatency) {
  const std::string sound = "audio/x-raw,format=S16LE,channels=2,layout=interleaved,rate=48000";
  EXPECT_EQ(latency_behind(GetParam(), "", sound), 0U);
  EXPECT_EQ(latency_behind(GetParam(), "gather=9600", sound), 50 * GST_MSECOND);
  EXPECT_EQ(latency_behind(GetParam(), "gather=9600 gather-time=7000", sound), 7 * GST_MSECOND);
  EXPECT_EQ(latency_behind(GetParam(), "gather=9600 gather-time=7000", "application/octet-stream"), 7 * GST_MSECOND);
}

// Whole frames are given up, of consecutive bytes.
TEST(Gather, LeakyGivesUpWholeFrames) {
  for (const char* leaky : {"oldest", "newest"}) {
    Pipeline pipeline("gpumapsink name=in slots=3 gather=1000 channel=" + new_channel() + " leaky=" + leaky);
    const Ptr<GstPad> pad(GST_PAD(gst_object_ref_sink(gst_pad_new("out", GST_PAD_SRC))));
    const Pad in(gst_element_get_static_pad(pipeline.element("in"), "sink"));
    ASSERT_EQ(gst_pad_link(pad.get(), in.get()), GST_PAD_LINK_OK);
    gst_pad_set_active(pad.get(), TRUE);
    gchar* channel = nullptr;
    g_object_get(pipeline.element("in"), "channel", &channel, nullptr);
    const std::string name = channel;
    g_free(channel);
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    gst_pad_push_event(pad.get(), gst_event_new_stream_start("leaky"));
    gst_pad_push_event(pad.get(), gst_event_new_segment(&segment));
    const Data data = random_data(20000, 1);
    for (std::size_t at = 0; at < data.size(); at += 125) {
      const auto from = data.begin() + static_cast<std::ptrdiff_t>(at);
      ASSERT_EQ(gst_pad_push(pad.get(), new_buffer(Data(from, from + 125)).release()), GST_FLOW_OK);
    }
    gst_pad_push_event(pad.get(), gst_event_new_eos());
    Pipeline out("gpumapsrc channel=" + name + " ! appsink name=out sync=false");
    ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::vector<std::size_t> got;
    while (const Sample sample = pull(out.appsink())) {
      const Data frame = data_of(gst_sample_get_buffer(sample.get()));
      ASSERT_EQ(frame.size(), 1000U) << leaky;
      const auto found = std::search(data.begin(), data.end(), frame.begin(), frame.end());
      ASSERT_NE(found, data.end()) << leaky;
      got.push_back(static_cast<std::size_t>(found - data.begin()) / 1000);
    }
    EXPECT_EQ(got, leaky == std::string("oldest") ? (std::vector<std::size_t>{17, 18, 19})
                                                  : (std::vector<std::size_t>{0, 1, 2}))
        << leaky;
    EXPECT_EQ(stat(pipeline.element("in"), "drops"), 17U) << leaky;
    EXPECT_EQ(stat(pipeline.element("in"), "gathered-buffers"), 160U) << leaky;
    gst_pad_set_active(pad.get(), FALSE);
  }
}

// Upstream waits for a slot with an open frame to be: the stop ends that.
TEST(Gather, StopsWhileItWaitsForASlot) {
  Pipeline pipeline("fakesrc sizetype=fixed sizemax=100 ! gpumapsink name=in slots=3 gather=1000 channel=" +
                    new_channel());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return stat(pipeline.element("in"), "waits") > 0; }));
  EXPECT_EQ(stat(pipeline.element("in"), "frames"), 3U);
  EXPECT_LT(pipeline.stop(), at_once);
}

TEST(Gather, ASlotSizeBelowAFrameIsAnError) {
  Pipeline pipeline("fakesrc sizetype=fixed sizemax=100 ! gpumapsink name=in slot-size=999 gather=1000 channel=" +
                    new_channel());
  EXPECT_THAT(pipeline.run(), testing::HasSubstr("a frame of 1000 bytes does not fit slot-size 999"));
}

}  // namespace
}  // namespace gpumap::gst::test
