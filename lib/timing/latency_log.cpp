// SPDX-License-Identifier: MIT
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iterator>
#include <map>
#include <utility>

#include "gpumap/latency.hpp"
#include "gpumap/printable.hpp"
#include "gpumap/start_thread.hpp"
#include "own_process.hpp"

namespace gpumap {
namespace {

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
  reader_->thread = start_thread("gpumap-latency", "what counts frames", [this] {
    std::unique_lock waits(mutex_);
    while (!reader_->ending.wait_for(waits, read_interval, [this] { return ends_; })) {
      if (pending_ == 0) continue;
      waits.unlock();
      count_pending();
      waits.lock();
    }
  });
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
