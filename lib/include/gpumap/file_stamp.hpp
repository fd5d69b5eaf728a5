// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <optional>

namespace gpumap {

/// Tells one version of a file from another. A value.
struct FileStamp {
  ino_t inode = 0;
  off_t bytes = 0;
  timespec changed{};

  [[nodiscard]] static FileStamp of(const struct stat& found) noexcept {
    return {.inode = found.st_ino, .bytes = found.st_size, .changed = found.st_mtim};
  }
  /// Empty where there is no such file.
  [[nodiscard]] static std::optional<FileStamp> of(const std::filesystem::path& path) noexcept {
    struct stat found {};
    if (stat(path.c_str(), &found) != 0) return {};
    return of(found);
  }
  [[nodiscard]] bool operator==(const FileStamp& other) const noexcept {
    return inode == other.inode && bytes == other.bytes && changed.tv_sec == other.changed.tv_sec &&
           changed.tv_nsec == other.changed.tv_nsec;
  }
};

}  // namespace gpumap
