// SPDX-License-Identifier: MIT
// The tensors that a kernel takes and gives beside a frame.
#include "kernel/source/declared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "gpumap/error.hpp"
#include "gpumap/kernel.h"

namespace gpumap {
namespace {

constexpr std::uint64_t max_dimension = std::numeric_limits<std::int32_t>::max();  // as caps count
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 32U;

/// The next word of `text`, which loses it.
std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Empty: none.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : 'x';
    if (c == '{') ++depth;
    if (c == '}') --depth;
    if (c != 'x' || (depth != 0 && at < text.size())) continue;  // an `x` of max(a,b)
    parts.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  return parts;
}

DeclaredDimension parse_dimension(std::string_view whole, std::string_view text, bool any) {
  DeclaredDimension made;
  std::string_view size = text;
  if (size.ends_with('?')) {
    made.open = true;
    size.remove_suffix(1);
  }
  if (size.size() > 2 && size.starts_with('{') && size.ends_with('}')) size = size.substr(1, size.size() - 2);
  const bool is_any = any && made.open && size.empty();
  const bool is_size = !size.empty() && (size.size() + (made.open ? 1 : 0) != text.size() || is_number(size));
  if (!is_any && !is_size) {
    throw Error(ErrorCode::invalid, fmt::format("\"{}\" are no dimensions: \"{}\" is no size: write numbers, or "
                                                "expressions in braces, as in 1x3x{{height}}x{{width}}{}",
                                                whole, text, any ? ", and ? for any" : ""));
  }
  made.size = size;
  return made;
}

}  // namespace

std::string parse_tensor_id(std::string_view text) {
  const bool is_id = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
  if (is_id) return std::string(text);
  throw Error(ErrorCode::invalid,
              fmt::format("\"{}\" is no name for a tensor: write letters, digits, '-', '_' and '.'", text));
}

DeclaredTensor parse_declared_tensor(std::string_view text, bool any) {
  std::string_view rest = text;
  DeclaredTensor made;
  const std::string_view id = take_word(rest);
  const std::string_view type = take_word(rest);
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  if (type.empty() || rest.empty()) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("\"{}\" is no tensor: write an id, a type and dimensions, as in boxes float32 1x100x4", text));
  }
  made.id = parse_tensor_id(id);
  made.type = parse_number_type(type);
  for (const std::string_view part : split(rest)) made.dims.push_back(parse_dimension(rest, part, any));
  if (made.dims.size() > GPUMAP_MAX_TENSOR_DIMS) {
    throw Error(ErrorCode::invalid, fmt::format("tensor \"{}\" has {} dimensions: {} are the most", made.id,
                                                made.dims.size(), GPUMAP_MAX_TENSOR_DIMS));
  }
  return made;
}

std::vector<std::uint64_t> dims_of(const DeclaredTensor& tensor, Variables variables) {
  std::vector<std::uint64_t> dims;
  std::uint64_t bytes = bytes_of(tensor.type);
  for (const DeclaredDimension& dimension : tensor.dims) {
    if (dimension.size.empty()) {
      dims.push_back(0);
      continue;
    }
    std::uint64_t size = 0;
    try {
      size = evaluate(dimension.size, variables);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("tensor \"{}\": {}", tensor.id, error.what()));
    }
    if (size == 0 || size > max_dimension) {
      throw Error(ErrorCode::invalid, fmt::format("tensor \"{}\": its dimension {} is {}: it has to be from 1 to {}",
                                                  tensor.id, dims.size(), size, max_dimension));
    }
    if (bytes > max_bytes / size) {
      throw Error(ErrorCode::invalid, fmt::format("tensor \"{}\" has more than {} bytes: declare smaller dimensions",
                                                  tensor.id, max_bytes));
    }
    bytes *= size;
    dims.push_back(size);
  }
  return dims;
}

std::string dims_text(std::span<const std::uint64_t> dims) {
  std::string text;
  for (const std::uint64_t size : dims) {
    text += fmt::format("{}{}", text.empty() ? "" : "x", size != 0 ? std::to_string(size) : "?");
  }
  return text;
}

}  // namespace gpumap
