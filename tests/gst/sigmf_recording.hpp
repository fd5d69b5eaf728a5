// SPDX-License-Identifier: MIT
// A SigMF recording that a test makes, and what comes of it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline.hpp"
#include "temporary_folder.hpp"

namespace gpumap::gst::test {

inline Data part(const Data& data, std::size_t begin, std::size_t end) {
  return {data.begin() + static_cast<std::ptrdiff_t>(begin), data.begin() + static_cast<std::ptrdiff_t>(end)};
}

inline Data joined(const std::vector<Sample>& samples) {
  Data all;
  for (const Sample& sample : samples) {
    const Data data = data_of(gst_sample_get_buffer(sample.get()));
    all.insert(all.end(), data.begin(), data.end());
  }
  return all;
}

inline std::string caps_of(const Sample& sample) {
  const Ptr<gchar> text(gst_caps_to_string(gst_sample_get_caps(sample.get())));
  return text.get();
}

inline GstBuffer* buffer_of(const Sample& sample) {
  return gst_sample_get_buffer(sample.get());
}

class Sigmf : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  void write(const std::string& name, const Data& data) const {
    std::ofstream(path(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  }
  [[nodiscard]] Data file(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
  }
  /// x.sigmf-meta of these fields, and x.sigmf-data.
  void record(const std::string& global, const Data& data, const std::string& captures = R"({"core:sample_start":0})",
              const std::string& annotations = "") const {
    describe(global, captures, annotations);
    write("x.sigmf-data", data);
  }
  void describe(const std::string& global, const std::string& captures, const std::string& annotations = "") const {
    std::ofstream(path("x.sigmf-meta")) << fmt::format(
        R"({{"global":{{"core:version":"1.2.0",{}}},"captures":[{}],"annotations":[{}]}})", global, captures,
        annotations);
  }
  [[nodiscard]] std::string source(const std::string& options = "") const {
    return fmt::format("sigmfsrc name=src location={} {}", path("x.sigmf-meta"), options);
  }
  /// All that comes of `description`, which ends with appsink name=out.
  [[nodiscard]] std::vector<Sample> play(const std::string& description) {
    pipeline_.emplace(on_new_channel(description));
    std::vector<Sample> samples;
    if (pipeline_->set_state(GST_STATE_PLAYING) != GST_STATE_CHANGE_FAILURE) {
      while (Sample sample = pull(pipeline_->appsink())) samples.push_back(std::move(sample));
    }
    outcome_ = pipeline_->wait();
    return samples;
  }
  [[nodiscard]] std::vector<Sample> play_plain(const std::string& options = "") {
    return play(source(options) + " ! appsink name=out sync=false");
  }

  TemporaryFolder folder_;
  std::optional<Pipeline> pipeline_;
  std::string outcome_;
};

inline constexpr const char* cf32 = R"("core:datatype":"cf32_le","core:sample_rate":1000000)";

}  // namespace gpumap::gst::test
