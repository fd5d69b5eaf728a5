// SPDX-License-Identifier: MIT
//
// The commands of a frame in float64, and how far from them float32 may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "matrices.hpp"

namespace adaptive_optics {

/// What a check found: the command that is farthest from what it should be, by its own bound.
struct Finding {
  double error_of_bound = 0;  ///< its error over the bound; above 1 it is wrong
  std::size_t command = 0;    ///< which one
  double value = 0, expected = 0, bound = 0;
};

/// What the sensor measured: slopes across, slopes down and the constant 1. `width`: pixels of a row of the frame.
[[nodiscard]] std::vector<double> measurements_of(std::span<const std::uint16_t> pixels,
                                                  const std::vector<std::uint32_t>& corners, int width);

/// Every command of a frame: as many products as the GPU's, which takes milliseconds for extreme_size.
/// Thread safety: any.
class Reference {
 public:
  Reference(std::shared_ptr<const Tables> tables, int width);
  [[nodiscard]] Finding check(std::span<const std::uint16_t> pixels, std::span<const float> commands) const;

 private:
  std::shared_ptr<const Tables> tables_;
  int width_;
};

/// One command of a frame, another one for the next: a fast loop's every frame can be checked so. Of 64 commands that
/// are spread over the mirror the product of both matrices is known beforehand, a row each.
/// Thread safety: any.
class QuickReference {
 public:
  QuickReference(std::shared_ptr<const Tables> tables, int width);
  [[nodiscard]] Finding check(std::uint64_t frame, std::span<const std::uint16_t> pixels,
                              std::span<const float> commands) const;

 private:
  struct Row {
    std::size_t command;
    std::vector<double> numbers, bounds;  ///< of the command, and of its error, for each measurement
  };
  std::shared_ptr<const Tables> tables_;
  int width_;
  std::vector<Row> rows_;
};

}  // namespace adaptive_optics
