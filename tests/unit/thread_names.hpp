// SPDX-License-Identifier: MIT
#pragma once

#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <vector>

namespace gpumap::test {

/// What top shows of this process's threads.
[[nodiscard]] inline std::set<std::string> thread_names() {
  std::set<std::string> names;
  std::error_code ended;  // a thread may end meanwhile
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    std::string name;
    std::ifstream file(task.path() / "comm");
    if (std::getline(file, name)) names.insert(name);
  }
  return names;
}

/// How a thread is scheduled, and has been.
struct ThreadState {
  std::string name, cpus;  ///< as in /proc
  int policy = -1, priority = -1;
  long sleeps = 0;  ///< voluntary context switches
};
[[nodiscard]] inline std::vector<ThreadState> thread_states() {
  std::vector<ThreadState> states;
  std::error_code ended;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    ThreadState state;
    std::ifstream comm(task.path() / "comm");
    if (!std::getline(comm, state.name)) continue;
    std::ifstream status(task.path() / "status");
    const std::string cpus = "Cpus_allowed_list:\t", sleeps = "voluntary_ctxt_switches:\t";
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(cpus, 0) == 0) state.cpus = line.substr(cpus.size());
      if (line.rfind(sleeps, 0) == 0) state.sleeps = std::stol(line.substr(sleeps.size()));
    }
    const pid_t thread = std::stoi(task.path().filename());
    sched_param param{};
    state.policy = sched_getscheduler(thread) & ~SCHED_RESET_ON_FORK;
    if (sched_getparam(thread, &param) == 0) state.priority = param.sched_priority;
    if (!state.cpus.empty()) states.push_back(state);
  }
  return states;
}
/// Of the threads of that name.
[[nodiscard]] inline std::vector<ThreadState> thread_states(const std::string& name) {
  std::vector<ThreadState> states = thread_states();
  std::erase_if(states, [&](const ThreadState& state) { return state.name != name; });
  return states;
}

/// RAII: this process has no right to real-time priorities.
class NoRealTime {
 public:
  NoRealTime() {
    getrlimit(RLIMIT_RTPRIO, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_RTPRIO, &none);
    constexpr uid_t nobody = 65534;
    was_root_ = geteuid() == 0 && seteuid(nobody) == 0;
  }
  ~NoRealTime() {
    if (was_root_ && seteuid(0) != 0) std::abort();
    setrlimit(RLIMIT_RTPRIO, &before_);
  }
  NoRealTime(const NoRealTime&) = delete;
  NoRealTime& operator=(const NoRealTime&) = delete;

 private:
  rlimit before_{};
  bool was_root_ = false;
};

}  // namespace gpumap::test
