// SPDX-License-Identifier: MIT
// What the tests of frames' ways share. Built with GPUMAP_TEST_GPU they skip where the only GPU is the CPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {

inline constexpr std::int64_t ms = 1'000'000;

class Latency : public testing::Test {
 protected:
  void SetUp() override {
#ifdef GPUMAP_TEST_GPU
    try {
      if (Device::open("auto")->info().software) GTEST_SKIP() << "the only GPU here is the CPU";
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
#endif
  }
};

/// What a channel's frames say at the end; hold it from before the start.
class Watched {
 public:
  explicit Watched(std::string channel) : channel_(std::move(channel)), log_(LatencyLog::of_channel(channel_)) {
    log_->keep_frames(10'000);
  }
  /// `description` with $CHANNEL on the channel.
  [[nodiscard]] std::string line(std::string description) const {
    for (std::size_t at = 0; (at = description.find("$CHANNEL", at)) != description.npos;) {
      description.replace(at, 8, channel_);
    }
    return description;
  }
  [[nodiscard]] std::vector<FrameRecord> frames() { return log_->take_frames(); }
  [[nodiscard]] LatencySummary summary() { return log_->summary(); }
  /// So that the next one finds nothing in its way.
  [[nodiscard]] bool ended(std::uint64_t frames) {
    return eventually([&] { return summary().frames == frames; });
  }
  /// Without the first frame, for which kernels are compiled and memory is allocated.
  [[nodiscard]] std::vector<FrameRecord> frames_but_the_first() {
    auto all_frames = frames();
    if (!all_frames.empty()) all_frames.erase(all_frames.begin());
    return all_frames;
  }

 private:
  std::string channel_;
  std::shared_ptr<LatencyLog> log_;
};

inline void expect_in_order(const FrameRecord& frame) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < stamp_count; ++i) {
    if (frame.at_ns[i] == 0) continue;
    EXPECT_GE(frame.at_ns[i], before) << to_string(static_cast<Stamp>(i)) << " of frame " << frame.sequence;
    before = frame.at_ns[i];
  }
}

inline void expect_stamps(const FrameRecord& frame, const std::vector<Stamp>& wanted) {
  for (std::size_t i = 0; i < stamp_count; ++i) {
    const bool is_wanted = std::ranges::find(wanted, static_cast<Stamp>(i)) != wanted.end();
    EXPECT_EQ(frame.at_ns[i] != 0, is_wanted) << to_string(static_cast<Stamp>(i)) << " of frame " << frame.sequence;
  }
}

inline const std::vector<Stamp> all{Stamp::acquired, Stamp::first_store, Stamp::last_store,     Stamp::published,
                                    Stamp::received, Stamp::launched,    Stamp::kernel_started, Stamp::kernel_ended,
                                    Stamp::visible,  Stamp::released};

}  // namespace gpumap::gst::test
