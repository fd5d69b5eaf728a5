// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "bench.hpp"

namespace bench {

/// Random bytes in ordinary memory, more than the caches hold: frames taken in turn are cold, as a camera's or a
/// decoder's are. The memory is that of Placement::mirrored_pageable, so that the pageable path starts from the same.
class Source {
 public:
  Source(const Context& context, std::size_t bytes);

  /// The n-th frame of that size, of frames() different ones.
  [[nodiscard]] const std::byte* frame(std::size_t bytes, std::uint64_t n) const;
  [[nodiscard]] std::size_t frames(std::size_t bytes) const;
  /// Sum all frames of that size, so that checksum() takes no time between two frames that are timed.
  void sum_frames(std::size_t bytes);
  /// Of a frame of the size that was summed last.
  [[nodiscard]] std::uint64_t checksum(const std::byte* frame) const { return checksums_.at(offset(frame)); }

  [[nodiscard]] const gpumap::Mapping& mapping() const { return *mapping_; }
  [[nodiscard]] std::size_t offset(const std::byte* frame) const {
    return static_cast<std::size_t>(frame - mapping_->host());
  }

 private:
  std::shared_ptr<gpumap::Mapping> mapping_;
  std::unordered_map<std::size_t, std::uint64_t> checksums_;  // by offset
};

}  // namespace bench
