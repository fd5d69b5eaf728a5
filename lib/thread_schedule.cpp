// SPDX-License-Identifier: MIT
#include "gpumap/thread_schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "copy/helpers.hpp"
#include "gpumap/printable.hpp"

namespace gpumap {
namespace {

using copy::CpuSet;
using Cpus = std::vector<unsigned>;

/// Of the thread that started it, or of a StartedWith.
thread_local const ThreadSchedule* of_started = nullptr;

/// Threads of drivers and compilers that this one starts do not have its priority.
constexpr int real_time = SCHED_FIFO | SCHED_RESET_ON_FORK;

bool set_policy(int policy, int priority) noexcept {
  sched_param param{};
  param.sched_priority = priority;
  return sched_setscheduler(0, policy, &param) == 0;
}

bool set_cpus(const CpuSet& cpus) noexcept {
  return sched_setaffinity(0, cpus.bytes(), cpus.native()) == 0;
}

CpuSet set_of(const Cpus& cpus) {
  CpuSet set;
  for (const unsigned cpu : cpus) set.add(cpu);
  return set;
}

Cpus difference(const Cpus& all, const Cpus& without) {
  Cpus left;
  std::set_difference(all.begin(), all.end(), without.begin(), without.end(), std::back_inserter(left));
  return left;
}

/// "2-3,5"
std::string list_of(const Cpus& cpus) {
  std::vector<std::string> parts;
  for (auto at = cpus.begin(); at != cpus.end();) {
    auto last = at;
    while (std::next(last) != cpus.end() && *std::next(last) == *last + 1) ++last;
    parts.push_back(last == at ? std::to_string(*at) : fmt::format("{}-{}", *at, *last));
    at = std::next(last);
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

FiguredError no_priority(unsigned asked, int cause) {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_RTPRIO, &limit) == 0;
  const auto most = std::min<rlim_t>(known ? limit.rlim_cur : 0, max_thread_priority);
  return FiguredError(
      Error(ErrorCode::io,
            fmt::format("real-time priority {} (SCHED_FIFO) is refused: {}; ulimit -r allows {}", asked,
                        std::strerror(cause), most),
            fmt::format("\"YOUR-USER - rtprio {}\" in a file of /etc/security/limits.d and a new login, LimitRTPRIO= "
                        "of a service, --ulimit rtprio={} of a container, or CAP_SYS_NICE; until then threads have "
                        "the priority that they had",
                        asked, asked)),
      {{"thread-priority", asked}, {"most-priority", std::uint64_t{most}}});
}

FiguredError no_cpus(ErrorCode code, const Cpus& missing, const Cpus& asked, const Cpus& there, const char* why) {
  const Cpus left = difference(asked, difference(asked, there));
  return FiguredError(Error(code, fmt::format("CPU {} {}, {} are", list_of(missing), why, list_of(there)),
                            fmt::format("name some of those; until then threads run on {}",
                                        left.empty() ? "all that they may" : list_of(left))),
                      {{"thread-cpus", list_of(asked)}, {"allowed-cpus", list_of(there)}});
}

/// In a thread of its own.
std::vector<FiguredError> try_out(const ThreadSchedule& wanted) {
  std::vector<FiguredError> refused;
  if (wanted.priority != 0 && !set_policy(real_time, static_cast<int>(wanted.priority))) {
    refused.push_back(no_priority(wanted.priority, errno));
  }
  if (wanted.cpus.empty()) return refused;
  CpuSet all;
  for (unsigned cpu = 0; cpu < CpuSet::max_cpus; ++cpu) all.add(cpu);
  static_cast<void>(set_cpus(all));  // as many as its cpuset has
  const Cpus allowed = copy::allowed_cpus().numbers();
  std::string line;
  std::getline(std::ifstream("/sys/devices/system/cpu/online"), line);
  Cpus online = copy::parse_cpu_list(line).numbers();
  if (online.empty()) online = allowed;  // no /sys
  const Cpus absent = difference(wanted.cpus, online);
  const Cpus forbidden = difference(difference(wanted.cpus, absent), allowed);
  if (!absent.empty()) {
    refused.push_back(no_cpus(ErrorCode::invalid, absent, wanted.cpus, allowed, "is not in this machine, or is off"));
  }
  if (!forbidden.empty()) {
    refused.push_back(no_cpus(ErrorCode::io, forbidden, wanted.cpus, allowed, "is not in the cpuset of this process"));
  }
  return refused;
}

}  // namespace

std::vector<unsigned> cpus_of(std::string_view list) {
  CpuSet cpus;
  const char* at = list.data();
  const char* const end = at + list.size();
  const auto skip = [&] { at = std::find_if(at, end, [](char c) { return c != ' '; }); };
  const auto number = [&](unsigned& value) {
    skip();
    const auto read = std::from_chars(at, end, value);
    at = read.ptr;
    skip();
    return read.ec == std::errc() && value < CpuSet::max_cpus;
  };
  skip();
  while (at != end) {
    unsigned first = 0;
    bool good = number(first);
    unsigned last = first;
    if (good && at != end && *at == '-') {
      ++at;
      good = number(last) && last >= first;
    }
    if (good && at != end) good = *at++ == ',' && at != end;
    if (!good) {
      throw Error(ErrorCode::invalid, fmt::format("\"{}\" is no list of CPUs", printable(list)),
                  "give numbers and ranges with commas between them, as in 2-3,5");
    }
    for (unsigned cpu = first; cpu <= last; ++cpu) cpus.add(cpu);
  }
  return cpus.numbers();
}

StartedWith::StartedWith(const ThreadSchedule& schedule) noexcept : before_(std::exchange(of_started, &schedule)) {}

StartedWith::~StartedWith() {
  of_started = before_;
}

ThreadSchedule schedule_of_started() {
  return of_started != nullptr ? *of_started : ThreadSchedule();
}

Scheduled::Scheduled(ThreadSchedule schedule) noexcept : wanted_(std::move(schedule)), started_(wanted_) {
  const ThreadSchedule& wanted = wanted_;
  if (!wanted.cpus.empty()) {
    try {
      cpus_ = copy::allowed_cpus().numbers();
      static_cast<void>(set_cpus(set_of(wanted.cpus)));
    } catch (const std::bad_alloc&) {
      cpus_.clear();
    }
  }
  if (wanted.priority == 0) return;
  sched_param before{};
  policy_ = sched_getscheduler(0);
  raised_ = policy_ >= 0 && sched_getparam(0, &before) == 0 && set_policy(real_time, static_cast<int>(wanted.priority));
  priority_ = before.sched_priority;
}

Scheduled::~Scheduled() {
  // Without a privilege the flag stays where it was set once.
  if (raised_ && !set_policy(policy_, priority_)) {
    static_cast<void>(set_policy(policy_ | SCHED_RESET_ON_FORK, priority_));
  }
  if (cpus_.empty()) return;
  try {
    static_cast<void>(set_cpus(set_of(cpus_)));
  } catch (const std::bad_alloc&) {
    // It stays where it is.
  }
}

std::vector<FiguredError> refused_to_threads(const ThreadSchedule& wanted) {
  std::vector<FiguredError> refused;
  if (!wanted.changes()) return refused;
  std::thread tries = start_thread("gpumap-schedule", "trying a priority and CPUs", [&] { refused = try_out(wanted); });
  // Ends: the thread waits for nothing.
  tries.join();
  return refused;
}

}  // namespace gpumap
