// SPDX-License-Identifier: MIT
// From a frame in host memory, or from a producer's last stores, to the CPU seeing a kernel on that frame done.
#include <fmt/format.h>

#include <algorithm>

#include "paths.hpp"

namespace bench {
namespace {

constexpr std::size_t hd_bytes = 3'110'400;   // 1080p NV12
constexpr std::size_t k8_bytes = 49'766'400;  // 8K NV12
constexpr std::size_t mib = std::size_t{1} << 20;

const char* to_text(Work work) {
  return work == Work::nothing ? "nothing" : "checksum";
}

class Measurement {
 public:
  Measurement(Context& context, Gpu& gpu, Source& source, Copiers& copiers, std::size_t bytes)
      : context_(context), source_(source), stage_(context, gpu, source, bytes) {
    source.sum_frames(bytes);
    copying_ = copying_paths(stage_, copiers);
    in_place_ = in_place_paths(stage_);
  }

  void measure(ModeReport& report) {
    for (const Work work : {Work::nothing, Work::checksum}) add(copying_, "copied", work);
    for (const Work work : {Work::nothing, Work::checksum}) add(in_place_, "in place", work);
    warm_up();
    for (Path& path : copying_) {
      if (!path.calibrate) continue;
      const std::string choice = path.calibrate(path);
      report.extra["choices"].push_back(
          {{"path", path.name}, {"threads", path.threads}, {"bytes", stage_.bytes}, {"choice", choice}});
    }
    const Turns turns = context_.small() ? Turns{.rounds = 2, .budget_ns = 10e6, .least = 6, .most = 800}
                                         : Turns{.rounds = 8, .budget_ns = 100e6, .least = 32, .most = 800};
    run_in_turns(runs_, turns, report);
  }

 private:
  /// Clocks of CPU and GPU rise only once there is work.
  void warm_up() {
    const std::int64_t until = now_ns() + (context_.small() ? 5'000'000 : 200'000'000);
    std::int64_t cpu = 0;
    while (now_ns() < until) static_cast<void>(time_frame(copying_.front(), stage_, next(), Work::checksum, cpu));
  }

  void add(std::vector<Path>& paths, const char* what, Work work) {
    const bool copied = &paths == &copying_;
    for (Path& path : paths) {
      if (work == Work::nothing && !path.moves) continue;
      runs_.push_back({.row = {.path = path.name,
                               .detail = fmt::format("{}, {}", what, to_text(work)),
                               .bytes = stage_.bytes,
                               .threads = path.threads,
                               .rival = path.rival,
                               .rate = copied},
                       .visit =
                           [this, &path, work](std::size_t count, std::vector<std::int64_t>& ns) {
                             std::int64_t cpu = 0;
                             for (std::size_t i = 0; i < count; ++i) {
                               ns.push_back(time_frame(path, stage_, next(), work, cpu));
                             }
                             return cpu;
                           },
                       .verify = [this, &path] { verify(path, stage_, last_); }});
    }
  }

  const std::byte* next() { return last_ = source_.frame(stage_.bytes, frame_++); }

  Context& context_;
  Source& source_;
  Stage stage_;
  std::vector<Path> copying_, in_place_;
  std::vector<Run> runs_;
  std::uint64_t frame_ = 0;
  const std::byte* last_ = nullptr;
};

class Judge {
 public:
  Judge(Context& context, const std::vector<Row>& rows) : context_(context), rows_(rows) {}

  void judge() {
    ratio(hd_bytes, "copied, nothing", 4, "copy to pinned + DMA", 4, 0.55);
    ratio(hd_bytes, "copied, nothing", 4, "stream to pinned + DMA", 4, 0.55);
    ratio(hd_bytes, "copied, nothing", 4, "pageable", 1, 0.35);
    ratio(hd_bytes, "in place, nothing", 1, "pinned, DMA", 1, 0.25);
    ratio(k8_bytes, "in place, nothing", 1, "pinned, DMA", 1, 0.06);
    for (const Row& row : rows_) {
      if (row.path != "bar" || row.bytes != hd_bytes || row.detail != "copied, nothing") continue;
      for (const char* path : {"copy to pinned + DMA", "stream to pinned + DMA"}) {
        const Row* rival = find(path, hd_bytes, row.detail, row.threads);
        if (rival == nullptr || !row.cpu_us || rival->cpu_us.value_or(0) <= 0) continue;
        context_.targets.push_back(
            {fmt::format("CPU time of a copied 1080p frame, {} threads, bar over {}", row.threads, path),
             *row.cpu_us / *rival->cpu_us, Target::Limit::at_most, 1.0});
      }
    }
  }

 private:
  [[nodiscard]] const Row* find(const char* path, std::size_t bytes, const std::string& detail,
                                unsigned threads) const {
    for (const Row& row : rows_) {
      if (row.path == path && row.bytes == bytes && row.detail == detail && row.threads == threads) return &row;
    }
    return nullptr;
  }

  void ratio(std::size_t bytes, const char* detail, unsigned threads, const char* rival, unsigned rival_threads,
             double at_most) {
    const Row* ours = find("bar", bytes, detail, threads);
    const Row* other = find(rival, bytes, detail, rival_threads);
    if (ours == nullptr || other == nullptr) return;
    context_.targets.push_back({fmt::format("frame of {} bytes, {}, {} threads, bar over {}, {} threads", bytes, detail,
                                            threads, rival, rival_threads),
                                ours->time.median_us / other->time.median_us, Target::Limit::at_most, at_most});
  }

  Context& context_;
  const std::vector<Row>& rows_;
};

}  // namespace

void run_frame(Context& context, ModeReport& report) {
  const std::vector<std::size_t> usual{64 << 10, mib, hd_bytes, 12'441'600, 33'177'600, k8_bytes};
  const auto sizes = context.sizes(context.small() ? std::vector<std::size_t>{64 << 10, mib} : usual);
  auto threads = context.threads(context.small() ? std::vector<unsigned>{1, 2} : std::vector<unsigned>{1, 2, 4, 8});
  const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());

  Gpu gpu(context);
  Source source(context, std::max(largest, (context.small() ? 8 : 256) * mib));
  threads.push_back(0);  // what an application gets that does not ask for a number
  Copiers copiers(context, threads);
  report.what =
      "one frame until the CPU sees a kernel on it done: 'copied' from its first byte in ordinary, cold memory; 'in "
      "place' from the producer's last 256 bytes";
  report.extra["choices"] = nlohmann::json::array();
  for (const std::size_t bytes : sizes) {
    Measurement(context, gpu, source, copiers, bytes).measure(report);
  }
  Judge(context, report.rows).judge();
  report.extra["source_bytes"] = source.mapping().bytes();
  report.not_measured = {"more than one frame in flight: these are times of one, not frames a second",
                         "GStreamer, the ring and the plugin around it: see gpumap-latency",
                         "a kernel's own work, beyond reading each byte once under 'checksum'",
                         "CPU time that helper threads spin away after the frame is done",
                         "zero-copy under 'nothing': a kernel that reads nothing brings nothing over PCIe"};
}

}  // namespace bench
