// SPDX-License-Identifier: MIT
#include "gst/link/structure_text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "gst/ptr.hpp"

namespace gpumap::gst {
namespace {

/// Of a character that needs none, as in \133 for a bracket.
bool is_needless_escape(const char* text) {
  const auto is_digit = [](char one, char last) { return one >= '0' && one <= last; };
  if (text[0] != '\\' || !is_digit(text[1], '3') || !is_digit(text[2], '7') || !is_digit(text[3], '7')) return false;
  const int value = (text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0');
  return value >= ' ' && value <= '~';
}

/// Where the reader takes a bracket for the beginning of a list, and not for a letter of a text.
bool begins_value(char before) {
  return std::strchr("=,[{<)\"|;", before) != nullptr;
}

/// A closing bracket may stand in quotes, or behind what the reader leaves over, and close nothing. So it counts as the
/// reader counts: for what it reads twice, from [ on, any ] ends it. For the others, which it reads once, it is only
/// how many there are that bounds how deep it gets.
bool is_shallow(const char* text, int deepest) {
  constexpr int most = 256;
  int square = 0;
  std::vector<int> twice;  // how many were open ahead of each [ that begins a value and is not closed
  int lists = 0;
  int all = 0;
  char before = '=';  // the last one but spaces and what escapes others
  for (; *text != '\0'; ++text) {
    const bool begins = std::strchr("[{<", *text) != nullptr && begins_value(before);
    if (begins && ++all > most) return false;
    if (*text == '[') {
      if (begins) twice.push_back(square);
      if (twice.size() > static_cast<std::size_t>(deepest)) return false;
      ++square;
    } else if (*text == ']') {
      --square;
      while (!twice.empty() && twice.back() >= square) twice.pop_back();
    }
    if (begins && *text != '[' && ++lists > deepest) return false;
    if (std::strchr("}>", *text) != nullptr && lists > 0) --lists;
    if (is_needless_escape(text)) return false;
    if (std::strchr(" \t\n\r\f\v\\", *text) == nullptr) before = *text;
  }
  return true;
}

/// Whether it has a value of type GstSample, or looks so. Without backslashes, which only hide it.
bool names_sample(const std::string& plain) {
  for (const char* const name : {"sample", "Sample"}) {
    constexpr std::size_t length = 6;
    for (auto at = plain.find(name); at != std::string::npos; at = plain.find(name, at + length)) {
      const auto next = plain.find_first_not_of(" \t\n\r\f\v", at + length);
      if (next != std::string::npos && plain[next] == ')') return true;
    }
  }
  return false;
}

std::string without_backslashes(const char* text) {
  std::string plain = text;
  std::erase(plain, '\\');
  return plain;
}

/// Of `field` of a sample, as GStreamer decodes it.
bool is_shallow_field(std::string field) {
  constexpr int deepest = 2;
  std::replace(field.begin(), field.end(), '_', '=');
  gsize length = 0;
  const Ptr<gchar> bytes(reinterpret_cast<gchar*>(g_base64_decode(field.c_str(), &length)));
  const std::string text(bytes.get(), length);
  return is_shallow(text.c_str(), deepest) && !names_sample(without_backslashes(text.c_str()));
}

/// Caps, segment and info of a sample are texts, too, in base 64 and with a colon ahead of each.
bool has_shallow_samples(const char* text) {
  const std::string plain = without_backslashes(text);
  if (!names_sample(plain)) return true;
  const auto is_base64 = [](char one) { return g_ascii_isalnum(one) != 0 || std::strchr("+/_-.*", one) != nullptr; };
  for (auto at = plain.begin(); at != plain.end();) {
    if (*at++ != ':') continue;
    const auto end = std::find_if_not(at, plain.end(), is_base64);
    if (!is_shallow_field({at, end})) return false;
    at = end;
  }
  return true;
}

/// What has no name, GStreamer's reader gives one that it then complains of.
bool may_be_read(const char* text) {
  constexpr int deepest = 8;
  return g_ascii_isalpha(*text) != 0 && is_shallow(text, deepest) && has_shallow_samples(text);
}

}  // namespace

GstStructure* structure_of(const char* written) {
  if (!may_be_read(written)) return nullptr;
  gchar* end = nullptr;
  Ptr<GstStructure> structure(gst_structure_from_string(written, &end));
  return structure && *end == '\0' ? structure.release() : nullptr;
}

GstCaps* caps_of(const char* written) {
  return may_be_read(written) ? gst_caps_from_string(written) : nullptr;
}

}  // namespace gpumap::gst
