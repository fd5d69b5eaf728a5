// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"

namespace gpumap {

/// What a line `table` says, as in "weights float32 256", beside those `before` it. Throws Error(invalid).
[[nodiscard]] DeclaredTable parse_declared_table(std::string_view text, const std::vector<DeclaredTable>& before);

/// Each declared table with its file; where none is declared the files, as bytes. Throws Error(invalid).
[[nodiscard]] std::vector<std::pair<DeclaredTable, std::filesystem::path>> match_tables(
    const std::string& kernel, std::vector<DeclaredTable> declared,
    std::vector<std::pair<std::string, std::filesystem::path>> files);

}  // namespace gpumap
