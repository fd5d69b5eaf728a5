// SPDX-License-Identifier: MIT
// GStreamer's structures of a peer that lies, or has another version: what would overrun GStreamer's reader does not
// get there, and what comes of the rest is what this process knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "gst/link/event_text.hpp"
#include "gst/link/structure_text.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using Event = Ptr<GstEvent>;
using Structure = Ptr<GstStructure>;

std::string base64(const std::string& text) {
  const Ptr<gchar> coded(g_base64_encode(reinterpret_cast<const guchar*>(text.c_str()), text.size() + 1));
  std::string field = coded.get();
  std::replace(field.begin(), field.end(), '=', '_');
  return field;
}

/// A sample as gst_structure_to_string() writes it, of an empty buffer.
std::string sample(const std::string& caps, const std::string& info) {
  const auto field = [](const std::string& text) { return text.empty() ? "None" : base64(text); };
  return ":" + field(caps) + ":None:" + field(info);
}

std::string lists(int count) {
  const auto times = static_cast<std::size_t>(count);
  return "x, a=" + std::string(times, '{') + "1" + std::string(times, '}') + ";";
}

bool is_read(const std::string& text) {
  return Structure(structure_of(text.c_str())) != nullptr;
}

// Each level takes stack, some twice the time: 30,000 fit into one message, and end the process.
TEST(LinkStructureText, OfASampleIsNoMoreNestedThanOthers) {
  for (const char* const name : {"(sample)", "(GstSample)", "( GstSample )"}) {
    const std::string head = std::string("mine, s=") + name;
    EXPECT_TRUE(is_read(head + sample("image/png", lists(1)) + ";"));
    EXPECT_TRUE(is_read(head + sample("image/png", lists(2)) + ";"));
    EXPECT_FALSE(is_read(head + sample("image/png", lists(3)) + ";")) << name;
    EXPECT_FALSE(is_read(head + sample(lists(3), "x") + ";")) << name;
    EXPECT_FALSE(is_read(head + sample("", lists(20'000)) + ";")) << name;
    EXPECT_FALSE(is_read(head + "{ " + sample("", "x") + ", " + sample("", lists(20'000)) + " };")) << name;
    EXPECT_FALSE(is_read(head + sample("", "x, s=(sample)" + sample("", "y")) + ";")) << name;
  }
  // Within a quoted structure each of these letters may be escaped.
  const std::string escaped = "mine, t=(structure)\"inner\\,\\ s\\=\\(\\s\\am\\ple\\)";
  EXPECT_TRUE(is_read(escaped + sample("", "x") + "\\;\";"));
  EXPECT_FALSE(is_read(escaped + sample("", lists(20'000)) + "\\;\";"));
}

std::string times(int count, const std::string& piece) {
  std::string all;
  for (int n = 0; n < count; ++n) all += piece;
  return all;
}

// 30 levels of the first take hours, 12,000 of the others the stack of a thread.
TEST(LinkStructureText, WhoseBracketsCloseNothingIsNotRead) {
  struct Level {
    int count;
    const char* open;
    const char* close;
  };
  for (const Level& level : {Level{10, "[x,b=\"}\",c=", "]"}, Level{300, "{\"}\",", "}"}, Level{300, "<\">\",", ">"},
                             Level{300, "{[x;}],", "}"}}) {
    const std::string text = "mine, a=" + times(level.count, level.open) + "1" + times(level.count, level.close) + ";";
    EXPECT_FALSE(is_read(text)) << level.open;
  }
  // Side by side there may be many, also as letters.
  EXPECT_TRUE(is_read("mine, a={ " + times(200, "{ 1, 2 }, ") + "3 }, b=\"" + times(20, "[a] {b} ") + "\";"));
}

TEST(LinkStructureText, OfAnImageIsReadAgain) {
  const Buffer bytes(gst_buffer_new_memdup("\1\2\3", 3));
  const Ptr<GstSample> image(
      gst_sample_new(bytes.get(), new_caps("image/png,width=3").get(), nullptr,
                     gst_structure_new("GstTagImageInfo", "image-type", G_TYPE_INT, 3, nullptr)));
  const Event sent(
      gst_event_new_tag(gst_tag_list_new(GST_TAG_IMAGE, image.get(), GST_TAG_TITLE, "(sample) of", nullptr)));
  const Event event(event_of(text_of(sent.get())));
  ASSERT_TRUE(event);
  GstTagList* tags = nullptr;
  gst_event_parse_tag(event.get(), &tags);
  GstSample* read = nullptr;
  ASSERT_TRUE(gst_tag_list_get_sample(tags, GST_TAG_IMAGE, &read));
  const Ptr<GstSample> own(read);
  EXPECT_TRUE(gst_caps_is_equal(gst_sample_get_caps(read), gst_sample_get_caps(image.get())));
  EXPECT_TRUE(gst_structure_is_equal(gst_sample_get_info(read), gst_sample_get_info(image.get())));
  EXPECT_EQ(gst_buffer_memcmp(gst_sample_get_buffer(read), 0, "\1\2\3", 3), 0);
}

/// An event with the tags that `list` says, as a peer writes them.
Event tags_event(const std::string& list) {
  const GstEventType type = GST_EVENT_TAG;
  const std::string written = "GstTagList-stream, taglist=(taglist)\"" + list + "\";";
  LinkText text(9);
  text[0] = std::byte{1};
  std::memcpy(&text[1], &type, 4);
  for (const char letter : written) text.push_back(static_cast<std::byte>(letter));
  text.push_back(std::byte{0});
  return Event(event_of(text));
}

// Of a newer GStreamer, or of an application that registers its own: GStreamer complains wherever they are merged.
TEST(LinkStructureText, OfTagsThatAreNotKnownHasTheOthers) {
  const std::string known = "title\\=\\(string\\)a\\,\\ artist\\=\\(string\\)\\{\\ b\\,\\ c\\ \\}";
  for (const char* const foreign :
       {"", "\\,\\ of-tomorrow\\=\\(int\\)1", "\\,\\ track-number\\=\\(string\\)a", "\\,\\ composer\\=\\(string\\)NULL",
        "\\,\\ album\\=\\(string\\)\\{\\ \\}", "\\,\\ genre\\=\\(int\\)\\{\\ 1\\,\\ 2\\ \\}"}) {
    const Event event = tags_event("taglist\\,\\ " + known + foreign + "\\;");
    ASSERT_TRUE(event) << foreign;
    GstTagList* tags = nullptr;
    gst_event_parse_tag(event.get(), &tags);
    EXPECT_EQ(gst_tag_list_n_tags(tags), 2) << foreign;
    EXPECT_EQ(gst_tag_list_get_tag_size(tags, GST_TAG_ARTIST), 2U);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
