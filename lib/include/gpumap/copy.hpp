// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string_view>

namespace gpumap {

/// Copy with streaming (non-temporal) stores in rising order, aligned to 64 bytes at the destination: what
/// write-combined memory wants. Never reads `to`. Does not fence: call store_fence() once before publishing.
/// Thread safety: any thread; ranges must not overlap.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Order all streaming stores of this thread before whatever it does next (sfence on x86-64).
void store_fence() noexcept;

/// The store kernel in use: "avx512", "avx2", "sse2" or "memcpy". GPUMAP_COPY=<name> in the environment chooses one.
[[nodiscard]] std::string_view stream_copy_name() noexcept;

}  // namespace gpumap
