// SPDX-License-Identifier: MIT
#include "gpumap/latency.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "gpumap/printable.hpp"
#include "gpumap/thread_schedule.hpp"
#include "own_process.hpp"

namespace gpumap {
namespace {

constexpr std::array<std::string_view, stamp_count> stamp_names{
    "acquired", "first-store",    "last-store",   "published", "received",
    "launched", "kernel-started", "kernel-ended", "visible",   "released"};
constexpr std::array<std::string_view, stage_count> stage_names{"hold",  "write",  "publish", "queue",  "dispatch",
                                                                "start", "kernel", "notice",  "release"};
constexpr std::array<std::string_view, total_count> total_names{"whole", "result", "lateness"};

template <std::size_t count, typename Of>
std::string_view name_in(const std::array<std::string_view, count>& names, Of of) noexcept {
  const auto at = static_cast<std::size_t>(of);
  return at < count ? names[at] : "?";
}

/// Where the frame's result was there, as far as anybody looked.
std::int64_t result_ns(const FrameRecord& frame) noexcept {
  for (const Stamp stamp : {Stamp::visible, Stamp::kernel_ended, Stamp::received}) {
    if (frame.at(stamp) != 0) return frame.at(stamp);
  }
  return 0;
}

constexpr auto first_later = static_cast<std::size_t>(Stamp::launched);

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<LatencyLog>, std::less<>> logs;
};

Registry& registry() {
  static auto* const the = new Registry;  // never destroyed: threads may outlive main()
  return *the;
}

// Below what it takes until max_pending frames wait, but at rates at which only trivial frames go through a ring.
constexpr std::chrono::milliseconds read_interval{10};

}  // namespace

// Stamps and stages.

std::string_view to_string(Stamp stamp) noexcept {
  return name_in(stamp_names, stamp);
}
std::string_view to_string(Stage stage) noexcept {
  return name_in(stage_names, stage);
}
std::string_view to_string(Total total) noexcept {
  return name_in(total_names, total);
}

std::int64_t monotonic_ns() noexcept {
  constexpr std::int64_t second = 1'000'000'000;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * second + now.tv_nsec;
}

std::array<std::optional<std::int64_t>, stage_count> stage_times(const FrameRecord& frame) noexcept {
  std::array<std::optional<std::int64_t>, stage_count> times;
  std::int64_t before = frame.at_ns[0];
  for (std::size_t stage = 0; stage < stage_count; ++stage) {
    const std::int64_t end = frame.at_ns[stage + 1];
    if (end == 0) continue;
    if (before != 0) times[stage] = end - before;
    before = end;
  }
  return times;
}

std::optional<std::int64_t> total_time(const FrameRecord& frame, Total total) noexcept {
  std::int64_t from = 0;
  std::int64_t to = 0;
  switch (total) {
    case Total::whole:
      for (const std::int64_t at : frame.at_ns) {
        if (from == 0) from = at;
        if (at != 0) to = at;
      }
      break;
    case Total::result:
      from = frame.at(Stamp::last_store);
      to = result_ns(frame);
      break;
    case Total::lateness:
      from = frame.due_ns;
      to = result_ns(frame);
      break;
  }
  if (from == 0 || to == 0) return std::nullopt;
  return to - from;
}

// A frame's way while it is under way.

FrameTrace::FrameTrace(std::shared_ptr<LatencyLog> log, const FrameRecord& begun)
    : log_(std::move(log)), record_(begun) {}

FrameTrace::~FrameTrace() {
  try {
    log_->add(record_, std::move(spans_));
  } catch (const std::exception&) {
    // Out of memory: a frame less in the figures.
  }
}

void FrameTrace::stamp(Stamp stamp, std::int64_t at_ns) noexcept {
  const auto index = static_cast<std::size_t>(stamp);
  if (index < first_later || index >= stamp_count) return;
  const std::atomic_ref at(record_.at_ns[index]);
  std::int64_t none = 0;
  if (stamp == Stamp::launched) {
    at.compare_exchange_strong(none, at_ns, std::memory_order_relaxed);
  } else {
    at.store(at_ns, std::memory_order_relaxed);
  }
}

void FrameTrace::add_span(std::shared_ptr<GpuSpan> span) {
  if (!span) return;
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

FrameRecord FrameTrace::record() const {
  FrameRecord made;
  made.sequence = record_.sequence;
  made.bytes = record_.bytes;
  for (std::size_t i = 0; i < first_later; ++i) made.at_ns[i] = record_.at_ns[i];
  for (std::size_t i = first_later; i < stamp_count; ++i) {
    made.at_ns[i] = std::atomic_ref(record_.at_ns[i]).load(std::memory_order_relaxed);
  }
  made.due_ns = record_.due_ns;  // what the GPU says, and its error, is not known here
  made.captured_ns = record_.captured_ns;
  return made;
}

// Counts in memory that does not grow.

std::size_t Histogram::bucket_of(std::uint64_t time_ns) noexcept {
  return LogSteps<fine_bits, top_bits>::bucket_of(time_ns);
}

std::int64_t Histogram::middle_of(std::size_t bucket) noexcept {
  return LogSteps<fine_bits, top_bits>::middle_of(bucket);
}

void Histogram::add(std::int64_t time_ns) noexcept {
  if (time_ns < 0) {
    ++negative_;
    return;
  }
  auto& bucket = counts_[bucket_of(static_cast<std::uint64_t>(time_ns))];
  if (bucket != std::numeric_limits<std::uint32_t>::max()) ++bucket;
  min_ = count_ == 0 ? time_ns : std::min(min_, time_ns);
  max_ = std::max(max_, time_ns);
  sum_ += static_cast<double>(time_ns);
  ++count_;
}

Percentiles Histogram::percentiles() const noexcept {
  Percentiles made;
  made.negative = negative_;
  if (count_ == 0) return made;
  made.count = count_;
  made.min = min_;
  made.max = max_;
  made.mean = sum_ / static_cast<double>(count_);
  struct Wanted {
    double share;
    std::int64_t Percentiles::*figure;
  };
  constexpr std::array<Wanted, 4> wanted{
      {{0.5, &Percentiles::p50}, {0.9, &Percentiles::p90}, {0.99, &Percentiles::p99}, {0.999, &Percentiles::p999}}};
  std::size_t next = 0;
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets && next < wanted.size(); ++bucket) {
    seen += counts_[bucket];
    // The smallest time that at least this share of the frames does not exceed.
    while (next < wanted.size() && static_cast<double>(seen) >= wanted[next].share * static_cast<double>(count_)) {
      made.*wanted[next].figure = std::clamp(middle_of(bucket), min_, max_);
      ++next;
    }
  }
  for (; next < wanted.size(); ++next) made.*wanted[next].figure = max_;  // a bucket that ran full
  return made;
}

std::int64_t Histogram::percentile(double share) const noexcept {
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    seen += counts_[bucket];
    if (seen != 0 && static_cast<double>(seen) >= share * static_cast<double>(count_)) {
      return std::clamp(middle_of(bucket), min_, max_);
    }
  }
  return max_;
}

std::vector<Histogram::Count> Histogram::counts() const {
  std::vector<Count> made;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    if (counts_[bucket] == 0) continue;
    made.push_back({.time_ns = std::clamp(middle_of(bucket), min_, max_), .times = counts_[bucket]});
  }
  return made;
}

// The figures of a channel.

/// What a child of fork() does not have, and must not destroy: destroying a condition variable waits for its waiters.
struct LatencyLog::Reader {
  const OwnProcess process;
  std::condition_variable ending;
  std::thread thread;    ///< from the first frame on
  bool refused = false;  ///< the system gave no thread, which was told
};

LatencyLog::LatencyLog(std::string channel) : channel_(std::move(channel)), reader_(std::make_unique<Reader>()) {}

std::shared_ptr<LatencyLog> LatencyLog::of_channel(const std::string& channel) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (auto log = all.logs[channel].lock(); log && log->reader_->process.here()) return log;
  std::erase_if(all.logs, [](const auto& entry) { return entry.second.expired(); });
  auto log = std::make_shared<LatencyLog>(channel);
  all.logs[channel] = log;
  return log;
}

std::shared_ptr<LatencyLog> LatencyLog::find(const std::string& channel) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.logs.find(channel);
  auto log = found != all.logs.end() ? found->second.lock() : nullptr;
  return log && log->reader_->process.here() ? log : nullptr;
}

LatencyLog::~LatencyLog() {
  if (!reader_->process.here()) {
    static_cast<void>(reader_.release());
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  reader_->ending.notify_all();
  // Ends: the thread looks at ends_ after each interval, and asks spans without waiting for them.
  if (reader_->thread.joinable()) reader_->thread.join();
}

void LatencyLog::add(const FrameRecord& frame, std::vector<std::shared_ptr<GpuSpan>> spans) {
  if (!reader_->process.here()) return;
  const std::lock_guard lock(mutex_);
  if (pending_ == max_pending) {
    if (!spans.empty()) ++without_gpu_times_;
    count(frame);
    return;
  }
  arrived_.emplace_back(frame, std::move(spans));
  ++pending_;
  if (!reader_->thread.joinable() && !reader_->refused) start_reader();
}

void LatencyLog::start_reader() try {
  reader_->thread = start_thread(
      "gpumap-latency", "what counts frames",
      [this] {
        std::unique_lock waits(mutex_);
        while (!reader_->ending.wait_for(waits, read_interval, [this] { return ends_; })) {
          if (pending_ == 0) continue;
          waits.unlock();
          count_pending();
          waits.lock();
        }
      },
      ThreadSchedule());  // an ordinary one: no frame waits for it
} catch (const std::exception& error) {
  // The frame goes on, and so does every other: summary() and take_frames() count them.
  reader_->refused = true;
  std::fprintf(stderr, "gpumap: latency of channel %s: %s\n", printable(channel_).c_str(), error.what());
}

void LatencyLog::add_dropped(std::uint64_t frames) {
  if (!reader_->process.here()) return;
  const std::lock_guard lock(mutex_);
  dropped_ += frames;
}

void LatencyLog::count_pending() {
  const std::lock_guard reads(reading_);
  {
    const std::lock_guard lock(mutex_);
    std::ranges::move(arrived_, std::back_inserter(waiting_));
    arrived_.clear();
  }
  // All of them, as a kernel that never ends is no reason not to count the others. Without the lock that frames need:
  // reading may take a millisecond.
  auto last = waiting_.begin();
  for (Pending& pending : waiting_) {
    if (read(pending)) {
      const std::lock_guard lock(mutex_);
      count(pending.frame);
      --pending_;
    } else {
      if (&*last != &pending) *last = std::move(pending);
      ++last;
    }
  }
  waiting_.erase(last, waiting_.end());
  // What a kernel that never ends keeps must leave room for frames to come: they may be another kernel's, or those of
  // the one that is started in its place.
  while (waiting_.size() > max_waiting) {
    const std::lock_guard lock(mutex_);
    ++without_gpu_times_;
    count(waiting_.front().frame);
    --pending_;
    waiting_.pop_front();
  }
}

bool LatencyLog::read(Pending& pending) noexcept {
  if (pending.spans.empty()) return true;
  FrameRecord& frame = pending.frame;
  std::int64_t began = 0;
  std::int64_t ended = 0;
  std::int64_t error = 0;
  try {
    for (const auto& span : pending.spans) {
      const auto times = span->times();
      if (!times) return false;
      began = began == 0 ? times->began_ns : std::min(began, times->began_ns);
      ended = std::max(ended, times->ended_ns);
      error = std::max(error, times->error_ns);
    }
  } catch (const std::exception&) {  // The device is lost, which the elements say.
    const std::lock_guard lock(mutex_);
    ++without_gpu_times_;
    return true;
  }
  // Cause goes before effect: what says otherwise is the error of comparing the clocks.
  if (frame.at(Stamp::launched) != 0) began = std::max(began, frame.at(Stamp::launched));
  ended = std::max(ended, began);
  if (frame.at(Stamp::visible) != 0) {
    ended = std::min(ended, frame.at(Stamp::visible));
    began = std::min(began, ended);
  }
  frame.at_ns[static_cast<std::size_t>(Stamp::kernel_started)] = began;
  frame.at_ns[static_cast<std::size_t>(Stamp::kernel_ended)] = ended;
  frame.gpu_error_ns = error;
  return true;
}

void LatencyLog::count(FrameRecord frame) {
  // Who launches need not wait for the GPU, and of kernels in a row only the first has the slot: the frame's way ends
  // with the last of all that.
  std::int64_t& released = frame.at_ns[static_cast<std::size_t>(Stamp::released)];
  if (released != 0) released = std::max({released, frame.at(Stamp::kernel_ended), frame.at(Stamp::visible)});
  ++frames_;
  gpu_error_ns_ = std::max(gpu_error_ns_, frame.gpu_error_ns);
  const auto times = stage_times(frame);
  for (std::size_t i = 0; i < stage_count; ++i) {
    if (times[i]) stages_[i].add(*times[i]);
  }
  for (std::size_t i = 0; i < total_count; ++i) {
    if (const auto time = total_time(frame, static_cast<Total>(i))) totals_[i].add(*time);
  }
  if (max_kept_ == 0) return;
  if (kept_.size() < max_kept_) {
    kept_.push_back(frame);
  } else {
    kept_[next_kept_] = frame;
    next_kept_ = (next_kept_ + 1) % max_kept_;
  }
}

LatencySummary LatencyLog::summary() {
  LatencySummary made;
  made.channel = channel_;
  if (!reader_->process.here()) return made;
  count_pending();
  const std::lock_guard lock(mutex_);
  made.frames = frames_;
  made.dropped = dropped_;
  made.without_gpu_times = without_gpu_times_;
  made.gpu_error_ns = gpu_error_ns_;
  for (std::size_t i = 0; i < stage_count; ++i) made.stages[i] = stages_[i].percentiles();
  for (std::size_t i = 0; i < total_count; ++i) made.totals[i] = totals_[i].percentiles();
  return made;
}

void LatencyLog::reset() {
  if (!reader_->process.here()) return;
  const std::lock_guard reads(reading_);
  waiting_.clear();
  const std::lock_guard lock(mutex_);
  arrived_.clear();
  pending_ = 0;
  for (Histogram& one : stages_) one.clear();
  for (Histogram& one : totals_) one.clear();
  frames_ = dropped_ = without_gpu_times_ = 0;
  gpu_error_ns_ = 0;
  kept_.clear();
  next_kept_ = 0;
}

void LatencyLog::keep_frames(std::size_t frames) {
  if (!reader_->process.here()) return;
  const std::lock_guard lock(mutex_);
  max_kept_ = frames;
  kept_.clear();
  kept_.reserve(frames);
  next_kept_ = 0;
}

std::vector<FrameRecord> LatencyLog::take_frames() {
  if (!reader_->process.here()) return {};
  count_pending();
  const std::lock_guard lock(mutex_);
  std::rotate(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(next_kept_), kept_.end());
  std::vector<FrameRecord> taken;
  taken.swap(kept_);
  kept_.reserve(max_kept_);
  next_kept_ = 0;
  // They were counted as the GPU ended them.
  std::ranges::stable_sort(taken, {}, [](const FrameRecord& frame) { return frame.at(Stamp::published); });
  return taken;
}

}  // namespace gpumap
