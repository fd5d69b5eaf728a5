// SPDX-License-Identifier: MIT
// Any bytes as the metadata of a recording, and files of any size behind it: sections lie in the file, one behind the
// other, and have whole samples.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz_gstreamer.hpp"
#include "gpumap/error.hpp"
#include "gst/radio/sigmf_metadata.hpp"

namespace {

using gpumap::gst::fuzz::expect;

void check(const gpumap::gst::SigmfMetadata& metadata, std::uint64_t bytes) {
  const auto layout = gpumap::gst::lay_out(metadata, bytes, "fuzz");
  const std::uint64_t frame = metadata.frame_bytes();
  std::uint64_t sample = 0;
  std::uint64_t at = 0;
  for (const auto& section : layout.sections) {
    expect(section.count != 0 && section.first == sample && section.offset >= at);
    expect(section.count <= (bytes - section.offset) / frame);
    expect(!section.capture || *section.capture < metadata.captures.size());
    expect(&layout.section_of(sample) == &section && &layout.section_of(sample + section.count - 1) == &section);
    sample += section.count;
    at = section.offset + section.count * frame;
  }
  expect(sample == layout.samples && sample != 0 && layout.cut_bytes < frame && at <= bytes);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  gpumap::gst::fuzz::start_gstreamer();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto metadata = gpumap::gst::parse_sigmf(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    expect(metadata.sample_rate >= 1.0 && metadata.channels >= 1 && metadata.frame_bytes() >= 1);
    expect(!metadata.captures.empty() && metadata.dataset.find('/') == std::string::npos);
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1000}, ~std::uint64_t{0} >> 1U}) {
      try {
        check(metadata, bytes);
      } catch (const gpumap::Error&) {
        // No room for a sample.
      }
    }
  } catch (const gpumap::Error&) {
    // Refusing is an answer.
  }
  return 0;
}
