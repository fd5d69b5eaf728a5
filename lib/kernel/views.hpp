// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpumap/kernel.h"

namespace gpumap {

/// A range of memory for a kernel that sees frames as bytes.
[[nodiscard]] gpumap_view bytes_view(std::uint64_t address, std::size_t bytes) noexcept;

/// `view` of memory that begins at `from`, as the same lies in `bytes` bytes at `to`.
[[nodiscard]] gpumap_view moved(gpumap_view view, std::uint64_t from, std::uint64_t to, std::size_t bytes) noexcept;

/// Every other row of `view`, from row 0 or 1 on: a field (0 or 1) of an interlaced picture, as a picture of its own.
[[nodiscard]] gpumap_view field_of(gpumap_view view, std::uint32_t field) noexcept;

}  // namespace gpumap
