// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace gpumap::gst {

/// When the samples of a stream are due: counted from the first one's arrival by the radio's rate, so that neighbours
/// are as far apart as samples are, and drawn to the pipeline's clock so slowly that no one hears it. Thread safety:
/// one thread at a time.
class SampleTimes {
 public:
  /// A thousandth of a buffer's length is how far its time may be drawn: clocks differ by far less.
  static constexpr double max_drift = 0.001;
  /// What jitter of arrivals is divided by.
  static constexpr double smoothing = 512.0;
  /// Samples do not come so many ns before they are due: then the pipeline's time began anew.
  static constexpr double most_early = 1e9;

  void begin() noexcept { begun_ = false; }

  /// The time of a buffer that lasts `length` ns and whose last sample came at `now`. Behind a hole samples are due
  /// `hole` ns later, or, where the radio does not say how long it was, when they come. Time goes back with the
  /// pipeline's own alone: a flush may begin that anew.
  [[nodiscard]] GstClockTime next(GstClockTime now, double length, bool behind_hole,
                                  std::optional<double> hole) noexcept {
    const double arrived = static_cast<double>(now) - length;
    if (!begun_ || (behind_hole && due_ > arrived + most_early)) {
      due_ = std::max(arrived, 0.0);
      begun_ = true;
    } else if (behind_hole) {
      due_ = hole && *hole >= 0.0 ? due_ + *hole : std::max(due_, arrived);
    } else {
      due_ += std::clamp((arrived - due_) / smoothing, -max_drift * length, max_drift * length);
    }
    const auto pts = static_cast<GstClockTime>(std::llround(due_));
    due_ += length;
    return pts;
  }

 private:
  bool begun_ = false;
  double due_ = 0.0;  ///< of the next buffer, in ns
};

/// What a radio's own clock tells of samples that were lost. Thread safety: one thread at a time.
class RadioClock {
 public:
  /// A clock that differs by this from what the samples say has lost some.
  static constexpr double jump_ns = 1e6;
  /// How many ns a driver may keep samples. A hole that is longer than that and the time since the last samples came is
  /// none: the clock was set.
  static constexpr double most_kept = 1e9;

  struct Seen {
    std::optional<double> begins;  ///< its time at the first sample, in ns
    bool jumped = false;           ///< samples are missing before these, and nobody has said so
    std::optional<double> hole;    ///< how long that hole was, or the one that is known; in ns
  };

  void forget() noexcept { due_.reset(); }

  /// The next samples: they last `length` ns, and came `waited` ns after the ones before; `ns`: the radio's clock at
  /// the first one. `at_hole`: it is known that some are missing before them.
  [[nodiscard]] Seen next(std::optional<long long> ns, double length, double sample, bool at_hole,
                          double waited) noexcept {
    Seen seen;
    if (ns) {
      const auto begins = static_cast<double>(*ns);
      const double off = due_ ? begins - *due_ : 0.0;
      seen.jumped = !at_hole && std::abs(off) > std::max(jump_ns, sample);
      if (due_ && (seen.jumped || at_hole) && off <= waited + most_kept) seen.hole = off;
      due_ = begins;
    } else if (at_hole) {
      due_.reset();
    }
    seen.begins = due_;
    if (due_) *due_ += length;
    return seen;
  }

 private:
  std::optional<double> due_;  ///< at the next sample, in ns
};

}  // namespace gpumap::gst
