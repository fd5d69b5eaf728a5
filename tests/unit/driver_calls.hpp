// SPDX-License-Identifier: MIT
//
// What is called of a CUDA driver's table, how often and for how long. For one table in a program: what counts has no
// state of its own to be called with.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda_driver.hpp"

namespace gpumap::driver_calls {

struct Count {
  const char* name = nullptr;
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::int64_t> ns{0};
};

/// Of the functions that are counted.
inline std::vector<Count*>& counts() {
  static auto* const all = new std::vector<Count*>;
  return *all;
}

template <auto Member>
struct Counted;

template <typename... Arguments, CUresult (*cuda::Driver::*Member)(Arguments...)>
struct Counted<Member> {
  static inline CUresult (*behind)(Arguments...) = nullptr;
  static inline Count count;

  static CUresult call(Arguments... arguments) {
    const auto began = std::chrono::steady_clock::now();
    const CUresult result = behind(arguments...);
    count.ns += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - began).count();
    ++count.calls;
    return result;
  }
};

/// Puts a counting function before each of the table's, or takes it away.
template <auto Member>
void count(cuda::Driver& driver, const char* name, bool on) {
  using One = Counted<Member>;
  if (on && driver.*Member != nullptr && driver.*Member != &One::call) {
    One::behind = std::exchange(driver.*Member, &One::call);
    One::count.name = name;
    if (std::ranges::find(counts(), &One::count) == counts().end()) counts().push_back(&One::count);
  } else if (!on && driver.*Member == &One::call) {
    driver.*Member = One::behind;
  }
}

/// Nothing of the table is being called meanwhile.
inline void count_all(cuda::Driver& driver, bool on) {
#define GPUMAP_COUNT(name, symbol, ...) count<&cuda::Driver::name>(driver, #name, on);
  GPUMAP_CUDA_MANDATORY(GPUMAP_COUNT)
  GPUMAP_CUDA_STREAM_MEMORY(GPUMAP_COUNT)
  GPUMAP_CUDA_EVENT_TIMES(GPUMAP_COUNT)
  GPUMAP_CUDA_PARAMETERS(GPUMAP_COUNT)
  GPUMAP_CUDA_GRAPHS(GPUMAP_COUNT)
  GPUMAP_CUDA_PARTITIONS(GPUMAP_COUNT)
#undef GPUMAP_COUNT
}

inline void forget() {
  for (Count* one : counts()) one->calls = 0, one->ns = 0;
}

/// How often each was called since forget(), by name; those that were not are left out.
[[nodiscard]] inline std::map<std::string, std::uint64_t> since() {
  std::map<std::string, std::uint64_t> made;
  for (const Count* one : counts()) {
    if (one->calls != 0) made[one->name] = one->calls;
  }
  return made;
}

}  // namespace gpumap::driver_calls
