// SPDX-License-Identifier: MIT
// The tables that a kernel of the user's declares, and the files that are given for them.
#include "kernel/source/declared_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "gpumap/error.hpp"
#include "gpumap/kernel.h"
#include "gpumap/tables.hpp"

namespace gpumap {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// The next word of `text`, which loses it.
std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

void check_count(std::size_t count) {
  if (count <= GPUMAP_MAX_TABLES) return;
  throw Error(ErrorCode::invalid, fmt::format("{} tables: a kernel has at most {}", count, GPUMAP_MAX_TABLES));
}

/// "name=path" in two; empty where that is not how `text` begins.
std::optional<std::pair<std::string, std::string>> split(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos || !is_name(trimmed(text.substr(0, equals)))) return {};
  return std::pair{std::string(trimmed(text.substr(0, equals))), std::string(text.substr(equals + 1))};
}

template <typename Tables, typename NameOf>
std::string names_of(const Tables& tables, NameOf name_of) {
  std::string names;
  for (const auto& table : tables) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(table));
  return names.empty() ? "none" : names;
}

}  // namespace

DeclaredTable parse_declared_table(std::string_view text, const std::vector<DeclaredTable>& before) {
  std::string_view rest = text;
  DeclaredTable made;
  made.name = std::string(take_word(rest));
  const std::string_view type = take_word(rest);
  const std::string_view count = take_word(rest);
  if (!is_name(made.name) || type.empty() || !trimmed(rest).empty()) {
    throw Error(ErrorCode::invalid,
                fmt::format("\"{}\" is no table: write a name, a type and, where it is fixed, the number of elements, "
                            "as in weights float32 256",
                            text));
  }
  made.type = parse_number_type(type);
  if (!count.empty()) {
    std::uint64_t elements = 0;
    const std::uint64_t most = Tables::max_bytes / bytes_of(made.type);
    const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), elements);
    if (error != std::errc{} || end != count.data() + count.size() || elements == 0 || elements > most) {
      throw Error(ErrorCode::invalid,
                  fmt::format("\"{}\" is no number of elements: write a whole number from 1 to {}", count, most));
    }
    made.count = elements;
  }
  if (std::any_of(before.begin(), before.end(), [&](const DeclaredTable& one) { return one.name == made.name; })) {
    throw Error(ErrorCode::invalid,
                fmt::format("table \"{}\" is declared twice: leave one of the lines out", made.name));
  }
  check_count(before.size() + 1);
  return made;
}

std::vector<std::pair<std::string, std::filesystem::path>> parse_table_files(std::string_view text) {
  std::vector<std::pair<std::string, std::filesystem::path>> files;
  if (trimmed(text).empty()) return files;
  std::string path;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    if (auto named = split(part)) {
      files.emplace_back(std::move(named->first), std::move(named->second));
    } else if (!files.empty()) {
      files.back().second += "," + std::string(part);  // of a path that has commas
    } else {
      throw Error(ErrorCode::invalid, fmt::format("tables: \"{}\": write name=/path/of/file,other=/path", text));
    }
    at = end + 1;
  }
  for (auto file = files.begin(); file != files.end(); ++file) {
    if (file->second.empty()) {
      throw Error(ErrorCode::invalid, fmt::format("tables: '{}' has no path: write name=/path/of/file", file->first));
    }
    if (std::any_of(files.begin(), file, [&](const auto& one) { return one.first == file->first; })) {
      throw Error(ErrorCode::invalid, fmt::format("tables: '{}' is given twice: leave one of them out", file->first));
    }
  }
  return files;
}

std::vector<std::pair<DeclaredTable, std::filesystem::path>> match_tables(
    const std::string& kernel, std::vector<DeclaredTable> declared,
    std::vector<std::pair<std::string, std::filesystem::path>> files) {
  std::vector<std::pair<DeclaredTable, std::filesystem::path>> made;
  if (declared.empty()) {
    check_count(files.size());
    for (auto& [name, path] : files) {
      made.emplace_back(DeclaredTable{.name = name, .type = NumberType::u8, .count = {}}, std::move(path));
    }
    return made;
  }
  for (const auto& [name, path] : files) {
    if (std::any_of(declared.begin(), declared.end(), [&n = name](const auto& one) { return one.name == n; })) continue;
    throw Error(ErrorCode::invalid,
                fmt::format("tables: kernel {} has no table '{}': it has {}", kernel, name,
                            names_of(declared, [](const DeclaredTable& table) { return table.name; })));
  }
  for (DeclaredTable& table : declared) {
    const auto file =
        std::find_if(files.begin(), files.end(), [&](const auto& one) { return one.first == table.name; });
    if (file == files.end()) {
      throw Error(ErrorCode::invalid,
                  fmt::format("kernel {}: its table '{}' has no file: set tables=\"{}=/path/of/file\"", kernel,
                              table.name, table.name));
    }
    made.emplace_back(std::move(table), std::move(file->second));
  }
  return made;
}

}  // namespace gpumap
