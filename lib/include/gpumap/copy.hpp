// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/export.hpp"

namespace gpumap {

/// Copy with streaming (non-temporal) stores in rising order, aligned to 64 bytes at the destination: what
/// write-combined memory wants. Never reads `to`. Does not fence: call store_fence() once before publishing.
/// Thread safety: any thread; ranges must not overlap.
GPUMAP_API void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Order all streaming stores of this thread before whatever it does next (sfence on x86-64, dsb on arm64).
GPUMAP_API void store_fence() noexcept;

/// The store kernel of stream_copy(). `GPUMAP_COPY` in the environment chooses one.
[[nodiscard]] GPUMAP_API std::string_view stream_copy_name() noexcept;

/// The store kernels that this CPU runs and that copied what they were given when tried: of "memcpy", "movsb",
/// "sse2", "movdir64b", "avx512", "avx2", "neon".
[[nodiscard]] GPUMAP_API std::vector<std::string_view> store_kernel_names();

struct CopierOptions {
  unsigned threads = 0;     ///< the caller and threads - 1 helpers, bounded by the CPUs; 0: as many as pay, measured
  std::string kernel;       ///< a store kernel's name; empty: GPUMAP_COPY, else the best for each size, measured
  std::string pci_address;  ///< helpers run on the CPUs of this GPU's NUMA node; empty, or none known: anywhere
};

/// Copies into slots with streaming stores, by as many threads as pay. Helpers spin only while copies follow each other
/// closely, else they sleep.
/// Thread safety: every member from any thread. Of several callers at once one has the helpers, the others copy alone,
/// and so does a child that fork() made.
class GPUMAP_API Copier {
 public:
  /// Throws Error(invalid) for a kernel that this CPU has not.
  explicit Copier(const CopierOptions& options = {});
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  /// Measure on memory like what will be copied to, which loses its content: the kernel for each size, how many threads
  /// pay, and from what size on. `write_combined`: the CPU does not cache it (a BAR), and what is written there with
  /// ordinary stores streams as well. A few ms, once in a process for each `key` (empty: every time) and set of
  /// options. Until then helpers take part above 128 KiB, if a number of threads was asked for.
  void calibrate(std::span<std::byte> scratch, std::string_view key = {}, bool write_combined = false);

  /// No helper touches either range once this has returned. Helpers' stores are fenced by then, the caller's own are
  /// not: store_fence(). Ranges must not overlap.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  /// The same into a slot at an offset. Throws Error(invalid) when it would pass the slot's end, and copies nothing.
  void copy(std::span<std::byte> slot, std::size_t at, std::span<const std::byte> from);

  struct Plan {
    std::string_view kernel;
    unsigned threads;
  };
  /// How a copy of that size is done while copies follow each other closely.
  [[nodiscard]] Plan plan_for(std::size_t bytes) const;

 private:
  struct GPUMAP_NO_EXPORT State;
  std::unique_ptr<State> state_;
};

}  // namespace gpumap
