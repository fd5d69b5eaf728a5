// SPDX-License-Identifier: MIT
#include "gst/tools/latency/round.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <gpumap/latency.hpp>
#include <stdexcept>

#include "gst/tools/latency/latency_elements.hpp"
#include "gst/tools/latency/running_round.hpp"

namespace latency {

std::atomic<int> interrupted{0};

std::size_t warmup_of(const Case& which, const Options& options) {
  return which.processes == 2 ? std::max<std::size_t>(options.warmup, 1) : options.warmup;
}

namespace {

// How closely a context switch is placed in time. Frames are fetched less often, as that asks the GPU for its times:
// 400,000 a second have room between two times.
constexpr std::int64_t look_ns = 5'000'000;
constexpr unsigned looks_a_fetch = 4;
constexpr std::int64_t far_start_ns = 30'000'000'000;

}  // namespace

Round::Round(Outcome& outcome, const Options& options, unsigned number, std::size_t frames)
    : outcome_(outcome),
      options_(options),
      number_(number),
      warmup_(warmup_of(outcome.which, options)),
      frames_(frames + warmup_) {
  static unsigned channels = 0;
  if (outcome.which.processes == 2) far_ = std::make_unique<FarProducer>(outcome.which.spin);
  follow(far_ ? far_->socket_path() : fmt::format("gpumap-latency-{}", ++channels));
}

void Round::follow(const std::string& channel) {
  constexpr std::size_t max_records = 8192;
  log_ = gpumap::LatencyLog::of_channel(channel);
  log_->keep_frames(max_records);
}

void Round::start_counting(std::size_t number) {
  if (number != warmup_) return;
  cpu_began_ns_ = cpu_.of_others_ns();
  began_ns_ = gpumap::monotonic_ns();
}

/// It has a device to open, and a pipeline: a src that tries to connect meanwhile would pause longer and longer.
void Round::wait_for_far_producer() {
  const std::int64_t began_ns = gpumap::monotonic_ns();
  while (!far_->plays() && interrupted == 0) {
    far_->look(std::chrono::milliseconds(20));
    // No frame can come yet: --timeout says nothing of this.
    if (gpumap::monotonic_ns() - began_ns < far_start_ns) continue;
    throw std::runtime_error(
        fmt::format("the producer's process {} did not start its pipeline within {} s: it, or the "
                    "driver, hangs",
                    far_->pid(), far_start_ns / 1'000'000'000));
  }
  if (far_->live() && !options_.pipeline.empty()) outcome_.collector.pace();
}

void Round::play() {
  if (far_) wait_for_far_producer();
  if (interrupted != 0) return;
  const auto src = element("latency-src");
  src_is_late_ = options_.src_late_ms > 0 && src != nullptr;
  if (src_is_late_) gst_element_set_locked_state(src.get(), TRUE);
  // Only a live source has no frame to show before it plays; only its frames have a time at which they are due.
  const GstStateChangeReturn paused = gst_element_set_state(pipeline_.get(), GST_STATE_PAUSED);
  if (paused == GST_STATE_CHANGE_NO_PREROLL && !options_.pipeline.empty()) outcome_.collector.pace();
  if (paused == GST_STATE_CHANGE_FAILURE ||
      gst_element_set_state(pipeline_.get(), GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) {
    const Ptr<GstMessage> message(gst_bus_pop_filtered(bus_.get(), GST_MESSAGE_ERROR));
    throw std::runtime_error(message ? error_of(message.get()) : "the pipeline does not start");
  }
  if (producer_) producer_->start();
}

void Round::drain() {
  for (const gpumap::FrameRecord& frame : log_->take_frames()) outcome_.collector.add(frame);
}

bool Round::watch_over() {
  // A frame that is not due yet is no stall.
  const double patience_ns = (options_.timeout_s + (options_.paced() ? 1 / options_.rate : 0)) * 1e9;
  const std::int64_t played_ns = gpumap::monotonic_ns();
  std::int64_t moved_ns = played_ns;
  std::uint64_t before = 0;
  for (unsigned look = 0;; ++look) {
    const Ptr<GstMessage> message(gst_bus_timed_pop(bus_.get(), look_ns));
    watch_.look_at_threads();
    if (far_) far_->look();
    if (look % looks_a_fetch == 0) drain();
    if (message && GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_ERROR) {
      throw std::runtime_error(error_of(message.get()));
    }
    if (message) return true;
    if (interrupted != 0) return false;
    if (outcome_.collector.frames_of_round() >= frames_) return true;  // of a line that has no end of its own
    const std::int64_t now = gpumap::monotonic_ns();
    if (src_is_late_ && now - played_ns >= std::int64_t{options_.src_late_ms} * 1'000'000) {
      const auto src = element("latency-src");
      gst_element_set_locked_state(src.get(), FALSE);
      gst_element_sync_state_with_parent(src.get());
      src_is_late_ = false;
      moved_ns = now;
    }
    if (const std::uint64_t now_there = progress(); now_there != before) {
      before = now_there;
      moved_ns = now;
    } else if (static_cast<double>(now - moved_ns) > patience_ns) {
      throw std::runtime_error(fmt::format(
          "stalled: no frame for {} s, after {} that went in and {} that came to their end (--timeout sets how long "
          "to wait)",
          options_.timeout_s, entered(), outcome_.collector.frames_of_round()));
    }
  }
}

void Round::read_stats() {
  const auto sink = element("latency-sink");
  if (!sink || outcome_.which.is_rival()) return;
  const SinkStats stats = stats_of(sink.get());
  outcome_.zero_copy_frames += stats.zero_copy_frames;
  outcome_.copied_frames += stats.copied_frames;
  outcome_.waits += stats.waits;
  given_up_ = stats.drops;
  outcome_.transport = stats.transport;
}

void Round::take_far_report() {
  const auto report = far_->end();
  if (!report) {
    if (outcome_.error.empty() && interrupted == 0)
      outcome_.error = "the producer's process ended without a report, or did not end";
    return;
  }
  outcome_.zero_copy_frames += report->sink.zero_copy_frames;
  outcome_.copied_frames += report->sink.copied_frames;
  outcome_.waits += report->sink.waits;
  given_up_ = report->sink.drops;
  outcome_.transport = report->sink.transport;
  if (began_ns_ != 0) outcome_.cpu_ns += report->cpu_ns;
  outcome_.switches += report->switches;
  far_events_ = report->events;
}

void Round::tear_down() {
  if (!pipeline_) return;
  if (far_) take_far_report();
  read_stats();
  if (Gate* const gate = this->gate(); gate != nullptr) gate->stop();
  gst_element_set_state(pipeline_.get(), GST_STATE_NULL);
  if (producer_) producer_->stop();
  if (bus_) gst_bus_set_sync_handler(bus_.get(), nullptr, nullptr, nullptr);
  producer_.reset();
  pipeline_.reset();
}

void Round::finish() {
  drain();
  const auto summary = log_->summary();
  // With leaky=newest a frame is given up before it is published: the log never hears of it.
  const std::uint64_t dropped = std::max(summary.dropped, given_up_);
  outcome_.dropped += dropped;
  outcome_.without_gpu_times += summary.without_gpu_times;
  outcome_.gpu_error_ns = std::max(outcome_.gpu_error_ns, summary.gpu_error_ns);
  const std::uint64_t not_looked_at =
      summary.frames - std::min<std::uint64_t>(summary.frames, outcome_.collector.frames_of_round());
  outcome_.not_looked_at += not_looked_at;
  if (began_ns_ != 0) outcome_.cpu_frames += not_looked_at;
  outcome_.switches += watch_.switches();
  auto events = watch_.take();
  events.insert(events.end(), far_events_.begin(), far_events_.end());
  const std::uint64_t came = std::max<std::uint64_t>(summary.frames, outcome_.collector.frames_of_round()) + dropped;
  const std::uint64_t never_came = options_.stamps ? entered() - std::min(entered(), came) : 0;
  outcome_.collector.end_round(events, dropped, never_came);
}

void Round::run() {
  const std::uint64_t before = outcome_.collector.frames();
  outcome_.warmup = warmup_;
  outcome_.collector.begin_round(number_, warmup_);
  if (!far_) outcome_.producer_pids.push_back(::getpid());
  watch_.look_at_threads();
  try {
    build();
    play();
    if (watch_over()) ++outcome_.rounds;
  } catch (const std::exception& error) {
    outcome_.error = error.what();
  }
  drain();
  outcome_.collector.stop(gpumap::monotonic_ns());
  if (began_ns_ != 0) {
    outcome_.cpu_ns += cpu_.of_others_ns() - cpu_began_ns_;
    outcome_.seconds += static_cast<double>(gpumap::monotonic_ns() - began_ns_) / 1e9;
  }
  if (Gate* const gate = this->gate(); gate != nullptr) arrived_ = gate->count();
  tear_down();
  finish();
  outcome_.sent += entered();
  std::uint64_t came = outcome_.collector.frames() - before;
  if (!options_.stamps) {
    came = arrived_ - std::min<std::uint64_t>(arrived_, warmup_);
    outcome_.unstamped += came;
  }
  if (began_ns_ != 0) outcome_.cpu_frames += came;
  if (came == 0 && outcome_.error.empty() && interrupted == 0) {
    const std::size_t all = outcome_.collector.frames_of_round();
    outcome_.error =
        all > 0 ? fmt::format("{} frames came, and the first {} of a round do not count: see --warmup", all, warmup_)
        : entered() > 0 ? "frames went through, and no stamp of them came back: the plugin that GStreamer found "
                          "belongs to another build of gpumap than this program"
                        : "the pipeline ended without a frame";
  }
}

void run_round(Outcome& outcome, const Options& options, unsigned round, std::size_t frames) {
  try {
    Round(outcome, options, round, frames).run();
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
}

}  // namespace latency
