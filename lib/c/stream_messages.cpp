// SPDX-License-Identifier: MIT
#include "c/stream_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/message_bytes.hpp"
#include "gpumap/printable.hpp"

namespace gpumap::c {
namespace {

constexpr int deepest = 32;
constexpr std::uint32_t most_fields = 4096;

bool is_letter(char one) {
  return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z');
}
bool is_digit(char one) {
  return one >= '0' && one <= '9';
}
/// What GStreamer writes without quotes.
bool is_plain(char one) {
  return is_letter(one) || is_digit(one) || std::string_view("-_+/:.").find(one) != std::string_view::npos;
}

/// As it is written in brackets; those that GStreamer knows beside them are in `aliases`.
struct TypeName {
  StreamValue kind;
  std::string_view name;
};
constexpr std::array type_names{
    TypeName{StreamValue::boolean, "boolean"},       TypeName{StreamValue::integer, "int"},
    TypeName{StreamValue::unsigned_integer, "uint"}, TypeName{StreamValue::int64, "gint64"},
    TypeName{StreamValue::uint64, "guint64"},        TypeName{StreamValue::real, "float"},
    TypeName{StreamValue::double_real, "double"},    TypeName{StreamValue::string, "string"},
    TypeName{StreamValue::fraction, "fraction"},     TypeName{StreamValue::bitmask, "bitmask"},
    TypeName{StreamValue::buffer, "buffer"},
};
constexpr std::array aliases{
    TypeName{StreamValue::boolean, "bool"},
    TypeName{StreamValue::boolean, "b"},
    TypeName{StreamValue::boolean, "gboolean"},
    TypeName{StreamValue::integer, "i"},
    TypeName{StreamValue::integer, "gint"},
    TypeName{StreamValue::unsigned_integer, "u"},
    TypeName{StreamValue::unsigned_integer, "guint"},
    TypeName{StreamValue::int64, "int64"},
    TypeName{StreamValue::uint64, "uint64"},
    TypeName{StreamValue::real, "f"},
    TypeName{StreamValue::real, "gfloat"},
    TypeName{StreamValue::double_real, "d"},
    TypeName{StreamValue::double_real, "gdouble"},
    TypeName{StreamValue::string, "s"},
    TypeName{StreamValue::string, "str"},
    TypeName{StreamValue::string, "gchararray"},
};

std::string_view name_of(StreamValue kind) {
  const auto* const found =
      std::find_if(type_names.begin(), type_names.end(), [&](const TypeName& one) { return one.kind == kind; });
  return found != type_names.end() ? found->name : std::string_view();
}

template <typename Number>
bool read_number(std::string_view text, Number& number, int base = 10) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}
/// Without its "0x"; empty: it has none.
std::string_view hex_digits(std::string_view text) {
  return text.starts_with("0x") || text.starts_with("0X") ? text.substr(2) : std::string_view();
}
/// As strtoll() does with base 0: "0x1f" and "017", too.
template <typename Number>
bool read_whole(std::string_view text, Number& number) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  int base = text.starts_with('0') && text.size() > 1 ? 8 : 10;
  if (const std::string_view digits = hex_digits(text); !digits.empty()) {
    text = digits;
    base = 16;
  }
  return !text.starts_with('-') && !text.starts_with('+') &&
         read_number((is_negative ? "-" : "") + std::string(text), number, base);
}
/// As strtod() does: "inf" and "nan" are numbers.
bool read_real(std::string_view text, double& number) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const std::string_view digits = hex_digits(text);
  const auto format = digits.empty() ? std::chars_format::general : std::chars_format::hex;
  if (!digits.empty()) text = digits;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, format);
  if (is_negative) number = -number;
  return !text.empty() && !text.starts_with('-') && error == std::errc() && end == text.data() + text.size();
}
bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [text](std::string_view word) {
    return std::ranges::equal(text, word, {},
                              [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  });
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Caps caps() {
    if (!is_printable(text_)) fail("a character that cannot be printed, or no UTF-8");
    Caps made;
    made.media_type = word("a media type, as video/x-raw");
    if (!is_letter(made.media_type.front())) fail("a media type that begins with a letter");
    if (take('(')) {
      do made.features.push_back(word("a feature, as memory:GPUMap"));
      while (take(','));
      expect(')');
    }
    while (take(',')) {
      if (made.fields.size() == most_fields) fail("the end: no caps have more than 4096 fields");
      CapsField field{word("the name of a field"), {}};
      expect('=');
      field.value = value(0);
      if (made.find(field.name) != nullptr) fail(fmt::format("another name: {} is there already", field.name));
      made.fields.push_back(std::move(field));
    }
    static_cast<void>(take(';'));  // as GStreamer writes behind the last structure
    space();
    if (at_ != text_.size()) fail("a comma, or the end: the caps of frames are one structure");
    return made;
  }

 private:
  [[noreturn]] void fail(std::string_view wanted) const {
    throw Error(ErrorCode::invalid, fmt::format("caps \"{}\" at character {}: {} is expected there",
                                                printable(text_, {}, 200), at_ + 1, wanted));
  }
  void space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char one) {
    space();
    if (at_ == text_.size() || text_[at_] != one) return false;
    ++at_;
    return true;
  }
  void expect(char one) {
    if (!take(one)) fail(fmt::format("'{}'", one));
  }
  std::string word(std::string_view what) {
    space();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
    if (begin == at_) fail(what);
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted() {
    std::string made;
    // A byte in octal is three digits behind a backslash; any other character behind one is itself.
    constexpr std::size_t digits = 3;
    while (at_ < text_.size() && text_[at_] != '"') {
      unsigned byte = 0;
      const bool escaped = text_[at_] == '\\';
      if (escaped) ++at_;
      if (escaped && read_octal(text_.substr(at_, digits), byte)) {
        made += static_cast<char>(byte);
        at_ += digits;
      } else if (at_ < text_.size()) {
        made += text_[at_++];
      }
    }
    expect('"');
    if (!is_printable(made)) fail("text that can be printed");
    return made;
  }
  static bool read_octal(std::string_view text, unsigned& byte) {
    constexpr unsigned most = 255;
    constexpr std::size_t digits = 3;
    return text.size() == digits && read_number(text, byte, 8) && byte != 0 && byte <= most;
  }

  CapsValue value(int depth) {
    if (depth == deepest) fail("a value that is nested less deeply");
    StreamValue kind{};
    const bool is_typed = take('(');
    if (is_typed) {
      const std::string name = word("a type, as int");
      kind = type(name);
      expect(')');
    }
    if (take('<')) return array(kind, is_typed, depth);
    space();
    if (at_ < text_.size() && (text_[at_] == '{' || text_[at_] == '[')) {
      fail("one value: the caps of frames have neither lists nor ranges");
    }
    if (take('"')) return checked(is_typed ? kind : StreamValue::string, quoted());
    const std::size_t begin = at_;
    const std::string written = word("a value");
    if (written == "NULL" && (!is_typed || kind == StreamValue::string)) return {};  // no string
    // GStreamer has numbers for these.
    if (!is_typed && is_one_of(written, {"min", "max", "little_endian", "big_endian", "byte_order"})) {
      at_ = begin;
      fail("a type before a word that GStreamer may take for a number, as (string)");
    }
    return is_typed ? checked(kind, written) : guessed(written);
  }

  CapsValue array(StreamValue kind, bool is_typed, int depth) {
    CapsValue made;
    made.kind = StreamValue::array;
    if (take('>')) return made;
    do {
      CapsValue member = value(depth + 1);
      if (is_typed && member.kind != kind && member.kind != StreamValue::array) fail("a member of the array's type");
      if (!made.members.empty() && made.members.front().kind != member.kind) fail("members of one type");
      made.members.push_back(std::move(member));
    } while (take(','));
    expect('>');
    return made;
  }

  [[nodiscard]] StreamValue type(const std::string& name) const {
    for (const auto& one : type_names) {
      if (one.name == name) return one.kind;
    }
    for (const auto& one : aliases) {
      if (one.name == name) return one.kind;
    }
    fail(fmt::format("a type that gpumap knows, as int, string or fraction, not {}", name));
  }

  [[nodiscard]] CapsValue checked(StreamValue kind, const std::string& written) const {
    CapsValue made;
    if (!read(kind, written, made)) fail(fmt::format("a value of type {} before this", name_of(kind)));
    return made;
  }
  /// As GStreamer does, which tries one type after the other.
  static CapsValue guessed(const std::string& written) {
    CapsValue made;
    for (const StreamValue kind :
         {StreamValue::integer, StreamValue::double_real, StreamValue::fraction, StreamValue::boolean}) {
      if (read(kind, written, made)) return made;
    }
    static_cast<void>(read(StreamValue::string, written, made));
    return made;
  }

  static bool read(StreamValue kind, const std::string& written, CapsValue& made) {
    const auto within = [&](std::int64_t least, std::int64_t most) {
      return read_whole(written, made.number) && made.number >= least && made.number <= most;
    };
    made.kind = kind;
    switch (kind) {
      case StreamValue::boolean:
        made.number = is_one_of(written, {"true", "t", "yes", "1"}) ? 1 : 0;
        return made.number == 1 || is_one_of(written, {"false", "f", "no", "0"});
      case StreamValue::integer:
        // All 32 bits may be given as such.
        if (!hex_digits(written).empty() && within(0, std::numeric_limits<std::uint32_t>::max())) {
          made.number = static_cast<std::int32_t>(made.number);
          return true;
        }
        return within(std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max());
      case StreamValue::unsigned_integer:
        return within(0, std::numeric_limits<std::uint32_t>::max());
      case StreamValue::int64:
        return read_whole(written, made.number);
      case StreamValue::uint64:
      case StreamValue::bitmask: {
        std::uint64_t number = 0;
        const std::string_view hex = hex_digits(written);
        const bool is_number = kind == StreamValue::bitmask ? read_number(hex.empty() ? written : hex, number, 16)
                                                            : read_whole(written, number);
        made.number = static_cast<std::int64_t>(number);
        return is_number;
      }
      case StreamValue::real:
      case StreamValue::double_real:
        return read_real(written, made.real);
      case StreamValue::fraction: {
        const std::size_t slash = written.find('/');
        std::int32_t above = 0;
        std::int32_t below = 1;
        if (!read_number(std::string_view(written).substr(0, slash), above) ||
            (slash != std::string::npos && !read_number(std::string_view(written).substr(slash + 1), below)) ||
            below <= 0 || above == std::numeric_limits<std::int32_t>::min()) {
          return false;
        }
        made.number = above;
        made.divisor = below;
        return true;
      }
      case StreamValue::string:
        made.text = written;
        return true;
      case StreamValue::buffer:
        return read_hex(written, made.bytes);
      default:
        return false;
    }
  }

  static bool read_hex(std::string_view written, std::vector<std::byte>& bytes) {
    bytes.clear();
    if (written.size() % 2 != 0) return false;
    for (std::size_t at = 0; at < written.size(); at += 2) {
      unsigned byte = 0;
      if (!read_number(written.substr(at, 2), byte, 16)) return false;
      bytes.push_back(static_cast<std::byte>(byte));
    }
    return true;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

/// In quotes where GStreamer needs them.
std::string quoted(const std::string& text) {
  const bool looks_plain = !text.empty() && std::all_of(text.begin(), text.end(), is_plain);
  if (looks_plain && text != "NULL") return text;
  std::string made = "\"";
  for (const char one : text) {
    if (is_plain(one)) {
      made += one;
    } else if (one >= ' ' && one <= '~') {
      made += '\\';
      made += one;
    } else {
      made += fmt::format("\\{:03o}", static_cast<unsigned char>(one));
    }
  }
  return made + '"';
}

/// A double with the digits that make it the same again, and a point that makes it no whole number.
std::string written(double number) {
  std::string made = fmt::format("{}", number);
  if (made.find_first_not_of("-0123456789") == std::string::npos) made += ".0";
  return made;
}

std::string text_of(const CapsValue& value) {
  switch (value.kind) {
    case StreamValue::boolean:
      return value.number != 0 ? "(boolean)true" : "(boolean)false";
    case StreamValue::fraction:
      return fmt::format("(fraction){}/{}", value.number, value.divisor);
    case StreamValue::uint64:
      return fmt::format("(guint64){}", static_cast<std::uint64_t>(value.number));
    case StreamValue::bitmask:
      return fmt::format("(bitmask)0x{:016x}", static_cast<std::uint64_t>(value.number));
    case StreamValue::real:
      return "(float)" + written(static_cast<double>(static_cast<float>(value.real)));
    case StreamValue::double_real:
      return "(double)" + written(value.real);
    case StreamValue::string:
      return "(string)" + quoted(value.text);
    case StreamValue::no_string:
      return "(string)NULL";
    case StreamValue::enumeration:
    case StreamValue::flags:
      return fmt::format("({}){}", value.text, value.number);
    case StreamValue::flag_set:
      return fmt::format("({}){:x}:{:x}", value.text, static_cast<std::uint32_t>(value.number),
                         static_cast<std::uint32_t>(value.divisor));
    case StreamValue::array: {
      std::string made = "< ";
      for (const CapsValue& member : value.members) made += (made.size() > 2 ? ", " : "") + text_of(member);
      return made + " >";
    }
    case StreamValue::buffer: {
      std::string made = "(buffer)";
      for (const std::byte byte : value.bytes) made += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
      return made;
    }
    default:
      return fmt::format("({}){}", name_of(value.kind), value.number);
  }
}

void put_value(Bytes& bytes, const CapsValue& value) {
  put(bytes, value.kind);
  put_sized(bytes, [&] {
    switch (value.kind) {
      case StreamValue::boolean:
        put(bytes, static_cast<std::uint8_t>(value.number));
        break;
      case StreamValue::integer:
      case StreamValue::unsigned_integer:
        put(bytes, static_cast<std::uint32_t>(value.number));
        break;
      case StreamValue::real:
        put(bytes, static_cast<float>(value.real));
        break;
      case StreamValue::double_real:
        put(bytes, value.real);
        break;
      case StreamValue::fraction:
        put(bytes, static_cast<std::int32_t>(value.number));
        put(bytes, static_cast<std::int32_t>(value.divisor));
        break;
      case StreamValue::string:
        put_text(bytes, value.text);
        break;
      case StreamValue::no_string:
        break;
      case StreamValue::array:
        for (const CapsValue& member : value.members) put_value(bytes, member);
        break;
      case StreamValue::buffer:
        bytes.insert(bytes.end(), value.bytes.begin(), value.bytes.end());
        break;
      default:  // int64, uint64 and bitmask: the parser makes no others
        put(bytes, value.number);
        break;
    }
  });
}

/// What a text can say of the value; `known`: false, and it was passed over. False: it is none.
bool read_value(ByteReader& from, CapsValue& value, bool& known, int depth) {
  const auto kind = from.take<StreamValue>();
  ByteReader content = from.take_sized();
  if (!from.is_whole() || depth == deepest) return false;
  value.kind = kind;
  known = true;
  switch (kind) {
    case StreamValue::boolean:
      value.number = content.take<std::uint8_t>() != 0 ? 1 : 0;
      break;
    case StreamValue::integer:
      value.number = content.take<std::int32_t>();
      break;
    case StreamValue::unsigned_integer:
      value.number = content.take<std::uint32_t>();
      break;
    case StreamValue::int64:
    case StreamValue::uint64:
    case StreamValue::bitmask:
      value.number = content.take<std::int64_t>();
      break;
    case StreamValue::real:
      value.real = static_cast<double>(content.take<float>());
      break;
    case StreamValue::double_real:
      value.real = content.take<double>();
      break;
    case StreamValue::fraction:
      value.number = content.take<std::int32_t>();
      value.divisor = content.take<std::int32_t>();
      break;
    case StreamValue::string:
      value.text = content.take_text();
      break;
    case StreamValue::no_string:
      break;
    case StreamValue::enumeration:
    case StreamValue::flags:
    case StreamValue::flag_set:
      value.text = content.take_text();
      value.number = content.take<std::uint32_t>();
      if (kind == StreamValue::flag_set) value.divisor = content.take<std::uint32_t>();
      break;
    case StreamValue::array:
      while (!content.empty()) {
        CapsValue member;
        bool member_known = false;
        if (!read_value(content, member, member_known, depth + 1)) return false;
        if (member_known) value.members.push_back(std::move(member));
      }
      break;
    case StreamValue::buffer: {
      const auto rest = content.take_rest();
      value.bytes.assign(rest.begin(), rest.end());
      return true;
    }
    default:
      known = false;
      return true;
  }
  known = is_printable(value.text);  // else it has no text
  return content.is_done();
}

}  // namespace

const CapsValue* Caps::find(std::string_view name) const noexcept {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const CapsField& field) { return field.name == name; });
  return found != fields.end() ? &found->value : nullptr;
}

std::int64_t Caps::number(std::string_view name) const noexcept {
  const CapsValue* const value = find(name);
  return value != nullptr && value->kind == StreamValue::integer ? value->number : 0;
}

std::string_view Caps::text(std::string_view name) const noexcept {
  const CapsValue* const value = find(name);
  return value != nullptr && value->kind == StreamValue::string ? std::string_view(value->text) : std::string_view();
}

Caps parse_caps(std::string_view text) {
  return Parser(text).caps();
}

std::string text_of(const Caps& caps) {
  std::string made = caps.media_type;
  if (!caps.features.empty()) made += fmt::format("({})", fmt::join(caps.features, ", "));
  for (const CapsField& field : caps.fields) made += fmt::format(", {}={}", field.name, text_of(field.value));
  return made;
}

std::vector<std::byte> bytes_of(const Caps& caps) {
  Bytes bytes;
  put(bytes, std::int32_t{0});  // not ANY
  put_sized(bytes, [&] {
    for (const std::string& feature : caps.features) put_text(bytes, feature);
    if (caps.features.empty()) put_text(bytes, "memory:SystemMemory");
  });
  put_sized(bytes, [&] {
    put_text(bytes, caps.media_type);
    put(bytes, static_cast<std::uint32_t>(caps.fields.size()));
    for (const CapsField& field : caps.fields) {
      put_text(bytes, field.name);
      put_value(bytes, field.value);
    }
  });
  return bytes;
}

bool read_caps(std::span<const std::byte> bytes, Caps& caps) {
  ByteReader from(bytes);
  Caps made;
  const bool is_any = from.take<std::int32_t>() != 0;
  ByteReader features = from.take_sized();
  ByteReader structure = from.take_sized();
  if (is_any || !from.is_done()) return false;
  while (!features.empty() && features.is_whole()) {
    std::string feature = features.take_text();
    if (!is_printable(feature)) return false;
    if (feature != "memory:SystemMemory") made.features.push_back(std::move(feature));
  }
  made.media_type = structure.take_text();
  const auto count = structure.take<std::uint32_t>();
  if (!features.is_whole() || !structure.is_whole() || count > most_fields || made.media_type.empty() ||
      !is_printable(made.media_type)) {
    return false;
  }
  for (std::uint32_t number = 0; number < count; ++number) {
    CapsField field{structure.take_text(), {}};
    bool known = false;
    if (!read_value(structure, field.value, known, 0)) return false;
    if (known && is_printable(field.name)) made.fields.push_back(std::move(field));
  }
  if (!structure.is_done()) return false;
  caps = std::move(made);
  return true;
}

namespace {

/// GstEventType: a number, and how such events travel (downstream, serialised, sticky).
constexpr std::uint32_t sticky = 0xe;
constexpr std::uint32_t event_type(std::uint32_t number) noexcept {
  constexpr unsigned bits_of_flags = 8;
  return number << bits_of_flags | sticky;
}
constexpr std::uint32_t stream_start_event = event_type(40), caps_event = event_type(50),
                        segment_event = event_type(70), end_event = event_type(110);

constexpr std::size_t max_planes = 4;

/// VideoLayout of gst/channel/event_text.hpp.
struct LinkLayout {
  std::uint32_t format = 0;  ///< GstVideoFormat
  std::uint32_t width = 0, height = 0, planes = 0;
  std::array<std::uint64_t, max_planes> offset{};
  std::array<std::int32_t, max_planes> stride{};
};

Bytes event(std::uint32_t type, bool has_structure) {
  Bytes bytes;
  put(bytes, StreamMessage::event);
  put(bytes, type);
  put(bytes, std::uint32_t{0});  // no sequence number
  put(bytes, static_cast<std::uint8_t>(has_structure ? 1 : 0));
  return bytes;
}

/// Name and number of fields of a structure.
void begin_structure(Bytes& bytes, std::string_view name, std::uint32_t fields) {
  put_text(bytes, name);
  put(bytes, fields);
}

template <typename Write>
void put_field(Bytes& bytes, std::string_view name, StreamValue kind, const Write& write) {
  put_text(bytes, name);
  put(bytes, kind);
  put_sized(bytes, write);
}

}  // namespace

Bytes time_message(std::int64_t base_ns) {
  Bytes bytes;
  put(bytes, StreamMessage::time);
  put(bytes, std::uint8_t{1});  // it plays
  put(bytes, base_ns);
  put(bytes, std::int64_t{0});  // the running time at which it stopped
  put(bytes, std::int64_t{0});  // its clock is CLOCK_MONOTONIC
  return bytes;
}

Bytes stream_start_message(std::string_view id) {
  Bytes bytes = event(stream_start_event, true);
  begin_structure(bytes, "GstEventStreamStart", 2);
  put_field(bytes, "stream-id", StreamValue::string, [&] { put_text(bytes, id); });
  put_field(bytes, "flags", StreamValue::flags, [&] {
    put_text(bytes, "GstStreamFlags");
    put(bytes, std::uint32_t{0});
  });
  return bytes;
}

Bytes caps_message(const Caps& caps) {
  Bytes bytes = event(caps_event, true);
  begin_structure(bytes, "GstEventCaps", 1);
  put_field(bytes, "caps", StreamValue::caps, [&] {
    const Bytes content = bytes_of(caps);
    bytes.insert(bytes.end(), content.begin(), content.end());
  });
  return bytes;
}

Bytes segment_message() {
  constexpr std::int32_t time_format = 3;  // GST_FORMAT_TIME
  constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  Bytes bytes = event(segment_event, true);
  begin_structure(bytes, "GstEventSegment", 1);
  put_field(bytes, "segment", StreamValue::segment, [&] {
    put(bytes, std::uint32_t{0});  // flags
    put(bytes, time_format);
    put(bytes, 1.0);  // rate
    put(bytes, 1.0);  // applied rate
    // base, offset, start, stop, time, position, duration
    for (const std::uint64_t one :
         {std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{0}, none, std::uint64_t{0}, std::uint64_t{0}, none}) {
      put(bytes, one);
    }
  });
  return bytes;
}

Bytes layout_message(const gpumap_layout* layout) {
  Bytes bytes;
  const std::uint32_t format = layout != nullptr ? gst_number_of(layout->format) : 0;
  // What is no video has no such message: its caps say all.
  if (format == 0) {
    put(bytes, StreamMessage::no_layout);
    return bytes;
  }
  put(bytes, StreamMessage::layout);
  LinkLayout crossing;
  crossing.format = format;
  crossing.width = layout->width;
  crossing.height = layout->height;
  crossing.planes = layout->planes;
  for (std::size_t plane = 0; plane < max_planes; ++plane) {
    crossing.offset[plane] = layout->offset[plane];
    crossing.stride[plane] = layout->stride[plane];
  }
  put(bytes, crossing);
  return bytes;
}

Bytes end_message() {
  return event(end_event, false);
}

namespace {

void read_event(ByteReader& from, StreamNews& news) {
  const auto type = from.take<std::uint32_t>();
  static_cast<void>(from.take<std::uint32_t>());  // its sequence number
  const bool has_structure = from.take<std::uint8_t>() != 0;
  if (!from.is_whole()) return;
  if (type == end_event) news.kind = StreamNews::Kind::end;
  if (type != caps_event || !has_structure) return;
  static_cast<void>(from.take_text());  // "GstEventCaps"
  const auto fields = from.take<std::uint32_t>();
  for (std::uint32_t field = 0; field < fields && from.is_whole(); ++field) {
    const std::string name = from.take_text();
    const auto kind = from.take<StreamValue>();
    ByteReader content = from.take_sized();
    if (name != "caps" || kind != StreamValue::caps || !from.is_whole()) continue;
    if (read_caps(content.take_rest(), news.caps)) news.kind = StreamNews::Kind::caps;
  }
}

void read_layout(ByteReader& from, StreamNews& news) {
  const auto crossing = from.take<LinkLayout>();
  if (!from.is_whole() || !from.empty() || crossing.planes == 0 || crossing.planes > max_planes) return;
  gpumap_layout made{};
  made.struct_size = sizeof made;
  made.format = format_of_gst(crossing.format);
  made.width = crossing.width;
  made.height = crossing.height;
  made.planes = crossing.planes;
  for (std::size_t plane = 0; plane < max_planes; ++plane) {
    made.offset[plane] = crossing.offset[plane];
    made.stride[plane] = crossing.stride[plane];
  }
  news.kind = StreamNews::Kind::layout;
  news.layout = made;
}

}  // namespace

StreamNews read_message(std::span<const std::byte> message) {
  StreamNews news;
  ByteReader from(message);
  switch (from.take<StreamMessage>()) {
    case StreamMessage::event:
      read_event(from, news);
      break;
    case StreamMessage::layout:
      read_layout(from, news);
      break;
    case StreamMessage::no_layout:
      news.kind = StreamNews::Kind::layout;
      break;
    case StreamMessage::time:
      break;
  }
  return news;
}

}  // namespace gpumap::c
