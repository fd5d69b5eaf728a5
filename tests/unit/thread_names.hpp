// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

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

}  // namespace gpumap::test
