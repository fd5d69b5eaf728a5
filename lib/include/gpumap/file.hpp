// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <istream>
#include <optional>
#include <string>

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

/// What to do where a file, which is named by `path`, did not open for `cause`, an errno.
[[nodiscard]] inline std::string remedy_where_closed(int cause, const std::string& path) {
  return cause == EMFILE || cause == ENFILE ? "raise ulimit -n" : "check " + path;
}

/// While it lives, a call of this thread that makes a file larger than the process may have (ulimit -f) fails with
/// EFBIG; else a signal ends the process, files in memory (memfd) included. Keeps errno.
class FileSizeErrors {
 public:
  FileSizeErrors() noexcept {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeErrors() {
    const int cause = errno;
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = cause;
  }
  FileSizeErrors(const FileSizeErrors&) = delete;
  FileSizeErrors& operator=(const FileSizeErrors&) = delete;

 private:
  sigset_t signal_{}, before_{};
  bool was_pending_ = false;
};

/// Of a file that is read whole. One of zeros that takes no room on the disk may be larger than any memory.
inline constexpr std::size_t most_file_bytes = std::size_t{256} << 20U;

/// All bytes of an open file. Empty where it has more than most_file_bytes, and where it cannot be read to its end:
/// istream::read() notes that, and iterators of the stream let std::ios_base::failure through, which no caller expects.
[[nodiscard]] inline std::optional<std::string> read_to_end(std::istream& file) {
  std::string bytes;
  std::array<char, 65536> part;
  while (file.good() && bytes.size() <= most_file_bytes) {
    file.read(part.data(), part.size());
    bytes.append(part.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof()) return {};
  return bytes;
}

}  // namespace gpumap
