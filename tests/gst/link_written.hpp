// SPDX-License-Identifier: MIT
// Bytes as a peer writes them beside frames, and what is read of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpumap/link.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/new_names.hpp"
#include "gst/channel/structure_bytes.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {

/// What GStreamer reads of a text of its own.
inline Ptr<GstStructure> parsed(const std::string& text) {
  Ptr<GstStructure> structure(gst_structure_from_string(text.c_str(), nullptr));
  EXPECT_TRUE(structure) << text;
  return structure;
}

inline LinkText bytes_of(const std::string& text) {
  LinkText bytes;
  put_text(bytes, text);
  return bytes;
}
template <typename Number>
LinkText numbers(Number one) {
  LinkText bytes;
  put(bytes, one);
  return bytes;
}
/// A value that is a string, and an int.
inline LinkText string_value(const std::string& text) {
  LinkText bytes{std::byte{12}};
  put(bytes, static_cast<std::uint32_t>(text.size() + 1));
  put_text(bytes, text);
  return bytes;
}
inline LinkText int_value(gint one) {
  LinkText bytes{std::byte{4}};
  put(bytes, std::uint32_t{4});
  put(bytes, one);
  return bytes;
}

/// What stands before an event's structure, downstream and upstream.
inline LinkText event_head(GstEventType type) {
  LinkText text{std::byte{1}};
  put(text, static_cast<std::uint32_t>(type));
  put(text, guint32{0});
  text.push_back(std::byte{1});
  return text;
}
/// An event's text that says `structure`, which is GStreamer's text; empty: none.
inline LinkText written(GstEventType type, const std::string& structure) {
  LinkText text = event_head(type);
  if (structure.empty()) {
    text.back() = std::byte{0};
  } else {
    (void)put_structure(text, parsed(structure).get(), max_link_message);
  }
  return text;
}

/// Those whose content is of GStreamer's own types. Transfer full.
inline std::vector<GstEvent*> events_with_objects() {
  const auto titled = [](const char* title) { return gst_tag_list_new(GST_TAG_TITLE, title, nullptr); };
  std::vector<GstEvent*> events;
  Ptr<GstStream> video(gst_stream_new("of-video", Ptr<GstCaps>(gst_caps_from_string("video/x-h264,width=33")).get(),
                                      GST_STREAM_TYPE_VIDEO, GST_STREAM_FLAG_SELECT));
  gst_stream_set_tags(video.get(), Ptr<GstTagList>(titled("a film")).get());
  events.push_back(gst_event_new_stream_start("of-video"));
  gst_event_set_stream(events.back(), video.get());
  const Ptr<GstStreamCollection> collection(gst_stream_collection_new("of-file"));
  gst_stream_collection_add_stream(collection.get(), video.release());
  gst_stream_collection_add_stream(collection.get(),
                                   gst_stream_new("of-text", nullptr, GST_STREAM_TYPE_TEXT, GST_STREAM_FLAG_SPARSE));
  events.push_back(gst_event_new_stream_collection(collection.get()));
  const Ptr<GstToc> toc(gst_toc_new(GST_TOC_SCOPE_GLOBAL));
  gst_toc_set_tags(toc.get(), titled("chapters"));
  GstTocEntry* const edition = gst_toc_entry_new(GST_TOC_ENTRY_TYPE_EDITION, "all");
  for (const char* const name : {"first", "second"}) {
    GstTocEntry* const chapter = gst_toc_entry_new(GST_TOC_ENTRY_TYPE_CHAPTER, name);
    gst_toc_entry_set_start_stop_times(chapter, 17, 9'000'000'000);
    gst_toc_entry_set_loop(chapter, GST_TOC_LOOP_PING_PONG, 3);
    gst_toc_entry_set_tags(chapter, titled(name));
    gst_toc_entry_append_sub_entry(edition, chapter);
  }
  gst_toc_append_entry(toc.get(), edition);
  events.push_back(gst_event_new_toc(toc.get(), TRUE));
  const Ptr<GstBuffer> key(gst_buffer_new_memdup("\0\xff\3", 3));
  events.push_back(gst_event_new_protection("of-some-system", key.get(), "mp4"));
  const Ptr<GstMessage> message(
      gst_message_new_element(nullptr, gst_structure_new("mark", "n", G_TYPE_INT, 7, nullptr)));
  events.push_back(gst_event_new_sink_message("mine", message.get()));
  events.push_back(gst_event_new_stream_group_done(5));
  events.push_back(gst_event_new_instant_rate_change(1.5, static_cast<GstSegmentFlags>(GST_SEGMENT_FLAG_TRICKMODE)));
  return events;
}

inline Ptr<GstStructure> read_structure(const LinkText& text) {
  NewNames names;
  ByteReader reader(text);
  return Ptr<GstStructure>(take_structure(reader, names));
}
inline Ptr<GstEvent> read_event(std::span<const std::byte> text) {
  NewNames names;
  return Ptr<GstEvent>(event_of(text, names));
}

}  // namespace gpumap::gst::test
