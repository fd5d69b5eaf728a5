// SPDX-License-Identifier: MIT
// gpumap-latency: what is kept of a case's frames, in memory that does not grow with their number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <gpumap/latency.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace latency {

/// Something that happened beside the frames. Times in ns on CLOCK_MONOTONIC.
struct Event {
  enum class Kind : std::uint8_t { drop, context_switch, state, qos, latency, warning };
  Kind kind = Kind::state;
  std::int64_t since_ns = 0;  ///< it came after this …
  std::int64_t at_ns = 0;     ///< … and no later than this
  std::string text;
};
[[nodiscard]] std::string_view to_string(Event::Kind kind) noexcept;

/// From the first store to the result: what one waits for who has something to write. The library's totals begin either
/// before (whole) or after (result).
[[nodiscard]] std::optional<std::int64_t> through_time(const gpumap::FrameRecord& frame) noexcept;

/// From being queued until the first kernel is launched, or where none is, until the reader has it: what a ring between
/// processes costs more than one within a process.
[[nodiscard]] std::optional<std::int64_t> handover_time(const gpumap::FrameRecord& frame) noexcept;

/// Figures of one case, over all its rounds. Thread safety: one thread at a time.
class Collector {
 public:
  struct Kept {
    unsigned round = 0;
    gpumap::FrameRecord frame;
  };
  struct Outlier {
    Kept kept;
    std::int64_t time_ns = 0;
    std::vector<Event> near;  ///< what happened while it was on its way
  };

  /// `paced`: frames are due at certain times, and lateness is what counts.
  explicit Collector(bool paced, std::size_t max_kept = 8192, std::size_t max_outliers = 20);

  /// Frames are due at certain times, so many ns apart; 0: as far apart as they turn out to be. Before the first frame.
  void pace(std::int64_t period_ns = 0) noexcept {
    paced_ = true;
    if (period_ns > 0) period_ns_ = asked_period_ns_ = period_ns;
  }
  /// The first `warmup` frames of a round pay for compiling and allocating, and do not count.
  void begin_round(unsigned number, std::size_t warmup);
  void add(const gpumap::FrameRecord& frame);
  /// Nobody waits for frames any more, from that time on: one that has no result by then is cut off, and no longer
  /// followed. Its deadline is missed if that was over by then.
  void stop(std::int64_t at_ns) noexcept { stopped_ns_ = at_ns; }
  /// What happened in the round: it is kept where a slow frame was on its way. `dropped`: frames that were; where none
  /// was, gaps in the frames' numbers are of frames that came out of turn. `never_came`: frames that were begun, and
  /// neither came to an end nor were dropped; they follow those that came.
  void end_round(const std::vector<Event>& events, std::uint64_t dropped, std::uint64_t never_came = 0);

  [[nodiscard]] bool paced() const noexcept { return paced_; }
  [[nodiscard]] std::uint64_t frames() const noexcept { return frames_; }
  /// Of these: the way ended before there was a result, as in a queue that leaks. They have stages, no time up to a
  /// result, and have missed their deadlines.
  [[nodiscard]] std::uint64_t without_result() const noexcept { return without_result_; }
  /// Beside these: still under way when a round ended.
  [[nodiscard]] std::uint64_t cut_off() const noexcept { return cut_off_; }
  /// A kernel's end, or the CPU's look at its result. Where no frame of the case has either, being received is all that
  /// a frame can come to.
  [[nodiscard]] bool has_result(const gpumap::FrameRecord& frame) const noexcept;
  [[nodiscard]] std::size_t frames_of_round() const noexcept { return seen_; }  ///< those that do not count, too
  [[nodiscard]] const gpumap::Histogram& stage(std::size_t number) const noexcept { return stages_[number]; }
  [[nodiscard]] const gpumap::Histogram& total(std::size_t number) const noexcept { return totals_[number]; }
  [[nodiscard]] const gpumap::Histogram& through() const noexcept { return through_; }
  [[nodiscard]] const gpumap::Histogram& handover() const noexcept { return handover_; }
  /// What the case is compared by: lateness where it is paced, else through.
  [[nodiscard]] const gpumap::Histogram& headline() const noexcept;
  /// The same of one frame.
  [[nodiscard]] std::optional<std::int64_t> headline_time(const gpumap::FrameRecord& frame) const noexcept;
  /// Frames whose result was not there when the next one was due, dropped ones and those without a result among them.
  /// Of the round that runs some are not known yet.
  [[nodiscard]] std::uint64_t missed_deadlines() const noexcept { return missed_; }
  /// Times below 0 in all histograms: there is no such time, so there are none where all is well.
  [[nodiscard]] std::uint64_t negative_times() const noexcept;
  /// A fair sample of all frames, or all of them where they are few.
  [[nodiscard]] const std::vector<Kept>& kept() const noexcept { return kept_; }
  /// Slowest first.
  [[nodiscard]] std::vector<Outlier> outliers() const;

 private:
  void find_results(const gpumap::FrameRecord& frame);
  [[nodiscard]] bool is_over(std::int64_t due_ns) const noexcept;
  void count_deadline(const gpumap::FrameRecord& frame, bool counts);
  void judge_deadlines();
  void keep_outlier(const gpumap::FrameRecord& frame, std::int64_t time_ns);

  bool paced_;
  const std::size_t max_kept_, max_outliers_;
  std::array<gpumap::Histogram, gpumap::stage_count> stages_;
  std::array<gpumap::Histogram, gpumap::total_count> totals_;
  gpumap::Histogram through_, handover_;
  std::uint64_t frames_ = 0, missed_ = 0, without_result_ = 0, cut_off_ = 0;
  bool results_end_ = false;                          ///< some frame has a kernel's end, or was seen
  std::int64_t stopped_ns_ = 0;                       ///< of this round; 0: it runs
  std::int64_t asked_period_ns_ = 0, period_ns_ = 0;  ///< 0: not known
  std::vector<std::int64_t> waiting_;                 ///< lateness of frames whose next one is not known yet
  std::vector<Kept> kept_;
  std::vector<Outlier> outliers_;  ///< a heap, the fastest of them in front
  std::vector<Event> drops_;       ///< of this round
  std::minstd_rand random_{1};
  unsigned round_ = 0;
  std::size_t warmup_ = 0, seen_ = 0;
  std::optional<gpumap::FrameRecord> last_;  ///< the one of this round with the highest number
};

}  // namespace latency
