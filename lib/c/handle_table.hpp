// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "own_process.hpp"

namespace gpumap::c {

/// What stands behind a handle. Destroyed when the handle was given back and no call uses it any more.
class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  /// As in "a handle of a ring".
  [[nodiscard]] virtual const char* what() const noexcept = 0;
};

/// All handles of the process. A handle is a number, not an address: where its entry lies and how often that was used
/// before. So a handle that was given back, or never was one, is an error and no access to freed memory.
/// Thread safety: every member from any thread. Never destroyed.
class HandleTable {
 public:
  /// One use of an object: it lives at least as long as this.
  class Use {
   public:
    Use() = default;
    Use(Use&& other) noexcept : table_(std::exchange(other.table_, nullptr)), index_(other.index_) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(table_, other.table_);
      std::swap(index_, other.index_);
      return *this;
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (table_ != nullptr) table_->end_use(index_);
    }
    [[nodiscard]] Object& object() const noexcept { return *table_->entry(index_).object; }

   private:
    friend class HandleTable;
    Use(HandleTable& table, std::uint32_t index) : table_(&table), index_(index) {}
    HandleTable* table_ = nullptr;
    std::uint32_t index_ = 0;
  };

  [[nodiscard]] static HandleTable& get();

  /// Throws Failure(GPUMAP_ERROR_FORKED) in a child of fork().
  void check_process() const;
  /// A new handle, never 0. Throws Error(no_memory).
  [[nodiscard]] std::uint64_t add(std::unique_ptr<Object> object);
  /// Throws Failure for a handle that is none, or is not one any more.
  [[nodiscard]] Use use(std::uint64_t handle);
  /// The same, and the handle is none from here on. Of several calls one succeeds.
  [[nodiscard]] Use close(std::uint64_t handle);

 private:
  // The word of an entry: how often it was used, and how many uses its object has now, that of the handle included.
  static constexpr unsigned index_bits = 24;
  static constexpr std::uint64_t low_mask = (std::uint64_t{1} << index_bits) - 1;
  static constexpr std::size_t chunk_entries = 1024;
  static constexpr std::size_t max_chunks = (std::size_t{1} << index_bits) / chunk_entries;

  struct Entry {
    std::atomic<std::uint64_t> word{std::uint64_t{1} << index_bits};
    Object* object = nullptr;
  };
  using Chunk = std::array<Entry, chunk_entries>;

  HandleTable() = default;
  [[nodiscard]] Entry& entry(std::uint32_t index) const noexcept {
    return (*chunks_[index / chunk_entries].load(std::memory_order_acquire))[index % chunk_entries];
  }
  [[nodiscard]] Entry& known_entry(std::uint64_t handle) const;
  void end_use(std::uint32_t index) noexcept;

  const OwnProcess process_;
  std::array<std::atomic<Chunk*>, max_chunks> chunks_{};
  std::mutex mutex_;  ///< of what follows
  std::vector<std::uint32_t> free_;
  std::size_t used_chunks_ = 0;
};

/// A use of an object of a known class.
template <typename T>
class Held {
 public:
  Held(HandleTable::Use use, T& object) : use_(std::move(use)), object_(&object) {}
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }

 private:
  HandleTable::Use use_;
  T* object_;
};

}  // namespace gpumap::c
