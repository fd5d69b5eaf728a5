// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <vector>

namespace adaptive_optics {

/// Processes that keep a CPU and its caches busy each. They end with this object, and with its process however that
/// ends. To be made before there are threads. Throws std::runtime_error where the system refuses one.
class Load {
 public:
  explicit Load(unsigned processes);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  void end() noexcept;

  std::vector<pid_t> children_;
};

}  // namespace adaptive_optics
