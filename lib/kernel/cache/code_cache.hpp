// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/cache/cache_folder.hpp"
#include "kernel/cache/cache_key.hpp"

namespace gpumap {

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
