// SPDX-License-Identifier: MIT
// What every function of gpumap.h does: it catches, remembers the text, checks handles and sizes of structures.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "c/handle_table.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/gpumap.h"

namespace gpumap::c {

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

}  // namespace gpumap::c
