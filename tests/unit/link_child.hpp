// SPDX-License-Identifier: MIT
// Another process of a link's test: the program link_peer, which GPUMAP_LINK_PEER names, or which lies beside the test,
// or another one that lies there.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "link_helpers.hpp"

namespace gpumap::test {

/// Killed at the latest with its owner.
class Child {
 public:
  explicit Child(const std::vector<std::string>& args, const std::string& name = "link_peer") {
    const char* named = name == "link_peer" ? std::getenv("GPUMAP_LINK_PEER") : nullptr;
    const std::string program =
        named != nullptr ? named : std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const std::string& one : args) argv.push_back(const_cast<char*>(one.c_str()));
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, program.c_str(), nullptr, nullptr, argv.data(), environ) != 0) {
      throw std::runtime_error("cannot start " + program);
    }
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// It has not ended by itself.
  [[nodiscard]] bool runs() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }
  void signal(int number) const { kill(pid_, number); }
  /// "exit 3", "signal 9", or "runs" where it does not end.
  std::string wait() {
    int status = 0;
    const bool ended = comes_true([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
    if (!ended) return "runs";
    pid_ = -1;
    return WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status))
                             : "signal " + std::to_string(WTERMSIG(status));
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace gpumap::test
