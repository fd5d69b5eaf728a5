// SPDX-License-Identifier: MIT
#include "kernel/cache/cache_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <tuple>
#include <vector>

#include "device/unique_fd.hpp"
#include "gpumap/file.hpp"

namespace gpumap {
namespace {

constexpr std::string_view entry_suffix = ".gpumap";
constexpr std::string_view unfinished_suffix = ".tmp";
constexpr std::size_t key_digits = 2 * std::tuple_size_v<Digest>;
// A writer that died left its file behind; one that lives takes milliseconds.
constexpr std::time_t abandoned_after_s = 3600;

std::string hex(const auto& bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string system_error() {
  return std::strerror(errno);
}

/// Nobody else's, and nobody else may change it.
bool is_private(const struct stat& file) {
  return file.st_uid == geteuid() && (file.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// The folder, or what is wrong with it in `wrong`.
UniqueFd open_folder(const std::filesystem::path& path, std::string& wrong) {
  UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!folder || fstat(folder.get(), &info) != 0) {
    wrong = fmt::format("{}: {}", path.string(), system_error());
    return {};
  }
  if (!is_private(info)) {
    wrong = fmt::format("{}: belongs to another user, or others may write it: chmod go-w, or set GPUMAP_CACHE",
                        path.string());
    return {};
  }
  return folder;
}

/// A missing folder is made for this user alone, as the XDG specification wants it. What is wrong where one cannot be
/// made; other failures show when it is opened.
std::string make_folders(const std::filesystem::path& path) {
  std::filesystem::path part;
  struct stat above {};
  for (const auto& name : path) {
    part /= name;
    struct stat info {};
    if (stat(part.c_str(), &info) != 0) {
      // Root, with a user's HOME kept by sudo, must not leave there what the user cannot use.
      if (above.st_uid != geteuid() && above.st_uid != 0) return {};
      if (mkdir(part.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
        return fmt::format("{} cannot be made: {}", part.string(), system_error());
      }
      info.st_uid = geteuid();
    }
    above = info;
  }
  return {};
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

struct CloseListing {
  void operator()(DIR* names) const noexcept { closedir(names); }
};

bool is_ours(std::string_view name) {
  return name.size() > key_digits && name.find_first_not_of("0123456789abcdef") == key_digits &&
         (name.substr(key_digits) == entry_suffix || name.ends_with(unfinished_suffix));
}

}  // namespace

CacheFolder::CacheFolder(const std::filesystem::path& path, std::uint64_t max_bytes) : max_bytes_(max_bytes) {
  std::error_code ignored;
  path_ = std::filesystem::absolute(path, ignored).lexically_normal();
  // With a slash at its end a link would be followed.
  if (!path_.has_filename()) path_ = path_.parent_path();
}

std::optional<CacheFolder> CacheFolder::of_user() {
  // secure_getenv: a setuid program must not take code from a folder that its caller names.
  if (const char* own = secure_getenv("GPUMAP_CACHE")) {
    return *own == '\0' ? std::nullopt : std::optional<CacheFolder>(own);
  }
  // The XDG specification has relative paths ignored.
  if (const char* caches = secure_getenv("XDG_CACHE_HOME"); caches != nullptr && *caches == '/') {
    return CacheFolder(std::filesystem::path(caches) / "gpumap");
  }
  if (const char* home = secure_getenv("HOME"); home != nullptr && *home == '/') {
    return CacheFolder(std::filesystem::path(home) / ".cache" / "gpumap");
  }
  return {};
}

std::filesystem::path CacheFolder::path_of(const Digest& key) const {
  return path_ / (hex(key) += entry_suffix);
}

std::optional<std::string> CacheFolder::read(const Digest& key) const {
  std::string ignored;
  const UniqueFd folder = open_folder(path_, ignored);
  if (!folder) return {};
  // O_NONBLOCK: a named pipe would wait for its other end.
  const std::string name = path_of(key).filename();
  const UniqueFd file(openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || !is_private(info)) return {};
  if (static_cast<std::uint64_t>(info.st_size) > max_bytes_) return {};

  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};
    filled += static_cast<std::size_t>(got);
  }
  static_cast<void>(futimens(file.get(), nullptr));
  return bytes;
}

std::string CacheFolder::write(const Digest& key, std::string_view bytes) const {
  if (bytes.size() > max_bytes_) {
    return fmt::format("{}: {} bytes of code, more than the cache may hold", path_.string(), bytes.size());
  }
  std::string wrong = make_folders(path_);
  if (!wrong.empty()) return wrong;
  const UniqueFd folder = open_folder(path_, wrong);
  if (!folder) return wrong;

  const FileSizeErrors instead_of_a_signal;
  // Random, not the process's number: containers with one home have the same numbers.
  std::array<std::uint8_t, 8> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) return system_error();
  const std::string unfinished = fmt::format("{}.{}{}", hex(key), hex(random), unfinished_suffix);
  const std::string name = path_of(key).filename();
  UniqueFd file(openat(folder.get(), unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  // Not synced: what a power failure tears is told by its checksum.
  if (!file || !write_all(file.get(), bytes) ||
      renameat(folder.get(), unfinished.c_str(), folder.get(), name.c_str()) != 0) {
    const std::string why = system_error();
    wrong = fmt::format("{}: {}", (path_ / name).string(), why);
    if (file) unlinkat(folder.get(), unfinished.c_str(), 0);
    return wrong;
  }
  prune(folder.get());
  return {};
}

void CacheFolder::prune(int folder) const {
  UniqueFd listed(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, CloseListing> names(listed ? fdopendir(listed.get()) : nullptr);
  if (!names) return;
  static_cast<void>(listed.release());  // closed with `names`

  struct File {
    std::string name;
    timespec used;
    std::uint64_t bytes;
  };
  std::vector<File> files;
  std::uint64_t total = 0;
  while (const dirent* entry = readdir(names.get())) {
    const std::string_view name = entry->d_name;
    struct stat info {};
    if (!is_ours(name) || fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(info.st_mode)) continue;
    if (name.ends_with(unfinished_suffix)) {
      if (info.st_mtim.tv_sec + abandoned_after_s < std::time(nullptr)) unlinkat(folder, entry->d_name, 0);
      continue;
    }
    files.push_back({std::string(name), info.st_mtim, static_cast<std::uint64_t>(info.st_size)});
    total += files.back().bytes;
  }
  if (total <= max_bytes_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec) < std::tie(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const File& file : files) {
    if (total <= max_bytes_) break;
    unlinkat(folder, file.name.c_str(), 0);
    total -= file.bytes;
  }
}

}  // namespace gpumap
