// SPDX-License-Identifier: MIT
#include "source.hpp"

#include <algorithm>
#include <cstring>
#include <gpumap/checksum.hpp>
#include <span>

namespace bench {

namespace {
constexpr std::size_t page = 4096;
}

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
  const std::size_t stride = (bytes + page - 1) / page * page;
  const std::size_t frames = std::max<std::size_t>(mapping_->bytes() / stride, 1);
  return mapping_->host() + n % frames * stride;
}

std::uint64_t Source::checksum(const std::byte* frame, std::size_t bytes) {
  if (bytes != checksums_bytes_) checksums_.clear();
  checksums_bytes_ = bytes;
  const auto [found, fresh] = checksums_.try_emplace(offset(frame));
  if (fresh) found->second = gpumap::checksum(std::span(frame, bytes));
  return found->second;
}

}  // namespace bench
