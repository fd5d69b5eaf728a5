// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

namespace gpumap {

/// Up to here reading through the BAR takes less time than DMA and its set-up: on an H100's host 64 bytes 1.2 us by
/// streaming loads and 8.7 by DMA, 4 KiB 8.3 and 8.7. Ordinary loads of write-combined memory fetch each word on its
/// own.
inline constexpr std::size_t max_bar_read = 2048;

/// Whether this CPU has streaming loads (SSE4.1).
[[nodiscard]] bool can_read_bar() noexcept;
/// Copy `bytes` at `from` by streaming loads, which fetch a line at once; what ends within a block of 16 bytes by
/// ordinary ones. May read from the beginning of the block that `from` lies in, and reads nothing behind the range.
/// Only where can_read_bar().
void read_bar(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace gpumap
