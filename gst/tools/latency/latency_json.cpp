// SPDX-License-Identifier: MIT
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <gpumap/device.hpp>
#include <gpumap/kernel.hpp>
#include <thread>

#include "figures.hpp"
#include "gst/tools/latency/report_page.hpp"

namespace latency {
namespace {

using gpumap::FrameRecord;
using gpumap::Histogram;
using gpumap::Percentiles;
using gpumap::Stage;
using gpumap::Total;

std::string operating_system() {
  utsname names{};
  return ::uname(&names) == 0 ? fmt::format("{} {} {}", names.sysname, names.release, names.machine) : "?";
}

Json to_json(const Histogram& times) {
  const Percentiles p = times.percentiles();
  return {{"count", p.count}, {"mean", p.mean}, {"min", p.min}, {"p50", p.p50},          {"p90", p.p90},
          {"p99", p.p99},     {"p999", p.p999}, {"max", p.max}, {"negative", p.negative}};
}

/// All that was counted, the shortest first: [ns, frames].
Json histogram_of(const Histogram& times) {
  Json counts = Json::array();
  for (const auto& [time_ns, frames] : times.counts()) counts.push_back({time_ns, frames});
  return counts;
}

Json stages_of(const FrameRecord& frame) {
  Json made = Json::object();
  const auto times = stage_times(frame);
  for (std::size_t i = 0; i < gpumap::stage_count; ++i) {
    if (times[i]) made[std::string(to_string(static_cast<Stage>(i)))] = *times[i];
  }
  return made;
}

/// Means of the stages over the kept frames between two shares of them, by what the case is compared by: they add up to
/// these frames' mean whole time, which percentiles of stages do not.
Json mean_frame(const Collector& frames, double from, double to) {
  Json made = Json::object();
  std::vector<Collector::Kept> kept = frames.kept();
  std::erase_if(kept, [&](const auto& one) { return !frames.headline_time(one.frame); });
  if (kept.empty()) return made;
  std::ranges::sort(kept, {}, [&](const auto& one) { return *frames.headline_time(one.frame); });
  const auto first = static_cast<std::size_t>(from * static_cast<double>(kept.size()));
  const auto last = std::clamp(static_cast<std::size_t>(to * static_cast<double>(kept.size())), first + 1, kept.size());
  std::array<double, gpumap::stage_count> sums{};
  std::array<bool, gpumap::stage_count> any{};
  for (std::size_t i = std::min(first, last - 1); i < last; ++i) {
    const auto times = stage_times(kept[i].frame);
    for (std::size_t stage = 0; stage < gpumap::stage_count; ++stage) {
      any[stage] = any[stage] || times[stage].has_value();
      sums[stage] += static_cast<double>(times[stage].value_or(0));
    }
  }
  const auto number = static_cast<double>(last - std::min(first, last - 1));
  for (std::size_t i = 0; i < gpumap::stage_count; ++i) {
    if (any[i]) made[std::string(to_string(static_cast<Stage>(i)))] = sums[i] / number;
  }
  return made;
}

Json to_json(const Collector::Outlier& outlier, std::int64_t began_ns) {
  std::int64_t first_ns = 0;
  for (const std::int64_t at : outlier.kept.frame.at_ns) {
    if (first_ns == 0) first_ns = at;
  }
  Json near = Json::array();
  for (const Event& event : outlier.near) {
    near.push_back({{"kind", to_string(event.kind)}, {"at_ns", event.at_ns - began_ns}, {"text", event.text}});
  }
  return {{"round", outlier.kept.round}, {"sequence", outlier.kept.frame.sequence}, {"at_ns", first_ns - began_ns},
          {"time_ns", outlier.time_ns},  {"stages", stages_of(outlier.kept.frame)}, {"near", near}};
}

Json times_of(const Collector& frames) {
  Json made = Json::object();
  for (std::size_t i = 0; i < gpumap::stage_count; ++i) {
    made[std::string(to_string(static_cast<Stage>(i)))] = to_json(frames.stage(i));
  }
  made["handover"] = to_json(frames.handover());
  made["through"] = to_json(frames.through());
  for (std::size_t i = 0; i < gpumap::total_count; ++i) {
    made[std::string(to_string(static_cast<Total>(i)))] = to_json(frames.total(i));
  }
  return made;
}

}  // namespace

Json describe_machine(const std::string& device) {
  Json made;
  const auto open = gpumap::Device::open(device);
  const gpumap::DeviceInfo& info = open->info();
  const bool cuda = open->default_backend() == gpumap::Backend::cuda;
  made["device"] = info.name;
  made["software"] = info.software;
  made["driver"] = cuda ? fmt::format("{}, CUDA {}", info.vulkan_driver, info.cuda_driver) : info.vulkan_driver;
  made["backend"] = gpumap::value_name(open->default_backend());
  made["window_bytes"] = info.window_bytes;
  made["cpu"] = bench::cpu_name();
  made["cores"] = std::thread::hardware_concurrency();
  made["system"] = operating_system();
  made["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return made;
}

Json describe_options(const Options& options, const std::vector<std::string>& command_line) {
  return {{"command_line", command_line},
          {"pipeline", options.pipeline},
          {"upstream", options.pipeline.empty() ? options.upstream : ""},
          {"kernel", options.pipeline.empty() ? fmt::format("{}", fmt::join(options.kernels, ", ")) : ""},
          {"count", options.count},
          {"stamps", options.stamps},
          {"rounds", options.rounds},
          {"warmup", options.warmup},
          {"rate", options.rate},
          {"in_flight", options.pipeline.empty() ? options.frames_in_flight() : 0},
          {"load", options.load},
          {"slots", options.slots},
          {"processes", options.processes},
          {"spin_us", options.spin_us}};
}

Json to_json(const Outcome& outcome, std::int64_t began_ns) {
  const Collector& frames = outcome.collector;
  Json made{{"frame", outcome.which.frame.name},
            {"bytes", outcome.which.frame.bytes},
            {"transport", outcome.which.transport},
            {"fence", outcome.which.fence()},
            {"mode", outcome.which.resident ? "resident" : "launch"},
            {"kernel", outcome.which.kernel_title()},
            {"names_kernel", outcome.which.names_kernel},
            {"processes", outcome.which.processes},
            {"producer_pids", outcome.producer_pids},
            {"consumer_pid", ::getpid()},
            {"rival", outcome.which.is_rival()},
            {"not_here", outcome.not_here},
            {"error", outcome.error},
            {"line", outcome.line},
            {"used", outcome.transport},
            {"rounds", outcome.rounds},
            {"rounds_asked", outcome.rounds_asked},
            {"warmup", outcome.warmup},
            {"sent", outcome.sent},
            {"frames", frames.frames() + outcome.unstamped},
            {"negative_times", frames.negative_times()},
            {"dropped", outcome.dropped},
            {"without_result", frames.without_result()},
            {"cut_off", frames.cut_off()},
            {"without_gpu_times", outcome.without_gpu_times},
            {"gpu_error_ns", outcome.gpu_error_ns},
            {"not_looked_at", outcome.not_looked_at},
            {"zero_copy_frames", outcome.zero_copy_frames},
            {"copied_frames", outcome.copied_frames},
            {"waits", outcome.waits},
            {"context_switches", outcome.switches},
            {"seconds", outcome.seconds}};
  if (outcome.cpu_frames > 0) {
    made["cpu_ns_a_frame"] = static_cast<double>(outcome.cpu_ns) / static_cast<double>(outcome.cpu_frames);
    made["frames_per_s"] = static_cast<double>(outcome.cpu_frames) / outcome.seconds;
  }
  if (frames.paced()) made["missed_deadlines"] = frames.missed_deadlines();
  made["times"] = times_of(frames);
  made["histogram"] = histogram_of(frames.headline());
  // All kept frames once, or the percentiles would be of another set of frames than the bars.
  made["typical"] = mean_frame(frames, 0.45, 0.55);
  made["slow"] = mean_frame(frames, 0.99, 1);
  made["outliers"] = Json::array();
  for (const auto& outlier : frames.outliers()) made["outliers"].push_back(to_json(outlier, began_ns));
  return made;
}

Json compare_processes(const Json& cases) {
  Json made = Json::array();
  for (const Json& two : cases) {
    if (two.at("processes") != 2) continue;
    const auto same = [&](const Json& one) {
      return one.at("processes") == 1 && one.at("frame") == two.at("frame") &&
             one.at("transport") == two.at("transport") && one.at("fence") == two.at("fence") &&
             one.at("mode") == two.at("mode") && one.at("kernel") == two.at("kernel");
    };
    const auto one = std::find_if(cases.begin(), cases.end(), same);
    // What failed on its way is no measure of what the way costs.
    if (one == cases.end() || has_failed(*one) || has_failed(two)) continue;
    const Json& near = one->at("times").at("handover");
    const Json& far = two.at("times").at("handover");
    if (near.at("count") == 0 || far.at("count") == 0) continue;
    made.push_back({{"frame", two.at("frame")},
                    {"transport", two.at("transport")},
                    {"fence", two.at("fence")},
                    {"mode", two.at("mode")},
                    {"kernel", two.at("kernel")},
                    {"names_kernel", two.at("names_kernel")},
                    {"one_p50", near.at("p50")},
                    {"one_p99", near.at("p99")},
                    {"two_p50", far.at("p50")},
                    {"two_p99", far.at("p99")},
                    {"more_p50", far.at("p50").get<std::int64_t>() - near.at("p50").get<std::int64_t>()}});
  }
  return made;
}

}  // namespace latency
