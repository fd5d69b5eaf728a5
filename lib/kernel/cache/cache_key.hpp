// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace gpumap {

using Digest = std::array<std::uint8_t, 32>;

[[nodiscard]] Digest sha256(std::string_view bytes);

/// A file that comes with gpumap and that a kernel may include: its name between angle brackets, and its text.
using OwnHeader = std::pair<std::string_view, std::string_view>;

/// Path, size and time of the file from which the process loaded the code at `address`; empty where that is unknown.
/// Ask soon after loading: the file may be replaced while the process lives.
[[nodiscard]] std::string identity_of_code(const void* address);

/// Everything that decides what a compiler makes of a source, for a compilation's place in the cache. The build of
/// gpumap is in it from the start. Thread safety: none.
class CacheKey {
 public:
  CacheKey();

  void add(std::string_view field);
  /// A compiler, as identity_of_code() names it. Empty: the key becomes unusable.
  void add_compiler(std::string_view identity);
  /// A source with all that it may include. The key becomes unusable when the text may depend on more than that.
  void add_source(std::string_view name, std::string_view code, std::span<const OwnHeader> headers);

  /// False: what decides the result is not known in full, so it must not be kept.
  [[nodiscard]] bool usable() const noexcept { return usable_; }
  [[nodiscard]] Digest digest() const { return sha256(fields_); }

 private:
  std::string fields_;  ///< each after its length, so that no two lists of fields look alike
  bool usable_ = true;
};

}  // namespace gpumap
