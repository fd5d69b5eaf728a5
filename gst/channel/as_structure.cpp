// SPDX-License-Identifier: MIT
#include "gst/channel/as_structure.hpp"

#include <optional>

namespace gpumap::gst {
namespace {

void append(GValue& list, Ptr<GstStructure> one) {
  GValue value = G_VALUE_INIT;
  g_value_init(&value, GST_TYPE_STRUCTURE);
  g_value_take_boxed(&value, one.release());
  gst_value_list_append_and_take_value(&list, &value);
}

/// Calls `take` with each structure of a list.
template <typename Take>
void each(const GstStructure* structure, const char* field, const Take& take) {
  const GValue* const list = gst_structure_get_value(structure, field);
  if (list == nullptr || !GST_VALUE_HOLDS_LIST(list)) return;
  for (guint index = 0; index < gst_value_list_get_size(list); ++index) {
    const GValue* const one = gst_value_list_get_value(list, index);
    if (GST_VALUE_HOLDS_STRUCTURE(one)) take(gst_value_get_structure(one));
  }
}

template <typename One>
One* boxed(const GstStructure* structure, const char* field, GType type) {
  const GValue* const value = gst_structure_get_value(structure, field);
  return value != nullptr && G_VALUE_HOLDS(value, type) ? static_cast<One*>(g_value_get_boxed(value)) : nullptr;
}

std::optional<gint> enumerated(const GstStructure* structure, const char* field, GType type) {
  gint value = 0;
  if (gst_structure_get_enum(structure, field, type, &value) == 0) return {};
  return value;
}

Ptr<GstTagList> tags_of(const GstStructure* structure) {
  auto* const tags = boxed<GstTagList>(structure, "tags", GST_TYPE_TAG_LIST);
  return Ptr<GstTagList>(tags != nullptr ? gst_tag_list_ref(tags) : nullptr);
}
void put_tags(GstStructure* into, GstTagList* tags) {
  if (tags != nullptr) gst_structure_set(into, "tags", GST_TYPE_TAG_LIST, tags, nullptr);
}

void put_entries(GstStructure* into, GList* entries);

Ptr<GstStructure> as_structure(GstTocEntry* entry) {
  gint64 start = 0, stop = 0;
  GstTocLoopType loop = GST_TOC_LOOP_NONE;
  gint repeats = 0;
  Ptr<GstStructure> made(gst_structure_new("entry", "type", GST_TYPE_TOC_ENTRY_TYPE,
                                           gst_toc_entry_get_entry_type(entry), "uid", G_TYPE_STRING,
                                           gst_toc_entry_get_uid(entry), nullptr));
  if (gst_toc_entry_get_start_stop_times(entry, &start, &stop) != 0) {
    gst_structure_set(made.get(), "start", G_TYPE_INT64, start, "stop", G_TYPE_INT64, stop, nullptr);
  }
  if (gst_toc_entry_get_loop(entry, &loop, &repeats) != 0) {
    gst_structure_set(made.get(), "loop", GST_TYPE_TOC_LOOP_TYPE, loop, "repeats", G_TYPE_INT, repeats, nullptr);
  }
  put_tags(made.get(), gst_toc_entry_get_tags(entry));
  put_entries(made.get(), gst_toc_entry_get_sub_entries(entry));
  return made;
}

void put_entries(GstStructure* into, GList* entries) {
  if (entries == nullptr) return;
  GValue list = G_VALUE_INIT;
  g_value_init(&list, GST_TYPE_LIST);
  for (GList* at = entries; at != nullptr; at = at->next) {
    append(list, as_structure(static_cast<GstTocEntry*>(at->data)));
  }
  gst_structure_take_value(into, "entries", &list);
}

Ptr<GstTocEntry> entry_of(const GstStructure* structure) {
  const auto type = enumerated(structure, "type", GST_TYPE_TOC_ENTRY_TYPE);
  const gchar* const uid = gst_structure_get_string(structure, "uid");
  if (!type || uid == nullptr) return {};
  Ptr<GstTocEntry> made(gst_toc_entry_new(static_cast<GstTocEntryType>(*type), uid));
  gint64 start = 0, stop = 0;
  if (gst_structure_get(structure, "start", G_TYPE_INT64, &start, "stop", G_TYPE_INT64, &stop, nullptr) != 0) {
    gst_toc_entry_set_start_stop_times(made.get(), start, stop);
  }
  gint repeats = 0;
  const auto loop = enumerated(structure, "loop", GST_TYPE_TOC_LOOP_TYPE);
  if (loop && gst_structure_get_int(structure, "repeats", &repeats) != 0) {
    gst_toc_entry_set_loop(made.get(), static_cast<GstTocLoopType>(*loop), repeats);
  }
  if (auto tags = tags_of(structure)) gst_toc_entry_set_tags(made.get(), tags.release());
  each(structure, "entries", [&](const GstStructure* one) {
    if (auto entry = entry_of(one)) gst_toc_entry_append_sub_entry(made.get(), entry.release());
  });
  return made;
}

}  // namespace

Ptr<GstStructure> as_structure(GstToc* toc) {
  Ptr<GstStructure> made(gst_structure_new("toc", "scope", GST_TYPE_TOC_SCOPE, gst_toc_get_scope(toc), nullptr));
  put_tags(made.get(), gst_toc_get_tags(toc));
  put_entries(made.get(), gst_toc_get_entries(toc));
  return made;
}

Ptr<GstToc> toc_of(const GstStructure* structure) {
  const auto scope = enumerated(structure, "scope", GST_TYPE_TOC_SCOPE);
  if (!scope) return {};
  Ptr<GstToc> made(gst_toc_new(static_cast<GstTocScope>(*scope)));
  if (auto tags = tags_of(structure)) gst_toc_set_tags(made.get(), tags.release());
  each(structure, "entries", [&](const GstStructure* one) {
    if (auto entry = entry_of(one)) gst_toc_append_entry(made.get(), entry.release());
  });
  return made;
}

Ptr<GstStructure> as_structure(GstStream* stream) {
  Ptr<GstStructure> made(gst_structure_new("stream", "id", G_TYPE_STRING, gst_stream_get_stream_id(stream), "type",
                                           GST_TYPE_STREAM_TYPE, gst_stream_get_stream_type(stream), "flags",
                                           GST_TYPE_STREAM_FLAGS, gst_stream_get_stream_flags(stream), nullptr));
  if (const Ptr<GstCaps> caps(gst_stream_get_caps(stream)); caps) {
    gst_structure_set(made.get(), "caps", GST_TYPE_CAPS, caps.get(), nullptr);
  }
  const Ptr<GstTagList> tags(gst_stream_get_tags(stream));
  put_tags(made.get(), tags.get());
  return made;
}

Ptr<GstStream> stream_of(const GstStructure* structure) {
  const gchar* const id = gst_structure_get_string(structure, "id");
  if (id == nullptr) return {};
  guint type = 0, flags = 0;
  (void)gst_structure_get_flags(structure, "type", GST_TYPE_STREAM_TYPE, &type);
  (void)gst_structure_get_flags(structure, "flags", GST_TYPE_STREAM_FLAGS, &flags);
  Ptr<GstStream> made(gst_stream_new(id, boxed<GstCaps>(structure, "caps", GST_TYPE_CAPS),
                                     static_cast<GstStreamType>(type), static_cast<GstStreamFlags>(flags)));
  if (const auto tags = tags_of(structure)) gst_stream_set_tags(made.get(), tags.get());
  return made;
}

Ptr<GstStructure> as_structure(GstStreamCollection* collection) {
  Ptr<GstStructure> made(gst_structure_new("collection", "upstream-id", G_TYPE_STRING,
                                           gst_stream_collection_get_upstream_id(collection), nullptr));
  GValue list = G_VALUE_INIT;
  g_value_init(&list, GST_TYPE_LIST);
  for (guint index = 0; index < gst_stream_collection_get_size(collection); ++index) {
    append(list, as_structure(gst_stream_collection_get_stream(collection, index)));
  }
  gst_structure_take_value(made.get(), "streams", &list);
  return made;
}

Ptr<GstStreamCollection> collection_of(const GstStructure* structure) {
  Ptr<GstStreamCollection> made(gst_stream_collection_new(gst_structure_get_string(structure, "upstream-id")));
  each(structure, "streams", [&](const GstStructure* one) {
    if (auto stream = stream_of(one)) gst_stream_collection_add_stream(made.get(), stream.release());
  });
  return made;
}

Ptr<GstStructure> as_structure(GstMessage* message) {
  const GstMessageType type = GST_MESSAGE_TYPE(message);
  const GstStructure* const says = gst_message_get_structure(message);
  if ((type != GST_MESSAGE_ELEMENT && type != GST_MESSAGE_APPLICATION) || says == nullptr) return {};
  return Ptr<GstStructure>(gst_structure_new("message", "is-element", G_TYPE_BOOLEAN, type == GST_MESSAGE_ELEMENT,
                                             "says", GST_TYPE_STRUCTURE, says, nullptr));
}

Ptr<GstMessage> message_of(const GstStructure* structure) {
  gboolean is_element = FALSE;
  const auto* const says = boxed<GstStructure>(structure, "says", GST_TYPE_STRUCTURE);
  if (gst_structure_get_boolean(structure, "is-element", &is_element) == 0 || says == nullptr) return {};
  return Ptr<GstMessage>(gst_message_new_custom(is_element != 0 ? GST_MESSAGE_ELEMENT : GST_MESSAGE_APPLICATION,
                                                nullptr, gst_structure_copy(says)));
}

}  // namespace gpumap::gst
