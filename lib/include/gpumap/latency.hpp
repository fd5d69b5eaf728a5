// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpumap/export.hpp"
#include "gpumap/gpu_span.hpp"

namespace gpumap {

/// Buckets for times in ns of which each power of two has the same number, as in Gil Tene's HdrHistogram: one relative
/// error for a microsecond and a minute. Each power of two has 2^fine_bits; below twice that each ns has its own; what
/// takes 2^top_bits ns or longer counts as that.
template <std::uint32_t fine_bits, std::uint32_t top_bits>
struct LogSteps {
  static constexpr std::size_t count = (top_bits - fine_bits + 1) << fine_bits;

  [[nodiscard]] static constexpr std::size_t bucket_of(std::uint64_t time_ns) noexcept {
    constexpr std::uint64_t longest = (std::uint64_t{1} << top_bits) - 1;
    const std::uint64_t time = std::min(time_ns, longest);
    if (time < exact) return time;
    const auto shift = static_cast<std::uint32_t>(std::bit_width(time)) - fine_bits - 1;
    return (static_cast<std::size_t>(shift) << fine_bits) + (time >> shift);
  }

  [[nodiscard]] static constexpr std::int64_t middle_of(std::size_t bucket) noexcept {
    if (bucket < exact) return static_cast<std::int64_t>(bucket);
    const auto shift = static_cast<std::uint32_t>(bucket >> fine_bits) - 1;
    const std::uint64_t low = (std::uint64_t{bucket} - (std::uint64_t{shift} << fine_bits)) << shift;
    return static_cast<std::int64_t>(low + (std::uint64_t{1} << shift) / 2);
  }

 private:
  static constexpr std::uint64_t exact = std::uint64_t{2} << fine_bits;
};

/// Points on the way of a frame, in their order.
enum class Stamp : std::uint8_t {
  acquired,        ///< the producer got a slot for it
  first_store,     ///< the slot was mapped, or the copy of the producer's own memory began
  last_store,      ///< it was unmapped, or the copy ended
  published,       ///< queued for the reader
  received,        ///< the reader took it
  launched,        ///< its first kernel was about to be handed to the driver
  kernel_started,  ///< the GPU began the first kernel
  kernel_ended,    ///< the GPU ended the last kernel
  visible,         ///< the CPU saw the kernels' result
  released,        ///< no reader has the slot any more, on the GPU or off it, and none waits for the result
};
inline constexpr std::size_t stamp_count = 10;

/// What lies between two stamps: stage i ends with stamp i + 1. Where a stamp was not taken (no kernel, nobody on the
/// CPU who waits for the result), its stage has no time of its own, and the next one that was taken has it all: the
/// stages of a frame always add up to its whole time.
enum class Stage : std::uint8_t {
  hold,      ///< the producer has the slot and does not write yet
  write,     ///< it writes, or the frame is copied
  publish,   ///< store fence, upload where there is one, waiting for the clock, queueing
  queue,     ///< in the ring
  dispatch,  ///< from the reader to the launch
  start,     ///< from the launch to the GPU's beginning
  kernel,    ///< on the GPU
  notice,    ///< from the GPU's end until the CPU sees it
  release,   ///< until the slot is given back
};
inline constexpr std::size_t stage_count = stamp_count - 1;

/// Times of a frame as a whole.
enum class Total : std::uint8_t {
  whole,     ///< first stamp to last: the sum of the stages
  result,    ///< last store to the result: visible to the CPU, or else the kernels' end, or else received
  lateness,  ///< from when the frame was due to the result, where that is known
};
inline constexpr std::size_t total_count = 3;

[[nodiscard]] GPUMAP_API std::string_view to_string(Stamp stamp) noexcept;
[[nodiscard]] GPUMAP_API std::string_view to_string(Stage stage) noexcept;
[[nodiscard]] GPUMAP_API std::string_view to_string(Total total) noexcept;

/// CLOCK_MONOTONIC, which no one sets: every stamp is of this clock.
[[nodiscard]] GPUMAP_API std::int64_t monotonic_ns() noexcept;

/// One frame's way. Times in ns on CLOCK_MONOTONIC; 0: not known.
struct FrameRecord {
  std::uint64_t sequence = 0;  ///< on its channel
  std::uint64_t bytes = 0;
  std::array<std::int64_t, stamp_count> at_ns{};
  std::int64_t due_ns = 0;        ///< when its time came on the pipeline's clock
  std::int64_t captured_ns = 0;   ///< what the capturing device says
  std::int64_t gpu_error_ns = 0;  ///< bound of the error of the two kernel stamps

  [[nodiscard]] std::int64_t at(Stamp stamp) const noexcept { return at_ns[static_cast<std::size_t>(stamp)]; }
};

/// Empty where a stage has no time of its own.
[[nodiscard]] GPUMAP_API std::array<std::optional<std::int64_t>, stage_count> stage_times(
    const FrameRecord& frame) noexcept;
[[nodiscard]] GPUMAP_API std::optional<std::int64_t> total_time(const FrameRecord& frame, Total total) noexcept;

/// ns; percentiles within 1%, the rest exact. A percentile is the smallest time that at least that share does not
/// exceed (nearest rank).
struct Percentiles {
  std::uint64_t count = 0;     ///< of the times that the other figures are of
  std::uint64_t negative = 0;  ///< times below 0, beside those: the end came before the beginning
  std::int64_t min = 0, p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
  double mean = 0;
};

struct LatencySummary {
  std::string channel;
  std::uint64_t frames = 0;
  std::uint64_t dropped = 0;            ///< published, and overtaken or cut off before a reader had them
  std::uint64_t without_gpu_times = 0;  ///< whose kernels' times could not be had
  std::int64_t gpu_error_ns = 0;        ///< the largest of the frames'
  std::array<Percentiles, stage_count> stages;
  std::array<Percentiles, total_count> totals;

  [[nodiscard]] const Percentiles& of(Stage stage) const noexcept { return stages[static_cast<std::size_t>(stage)]; }
  [[nodiscard]] const Percentiles& of(Total total) const noexcept { return totals[static_cast<std::size_t>(total)]; }
};

/// Counts of times in ns, as fine as 1 in 128, in memory that does not grow. Times below 0 are counted apart and are in
/// no other figure: no duration is one, so a report of the rest gives their number, too. Thread safety: one
/// thread at a time.
class GPUMAP_API Histogram {
  static constexpr std::uint32_t fine_bits = 6;  // of a power of two
  static constexpr std::uint32_t top_bits = 42;  // 73 minutes; what is longer counts as that

 public:
  /// As HdrHistogram counts its own: the finest steps, and how often their width doubles.
  static constexpr std::uint32_t sub_buckets = 2U << fine_bits;
  static constexpr std::uint32_t doublings = top_bits - fine_bits;

  void add(std::int64_t time_ns) noexcept;
  [[nodiscard]] std::uint64_t negative() const noexcept { return negative_; }
  [[nodiscard]] Percentiles percentiles() const noexcept;
  /// The smallest time that at least this share of those counted does not exceed; 0 where none was.
  [[nodiscard]] std::int64_t percentile(double share) const noexcept;
  /// What was counted, the shortest first: times as fine as they are told apart, for a plot.
  struct Count {
    std::int64_t time_ns;
    std::uint64_t times;
  };
  [[nodiscard]] std::vector<Count> counts() const;
  void clear() noexcept { *this = {}; }

 private:
  static constexpr std::size_t buckets = (top_bits - fine_bits + 1) << fine_bits;
  [[nodiscard]] static std::size_t bucket_of(std::uint64_t time_ns) noexcept;
  [[nodiscard]] static std::int64_t middle_of(std::size_t bucket) noexcept;

  std::array<std::uint32_t, buckets> counts_{};
  std::uint64_t count_ = 0, negative_ = 0;
  std::int64_t min_ = 0, max_ = 0;
  double sum_ = 0;
};

/// What became of a channel's frames. Memory is bounded, whatever number of frames comes. In a child that fork() made
/// it does nothing and is empty. Thread safety: every member from any thread.
class GPUMAP_API LatencyLog {
 public:
  explicit LatencyLog(std::string channel);
  ~LatencyLog();
  LatencyLog(const LatencyLog&) = delete;
  LatencyLog& operator=(const LatencyLog&) = delete;

  /// The log of a channel of this process; it lives as long as somebody holds it.
  [[nodiscard]] static std::shared_ptr<LatencyLog> of_channel(const std::string& channel);
  /// The same where somebody holds it, else null.
  [[nodiscard]] static std::shared_ptr<LatencyLog> find(const std::string& channel);

  [[nodiscard]] const std::string& channel() const noexcept { return channel_; }

  /// A frame came to its end. `spans`: the GPU's work on it, which may still be running. The frame counts once that is
  /// done. It counts without kernel stamps when `max_pending` frames wait for the GPU already, or when `max_pending` /
  /// 2 later frames do. Counting, and asking the GPU, take time that no frame should wait for: a thread of the log's
  /// own does both, as do summary() and take_frames().
  void add(const FrameRecord& frame, std::vector<std::shared_ptr<GpuSpan>> spans = {});
  void add_dropped(std::uint64_t frames);

  [[nodiscard]] LatencySummary summary();
  /// Begin anew. Frames that wait for the GPU are forgotten.
  void reset();

  /// Keep the last `frames` records as well, for take_frames(). 0, at first: none.
  void keep_frames(std::size_t frames);
  /// The records kept since the last call, oldest first.
  [[nodiscard]] std::vector<FrameRecord> take_frames();

  static constexpr std::size_t max_pending = 4096;

 private:
  struct Pending {
    Pending(const FrameRecord& frame_, std::vector<std::shared_ptr<GpuSpan>>&& spans_)
        : frame(frame_), spans(std::move(spans_)) {}
    FrameRecord frame;
    std::vector<std::shared_ptr<GpuSpan>> spans;
  };
  static constexpr std::size_t max_waiting = max_pending / 2;
  void start_reader();                   ///< under mutex_
  void count_pending();                  ///< those whose work on the GPU is done
  bool read(Pending& pending) noexcept;  ///< false: the GPU is not done
  void count(FrameRecord frame);

  const std::string channel_;
  std::mutex reading_;            ///< of waiting_; taken before mutex_
  std::deque<Pending> waiting_;   ///< for the count, some for the GPU; oldest first
  std::mutex mutex_;              ///< of what follows
  std::vector<Pending> arrived_;  ///< not in waiting_ yet
  std::size_t pending_ = 0;       ///< in both
  std::array<Histogram, stage_count> stages_;
  std::array<Histogram, total_count> totals_;
  std::uint64_t frames_ = 0, dropped_ = 0, without_gpu_times_ = 0;
  std::int64_t gpu_error_ns_ = 0;
  std::vector<FrameRecord> kept_;  ///< a ring of max_kept_
  std::size_t max_kept_ = 0, next_kept_ = 0;
  bool ends_ = false;
  struct GPUMAP_NO_EXPORT Reader;
  std::unique_ptr<Reader> reader_;
};

/// A frame on its way past the ring: who has it adds stamps, and when the last one lets go, it goes into the log.
/// Shared by the slot, the buffers that carry it on, and what kernels make of it.
/// Thread safety: every member from any thread.
class GPUMAP_API FrameTrace {
 public:
  FrameTrace(std::shared_ptr<LatencyLog> log, const FrameRecord& begun);
  ~FrameTrace();
  FrameTrace(const FrameTrace&) = delete;
  FrameTrace& operator=(const FrameTrace&) = delete;

  /// From `launched` on. That one keeps the first time that it is told, all others the last.
  void stamp(Stamp stamp, std::int64_t at_ns = monotonic_ns()) noexcept;
  void add_span(std::shared_ptr<GpuSpan> span);
  /// Where it goes in the end.
  [[nodiscard]] const std::shared_ptr<LatencyLog>& log() const noexcept { return log_; }
  /// As it is now; kernel stamps are not in it.
  [[nodiscard]] FrameRecord record() const;

 private:
  const std::shared_ptr<LatencyLog> log_;
  mutable FrameRecord record_;  ///< stamps from `launched` on through std::atomic_ref, the rest as begun
  std::mutex mutex_;            ///< of spans_
  std::vector<std::shared_ptr<GpuSpan>> spans_;
};

}  // namespace gpumap
