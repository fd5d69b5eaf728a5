// SPDX-License-Identifier: MIT
// gpumap-latency: the report of the outcomes. The table and the page are made of the JSON alone, so that a page can
// be made of a file from another machine.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gst/tools/latency/options.hpp"
#include "gst/tools/latency/round.hpp"

namespace latency {

using Json = nlohmann::ordered_json;

/// In the JSON, the order of the table's rows: the stages, then the totals.
extern const std::vector<std::string> row_names;
[[nodiscard]] std::string_view explain(std::string_view name);

/// Device, driver, CPU, kernel, date.
[[nodiscard]] Json describe_machine(const std::string& device);
[[nodiscard]] Json describe_options(const Options& options, const std::vector<std::string>& command_line);
[[nodiscard]] Json to_json(const Outcome& outcome, std::int64_t began_ns);

/// Where the same was measured in one process and in two and neither failed: "handover" of both, in ns, and how much
/// more it is.
[[nodiscard]] Json compare_processes(const Json& cases);

/// One line for each frame that was kept.
[[nodiscard]] std::string to_csv(const std::vector<std::unique_ptr<Outcome>>& outcomes);
/// The figures that the case is compared by, in us, as HdrHistogram's outputPercentileDistribution() prints them. Empty
/// where there are none, as in reports of versions that kept no histogram.
[[nodiscard]] std::string to_hgrm(const Json& one, const std::string& headline);
/// What its file is called, without the ending: "4KiB-bar-sleep".
[[nodiscard]] std::string hgrm_name(const Json& one);
/// A field of CSV, quoted where it has to be.
[[nodiscard]] std::string csv_field(std::string_view text);

/// "800 ns", "12 us", "3.5 ms", "2 s": three digits.
[[nodiscard]] std::string short_time(double ns);
/// What the cases are compared by: "lateness" where the report is of paced runs, else "through".
[[nodiscard]] std::string headline_of(const Json& report);
[[nodiscard]] std::string title_of(const Json& one);   ///< "bar, spin, 2 processes"
[[nodiscard]] unsigned processes_of(const Json& one);  ///< 1 in reports of versions that knew no others
/// Of a report: what compare_processes() gave, empty in earlier versions'.
[[nodiscard]] Json across_of(const Json& report);
/// Whether frames of that case have a figure in that row, which earlier versions may not have known.
[[nodiscard]] bool has_row(const Json& one, const std::string& row);
/// What ended it, or times that cannot be: it is compared with nothing.
[[nodiscard]] bool has_failed(const Json& one);
/// "not here: …", "failed: …", "wrong: …", "not whole: …" or empty: then all rounds ran to their end, and all is well.
[[nodiscard]] std::string state_of(const Json& one);
/// " (software)" where the device is the CPU, for headings.
[[nodiscard]] std::string mark_of(const Json& report);
[[nodiscard]] std::string no_figure_of(const Json& one);  ///< "not here", "failed" or "-": instead of a figure
[[nodiscard]] std::string counts_of(const Json& one);     ///< frames, drops, CPU time: one line
/// Sizes of frames, and titles of cases, in the report's order, each once.
[[nodiscard]] std::vector<std::string> frames_of(const Json& report);
[[nodiscard]] std::vector<std::string> titles_of(const Json& report);
/// Null: there is none.
[[nodiscard]] const Json* find_case(const Json& report, const std::string& frame, const std::string& title);
/// Figures of a row, in the order of a table's columns.
struct Column {
  const char *key, *title;
};
inline constexpr std::array columns{Column{"p50", "P50"},    Column{"p90", "P90"}, Column{"p99", "P99"},
                                    Column{"p999", "P99.9"}, Column{"max", "max"}, Column{"mean", "mean"}};
/// How the frames were made, in a sentence.
[[nodiscard]] std::string way_of(const Json& report);
/// What the figures are not, sentence by sentence.
[[nodiscard]] std::vector<std::string> caveats_of(const Json& report);

[[nodiscard]] std::string to_table(const Json& report, bool brief);
/// For HTML and SVG, text and attributes.
[[nodiscard]] std::string escape(std::string_view text);
/// A bar of a histogram: the frames that took from_ns or more and less than to_ns.
struct Bin {
  std::int64_t from_ns = 0, to_ns = 0;
  std::uint64_t frames = 0;
  friend bool operator==(const Bin&, const Bin&) = default;
};
/// Those of a case that have frames: eight for each power of two, so that steps of gpumap::Histogram are never cut.
[[nodiscard]] std::vector<Bin> bins_of(const Json& one);
/// The page: one file that needs nothing else. Throws nlohmann's errors for what is no report.
[[nodiscard]] std::string to_page(const Json& report);

}  // namespace latency
