// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/fence.hpp"
#include "gpumap/gpumap.h"
#include "own_process.hpp"

// What every function of gpumap.h does: it catches, remembers the text, checks handles and sizes of structures.

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

/// An error that the C++ library has no code for.
class Failure : public std::runtime_error {
 public:
  Failure(gpumap_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  [[nodiscard]] gpumap_status status() const noexcept { return status_; }

 private:
  gpumap_status status_;
};

/// Of the exception that is being handled; its text is gpumap_last_error() of this thread.
gpumap_status status_of_exception() noexcept;
/// Makes `text` gpumap_last_error() of this thread.
gpumap_status fail(gpumap_status status, const char* text) noexcept;

/// `call`, which gives a status, without an exception.
template <typename Call>
gpumap_status guarded(Call&& call) noexcept {
  try {
    return call();
  } catch (...) {
    return status_of_exception();
  }
}
/// The same for what gives something else; `none` where it fails.
template <typename Result, typename Call>
Result guarded_or(Result none, Call&& call) noexcept {
  try {
    return call();
  } catch (...) {
    static_cast<void>(status_of_exception());
    return none;
  }
}

template <typename Handle>
std::uint64_t number_of(Handle handle) noexcept {
  return reinterpret_cast<std::uintptr_t>(handle);
}

template <typename T>
Held<T> held(HandleTable::Use use) {
  auto* const object = dynamic_cast<T*>(&use.object());
  if (object == nullptr) {
    throw Failure(GPUMAP_ERROR_INVALID, std::string("a handle of a ") + use.object().what() + " was given where a " +
                                            T::name + " is needed: pass the other handle");
  }
  return {std::move(use), *object};
}

/// The object behind a handle, for one call. Throws Failure.
template <typename T, typename Handle>
Held<T> use(Handle handle) {
  return held<T>(HandleTable::get().use(number_of(handle)));
}
/// The same, and the handle is given back.
template <typename T, typename Handle>
Held<T> close(Handle handle) {
  static_cast<void>(use<T>(handle));  // of the right kind, before it goes
  return held<T>(HandleTable::get().close(number_of(handle)));
}
/// Gives `object` a handle, in `*handle`.
template <typename Handle>
void hand_out(std::unique_ptr<Object> object, Handle* handle) {
  *handle = reinterpret_cast<Handle>(static_cast<std::uintptr_t>(HandleTable::get().add(std::move(object))));
}

/// Throws Failure where a pointer that is needed is null; `what` names it.
void need(const void* pointer, const char* what);

void check_size(std::size_t struct_size, const char* what);
[[noreturn]] void throw_newer(const char* what);

/// The options that a caller gave, with defaults for what its header does not know; all defaults for null.
template <typename Structure>
Structure options_of(const Structure* given, const char* what) {
  Structure made{};
  made.struct_size = sizeof made;
  if (given == nullptr) return made;
  check_size(given->struct_size, what);
  std::memcpy(&made, given, std::min(given->struct_size, sizeof made));
  made.struct_size = sizeof made;
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t at = sizeof made; at < given->struct_size; ++at) {
    if (bytes[at] != 0) throw_newer(what);
  }
  return made;
}

/// Fills in as much of `*out` as its caller knows, and zeros behind.
template <typename Structure>
void tell(const Structure& made, Structure* out, const char* what) {
  need(out, what);
  check_size(out->struct_size, what);
  const std::size_t size = out->struct_size;
  std::memcpy(out, &made, std::min(size, sizeof made));
  out->struct_size = size;
  if (size > sizeof made) std::memset(reinterpret_cast<unsigned char*>(out) + sizeof made, 0, size - sizeof made);
}

/// Copies text into a field of a structure, cut where it is too long.
template <std::size_t size>
void put_text(char (&field)[size], const std::string& text) {
  const std::size_t bytes = std::min(text.size(), size - 1);
  std::memcpy(field, text.data(), bytes);
  field[bytes] = '\0';
}

inline std::string text_or(const char* text, const char* otherwise = "") {
  return text != nullptr ? text : otherwise;
}

/// As long as a timeout of the interface says; GPUMAP_FOREVER is the longest time.
inline std::chrono::nanoseconds patience_of(std::int64_t timeout_ns) noexcept {
  return timeout_ns < 0 ? std::chrono::nanoseconds::max() : std::chrono::nanoseconds(timeout_ns);
}
inline Deadline deadline_of(std::int64_t timeout_ns) noexcept {
  const auto now = Clock::now();
  const auto longest = patience_of(timeout_ns);
  return longest < no_deadline - now ? now + longest : no_deadline;
}

/// The turns of the calls on one object, one at a time. Thread safety: any thread.
class Turns {
 public:
  /// Its turn, where it comes before `deadline`.
  class Turn {
   public:
    Turn(Turns& of, Deadline deadline) : of_(of) {
      std::unique_lock lock(of_.mutex_);
      has_it_ = of_.ended_.wait_until(lock, deadline, [this] { return !of_.taken_; });
      if (has_it_) of_.taken_ = true;
    }
    ~Turn() {
      if (!has_it_) return;
      {
        const std::lock_guard lock(of_.mutex_);
        of_.taken_ = false;
      }
      of_.ended_.notify_one();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const noexcept { return has_it_; }

   private:
    Turns& of_;
    bool has_it_ = false;
  };

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool taken_ = false;
};

}  // namespace gpumap::c
