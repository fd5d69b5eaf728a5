// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "gpumap/message_bytes.hpp"
#include "gst/channel/as_structure.hpp"
#include "gst/channel/structure_bytes.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {
namespace {

/// As gst_date_time_to_iso8601_string() writes it, from the year on, and as far as it is known. GStreamer asserts what
/// it reads, as that 99 minutes are no difference to UTC.
bool is_date_time(std::string_view text) {
  const auto take = [&text](char before, std::size_t digits, int lowest, int highest) {
    int number = 0;
    const std::size_t length = digits + (before != 0 ? 1 : 0);
    if (text.size() < length || (before != 0 && text[0] != before)) return -1;
    text.remove_prefix(length - digits);
    const auto [end, error] = std::from_chars(text.data(), text.data() + digits, number);
    if (error != std::errc() || end != text.data() + digits || text[0] == '-' || number < lowest) return -1;
    text.remove_prefix(digits);
    return number <= highest ? number : -1;
  };
  const int year = take(0, 4, 1, 9999);
  if (year < 0 || text.empty()) return year >= 0;
  const int month = take('-', 2, 1, 12);
  if (month < 0 || text.empty()) return month >= 0;
  const int day = take('-', 2, 1, 31);
  if (day < 0 ||
      g_date_valid_dmy(static_cast<GDateDay>(day), static_cast<GDateMonth>(month), static_cast<GDateYear>(year)) == 0) {
    return false;
  }
  if (text.empty()) return true;
  if (take('T', 2, 0, 23) < 0 || take(':', 2, 0, 59) < 0) return false;
  if (text.starts_with(':') && take(':', 2, 0, 59) < 0) return false;
  if (text == "Z") return true;
  if (text.empty() || (text[0] != '+' && text[0] != '-')) return false;
  const int hours = take(text[0], 2, 0, 14);
  return hours >= 0 && take(0, 2, 0, hours < 14 ? 59 : 0) >= 0 && text.empty();
}

using Kind = StreamValue;

struct Value {
  Value() = default;
  ~Value() {
    if (G_VALUE_TYPE(&value) != 0) g_value_unset(&value);
  }
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  GValue value = G_VALUE_INIT;
};

/// Whether GStreamer's assertions take it as the name of a structure.
bool is_structure_name(const char* name) {
  // GStreamer warns when a "taglist" has an empty text: tags have a kind of their own.
  if (g_ascii_isalpha(*name) == 0 || std::strcmp(name, "taglist") == 0) return false;
  return std::all_of(name, name + std::strlen(name),
                     [](char one) { return g_ascii_isalnum(one) != 0 || std::strchr("/-_.:+", one) != nullptr; });
}

/// The same for a feature of caps: letters, a colon, a letter, letters and digits.
bool is_feature(const char* name) {
  const char* const colon = std::strchr(name, ':');
  if (colon == nullptr || g_ascii_isalpha(colon[1]) == 0) return false;
  return std::all_of(name, colon, [](char one) { return g_ascii_isalpha(one) != 0; }) &&
         std::all_of(colon + 1, colon + std::strlen(colon), [](char one) { return g_ascii_isalnum(one) != 0; });
}

/// The type that GStreamer compares when values come into one list: a range has the type of its ends. 0: an empty list.
GType basic_type(const GValue* value) {
  const GType type = G_VALUE_TYPE(value);
  if (type == GST_TYPE_LIST) {
    return gst_value_list_get_size(value) > 0 ? basic_type(gst_value_list_get_value(value, 0)) : 0;
  }
  if (type == GST_TYPE_ARRAY) {
    return gst_value_array_get_size(value) > 0 ? basic_type(gst_value_array_get_value(value, 0)) : 0;
  }
  if (type == GST_TYPE_INT_RANGE) return G_TYPE_INT;
  if (type == GST_TYPE_INT64_RANGE) return G_TYPE_INT64;
  if (type == GST_TYPE_DOUBLE_RANGE) return G_TYPE_DOUBLE;
  return type == GST_TYPE_FRACTION_RANGE ? GST_TYPE_FRACTION : type;
}

class Taker {
 public:
  explicit Taker(NewNames& names, std::string* refused = nullptr) : names_(names), refused_(refused) {}

  /// `whole`: null when a field is invalid; otherwise such a field is left out.
  GstStructure* structure(ByteReader& text, bool whole) {
    const char* const name = text.take_text();
    const auto fields = text.take<std::uint32_t>();
    if (!text.is_whole() || fields > most_members) return nullptr;
    if (!is_structure_name(name) || !names_.admit(name)) return refuse(name);
    Ptr<GstStructure> made(gst_structure_new_empty(name));
    for (std::uint32_t count = 0; count < fields; ++count) {
      const char* const field = text.take_text();
      Value value;
      const bool taken = take(text, value.value) && suits_field(value.value);
      if (!text.is_whole()) return nullptr;
      if (taken && *field != '\0' && names_.admit(field)) {
        gst_structure_take_value(made.get(), field, &value.value);
        value.value = G_VALUE_INIT;
      } else if (whole) {
        return refuse(field);
      } else if (depth_ > 0 && refused_ != nullptr) {
        refused_->clear();  // only this field is left out
      }
    }
    return text.is_done() ? made.release() : nullptr;
  }

  GstCaps* caps(ByteReader& text) {
    const bool is_any = text.take<gboolean>() != FALSE;
    if (!text.is_whole() || (is_any && !text.empty())) return nullptr;
    Ptr<GstCaps> made(is_any ? gst_caps_new_any() : gst_caps_new_empty());
    for (std::uint32_t count = 0; !text.empty(); ++count) {
      ByteReader first = part(text);
      ByteReader second = part(text);
      if (!text.is_whole() || count == most_members) return nullptr;
      GstCapsFeatures* const features = this->features(first);
      GstStructure* const structure = features != nullptr ? this->structure(second, true) : nullptr;
      if (structure == nullptr) {
        if (features != nullptr) gst_caps_features_free(features);
        return nullptr;
      }
      gst_caps_append_structure_full(made.get(), structure, features);
    }
    return made.release();
  }

 private:
  /// Remembers the innermost name, which is the cause.
  std::nullptr_t refuse(const char* name) {
    if (refused_ != nullptr && refused_->empty()) *refused_ = name;
    return nullptr;
  }

  /// Takes a length, and that many bytes.
  static ByteReader part(ByteReader& text) {
    const auto length = text.take<std::uint32_t>();
    return ByteReader(text.take_bytes(length));
  }

  /// GStreamer warns when a structure's field is a null date.
  static bool suits_field(const GValue& value) {
    return !G_VALUE_HOLDS(&value, G_TYPE_DATE) || g_value_get_boxed(&value) != nullptr;
  }

  /// False, behind the value: it is invalid.
  bool take(ByteReader& text, GValue& value) {
    const auto kind = text.take<Kind>();
    ByteReader content = part(text);
    if (!text.is_whole() || depth_ == deepest_value || values_ == most_values) return false;
    ++values_;
    ++depth_;
    const bool taken = take(kind, content, value) && content.is_done();
    --depth_;
    return taken;
  }

  template <typename Number, typename Set>
  static bool number(ByteReader& text, GValue& value, GType type, const Set& set) {
    const auto one = text.take<Number>();
    g_value_init(&value, type);
    set(&value, one);
    return text.is_whole();
  }

  bool take(Kind kind, ByteReader& text, GValue& value) {
    switch (kind) {
      case Kind::boolean:
        return number<std::uint8_t>(text, value, G_TYPE_BOOLEAN,
                                    [](GValue* to, std::uint8_t one) { g_value_set_boolean(to, one != 0 ? 1 : 0); });
      case Kind::signed_char:
        return number<gint8>(text, value, G_TYPE_CHAR, g_value_set_schar);
      case Kind::unsigned_char:
        return number<guchar>(text, value, G_TYPE_UCHAR, g_value_set_uchar);
      case Kind::integer:
        return number<gint>(text, value, G_TYPE_INT, g_value_set_int);
      case Kind::unsigned_integer:
        return number<guint>(text, value, G_TYPE_UINT, g_value_set_uint);
      case Kind::long_integer:
        return number<std::int64_t>(text, value, G_TYPE_LONG, g_value_set_long);
      case Kind::unsigned_long:
        return number<std::uint64_t>(text, value, G_TYPE_ULONG, g_value_set_ulong);
      case Kind::int64:
        return number<gint64>(text, value, G_TYPE_INT64, g_value_set_int64);
      case Kind::uint64:
        return number<guint64>(text, value, G_TYPE_UINT64, g_value_set_uint64);
      case Kind::real:
        return number<gfloat>(text, value, G_TYPE_FLOAT, g_value_set_float);
      case Kind::double_real:
        return number<gdouble>(text, value, G_TYPE_DOUBLE, g_value_set_double);
      case Kind::bitmask:
        return number<guint64>(text, value, GST_TYPE_BITMASK, gst_value_set_bitmask);
      case Kind::string: {
        const char* const one = text.take_text();
        if (!text.is_whole() || g_utf8_validate(one, -1, nullptr) == 0) return false;
        g_value_init(&value, G_TYPE_STRING);
        g_value_set_string(&value, one);
        return true;
      }
      case Kind::no_string:
        g_value_init(&value, G_TYPE_STRING);
        return true;
      case Kind::enumeration:
      case Kind::flags:
      case Kind::flag_set:
        return enumerated(kind, text, value);
      case Kind::fraction:
      case Kind::int_range:
      case Kind::int64_range:
      case Kind::double_range:
      case Kind::fraction_range:
        return fractional(kind, text, value);
      case Kind::list:
      case Kind::array:
        return list(kind == Kind::list, text, value);
      default:
        return boxed(kind, text, value);
    }
  }

  /// A type that this process does not know, such as one of another plugin, or a value of a newer GStreamer becomes a
  /// number of GStreamer's base types, so that caps are not lost because of it.
  static bool enumerated(Kind kind, ByteReader& text, GValue& value) {
    const GType type = g_type_from_name(text.take_text());
    const auto first = text.take<std::uint32_t>();
    const auto mask = kind == Kind::flag_set ? text.take<std::uint32_t>() : 0;
    if (!text.is_whole() || (type != 0 && G_TYPE_IS_ABSTRACT(type) != 0)) return false;
    if (kind == Kind::enumeration) {
      if (type != 0 && !G_TYPE_IS_ENUM(type)) return false;
      if (type != 0 && is_known_value(type, static_cast<gint>(first))) {
        g_value_init(&value, type);
        g_value_set_enum(&value, static_cast<gint>(first));
      } else {
        g_value_init(&value, G_TYPE_INT);
        g_value_set_int(&value, static_cast<gint>(first));
      }
      return true;
    }
    if (kind == Kind::flags) {
      if (type != 0 && !G_TYPE_IS_FLAGS(type)) return false;
      g_value_init(&value, type != 0 ? type : G_TYPE_UINT);
      if (type != 0) {
        // The type has no value for bits that it does not know.
        auto* known = static_cast<GFlagsClass*>(g_type_class_ref(type));
        g_value_set_flags(&value, first & known->mask);
        g_type_class_unref(known);
      } else {
        g_value_set_uint(&value, first);
      }
      return true;
    }
    if (type != 0 && g_type_is_a(type, GST_TYPE_FLAG_SET) == 0) return false;
    g_value_init(&value, type != 0 ? type : GST_TYPE_FLAG_SET);
    gst_value_set_flagset(&value, first, mask);
    return true;
  }

  /// As GStreamer makes such values.
  static bool is_fraction(gint numerator, gint denominator) { return denominator > 0 && numerator >= -G_MAXINT; }
  template <typename Number>
  static bool is_range(Number least, Number most, Number step) {
    return step > 0 && least < most && least % step == 0 && most % step == 0;
  }

  static bool fractional(Kind kind, ByteReader& text, GValue& value) {
    if (kind == Kind::fraction) {
      const auto numerator = text.take<gint>();
      const auto denominator = text.take<gint>();
      if (!text.is_whole() || !is_fraction(numerator, denominator)) return false;
      g_value_init(&value, GST_TYPE_FRACTION);
      gst_value_set_fraction(&value, numerator, denominator);
      return true;
    }
    if (kind == Kind::int_range) {
      const auto least = text.take<gint>();
      const auto most = text.take<gint>();
      const auto step = text.take<gint>();
      if (!text.is_whole() || !is_range(least, most, step)) return false;
      g_value_init(&value, GST_TYPE_INT_RANGE);
      gst_value_set_int_range_step(&value, least, most, step);
      return true;
    }
    if (kind == Kind::int64_range) {
      const auto least = text.take<gint64>();
      const auto most = text.take<gint64>();
      const auto step = text.take<gint64>();
      if (!text.is_whole() || !is_range(least, most, step)) return false;
      g_value_init(&value, GST_TYPE_INT64_RANGE);
      gst_value_set_int64_range_step(&value, least, most, step);
      return true;
    }
    if (kind == Kind::double_range) {
      const auto least = text.take<gdouble>();
      const auto most = text.take<gdouble>();
      if (!text.is_whole() || !(least < most)) return false;
      g_value_init(&value, GST_TYPE_DOUBLE_RANGE);
      gst_value_set_double_range(&value, least, most);
      return true;
    }
    gint each[4];
    for (gint& one : each) one = text.take<gint>();
    if (!text.is_whole() || !is_fraction(each[0], each[1]) || !is_fraction(each[2], each[3]) ||
        gst_util_fraction_compare(each[0], each[1], each[2], each[3]) >= 0) {
      return false;
    }
    g_value_init(&value, GST_TYPE_FRACTION_RANGE);
    gst_value_set_fraction_range_full(&value, each[0], each[1], each[2], each[3]);
    return true;
  }

  bool list(bool is_list, ByteReader& text, GValue& value) {
    g_value_init(&value, is_list ? GST_TYPE_LIST : GST_TYPE_ARRAY);
    while (!text.empty()) {
      Value one;
      if (!take(text, one.value)) return false;
      const GType own = basic_type(&value);
      const GType its = basic_type(&one.value);
      if (own != 0 && its != 0 && own != its) return false;
      if (is_list) {
        gst_value_list_append_and_take_value(&value, &one.value);
      } else {
        gst_value_array_append_and_take_value(&value, &one.value);
      }
      one.value = G_VALUE_INIT;
    }
    return true;
  }

  /// Gives `one`, of `type`, to `value`. False: it is null.
  template <typename One>
  static bool give(GValue& value, GType type, One* one) {
    if (one == nullptr) return false;
    g_value_init(&value, type);
    g_value_take_boxed(&value, one);
    return true;
  }

  bool boxed(Kind kind, ByteReader& text, GValue& value) {
    switch (kind) {
      case Kind::date: {
        const auto day = text.take<std::uint32_t>();
        return text.is_whole() && g_date_valid_julian(day) != 0 && give(value, G_TYPE_DATE, g_date_new_julian(day));
      }
      case Kind::date_time: {
        const char* const written = text.take_text();
        return text.is_whole() && is_date_time(written) &&
               give(value, GST_TYPE_DATE_TIME, gst_date_time_new_from_iso8601_string(written));
      }
      case Kind::bytes: {
        const auto bytes = text.take_rest();
        return give(value, G_TYPE_BYTES, g_bytes_new(bytes.data(), bytes.size()));
      }
      case Kind::type: {
        const GType type = g_type_from_name(text.take_text());
        if (!text.is_whole() || type == 0) return false;
        g_value_init(&value, G_TYPE_GTYPE);
        g_value_set_gtype(&value, type);
        return true;
      }
      case Kind::caps:
        return give(value, GST_TYPE_CAPS, caps(text));
      case Kind::features:
        return give(value, GST_TYPE_CAPS_FEATURES, features(text));
      case Kind::structure:
        return give(value, GST_TYPE_STRUCTURE, structure(text, false));
      case Kind::tags:
        return give(value, GST_TYPE_TAG_LIST, tags(text));
      case Kind::segment: {
        GstSegment read;
        if (!segment(text, read)) return false;
        return give(value, GST_TYPE_SEGMENT, gst_segment_copy(&read));
      }
      case Kind::buffer:
        return give(value, GST_TYPE_BUFFER, buffer(text));
      case Kind::sample:
        return give(value, GST_TYPE_SAMPLE, sample(text));
      default:
        return of_structure(kind, Ptr<GstStructure>(structure(text, false)), value);
    }
  }

  static bool of_structure(Kind kind, const Ptr<GstStructure>& read, GValue& value) {
    const auto give_object = [&](GType type, auto object) {
      if (!object) return false;
      g_value_init(&value, type);
      g_value_take_object(&value, object.release());
      return true;
    };
    if (!read) return false;
    switch (kind) {
      case Kind::toc:
        return give(value, GST_TYPE_TOC, toc_of(read.get()).release());
      case Kind::message:
        return give(value, GST_TYPE_MESSAGE, message_of(read.get()).release());
      case Kind::stream:
        return give_object(GST_TYPE_STREAM, stream_of(read.get()));
      case Kind::stream_collection:
        return give_object(GST_TYPE_STREAM_COLLECTION, collection_of(read.get()));
      default:
        return false;
    }
  }

  GstCapsFeatures* features(ByteReader& text) {
    GstCapsFeatures* const made = gst_caps_features_new_empty();
    bool sound = true;
    for (std::uint32_t count = 0; sound && !text.empty(); ++count) {
      const char* const name = text.take_text();
      if (count == 0 && std::strcmp(name, "ANY") == 0 && text.is_done()) {
        gst_caps_features_free(made);
        return gst_caps_features_new_any();
      }
      sound = text.is_whole() && count < most_members && is_feature(name) && names_.admit(name);
      if (sound) gst_caps_features_add(made, name);
    }
    if (sound) return made;
    gst_caps_features_free(made);
    return nullptr;
  }

  /// Leaves out tags that this process does not know, such as those of a newer GStreamer or of an application, and tags
  /// of another type than here: GStreamer's functions warn wherever such tags are merged.
  GstTagList* tags(ByteReader& text) {
    const auto scope = text.take<std::uint8_t>();
    if (!text.is_whole() || scope > GST_TAG_SCOPE_GLOBAL) return nullptr;
    Ptr<GstTagList> made(gst_tag_list_new_empty());
    gst_tag_list_set_scope(made.get(), static_cast<GstTagScope>(scope));
    for (std::uint32_t count = 0; !text.empty(); ++count) {
      const char* const tag = text.take_text();
      Value value;
      const bool taken = take(text, value.value);
      if (!text.is_whole() || count == most_members) return nullptr;
      if (!taken || gst_tag_exists(tag) == 0 || !G_VALUE_HOLDS(&value.value, gst_tag_get_type(tag))) continue;
      if (G_VALUE_HOLDS_STRING(&value.value)) {
        const gchar* const one = g_value_get_string(&value.value);
        if (one == nullptr || *one == '\0') continue;
      }
      gst_tag_list_add_value(made.get(), GST_TAG_MERGE_APPEND, tag, &value.value);
    }
    return made.release();
  }

  static bool segment(ByteReader& text, GstSegment& read) {
    gst_segment_init(&read, GST_FORMAT_UNDEFINED);
    constexpr std::uint32_t known_flags = GST_SEGMENT_FLAG_RESET | GST_SEGMENT_FLAG_SEGMENT |
                                          GST_SEGMENT_FLAG_TRICKMODE | GST_SEGMENT_FLAG_TRICKMODE_KEY_UNITS |
                                          GST_SEGMENT_FLAG_TRICKMODE_FORWARD_PREDICTED |
                                          GST_SEGMENT_FLAG_TRICKMODE_NO_AUDIO;
    read.flags = static_cast<GstSegmentFlags>(text.take<std::uint32_t>() & known_flags);
    // GStreamer's own formats only: a registered format has another number in another process.
    const auto format = text.take<std::int32_t>();
    if (format < GST_FORMAT_UNDEFINED || format > GST_FORMAT_PERCENT) return false;
    read.format = static_cast<GstFormat>(format);
    read.rate = text.take<gdouble>();
    read.applied_rate = text.take<gdouble>();
    for (guint64* one :
         {&read.base, &read.offset, &read.start, &read.stop, &read.time, &read.position, &read.duration}) {
      *one = text.take<guint64>();
    }
    return text.is_done();
  }

  static GstBuffer* buffer(ByteReader& text) {
    const auto bytes = text.take_rest();
    return bytes.empty() ? gst_buffer_new() : gst_buffer_new_memdup(bytes.data(), bytes.size());
  }

  GstSample* sample(ByteReader& text) {
    ByteReader first = part(text);
    ByteReader second = part(text);
    ByteReader third = part(text);
    GstSegment segment;
    if (!text.is_whole() || !this->segment(second, segment)) return nullptr;
    const Ptr<GstCaps> caps(first.empty() ? nullptr : this->caps(first));
    if (!caps && !first.is_done()) return nullptr;
    Ptr<GstStructure> info(third.empty() ? nullptr : structure(third, false));
    if (!info && !third.is_done()) return nullptr;
    const Ptr<GstBuffer> bytes(text.empty() ? nullptr : buffer(text));
    return gst_sample_new(bytes.get(), caps.get(), &segment, info.release());
  }

  NewNames& names_;
  std::string* const refused_;
  std::uint32_t values_ = 0;
  int depth_ = 0;
};

}  // namespace

GstStructure* take_structure(ByteReader& text, NewNames& names, std::string* refused) {
  return Taker(names, refused).structure(text, false);
}

GstCaps* take_caps(ByteReader& text, NewNames& names) {
  return Taker(names).caps(text);
}

}  // namespace gpumap::gst
