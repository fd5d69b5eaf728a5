// SPDX-License-Identifier: MIT
#include "checker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace adaptive_optics {

namespace {

constexpr std::size_t little_work = 1'000'000;  // products: about a millisecond

std::size_t products(const Tables& tables) {
  return tables.reconstructor.numbers.size() + tables.modes.numbers.size();
}

std::string told(std::uint64_t frame, const Finding& found) {
  return fmt::format(
      "frame {}: command {} is {:.9g}, and in float64 it is {:.9g}: float32 may be off by {:.3g}, not by {:.3g}", frame,
      found.command, found.value, found.expected, found.bound, std::abs(found.value - found.expected));
}

}  // namespace

Checker::Checker(std::shared_ptr<const Tables> tables, int width)
    : checks_all_(products(*tables) <= little_work), reference_(tables, width) {
  if (checks_all_) return;
  quick_.emplace(tables, width);
  thread_ = std::thread([this] { run(); });
}

Checker::~Checker() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  // Ends: the thread looks at ends_ after each frame, and only calculates.
  if (thread_.joinable()) thread_.join();
}

void Checker::check_commands(std::uint64_t frame, std::span<const std::uint16_t> pixels,
                             std::span<const float> commands) {
  const Finding found = reference_.check(pixels, commands);
  ++frames_;
  worst_of_bound_ = std::max(worst_of_bound_, found.error_of_bound);
  if (found.error_of_bound > 1) wrong_ = told(frame, found);
}

void Checker::throw_if_wrong() const {
  if (!wrong_.empty()) throw std::runtime_error(wrong_);
}

void Checker::check(std::uint64_t frame, std::span<const std::uint16_t> pixels, std::span<const float> commands) {
  if (checks_all_) {
    check_commands(frame, pixels, commands);
    throw_if_wrong();
    return;
  }
  const Finding found = quick_->check(frame, pixels, commands);
  if (found.error_of_bound > 1) throw std::runtime_error(told(frame, found));
  const std::unique_lock lock(mutex_);
  if (busy_) return;
  throw_if_wrong();
  frame_ = frame;
  pixels_.assign(pixels.begin(), pixels.end());
  commands_.assign(commands.begin(), commands.end());
  busy_ = true;
  changed_.notify_all();
}

void Checker::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
  throw_if_wrong();
}

void Checker::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return busy_ || ends_; });
      if (ends_) return;
    }
    check_commands(frame_, pixels_, commands_);
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
    }
    changed_.notify_all();
  }
}

}  // namespace adaptive_optics
