// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace gpumap {

/// What a compiler said, without the blank end, and of a long list only the first lines: the rest follows from these.
[[nodiscard]] inline std::string shortened_log(std::string log) {
  constexpr auto max_lines = 40;
  log.erase(std::find_if(log.rbegin(), log.rend(), [](char c) { return c != '\n' && c != '\0'; }).base(), log.end());
  std::size_t end = 0;
  for (int line = 0; line < max_lines && end != log.npos; ++line) end = log.find('\n', end == 0 ? 0 : end + 1);
  if (end == log.npos) return log;
  const auto left_out = std::count(log.begin() + static_cast<std::ptrdiff_t>(end), log.end(), '\n');
  return fmt::format("{}\n({} more lines)", log.substr(0, end), left_out);
}

}  // namespace gpumap
