// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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

/// What a compiler made of a kernel.
struct Compiled {
  std::string code;     ///< what is loaded: a cubin, PTX or SPIR-V
  std::string listing;  ///< the PTX beside a cubin, which names the kernels in it; else empty

  [[nodiscard]] bool operator==(const Compiled&) const = default;
};

/// The bytes of a cache file: a head with format version and sizes, the two parts, a checksum of all before it. In the
/// machine's own byte order, as the code is for one kind of machine too.
[[nodiscard]] std::string format_entry(const Digest& key, const Compiled& compiled);

/// Read foreign bytes; trusts nothing. Nothing for what is not whole, not of this format or not of this key.
[[nodiscard]] std::optional<Compiled> parse_entry(std::string_view bytes, const Digest& key);

/// What the compilers made, kept by everything that decides it: in memory, and on disk for the next process. What a
/// driver makes of it is left to the driver, which has a cache of its own; hence no driver and no GPU is in a key
/// beyond the architecture. Thread safety: takes calls from any thread.
class CodeCache {
 public:
  /// Where results came from.
  struct Counts {
    std::uint64_t compiled = 0;
    std::uint64_t from_memory = 0;
    std::uint64_t from_disk = 0;
  };

  explicit CodeCache(std::optional<CacheFolder> folder) : folder_(std::move(folder)) {}

  /// The process's, in the user's folder. GPUMAP_CACHE is read at the first call.
  [[nodiscard]] static CodeCache& of_process();

  /// What `compile` made for this key at some time, else what it makes now. Two threads with one key compile once. An
  /// exception of `compile` comes through and nothing is kept.
  [[nodiscard]] Compiled get(const CacheKey& key, const std::function<Compiled()>& compile);

  [[nodiscard]] Counts counts() const;

 private:
  struct Slot {
    std::mutex mutex;  ///< held while compiling
    std::optional<Compiled> compiled;
  };

  [[nodiscard]] std::shared_ptr<Slot> slot_of(const Digest& key);
  [[nodiscard]] std::optional<Compiled> read(const Digest& key);
  [[nodiscard]] Compiled compile_and_write(const Digest& key, const std::function<Compiled()>& compile);
  void account(std::uint64_t bytes);
  void forget();  ///< under mutex_

  const std::optional<CacheFolder> folder_;
  mutable std::mutex mutex_;  ///< never held while compiling; guards what follows
  std::map<Digest, std::shared_ptr<Slot>> slots_;
  std::uint64_t bytes_in_memory_ = 0;
  Counts counts_;
};

}  // namespace gpumap
