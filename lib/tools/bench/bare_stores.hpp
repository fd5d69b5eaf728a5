// SPDX-License-Identifier: MIT
// The shortest loops that store past the caches, with no head, no tail and no choice: what the library is held against.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace bench {

struct BareStore {
  std::string_view name;
  /// Whole 64-byte lines, all aligned to 64 at both ends.
  void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes);
};
/// Those that this CPU runs.
[[nodiscard]] std::vector<BareStore> bare_stores();

}  // namespace bench
