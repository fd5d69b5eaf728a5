// SPDX-License-Identifier: MIT
// The report in words and figures, which the page has too; for the terminal, 120 columns at most; and for other
// programs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "gst/tools/latency/report_page.hpp"

namespace latency {
namespace {

struct Row {
  std::string_view name, what;
};
constexpr std::array rows{
    Row{"hold", "the producer has the slot and does not write yet"},
    Row{"write", "it writes, or the frame is copied"},
    Row{"publish", "store fence, upload where there is one, queueing"},
    Row{"queue", "waiting in the ring"},
    Row{"dispatch", "from the reader to the launch"},
    Row{"start", "from the launch until the GPU begins"},
    Row{"kernel", "on the GPU"},
    Row{"notice", "until the CPU sees the result"},
    Row{"release", "until the slot is given back"},
    Row{"handover", "from being queued to the launch of the kernel"},
    Row{"through", "from the first store to the result"},
    Row{"result", "from the last store to the result"},
    Row{"whole", "from first to last: the sum of the stages"},
    Row{"lateness", "from when the frame was due to the result"},
};

template <typename Name>
std::vector<std::string> each_once(const Json& report, Name name) {
  std::vector<std::string> names;
  for (const Json& one : report.at("cases")) {
    if (std::find(names.begin(), names.end(), name(one)) == names.end()) names.push_back(name(one));
  }
  return names;
}

std::string plural(std::uint64_t count, std::string_view what, std::string_view ending = "s") {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : ending);
}

}  // namespace

const std::vector<std::string> row_names = [] {
  std::vector<std::string> names;
  for (const Row& row : rows) names.emplace_back(row.name);
  return names;
}();

std::string_view explain(std::string_view name) {
  const auto* row = std::find_if(rows.begin(), rows.end(), [&](const Row& one) { return one.name == name; });
  return row == rows.end() ? std::string_view{} : row->what;
}

std::string short_time(double ns) {
  const auto number = [](double value) { return fmt::format("{:.3g}", value); };
  const double size = std::fabs(ns);
  if (size < 999.5) return number(ns) + " ns";
  if (size < 999.5e3) return number(ns / 1e3) + " us";
  if (size < 999.5e6) return number(ns / 1e6) + " ms";
  return fmt::format("{:.4g} s", ns / 1e9);
}

std::string headline_of(const Json& report) {
  return report.at("paced").get<bool>() ? "lateness" : "through";
}

std::string title_of(const Json& one) {
  const auto fence = one.at("fence").get<std::string>();
  return one.at("transport").get<std::string>() + (fence.empty() ? "" : ", " + fence) +
         (one.value("mode", "launch") == "resident" ? ", resident" : "") +
         (one.value("names_kernel", false) ? ", " + one.at("kernel").get<std::string>() : "") +
         (processes_of(one) == 2 ? ", 2 processes" : "");
}

unsigned processes_of(const Json& one) {
  return one.value("processes", 1U);
}

Json across_of(const Json& report) {
  return report.value("across", Json::array());
}

bool has_row(const Json& one, const std::string& row) {
  const Json& times = one.at("times");
  return times.contains(row) && times.at(row).at("count") > 0;
}

bool has_failed(const Json& one) {
  return !one.at("error").get<std::string>().empty() || one.value("negative_times", std::uint64_t{0}) > 0;
}

std::string state_of(const Json& one) {
  if (const auto why = one.at("not_here").get<std::string>(); !why.empty()) return "not here: " + why;
  std::string made;
  const auto add = [&](const std::string& what) { made += (made.empty() ? "" : "; ") + what; };
  if (const auto why = one.at("error").get<std::string>(); !why.empty()) add("failed: " + why);
  if (one.value("negative_times", std::uint64_t{0}) > 0) {
    std::string below;
    for (const auto& [row, times] : one.at("times").items()) {
      const auto negative = times.value("negative", std::uint64_t{0});
      if (negative > 0) below += fmt::format("{}{} of {}", below.empty() ? "" : ", ", row, plural(negative, "frame"));
    }
    add(fmt::format(
        "wrong: below 0, as no time can be: {}. These are in no figure, and the others are not to be trusted. Where it "
        "is lateness, the source's times are ahead of the pipeline's clock",
        below));
  }
  const auto asked = one.value("rounds_asked", 0U);
  if (const auto whole = one.at("rounds").get<unsigned>(); whole < asked) {
    add(fmt::format("not whole: {} of {} rounds ran to their end", whole, asked));
  }
  return made;
}

std::string mark_of(const Json& report) {
  return report.at("machine").at("software").get<bool>() ? " (software)" : "";
}

std::string no_figure_of(const Json& one) {
  if (!one.at("not_here").get<std::string>().empty()) return "not here";
  return has_failed(one) ? "failed" : "-";
}

std::string counts_of(const Json& one) {
  std::string made =
      fmt::format("{}, {} dropped", plural(one.at("frames"), "frame"), one.at("dropped").get<std::uint64_t>());
  if (const auto without = one.value("without_result", std::uint64_t{0}); without > 0) {
    made += fmt::format(", {} ended without a result", without);
  }
  if (const auto cut = one.value("cut_off", std::uint64_t{0}); cut > 0) {
    made += fmt::format(", {} cut off at the end of a round", cut);
  }
  if (one.contains("missed_deadlines")) {
    made += ", " + plural(one.at("missed_deadlines"), "missed deadline");
  }
  if (one.contains("cpu_ns_a_frame")) {
    made += fmt::format(", {:.0f} a second, CPU {} a frame", one.value("frames_per_s", 0.0),
                        short_time(one.at("cpu_ns_a_frame")));
  }
  made += ", " + plural(one.at("context_switches"), "context switch", "es");
  if (one.at("copied_frames") > 0) made += fmt::format(", {} copied", one.at("copied_frames").get<std::uint64_t>());
  if (one.at("waits") > 0) made += fmt::format(", {} waits for a slot", one.at("waits").get<std::uint64_t>());
  if (const double error = one.at("gpu_error_ns"); error > 0) {
    made += fmt::format(", GPU times within {}", short_time(error));
  }
  if (one.at("without_gpu_times") > 0) {
    made += fmt::format(", {} without them", one.at("without_gpu_times").get<std::uint64_t>());
  }
  if (one.at("not_looked_at") > 0) {
    made += fmt::format(", {} more came too fast to look at", one.at("not_looked_at").get<std::uint64_t>());
  }
  const auto used = one.at("used").get<std::string>();
  if (!used.empty() && used != one.at("transport").get<std::string>()) made += ", its slots are " + used;
  return made;
}

std::vector<std::string> frames_of(const Json& report) {
  return each_once(report, [](const Json& one) { return one.at("frame").get<std::string>(); });
}

std::vector<std::string> titles_of(const Json& report) {
  return each_once(report, title_of);
}

const Json* find_case(const Json& report, const std::string& frame, const std::string& title) {
  for (const Json& one : report.at("cases")) {
    if (one.at("frame") == frame && title_of(one) == title) return &one;
  }
  return nullptr;
}

std::string way_of(const Json& report) {
  const Json& options = report.at("options");
  std::string made;
  if (const auto pipeline = options.at("pipeline").get<std::string>(); !pipeline.empty()) {
    made = "a pipeline of the user's";
  } else {
    const auto upstream = options.at("upstream").get<std::string>();
    const auto kernel = options.at("kernel").get<std::string>();
    made = upstream == "in-place" ? "frames written in place"
           : upstream == "copy"   ? "frames copied from the producer's memory"
                                  : "frames from videotestsrc";
    made += kernel == "none" ? ", no kernel" : ", kernel " + kernel;
  }
  const double rate = options.at("rate");
  made += rate > 0                         ? fmt::format(", {} a second", rate)
          : report.at("paced").get<bool>() ? ", live"
                                           : ", as fast as they go";
  if (const unsigned in_flight = options.at("in_flight"); in_flight > 0) {
    made += fmt::format(", {} in flight", in_flight);
  }
  const auto processes = options.value("processes", std::vector<std::string>());
  const auto asked = [&](const char* number) {
    return std::find(processes.begin(), processes.end(), number) != processes.end();
  };
  if (asked("2")) made += asked("1") ? ", in one process and in two, in turns" : ", in two processes";
  if (const unsigned load = options.at("load"); load > 0)
    made += fmt::format(", {} beside", plural(load, "busy process", "es"));
  return made;
}

std::vector<std::string> caveats_of(const Json& report) {
  std::vector<std::string> made;
  const Json& machine = report.at("machine");
  if (machine.at("software").get<bool>()) {
    made.emplace_back(
        "software: the device is this CPU, its \"GPU\" runs on the same cores, and these are no figures "
        "of a GPU.");
  }
  if (const auto stopped = report.at("stopped").get<std::string>(); !stopped.empty()) {
    made.push_back("Not complete: " + stopped + ".");
  }
  if (headline_of(report) == "lateness") {
    made.emplace_back(
        "Lateness counts from when a frame was due, also where the producer was held up: a stall shows in "
        "every frame that it delayed. A deadline is missed when the result comes after the next frame was "
        "due, or never: frames that are dropped or end without a result miss theirs. Of frames that a round's end cut "
        "off, those whose deadline was over by then do.");
    if (report.at("options").at("upstream") == "videotestsrc") {
      made.emplace_back(
          "videotestsrc writes a live frame before it waits for its time: that wait is in through, and of gpumap in "
          "publish and result, of cudaupload in write. Lateness has none of it.");
    }
  }
  const auto& cases = report.at("cases");
  if (std::any_of(cases.begin(), cases.end(), [](const Json& one) { return processes_of(one) == 2; })) {
    made.emplace_back(
        "2 processes: gpumapsink and all before it run in one, gpumapsrc and all behind it in another. Stamps of both "
        "are of one clock, CPU times and context switches of both together. A case that failed is compared with "
        "nothing.");
  }
  if (!report.at("options").value("stamps", true)) {
    made.emplace_back("Without stamps: frames were counted, and none was timed.");
  }
  made.emplace_back(
      "P99.9 of fewer than 1,000 frames is their maximum, as P99 is of fewer than 100. Percentiles are within 1%. CPU "
      "time is the whole process's, filling or copying frames included, "
      "without the thread that measures.");
  bool rival = false;
  bool without_gpu_times = false;
  bool without_result = false;
  for (const auto& one : report.at("cases")) {
    rival = rival || (one.at("rival").get<bool>() && one.at("frames") > 0);
    const auto none = [&](const char* stage) { return one.at("times").at(stage).at("count") == 0; };
    without_result = without_result || (!none("whole") && none("notice") && none("kernel"));
    without_gpu_times = without_gpu_times || (!one.at("rival").get<bool>() && !none("notice") && none("kernel"));
  }
  if (without_result) {
    made.emplace_back(
        "Where there is neither a kernel stage nor notice, nobody on the CPU waited for a result and the GPU told no "
        "times: result, through and lateness end when gpumapsrc had the frame.");
  }
  if (without_gpu_times) {
    made.emplace_back(
        "A stage that was not stamped is part of the next one: where there is no kernel stage, notice has the launch, "
        "the kernel and the noticing in one.");
  }
  if (rival) {
    made.push_back(fmt::format(
        "cudaupload: its write ends when it has the frame, publish when the frame is in GPU memory{}. Blocks of bytes "
        "go "
        "as RGBA pictures of as many bytes.",
        report.at("options").at("kernel") == "none" ? "; no kernel runs"
                                                    : "; notice is the same kernel, launched in the same thread"));
  }
  return made;
}

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
  if (broken) made += "!: of a case that failed or is not whole, see below\n";
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
