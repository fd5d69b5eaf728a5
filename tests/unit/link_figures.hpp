// SPDX-License-Identifier: MIT
// What tests of a link whose processes die count and time.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "gpumap/link.hpp"
#include "test_helpers.hpp"

namespace gpumap::test {

using namespace std::chrono_literals;

/// Of what takes no time where nothing else runs. Much less than the 20 s after which a test gives up, and more than
/// some stops of a busy machine together.
inline constexpr std::chrono::nanoseconds hangs = 15s;

inline unsigned number_from(const char* name, unsigned otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? static_cast<unsigned>(std::stoul(text)) : otherwise;
}

class Times {
 public:
  void add(std::chrono::nanoseconds time) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::max(time, std::chrono::nanoseconds(0)));
  }
  [[nodiscard]] bool any() {
    const std::lock_guard lock(mutex_);
    return !all_.empty();
  }
  void print_and_check(const char* what, std::chrono::nanoseconds limit = hangs) {
    const std::lock_guard lock(mutex_);
    ASSERT_FALSE(all_.empty());
    std::sort(all_.begin(), all_.end());
    std::printf("%s, %zu times:", what, all_.size());
    std::chrono::nanoseconds from{0};
    for (const auto to : {1ms, 2ms, 5ms, 10ms, 20ms, 50ms, 100ms, 1000ms, 1000000ms}) {
      const auto count = std::count_if(all_.begin(), all_.end(), [&](auto one) { return one >= from && one < to; });
      if (to > 1000ms) {
        std::printf("  longer %ld;", count);
      } else {
        std::printf("  <%ld ms %ld,", static_cast<long>(to.count()), count);
      }
      from = to;
    }
    const auto ms = [](std::chrono::nanoseconds one) { return static_cast<double>(one.count()) / 1e6; };
    std::printf(" P50 %.2f ms, P99 %.2f ms, longest %.2f ms\n", ms(all_[all_.size() / 2]),
                ms(all_[all_.size() * 99 / 100]), ms(all_.back()));
    EXPECT_LT(all_.back(), limit) << what;
  }

 private:
  std::mutex mutex_;
  std::vector<std::chrono::nanoseconds> all_;
};

inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}
inline std::size_t mapped_memfds() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:gpumap-") != std::string::npos ? 1 : 0;
  return count;
}

inline std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Resident memory that grows with every death: compared with what there was after the first quarter of them, in which
/// the heap of each thread and the pages of each slot were touched. What a heap keeps in pieces may come later, so some
/// growth is allowed: over ten thousand deaths that is 400 bytes for each.
class Resident {
 public:
  /// Of `all` deaths so many have been.
  void look(unsigned deaths, unsigned all) {
    if (at_first_ == 0 && deaths >= all / 4) at_first_ = resident_bytes();
  }
  void print_and_check() const {
    constexpr std::size_t allowed = 4'000'000;
    const std::size_t at_last = resident_bytes();
    std::printf("resident: %.1f MiB after a quarter, %.1f MiB at the end\n", static_cast<double>(at_first_) / 0x1p20,
                static_cast<double>(at_last) / 0x1p20);
    if (!sanitized) {
      EXPECT_LE(at_last, at_first_ + allowed);
    }
  }

 private:
  std::size_t at_first_ = 0;
};

inline bool connected(const LinkServer& server, pid_t pid) {
  const auto all = server.clients();
  return std::any_of(all.begin(), all.end(), [&](const LinkClient& one) { return one.pid == pid; });
}

}  // namespace gpumap::test
