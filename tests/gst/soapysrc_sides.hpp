// SPDX-License-Identifier: MIT
// A soapysrc with a radio that is made up.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "made_up/made_up_radio.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {

class SoapySrc : public testing::Test {
 protected:
  void SetUp() override { radio_.reset(); }
  void TearDown() override { radio_.reset(); }

  MadeUpRadio& radio_ = made_up_radio();
};

inline std::string source(const std::string& arguments, const std::string& options = "") {
  return "soapysrc name=radio device=\"driver=made-up" + arguments + "\" " + options + " ";
}

inline std::string caps_of(GstSample* sample) {
  const Ptr<gchar> text(gst_caps_to_string(gst_sample_get_caps(sample)));
  return text.get();
}

inline Data expected_samples(const std::string& format, std::uint64_t first, std::size_t count,
                             const std::vector<std::size_t>& channels = {0}) {
  Data made;
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::size_t channel : channels) append_sample(format, first + i, channel, made);
  }
  return made;
}

inline bool is_discont(GstSample* sample) {
  return GST_BUFFER_FLAG_IS_SET(gst_sample_get_buffer(sample), GST_BUFFER_FLAG_DISCONT);
}

inline std::vector<Sample> pull_all(Pipeline& pipeline) {
  std::vector<Sample> all;
  while (Sample sample = pull(pipeline.appsink())) all.push_back(std::move(sample));
  EXPECT_EQ(pipeline.wait(), "eos");
  return all;
}

inline double number_stat(GstElement* element, const char* field) {
  GstStructure* stats = nullptr;
  g_object_get(element, "stats", &stats, nullptr);
  const Ptr<GstStructure> owned(stats);
  double value = -1.0;
  gst_structure_get_double(stats, field, &value);
  return value;
}

}  // namespace gpumap::gst::test
