// SPDX-License-Identifier: MIT
// What gpumapsink costs an upstream that brings its own memory, beside GStreamer's cudaupload, turn by turn in one run:
// the time of the element's chain function, and the time until a kernel on the frame is done. The source is cold.
//
// It does not measure an upstream that asks for buffers: there, gpumapsink copies nothing (first-light-bench), and
// cudaupload hands out page-locked memory. Nor frames that follow each other closely: one is in flight.
#include <fmt/format.h>
#include <gst/gst.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <gpumap/device.hpp>
#include <memory>
#include <optional>
#include <stdexcept>

#include "bench.hpp"
#include "gst/elements.hpp"
#include "sink_path.hpp"

namespace sink_bench {
namespace {

constexpr double target_ratio = 0.5;
constexpr int exit_missed = 1;
constexpr int exit_waived = 77;  // what Meson and Automake call skipped
constexpr const char* element_time = "element";
constexpr const char* kernel_time = "to kernel done";

// The contenders take turns. A turn is longer than a frame because cudaupload has a CUDA context of its own, and a GPU
// that changes contexts for every frame would be what is measured; its first frames do not count for the same reason.
constexpr unsigned turn_frames = 50;
constexpr unsigned turn_warmup = 3;
constexpr unsigned checked_frames = 3;

struct Options {
  std::string device = "auto";
  std::vector<std::string> sizes{"64x64", "640x360", "1920x1080", "3840x2160", "7680x4320"};
  std::vector<std::string> sinks{"", "copy-threads=1", "copy-threads=4", "transport=pinned"};
  unsigned frames = 1000;
  unsigned warmup = 50;
  bool quick = false, check = false;
  std::string json_file, commit;
};

struct Contender {
  std::string name;
  bool rival = false;
  std::unique_ptr<Path> path{};
  std::vector<std::int64_t> times{};
  std::int64_t cpu_ns = 0;
};

struct Bench {
  Options options;
  std::shared_ptr<gpumap::Device> device;
  std::string waived;  ///< why there is no cudaupload; empty when there is
  std::vector<bench::Row> rows{};
  nlohmann::json paths = nlohmann::json::array();
  std::vector<std::string> left_out{};
};

Size parse_size(const std::string& text) {
  Size size;
  char rest = 0;
  // NOLINTNEXTLINE(cert-err34-c): what does not fit in is refused below
  if (std::sscanf(text.c_str(), "%ux%u%c", &size.width, &size.height, &rest) != 2 || size.width < 16 ||
      size.height < 16 || size.width > 16384 || size.height > 16384 || size.width % 4 != 0 || size.height % 2 != 0) {
    throw std::runtime_error(
        fmt::format("--sizes: '{}' is not a size such as 1920x1080: 16 to 16384, width a multiple "
                    "of 4, height even",
                    text));
  }
  return size;
}

/// Apply "a=1 b=2". False, and a note, when gpumapsink lacks one of them.
bool apply(Bench& bench, const Path& path, const std::string& properties) {
  for (const std::string& setting : CLI::detail::split_up(properties)) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) throw std::runtime_error("--sink: '" + setting + "' is not property=value");
    if (path.set(setting.substr(0, equals), setting.substr(equals + 1))) continue;
    const std::string note = fmt::format("gpumapsink {}: it has no property {}", properties, setting.substr(0, equals));
    if (std::find(bench.left_out.begin(), bench.left_out.end(), note) == bench.left_out.end()) {
      bench.left_out.push_back(note);
    }
    return false;
  }
  return true;
}

/// The kernel of gpumapkernel kernel=identity, launched by the upstream's thread: what cudaupload's frame waits for.
class Identity {
 public:
  Identity(const std::shared_ptr<gpumap::Device>& device, Size size)
      : kernel_(gpumap::Kernel::load(device,
                                     gpumap::source_of(*gpumap::find_builtin("identity"), device->default_backend()))),
        from_(device->allocate({.placement = gpumap::Placement::device, .bytes = size.bytes()})),
        to_(device->allocate({.placement = gpumap::Placement::device, .bytes = size.bytes()})),
        queue_(device->create_queue()) {
    frame_.in.plane[0] = from_->address(queue_->backend());
    frame_.out.plane[0] = to_->address(queue_->backend());
    frame_.in.bytes = frame_.out.bytes = size.bytes();
  }
  void run() {
    queue_->launch(*kernel_, kernel_->grid_for(frame_), frame_);
    const gpumap::Fence fence = queue_->submit();
    if (!bench::spin_until([&] { return fence.signalled(); })) throw std::runtime_error("a kernel did not end");
  }

 private:
  std::shared_ptr<gpumap::Kernel> kernel_;
  std::shared_ptr<gpumap::Mapping> from_, to_;
  gpumap_frame frame_{};
  std::unique_ptr<gpumap::Queue> queue_;
};

std::vector<Contender> make_contenders(Bench& bench, Size size, bool kernel) {
  static unsigned channels = 0;
  std::vector<Contender> made;
  for (const std::string& properties : bench.options.sinks) {
    // Waking the consumer is no business of the element's; a kernel's time begins when somebody launches it.
    const unsigned poll_us = kernel && !bench.device->info().software ? 1000 : 0;
    const std::string description = fmt::format(
        "gpumapsink name=first channel=sink-bench-{0} device={1} slots=4 sync=false "
        "gpumapsrc channel=sink-bench-{0} busy-poll={2} ! {3} video/x-raw(memory:GPUMap) ! "
        "fakesink name=last sync=false async=false enable-last-sample=false",
        channels++, bench.options.device, poll_us,
        kernel ? fmt::format("gpumapkernel kernel=identity device={} !", bench.options.device) : "");
    auto path = std::make_unique<Path>(description, size);
    if (!apply(bench, *path, properties)) continue;
    made.push_back({.name = properties.empty() ? "gpumapsink" : "gpumapsink " + properties, .path = std::move(path)});
  }
  if (bench.waived.empty()) {
    auto path = std::make_unique<Path>(
        "cudaupload name=first ! video/x-raw(memory:CUDAMemory) ! "
        "fakesink name=last sync=false async=false enable-last-sample=false",
        size);
    if (kernel) {
      path->set_after([identity = std::make_shared<Identity>(bench.device, size)] { identity->run(); });
    }
    made.push_back({.name = "cudaupload", .rival = true, .path = std::move(path)});
  }
  return made;
}

void measure(Bench& bench, Size size, Frames& source, bool kernel) {
  std::vector<Contender> contenders = make_contenders(bench, size, kernel);
  if (contenders.empty()) throw std::runtime_error("--sink leaves nothing to measure");
  for (Contender& contender : contenders) contender.path->start();
  const Options& options = bench.options;
  const auto push = [&](Contender& contender, unsigned count, bool check) {
    for (unsigned i = 0; i < count; ++i) static_cast<void>(contender.path->push(source.next(), check));
  };
  for (Contender& contender : contenders) {
    push(contender, checked_frames, true);
    push(contender, options.warmup, false);
  }
  for (unsigned sent = 0; sent < options.frames; sent += turn_frames) {
    for (Contender& contender : contenders) {
      push(contender, turn_warmup, false);
      for (unsigned i = sent; i < std::min(sent + turn_frames, options.frames); ++i) {
        const Times times = contender.path->push(source.next(), false);
        contender.times.push_back(kernel ? times.done_ns : times.returned_ns);
        contender.cpu_ns += times.cpu_ns;
      }
    }
    // Each goes first as often as any other.
    std::rotate(contenders.begin(), contenders.begin() + 1, contenders.end());
  }
  std::sort(contenders.begin(), contenders.end(),
            [](const Contender& a, const Contender& b) { return a.name < b.name; });
  for (Contender& contender : contenders) {
    const std::string detail = fmt::format("{}x{} {}", size.width, size.height, kernel ? kernel_time : element_time);
    bench.rows.push_back({.path = contender.name,
                          .detail = detail,
                          .bytes = size.bytes(),
                          .rival = contender.rival,
                          .time = bench::summarise(contender.times),
                          .cpu_us = static_cast<double>(contender.cpu_ns) / options.frames / 1e3});
    bench.paths.push_back({{"path", contender.name}, {"detail", detail}, {"stats", contender.path->stats()}});
  }
}

std::string why_no_cudaupload() {
  if (GstElementFactory* factory = gst_element_factory_find("cudaupload"); factory != nullptr) {
    gst_object_unref(factory);
    return {};
  }
  GstPlugin* plugin = gst_registry_find_plugin(gst_registry_get(), "nvcodec");
  if (plugin == nullptr) return "no cudaupload: GStreamer's plugin nvcodec (gst-plugins-bad) is not installed";
  gst_object_unref(plugin);
  return "no cudaupload: GStreamer's plugin nvcodec found no GPU, or no CUDA, to register it for";
}

enum class Verdict { met, missed, waived };

Verdict judge(const Bench& bench, nlohmann::json& report) {
  nlohmann::json target{{"claim", "gpumapsink copying a 1080p frame, element time over cudaupload's"},
                        {"limit", "at most"},
                        {"bound", target_ratio}};
  auto verdict = Verdict::waived;
  std::string reason = bench.waived;
  if (bench.device->info().software) reason = "software: no figure of a GPU";
  if (reason.empty()) reason = "1920x1080 was not measured";
  for (const bench::Row& row : bench.rows) {
    if (row.path != "gpumapsink" || row.detail != fmt::format("1920x1080 {}", element_time) || row.ratio <= 0) continue;
    target["value"] = row.ratio;
    if (bench.device->info().software) continue;
    verdict = row.ratio <= target_ratio ? Verdict::met : Verdict::missed;
    reason = fmt::format("{:.2f}, target at most {}", row.ratio, target_ratio);
  }
  const char* name = verdict == Verdict::met ? "met" : verdict == Verdict::missed ? "MISSED" : "waived";
  target["verdict"] = verdict == Verdict::missed ? "missed" : name;
  target["reason"] = reason;
  report["targets"].push_back(target);
  fmt::print("\n{}: {}: {}\n", name, target["claim"].get<std::string>(), reason);
  return verdict;
}

int run(const Options& options) {
  Bench bench{.options = options, .device = gpumap::Device::open(options.device), .waived = why_no_cudaupload()};
  const gpumap::DeviceInfo& info = bench.device->info();
  nlohmann::json report{{"benchmark", "sink-bench"},
                        {"device", info.name},
                        {"software", info.software},
                        {"vulkan_driver", info.vulkan_driver},
                        {"cuda_driver", info.cuda_driver},
                        {"cpu", bench::cpu_name()},
                        {"cores", std::thread::hardware_concurrency()},
                        {"commit", options.commit},
                        {"gstreamer", fmt::format("{}.{}.{}", GST_VERSION_MAJOR, GST_VERSION_MINOR, GST_VERSION_MICRO)},
                        {"frames", options.frames},
                        {"warmup", options.warmup},
                        {"turn_frames", turn_frames},
                        {"in_flight", 1}};
  fmt::print("{}{}, {}\n{}, {} cores, {} frames after {}\n", info.name,
             info.software ? " *software: these are no figures of a GPU*" : "", info.vulkan_driver, bench::cpu_name(),
             std::thread::hardware_concurrency(), options.frames, options.warmup);

  // Twice what the largest last-level caches hold; small where no figure counts.
  const std::size_t span = std::size_t{options.quick ? 16U : 320U} << 20;
  report["source_bytes"] = span;
  for (const std::string& text : options.sizes) {
    const Size size = parse_size(text);
    Frames source(size, span);
    for (const bool kernel : {false, true}) measure(bench, size, source, kernel);
  }
  bench::set_ratios(bench.rows);
  if (!bench.waived.empty()) bench.left_out.push_back(bench.waived + ": its rows are waived");
  const nlohmann::json measured =
      bench::make_report({.mode = "sink",
                          .what = "from before an upstream's push of its own memory until the chain function returned, "
                                  "or until the CPU saw a kernel on the frame done",
                          .rows = bench.rows,
                          .not_measured = bench.left_out,
                          .extra = {{"paths", bench.paths}}});
  bench::print_table(measured, info.software);
  report["modes"].push_back(measured);
  const Verdict verdict = judge(bench, report);
  if (!options.json_file.empty()) {
    std::ofstream out(options.json_file);
    out << report.dump(1) << '\n';
    if (!out.flush()) throw std::runtime_error("cannot write " + options.json_file);
  }
  if (!options.check || verdict == Verdict::met) return 0;
  return verdict == Verdict::missed ? exit_missed : exit_waived;
}

}  // namespace
}  // namespace sink_bench

int main(int argc, char** argv) {
  CLI::App app{"gpumapsink copying an upstream's own frames, beside cudaupload"};
  sink_bench::Options options;
  app.add_option("--device", options.device, "GPU: auto, an index, a UUID or a PCI address");
  app.add_option("--sizes", options.sizes, "Frame sizes, NV12, such as 1920x1080,3840x2160")->delimiter(',');
  app.add_option("--sink", options.sinks, "Properties of gpumapsink, such as 'copy-threads=4'; again for another row");
  app.add_option("--frames", options.frames, "Frames that count")->check(CLI::Range(1, 10'000'000));
  app.add_option("--warmup", options.warmup, "Frames before them, that do not count");
  app.add_flag("--quick", options.quick, "64x64 and 1920x1080, few frames, a small source: does it run?");
  app.add_option("--json", options.json_file, "Write the figures there");
  app.add_option("--commit", options.commit, "Commit to note in the JSON");
  app.add_flag("--check", options.check, "Exit 1 when the target is missed, 77 when there is nothing to compare with");
  CLI11_PARSE(app, argc, argv);
  if (options.quick) {
    options.sizes = {"64x64", "1920x1080"};
    options.frames = 10;
    options.warmup = 3;
  }
  gst_init(nullptr, nullptr);
  gst_plugin_register_static(GST_VERSION_MAJOR, GST_VERSION_MINOR, "gpumap-static", "gpumap's elements",
                             gpumap_register_elements, GPUMAP_VERSION, "MIT/X11", "gpumap", "gpumap",
                             "Unknown package origin");
  try {
    return sink_bench::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "sink-bench: {}\n", error.what());
    return 1;
  }
}
