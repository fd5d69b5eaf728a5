// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpumap/export.hpp"

namespace gpumap {

/// What the built-in kernel `checksum` leaves in result word 0, computed by the CPU: the sum modulo 2^64 of
/// mix64(word[i] + (i + 1) * 0x9E3779B97F4A7C15) over little-endian 64-bit words, the last one padded with zeros, plus
/// mix64(bytes). mix64 is the finaliser of SplitMix64. Being a sum it needs no order, and yet a word that moved, a
/// repeated word and a lost tail all change it. Not cryptographic.
/// Thread safety: any thread.
[[nodiscard]] GPUMAP_API std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace gpumap
