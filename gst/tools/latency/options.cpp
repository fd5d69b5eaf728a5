// SPDX-License-Identifier: MIT
#include "gst/tools/latency/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <gpumap/memory.hpp>
#include <sstream>

namespace latency {
namespace {

constexpr std::size_t largest_frame = std::size_t{1} << 32;

struct Named {
  std::string_view name;
  int width, height;
};
constexpr std::array pictures{Named{"480p", 640, 480},    Named{"720p", 1280, 720},   Named{"1080p", 1920, 1080},
                              Named{"1440p", 2560, 1440}, Named{"2160p", 3840, 2160}, Named{"4K", 3840, 2160},
                              Named{"8K", 7680, 4320}};

FrameKind picture(const std::string& name, int width, int height) {
  return {.name = name,
          .bytes = static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3 / 2,
          .width = width,
          .height = height};
}

/// The number that `text` begins with; what follows it stays.
template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

std::size_t factor_of(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1;
  if (unit == "kB") return 1000;
  if (unit == "MB") return 1'000'000;
  if (unit == "KiB") return std::size_t{1} << 10;
  if (unit == "MiB") return std::size_t{1} << 20;
  return 0;
}

/// As GStreamer writes fractions.
std::string framerate(double rate) {
  if (rate <= 0) rate = 30;
  // What has more digits is given by as many as a fraction of GStreamer's has room for.
  constexpr double most = 2000;
  const double thousands = rate * 1000;
  const int unit = std::abs(thousands - std::round(thousands)) < 1e-6 || rate > most ? 1000 : 1'000'000;
  return fmt::format("{}/{}", std::llround(rate * unit), unit);
}

void replace_all(std::string& text, std::string_view what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

std::size_t times_in(const std::string& text, std::string_view what) {
  std::size_t times = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++times;
  return times;
}

/// What gpumapsink and gpumapupload have in common.
std::string slots_of(const Case& which, const Options& options) {
  return fmt::format("device={} slots={} busy-poll={} stamps={}", options.device, options.slots,
                     which.spin ? options.spin_us : 0, options.stamps);
}

/// `one` in all modes.
void add_cases(std::vector<Case>& cases, Case one, const Options& options) {
  // The rival has no ring whose two sides could spin. What is paced spins until a frame is due, so that it is as
  // punctual as what it is compared with.
  const std::vector<std::string> never{"sleep"};
  // CUDA's streams order the rival's frames, and a kernel that stays is on none.
  const std::vector<std::string> launched{"launch"};
  for (const std::string& fence : one.is_rival() && !options.paced() ? never : options.fences) {
    one.spin = fence == "spin";
    for (const std::string& mode : one.is_rival() ? launched : options.modes) {
      one.resident = mode == "resident";
      for (const std::string& number : options.processes) {
        one.processes = number == "2" ? 2U : 1U;
        cases.push_back(one);
      }
    }
  }
}

/// Those in a row, as in "blur.cu+checksum".
std::vector<std::string> kernels_of(const std::string& kernel) {
  std::vector<std::string> made;
  std::istringstream in(kernel);
  for (std::string one; std::getline(in, one, '+');) made.push_back(one);
  return made;
}

/// A built-in kernel's name has no ending.
bool is_file(std::string_view kernel) {
  return kernel.find_first_of("./") != std::string_view::npos;
}

std::string kernel_element(std::string_view kernel, const Case& which, const Options& options) {
  constexpr std::string_view element = "gst:";
  if (kernel.starts_with(element)) return std::string(kernel.substr(element.size()));
  return fmt::format("gpumapkernel device={} {} mode={}", options.device,
                     is_file(kernel) ? fmt::format("location=\"{}\"", kernel) : fmt::format("kernel={}", kernel),
                     which.resident ? "resident" : "launch");
}

/// A kernel without a result of its own is waited for when its output is to be in ordinary memory. Frames that were
/// only looked at are to stay where they are.
std::string output_caps(std::string_view kernel, const Options& options) {
  if (options.output.find('/') != std::string::npos) return options.output;
  const bool on_gpu = options.output.empty() ? kernel == "checksum" || is_file(kernel) : options.output == "gpu";
  std::string caps;
  for (const char* media : {"video/x-raw", "audio/x-raw", "application/octet-stream", "application/x-tensor"}) {
    caps += fmt::format("{}{}{}", caps.empty() ? "" : ";", media, on_gpu ? "(memory:GPUMap)" : "");
  }
  return caps;
}

}  // namespace

FrameKind parse_frame(const std::string& text) {
  for (const Named& one : pictures) {
    if (text == one.name) return picture(text, one.width, one.height);
  }
  std::string_view left = text;
  std::size_t number = 0;
  if (take_number(left, number) && number > 0 && number <= largest_frame) {
    int height = 0;
    if (left.starts_with('x')) {
      left.remove_prefix(1);
      // NV12 has one pair of colours for two by two pixels.
      if (take_number(left, height) && left.empty() && height > 0 && number <= 32768 && height <= 32768 &&
          number % 2 == 0 && height % 2 == 0) {
        return picture(text, static_cast<int>(number), height);
      }
    } else if (const std::size_t factor = factor_of(left); factor != 0 && number <= largest_frame / factor) {
      return {.name = text, .bytes = number * factor};
    }
  }
  throw UsageError(fmt::format(
      "no size of frames: \"{}\"; bytes are given as 64B, 4KiB or 1MiB, video as 1080p, 4K or 640x480 (even numbers)",
      text));
}

std::string caps_of(const FrameKind& kind, double rate) {
  if (kind.is_video()) {
    return fmt::format("video/x-raw,format=NV12,width={},height={},framerate={}", kind.width, kind.height,
                       framerate(rate));
  }
  constexpr std::size_t sample = 4;  // I and Q of 16 bits
  if (kind.bytes % sample != 0) return "application/octet-stream";
  const double samples = static_cast<double>(kind.bytes) / sample;
  const auto a_second = std::clamp<long long>(std::llround(samples * (rate > 0 ? rate : 30)), 1, 2'000'000'000);
  return fmt::format("audio/x-raw,format=S16LE,layout=interleaved,channels=2,rate={}", a_second);
}

std::string as_rgba(const FrameKind& kind, double rate) {
  if (kind.is_video()) return caps_of(kind, rate);
  if (kind.bytes % 4 != 0) return {};
  const std::size_t pixels = kind.bytes / 4;
  std::size_t height = 1;
  while (pixels % (2 * height) == 0 && 4 * height * height <= pixels) height *= 2;
  return fmt::format("video/x-raw,format=RGBA,width={},height={},framerate={}", pixels / height, height,
                     framerate(rate));
}

std::vector<std::string> transport_names() {
  std::vector<std::string> names;
  for (const gpumap::Transport one : gpumap::all_transports) names.emplace_back(gpumap::to_string(one));
  return names;
}

std::string Case::kernel_title() const {
  std::string made;
  for (const std::string& one : kernels_of(kernel)) {
    made += (made.empty() ? "" : "+") + (is_file(one) ? std::filesystem::path(one).stem().string() : one);
  }
  return made;
}

void fill_in_defaults(Options& options) {
  for (auto* const list :
       {&options.frames, &options.transports, &options.fences, &options.modes, &options.kernels, &options.processes}) {
    std::vector<std::string> once;
    for (const std::string& one : *list) {
      if (std::find(once.begin(), once.end(), one) == once.end()) once.push_back(one);
    }
    *list = std::move(once);
  }
  const bool two = std::find(options.processes.begin(), options.processes.end(), "2") != options.processes.end();
  if (options.frames.empty()) options.frames = {"4KiB", "1080p"};
  if (options.fences.empty()) options.fences = {"sleep"};
  if (options.modes.empty()) options.modes = {"launch"};
  if (options.kernels.empty()) options.kernels = {"checksum"};
  if (options.processes.empty()) options.processes = {"1"};
  if (options.transports.empty()) {
    options.transports = two ? std::vector<std::string>{"bar"} : transport_names();
    if (!two && options.pipeline.empty()) {
      options.transports.emplace_back(upload_name);
      options.transports.emplace_back(rival_name);
    }
  }
  if (options.html_file.empty() && options.json_file.empty() && options.csv_file.empty()) {
    options.html_file = "gpumap-latency.html";
  }
}

std::vector<Case> cases_of(const Options& options) {
  if (!options.pipeline.empty() && (options.paced() || options.in_flight >= 0)) {
    throw UsageError(
        "--rate and --in-flight are of frames that this program makes: a line of --pipeline is paced by its source, as "
        "by is-live=true, and by its own queues");
  }
  for (const std::string& number : options.processes) {
    if (number != "1" && number != "2") {
      throw UsageError(
          fmt::format("--processes {}: it is 1 (all in one process), 2 (gpumapsink in one, gpumapsrc in another), or "
                      "1,2 (in turns)",
                      number));
    }
    if (number == "1") continue;
    for (const std::string& transport : options.transports) {
      if (transport == "bar") continue;
      throw UsageError(fmt::format(
          "--processes 2 with --transports {}: only the memory of bar can be shared between processes; measure {} in a "
          "run of its own",
          transport, transport));
    }
    if (!options.pipeline.empty()) static_cast<void>(split(options.pipeline));
  }
  std::vector<FrameKind> frames;
  if (!options.pipeline.empty()) {
    frames.push_back({.name = "pipeline"});
  } else {
    for (const std::string& text : options.frames) frames.push_back(parse_frame(text));
  }
  std::vector<Case> cases;
  for (const FrameKind& frame : frames) {
    for (const std::string& transport : options.transports) {
      for (const std::string& kernel : options.kernels) {
        add_cases(
            cases,
            {.frame = frame, .transport = transport, .kernel = kernel, .names_kernel = options.kernels.size() > 1},
            options);
      }
    }
  }
  return cases;
}

void check_placeholders(const std::string& line) {
  std::string wrong;
  for (const std::string_view name : {"{sink}", "{src}"}) {
    const std::size_t times = times_in(line, name);
    if (times == 0) wrong += fmt::format("--pipeline has no {}. ", name);
    if (times > 1) wrong += fmt::format("--pipeline has {} {} times. ", name, times);
  }
  if (wrong.empty()) return;
  throw UsageError(wrong +
                   "{sink} is where gpumapsink goes and {src} where gpumapsrc goes, once each, as in\n"
                   "  gpumap-latency --pipeline \"videotestsrc num-buffers=300 ! video/x-raw,format=NV12 ! {sink}  "
                   "{src} ! gpumapkernel kernel=checksum ! fakesink sync=false\"");
}

SplitLine split(const std::string& line) {
  const std::size_t at = line.find("{src}");
  if (line.find("{sink}") > at) {
    throw UsageError(
        "--processes 2 gives what stands before {src} to the producer's process and the rest to the other: --pipeline "
        "has to have {sink} before {src}");
  }
  return {line.substr(0, at), line.substr(at)};
}

std::string expand(const std::string& line, const Case& which, const Options& options, const std::string& meeting) {
  std::string where = "channel=" + meeting;
  if (which.processes == 2) {
    where = "socket-path=\"";
    for (const char c : meeting) where += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    where += '"';
  }
  const unsigned busy_poll = which.spin ? options.spin_us : 0;
  std::string made = line;
  // No frame is lost because nobody has connected yet: all that are sent are measured.
  replace_all(
      made, "{sink}",
      fmt::format("gpumapsink name=latency-sink {}{} transport={} {}", where,
                  which.processes == 2 ? " wait-for-connection=true" : "", which.transport, slots_of(which, options)));
  replace_all(made, "{src}", fmt::format("gpumapsrc name=latency-src {} busy-poll={}", where, busy_poll));
  return made;
}

std::string own_line(const Case& which, const Options& options, std::size_t frames) {
  std::string line;
  if (options.upstream == "videotestsrc") {
    line = fmt::format("videotestsrc pattern=black is-live={} num-buffers={} ! {} ! ", options.paced(), frames,
                       caps_of(which.frame, options.rate));
  }
  if (which.is_rival()) {
    line += "cudaupload name=latency-sink ! video/x-raw(memory:CUDAMemory) ! ";
  } else if (which.is_upload()) {
    line += fmt::format("gpumapupload name=latency-sink {} ! ", slots_of(which, options));
  } else {
    // It plays before there is a frame: then running time 0 is known, from which it is told when each frame is due.
    line += "{sink} async=false  {src} ! ";
  }
  const std::string end = "fakesink name=latency-end sync=false async=false enable-last-sample=false";
  if (which.kernel == "none") return line + end;
  std::string last;
  for (const std::string& one : kernels_of(which.kernel)) {
    last = one;
    line += kernel_element(one, which, options) + " ! ";
  }
  return line + fmt::format("capsfilter caps=\"{}\" ! ", output_caps(last, options)) + end;
}

}  // namespace latency
