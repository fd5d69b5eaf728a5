// SPDX-License-Identifier: MIT
#include "c/handle_table.hpp"

#include "c/c_status.hpp"
#include "gpumap/error.hpp"

namespace gpumap::c {
namespace {

[[noreturn]] void throw_not_open() {
  throw Failure(GPUMAP_ERROR_INVALID,
                "this handle is not open: it was given back before, or is none: use each until it is given back, once");
}

}  // namespace

HandleTable& HandleTable::get() {
  static auto* const table = new HandleTable;
  return *table;
}

void HandleTable::check_process() const {
  if (process_.here()) return;
  throw Failure(GPUMAP_ERROR_FORKED,
                "this is a child of fork(), and its parent's GPU is not usable here: start the child by exec (Python: "
                "multiprocessing's spawn), or fork before the first call of gpumap");
}

std::uint64_t HandleTable::add(std::unique_ptr<Object> object) {
  check_process();
  std::uint32_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      if (used_chunks_ == max_chunks) {
        throw Error(ErrorCode::no_memory, "16,777,216 handles are open: give back those that are done with");
      }
      auto chunk = std::make_unique<Chunk>();
      // Room for all of them now: giving one back cannot fail.
      free_.reserve((used_chunks_ + 1) * chunk_entries);
      chunks_[used_chunks_].store(chunk.release(), std::memory_order_release);
      const auto first = static_cast<std::uint32_t>(used_chunks_ * chunk_entries);
      for (std::uint32_t more = chunk_entries; more-- > 0;) free_.push_back(first + more);
      ++used_chunks_;
    }
    index = free_.back();
    free_.pop_back();
  }
  Entry& entry = this->entry(index);
  entry.object = object.release();
  const std::uint64_t word = entry.word.load(std::memory_order_relaxed);
  entry.word.store(word + 1, std::memory_order_release);
  return (word & ~low_mask) | index;
}

HandleTable::Entry& HandleTable::known_entry(std::uint64_t handle) const {
  check_process();
  const std::size_t chunk = (handle & low_mask) / chunk_entries;
  if (handle == 0 || chunks_[chunk].load(std::memory_order_acquire) == nullptr) throw_not_open();
  return entry(static_cast<std::uint32_t>(handle & low_mask));
}

HandleTable::Use HandleTable::use(std::uint64_t handle) {
  Entry& entry = known_entry(handle);
  std::uint64_t word = entry.word.load(std::memory_order_relaxed);
  do {
    if ((word & ~low_mask) != (handle & ~low_mask) || (word & low_mask) == 0) throw_not_open();
  } while (!entry.word.compare_exchange_weak(word, word + 1, std::memory_order_acquire, std::memory_order_relaxed));
  return {*this, static_cast<std::uint32_t>(handle & low_mask)};
}

HandleTable::Use HandleTable::close(std::uint64_t handle) {
  Entry& entry = known_entry(handle);
  std::uint64_t word = entry.word.load(std::memory_order_relaxed);
  do {
    if ((word & ~low_mask) != (handle & ~low_mask) || (word & low_mask) == 0) throw_not_open();
    // The use of the handle is this one's from here on.
  } while (!entry.word.compare_exchange_weak(word, word + low_mask + 1, std::memory_order_acquire,
                                             std::memory_order_relaxed));
  return {*this, static_cast<std::uint32_t>(handle & low_mask)};
}

void HandleTable::end_use(std::uint32_t index) noexcept {
  Entry& entry = this->entry(index);
  if ((entry.word.fetch_sub(1, std::memory_order_acq_rel) & low_mask) != 1) return;
  const std::unique_ptr<Object> last(std::exchange(entry.object, nullptr));
  const std::lock_guard lock(mutex_);
  free_.push_back(index);
}

}  // namespace gpumap::c
