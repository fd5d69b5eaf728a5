// SPDX-License-Identifier: MIT
//
// A pipeline twice, once with `queue` and once with `gpumapsink gpumapsrc` in its place: the elements behind must not
// be able to tell the two apart. Every frame and event that reaches the pipeline's last element, named `out`, becomes a
// line of text, and the lines of both runs are compared.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pipeline.hpp"

namespace gpumap::gst::test {

/// How much of a frame two runs of one pipeline have in common without gpumap: an encoder that decides by the clock is
/// good for its times alone (sizes and places in a file differ), a muxer that writes the date for sizes.
enum class Compared { bytes, sizes, times };

/// A pipeline with $MAP where either stands, and `name=out` on its last element.
struct Case {
  std::string name;
  std::string pipeline;
  std::string options{};  ///< of gpumapsink
  Compared compared = Compared::bytes;
  bool needs_thread = false;  ///< it could not run without a queue in the place of $MAP
};

/// What reached the sink pad of `out`, a line for each frame and each event, the caps apart, and how the pipeline
/// ended.
struct Record {
  std::vector<std::string> lines, caps;
  std::size_t frames = 0;
  std::string verdict;
};

/// What is done with a pipeline, and how that ended.
using Act = std::function<std::string(Pipeline& pipeline)>;
/// Played until EOS.
[[nodiscard]] std::string play(Pipeline& pipeline);

[[nodiscard]] Record record_of(const std::string& description, Compared compared = Compared::bytes,
                               const Act& act = play);
/// `text` with each $MAP replaced by a queue, and by the elements on a channel of its own. With GPUMAP_MATRIX=upload in
/// the environment by gpumapupload, with GPUMAP_MATRIX=download by that and gpumapdownload.
[[nodiscard]] std::string with_queue(std::string text);
[[nodiscard]] std::string with_gpumap(std::string text, const std::string& options = "");
void expect_same(const Record& expected, const Record& got);

/// Both runs end, with the same lines and without a warning or a critical message of GLib's.
void expect_same_as_queue(const Case& tried);

/// For testing::TestWithParam<Case>.
[[nodiscard]] std::string case_name(const testing::TestParamInfo<Case>& test);
void PrintTo(const Case& tried, std::ostream* out);

/// A name of a test made of a text, such as "17x9 NV12": "17x9_NV12".
[[nodiscard]] std::string as_name(const std::string& text);

class Matrix : public testing::TestWithParam<Case> {};

}  // namespace gpumap::gst::test
