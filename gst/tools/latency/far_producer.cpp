// SPDX-License-Identifier: MIT
#include "gst/tools/latency/far_producer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gst/gst.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

extern char** environ;

namespace latency {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// gpumapsink lets clients finish within six at most.
constexpr std::chrono::seconds patience_at_end{10};

/// Where sockets' paths have room for it, else in /tmp.
std::string make_folder() {
  constexpr std::size_t longest = 80;  // of 107, with what follows
  std::error_code none;
  const std::string wanted = std::filesystem::temp_directory_path(none).string();
  std::string name = (none || wanted.size() > longest ? "/tmp" : wanted) + "/gpumap-latency-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error(
        fmt::format("cannot make the folder {} for the socket of --processes 2: {}: set TMPDIR to a folder that can be "
                    "written, with a path of at most {} bytes",
                    name, std::strerror(errno), longest));
  }
  return name;
}

/// How closely a context switch is placed in time, as in the process that measures.
constexpr std::int64_t look_ns = 5'000'000;

/// One round's pipeline over here, from the job to the report.
class FarSide {
 public:
  explicit FarSide(ProducerJob job) : job_(std::move(job)), arrivals_(job_.arrivals), line_(job_.line, watch_) {}
  ~FarSide() { stop(); }
  FarSide(const FarSide&) = delete;
  FarSide& operator=(const FarSide&) = delete;

  /// Until the other end has nothing more to say. Throws what the pipeline says.
  ProducerReport run(Lines& lines) {
    watch_.look_at_threads();
    link();
    play(lines);
    while (!lines.ended()) {
      const Ptr<GstMessage> message(gst_bus_timed_pop_filtered(line_.bus(), look_ns, GST_MESSAGE_ERROR));
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
  void begin(std::size_t number) {
    arrivals_->entered = number + 1;
    if (number != job_.warmup) return;
    cpu_began_ns_ = cpu_.of_others_ns();
    counts_ = true;
  }
  void link() {
    const auto sink = line_.element("latency-sink");
    if (!sink) throw std::runtime_error("{sink} is not in the pipeline that the line makes");
    if (!job_.plan.caps.empty()) {
      ProducerOptions options{.plan = job_.plan, .arrivals = &*arrivals_};
      options.before_frame = [this](std::size_t number) { begin(number); };
      producer_.emplace(line_.pipeline(), sink.get(), std::move(options));
      return;
    }
    if (job_.held) held_.emplace(sink.get(), job_.plan.in_flight, job_.plan.spin, &*arrivals_);
    Line::probe(
        sink.get(), "sink",
        [](GstPad*, GstPadProbeInfo*, gpointer user) {
          auto& self = *static_cast<FarSide*>(user);
          self.begin(self.arrivals_->entered);
          return GST_PAD_PROBE_OK;
        },
        this);
  }
  void play(Lines& lines) {
    // Told before there is a frame: the thread that counts it knows by then whether it was due.
    const bool live = line_.pause();
    lines.send({{"plays", true}, {"live", live}});
    line_.play();
    if (producer_) producer_->start();
  }
  void stop() {
    if (stopped_) return;
    stopped_ = true;
    stats_ = line_.sink_stats();
    if (producer_) producer_->gate().stop();
    if (held_) held_->gate().stop();
    line_.stop();
    producer_.reset();
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
  bool stopped_ = false;
};

}  // namespace

Lines::~Lines() {
  ::close(socket_);
}

void Lines::send(const nlohmann::json& line) const {
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t sent = ::send(socket_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) return;
    if (sent > 0) at += static_cast<std::size_t>(sent);
  }
}

void Lines::finish() const {
  ::shutdown(socket_, SHUT_WR);
}

std::optional<nlohmann::json> Lines::receive(milliseconds patience) {
  const auto until = steady_clock::now() + patience;
  for (;;) {
    if (const std::size_t end = text_.find('\n'); end != std::string::npos) {
      const std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      return nlohmann::json::parse(line);
    }
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
    pollfd polled{socket_, POLLIN, 0};
    const int ready = ended_ ? 0 : ::poll(&polled, 1, static_cast<int>(std::max(left, milliseconds{0}).count()));
    if (ready <= 0) return std::nullopt;  // a signal ends the wait, too: the caller looks why
    std::array<char, 65536> some;
    const ssize_t got = ::recv(socket_, some.data(), some.size(), MSG_DONTWAIT);
    if (got > 0) {
      text_.append(some.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      ended_ = true;
    }
  }
}

FarProducer::FarProducer(bool spin) : folder_(make_folder()), gate_(spin, &*arrivals_) {}

FarProducer::~FarProducer() {
  if (running_) {
    ::kill(pid_, SIGKILL);
    static_cast<void>(reap(true));
  }
  std::error_code none;
  std::filesystem::remove_all(folder_, none);
}

void FarProducer::start(ProducerJob job) {
  job.socket_folder = folder_;
  job.arrivals = arrivals_.fd();
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw std::runtime_error(fmt::format("no socket for the producer's process: {}", std::strerror(errno)));
  }
  lines_.emplace(ends[0]);
  // What drivers print is no part of the report on standard output.
  posix_spawn_file_actions_t descriptors;
  ::posix_spawn_file_actions_init(&descriptors);
  ::posix_spawn_file_actions_adddup2(&descriptors, ends[1], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&descriptors, STDERR_FILENO, STDOUT_FILENO);
  std::string name = "gpumap-latency";
  std::string option = "--as-producer";
  std::array<char*, 3> arguments{name.data(), option.data(), nullptr};
  // What ends a group of processes finds it with these blocked until it ignores them (run_as_producer()).
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&blocked, signal);
  ::posix_spawnattr_setsigmask(&attributes, &blocked);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int trouble = ::posix_spawn(&pid_, "/proc/self/exe", &descriptors, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&descriptors);
  ::close(ends[1]);
  if (trouble != 0) {
    throw std::runtime_error(fmt::format("cannot start the producer's process: {}", std::strerror(trouble)));
  }
  running_ = true;
  lines_->send(job);
}

/// False: it still runs.
bool FarProducer::reap(bool wait) {
  if (!running_) return true;
  pid_t done = 0;
  do done = ::waitpid(pid_, &status_, wait ? 0 : WNOHANG);
  while (done < 0 && errno == EINTR);
  running_ = done == 0;
  return !running_;
}

void FarProducer::fail() {
  // It has closed its socket: it is dead, or will be once the machine has come to it.
  for (int turn = 0; turn < 1000 && !reap(false); ++turn) ::usleep(10'000);
  const std::string how = running_               ? "closed its connection"
                          : WIFSIGNALED(status_) ? fmt::format("was killed by signal {} ({})", WTERMSIG(status_),
                                                               ::strsignal(WTERMSIG(status_)))
                                                 : fmt::format("ended with status {}", WEXITSTATUS(status_));
  throw std::runtime_error(fmt::format(
      "the producer's process {} {} after {} frames: what it wrote to standard error, and `dmesg` where the "
      "system ended it, say more",
      pid_, how, entered()));
}

void FarProducer::take(const nlohmann::json& line) {
  if (line.contains("error")) {
    throw std::runtime_error(fmt::format("the producer's process: {}", line.at("error").get<std::string>()));
  }
  if (line.contains("plays")) {
    plays_ = true;
    live_ = line.at("live");
  } else if (line.contains("report")) {
    report_ = line.at("report").get<ProducerReport>();
  }
}

void FarProducer::look(milliseconds patience) {
  if (const auto line = lines_->receive(patience)) {
    take(*line);
  } else if (lines_->ended()) {
    fail();
  }
}

std::optional<ProducerReport> FarProducer::end() {
  if (!lines_) return std::nullopt;
  lines_->finish();
  const auto until = steady_clock::now() + patience_at_end;
  while (!lines_->ended() && steady_clock::now() < until) {
    try {
      if (const auto line = lines_->receive(milliseconds(100))) take(*line);
    } catch (const std::exception&) {
      // Why the round failed is known by now.
    }
  }
  while (!reap(false) && steady_clock::now() < until) ::usleep(1'000);
  if (running_) {
    ::kill(pid_, SIGKILL);
    static_cast<void>(reap(true));
  }
  return std::move(report_);
}

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
