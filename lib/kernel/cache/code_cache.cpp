// SPDX-License-Identifier: MIT
#include "kernel/cache/code_cache.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <nettle/sha2.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <tuple>
#include <type_traits>
#include <vector>

#include "device/unique_fd.hpp"
#include "gpumap/file.hpp"
#include "gpumap/printable.hpp"

namespace gpumap {
namespace {

// As libgpumap was when this process loaded it. It stands for more than the version: shaderc may be linked into it.
const std::string* const own_identity = new std::string(identity_of_code(&own_identity));

bool continues_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Without the backslashes and line ends that split a line, which may stand in the middle of a word.
std::string splice(std::string_view code) {
  std::string spliced;
  spliced.reserve(code.size());
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code.substr(i).starts_with("\\\n")) {
      ++i;
    } else if (code.substr(i).starts_with("\\\r\n")) {
      i += 2;
    } else {
      spliced += code[i];
    }
  }
  return spliced;
}

/// Whether `word` at `at` may be a directive or an operator that looks at another file. Errs on the side of yes.
bool may_look_outside(std::string_view code, std::size_t at, std::string_view word,
                      std::span<const OwnHeader> headers) {
  std::string_view before = code.substr(0, at);
  if (!before.empty() && continues_name(before.back())) return before.ends_with("__has_");
  before = before.substr(0, before.find_last_not_of(" \t\f\v") + 1);
  // "%:" is a '#', between '#' and the word may stand a comment, and PTX in an asm statement has an .include.
  const auto stands = [before](std::string_view mark) { return before.ends_with(mark); };
  if (!stands("#") && !stands("%:") && !stands("*/") && !stands(".")) return false;

  // #include <gpumap/kernel.h> and nothing else: one in quotes is looked for beside the source first.
  std::string_view after = code.substr(at + word.size());
  after.remove_prefix(std::min(after.find_first_not_of(" \t"), after.size()));
  return !std::any_of(headers.begin(), headers.end(), [&](const OwnHeader& header) {
    return after.starts_with('<') && after.substr(1).starts_with(header.first) &&
           after.substr(1 + header.first.size()).starts_with('>');
  });
}

bool is_self_contained(std::string_view code, std::span<const OwnHeader> headers) {
  const std::string spliced = splice(code);
  const std::string_view text = spliced;
  for (const std::string_view word : {"include", "embed"}) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size())) {
      if (may_look_outside(text, at, word, headers)) return false;
    }
  }
  // The time of compilation is not in the key either.
  return std::ranges::none_of(std::array{"__DATE__", "__TIME__", "__TIMESTAMP__"},
                              [&](const char* word) { return text.find(word) != text.npos; });
}

}  // namespace

Digest sha256(std::string_view bytes) {
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, bytes.size(), reinterpret_cast<const std::uint8_t*>(bytes.data()));
  Digest digest;
  sha256_digest(&context, digest.size(), digest.data());
  return digest;
}

std::string identity_of_code(const void* address) {
  Dl_info info{};
  struct stat file {};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr || stat(info.dli_fname, &file) != 0) return {};
  return fmt::format("{} {} {}.{:09}", info.dli_fname, file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

CacheKey::CacheKey() {
  add(GPUMAP_VERSION);
  add_compiler(*own_identity);
}

void CacheKey::add(std::string_view field) {
  fields_ += std::to_string(field.size());
  fields_ += ' ';
  fields_ += field;
}

void CacheKey::add_compiler(std::string_view identity) {
  usable_ = usable_ && !identity.empty();
  add(identity);
}

void CacheKey::add_source(std::string_view name, std::string_view code, std::span<const OwnHeader> headers) {
  usable_ = usable_ && is_self_contained(code, headers);
  add(name);
  add(code);
  add(std::to_string(headers.size()));
  for (const auto& [header, text] : headers) {
    add(header);
    add(text);
  }
}

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

namespace {

constexpr std::array<char, 8> magic{'g', 'p', 'u', 'm', 'a', 'p', 'K', 'C'};
constexpr std::uint64_t version = 1;

struct Head {
  std::array<char, 8> magic;
  std::uint64_t version;
  Digest key;
  std::uint64_t code_bytes;
  std::uint64_t listing_bytes;
};
static_assert(sizeof(Head) == 64 && std::has_unique_object_representations_v<Head>);

std::string_view view_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::string format_entry(const Digest& key, const Compiled& compiled) {
  const Head head{magic, version, key, compiled.code.size(), compiled.listing.size()};
  std::string bytes;
  bytes.reserve(sizeof head + compiled.code.size() + compiled.listing.size() + sizeof(Digest));
  bytes.append(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += compiled.code;
  bytes += compiled.listing;
  bytes += view_of(sha256(bytes));
  return bytes;
}

std::optional<Compiled> parse_entry(std::string_view bytes, const Digest& key) {
  if (bytes.size() < sizeof(Head) + sizeof(Digest)) return {};
  Head head;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != magic || head.version != version || head.key != key) return {};
  // Each is compared on its own first: their sum may wrap.
  const std::uint64_t room = bytes.size() - sizeof(Head) - sizeof(Digest);
  if (head.code_bytes > room || head.listing_bytes != room - head.code_bytes) return {};
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(Digest));
  if (bytes.substr(body.size()) != view_of(sha256(body))) return {};
  return Compiled{.code = std::string(body.substr(sizeof(Head), head.code_bytes)),
                  .listing = std::string(body.substr(sizeof(Head) + head.code_bytes))};
}

namespace {

// A user who edits and reloads all day must not fill the memory.
constexpr std::uint64_t max_bytes_in_memory = std::uint64_t{16} << 20;
constexpr std::size_t max_slots = 256;

/// A kernel runs without a cache too, so this is said once in a process and no more.
void warn_once(const std::string& wrong) {
  static std::atomic_flag said;
  if (said.test_and_set()) return;
  // Not by fmt::print(), which throws where standard error is closed.
  std::fprintf(stderr,
               "gpumap: compiled kernels are not kept on disk: %s: set GPUMAP_CACHE to a folder that can be written, "
               "or to nothing\n",
               printable(wrong).c_str());
}

}  // namespace

CodeCache& CodeCache::of_process() {
  // Never destroyed: another thread may still be compiling while the process exits.
  static auto* const cache = new CodeCache(CacheFolder::of_user());
  return *cache;
}

Compiled CodeCache::get(const CacheKey& key, const std::function<Compiled()>& compile) {
  const auto count = [this](std::uint64_t Counts::*counter) {
    const std::lock_guard lock(mutex_);
    ++(counts_.*counter);
  };
  if (!key.usable()) {
    count(&Counts::compiled);
    return compile();
  }
  const Digest digest = key.digest();
  const std::shared_ptr<Slot> slot = slot_of(digest);
  const std::lock_guard lock(slot->mutex);
  if (slot->compiled) {
    count(&Counts::from_memory);
    return *slot->compiled;
  }
  slot->compiled = read(digest);
  if (slot->compiled) {
    count(&Counts::from_disk);
  } else {
    count(&Counts::compiled);
    slot->compiled = compile_and_write(digest, compile);
  }
  account(slot->compiled->code.size() + slot->compiled->listing.size());
  return *slot->compiled;
}

CodeCache::Counts CodeCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::shared_ptr<CodeCache::Slot> CodeCache::slot_of(const Digest& key) {
  const std::lock_guard lock(mutex_);
  if (slots_.size() >= max_slots) forget();
  std::shared_ptr<Slot>& slot = slots_[key];
  if (!slot) slot = std::make_shared<Slot>();
  return slot;
}

std::optional<Compiled> CodeCache::read(const Digest& key) {
  if (!folder_) return {};
  const std::optional<std::string> bytes = folder_->read(key);
  return bytes ? parse_entry(*bytes, key) : std::nullopt;
}

Compiled CodeCache::compile_and_write(const Digest& key, const std::function<Compiled()>& compile) {
  Compiled compiled = compile();
  if (folder_) {
    const std::string wrong = folder_->write(key, format_entry(key, compiled));
    if (!wrong.empty()) warn_once(wrong);
  }
  return compiled;
}

void CodeCache::account(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_in_memory_ += bytes;
  if (bytes_in_memory_ > max_bytes_in_memory) forget();
}

void CodeCache::forget() {
  // All at once: who holds a slot keeps it, and the disk still has the rest.
  slots_.clear();
  bytes_in_memory_ = 0;
}

}  // namespace gpumap
