// SPDX-License-Identifier: MIT
// Asking one server for its report.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <thread>

#include "gpumap/link_report.hpp"
#include "link_helpers.hpp"

namespace gpumap::test {

inline LinkSight observe(const std::string& path, std::chrono::nanoseconds patience_here = patience) {
  return observe_links(std::span(&path, 1), Clock::now() + patience_here).at(0);
}
inline LinkReport report_of(const std::string& path) {
  LinkSight sight;
  comes_true([&] {
    const Deadline began = Clock::now();
    sight = observe(path);
    // Who is late with its question, by a second, is not waited for; nor is there always room to ask.
    const bool is_crowded = sight.trouble.starts_with("too many wait");
    return sight.report || (!is_crowded && Clock::now() - began < 1s);
  });
  EXPECT_EQ(sight.trouble, "");
  return sight.report.value_or(LinkReport{});
}
/// One that is not from before this call.
inline LinkReport new_report_of(const std::string& path) {
  std::this_thread::sleep_for(15ms);
  return report_of(path);
}

}  // namespace gpumap::test
