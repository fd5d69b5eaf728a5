// SPDX-License-Identifier: MIT
//
// The loop through gpumapsink, gpumapsrc and gpumapkernel: pixels in, commands out, and back to the mirror; and what a
// run amounts to. Started by the command `run` beside it.
#include <gst/gst.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "checker.hpp"
#include "gpumap/latency.hpp"

namespace {

using namespace adaptive_optics;

/// Frames at the beginning whose times do not count: memory is made, clocks rise, and the loop closes.
constexpr std::uint64_t warm_up = 100;
std::atomic<bool> interrupted{false};

struct Options {
  std::filesystem::path kernel, out = ".";
  std::string size = "extreme";
  std::uint64_t frames = 0;  ///< 0: by the size
  std::vector<std::string> modes{"launch"};
  unsigned blocks = 528, load = 0;
};

/// One frame on its way around the loop.
struct Frame {
  std::vector<std::uint16_t> pixels;
  std::vector<float> commands;
  Wavefront wavefront{};
  std::int64_t sent_ns = 0, seen_ns = 0;  ///< handed to gpumapsink; its commands in the CPU's memory
};

/// The pipeline. The thread that calls is the sensor's, which sends; the pipeline's own brings commands.
class Loop {
 public:
  Loop(const std::string& description, const Size& size, unsigned spin_us) : spin_ns_(std::int64_t{1000} * spin_us) {
    for (Frame& one : frames_) {
      one.pixels.resize(static_cast<std::size_t>(size.width()) * size.height());
      one.commands.resize(size.actuators);
    }
    GError* error = nullptr;
    pipeline_ = gst_parse_launch(description.c_str(), &error);
    if (error != nullptr) throw std::runtime_error(fmt::format("{} (is GST_PLUGIN_PATH set?)", error->message));
    bus_ = gst_element_get_bus(pipeline_);
    GstElement *sensor = gst_bin_get_by_name(GST_BIN(pipeline_), "sensor"),
               *mirror = gst_bin_get_by_name(GST_BIN(pipeline_), "mirror");
    gst_pad_add_probe(GST_PAD(mirror->sinkpads->data), GST_PAD_PROBE_TYPE_BUFFER, answer, this, nullptr);
    gst_pad_link(pad_, GST_PAD(sensor->sinkpads->data));
    gst_object_unref(mirror);
    gst_object_unref(sensor);
    gst_pad_set_active(pad_, TRUE);
    check(gst_element_set_state(pipeline_, GST_STATE_PLAYING) != GST_STATE_CHANGE_FAILURE);
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    GstCaps* caps =
        gst_caps_new_simple("video/x-raw", "format", G_TYPE_STRING, "GRAY16_LE", "width", G_TYPE_INT, size.width(),
                            "height", G_TYPE_INT, size.height(), "framerate", GST_TYPE_FRACTION, 0, 1, nullptr);
    gst_pad_push_event(pad_, gst_event_new_stream_start("wavefront-sensor"));
    gst_pad_push_event(pad_, gst_event_new_caps(caps));
    gst_pad_push_event(pad_, gst_event_new_segment(&segment));
    gst_caps_unref(caps);
  }
  ~Loop() {
    gst_element_set_state(pipeline_, GST_STATE_NULL);
    gst_pad_set_active(pad_, FALSE);
    for (gpointer object : {gpointer(bus_), gpointer(pad_), gpointer(pipeline_)}) gst_object_unref(object);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  [[nodiscard]] Frame& frame(std::uint64_t number) { return frames_[number % frames_.size()]; }

  /// gpumapsink copies the pixels into GPU memory.
  void send(Frame& exposed) {
    GstBuffer* buffer = gst_buffer_new_memdup(exposed.pixels.data(), 2 * exposed.pixels.size());
    exposed.sent_ns = gpumap::monotonic_ns();
    check(gst_pad_push(pad_, buffer) == GST_FLOW_OK);
  }

  /// Until so many frames have come back: first awake, then asleep. Throws what an element said of an error.
  void wait_for(std::uint64_t count) {
    const std::int64_t until = gpumap::monotonic_ns() + spin_ns_;
    // Ends: a frame comes back, or an element posts an error, at the latest when the kernel's `timeout` is over.
    while (answered_ < count) {
      if (gpumap::monotonic_ns() > until) throw_error(20 * GST_USECOND);
    }
    const std::size_t wanted = 4 * frames_[0].commands.size();
    if (count == 0 || bytes_ == wanted) return;
    throw std::runtime_error(fmt::format("{} bytes of commands came, not {}", bytes_.load(), wanted));
  }

 private:
  void throw_error(GstClockTime patience) {
    GstMessage* message = gst_bus_timed_pop_filtered(bus_, patience, GST_MESSAGE_ERROR);
    if (message == nullptr) return;
    GError* error = nullptr;
    gst_message_parse_error(message, &error, nullptr);
    throw std::runtime_error(fmt::format("{}: {}", GST_MESSAGE_SRC_NAME(message), error->message));
  }
  /// What an element says tells more than what came of it here.
  void check(bool done) {
    if (done) return;
    throw_error(200 * GST_MSECOND);
    throw std::runtime_error("the pipeline takes no frames: GST_DEBUG=3 says more");
  }

  static GstPadProbeReturn answer(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer loop) {
    auto& self = *static_cast<Loop*>(loop);
    Frame& sent = self.frame(self.answered_);
    const std::size_t bytes = 4 * sent.commands.size();
    self.bytes_ = gst_buffer_extract(GST_PAD_PROBE_INFO_BUFFER(info), 0, sent.commands.data(), bytes);
    sent.seen_ns = gpumap::monotonic_ns();
    ++self.answered_;
    return GST_PAD_PROBE_OK;
  }

  const std::int64_t spin_ns_;
  GstElement* pipeline_ = nullptr;
  GstBus* bus_ = nullptr;
  GstPad* pad_ = GST_PAD(gst_object_ref_sink(gst_pad_new("pixels", GST_PAD_SRC)));
  std::array<Frame, 2> frames_;
  std::atomic<std::size_t> bytes_{0};       ///< of the last commands
  std::atomic<std::uint64_t> answered_{0};  ///< frames that came back
};

/// Processes that keep a CPU and its caches busy each, until this one ends.
void make_load(unsigned processes) {
  for (unsigned i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error(fmt::format("--load: the system refuses process {}", i + 1));
    if (child > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::signal(SIGINT, SIG_IGN);                                             // Ctrl-C is for the parent
    static std::array<volatile std::uint32_t, std::size_t{1} << 20U> memory;  // more than a core's own caches hold
    for (std::size_t at = 0;; at += 16) memory[at % memory.size()] = memory[at % memory.size()] + 1;
  }
}

void write(const std::filesystem::path& path, const void* bytes, std::size_t count) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

void run(const Options& options) {
  make_load(options.load);  // before there are threads
  gst_init(nullptr, nullptr);
  struct sigaction action {};
  action.sa_handler = [](int /*signal*/) { interrupted = true; };  // a second one ends the program
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  std::string told;
  const auto tell = [&](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
    told += line + '\n';
    write(options.out / "summary.txt", told.data(), told.size());
  };

  const bool small = options.size == "small";
  const Size size = small ? small_size : extreme_size;
  const unsigned spin_us = small ? 0 : 1000;
  const std::uint64_t frames = options.frames != 0 ? options.frames : small ? 2000 : 1'000'000;
  Telescope telescope(size, 1);
  const Tables tables = telescope.calibrate();
  tell(fmt::format("system           {} pixels in the light, {} modes, {} actuators", size.measurements, size.modes(),
                   size.actuators));
  std::string declare = fmt::format("grid {}", size.modes());
  const auto add_table = [&](const char* name, const auto& numbers) {
    const auto path = std::filesystem::absolute(options.out / name);
    write(path, numbers.data(), numbers.size() * sizeof numbers[0]);
    declare += fmt::format("; table {}={}", name, path.string());
  };
  add_table("pixels", tables.pixels);
  add_table("reconstructor", tables.reconstructor.numbers);
  add_table("modes", tables.modes.numbers);

  for (const std::string& mode : options.modes) {
    if (interrupted) break;
    tell(fmt::format("kernel           {}, {}{}", options.kernel.filename().string(),
                     mode == "resident" ? "which stays on the GPU" : "launched for each frame",
                     options.load > 0 ? fmt::format(", beside {} busy processes", options.load) : ""));
    Loop loop(
        fmt::format("gpumapsink name=sensor busy-poll={0}  gpumapsrc busy-poll={0} ! gpumapkernel location=\"{1}\" "
                    "declare=\"{2}\" params=actuators={3} mode={4} resident-blocks={5} ! "
                    "application/x-mirror-commands ! fakesink name=mirror sync=false async=false",
                    spin_us, options.kernel.string(), declare, size.actuators, mode, options.blocks),
        size, spin_us);
    Checker checker{tables, size.width()};
    gpumap::Histogram times;
    std::string wavefronts;
    double air = 0, residual = 0, seconds = 0;
    std::int64_t began_ns = 0;
    std::uint64_t number = 0, next_told = 0;
    // While the GPU works on one frame, the sensor takes the light of the next one: what comes of a frame moves the
    // mirror before the frame after the next.
    for (bool over = false; !over; ++number) {
      over = number == frames || interrupted;
      Frame& next = loop.frame(number);
      if (!over) next.wavefront = telescope.expose(next.pixels);
      loop.wait_for(number);
      const Frame& came = loop.frame(number + 1);  // of two: the one before
      if (number > 0) telescope.correct(came.commands);
      if (!over) loop.send(next);
      if (number == 0) continue;
      checker.check(number - 1, came.pixels, came.commands);
      if (number >= next_told) {  // each of the first frames, then ever fewer
        wavefronts += fmt::format("{} {:.5g} {:.5g}\n", number, came.wavefront.of_air, came.wavefront.residual);
        next_told = number + 1 + number / 200;
      }
      if (number <= warm_up) continue;
      if (began_ns == 0) began_ns = came.sent_ns;
      times.add(came.seen_ns - came.sent_ns);
      air += std::pow(came.wavefront.of_air, 2);
      residual += std::pow(came.wavefront.residual, 2);
      seconds = 1e-9 * static_cast<double>(came.seen_ns - began_ns);
      if (number % 256 == 0 && isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K  {} frames\r", number);
    }
    --number;
    checker.finish();
    if (interrupted) tell(fmt::format("Ended by the user after {} frames.", number));
    if (number <= warm_up) throw std::runtime_error(fmt::format("no figures: {} frames do not count", warm_up));

    const gpumap::Percentiles found = times.percentiles();
    const auto counted = static_cast<double>(found.count);
    const auto us = [](auto ns) { return static_cast<double>(ns) / 1000; };
    double squares = 0;
    std::uint64_t late = 0;
    std::map<long, std::uint64_t> columns;  // of what lies within 2% of a time
    for (const auto& [time_ns, count] : times.counts()) {
      squares += static_cast<double>(count) * std::pow(static_cast<double>(time_ns) - found.mean, 2);
      if (time_ns > found.p50 + 50'000) late += count;
      columns[std::lround(std::log(us(time_ns)) / std::log(1.02))] += count;
    }
    std::string lines;
    for (const auto& [column, count] : columns) lines += fmt::format("{:.4g} {}\n", std::pow(1.02, column), count);
    write(options.out / fmt::format("latency-{}.txt", mode), lines.data(), lines.size());
    write(options.out / "wavefront.txt", wavefronts.data(), wavefronts.size());
    tell(fmt::format("frames           {} in {:.2f} s, {} before them do not count", found.count, seconds, warm_up));
    tell(fmt::format("rate             {:.0f} frames/s", counted / seconds));
    tell(fmt::format("latency          P50 {:.1f} us, P99 {:.1f} us, P99.9 {:.1f} us, max {:.1f} us", us(found.p50),
                     us(found.p99), us(found.p999), us(found.max)));
    tell(fmt::format("jitter           {:.2f} us RMS", us(std::sqrt(squares / counted))));
    tell(fmt::format("late             {} frames came more than 50 us after the median", late));
    tell(fmt::format(
        "checked          each command of {}{} frames: the largest error of a command is {:.4f} of its bound",
        checker.checks_each() ? "all " : "", checker.frames, checker.worst_of_bound));
    tell(fmt::format("wavefront error  {:.0f} nm RMS with a flat mirror, {:.0f} nm RMS with the loop closed",
                     std::sqrt(air / counted), std::sqrt(residual / counted)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Close a loop of adaptive optics through the GPU: pixels to measurements to modes to commands.");
  app.set_version_flag("--version", "gpumap-adaptive-optics " GPUMAP_VERSION);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--out", options.out, "Folder for the results")->check(CLI::ExistingDirectory);
  app.add_option("--kernel", options.kernel, "commands.cu or commands.comp")->check(CLI::ExistingFile)->required();
  app.add_option("--size", options.size, "extreme: 6827 x 1089 and 1089 x 1833; small: 227 x 49 and 49 x 89 [extreme]")
      ->check(CLI::IsMember({"extreme", "small"}));
  app.add_option("--frames", options.frames, "Frames to run for [1000000; of small 2000]")
      ->check(CLI::Range(std::uint64_t{200}, std::uint64_t{1} << 40U));
  app.add_option("--mode", options.modes, "How frames come to the kernel, in turn: launch,resident [launch]")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::IsMember({"launch", "resident"}));
  app.add_option("--blocks", options.blocks, "Blocks of a kernel that stays [528: 4 for a multiprocessor of an H100]")
      ->check(CLI::Range(0U, 65535U));
  app.add_option("--load", options.load, "Processes beside it that keep a CPU busy each [0]")
      ->check(CLI::Range(0U, 4096U));
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpumap-adaptive-optics: {}\n", error.what());
    return 1;
  }
  return 0;
}
