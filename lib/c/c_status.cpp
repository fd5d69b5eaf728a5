// SPDX-License-Identifier: MIT
#include "c/c_status.hpp"

#include <fmt/format.h>

#include <array>
#include <new>

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

namespace {

/// Without a destructor, so that it can be read at any time of a thread's life. A compiler's log may be longer: then
/// its beginning, which has the first error.
thread_local std::array<char, 4096> last_error{};

struct Named {
  gpumap_status status;
  const char* name;
};
#define GPUMAP_C_NAMED(name) \
  Named {                    \
    name, #name              \
  }
constexpr std::array names{
    GPUMAP_C_NAMED(GPUMAP_OK),
    GPUMAP_C_NAMED(GPUMAP_TIMEOUT),
    GPUMAP_C_NAMED(GPUMAP_STOPPED),
    GPUMAP_C_NAMED(GPUMAP_FULL),
    GPUMAP_C_NAMED(GPUMAP_END),
    GPUMAP_C_NAMED(GPUMAP_ERROR_INVALID),
    GPUMAP_C_NAMED(GPUMAP_ERROR_NO_DRIVER),
    GPUMAP_C_NAMED(GPUMAP_ERROR_NO_DEVICE),
    GPUMAP_C_NAMED(GPUMAP_ERROR_NO_MEMORY),
    GPUMAP_C_NAMED(GPUMAP_ERROR_NOT_SUPPORTED),
    GPUMAP_C_NAMED(GPUMAP_ERROR_COMPILE),
    GPUMAP_C_NAMED(GPUMAP_ERROR_DEVICE_LOST),
    GPUMAP_C_NAMED(GPUMAP_ERROR_IO),
    GPUMAP_C_NAMED(GPUMAP_ERROR_CLOSED),
    GPUMAP_C_NAMED(GPUMAP_ERROR_FORKED),
    GPUMAP_C_NAMED(GPUMAP_ERROR_REVOKED),
    GPUMAP_C_NAMED(GPUMAP_ERROR_UNEXPECTED),
    GPUMAP_C_NAMED(GPUMAP_ERROR_NO_RESOURCES),
    GPUMAP_C_NAMED(GPUMAP_ERROR_BUSY),
};
#undef GPUMAP_C_NAMED

gpumap_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::no_driver:
      return GPUMAP_ERROR_NO_DRIVER;
    case ErrorCode::no_device:
      return GPUMAP_ERROR_NO_DEVICE;
    case ErrorCode::no_memory:
      return GPUMAP_ERROR_NO_MEMORY;
    case ErrorCode::not_supported:
      return GPUMAP_ERROR_NOT_SUPPORTED;
    case ErrorCode::invalid:
      return GPUMAP_ERROR_INVALID;
    case ErrorCode::compile:
      return GPUMAP_ERROR_COMPILE;
    case ErrorCode::device_lost:
      return GPUMAP_ERROR_DEVICE_LOST;
    case ErrorCode::io:
    case ErrorCode::not_found:
    case ErrorCode::open_read:
    case ErrorCode::open_write:
      return GPUMAP_ERROR_IO;
    case ErrorCode::no_resources:
      return GPUMAP_ERROR_NO_RESOURCES;
    case ErrorCode::busy:
      return GPUMAP_ERROR_BUSY;
  }
  return GPUMAP_ERROR_UNEXPECTED;
}

}  // namespace

gpumap_status fail(gpumap_status status, const char* text) noexcept {
  const std::size_t bytes = std::min(std::strlen(text), last_error.size() - 1);
  std::memcpy(last_error.data(), text, bytes);
  last_error[bytes] = '\0';
  return status;
}

gpumap_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const Failure& failure) {
    return fail(failure.status(), failure.what());
  } catch (const Error& error) {
    return fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(GPUMAP_ERROR_NO_MEMORY, "this process has no memory left: free some, or raise its limit");
  } catch (const std::length_error&) {
    return fail(GPUMAP_ERROR_NO_MEMORY, "more memory was asked for than a process can have: ask for less");
  } catch (const std::exception& error) {
    return fail(GPUMAP_ERROR_UNEXPECTED, error.what());
  } catch (...) {
    return fail(GPUMAP_ERROR_UNEXPECTED, "an exception without a text");
  }
}

void need(const void* pointer, const char* what) {
  if (pointer == nullptr) throw Failure(GPUMAP_ERROR_INVALID, fmt::format("{} is null: pass one", what));
}

void check_size(std::size_t struct_size, const char* what) {
  // So large is none; a structure that nobody has initialised may have any number there.
  constexpr std::size_t largest = 65536;
  if (struct_size > sizeof struct_size && struct_size <= largest) return;
  throw Failure(GPUMAP_ERROR_INVALID,
                fmt::format("{} says that its size is {}: initialise it by GPUMAP_INIT()", what, struct_size));
}

void throw_newer(const char* what) {
  throw Failure(
      GPUMAP_ERROR_NOT_SUPPORTED,
      fmt::format("{} has an option that libgpumap {} does not know: leave it 0, or run with the version that "
                  "the program was compiled with",
                  what, GPUMAP_VERSION));
}

}  // namespace gpumap::c

const char* gpumap_status_name(gpumap_status status) {
  for (const auto& one : gpumap::c::names) {
    if (one.status == status) return one.name;
  }
  return "unknown gpumap_status";
}

const char* gpumap_last_error(void) {
  return gpumap::c::last_error.data();
}

uint32_t gpumap_version(void) {
  return GPUMAP_C_VERSION_MAJOR << 16U | GPUMAP_C_VERSION_MINOR << 8U | GPUMAP_C_VERSION_MICRO;
}
