// SPDX-License-Identifier: MIT
// Events and queries as text between two processes: whatever a peer writes in their place, what is read of it is an
// event or a query of a kind that crosses, with what such a one has.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gst/channel/upstream_text.hpp"
#include "link_written.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using Event = Ptr<GstEvent>;
using Query = Ptr<GstQuery>;

/// GStreamer's reader complains of what it cannot read, and goes on.
struct WithComplaints {
  WithComplaints() : fatal(g_log_set_always_fatal(static_cast<GLogLevelFlags>(G_LOG_FATAL_MASK))) {
    before = g_log_set_default_handler([](const gchar*, GLogLevelFlags, const gchar*, gpointer) {}, nullptr);
  }
  ~WithComplaints() {
    g_log_set_default_handler(before, nullptr);
    g_log_set_always_fatal(fatal);
  }
  WithComplaints(const WithComplaints&) = delete;
  WithComplaints& operator=(const WithComplaints&) = delete;
  GLogLevelFlags fatal;
  GLogFunc before;
};

constexpr GstEventType custom_downstream[] = {GST_EVENT_CUSTOM_DOWNSTREAM, GST_EVENT_CUSTOM_DOWNSTREAM_STICKY,
                                              GST_EVENT_CUSTOM_DOWNSTREAM_OOB, GST_EVENT_CUSTOM_BOTH,
                                              GST_EVENT_CUSTOM_BOTH_OOB};

// Elements ask for the name of an application's event, and a sticky one is kept by it.
TEST(LinkText, OfACustomEventHasAStructure) {
  for (const GstEventType type : custom_downstream) {
    EXPECT_FALSE(read_event(written(type, ""))) << gst_event_type_get_name(type);
    EXPECT_TRUE(read_event(written(type, "mine, n=(int)1;"))) << gst_event_type_get_name(type);
  }
  NewNames names;
  for (const GstEventType type : {GST_EVENT_CUSTOM_UPSTREAM, GST_EVENT_CUSTOM_BOTH_OOB, GST_EVENT_NAVIGATION}) {
    EXPECT_FALSE(Event(asked_of(written(type, ""), names).event)) << gst_event_type_get_name(type);
    EXPECT_TRUE(Event(asked_of(written(type, "mine, n=(int)1;"), names).event)) << gst_event_type_get_name(type);
  }
  EXPECT_TRUE(Event(asked_of(written(GST_EVENT_RECONFIGURE, ""), names).event));
  EXPECT_FALSE(Event(asked_of(written(GST_EVENT_CUSTOM_BOTH, "mine;"), names).event)) << "it waits for the stream";
}

// flacenc and wavenc look at the first entry, matroskamux at what a DVD's event says.
TEST(LinkText, OfWhatElementsTakeForGrantedIsNoneWithoutIt) {
  const auto is_read = [](GstEvent* made) {
    const Event event(made);
    LinkText text = event_head(GST_EVENT_TYPE(made));
    EXPECT_EQ(put_structure(text, gst_event_get_structure(made), max_link_message), 0U);
    return read_event(text) != nullptr;
  };
  const Ptr<GstToc> toc(gst_toc_new(GST_TOC_SCOPE_GLOBAL));
  EXPECT_FALSE(is_read(gst_event_new_toc(toc.get(), FALSE)));
  gst_toc_append_entry(toc.get(), gst_toc_entry_new(GST_TOC_ENTRY_TYPE_CHAPTER, "one"));
  EXPECT_TRUE(is_read(gst_event_new_toc(toc.get(), FALSE)));
  for (const GstEventType type : custom_downstream) {
    const auto dvd = [&](const char* fields) {
      return is_read(gst_event_new_custom(type, parsed(std::string("application/x-gst-dvd") + fields).release()));
    };
    EXPECT_FALSE(dvd(";"));
    EXPECT_FALSE(dvd(", event=(int)1;"));
    EXPECT_FALSE(dvd(", event=(string)NULL;"));
    EXPECT_TRUE(dvd(", event=(string)dvd-spu-clut-change;"));
  }
}

// GStreamer's readers of events assert that such a field has its type, and a sink that a group has a number.
TEST(LinkText, OfFieldsThatNoEventHasIsOneWithoutThem) {
  const auto start = [](const std::string& fields) {
    return read_event(written(GST_EVENT_STREAM_START, "x, stream-id=(string)a, " + fields + ";"));
  };
  guint group = 0;
  EXPECT_TRUE(gst_event_parse_group_id(start("group-id=(uint)7").get(), &group));
  EXPECT_EQ(group, 7U);
  for (const char* const lie : {"group-id=(uint)0", "group-id=(string)7", "group-id=(int)7"}) {
    EXPECT_FALSE(gst_event_parse_group_id(start(lie).get(), &group)) << lie;
  }
  for (const char* const lie : {"flags=(string)7", "stream=(int)7"}) {
    const gchar* const name = std::string_view(lie).starts_with("flags") ? "flags" : "stream";
    EXPECT_FALSE(gst_structure_has_field(gst_event_get_structure(start(lie).get()), name)) << lie;
  }
  const Event gap = read_event(
      written(GST_EVENT_GAP, "x, timestamp=(guint64)1, duration=(guint64)2, gap-flags=(string)missing-data;"));
  ASSERT_TRUE(gap);
  EXPECT_FALSE(gst_structure_has_field(gst_event_get_structure(gap.get()), "gap-flags"));
}

TEST(LinkText, OfWhatIsNothingIsNoEvent) {
  const WithComplaints go_on;
  const auto is_read = [](GstEventType type, const std::string& structure) {
    return read_event(written(type, structure)) != nullptr;
  };
  EXPECT_TRUE(is_read(GST_EVENT_STREAM_START, "x, stream-id=(string)a;"));
  EXPECT_FALSE(is_read(GST_EVENT_STREAM_START, "x, stream-id=(string)NULL;"));
  EXPECT_FALSE(is_read(GST_EVENT_STREAM_START, "x, stream-id=(int)1;"));
  EXPECT_FALSE(is_read(GST_EVENT_STREAM_START, ""));
  const std::string caps = "event, caps=(GstCaps)";
  EXPECT_TRUE(is_read(GST_EVENT_CAPS, caps + "audio/x-raw;"));
  EXPECT_FALSE(is_read(GST_EVENT_CAPS, caps + "ANY;"));
  EXPECT_TRUE(is_read(GST_EVENT_GAP, "x, timestamp=(guint64)1, duration=(guint64)2;"));
  EXPECT_TRUE(is_read(GST_EVENT_GAP, "x, timestamp=(guint64)1, duration=(guint64)18446744073709551615;"));
  EXPECT_FALSE(is_read(GST_EVENT_GAP, "x, timestamp=(guint64)18446744073709551615, duration=(guint64)2;"));
  EXPECT_FALSE(is_read(GST_EVENT_LATENCY, "x, latency=(guint64)18446744073709551615;"));
  EXPECT_FALSE(is_read(GST_EVENT_GAP, "x, timestamp=(guint64)1;"));
  EXPECT_TRUE(is_read(GST_EVENT_SEGMENT_DONE, "x, format=(GstFormat)time, position=(gint64)1;"));
  // As a peer writes it: GStreamer's reader takes no such format.
  LinkText lie = event_head(GST_EVENT_SEGMENT_DONE);
  constexpr auto enumeration = std::byte{14}, position = std::byte{8};
  for (const LinkText& part :
       {bytes_of("x"), numbers(std::uint32_t{2}), bytes_of("format"), LinkText{enumeration},
        numbers(std::uint32_t{sizeof "GstFormat" + sizeof(gint)}), bytes_of("GstFormat"), numbers(gint{12'345}),
        bytes_of("position"), LinkText{position}, numbers(std::uint32_t{sizeof(gint64)}), numbers(gint64{1})}) {
    lie.insert(lie.end(), part.begin(), part.end());
  }
  EXPECT_FALSE(read_event(lie));
  EXPECT_FALSE(is_read(GST_EVENT_SEGMENT_DONE, "x, format=(int)3, position=(gint64)1;"));
  EXPECT_FALSE(is_read(GST_EVENT_SEGMENT_DONE, "x, position=(gint64)1;"));
  EXPECT_FALSE(is_read(GST_EVENT_SEGMENT_DONE, "x, format=(GstFormat)time, position=(int)1;"));
  EXPECT_FALSE(is_read(GST_EVENT_GAP, "x, timestamp=(guint64)1, duration=(int)2;"));
}

// GStreamer's readers take their fields for granted.
TEST(LinkText, OfEventsThatMissAFieldIsNone) {
  const WithComplaints go_on;
  const auto is_read = [](GstEventType type, const std::string& structure) {
    return read_event(written(type, structure)) != nullptr;
  };
  const auto rate = [&](const std::string& fields) {
    return is_read(GST_EVENT_INSTANT_RATE_CHANGE, "x, " + fields + ";");
  };
  EXPECT_TRUE(rate("rate=(double)1.5, flags=(GstSegmentFlags)trickmode"));
  EXPECT_FALSE(rate("rate=(double)-1.5, flags=(GstSegmentFlags)trickmode")) << "another direction";
  EXPECT_FALSE(rate("rate=(double)1e-7, flags=(GstSegmentFlags)trickmode")) << "nothing would ever be due";
  EXPECT_FALSE(rate("rate=(double)0, flags=(GstSegmentFlags)trickmode"));
  EXPECT_FALSE(rate("rate=(double)2, flags=(GstSegmentFlags)reset"));
  EXPECT_FALSE(rate("rate=(double)2, flags=(int)0"));
  EXPECT_FALSE(rate("rate=(double)2"));
  EXPECT_FALSE(rate("flags=(GstSegmentFlags)trickmode"));
  EXPECT_TRUE(is_read(GST_EVENT_STREAM_GROUP_DONE, "x, group-id=(uint)7;"));
  EXPECT_FALSE(is_read(GST_EVENT_STREAM_GROUP_DONE, "x, group-id=(uint)0;"));
  EXPECT_FALSE(is_read(GST_EVENT_STREAM_GROUP_DONE, "x, group-id=(int)7;"));
  EXPECT_TRUE(is_read(GST_EVENT_PROTECTION, "x, system_id=(string)a, data=(buffer)00ff;"));
  EXPECT_FALSE(is_read(GST_EVENT_PROTECTION, "x, system_id=(string)NULL, data=(buffer)00ff;"));
  EXPECT_FALSE(is_read(GST_EVENT_PROTECTION, "x, data=(buffer)00ff;"));
  for (const GstEventType type : {GST_EVENT_TOC, GST_EVENT_STREAM_COLLECTION, GST_EVENT_SINK_MESSAGE}) {
    EXPECT_FALSE(is_read(type, "x, toc=(int)1, updated=(boolean)true, collection=(int)1, message=(int)1;"));
  }
}

// What is made anew of structures: a peer may write any structure in its place.
TEST(LinkText, OfTablesAndStreamsIsReadAsFarAsItCanBe) {
  const auto read = [](std::byte kind, const std::string& structure) {
    LinkText text = event_head(GST_EVENT_CUSTOM_DOWNSTREAM);
    LinkText content;
    EXPECT_EQ(put_structure(content, parsed(structure).get(), max_link_message), 0U);
    for (const LinkText& part : {bytes_of("x"), numbers(std::uint32_t{1}), bytes_of("it"), LinkText{kind},
                                 numbers(static_cast<std::uint32_t>(content.size())), content}) {
      text.insert(text.end(), part.begin(), part.end());
    }
    Event event = read_event(text);
    return event && gst_structure_has_field(gst_event_get_structure(event.get()), "it") ? std::move(event) : Event();
  };
  const auto it = [](const Event& event) {
    return gst_structure_get_value(gst_event_get_structure(event.get()), "it");
  };
  constexpr auto toc = std::byte{36}, stream = std::byte{37}, collection = std::byte{38}, message = std::byte{39};
  EXPECT_FALSE(read(toc, "toc;"));
  EXPECT_FALSE(read(toc, "toc, scope=(int)1;"));
  EXPECT_FALSE(read(stream, "stream, type=(GstStreamType)video;"));
  EXPECT_FALSE(read(message, "message, is-element=(boolean)true;"));
  EXPECT_FALSE(read(message, "message, says=(structure)\"x;\";"));
  const Event table = read(toc,
                           "toc, scope=(GstTocScope)global, tags=(int)3, entries=(structure){ \"entry;\", "
                           "\"entry, type=(GstTocEntryType)chapter;\", "
                           "\"entry, type=(GstTocEntryType)chapter, uid=a, start=(gint64)3, loop=(int)1;\" };");
  ASSERT_TRUE(table);
  const GList* const entries = gst_toc_get_entries(static_cast<GstToc*>(g_value_get_boxed(it(table))));
  ASSERT_EQ(g_list_length(const_cast<GList*>(entries)), 1U) << "one has a type and a name";
  const auto* const entry = static_cast<const GstTocEntry*>(entries->data);
  EXPECT_STREQ(gst_toc_entry_get_uid(entry), "a");
  gint64 start = 0;
  (void)gst_toc_entry_get_start_stop_times(entry, &start, nullptr);
  EXPECT_EQ(start, -1) << "no end";
  const Event one = read(stream, "stream, id=a, type=(int)7, caps=(int)1, tags=(int)1;");
  ASSERT_TRUE(one);
  EXPECT_STREQ(gst_stream_get_stream_id(GST_STREAM_CAST(g_value_get_object(it(one)))), "a");
  const Event many = read(collection, "collection, streams=(structure){ \"stream;\", \"stream, id=b;\" };");
  ASSERT_TRUE(many);
  EXPECT_EQ(gst_stream_collection_get_size(GST_STREAM_COLLECTION_CAST(g_value_get_object(it(many)))), 1U);
}

TEST(LinkText, OfASegmentThatCannotBeIsNoEvent) {
  const WithComplaints go_on;
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  segment.applied_rate = 2;
  const auto is_read = [](const GstSegment& one) {
    LinkText text = event_head(GST_EVENT_SEGMENT);
    const Ptr<GstStructure> says(gst_structure_new("x", "segment", GST_TYPE_SEGMENT, &one, nullptr));
    EXPECT_EQ(put_structure(text, says.get(), max_link_message), 0U);
    return read_event(text) != nullptr;
  };
  EXPECT_TRUE(is_read(segment));
  const auto with = [&](auto GstSegment::*field, auto value) {
    GstSegment lie = segment;
    lie.*field = value;
    return is_read(lie);
  };
  EXPECT_TRUE(with(&GstSegment::rate, 1.5));
  EXPECT_FALSE(with(&GstSegment::rate, 0.));
  EXPECT_FALSE(with(&GstSegment::rate, -1.)) << "backwards from no end";
  GstSegment backwards = segment;
  backwards.rate = -1;
  backwards.duration = 7 * GST_SECOND;
  EXPECT_TRUE(is_read(backwards)) << "from the end of what is known to last so long";
  backwards.offset = 8 * GST_SECOND;
  EXPECT_FALSE(is_read(backwards)) << "from before its end";
  backwards.stop = 9 * GST_SECOND;
  EXPECT_TRUE(is_read(backwards));
  EXPECT_FALSE(with(&GstSegment::applied_rate, 0.));
  EXPECT_FALSE(with(&GstSegment::rate, std::numeric_limits<double>::infinity()));
  constexpr gint no_format = 12345;
  std::memcpy(&segment.format, &no_format, sizeof no_format);
  EXPECT_FALSE(is_read(segment));
}

bool is_taken(const VideoLayout& layout, std::uint64_t bytes) {
  const Buffer buffer(gst_buffer_new());
  std::optional<VideoLayout> read;
  if (read_layout(text_of(layout), read)) {
    EXPECT_EQ(add_layout(buffer.get(), *read, bytes), fits(layout, bytes));
  }
  return gst_buffer_get_video_meta(buffer.get()) != nullptr;
}

// Rows that reach out of a frame would be read.
// The clock of one side may count from 1900, as GstNtpClock does.
TEST(LinkText, OfTimesIsReadWhereNoSumOverflows) {
  constexpr GstClockTimeDiff year = GstClockTimeDiff{365} * 24 * 3600 * GST_SECOND;
  const auto is_read = [](const Channel::FarTime& time) {
    Channel::FarTime read;
    const bool taken = read_time(text_of(time), read);
    EXPECT_TRUE(!taken || read == time);
    return taken;
  };
  EXPECT_TRUE(is_read({}));
  EXPECT_TRUE(is_read({.playing = true, .base = 127 * year, .ahead = 127 * year - 3}));
  EXPECT_TRUE(is_read({.playing = true, .base = 0, .ahead = 136 * year}));
  EXPECT_TRUE(is_read({.stopped = 3, .ahead = 127 * year}));
  EXPECT_TRUE(is_read({.clockless = true}));
  EXPECT_FALSE(is_read({.playing = true, .base = 139 * year, .ahead = -3 * year}));
  EXPECT_FALSE(is_read({.playing = true, .base = 141 * year, .ahead = 141 * year}));
  EXPECT_FALSE(is_read({.stopped = -141 * year}));
  constexpr auto most = std::numeric_limits<GstClockTimeDiff>::max();
  EXPECT_FALSE(is_read({.playing = true, .base = most, .ahead = -most}));
}

TEST(LinkText, OfALayoutThatDoesNotFitIsNone) {
  int formats = 0;
  for (int format = GST_VIDEO_FORMAT_ENCODED + 1; is_known_value(GST_TYPE_VIDEO_FORMAT, format); ++format) {
    GstVideoInfo info;
    gst_video_info_set_format(&info, static_cast<GstVideoFormat>(format), 33, 7);
    if (GST_VIDEO_INFO_N_PLANES(&info) == 0) continue;  // as DMA_DRM of GStreamer 1.24
    ++formats;
    VideoLayout layout;
    layout.format = static_cast<std::uint32_t>(format);
    layout.width = 33;
    layout.height = 7;
    layout.planes = GST_VIDEO_INFO_N_PLANES(&info);
    for (std::uint32_t plane = 0; plane < layout.planes; ++plane) {
      layout.offset[plane] = GST_VIDEO_INFO_PLANE_OFFSET(&info, plane);
      layout.stride[plane] = GST_VIDEO_INFO_PLANE_STRIDE(&info, plane);
    }
    const char* const name = info.finfo->name;
    EXPECT_TRUE(is_taken(layout, info.size)) << name;
    EXPECT_FALSE(is_taken(layout, info.size / 2)) << name;
    if (GST_VIDEO_FORMAT_INFO_IS_TILED(info.finfo)) {
      // More tiles than it needs beside each other, and above each other, and then one less than that.
      const auto x = static_cast<std::uint64_t>(GST_VIDEO_TILE_X_TILES(layout.stride[0]));
      const auto y = static_cast<std::uint64_t>(GST_VIDEO_TILE_Y_TILES(layout.stride[0]));
      const auto is_taken_with = [&](std::uint64_t across, std::uint64_t down, std::uint64_t bytes) {
        VideoLayout tiles = layout;
        tiles.stride[0] = static_cast<std::int32_t>(GST_VIDEO_TILE_MAKE_STRIDE(across, down));
        return is_taken(tiles, bytes);
      };
      const std::uint64_t tile = GST_VIDEO_FORMAT_INFO_TILE_SIZE(info.finfo, 0);
      const std::uint64_t plenty = std::uint64_t{4} << 20U;
      EXPECT_TRUE(is_taken_with(x + 7, y + 3, plenty)) << name;
      EXPECT_FALSE(is_taken_with(x + 7, y + 300, (x + 7) * (y + 300) * tile - 1)) << name;
      EXPECT_FALSE(is_taken_with(x - 1, y, plenty)) << name;
      EXPECT_FALSE(is_taken_with(x, y - 1, plenty)) << name;
    }
    for (const std::uint32_t lie : {500U, static_cast<std::uint32_t>(G_MAXINT), 1U << 31U, ~0U}) {
      VideoLayout wide = layout;
      VideoLayout high = layout;
      wide.width = lie;
      high.height = lie;
      EXPECT_FALSE(is_taken(wide, info.size)) << name << lie;
      EXPECT_FALSE(is_taken(high, info.size)) << name << lie;
    }
  }
  EXPECT_GT(formats, 90);
  std::optional<VideoLayout> none;
  for (const std::uint32_t lie : {0U, 1U, 100'000U, ~0U}) {
    VideoLayout layout;
    layout.format = lie;
    layout.planes = 1;
    EXPECT_FALSE(read_layout(text_of(layout), none)) << lie;
  }
}

// Of so many tiles the numbers wrap round in what GStreamer takes for the stride.
TEST(LinkText, OfALayoutOfTilesBeyondAllNumbersIsNone) {
  for (const GstVideoFormat format : {GST_VIDEO_FORMAT_NV12_64Z32, GST_VIDEO_FORMAT_NV12_4L4}) {
    for (const std::uint32_t width : {65536U * 4, 65536U * 64, 65536U * 64 + 64}) {
      GstVideoInfo usual;
      if (gst_video_info_set_format(&usual, format, width, 3) == 0) continue;
      VideoLayout layout;
      layout.format = format;
      layout.width = width;
      layout.height = 3;
      layout.planes = 2;
      for (const std::uint32_t plane : {0U, 1U}) layout.stride[plane] = GST_VIDEO_INFO_PLANE_STRIDE(&usual, plane);
      EXPECT_FALSE(is_taken(layout, std::uint64_t{1} << 20U)) << width;
    }
  }
}

TEST(LinkText, OfALayoutHasRowsForAllThatLiesInThem) {
  // Of 33 pixels the last pair is whole: its colours lie behind its one luma.
  for (const GstVideoFormat format : {GST_VIDEO_FORMAT_YUY2, GST_VIDEO_FORMAT_UYVY, GST_VIDEO_FORMAT_VYUY}) {
    VideoLayout layout;
    layout.format = format;
    layout.width = 33;
    layout.height = 7;
    layout.planes = 1;
    layout.stride[0] = 68;
    EXPECT_TRUE(is_taken(layout, std::uint64_t{7} * 68));
    layout.stride[0] = 66;
    EXPECT_FALSE(is_taken(layout, std::uint64_t{7} * 68));
  }
}

TEST(LinkText, OfSeeksAndQosThatCannotBeIsNone) {
  const WithComplaints go_on;
  const auto is_read = [](GstEventType type, const std::string& structure) {
    NewNames names;
    const UpstreamAsked asked = asked_of(written(type, structure), names);
    const Query none(asked.query);
    return Event(asked.event) != nullptr;
  };
  const auto qos = [&](const std::string& fields) { return is_read(GST_EVENT_QOS, "x, " + fields + ";"); };
  EXPECT_TRUE(qos("proportion=(double)0.5, diff=(gint64)-3, timestamp=(guint64)3"));
  for (const char* const lie : {"-1", "nan", "inf"}) EXPECT_FALSE(qos(std::string("proportion=(double)") + lie)) << lie;
  EXPECT_FALSE(qos("timestamp=(guint64)18446744073709551615"));
  EXPECT_TRUE(says_qos(written(GST_EVENT_QOS, "x, n=(int)1;")));
  EXPECT_FALSE(says_qos(written(GST_EVENT_SEEK, "x, n=(int)1;")));
  EXPECT_FALSE(qos("diff=(gint64)-9223372036854775808, timestamp=(guint64)2"));
  for (const char* const rate : {"0.001", "-0.001", "1000"}) {
    EXPECT_TRUE(is_read(GST_EVENT_SEEK, std::string("x, rate=(double)") + rate + ";")) << rate;
  }
  // With 1e-300 the second frame is due in more years than a clock can count.
  for (const char* const lie : {"0", "nan", "inf", "1e-300", "-1e-300", "5e-324", "1e300"}) {
    EXPECT_FALSE(is_read(GST_EVENT_SEEK, std::string("x, rate=(double)") + lie + ";")) << lie;
  }
  // What GStreamer's functions that make or take such an event assert.
  const std::string least = "-9223372036854775808";
  const auto seek = [&](const std::string& stop_type, const std::string& start, const std::string& stop,
                        const std::string& flags = "flush") {
    return is_read(GST_EVENT_SEEK, "x, flags=(GstSeekFlags)" + flags + ", cur-type=(GstSeekType)set, cur=(gint64)" +
                                       start + ", stop-type=(GstSeekType)" + stop_type + ", stop=(gint64)" + stop +
                                       ";");
  };
  EXPECT_TRUE(seek("set", "7", "7"));
  EXPECT_TRUE(seek("set", "7", "-1"));
  EXPECT_TRUE(seek("end", "7", "-9"));
  EXPECT_TRUE(seek("set", least, "-2"));
  EXPECT_FALSE(seek("set", "7", "6"));
  // A live source would wait for it, and no stop would end that.
  EXPECT_TRUE(seek("none", "4000000000000000000", "-1"));
  EXPECT_FALSE(seek("none", "9000000000000000000", "-1"));
  EXPECT_FALSE(seek("set", "7", "9000000000000000000"));
  EXPECT_FALSE(seek("set", "7", least));
  EXPECT_FALSE(seek("none", "7", "-1", "instant-rate-change"));
  EXPECT_FALSE(is_read(GST_EVENT_SEEK, "x, format=(GstFormat)undefined;"));
  EXPECT_TRUE(is_read(GST_EVENT_SEEK, "x, format=(GstFormat)bytes;"));
  EXPECT_FALSE(is_read(GST_EVENT_SEEK, "x, flags=(GstSeekFlags)flush+instant-rate-change;"));
  EXPECT_TRUE(is_read(GST_EVENT_SEEK, "x, flags=(GstSeekFlags)instant-rate-change;"));
}

// The caller adds to it, and GStreamer asserts that a least latency is one.
TEST(LinkText, OfALatencyThatCannotBeIsNoAnswer) {
  const auto is_answer = [](const char* min, const char* max) {
    const Query query(gst_query_new_latency());
    const std::string fields = std::string("min-latency=(guint64)") + min + ", max-latency=(guint64)" + max;
    LinkText text = written(GST_EVENT_UNKNOWN, "x, live=(boolean)true, " + fields + ";");
    text[0] = std::byte{3};
    text[1] = std::byte{1};
    NewNames names;
    return read_answer(text, query.get(), names);
  };
  const char* const none = "18446744073709551615";
  EXPECT_TRUE(is_answer("5", "7"));
  EXPECT_TRUE(is_answer("5", none));
  EXPECT_FALSE(is_answer(none, none));
  EXPECT_TRUE(is_answer("7", "5")) << "pipelines warn of it";
  EXPECT_FALSE(is_answer("5", "18446744073709551614"));
  EXPECT_FALSE(is_answer("9223372036854775807", none));
}

// GStreamer asserts that there is a format to answer in.
TEST(LinkText, OfAQuestionThatCannotBeIsNone) {
  const auto asks = [](GstQueryType type, const std::string& fields) {
    NewNames names;
    LinkText text = written(static_cast<GstEventType>(type), "x, " + fields + ";");
    text[0] = std::byte{2};
    return Query(asked_of(text, names).query);
  };
  for (const GstQueryType type : {GST_QUERY_POSITION, GST_QUERY_DURATION, GST_QUERY_SEEKING, GST_QUERY_SEGMENT}) {
    EXPECT_TRUE(asks(type, "format=(GstFormat)bytes")) << type;
    EXPECT_FALSE(asks(type, "format=(GstFormat)undefined")) << type;
  }
  EXPECT_TRUE(asks(GST_QUERY_CONVERT, "src_format=(GstFormat)time, dest_format=(GstFormat)bytes"));
  EXPECT_FALSE(asks(GST_QUERY_CONVERT, "src_format=(GstFormat)time, dest_format=(GstFormat)undefined"));
  EXPECT_FALSE(asks(GST_QUERY_CONVERT, "src_format=(GstFormat)undefined, dest_format=(GstFormat)time"));
  const Query latency = asks(GST_QUERY_LATENCY, "min-latency=(guint64)18446744073709551615");
  ASSERT_TRUE(latency);
  GstClockTime least = 1;
  gst_query_parse_latency(latency.get(), nullptr, &least, nullptr);
  EXPECT_EQ(least, 0U) << "what a question says is no answer";
}

/// One of each that crosses, as it is sent.
std::vector<LinkText> sent_upstream() {
  std::vector<LinkText> texts;
  const auto add_event = [&](GstEvent* event) { texts.push_back(text_of_upstream(Event(event).get())); };
  const auto add_query = [&](GstQuery* query) { texts.push_back(text_of(Query(query).get())); };
  add_event(
      gst_event_new_seek(-1.5, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET, 7, GST_SEEK_TYPE_END, -9));
  add_event(gst_event_new_qos(GST_QOS_TYPE_THROTTLE, 0.5, -3, 8));
  add_event(gst_event_new_navigation(
      gst_structure_new("application/x-gst-navigation", "event", G_TYPE_STRING, "key-press", nullptr)));
  add_event(gst_event_new_reconfigure());
  add_event(gst_event_new_custom(
      GST_EVENT_CUSTOM_UPSTREAM,
      gst_structure_new("GstForceKeyUnit", "all-headers", G_TYPE_BOOLEAN, TRUE, "count", G_TYPE_UINT, 3, nullptr)));
  add_event(gst_event_new_custom(GST_EVENT_CUSTOM_BOTH_OOB, gst_structure_new_empty("both")));
  add_query(gst_query_new_position(GST_FORMAT_BYTES));
  add_query(gst_query_new_duration(GST_FORMAT_TIME));
  add_query(gst_query_new_seeking(GST_FORMAT_TIME));
  add_query(gst_query_new_latency());
  add_query(gst_query_new_segment(GST_FORMAT_TIME));
  add_query(gst_query_new_convert(GST_FORMAT_TIME, 17, GST_FORMAT_BYTES));
  add_query(gst_query_new_custom(
      GST_QUERY_CUSTOM,
      gst_structure_new("mine", "caps", GST_TYPE_CAPS, new_caps("audio/x-raw,rate=[1,5]").get(), nullptr)));
  return texts;
}

std::vector<LinkText> sent_downstream() {
  std::vector<LinkText> texts;
  const auto add = [&](GstEvent* event) { texts.push_back(text_of(Event(event).get())); };
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  add(gst_event_new_stream_start("a stream"));
  add(gst_event_new_caps(video_caps("NV12", 33, 7).get()));
  add(gst_event_new_segment(&segment));
  add(gst_event_new_tag(gst_tag_list_new(GST_TAG_TITLE, "a \"title\", [x]", GST_TAG_TRACK_NUMBER, 3, nullptr)));
  add(gst_event_new_gap(1, 2));
  for (GstEvent* const one : events_with_objects()) add(one);
  texts.erase(texts.begin());  // two begin a stream
  add(gst_event_new_eos());
  add(gst_event_new_flush_start());
  add(gst_event_new_flush_stop(TRUE));
  add(gst_event_new_latency(20));
  for (const GstEventType type : custom_downstream) {
    add(gst_event_new_custom(type, gst_structure_new("mine", "text", G_TYPE_STRING, "x", "n", G_TYPE_INT, 1, nullptr)));
  }
  return texts;
}

/// Texts that are nearly right: letters changed, pieces left out, doubled, or of another text.
class Liar {
 public:
  explicit Liar(std::vector<LinkText> texts) : texts_(std::move(texts)) {}
  LinkText next() {
    LinkText text = one();
    for (std::size_t changes = below(4); changes > 0 && !text.empty(); --changes) {
      const std::size_t at = below(text.size());
      const auto begin = text.begin() + static_cast<std::ptrdiff_t>(at);
      const auto length = static_cast<std::ptrdiff_t>(below(std::min<std::size_t>(text.size() - at, 20)));
      static constexpr std::string_view marks = "[]{}<>()\"\\,;= 0-9NULL\0x";
      switch (below(5)) {
        case 0:
          text[at] = static_cast<std::byte>(random_());
          break;
        case 1:
          text[at] = static_cast<std::byte>(marks[below(marks.size())]);
          break;
        case 2:
          text.erase(begin, begin + length);
          break;
        case 3: {
          const LinkText piece(begin, begin + length);
          text.insert(text.begin() + static_cast<std::ptrdiff_t>(below(text.size())), piece.begin(), piece.end());
          break;
        }
        default: {
          const LinkText& other = one();
          text.resize(at);
          text.insert(text.end(), other.begin() + static_cast<std::ptrdiff_t>(below(other.size())), other.end());
        }
      }
    }
    return text;
  }

 private:
  std::size_t below(std::size_t end) {
    return end == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }
  const LinkText& one() { return texts_[below(texts_.size())]; }

  const std::vector<LinkText> texts_;
  std::mt19937 random_{5};
};

constexpr int tries = 30'000;

TEST(LinkText, OfALiarUpstreamIsNothingThatDoesNotCross) {
  const WithComplaints go_on;
  Liar liar(sent_upstream());
  NewNames names;
  int events = 0;
  int queries = 0;
  for (int turn = 0; turn < tries; ++turn) {
    const LinkText text = liar.next();
    const UpstreamAsked asked = asked_of(text, names);
    const Event event(asked.event);
    const Query query(asked.query);
    ASSERT_FALSE(event && query);
    if (event) {
      ++events;
      ASSERT_FALSE(text_of_upstream(event.get()).empty()) << GST_EVENT_TYPE_NAME(event.get());
      ASSERT_NE(gst_event_type_get_flags(GST_EVENT_TYPE(event.get())) & GST_EVENT_TYPE_UPSTREAM, 0);
      if (GST_EVENT_TYPE(event.get()) == GST_EVENT_SEEK) {
        gdouble rate = 0;
        gst_event_parse_seek(event.get(), &rate, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
        ASSERT_TRUE(rate != 0 && std::isfinite(rate));
      }
    }
    if (query) {
      ++queries;
      ASSERT_FALSE(text_of(query.get()).empty()) << GST_QUERY_TYPE_NAME(query.get());
    }
    // The same bytes as an answer change nothing but values.
    const Query own(gst_query_new_seeking(GST_FORMAT_TIME));
    (void)read_answer(text, own.get(), names);
    ASSERT_EQ(gst_structure_n_fields(gst_query_get_structure(own.get())), 4);
  }
  EXPECT_GT(events, tries / 10) << "it lies too much";
  EXPECT_GT(queries, tries / 10);
  EXPECT_LT(events + queries, tries) << "it never lies";
}

TEST(LinkText, OfALiarDownstreamIsNothingThatDoesNotCross) {
  const WithComplaints go_on;
  std::set<GstEventType> kinds;
  for (const LinkText& text : sent_downstream()) kinds.insert(GST_EVENT_TYPE(read_event(text).get()));
  ASSERT_EQ(kinds.size(), sent_downstream().size());
  Liar liar(sent_downstream());
  NewNames names;
  int events = 0;
  for (int turn = 0; turn < tries; ++turn) {
    const Event event(event_of(liar.next(), names));
    if (!event) continue;
    ++events;
    const GstEventType type = GST_EVENT_TYPE(event.get());
    ASSERT_TRUE(kinds.contains(type)) << GST_EVENT_TYPE_NAME(event.get());
    if (type == GST_EVENT_STREAM_START) {
      const gchar* id = nullptr;
      gst_event_parse_stream_start(event.get(), &id);
      ASSERT_NE(id, nullptr);
    } else if (type == GST_EVENT_CAPS) {
      GstCaps* caps = nullptr;
      gst_event_parse_caps(event.get(), &caps);
      ASSERT_TRUE(caps != nullptr && gst_caps_is_fixed(caps));
    } else if (type == GST_EVENT_SEGMENT) {
      const GstSegment* segment = nullptr;
      gst_event_parse_segment(event.get(), &segment);
      ASSERT_TRUE(segment != nullptr && segment->rate != 0 && segment->applied_rate != 0);
    } else if (type == GST_EVENT_TAG) {
      GstTagList* tags = nullptr;
      gst_event_parse_tag(event.get(), &tags);
      ASSERT_NE(tags, nullptr);
    }
  }
  EXPECT_GT(events, tries / 10) << "it lies too much";
  EXPECT_LT(events, tries) << "it never lies";
}

}  // namespace
}  // namespace gpumap::gst::test
