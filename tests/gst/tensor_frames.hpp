// SPDX-License-Identifier: MIT
// What tests of GStreamer's own metas of tensors and results begin with.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "gst/analytics/analytics_metas.hpp"
#include "kernel_file.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {

class Tensors : public testing::Test {
 protected:
  void SetUp() override {
    const AnalyticsLibrary& library = AnalyticsLibrary::get();
    if (!library.tensors_problem.empty()) GTEST_SKIP() << library.tensors_problem;
  }
};

inline constexpr int width = 37, height = 23;
inline const std::string gray = "video/x-raw,format=GRAY8,width=37,height=23,framerate=30/1";

}  // namespace gpumap::gst::test
