// SPDX-License-Identifier: MIT
// GStreamer's structures of a peer that lies, or has another version: all that GStreamer puts into one crosses as it
// is, and what comes of the rest is what this process knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "gpumap/link.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/structure_bytes.hpp"
#include "link_written.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using Event = Ptr<GstEvent>;
using Structure = Ptr<GstStructure>;
using Tags = Ptr<GstTagList>;

Structure again(const GstStructure* structure, unsigned left_out = 0) {
  LinkText text;
  EXPECT_EQ(put_structure(text, structure, max_link_message), left_out);
  return read_structure(text);
}

std::string text_of(const Structure& structure) {
  return structure ? Ptr<gchar>(gst_structure_to_string(structure.get())).get() : "none";
}

/// One of each kind of value, as GStreamer's text says it.
Structure one_of_each() {
  Structure all = parsed(
      "all, b=(boolean)true, i=(int)-7, u=(uint)4000000000, i64=(gint64)-9000000000, "
      "u64=(guint64)18446744073709551615, "
      "f=(float)1.5, d=(double)2.25, s=(string)\"a \\\"text\\\", [x]\", r=(fraction)30000/1001, ir=(int)[ 2, 8, 2 ], "
      "lr=(gint64)[ 1, 9000000000 ], dr=(double)[ 0.5, 1.5 ], fr=(fraction)[ 1/2, 60/1 ], m=(bitmask)0x3, "
      "l=(int){ 1, [ 3, 5 ] }, a=(string)< \"x\", \"y\" >, n=(int)< < 1, 2 >, < 3 > >, e=(GstFormat)time, "
      "fl=(GstSeekFlags)flush+accurate, date=(date)2026-02-03, dt=(datetime)2026-02-03T04:05:06Z, t=(GType)gint, "
      "caps=(GstCaps)\"video/x-raw(memory:GPUMap),format={NV12,I420},width=[1,2147483647]\", "
      "st=(structure)\"inner,x=(int)1;\"");
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  segment.start = 17;
  const Buffer bytes(gst_buffer_new_memdup("\0\1\2", 3));
  GBytes* const raw = g_bytes_new("\0\xff", 2);
  GstStructure* const no_more = nullptr;
  const Ptr<GstSample> sample(gst_sample_new(bytes.get(), new_caps("image/png,width=3").get(), &segment, no_more));
  gst_structure_set(all.get(), "segment", GST_TYPE_SEGMENT, &segment, "buffer", GST_TYPE_BUFFER, bytes.get(), "sample",
                    GST_TYPE_SAMPLE, sample.get(), "bytes", G_TYPE_BYTES, raw, "none", G_TYPE_STRING, nullptr, "c",
                    G_TYPE_CHAR, 'c', "uc", G_TYPE_UCHAR, 200, "lo", G_TYPE_LONG, -3L, "ul", G_TYPE_ULONG, 3UL,
                    nullptr);
  g_bytes_unref(raw);
  return all;
}

// GStreamer would assert.
TEST(LinkStructureBytes, DatesThatAreNoneAreNotRead) {
  const std::string good = "2020-02-03T04:05:06+0130";
  const auto read = [&good](const std::string& date) {
    LinkText text;
    EXPECT_EQ(put_structure(text, parsed("x, d=(datetime)" + good).get(), max_link_message), 0U);
    const auto at = std::search(text.begin(), text.end(), good.begin(), good.end(),
                                [](auto byte, char c) { return static_cast<char>(byte) == c; });
    EXPECT_NE(at, text.end());
    std::transform(date.begin(), date.end(), at, [](char c) { return static_cast<std::byte>(c); });
    const Structure structure = read_structure(text);
    return structure && gst_structure_has_field(structure.get(), "d") != 0;
  };
  EXPECT_TRUE(read(good));
  for (const std::string date :
       {"2020-02-03T04:05:06-9999", "2020-02-03T04:05:06+1401", "2020-02-03T04:05:06+0160", "2020-02-31T04:05:06+0130",
        "2020-13-03T04:05:06+0130", "2020-02-03T24:05:06+0130", "2020-02-03T04:05:60+0130", "2020-0:-03T04:05:06+0130",
        "0000-02-03T04:05:06+0130", "2020-02-03T04:05:06 0130", "2020-02-03T-4:05:06+0130", "2020-02-03T04:05:06+01-3",
        "2020-02-03T04:05:06+0130"}) {
    EXPECT_EQ(read(date), date == good) << date;
  }
  for (const char* const partly : {"2020", "2020-02", "2020-02-03", "2020-02-03T04:05Z", "2020-02-03T04:05:06Z"}) {
    const Structure one = parsed(std::string("x, d=(datetime)") + partly);
    EXPECT_EQ(text_of(again(one.get())), text_of(one));
  }
}

TEST(LinkStructureBytes, AreReadAsTheyWereWritten) {
  const Structure all = one_of_each();
  ASSERT_GT(gst_structure_n_fields(all.get()), 30);
  LinkText text;
  ASSERT_EQ(put_structure(text, all.get(), max_link_message), 0U);
  const Structure read = read_structure(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(gst_structure_n_fields(read.get()), gst_structure_n_fields(all.get()));
  LinkText second;
  EXPECT_EQ(put_structure(second, read.get(), max_link_message), 0U);
  EXPECT_TRUE(second == text) << text_of(read);
  // Bytes are compared by their place: without them both say the same.
  for (const char* const field : {"buffer", "sample", "bytes", "segment"}) {
    gst_structure_remove_field(all.get(), field);
    gst_structure_remove_field(read.get(), field);
  }
  EXPECT_EQ(text_of(read), text_of(all));
  for (const char* const caps :
       {"ANY", "EMPTY", "audio/x-raw,rate=[1,5];video/x-raw(ANY),a=b", "a/b(memory:X,meta:Y)"}) {
    LinkText written;
    const Caps one = new_caps(caps);
    ASSERT_TRUE(put_caps(written, one.get(), max_link_message)) << caps;
    ByteReader reader(written);
    NewNames names;
    const Caps same(take_caps(reader, names));
    ASSERT_TRUE(same) << caps;
    EXPECT_TRUE(gst_caps_is_strictly_equal(same.get(), one.get())) << caps;
  }
}

// GStreamer has no text for most of them.
TEST(LinkStructureBytes, SayTablesStreamsAndMessagesAsTheyAre) {
  for (GstEvent* const one : events_with_objects()) {
    const Event sent(one);
    SCOPED_TRACE(GST_EVENT_TYPE_NAME(one));
    unsigned left_out = 1;
    const LinkText text = gst::text_of(sent.get(), &left_out);
    EXPECT_EQ(left_out, 0U);
    const Event event = read_event(text);
    ASSERT_TRUE(event);
    EXPECT_TRUE(gst::text_of(event.get()) == text);
    switch (GST_EVENT_TYPE(event.get())) {
      case GST_EVENT_STREAM_START: {
        GstStream* stream = nullptr;
        gst_event_parse_stream(event.get(), &stream);
        const Ptr<GstStream> owned(stream);
        ASSERT_TRUE(owned);
        EXPECT_STREQ(gst_stream_get_stream_id(stream), "of-video");
        EXPECT_EQ(gst_stream_get_stream_type(stream), GST_STREAM_TYPE_VIDEO);
        EXPECT_EQ(gst_stream_get_stream_flags(stream), GST_STREAM_FLAG_SELECT);
        const Caps caps(gst_stream_get_caps(stream));
        EXPECT_TRUE(gst_caps_is_strictly_equal(caps.get(), new_caps("video/x-h264,width=33").get()));
        const Tags tags(gst_stream_get_tags(stream));
        EXPECT_EQ(gst_tag_list_get_tag_size(tags.get(), GST_TAG_TITLE), 1U);
        break;
      }
      case GST_EVENT_STREAM_COLLECTION: {
        GstStreamCollection* collection = nullptr;
        gst_event_parse_stream_collection(event.get(), &collection);
        const Ptr<GstStreamCollection> owned(collection);
        ASSERT_EQ(gst_stream_collection_get_size(collection), 2U);
        EXPECT_STREQ(gst_stream_collection_get_upstream_id(collection), "of-file");
        EXPECT_STREQ(gst_stream_get_stream_id(gst_stream_collection_get_stream(collection, 1)), "of-text");
        break;
      }
      case GST_EVENT_TOC: {
        GstToc* toc = nullptr;
        gboolean updated = FALSE;
        gst_event_parse_toc(event.get(), &toc, &updated);
        const Ptr<GstToc> owned(toc);
        EXPECT_TRUE(updated);
        EXPECT_TRUE(gst_event_has_name(event.get(), "GstEventTocGlobal"));
        GstTocEntry* const second = gst_toc_find_entry(toc, "second");
        ASSERT_NE(second, nullptr);
        EXPECT_EQ(gst_toc_entry_get_entry_type(second), GST_TOC_ENTRY_TYPE_CHAPTER);
        EXPECT_STREQ(gst_toc_entry_get_uid(gst_toc_entry_get_parent(second)), "all");
        gint64 start = 0, stop = 0;
        EXPECT_TRUE(gst_toc_entry_get_start_stop_times(second, &start, &stop));
        EXPECT_EQ(start, 17);
        EXPECT_EQ(stop, 9'000'000'000);
        GstTocLoopType loop{};
        gint repeats = 0;
        EXPECT_TRUE(gst_toc_entry_get_loop(second, &loop, &repeats));
        EXPECT_EQ(loop, GST_TOC_LOOP_PING_PONG);
        EXPECT_EQ(repeats, 3);
        break;
      }
      case GST_EVENT_SINK_MESSAGE: {
        GstMessage* message = nullptr;
        gst_event_parse_sink_message(event.get(), &message);
        const Ptr<GstMessage> owned(message);
        EXPECT_EQ(GST_MESSAGE_TYPE(message), GST_MESSAGE_ELEMENT);
        EXPECT_TRUE(gst_message_has_name(message, "mark"));
        EXPECT_TRUE(gst_event_has_name(event.get(), "mine"));
        break;
      }
      default:
        break;
    }
  }
  const Ptr<GstMessage> error(gst_message_new_eos(nullptr));
  const Event refused(gst_event_new_sink_message("mine", error.get()));
  EXPECT_TRUE(gst::text_of(refused.get()).empty()) << "GStreamer's own messages are of this process";
}

// Paths and JSON: what GStreamer's text cannot tell from an escaped character, or from lists that are nested.
TEST(LinkStructureBytes, SayAnyTextAsItIs) {
  std::string brackets;
  for (int n = 0; n < 300; ++n) brackets += "[{\"a\":[<" + std::to_string(n) + ">]}],";
  for (const std::string& text : {std::string("E:\\100photos"), std::string("\\133\\\\\\"), brackets, std::string(),
                                  std::string("(sample) of \"x\";"), std::string("Grüße \x1b[2J\n")}) {
    const Structure one(gst_structure_new("mine", "text", G_TYPE_STRING, text.c_str(), nullptr));
    const Structure read = again(one.get());
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(gst_structure_get_string(read.get(), "text"), text);
    GstCaps* const caps = gst_caps_new_simple("application/x-mine", "path", G_TYPE_STRING, text.c_str(), nullptr);
    const Event sent(gst_event_new_caps(caps));
    gst_caps_unref(caps);
    const Event event = read_event(gst::text_of(sent.get()));
    ASSERT_TRUE(event) << text;
    GstCaps* crossed = nullptr;
    gst_event_parse_caps(event.get(), &crossed);
    EXPECT_EQ(gst_structure_get_string(gst_caps_get_structure(crossed, 0), "path"), text);
  }
}

// Of a pointer, or of an application's object, nothing can be said; of the others it can.
TEST(LinkStructureBytes, LeaveOutAFieldAndNotTheOthers) {
  int here = 0;
  const Structure one(gst_structure_new("mine", "before", G_TYPE_INT, 1, "pointer", G_TYPE_POINTER, &here, "after",
                                        G_TYPE_STRING, "x", nullptr));
  EXPECT_EQ(text_of(again(one.get(), 1)), "mine, before=(int)1, after=(string)x;");
  const Structure longer(gst_structure_new("mine", "a", G_TYPE_STRING, std::string(500, 'x').c_str(), "b", G_TYPE_INT,
                                           1, "c", G_TYPE_STRING, std::string(500, 'y').c_str(), nullptr));
  LinkText text;
  EXPECT_EQ(put_structure(text, longer.get(), 600), 1U);
  EXPECT_LE(text.size(), 600U);
  const Structure read = read_structure(text);
  ASSERT_TRUE(read);
  EXPECT_TRUE(gst_structure_has_field(read.get(), "a") && gst_structure_has_field(read.get(), "b"));
}

TEST(LinkStructureBytes, NestedTooDeeplyAreLeftOut) {
  for (const int depth : {deepest_value - 1, deepest_value, 1000}) {
    GValue value = G_VALUE_INIT;
    g_value_init(&value, G_TYPE_INT);
    for (int n = 1; n < depth; ++n) {
      GValue list = G_VALUE_INIT;
      g_value_init(&list, n % 2 == 0 ? GST_TYPE_LIST : GST_TYPE_ARRAY);
      if (n % 2 == 0) {
        gst_value_list_append_and_take_value(&list, &value);
      } else {
        gst_value_array_append_and_take_value(&list, &value);
      }
      value = list;
    }
    Structure one(gst_structure_new("mine", "n", G_TYPE_INT, 3, nullptr));
    gst_structure_take_value(one.get(), "deep", &value);
    const bool crosses = depth <= deepest_value;
    const Structure read = again(one.get(), crosses ? 0 : 1);
    ASSERT_TRUE(read);
    EXPECT_TRUE(gst_structure_has_field(read.get(), "n"));
    EXPECT_EQ(gst_structure_has_field(read.get(), "deep") != 0, crosses) << depth;
  }
}

// GStreamer checks a field's text, and no text in a list: its reader would give up all of the list's event.
TEST(LinkStructureBytes, AListWithBytesThatAreNoTextIsLeftOut) {
  GValue list = G_VALUE_INIT;
  g_value_init(&list, GST_TYPE_LIST);
  for (const char* const text : {"good", "n\xff"}) {
    GValue one = G_VALUE_INIT;
    g_value_init(&one, G_TYPE_STRING);
    g_value_set_string(&one, text);
    gst_value_list_append_and_take_value(&list, &one);
  }
  const Structure structure(gst_structure_new("mine", "n", G_TYPE_INT, 7, nullptr));
  gst_structure_take_value(structure.get(), "list", &list);
  EXPECT_EQ(text_of(again(structure.get(), 1)), "mine, n=(int)7;");
}

// A program that starts again and again is one user's, and clients take nothing from producers.
TEST(LinkStructureBytes, NamesOfOneUserLeaveRoomToOthers) {
  const auto exhaust = [](NewNames& names, const std::string& who) {
    std::size_t admitted = 0;
    while (names.admit((who + std::string(200, '-') + std::to_string(admitted)).c_str())) ++admitted;
    EXPECT_TRUE(names.tells_of_refusal());
    EXPECT_FALSE(names.tells_of_refusal()) << "once";
    return admitted;
  };
  std::size_t all = 0;
  for (int process = 0; process < 50; ++process) {
    NewNames names = NewNames::of_client(4711);
    all += exhaust(names, "process-" + std::to_string(process));
  }
  EXPECT_GT(all, 3000U);
  EXPECT_LT(all, 4000U);
  NewNames other = NewNames::of_client(4712);
  EXPECT_GT(exhaust(other, "other"), 800U);
  NewNames producer;
  EXPECT_GT(exhaust(producer, "producer"), 800U);
}

// GLib keeps each name for ever.
TEST(LinkStructureBytes, OfNewNamesTakeOnlyWhatHasRoom) {
  const auto text_with = [](const std::string& name) {
    // As a peer writes it: here the name is not known.
    LinkText text = bytes_of("GstCaps");
    put(text, std::uint32_t{2});
    for (const std::string& field : {std::string("width"), name}) {
      const LinkText letters = bytes_of(field);
      text.insert(text.end(), letters.begin(), letters.end());
      text.push_back(std::byte{4});
      put(text, std::uint32_t{4});
      put(text, gint{7});
    }
    return text;
  };
  NewNames names(1000);
  int admitted = 0;
  for (int n = 0; n < 1000; ++n) {
    const std::string name = "nobody-knows-" + std::to_string(n);
    const LinkText text = text_with(name);
    ByteReader reader(text);
    const Structure read(take_structure(reader, names));
    ASSERT_TRUE(read);
    EXPECT_TRUE(gst_structure_has_field(read.get(), "width"));
    admitted += gst_structure_n_fields(read.get()) - 1;
    EXPECT_EQ(NewNames::knows(name.c_str()), gst_structure_n_fields(read.get()) == 2);
  }
  EXPECT_GT(admitted, 5);
  EXPECT_LT(admitted, 20);
  // What is known costs nothing, and what is no name is none.
  (void)g_quark_from_static_string("somebody-knows");
  const LinkText known = text_with("somebody-knows");
  ByteReader reader(known);
  EXPECT_EQ(gst_structure_n_fields(Structure(take_structure(reader, names)).get()), 2);
  NewNames many;
  EXPECT_TRUE(many.admit("a-name-of-its-own"));
  EXPECT_FALSE(many.admit(std::string(NewNames::longest + 1, 'x').c_str()));
  EXPECT_FALSE(many.admit("no\xfftext"));
  EXPECT_FALSE(many.admit(""));
}

// Anything, and what is nearly right: each field of what is read can be written.
TEST(LinkStructureBytes, NoBytesDoAnyHarm) {
  LinkText whole;
  ASSERT_EQ(put_structure(whole, one_of_each().get(), max_link_message), 0U);
  std::mt19937 random(7);
  const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); };
  NewNames names;
  int read_ones = 0;
  for (int turn = 0; turn < 30'000; ++turn) {
    LinkText text = whole;
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      text[below(text.size())] = static_cast<std::byte>(turn % 2 == 0 ? random() : 1U << below(8));
    }
    if (turn % 7 == 0) text.resize(below(text.size()));
    ByteReader reader(text);
    const Structure read(take_structure(reader, names));
    if (!read) continue;
    ++read_ones;
    LinkText written;
    ASSERT_EQ(put_structure(written, read.get(), max_link_message), 0U) << text_of(read);
    const Structure same = read_structure(written);
    LinkText second;
    ASSERT_TRUE(same && put_structure(second, same.get(), max_link_message) == 0 && second == written);
  }
  EXPECT_GT(read_ones, 1000);
}

/// A value as another process writes it.
LinkText value_of(std::uint8_t kind, const std::vector<LinkText>& parts) {
  LinkText content;
  for (const LinkText& part : parts) content.insert(content.end(), part.begin(), part.end());
  LinkText text{std::byte{kind}};
  put(text, static_cast<std::uint32_t>(content.size()));
  text.insert(text.end(), content.begin(), content.end());
  return text;
}

// A decoder's plugin registers types, and a newer GStreamer has more values, of which the reading process knows none.
TEST(LinkStructureBytes, OfTypesThatAreNotKnownHaveTheirNumbers) {
  constexpr std::uint8_t enumeration = 14, flags = 15, flag_set = 16;
  const auto type = [](const char* name) { return bytes_of(name); };
  const std::vector<std::pair<const char*, LinkText>> fields{
      {"views",
       value_of(flag_set, {type("OfTomorrowFlagsSet"), numbers(std::uint32_t{5}), numbers(~std::uint32_t{0})})},
      {"mode", value_of(enumeration, {type("OfTomorrow"), numbers(std::int32_t{-3})})},
      {"format", value_of(enumeration, {type("GstFormat"), numbers(std::int32_t{12'345})})},
      {"marks", value_of(flags, {type("OfTomorrowFlags"), numbers(std::uint32_t{9})})},
  };
  LinkText structure = bytes_of("video/x-raw");
  put(structure, static_cast<std::uint32_t>(fields.size()));
  for (const auto& [name, value] : fields) {
    put_text(structure, name);
    structure.insert(structure.end(), value.begin(), value.end());
  }
  LinkText text;
  put(text, gboolean{FALSE});
  put(text, std::uint32_t{0});  // of features
  put(text, static_cast<std::uint32_t>(structure.size()));
  text.insert(text.end(), structure.begin(), structure.end());
  ByteReader reader(text);
  NewNames names;
  const Caps read(take_caps(reader, names));
  ASSERT_TRUE(read);
  const GstStructure* const one = gst_caps_get_structure(read.get(), 0);
  guint set = 0, mask = 0, marks = 0;
  gint mode = 0, format = 0;
  EXPECT_TRUE(gst_structure_get_flagset(one, "views", &set, &mask) && gst_structure_get_int(one, "mode", &mode) &&
              gst_structure_get_int(one, "format", &format) && gst_structure_get_uint(one, "marks", &marks));
  EXPECT_EQ(set, 5U);
  EXPECT_EQ(mask, ~0U);
  EXPECT_EQ(mode, -3);
  EXPECT_EQ(format, 12'345);
  EXPECT_EQ(marks, 9U);
  // A type of another kind is not one of these.
  for (const std::uint8_t kind : {enumeration, flags, flag_set}) {
    LinkText lie = bytes_of("mine");
    put(lie, std::uint32_t{1});
    put_text(lie, "lie");
    const LinkText value = value_of(
        kind, {type("GstCaps"), numbers(std::uint32_t{1}), kind == flag_set ? numbers(std::uint32_t{1}) : LinkText()});
    lie.insert(lie.end(), value.begin(), value.end());
    const Structure none = read_structure(lie);
    ASSERT_TRUE(none);
    EXPECT_EQ(gst_structure_n_fields(none.get()), 0);
  }
}

// An empty buffer takes 5 bytes in a message, and hundreds in memory.
TEST(LinkStructureBytes, OfMoreValuesThanCanBeHaveTheOthers) {
  constexpr std::uint8_t list = 23, buffer = 34;
  const LinkText empty = value_of(buffer, {});
  for (const bool nested : {false, true}) {
    for (const std::size_t count : {std::size_t{7000}, max_link_message / empty.size() / 2}) {
      const LinkText one = nested ? value_of(list, {empty}) : empty;
      LinkText text = bytes_of("mine");
      put(text, std::uint32_t{2});
      put_text(text, "n");
      const LinkText number = int_value(3);
      text.insert(text.end(), number.begin(), number.end());
      put_text(text, "many");
      const LinkText many = value_of(list, std::vector<LinkText>(count, one));
      text.insert(text.end(), many.begin(), many.end());
      const Structure read = read_structure(text);
      ASSERT_TRUE(read);
      EXPECT_TRUE(gst_structure_has_field(read.get(), "n"));
      EXPECT_EQ(gst_structure_has_field(read.get(), "many") != 0, count == 7000) << count;
      if (count != 7000) continue;
      LinkText again;
      EXPECT_EQ(put_structure(again, read.get(), max_link_message), 0U);
      EXPECT_TRUE(again == text);
    }
  }
}

Tags image_tags(std::size_t bytes) {
  const Data data = random_data(bytes, 5);
  const Buffer buffer(gst_buffer_new_memdup(data.data(), data.size()));
  const Ptr<GstSample> image(
      gst_sample_new(buffer.get(), new_caps("image/png,width=3").get(), nullptr,
                     gst_structure_new("GstTagImageInfo", "image-type", G_TYPE_INT, 3, nullptr)));
  return Tags(gst_tag_list_new(GST_TAG_IMAGE, image.get(), GST_TAG_TITLE, "(sample) of", nullptr));
}

TEST(LinkStructureBytes, OfAnImageAreReadAgain) {
  const Tags list = image_tags(100'001);
  const Event sent(gst_event_new_tag(gst_tag_list_copy(list.get())));
  const Event event = read_event(gst::text_of(sent.get()));
  ASSERT_TRUE(event);
  GstTagList* tags = nullptr;
  gst_event_parse_tag(event.get(), &tags);
  GstSample* read = nullptr;
  ASSERT_TRUE(gst_tag_list_get_sample(tags, GST_TAG_IMAGE, &read));
  const Ptr<GstSample> own(read);
  EXPECT_STREQ(gst_structure_get_name(gst_caps_get_structure(gst_sample_get_caps(read), 0)), "image/png");
  gint type = 0;
  EXPECT_TRUE(gst_structure_get_int(gst_sample_get_info(read), "image-type", &type));
  EXPECT_EQ(type, 3);
  EXPECT_EQ(data_of(gst_sample_get_buffer(read)), random_data(100'001, 5));
}

// Its title need not stay behind.
TEST(LinkStructureBytes, OfAnImageThatIsTooLargeHaveTheOtherTags) {
  const Tags list = image_tags(max_link_message + 1);
  const Event sent(gst_event_new_tag(gst_tag_list_copy(list.get())));
  unsigned left_out = 0;
  const Event event = read_event(gst::text_of(sent.get(), &left_out));
  EXPECT_EQ(left_out, 1U);
  ASSERT_TRUE(event);
  GstTagList* tags = nullptr;
  gst_event_parse_tag(event.get(), &tags);
  EXPECT_EQ(gst_tag_list_n_tags(tags), 1);
  EXPECT_EQ(gst_tag_list_get_tag_size(tags, GST_TAG_TITLE), 1U);
}

/// An event with tags as a peer that knows others writes them: as fields of a list.
Event tags_event(const std::vector<std::pair<std::string, LinkText>>& tags) {
  LinkText list;
  list.push_back(std::byte{0});
  for (const auto& [name, value] : tags) {
    const LinkText letters = bytes_of(name);
    list.insert(list.end(), letters.begin(), letters.end());
    list.insert(list.end(), value.begin(), value.end());
  }
  constexpr auto kind_of_tags = std::byte{32};
  LinkText text = event_head(GST_EVENT_TAG);
  for (const LinkText& part : {bytes_of("GstTagList-stream"), numbers(std::uint32_t{1}), bytes_of("taglist"),
                               LinkText{kind_of_tags}, numbers(static_cast<std::uint32_t>(list.size())), list}) {
    text.insert(text.end(), part.begin(), part.end());
  }
  return read_event(text);
}

// Of a newer GStreamer, or of an application that registers its own: GStreamer complains wherever they are merged.
TEST(LinkStructureBytes, OfTagsThatAreNotKnownHaveTheOthers) {
  using Pair = std::pair<std::string, LinkText>;
  const std::vector<Pair> known{
      {"title", string_value("a")}, {"artist", string_value("b")}, {"artist", string_value("c")}};
  const std::vector<Pair> foreign{{"of-tomorrow", int_value(1)},
                                  {"track-number", string_value("a")},
                                  {"composer", {std::byte{13}, {}, {}, {}, {}}},
                                  {"album", string_value("")},
                                  {"genre", int_value(1)}};
  for (std::size_t one = 0; one <= foreign.size(); ++one) {
    std::vector<Pair> tags = known;
    if (one < foreign.size()) tags.push_back(foreign[one]);
    const Event event = tags_event(tags);
    ASSERT_TRUE(event) << one;
    GstTagList* list = nullptr;
    gst_event_parse_tag(event.get(), &list);
    EXPECT_EQ(gst_tag_list_n_tags(list), 2) << one;
    EXPECT_EQ(gst_tag_list_get_tag_size(list, GST_TAG_ARTIST), 2U);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
