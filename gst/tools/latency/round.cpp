// SPDX-License-Identifier: MIT
#include "gst/tools/latency/round.hpp"

#include <fmt/format.h>
#include <gst/gst.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <gpumap/latency.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "gst/ptr.hpp"
#include "gst/tools/latency/far_producer.hpp"
#include "gst/tools/latency/latency_producer.hpp"
#include "gst/tools/latency/latency_watch.hpp"

namespace latency {

std::atomic<int> interrupted{0};

std::size_t warmup_of(const Case& which, const Options& options) {
  return which.processes == 2 ? std::max<std::size_t>(options.warmup, 1) : options.warmup;
}

namespace {

using gpumap::FrameRecord;
using gpumap::Stamp;

void mark(FrameRecord& frame, Stamp stamp) {
  frame.at_ns[static_cast<std::size_t>(stamp)] = gpumap::monotonic_ns();
}

// How closely a context switch is placed in time. Frames are fetched less often, as that asks the GPU for its times:
// 400,000 a second have room between two times.
constexpr std::int64_t look_ns = 5'000'000;
constexpr unsigned looks_a_fetch = 4;
constexpr std::int64_t far_start_ns = 30'000'000'000;

/// Set up, frames, tear down.
class Round {
 public:
  Round(Outcome& outcome, const Options& options, unsigned number, std::size_t frames);
  ~Round() { tear_down(); }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  void run();

 private:
  void follow(const std::string& channel);  ///< its frames are those that count
  void build();
  void build_line();
  void link_producer(GstElement* sink);
  void watch_upstream(GstElement* sink);
  void watch_end();
  [[nodiscard]] ProducerPlan plan() const;
  void start_far_producer(const std::string& line);
  void wait_for_far_producer();
  void play();
  /// False: the user ended it before it was whole.
  [[nodiscard]] bool watch_over();
  void drain();
  void start_counting(std::size_t number);  ///< before each frame
  void tear_down();
  void take_stats(const SinkStats& stats);
  void take_far_report();
  void finish();
  [[nodiscard]] bool has_own_producer() const {
    return options_.pipeline.empty() && options_.upstream != "videotestsrc";
  }
  /// Where the upstream of this process waits; null: it never does.
  [[nodiscard]] Gate* gate() { return producer_ ? &producer_->gate() : held_ ? &held_->gate() : nullptr; }
  /// Frames that have come to their end, as far as that is known.
  [[nodiscard]] std::uint64_t progress() {
    return outcome_.collector.frames_of_round() + (far_ ? far_->count() : gate() != nullptr ? gate()->count() : 0);
  }
  /// Frames that the producer began.
  [[nodiscard]] std::uint64_t entered() const { return far_ ? far_->entered() : entered_.load(); }

  Outcome& outcome_;
  const Options& options_;
  const unsigned number_;
  const std::size_t warmup_, frames_;  ///< of all frames, the first ones that do not count
  Watch watch_;
  const CpuTime cpu_;
  std::shared_ptr<gpumap::LatencyLog> log_;
  std::optional<Line> line_;
  std::optional<Producer> producer_;
  std::optional<HeldUpstream> held_;     ///< instead of it, where the line makes its frames itself
  std::unique_ptr<FarProducer> far_;     ///< instead of it, and of all before gpumapsrc, with two processes
  gpumap::FrameRecord rival_;            ///< the frame that is in the rival's elements; the producer's thread has it
  std::atomic<std::size_t> entered_{0};  ///< with two processes: that came to this one
  std::atomic<std::int64_t> cpu_began_ns_{0}, began_ns_{0};
  bool src_is_late_ = false;
  std::uint64_t arrived_ = 0;      ///< at the end of a line of our own
  std::uint64_t given_up_ = 0;     ///< frames, by leaky=newest
  std::vector<Event> far_events_;  ///< of the producer's process
};

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

// The pipeline, and where it is looked at.

void Round::build_line() {
  const Case& which = outcome_.which;
  const std::string whole = options_.pipeline.empty() ? own_line(which, options_, frames_) : options_.pipeline;
  const SplitLine parts = far_ ? split(whole) : SplitLine{{}, whole};
  const std::string far = expand(parts.producer, which, options_, log_->channel());
  const std::string near = expand(parts.consumer, which, options_, log_->channel());
  outcome_.line = far_ ? far + " & gst-launch-1.0 " + near : near;  // as a shell starts both
  line_.emplace(near, watch_);
  if (which.is_upload()) {
    // Its channel has its name, which is known by now.
    const auto upload = line_->element("latency-sink");
    const Ptr<gchar> path(gst_object_get_path_string(GST_OBJECT(upload.get())));
    follow(path.get());
  }
  if (far_) start_far_producer(far);
}

void Round::build() {
  const Case& which = outcome_.which;
  build_line();
  if (far_) return;
  const auto sink = line_->element("latency-sink");
  if (!sink) throw std::runtime_error("{sink} is not in the pipeline that the line makes");

  if (which.is_rival()) {
    // Without a queue between them all of it runs in the producer's thread.
    Line::probe(
        sink.get(), "src",
        [](GstPad*, GstPadProbeInfo*, gpointer self) {
          mark(static_cast<Round*>(self)->rival_, Stamp::published);
          return GST_PAD_PROBE_OK;
        },
        this);
  }
  if (has_own_producer()) {
    link_producer(sink.get());
  } else {
    watch_upstream(sink.get());
  }
  if (options_.pipeline.empty()) watch_end();
}

/// Of a line that makes its frames itself.
void Round::watch_upstream(GstElement* sink) {
  Line::probe(
      sink, "sink",
      [](GstPad*, GstPadProbeInfo* info, gpointer user) {
        auto& self = *static_cast<Round*>(user);
        const std::size_t number = self.entered_++;
        self.start_counting(number);
        if (self.outcome_.which.is_rival()) {
          self.rival_ = {.sequence = number};
          if (const GstClockTime pts = GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info)); GST_CLOCK_TIME_IS_VALID(pts)) {
            self.rival_.due_ns = static_cast<std::int64_t>(gst_element_get_base_time(self.line_->pipeline()) + pts);
          }
          // It was made since its thread came back: gpumapsink's frames have their making in them, too.
          mark(self.rival_, Stamp::last_store);
          const std::int64_t began_ns = self.held_->began_ns();
          self.rival_.at_ns[static_cast<std::size_t>(Stamp::first_store)] =
              began_ns != 0 ? began_ns : self.rival_.at(Stamp::last_store);
        }
        return GST_PAD_PROBE_OK;
      },
      this);
  if (options_.pipeline.empty()) held_.emplace(sink, options_.frames_in_flight(), outcome_.which.spin);
}

/// Where a frame is done with.
void Round::watch_end() {
  const auto end = line_->element("latency-end");
  Line::probe(
      end.get(), "sink",
      [](GstPad*, GstPadProbeInfo*, gpointer user) {
        auto& self = *static_cast<Round*>(user);
        if (self.outcome_.which.is_rival() && self.options_.stamps) {
          mark(self.rival_, Stamp::visible);
          self.log_->add(self.rival_);
        }
        if (self.far_) {
          self.far_->arrived();
        } else {
          self.gate()->arrived();
        }
        return GST_PAD_PROBE_OK;
      },
      this);
}

ProducerPlan Round::plan() const {
  const Case& which = outcome_.which;
  return {.caps = which.is_rival() ? as_rgba(which.frame, options_.rate) : caps_of(which.frame, options_.rate),
          .frame_bytes = which.frame.bytes,
          .frames = frames_,
          .in_place = options_.upstream == "in-place",
          .rate = options_.rate,
          .in_flight = options_.frames_in_flight(),
          .spin = which.spin};
}

void Round::start_far_producer(const std::string& line) {
  const auto src = line_->element("latency-src");
  Line::probe(
      src.get(), "src",
      [](GstPad*, GstPadProbeInfo*, gpointer user) {
        auto& self = *static_cast<Round*>(user);
        self.start_counting(self.entered_++);
        return GST_PAD_PROBE_OK;
      },
      this);
  ProducerJob job{.line = line, .plan = plan(), .warmup = warmup_};
  if (!has_own_producer()) job.plan.caps.clear();
  if (options_.pipeline.empty()) {
    job.held = true;
    watch_end();
  }
  far_->start(std::move(job));
  outcome_.producer_pids.push_back(far_->pid());
}

void Round::link_producer(GstElement* sink) {
  ProducerOptions made{.plan = plan()};
  made.before_frame = [this](std::size_t number) {
    entered_ = number + 1;
    start_counting(number);
  };
  if (outcome_.which.is_rival()) {
    made.before_push = [this](FrameRecord record) {
      rival_ = record;
      // Its own copy begins here, as gpumapsink's does.
      for (const Stamp stamp : {Stamp::first_store, Stamp::last_store}) {
        if (rival_.at(stamp) == 0) mark(rival_, stamp);
      }
    };
  }
  producer_.emplace(line_->pipeline(), sink, std::move(made));
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
  const auto src = line_->element("latency-src");
  src_is_late_ = options_.src_late_ms > 0 && src != nullptr;
  if (src_is_late_) gst_element_set_locked_state(src.get(), TRUE);
  // Only frames of a live source have a time at which they are due.
  if (line_->pause() && !options_.pipeline.empty()) outcome_.collector.pace();
  line_->play();
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
    const Ptr<GstMessage> message(gst_bus_timed_pop(line_->bus(), look_ns));
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
      const auto src = line_->element("latency-src");
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

void Round::take_stats(const SinkStats& stats) {
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
  take_stats(report->sink);
  if (began_ns_ != 0) outcome_.cpu_ns += report->cpu_ns;
  outcome_.switches += report->switches;
  far_events_ = report->events;
}

void Round::tear_down() {
  if (!line_) return;
  if (far_) {
    take_far_report();
  } else if (!outcome_.which.is_rival()) {
    take_stats(line_->sink_stats());
  }
  if (Gate* const gate = this->gate(); gate != nullptr) gate->stop();
  line_->stop();
  producer_.reset();
  line_.reset();
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

}  // namespace

void run_round(Outcome& outcome, const Options& options, unsigned round, std::size_t frames) {
  try {
    Round(outcome, options, round, frames).run();
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
}

}  // namespace latency
