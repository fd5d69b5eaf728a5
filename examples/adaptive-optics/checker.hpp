// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "reference.hpp"

namespace adaptive_optics {

/// Compares each frame of a loop with the reference: each command where that is little work, else one command, and a
/// thread of its own compares each command of the next frame whenever it has done with one.
/// Thread safety: one thread at a time.
class Checker {
 public:
  Checker(std::shared_ptr<const Tables> tables, int width);
  ~Checker();
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  /// Throws std::runtime_error where a frame is wrong: this one, or one before it.
  void check(std::uint64_t frame, std::span<const std::uint16_t> pixels, std::span<const float> commands);
  /// Waits for the frame that is being checked, and says the same of it.
  void finish();

  [[nodiscard]] bool checks_all() const { return checks_all_; }
  /// Frames of which each command was compared, and the largest error over its bound. After finish().
  [[nodiscard]] std::uint64_t frames() const { return frames_; }
  [[nodiscard]] double worst_of_bound() const { return worst_of_bound_; }

 private:
  void run();
  void check_commands(std::uint64_t frame, std::span<const std::uint16_t> pixels, std::span<const float> commands);
  void throw_if_wrong() const;

  const bool checks_all_;
  const Reference reference_;
  std::optional<QuickReference> quick_;
  // Of the thread while it has a frame.
  std::uint64_t frames_ = 0;
  double worst_of_bound_ = 0;
  std::string wrong_;
  std::uint64_t frame_ = 0;
  std::vector<std::uint16_t> pixels_;
  std::vector<float> commands_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;  ///< the thread has a frame
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace adaptive_optics
