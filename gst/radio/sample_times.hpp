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

  void begin() noexcept { begun_ = false; }

  /// The time of a buffer that lasts `length` ns and whose last sample came at `now`. Behind a hole samples are due
  /// `hole` ns later, or, where the radio does not say how long it was, when they come.
  [[nodiscard]] GstClockTime next(GstClockTime now, double length, bool behind_hole,
                                  std::optional<double> hole) noexcept {
    const double arrived = static_cast<double>(now) - length;
    if (!begun_) {
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

}  // namespace gpumap::gst
