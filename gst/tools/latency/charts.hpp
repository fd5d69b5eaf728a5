// SPDX-License-Identifier: MIT
// gpumap-latency: the page's charts, as SVG that stands in the page. Colours are the page's CSS variables, so that they
// follow its light or dark scheme.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gst/tools/latency/report_page.hpp"

namespace latency {

/// For HTML and SVG, text and attributes.
[[nodiscard]] std::string escape(std::string_view text);
/// CSS variable of a stage, of a transport, of what happened to a slow frame.
[[nodiscard]] std::string stage_colour(std::string_view stage);
[[nodiscard]] std::string case_colour(const Json& one);
[[nodiscard]] std::string cause_colour(std::string_view cause);
/// What most likely held up that frame: "drop", "context switch", … or "nothing seen".
[[nodiscard]] std::string cause_of(const Json& outlier);

using Cases = std::vector<const Json*>;

/// A bar for each case, a piece of it for each stage; `key` is "typical" or "slow". Empty: nothing to draw, here as
/// below.
[[nodiscard]] std::string stage_bars(const Cases& cases, const std::string& key, const std::string& title);
/// How many frames took how long, a row for each case, both axes logarithmic.
[[nodiscard]] std::string histograms(const Cases& cases, const std::string& title);
/// A bar of that: the frames that took from_ns or more and less than to_ns.
struct Bin {
  std::int64_t from_ns = 0, to_ns = 0;
  std::uint64_t frames = 0;
  friend bool operator==(const Bin&, const Bin&) = default;
};
/// Those of a case that have frames: eight for each power of two, so that steps of gpumap::Histogram are never cut.
[[nodiscard]] std::vector<Bin> bins_of(const Json& one);
/// The slowest frames over the time of the run.
[[nodiscard]] std::string timeline(const Cases& cases, const std::string& title);

}  // namespace latency
