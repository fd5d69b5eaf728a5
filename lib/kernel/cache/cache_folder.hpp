// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/cache/cache_key.hpp"

namespace gpumap {

/// Files of one user that several processes read and write at once. What they hold will run on the GPU: a folder or a
/// file that belongs to someone else, or that someone else may write, is left alone. No failure is an exception.
/// Thread safety: immutable; takes calls from any thread.
class CacheFolder {
 public:
  static constexpr std::uint64_t default_max_bytes = std::uint64_t{64} << 20;

  explicit CacheFolder(const std::filesystem::path& path, std::uint64_t max_bytes = default_max_bytes);

  /// $GPUMAP_CACHE, else $XDG_CACHE_HOME/gpumap, else ~/.cache/gpumap; nothing where GPUMAP_CACHE is empty, where there
  /// is no home, and in a program that runs with more rights than its caller.
  [[nodiscard]] static std::optional<CacheFolder> of_user();

  /// The bytes written under `key`, unchecked. Marks them as used.
  [[nodiscard]] std::optional<std::string> read(const Digest& key) const;
  /// Put `bytes` under `key` in one step, and remove the longest unused files above max_bytes. Makes the folder where
  /// it is missing. Returns what went wrong; empty when nothing did.
  [[nodiscard]] std::string write(const Digest& key, std::string_view bytes) const;

  [[nodiscard]] std::filesystem::path path_of(const Digest& key) const;

 private:
  void prune(int folder) const;

  std::filesystem::path path_;
  std::uint64_t max_bytes_;
};

}  // namespace gpumap
