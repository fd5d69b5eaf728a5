// SPDX-License-Identifier: MIT
#include "source.hpp"

#include <algorithm>
#include <cstring>
#include <gpumap/checksum.hpp>
#include <span>

namespace bench {

namespace {

std::size_t stride_of(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  return (bytes + page - 1) / page * page;
}

}  // namespace

Source::Source(const Context& context, std::size_t bytes)
    : mapping_(context.allocate(gpumap::Placement::mirrored_pageable, bytes)) {
  std::uint64_t state = 0x243F6A8885A308D3;
  for (std::size_t at = 0; at + sizeof state <= bytes;
       at += sizeof state) {  // xorshift64*: fast, and no two words alike
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    const std::uint64_t word = state * 0x2545F4914F6CDD1D;
    std::memcpy(mapping_->host() + at, &word, sizeof word);
  }
}

const std::byte* Source::frame(std::size_t bytes, std::uint64_t n) const {
  return mapping_->host() + n % frames(bytes) * stride_of(bytes);
}

std::size_t Source::frames(std::size_t bytes) const {
  return std::max<std::size_t>(mapping_->bytes() / stride_of(bytes), 1);
}

void Source::sum_frames(std::size_t bytes) {
  checksums_.clear();
  for (std::size_t n = 0; n < frames(bytes); ++n) {
    const std::byte* at = frame(bytes, n);
    checksums_.emplace(offset(at), gpumap::checksum(std::span(at, bytes)));
  }
}

}  // namespace bench
