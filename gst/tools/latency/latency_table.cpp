// SPDX-License-Identifier: MIT
// For the terminal, 120 columns at most, and for other programs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "gst/tools/latency/report_page.hpp"

namespace latency {
namespace {

constexpr std::size_t title_width = 24;

/// In lines of at most 120 columns, those after the first indented.
std::string wrap(const std::string& text, std::size_t indent) {
  constexpr std::size_t width = 120;
  std::string made;
  std::size_t column = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (column > indent && column + 1 + end - at > width) {
      made += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > 0) {
      made += ' ';
      ++column;
    }
    made.append(text, at, end - at);
    column += end - at;
    at = end + 1;
  }
  return made + '\n';
}

std::string rows_of(const Json& one) {
  std::string made;
  std::string title = title_of(one);
  if (const std::string state = state_of(one); !state.empty()) {
    made += wrap(fmt::format("{:<{}} {}", title, title_width, state), title_width + 1);
    if (one.at("frames") == 0) return made;
    title.clear();
  }
  for (const std::string& name : row_names) {
    if (!has_row(one, name)) continue;  // no such stage here
    const Json& times = one.at("times").at(name);
    made += fmt::format("{:<{}} {:<9}", title, title_width, name);
    title.clear();
    for (const Column& column : columns) made += fmt::format(" {:>10}", short_time(times.at(column.key)));
    made += '\n';
  }
  return made + wrap(fmt::format("{:<{}} {}", title, title_width, counts_of(one)), title_width + 1);
}

std::string overview(const Json& report, const std::string& mark) {
  constexpr std::size_t frames_a_block = 4;
  const std::string headline = headline_of(report);
  const auto frames = frames_of(report);
  std::string made = fmt::format("\n{}: {}{}\n", headline, explain(headline), mark);
  bool broken = false;
  const auto titles = titles_of(report);
  std::size_t width = title_width;
  for (const std::string& title : titles) width = std::max(width, title.size());
  for (std::size_t first = 0; first < frames.size(); first += frames_a_block) {
    const std::size_t last = std::min(first + frames_a_block, frames.size());
    made += fmt::format("{:<{}}", "", width);
    for (std::size_t i = first; i < last; ++i) made += fmt::format(" {:>19}", frames[i]);
    made += fmt::format("\n{:<{}}", "", width);
    for (std::size_t i = first; i < last; ++i) made += fmt::format(" {:>9} {:>9}", "P50", "P99");
    made += '\n';
    for (const std::string& title : titles) {
      made += fmt::format("{:<{}}", title, width);
      for (std::size_t i = first; i < last; ++i) {
        std::string cell;
        if (const Json* one = find_case(report, frames[i], title); one != nullptr) {
          const Json& times = one->at("times").at(headline);
          const char* mark_of_case = state_of(*one).empty() ? "" : "!";
          broken = broken || (times.at("count") > 0 && *mark_of_case != 0);
          cell = times.at("count") == 0
                     ? no_figure_of(*one)
                     : fmt::format("{} {:>9}", short_time(times.at("p50")), short_time(times.at("p99")) + mark_of_case);
        }
        made += fmt::format(" {:>19}", cell);
      }
      made += '\n';
    }
  }
  if (broken) made += "!: of a case that is not whole or failed, as is told below\n";
  return made;
}

/// What it costs that a frame goes to another process.
std::string across(const Json& report, const std::string& mark) {
  const Json all = across_of(report);
  if (all.empty()) return {};
  constexpr std::size_t width = 30;
  std::string made = fmt::format("\nhandover: {}{}\n{:<{}} {:>19} {:>19}\n{:<{}} {:>9} {:>9} {:>9} {:>9} {:>12}\n",
                                 explain("handover"), mark, "", width, "1 process", "2 processes", "", width, "P50",
                                 "P99", "P50", "P99", "more at P50");
  for (const Json& one : all) {
    const auto figures = [&](const char* p50, const char* p99) {
      return fmt::format("{} {:>9}", short_time(one.at(p50)), short_time(one.at(p99)));
    };
    made +=
        fmt::format("{:<{}} {:>19} {:>19} {:>12}\n", one.at("frame").get<std::string>() + ", " + title_of(one), width,
                    figures("one_p50", "one_p99"), figures("two_p50", "two_p99"), short_time(one.at("more_p50")));
  }
  return made;
}

}  // namespace

std::string to_table(const Json& report, bool brief) {
  const Json& machine = report.at("machine");
  const std::string mark = mark_of(report);
  std::string made =
      wrap(fmt::format("{}{}, {}, kernels through {}", machine.at("device").get<std::string>(), mark,
                       machine.at("driver").get<std::string>(), machine.at("backend").get<std::string>()),
           0);
  made +=
      wrap(fmt::format("{}, {} CPUs, {}, {}", machine.at("cpu").get<std::string>(), machine.at("cores").get<unsigned>(),
                       machine.at("system").get<std::string>(), machine.at("date").get<std::string>()),
           0);
  made += wrap(way_of(report), 0);
  if (!brief) {
    for (const std::string& frame : frames_of(report)) {
      made += fmt::format("\n{:<{}} {:<9}", frame, title_width, "");
      for (const Column& column : columns) made += fmt::format(" {:>10}", column.title);
      made += mark + '\n';
      for (const auto& one : report.at("cases")) {
        if (one.at("frame") == frame) made += rows_of(one);
      }
    }
  }
  made += overview(report, mark) + across(report, mark) + '\n';
  for (const auto& one : report.at("cases")) {
    if (one.at("not_here").get<std::string>().empty() && !state_of(one).empty()) {
      made += wrap(fmt::format("{}, {}: {}", one.at("frame").get<std::string>(), title_of(one), state_of(one)), 2);
    }
  }
  for (const std::string& caveat : caveats_of(report)) made += wrap(caveat, 0);
  return made;
}

std::string to_hgrm(const Json& one, const std::string& headline) {
  const Json counts = one.value("histogram", Json::array());
  const Json& times = one.at("times").at(headline);
  const auto total = times.at("count").get<std::uint64_t>();
  if (counts.empty() || total == 0) return {};
  constexpr double scale = 1000;  // ns to us
  const auto frames = static_cast<double>(total);
  std::string made =
      fmt::format("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
  const auto out = std::back_inserter(made);
  // Five lines for each halving of what is left, as HdrHistogram's PercentileIterator goes by default.
  constexpr double lines_a_half = 5;
  double level = 0;
  std::uint64_t seen = 0;
  for (const Json& count : counts) {
    seen += count.at(1).get<std::uint64_t>();
    const bool last = seen >= total;
    while (static_cast<double>(seen) / frames >= level) {
      fmt::format_to(out, "{:>12.3f} {:>2.12f} {:>10} {:>14.2f}\n", count.at(0).get<double>() / scale, level, seen,
                     1 / (1 - level));
      level += 1 / (lines_a_half * std::exp2(std::floor(std::log2(1 / (1 - level))) + 1));
      if (last) break;
    }
    if (last) break;
  }
  const auto max = times.at("max").get<double>() / scale;
  const auto mean = times.at("mean").get<double>();
  double squares = 0;
  for (const Json& count : counts) squares += std::pow(count.at(0).get<double>() - mean, 2) * count.at(1).get<double>();
  fmt::format_to(out, "{:>12.3f} {:>2.12f} {:>10}\n", max, 1.0, total);
  fmt::format_to(out, "#[Mean    = {:>12.3f}, StdDeviation   = {:>12.3f}]\n", mean / scale,
                 std::sqrt(squares / frames) / scale);
  fmt::format_to(out, "#[Max     = {:>12.3f}, Total count    = {:>12}]\n", max, total);
  fmt::format_to(out, "#[Buckets = {:>12}, SubBuckets     = {:>12}]\n", gpumap::Histogram::doublings,
                 gpumap::Histogram::sub_buckets);
  return made;
}

std::string hgrm_name(const Json& one) {
  std::string made = one.at("frame").get<std::string>() + ", " + title_of(one);
  for (std::size_t at = 0; (at = made.find(", ", at)) != std::string::npos;) made.replace(at, 2, "-");
  for (char& c : made) {
    if (c == '/' || c == ' ') c = '-';
  }
  return made;
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string made = "\"";
  for (const char c : text) {
    if (c == '"') made += c;
    made += c;
  }
  return made + "\"";
}

std::string to_csv(const std::vector<std::unique_ptr<Outcome>>& outcomes) {
  using gpumap::Total;
  std::string made = "frame,transport,fence,mode,kernel,processes,round,sequence,bytes,due_ns,captured_ns,gpu_error_ns";
  for (std::size_t i = 0; i < gpumap::stamp_count; ++i) {
    made += fmt::format(",{}_at_ns", to_string(static_cast<gpumap::Stamp>(i)));
  }
  for (const std::string& row : row_names) made += fmt::format(",{}_ns", row);
  made += "\r\n";
  const auto out = std::back_inserter(made);
  const auto add = [&](std::optional<std::int64_t> time) {
    made += ',';
    if (time) fmt::format_to(out, "{}", *time);
  };
  // 0 stands for not known.
  const auto known = [](std::int64_t time) { return time == 0 ? std::nullopt : std::optional(time); };
  for (const auto& outcome : outcomes) {
    const Case& which = outcome->which;
    const std::string head =
        fmt::format("{},{},{},{},{},{}", csv_field(which.frame.name), csv_field(which.transport), which.fence(),
                    which.resident ? "resident" : "launch", csv_field(which.kernel), which.processes);
    for (const auto& [round, frame] : outcome->collector.kept()) {
      fmt::format_to(out, "{},{},{},{}", head, round, frame.sequence, frame.bytes);
      for (const std::int64_t time : {frame.due_ns, frame.captured_ns, frame.gpu_error_ns}) add(known(time));
      for (const std::int64_t at : frame.at_ns) add(known(at));
      for (const auto& time : stage_times(frame)) add(time);
      add(handover_time(frame));
      const bool result = outcome->collector.has_result(frame);
      add(result ? through_time(frame) : std::nullopt);
      for (const Total total : {Total::result, Total::whole, Total::lateness}) {
        const bool is_of_it =
            total == Total::whole || (result && (total != Total::lateness || outcome->collector.paced()));
        add(is_of_it ? total_time(frame, total) : std::nullopt);
      }
      made += "\r\n";
    }
  }
  return made;
}

}  // namespace latency
