// SPDX-License-Identifier: MIT
#include <cstdint>
#include <cstring>
#include <utility>

#include "gpumap/message_bytes.hpp"
#include "gst/channel/as_structure.hpp"
#include "gst/channel/structure_bytes.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {
namespace {

using Kind = StreamValue;

class Writer {
 public:
  Writer(LinkText& text, std::size_t most) : text_(text), most_(most) {}

  /// False, with nothing written: the value has no kind, or no room is left.
  bool value(const GValue* value) {
    const std::size_t begin = text_.size();
    constexpr std::size_t head = 1 + sizeof(std::uint32_t);
    bool written = depth_ < deepest_value && values_ < most_values;
    ++values_;
    if (written) {
      text_.resize(begin + head);
      ++depth_;
      written = content(value, text_[begin]) && text_.size() <= most_;
      --depth_;
    }
    if (written) {
      const auto length = static_cast<std::uint32_t>(text_.size() - begin - head);
      std::memcpy(&text_[begin + 1], &length, sizeof length);
    } else {
      text_.resize(begin);
    }
    return written;
  }

  /// Writes a name, the number of fields, and the fields.
  bool structure(const GstStructure* structure) {
    put_text(text_, gst_structure_get_name(structure));
    const std::size_t at = text_.size();
    const std::uint32_t before = fields_;
    put(text_, fields_);
    fields_ = 0;
    gst_structure_foreach(
        structure,
        [](GQuark field, const GValue* value, gpointer self) -> gboolean {
          static_cast<Writer*>(self)->field(g_quark_to_string(field), value);
          return TRUE;
        },
        this);
    std::memcpy(&text_[at], &fields_, sizeof fields_);
    fields_ = before;
    return text_.size() <= most_;
  }

  bool caps(const GstCaps* caps) {
    put(text_, gst_caps_is_any(caps));
    const unsigned before = left_out;
    for (guint index = 0; index < gst_caps_get_size(caps); ++index) {
      if (!sized([&] { features(gst_caps_get_features(caps, index)); }) ||
          !sized([&] { (void)this->structure(gst_caps_get_structure(caps, index)); }) || left_out != before) {
        return false;
      }
    }
    return text_.size() <= most_;
  }

  unsigned left_out = 0;

 private:
  void field(const char* name, const GValue* value) {
    const std::size_t begin = text_.size();
    put_text(text_, name);
    const bool is_name = *name != '\0' && g_utf8_validate(name, -1, nullptr) != 0;
    if (is_name && fields_ < most_members && this->value(value)) {
      ++fields_;
      return;
    }
    text_.resize(begin);
    ++left_out;
  }

  /// Writes a length, and then what `write` writes.
  template <typename Write>
  bool sized(const Write& write) {
    const std::size_t begin = text_.size();
    put(text_, std::uint32_t{0});
    write();
    const auto length = static_cast<std::uint32_t>(text_.size() - begin - sizeof(std::uint32_t));
    std::memcpy(&text_[begin], &length, sizeof length);
    return text_.size() <= most_;
  }

  template <typename... Numbers>
  bool numbers(std::byte& kind, Kind what, Numbers... each) {
    kind = static_cast<std::byte>(what);  // before `text_` moves
    (put(text_, each), ...);
    return true;
  }

  bool content(const GValue* value, std::byte& kind) {
    const GType type = G_VALUE_TYPE(value);
    const auto is = [&](Kind what) {
      kind = static_cast<std::byte>(what);
      return true;
    };
    switch (G_TYPE_FUNDAMENTAL(type)) {
      case G_TYPE_BOOLEAN:
        return numbers(kind, Kind::boolean, static_cast<std::uint8_t>(g_value_get_boolean(value) != 0 ? 1 : 0));
      case G_TYPE_CHAR:
        return numbers(kind, Kind::signed_char, g_value_get_schar(value));
      case G_TYPE_UCHAR:
        return numbers(kind, Kind::unsigned_char, g_value_get_uchar(value));
      case G_TYPE_INT:
        return numbers(kind, Kind::integer, g_value_get_int(value));
      case G_TYPE_UINT:
        return numbers(kind, Kind::unsigned_integer, g_value_get_uint(value));
      case G_TYPE_LONG:
        return numbers(kind, Kind::long_integer, std::int64_t{g_value_get_long(value)});
      case G_TYPE_ULONG:
        return numbers(kind, Kind::unsigned_long, std::uint64_t{g_value_get_ulong(value)});
      case G_TYPE_INT64:
        return numbers(kind, Kind::int64, g_value_get_int64(value));
      case G_TYPE_UINT64:
        return numbers(kind, Kind::uint64, g_value_get_uint64(value));
      case G_TYPE_FLOAT:
        return numbers(kind, Kind::real, g_value_get_float(value));
      case G_TYPE_DOUBLE:
        return numbers(kind, Kind::double_real, g_value_get_double(value));
      case G_TYPE_STRING:
        if (g_value_get_string(value) == nullptr) return is(Kind::no_string);
        (void)is(Kind::string);
        put_text(text_, g_value_get_string(value));
        return g_utf8_validate(g_value_get_string(value), -1, nullptr) != 0;  // readers take UTF-8 only
      case G_TYPE_ENUM:
        (void)is(Kind::enumeration);
        put_text(text_, g_type_name(type));
        put(text_, std::int32_t{g_value_get_enum(value)});
        return is_known_value(type, g_value_get_enum(value));
      case G_TYPE_FLAGS:
        (void)is(Kind::flags);
        put_text(text_, g_type_name(type));
        put(text_, std::uint32_t{g_value_get_flags(value)});
        return true;
      case G_TYPE_BOXED:
        return g_value_get_boxed(value) != nullptr && boxed(value, kind);
      case G_TYPE_OBJECT:
        return g_value_get_object(value) != nullptr && object(value, kind);
      default:
        return of_gstreamer(value, kind);
    }
  }

  bool of_gstreamer(const GValue* value, std::byte& kind) {
    const GType type = G_VALUE_TYPE(value);
    const auto fraction = [](const GValue* one) { return gst_value_get_fraction_numerator(one); };
    const auto divisor = [](const GValue* one) { return gst_value_get_fraction_denominator(one); };
    if (type == GST_TYPE_FRACTION) return numbers(kind, Kind::fraction, fraction(value), divisor(value));
    if (type == GST_TYPE_INT_RANGE) {
      return numbers(kind, Kind::int_range, gst_value_get_int_range_min(value), gst_value_get_int_range_max(value),
                     gst_value_get_int_range_step(value));
    }
    if (type == GST_TYPE_INT64_RANGE) {
      return numbers(kind, Kind::int64_range, gst_value_get_int64_range_min(value),
                     gst_value_get_int64_range_max(value), gst_value_get_int64_range_step(value));
    }
    if (type == GST_TYPE_DOUBLE_RANGE) {
      return numbers(kind, Kind::double_range, gst_value_get_double_range_min(value),
                     gst_value_get_double_range_max(value));
    }
    if (type == GST_TYPE_FRACTION_RANGE) {
      const GValue* const least = gst_value_get_fraction_range_min(value);
      const GValue* const most = gst_value_get_fraction_range_max(value);
      return numbers(kind, Kind::fraction_range, fraction(least), divisor(least), fraction(most), divisor(most));
    }
    if (type == GST_TYPE_BITMASK) return numbers(kind, Kind::bitmask, gst_value_get_bitmask(value));
    if (g_type_is_a(type, GST_TYPE_FLAG_SET) != 0) {
      kind = static_cast<std::byte>(Kind::flag_set);
      put_text(text_, g_type_name(type));
      put(text_, std::uint32_t{gst_value_get_flagset_flags(value)});
      put(text_, std::uint32_t{gst_value_get_flagset_mask(value)});
      return true;
    }
    if (type == G_TYPE_GTYPE) {
      kind = static_cast<std::byte>(Kind::type);
      put_text(text_, g_type_name(g_value_get_gtype(value)));
      return true;
    }
    if (type == GST_TYPE_LIST || type == GST_TYPE_ARRAY) {
      const bool is_list = type == GST_TYPE_LIST;
      kind = static_cast<std::byte>(is_list ? Kind::list : Kind::array);
      const guint size = is_list ? gst_value_list_get_size(value) : gst_value_array_get_size(value);
      for (guint index = 0; index < size; ++index) {
        if (!this->value(is_list ? gst_value_list_get_value(value, index) : gst_value_array_get_value(value, index))) {
          return false;
        }
      }
      return true;
    }
    return false;
  }

  bool boxed(const GValue* value, std::byte& kind) {
    const GType type = G_VALUE_TYPE(value);
    const gpointer one = g_value_get_boxed(value);
    const auto begin = [&](Kind what) { kind = static_cast<std::byte>(what); };
    if (type == GST_TYPE_CAPS) {
      begin(Kind::caps);
      return caps(static_cast<const GstCaps*>(one));
    }
    if (type == GST_TYPE_CAPS_FEATURES) {
      begin(Kind::features);
      features(static_cast<const GstCapsFeatures*>(one));
      return true;
    }
    if (type == GST_TYPE_STRUCTURE) {
      begin(Kind::structure);
      return structure(static_cast<const GstStructure*>(one));
    }
    if (type == GST_TYPE_TAG_LIST) {
      begin(Kind::tags);
      return tags(static_cast<const GstTagList*>(one));
    }
    if (type == GST_TYPE_SEGMENT) {
      begin(Kind::segment);
      segment(*static_cast<const GstSegment*>(one));
      return true;
    }
    if (type == GST_TYPE_BUFFER) {
      begin(Kind::buffer);
      return buffer(static_cast<GstBuffer*>(one));
    }
    if (type == GST_TYPE_SAMPLE) {
      begin(Kind::sample);
      return sample(static_cast<GstSample*>(one));
    }
    if (type == GST_TYPE_TOC) {
      begin(Kind::toc);
      return structure(as_structure(static_cast<GstToc*>(one)).get());
    }
    if (type == GST_TYPE_MESSAGE) {
      begin(Kind::message);
      const auto said = as_structure(static_cast<GstMessage*>(one));
      return said != nullptr && structure(said.get());
    }
    if (type == G_TYPE_DATE) {
      begin(Kind::date);
      const auto* date = static_cast<const GDate*>(one);
      if (g_date_valid(date) == 0) return false;
      put(text_, std::uint32_t{g_date_get_julian(date)});
      return true;
    }
    if (type == GST_TYPE_DATE_TIME) {
      begin(Kind::date_time);
      const Ptr<gchar> written(gst_date_time_to_iso8601_string(static_cast<GstDateTime*>(one)));
      put_text(text_, written.get());
      return written != nullptr;
    }
    if (type == G_TYPE_BYTES) {
      begin(Kind::bytes);
      gsize size = 0;
      const void* data = g_bytes_get_data(static_cast<GBytes*>(one), &size);
      return raw(data, size);
    }
    return false;
  }

  bool object(const GValue* value, std::byte& kind) {
    const gpointer one = g_value_get_object(value);
    if (GST_IS_STREAM(one)) {
      kind = static_cast<std::byte>(Kind::stream);
      return structure(as_structure(GST_STREAM_CAST(one)).get());
    }
    if (!GST_IS_STREAM_COLLECTION(one)) return false;
    kind = static_cast<std::byte>(Kind::stream_collection);
    return structure(as_structure(GST_STREAM_COLLECTION_CAST(one)).get());
  }

  bool raw(const void* data, std::size_t size) {
    if (size > most_) return false;
    const auto* begin = static_cast<const std::byte*>(data);
    if (size > 0) text_.insert(text_.end(), begin, begin + size);
    return true;
  }

  void features(const GstCapsFeatures* features) {
    if (features == nullptr) return;
    if (gst_caps_features_is_any(features) != 0) return put_text(text_, "ANY");
    for (guint index = 0; index < gst_caps_features_get_size(features); ++index) {
      put_text(text_, gst_caps_features_get_nth(features, index));
    }
  }

  bool tags(const GstTagList* list) {
    const std::uint32_t before = std::exchange(fields_, 0);
    put(text_, static_cast<std::uint8_t>(gst_tag_list_get_scope(list)));
    for (gint index = 0; index < gst_tag_list_n_tags(list); ++index) {
      const gchar* const tag = gst_tag_list_nth_tag_name(list, static_cast<guint>(index));
      for (guint which = 0; which < gst_tag_list_get_tag_size(list, tag); ++which) {
        field(tag, gst_tag_list_get_value_index(list, tag, which));
      }
    }
    fields_ = before;
    return text_.size() <= most_;
  }

  void segment(const GstSegment& segment) {
    put(text_, static_cast<std::uint32_t>(segment.flags));
    // An application's own format is not one of the enumeration's values.
    std::int32_t format = 0;
    static_assert(sizeof format == sizeof segment.format);
    std::memcpy(&format, &segment.format, sizeof format);
    put(text_, format);
    put(text_, segment.rate);
    put(text_, segment.applied_rate);
    for (const guint64 one : {segment.base, segment.offset, segment.start, segment.stop, segment.time, segment.position,
                              segment.duration}) {
      put(text_, one);
    }
  }

  bool buffer(GstBuffer* buffer) {
    const gsize size = gst_buffer_get_size(buffer);
    if (size > most_) return false;
    const std::size_t begin = text_.size();
    text_.resize(begin + size);
    return gst_buffer_extract(buffer, 0, text_.data() + begin, size) == size;
  }

  bool sample(GstSample* sample) {
    bool whole = true;
    const GstCaps* const caps = gst_sample_get_caps(sample);
    const GstStructure* const info = gst_sample_get_info(sample);
    whole = sized([&] { whole = caps == nullptr || this->caps(caps); }) && whole;
    whole = whole && sized([&] { segment(*gst_sample_get_segment(sample)); });
    whole = whole && sized([&] { whole = info == nullptr || structure(info); }) && whole;
    GstBuffer* const bytes = gst_sample_get_buffer(sample);
    return whole && (bytes == nullptr || buffer(bytes));
  }

  LinkText& text_;
  const std::size_t most_;
  std::uint32_t fields_ = 0;  ///< in the structure that is being written
  std::uint32_t values_ = 0;  ///< in the whole message
  int depth_ = 0;
};

}  // namespace

unsigned put_structure(LinkText& text, const GstStructure* structure, std::size_t most) {
  Writer writer(text, most);
  (void)writer.structure(structure);
  return writer.left_out;
}

bool put_caps(LinkText& text, const GstCaps* caps, std::size_t most) {
  return Writer(text, most).caps(caps);
}

}  // namespace gpumap::gst
