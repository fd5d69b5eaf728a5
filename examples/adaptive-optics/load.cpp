// SPDX-License-Identifier: MIT
#include "load.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace adaptive_optics {

namespace {

[[noreturn]] void keep_busy(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // it ended before that was set
  // Ctrl-C is for the parent, which ends its children when it has told its figures.
  std::signal(SIGINT, SIG_IGN);
  static std::array<volatile std::uint32_t, std::size_t{1} << 20U> memory;  // 4 MiB: more than a core's own caches hold
  for (std::size_t i = 0;; i += 16) memory[i % memory.size()] = memory[i % memory.size()] + 1;
}

}  // namespace

Load::Load(unsigned processes) {
  const pid_t parent = getpid();
  for (unsigned i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child == 0) keep_busy(parent);
    if (child < 0) {
      const int error = errno;
      end();
      throw std::runtime_error(
          fmt::format("--load {}: the system refuses process {}: {}", processes, i + 1, std::strerror(error)));
    }
    children_.push_back(child);
  }
}

Load::~Load() {
  end();
}

void Load::end() noexcept {
  for (const pid_t child : children_) kill(child, SIGKILL);
  for (const pid_t child : children_) waitpid(child, nullptr, 0);
  children_.clear();
}

}  // namespace adaptive_optics
