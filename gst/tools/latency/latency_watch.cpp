// SPDX-License-Identifier: MIT
#include "gst/tools/latency/latency_watch.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace latency {
namespace {

/// What stands behind `key` on its line of a status file.
std::string_view field(std::string_view status, std::string_view key) {
  const std::size_t at = status.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view value = status.substr(at + key.size());
  value = value.substr(0, value.find('\n'));
  const std::size_t begin = value.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view{} : value.substr(begin);
}

std::int64_t clock_ns(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Arithmetic and memory traffic, until somebody kills it.
[[noreturn]] void keep_busy(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // it ended before that was set
  std::signal(SIGINT, SIG_IGN);
  static std::array<volatile std::uint64_t, std::size_t{1} << 19> memory;  // 4 MiB: more than a core's own caches hold
  for (std::uint64_t i = 0;; ++i) memory[i * 8 % memory.size()] = memory[i * 8 % memory.size()] + i;
}

}  // namespace

Watch::~Watch() {
  for (const auto& [id, thread] : threads_) ::close(thread.status);
}

void Watch::add(Event event) {
  const std::lock_guard lock(mutex_);
  if (events_.size() < max_events) {
    events_.push_back(std::move(event));
    return;
  }
  events_[next_] = std::move(event);
  next_ = (next_ + 1) % max_events;
}

void Watch::note(Event::Kind kind, std::string text) {
  const std::int64_t now = gpumap::monotonic_ns();
  add({.kind = kind, .since_ns = now, .at_ns = now, .text = std::move(text)});
}

void Watch::find_threads() {
  for (auto& [id, thread] : threads_) thread.seen = false;
  DIR* folder = ::opendir("/proc/self/task");
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    const int id = std::atoi(entry->d_name);
    if (id <= 0 || id == ::gettid()) continue;
    const auto [at, found] = threads_.try_emplace(id);
    Thread& thread = at->second;
    thread.seen = true;
    if (found) thread.looked_ns = last_search_ns_;
    if (thread.status < 0) {
      thread.status = ::open(fmt::format("/proc/self/task/{}/status", id).c_str(), O_RDONLY | O_CLOEXEC);
    }
  }
  ::closedir(folder);
  std::erase_if(threads_, [](const auto& one) {
    if (one.second.seen && one.second.status >= 0) return false;
    if (one.second.status >= 0) ::close(one.second.status);
    return true;
  });
}

void Watch::look_at_threads() {
  constexpr unsigned looks_between_searches = 10;
  const std::int64_t now = gpumap::monotonic_ns();
  if (looks_++ % looks_between_searches == 0) {
    find_threads();
    last_search_ns_ = now;
  }
  for (auto& [id, thread] : threads_) {
    std::array<char, 4096> text;
    const ssize_t length = ::pread(thread.status, text.data(), text.size(), 0);
    if (length <= 0) continue;  // it has ended; the next search drops it
    const std::string_view status(text.data(), static_cast<std::size_t>(length));
    const std::string_view number = field(status, "nonvoluntary_ctxt_switches:");
    std::uint64_t switches = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), switches).ec != std::errc{}) continue;
    const std::uint64_t more = switches - std::exchange(thread.switches, switches);
    const std::int64_t since_ns = std::exchange(thread.looked_ns, now);
    if (since_ns == 0 || more == 0) continue;
    switches_ += more;
    add({.kind = Event::Kind::context_switch,
         .since_ns = since_ns,
         .at_ns = now,
         .text = fmt::format("{} was taken off its CPU{}", field(status, "Name:"),
                             more == 1 ? "" : fmt::format(" {} times", more))});
  }
}

std::vector<Event> Watch::take() {
  const std::lock_guard lock(mutex_);
  next_ = 0;
  return std::exchange(events_, {});
}

Load::Load(unsigned processes) {
  const pid_t parent = ::getpid();
  for (unsigned i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    if (child == 0) keep_busy(parent);
    if (child < 0) throw std::runtime_error("cannot start the processes of --load");
    children_.push_back(child);
  }
}

Load::~Load() {
  for (const int child : children_) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

CpuTime::CpuTime() {
  if (pthread_getcpuclockid(pthread_self(), &own_) != 0) throw std::runtime_error("this thread has no clock");
}

std::int64_t CpuTime::of_others_ns() const noexcept {
  return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - clock_ns(own_);
}

}  // namespace latency
