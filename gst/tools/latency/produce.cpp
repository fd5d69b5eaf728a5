// SPDX-License-Identifier: MIT
// The producer's process of --processes 2.
#include <fcntl.h>
#include <gst/gst.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "gst/tools/latency/far_producer.hpp"

namespace latency {
namespace {

using std::chrono::milliseconds;

/// How closely a context switch is placed in time, as in the process that measures.
constexpr std::int64_t look_ns = 5'000'000;

/// One round's pipeline over here, from the job to the report.
class FarSide {
 public:
  explicit FarSide(ProducerJob job)
      : job_(std::move(job)), arrivals_(job_.arrivals), line_(make_line(job_.line, watch_)) {}
  ~FarSide() { stop(); }
  FarSide(const FarSide&) = delete;
  FarSide& operator=(const FarSide&) = delete;

  /// Until the other end has nothing more to say. Throws what the pipeline says.
  ProducerReport run(Lines& lines) {
    watch_.look_at_threads();
    link();
    play(lines);
    while (!lines.ended()) {
      const Ptr<GstMessage> message(gst_bus_timed_pop_filtered(line_.bus.get(), look_ns, GST_MESSAGE_ERROR));
      watch_.look_at_threads();
      if (message) throw std::runtime_error(error_of(message.get()));
      static_cast<void>(lines.receive(milliseconds{0}));
    }
    ProducerReport report;
    if (counts_) report.cpu_ns = cpu_.of_others_ns() - cpu_began_ns_;
    stop();
    report.sink = stats_;
    report.switches = watch_.switches();
    report.events = watch_.take();
    return report;
  }

 private:
  [[nodiscard]] Ptr<GstElement> sink() const {
    Ptr<GstElement> found(gst_bin_get_by_name(GST_BIN(line_.pipeline.get()), "latency-sink"));
    if (!found) throw std::runtime_error("{sink} is not in the pipeline that the line makes");
    return found;
  }
  void begin(std::size_t number) {
    arrivals_->entered = number + 1;
    if (number != job_.warmup) return;
    cpu_began_ns_ = cpu_.of_others_ns();
    counts_ = true;
  }
  void link() {
    const auto sink = this->sink();
    if (!job_.plan.caps.empty()) {
      ProducerOptions options{.plan = job_.plan, .arrivals = &*arrivals_};
      options.before_frame = [this](std::size_t number) { begin(number); };
      producer_.emplace(line_.pipeline.get(), sink.get(), std::move(options));
      return;
    }
    if (job_.held) held_.emplace(sink.get(), job_.plan.in_flight, job_.plan.spin, &*arrivals_);
    const Ptr<GstPad> pad(gst_element_get_static_pad(sink.get(), "sink"));
    gst_pad_add_probe(
        pad.get(), GST_PAD_PROBE_TYPE_BUFFER,
        [](GstPad*, GstPadProbeInfo*, gpointer user) {
          auto& self = *static_cast<FarSide*>(user);
          self.begin(self.arrivals_->entered);
          return GST_PAD_PROBE_OK;
        },
        this, nullptr);
  }
  void play(Lines& lines) {
    const GstStateChangeReturn paused = gst_element_set_state(line_.pipeline.get(), GST_STATE_PAUSED);
    // Before there is a frame: the thread that counts it knows by then whether it was due.
    if (paused != GST_STATE_CHANGE_FAILURE) {
      lines.send({{"plays", true}, {"live", paused == GST_STATE_CHANGE_NO_PREROLL}});
    }
    if (paused == GST_STATE_CHANGE_FAILURE ||
        gst_element_set_state(line_.pipeline.get(), GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) {
      const Ptr<GstMessage> message(gst_bus_pop_filtered(line_.bus.get(), GST_MESSAGE_ERROR));
      throw std::runtime_error(message ? error_of(message.get()) : "the pipeline does not start");
    }
    if (producer_) producer_->start();
  }
  void stop() {
    if (!line_.pipeline) return;
    if (const Ptr<GstElement> found(gst_bin_get_by_name(GST_BIN(line_.pipeline.get()), "latency-sink")); found) {
      stats_ = stats_of(found.get());
    }
    if (producer_) producer_->gate().stop();
    if (held_) held_->gate().stop();
    gst_element_set_state(line_.pipeline.get(), GST_STATE_NULL);
    if (producer_) producer_->stop();
    gst_bus_set_sync_handler(line_.bus.get(), nullptr, nullptr, nullptr);
    producer_.reset();
    line_.pipeline.reset();
  }

  const ProducerJob job_;
  const SharedArrivals arrivals_;
  Watch watch_;
  const CpuTime cpu_;
  Line line_;
  std::optional<Producer> producer_;
  std::optional<HeldUpstream> held_;
  std::atomic<std::int64_t> cpu_began_ns_{0};
  std::atomic<bool> counts_{false};
  SinkStats stats_;
};

}  // namespace

int run_as_producer() {
  // Ctrl-C reaches both, as does what ends a group of processes; the one that measures says when it is over.
  sigset_t ignored;
  sigemptyset(&ignored);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::signal(signal, SIG_IGN);
    sigaddset(&ignored, signal);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &ignored, nullptr);
  // What this process may start has no part in the socket: it would outlive us.
  Lines lines(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC); nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ProducerJob job;
  while (job.line.empty()) {
    if (const auto line = lines.receive(std::chrono::hours(1))) job = line->get<ProducerJob>();
    if (lines.ended()) return 2;
  }
  const std::string folder = job.socket_folder;
  int status = 0;
  try {
    gst_init(nullptr, nullptr);
    FarSide side(std::move(job));
    lines.send({{"report", side.run(lines)}});
  } catch (const std::exception& error) {
    lines.send({{"error", error.what()}});
    status = 1;
  }
  std::error_code none;
  std::filesystem::remove_all(folder, none);
  return status;
}

}  // namespace latency
