// SPDX-License-Identifier: MIT
#include "kernel/cache/code_cache.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "gpumap/printable.hpp"

namespace gpumap {
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
