// SPDX-License-Identifier: MIT
//
// What a run amounts to: times of frames, and how well the wavefront was held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

#include "telescope.hpp"

namespace adaptive_optics {

/// Times of frames to 0.1 us, in memory that does not grow with their number.
class Latencies {
 public:
  void add(std::int64_t ns);

  [[nodiscard]] std::uint64_t count() const { return count_; }
  /// us; the smallest time that this share of the frames does not exceed.
  [[nodiscard]] double percentile(double share) const;
  [[nodiscard]] double max() const { return static_cast<double>(max_ns_) / 1000; }  ///< us
  /// us: the root mean square of how far times are from their mean.
  [[nodiscard]] double jitter() const;
  /// Frames that took longer than `us`.
  [[nodiscard]] std::uint64_t above(double us) const;
  /// Lines for a plot with logarithmic axes, "us count", each of what lies within 2% of a time.
  void write(const std::filesystem::path& file) const;

 private:
  std::map<std::int64_t, std::uint64_t> counts_;  ///< by tenths of a us
  std::uint64_t count_ = 0;
  std::int64_t max_ns_ = 0;
  double mean_ns_ = 0, squares_ = 0;  ///< of differences from the mean, by Welford's method
};

/// How the wavefront was held.
class Wavefronts {
 public:
  void add(std::uint64_t frame, const Wavefront& wavefront);

  /// nm RMS of what is left, and of what a flat mirror would leave, once the loop had closed; 0 before.
  [[nodiscard]] double residual() const;
  [[nodiscard]] double of_air() const;
  /// Lines "frame air residual" in nm: each of the first frames, then ever fewer.
  void write(const std::filesystem::path& file) const;

  static constexpr std::uint64_t closing = 100;  ///< frames in which the loop closes

 private:
  struct Point {
    std::uint64_t frame;
    Wavefront wavefront;
  };
  std::vector<Point> points_;
  std::uint64_t next_ = 0;
  std::uint64_t count_ = 0;
  double residuals_ = 0, airs_ = 0;  ///< squares
};

}  // namespace adaptive_optics
