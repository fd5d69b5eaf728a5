// SPDX-License-Identifier: MIT
#include "gst/tools/latency/far_producer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

}  // namespace

void to_json(nlohmann::json& made, const ProducerJob& job) {
  const ProducerPlan& plan = job.plan;
  made = {{"line", job.line},
          {"caps", plan.caps},
          {"frame_bytes", plan.frame_bytes},
          {"frames", plan.frames},
          {"in_place", plan.in_place},
          {"rate", plan.rate},
          {"in_flight", plan.in_flight},
          {"spin", plan.spin},
          {"held", job.held},
          {"warmup", job.warmup},
          {"socket_folder", job.socket_folder},
          {"arrivals", job.arrivals}};
}

void from_json(const nlohmann::json& made, ProducerJob& job) {
  ProducerPlan& plan = job.plan;
  made.at("line").get_to(job.line);
  made.at("caps").get_to(plan.caps);
  made.at("frame_bytes").get_to(plan.frame_bytes);
  made.at("frames").get_to(plan.frames);
  made.at("in_place").get_to(plan.in_place);
  made.at("rate").get_to(plan.rate);
  made.at("in_flight").get_to(plan.in_flight);
  made.at("spin").get_to(plan.spin);
  made.at("held").get_to(job.held);
  made.at("warmup").get_to(job.warmup);
  made.at("socket_folder").get_to(job.socket_folder);
  made.at("arrivals").get_to(job.arrivals);
}

void to_json(nlohmann::json& made, const ProducerReport& report) {
  const SinkStats& sink = report.sink;
  made = {{"zero_copy_frames", sink.zero_copy_frames},
          {"copied_frames", sink.copied_frames},
          {"waits", sink.waits},
          {"drops", sink.drops},
          {"transport", sink.transport},
          {"cpu_ns", report.cpu_ns},
          {"switches", report.switches},
          {"events", nlohmann::json::array()}};
  for (const Event& event : report.events) {
    made["events"].push_back({static_cast<unsigned>(event.kind), event.since_ns, event.at_ns, event.text});
  }
}

void from_json(const nlohmann::json& made, ProducerReport& report) {
  SinkStats& sink = report.sink;
  made.at("zero_copy_frames").get_to(sink.zero_copy_frames);
  made.at("copied_frames").get_to(sink.copied_frames);
  made.at("waits").get_to(sink.waits);
  made.at("drops").get_to(sink.drops);
  made.at("transport").get_to(sink.transport);
  made.at("cpu_ns").get_to(report.cpu_ns);
  made.at("switches").get_to(report.switches);
  for (const auto& event : made.at("events")) {
    report.events.push_back({.kind = static_cast<Event::Kind>(event.at(0).get<unsigned>()),
                             .since_ns = event.at(1),
                             .at_ns = event.at(2),
                             .text = event.at(3)});
  }
}

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
  // What drivers print is no part of the report on standard output. A descriptor that is made another's copy, or its
  // own, is open over there.
  posix_spawn_file_actions_t descriptors;
  ::posix_spawn_file_actions_init(&descriptors);
  ::posix_spawn_file_actions_adddup2(&descriptors, arrivals_.fd(), arrivals_.fd());
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

}  // namespace latency
