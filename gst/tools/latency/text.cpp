// SPDX-License-Identifier: MIT
// What the table and the page share: words and figures.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

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

}  // namespace latency
