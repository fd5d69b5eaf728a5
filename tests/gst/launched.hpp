// SPDX-License-Identifier: MIT
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

#include "pipeline.hpp"
#include "test_helpers.hpp"

namespace gpumap::gst::test {

/// gst-launch-1.0 with this build's plugin. Killed at the latest with its owner.
class Launched {
 public:
  explicit Launched(const std::string& description) {
    const char* plugin = std::getenv("GPUMAP_PLUGIN");
    if (plugin == nullptr) throw std::runtime_error("GPUMAP_PLUGIN does not name the plugin");
    const std::string command =
        "exec env G_DEBUG= GST_PLUGIN_PATH=" + std::filesystem::path(plugin).parent_path().string() +
        " gst-launch-1.0 -q " + description;
    std::vector<char*> argv{const_cast<char*>("sh"), const_cast<char*>("-c"), const_cast<char*>(command.c_str()),
                            nullptr};
    if (posix_spawnp(&pid_, "sh", nullptr, nullptr, argv.data(), environ) != 0) throw std::runtime_error("no sh");
  }
  ~Launched() { kill_it(); }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;
  void kill_it() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void stop_it() const {
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  void continue_it() const { kill(pid_, SIGCONT); }
  /// It ended by itself, and well.
  [[nodiscard]] bool succeeded() {
    int status = -1;
    if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return false;
    pid_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace gpumap::gst::test
