// SPDX-License-Identifier: MIT
#include "gst/tools/latency/collector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace latency {
namespace {

using gpumap::FrameRecord;
using gpumap::Stamp;
using gpumap::Total;

constexpr std::size_t max_drops = 1000;  // of a round; what comes after is counted and not told one by one
constexpr std::size_t max_near = 8;
constexpr std::size_t max_waiting = 4096;  // for a next one in turn: far more than come out of turn

const gpumap::Histogram& of(const std::array<gpumap::Histogram, gpumap::total_count>& totals, Total total) {
  return totals[static_cast<std::size_t>(total)];
}

bool faster(const Collector::Outlier& a, const Collector::Outlier& b) {
  return a.time_ns > b.time_ns;
}

std::pair<std::int64_t, std::int64_t> span_of(const FrameRecord& frame) {
  std::int64_t from = frame.due_ns;
  std::int64_t to = frame.due_ns;
  for (const std::int64_t at : frame.at_ns) {
    if (at == 0) continue;
    if (from == 0 || at < from) from = at;
    to = std::max(to, at);
  }
  return {from, to};
}

}  // namespace

std::string_view to_string(Event::Kind kind) noexcept {
  constexpr std::array<std::string_view, 6> names{"drop", "context switch", "state", "QoS", "latency", "warning"};
  const auto at = static_cast<std::size_t>(kind);
  return at < names.size() ? names[at] : "?";
}

std::optional<std::int64_t> through_time(const FrameRecord& frame) noexcept {
  const auto result = total_time(frame, Total::result);
  if (!result) return std::nullopt;
  const std::int64_t first = frame.at(Stamp::first_store);
  return first == 0 ? *result : *result + (frame.at(Stamp::last_store) - first);
}

std::optional<std::int64_t> handover_time(const FrameRecord& frame) noexcept {
  const std::int64_t from = frame.at(Stamp::published);
  const std::int64_t launched = frame.at(Stamp::launched);
  const std::int64_t to = launched != 0 ? launched : frame.at(Stamp::received);
  if (from == 0 || to == 0) return std::nullopt;
  return to - from;
}

Collector::Collector(bool paced, std::size_t max_kept, std::size_t max_outliers)
    : paced_(paced), max_kept_(max_kept), max_outliers_(max_outliers) {}

const gpumap::Histogram& Collector::headline() const noexcept {
  return paced_ ? of(totals_, Total::lateness) : through_;
}

void Collector::begin_round(unsigned number, std::size_t warmup) {
  round_ = number;
  warmup_ = warmup;
  seen_ = 0;
  stopped_ns_ = 0;
  last_.reset();
  drops_.clear();
}

std::optional<std::int64_t> Collector::headline_time(const FrameRecord& frame) const noexcept {
  if (!has_result(frame)) return std::nullopt;
  return paced_ ? total_time(frame, Total::lateness) : through_time(frame);
}

bool Collector::has_result(const FrameRecord& frame) const noexcept {
  return !results_end_ || frame.at(Stamp::visible) != 0 || frame.at(Stamp::kernel_ended) != 0;
}

/// Until a frame has a result, those before it count as done when they were received. It shows that they were not.
void Collector::find_results(const FrameRecord& frame) {
  if (results_end_ || (frame.at(Stamp::visible) == 0 && frame.at(Stamp::kernel_ended) == 0)) return;
  results_end_ = true;
  without_result_ = frames_;
  missed_ = paced_ ? frames_ : 0;
  through_.clear();
  for (const Total total : {Total::result, Total::lateness}) totals_[static_cast<std::size_t>(total)].clear();
  outliers_.clear();
  waiting_.clear();
}

bool Collector::is_over(std::int64_t due_ns) const noexcept {
  return paced_ && due_ns != 0 && period_ns_ != 0 && due_ns + period_ns_ < stopped_ns_;
}

std::uint64_t Collector::negative_times() const noexcept {
  std::uint64_t all = through_.negative() + handover_.negative();
  for (const auto& one : stages_) all += one.negative();
  for (const auto& one : totals_) all += one.negative();
  return all;
}

// The result of a frame has to be there when the next one is due. Where that is known from the next one only, a frame
// waits for it; one that comes out of turn waits for the next one in turn, and a round's last one for the round's end.
void Collector::count_deadline(const FrameRecord& frame, bool counts) {
  if (!paced_ || frame.due_ns == 0) return;
  if (asked_period_ns_ == 0 && last_ && last_->due_ns != 0 && frame.sequence > last_->sequence &&
      frame.due_ns > last_->due_ns) {
    period_ns_ = (frame.due_ns - last_->due_ns) / static_cast<std::int64_t>(frame.sequence - last_->sequence);
    judge_deadlines();
  }
  if (!counts || !has_result(frame)) return;
  const auto late = total_time(frame, Total::lateness);
  if (late && waiting_.size() < max_waiting) waiting_.push_back(*late);
  if (asked_period_ns_ != 0) judge_deadlines();
}

void Collector::judge_deadlines() {
  if (period_ns_ == 0) return;
  missed_ += static_cast<std::uint64_t>(std::ranges::count_if(waiting_, [&](auto late) { return late > period_ns_; }));
  waiting_.clear();
}

void Collector::keep_outlier(const FrameRecord& frame, std::int64_t time_ns) {
  if (max_outliers_ == 0) return;
  if (outliers_.size() == max_outliers_) {
    if (time_ns <= outliers_.front().time_ns) return;
    std::pop_heap(outliers_.begin(), outliers_.end(), faster);
    outliers_.pop_back();
  }
  outliers_.push_back({.kept = {round_, frame}, .time_ns = time_ns, .near = {}});
  std::push_heap(outliers_.begin(), outliers_.end(), faster);
}

void Collector::add(const FrameRecord& frame) {
  const bool counts = seen_++ >= warmup_;
  find_results(frame);
  const bool result = has_result(frame);
  if (counts && !result && stopped_ns_ != 0) {
    ++cut_off_;
    if (is_over(frame.due_ns)) ++missed_;
    if (!last_ || frame.sequence > last_->sequence) last_ = frame;
    return;
  }
  count_deadline(frame, counts);
  if (!counts) {
    last_ = frame;
    return;
  }
  ++frames_;
  if (!result) {
    ++without_result_;
    if (paced_) ++missed_;
  }
  if (last_ && frame.sequence > last_->sequence + 1) {
    const std::uint64_t gone = frame.sequence - last_->sequence - 1;
    if (drops_.size() < max_drops) {
      drops_.push_back(
          {.kind = Event::Kind::drop,
           .since_ns = span_of(*last_).first,
           .at_ns = span_of(frame).first,
           .text = fmt::format("{} frame{} dropped before number {}", gone, gone == 1 ? "" : "s", frame.sequence)});
    }
  }
  // One that did not wait for its GPU times comes before those that do.
  if (!last_ || frame.sequence > last_->sequence) last_ = frame;

  const auto times = stage_times(frame);
  for (std::size_t i = 0; i < gpumap::stage_count; ++i) {
    if (times[i]) stages_[i].add(*times[i]);
  }
  for (std::size_t i = 0; i < gpumap::total_count; ++i) {
    const auto total = static_cast<Total>(i);
    // A frame that no one waits for has a running time, and is due at no time.
    if (total == Total::lateness && !paced_) continue;
    if (total != Total::whole && !result) continue;
    if (const auto time = total_time(frame, total)) totals_[i].add(*time);
  }
  const auto through = through_time(frame);
  if (through && result) through_.add(*through);
  if (const auto handover = handover_time(frame)) handover_.add(*handover);
  if (const auto time = headline_time(frame)) keep_outlier(frame, *time);

  // Vitter's algorithm R: each frame has the same chance to be kept.
  if (kept_.size() < max_kept_) {
    kept_.push_back({round_, frame});
  } else if (max_kept_ > 0) {
    const auto at = std::uniform_int_distribution<std::uint64_t>(0, frames_ - 1)(random_);
    if (at < max_kept_) kept_[at] = {round_, frame};
  }
}

void Collector::end_round(const std::vector<Event>& events, std::uint64_t dropped, std::uint64_t never_came) {
  judge_deadlines();
  const std::uint64_t known = seen_ + dropped;
  const std::uint64_t warm = known < warmup_ ? std::min<std::uint64_t>(warmup_ - known, never_came) : 0;
  cut_off_ += never_came - warm;
  // As far apart as the others, behind the last one that came.
  for (std::uint64_t i = warm + 1; last_ && i <= never_came; ++i) {
    if (last_->due_ns == 0 || !is_over(last_->due_ns + static_cast<std::int64_t>(i) * period_ns_)) break;
    ++missed_;
  }
  waiting_.clear();
  // A frame that was dropped has no result, however late.
  if (paced_) missed_ += dropped;
  if (dropped == 0) drops_.clear();
  for (Outlier& outlier : outliers_) {
    if (outlier.kept.round != round_) continue;
    const auto [from, to] = span_of(outlier.kept.frame);
    for (const auto* some : {&std::as_const(drops_), &events}) {
      for (const Event& event : *some) {
        if (outlier.near.size() >= max_near) break;
        if (event.at_ns >= from && event.since_ns <= to) outlier.near.push_back(event);
      }
    }
  }
}

std::vector<Collector::Outlier> Collector::outliers() const {
  auto made = outliers_;
  std::sort(made.begin(), made.end(), faster);
  return made;
}

}  // namespace latency
