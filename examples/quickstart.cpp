// SPDX-License-Identifier: MIT
//
// Three pipelines through the GPU, timed: generated video, a photograph and a radio recording. Uses the elements by
// name and nothing else of gpumap, as any GStreamer application would. Run by the command beside it, which builds the
// plugin and finds the inputs.
#include <fmt/format.h>
#include <gst/gst.h>
#include <gst/video/video.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using ElementPtr = std::unique_ptr<GstElement, Deleter<gst_object_unref>>;
using PadPtr = std::unique_ptr<GstPad, Deleter<gst_object_unref>>;
using BusPtr = std::unique_ptr<GstBus, Deleter<gst_object_unref>>;
using MessagePtr = std::unique_ptr<GstMessage, Deleter<gst_message_unref>>;
using CapsPtr = std::unique_ptr<GstCaps, Deleter<gst_caps_unref>>;
using SamplePtr = std::unique_ptr<GstSample, Deleter<gst_sample_unref>>;
using StructurePtr = std::unique_ptr<GstStructure, Deleter<gst_structure_free>>;
using ErrorPtr = std::unique_ptr<GError, Deleter<g_error_free>>;
using TextPtr = std::unique_ptr<char, Deleter<g_free>>;

struct Job {
  std::string title;
  std::string before;         ///< what feeds gpumapsink
  std::string after;          ///< from gpumapkernel on, its end named "result"
  std::uint64_t frames = 0;   ///< expected, for the progress line; 0 when unknown
  std::filesystem::path png;  ///< where the last frame goes; empty for none
};

/// When each frame passed each place. Frames neither overtake nor get lost (leaky=no), so the nth is the nth anywhere.
/// Thread safety: places are filled by different streaming threads, hence the mutex.
class Stages {
 public:
  enum Stage { produce, publish, hand_over, kernel, count };

  void arrived_at_sink() {
    const std::scoped_lock lock(mutex_);
    if (idle_since_ != Clock::time_point{}) add(produce, idle_since_);
    entered_sink_ = Clock::now();
  }
  void left_sink() {
    const std::scoped_lock lock(mutex_);
    idle_since_ = Clock::now();
    add(publish, entered_sink_);
    published_.push_back(idle_since_);
  }
  void arrived_at_kernel() {
    const std::scoped_lock lock(mutex_);
    const auto now = Clock::now();
    // The consumer may take a frame before the sink has returned from publishing it: that is a hand-over of 0.
    if (launched_.size() < published_.size()) {
      add(hand_over, published_[launched_.size()]);
    } else {
      samples_[hand_over].push_back(0.0);
    }
    launched_.push_back(now);
  }
  void result_readable() {
    const std::scoped_lock lock(mutex_);
    if (results_ < launched_.size()) add(kernel, launched_[results_]);
    ++results_;
  }
  [[nodiscard]] std::uint64_t results() const {
    const std::scoped_lock lock(mutex_);
    return results_;
  }
  /// Microseconds; the median, because the first frame also pays for compiling and allocating.
  [[nodiscard]] double median(Stage stage) const {
    const std::scoped_lock lock(mutex_);
    auto samples = samples_[stage];
    if (samples.empty()) return 0.0;
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
  }

 private:
  void add(Stage stage, Clock::time_point since) {
    samples_[stage].push_back(std::chrono::duration<double, std::micro>(Clock::now() - since).count());
  }

  mutable std::mutex mutex_;
  Clock::time_point entered_sink_;
  Clock::time_point idle_since_;
  std::vector<Clock::time_point> published_;
  std::vector<Clock::time_point> launched_;
  std::uint64_t results_ = 0;
  std::vector<double> samples_[count];
};

struct Result {
  std::string title;
  std::string device = "?";
  std::string transport = "?";
  std::uint64_t frames = 0;
  std::uint64_t zero_copy = 0;
  std::uint64_t copied = 0;
  std::uint64_t drops = 0;
  double median_us[Stages::count] = {};
};

PadPtr sink_pad(GstElement* pipeline, const char* name) {
  const ElementPtr element(gst_bin_get_by_name(GST_BIN(pipeline), name));
  PadPtr pad(element ? gst_element_get_static_pad(element.get(), "sink") : nullptr);
  if (!pad) throw std::runtime_error(fmt::format("no sink pad on '{}'", name));
  return pad;
}

/// A probe sees a buffer arrive but not the call return, and what upstream takes for the next frame begins there. So
/// the sink's chain function is wrapped.
struct SinkTimer {
  GstPadChainFunction chain = nullptr;
  Stages* stages = nullptr;

  static GstFlowReturn timed(GstPad* pad, GstObject* parent, GstBuffer* buffer) {
    const auto* self = static_cast<const SinkTimer*>(pad->chaindata);
    self->stages->arrived_at_sink();
    const GstFlowReturn flow = self->chain(pad, parent, buffer);
    self->stages->left_sink();
    return flow;
  }
};

GstPadProbeReturn on_kernel_input(GstPad*, GstPadProbeInfo*, gpointer stages) {
  static_cast<Stages*>(stages)->arrived_at_kernel();
  return GST_PAD_PROBE_OK;
}

/// Work on a GPU may still run when its buffer is pushed: mapping it for reading waits for the end and brings the
/// bytes.
GstPadProbeReturn on_result(GstPad*, GstPadProbeInfo* info, gpointer stages) {
  GstBuffer* buffer = GST_PAD_PROBE_INFO_BUFFER(info);
  GstMapInfo map;
  if (gst_buffer_map(buffer, &map, GST_MAP_READ)) gst_buffer_unmap(buffer, &map);
  static_cast<Stages*>(stages)->result_readable();
  return GST_PAD_PROBE_OK;
}

void show_progress(const Job& job, std::uint64_t frames, bool last) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (!terminal && !last) return;
  const std::string of = job.frames > 0 ? fmt::format("/{}", job.frames) : "";
  fmt::print(stderr, "{}  {:<34} {}{} frames{}", terminal ? "\r" : "", job.title, frames, of, last ? "\n" : "");
  std::fflush(stderr);
}

/// Until the end of the stream. Throws on an error, and when nothing moves for a minute.
void wait_for_end(GstElement* pipeline, const Job& job, const Stages& stages) {
  const BusPtr bus(gst_element_get_bus(pipeline));
  std::uint64_t seen = 0;
  auto moved = Clock::now();
  for (;;) {
    const MessagePtr message(gst_bus_timed_pop_filtered(
        bus.get(), 200 * GST_MSECOND, static_cast<GstMessageType>(GST_MESSAGE_EOS | GST_MESSAGE_ERROR)));
    const std::uint64_t frames = stages.results();
    show_progress(job, frames, message != nullptr);
    if (message && GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_EOS) return;
    if (message) {
      GError* error = nullptr;
      char* debug = nullptr;
      gst_message_parse_error(message.get(), &error, &debug);
      const ErrorPtr owned(error);
      const TextPtr text(debug);
      throw std::runtime_error(fmt::format("{}: {}\n{}", GST_MESSAGE_SRC_NAME(message.get()), error->message,
                                           debug != nullptr ? debug : ""));
    }
    if (frames != seen) {
      seen = frames;
      moved = Clock::now();
    } else if (Clock::now() - moved > std::chrono::minutes(1)) {
      throw std::runtime_error(fmt::format("{}: no frame for a minute, after {}", job.title, frames));
    }
  }
}

void write_png(GstElement* pipeline, const std::filesystem::path& path) {
  const ElementPtr element(gst_bin_get_by_name(GST_BIN(pipeline), "result"));
  GstSample* last = nullptr;
  g_object_get(element.get(), "last-sample", &last, nullptr);
  const SamplePtr frame(last);
  if (!frame) throw std::runtime_error("no last frame to write to " + path.string());
  const CapsPtr png(gst_caps_new_empty_simple("image/png"));
  GError* error = nullptr;
  const SamplePtr encoded(gst_video_convert_sample(frame.get(), png.get(), 30 * GST_SECOND, &error));
  const ErrorPtr owned(error);
  if (!encoded) throw std::runtime_error(fmt::format("{}: {}", path.string(), error != nullptr ? error->message : "?"));
  GstBuffer* buffer = gst_sample_get_buffer(encoded.get());
  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) throw std::runtime_error("cannot read the encoded picture");
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(map.data), static_cast<std::streamsize>(map.size));
  gst_buffer_unmap(buffer, &map);
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

void read_stats(GstElement* pipeline, Result& result) {
  const ElementPtr sink(gst_bin_get_by_name(GST_BIN(pipeline), "sink"));
  GstStructure* raw = nullptr;
  g_object_get(sink.get(), "stats", &raw, nullptr);
  const StructurePtr stats(raw);
  if (!stats) return;
  const auto number = [&](const char* field) {
    guint64 value = 0;
    gst_structure_get_uint64(stats.get(), field, &value);
    return value;
  };
  const auto text = [&](const char* field) {
    const char* value = gst_structure_get_string(stats.get(), field);
    return std::string(value != nullptr ? value : "?");
  };
  result.device = text("device");
  result.transport = text("transport");
  result.frames = number("frames");
  result.zero_copy = number("zero-copy-frames");
  result.copied = number("copied-frames");
  result.drops = number("drops");
}

Result run(const Job& job) {
  const std::string description = fmt::format("{} ! gpumapsink name=sink  gpumapsrc ! {}", job.before, job.after);
  fmt::print(stderr, "\n  gst-launch-1.0 {}\n", description);
  GError* error = nullptr;
  const ElementPtr pipeline(gst_parse_launch(description.c_str(), &error));
  const ErrorPtr owned(error);
  if (error != nullptr) throw std::runtime_error(fmt::format("{} (is GST_PLUGIN_PATH set?)", error->message));

  Stages stages;
  const PadPtr sink = sink_pad(pipeline.get(), "sink");
  SinkTimer timer{GST_PAD_CHAINFUNC(sink.get()), &stages};
  gst_pad_set_chain_function_full(sink.get(), SinkTimer::timed, &timer, nullptr);
  gst_pad_add_probe(sink_pad(pipeline.get(), "kernel").get(), GST_PAD_PROBE_TYPE_BUFFER, on_kernel_input, &stages,
                    nullptr);
  gst_pad_add_probe(sink_pad(pipeline.get(), "result").get(), GST_PAD_PROBE_TYPE_BUFFER, on_result, &stages, nullptr);

  // Streaming threads use `stages` and `timer`: they end before this scope does, whatever happens in it.
  const auto stop = [](GstElement* running) { gst_element_set_state(running, GST_STATE_NULL); };
  const std::unique_ptr<GstElement, decltype(stop)> running(pipeline.get(), stop);
  gst_element_set_state(pipeline.get(), GST_STATE_PLAYING);
  wait_for_end(pipeline.get(), job, stages);

  Result result;
  result.title = job.title;
  read_stats(pipeline.get(), result);
  for (int stage = 0; stage < Stages::count; ++stage) {
    result.median_us[stage] = stages.median(static_cast<Stages::Stage>(stage));
  }
  if (!job.png.empty()) write_png(pipeline.get(), job.png);
  return result;
}

void print_table(const std::vector<Result>& results) {
  fmt::print("\n{:<28} {:<10} {:>6} {:>9} {:>6} {:>5}   {:>9} {:>9} {:>9} {:>11}\n", "", "", "", "", "", "", "produce",
             "publish", "hand over", "kernel+read");
  fmt::print("{:<28} {:<10} {:>6} {:>9} {:>6} {:>5}   {:>9} {:>9} {:>9} {:>11}\n", "input", "transport", "frames",
             "zero-copy", "copied", "drops", "us", "us", "us", "us");
  for (const Result& r : results) {
    fmt::print("{:<28} {:<10} {:>6} {:>9} {:>6} {:>5}   {:>9.0f} {:>9.0f} {:>9.0f} {:>11.0f}\n", r.title, r.transport,
               r.frames, r.zero_copy, r.copied, r.drops, r.median_us[Stages::produce], r.median_us[Stages::publish],
               r.median_us[Stages::hand_over], r.median_us[Stages::kernel]);
  }
  fmt::print("device: {}\n", results.empty() ? "?" : results.front().device);
  fmt::print(
      "Medians. produce: upstream gets a slot and writes the frame into it; publish: gpumapsink, with its one\n"
      "copy when the frame came in other memory; hand over: publish to gpumapkernel; kernel+read: launch until\n"
      "the CPU can read the result.\n");
}

std::string photo_decoder(const std::filesystem::path& photo) {
  return photo.extension() == ".png" ? "pngdec" : "jpegdec";
}

}  // namespace

int main(int argc, char** argv) {
  std::filesystem::path out = ".";
  std::filesystem::path photo;
  std::filesystem::path recording;
  int frames = 300;
  CLI::App app("Run three pipelines through gpumapsink, gpumapsrc and gpumapkernel, and time them.");
  app.set_version_flag("--version", "gpumap-quickstart " GPUMAP_VERSION);
  app.add_option("--out", out, "folder for the results")->check(CLI::ExistingDirectory);
  app.add_option("--photo", photo, "a JPEG or PNG; a generated picture when absent")->check(CLI::ExistingFile);
  app.add_option("--iq", recording, "unsigned 8-bit I and Q at 2 MS/s; a generated signal when absent")
      ->check(CLI::ExistingFile);
  app.add_option("--frames", frames, "frames of video")->check(CLI::Range(1, 1000000));
  CLI11_PARSE(app, argc, argv);
  gst_init(nullptr, nullptr);

  const std::string convert =
      "gpumapkernel name=kernel kernel=convert ! video/x-raw,format=RGBA ! fakesink name=result sync=false";
  const std::string picture = photo.empty()
                                  ? "videotestsrc num-buffers=1 pattern=zone-plate ! video/x-raw,width=1920,height=1080"
                                  : fmt::format("filesrc location=\"{}\" ! {}", photo.string(), photo_decoder(photo));
  const std::string signal = recording.empty()
                                 ? "audiotestsrc wave=ticks num-buffers=16 samplesperbuffer=32768 freq=150 "
                                   "tick-interval=40000000 sine-periods-per-tick=5 apply-tick-ramp=true ! "
                                   "audio/x-raw,format=U8,rate=2000000,channels=2,layout=interleaved"
                                 : fmt::format(
                                       "filesrc location=\"{}\" blocksize=65536 ! rawaudioparse use-sink-caps=false "
                                       "format=pcm pcm-format=u8 sample-rate=2000000 num-channels=2",
                                       recording.string());
  const std::vector<Job> jobs = {
      {"video 1080p NV12",
       fmt::format("videotestsrc num-buffers={} ! video/x-raw,format=NV12,width=1920,height=1080,framerate=30/1",
                   frames),
       convert, static_cast<std::uint64_t>(frames), out / "video-last-frame.png"},
      {photo.empty() ? "generated picture" : "photograph", picture + " ! videoconvert ! video/x-raw,format=I420",
       convert, 1, out / "photo.png"},
      {recording.empty() ? "generated IQ, 2 MS/s" : "IQ recording, 2 MS/s",
       signal,
       fmt::format("gpumapkernel name=kernel kernel=iq-power ! audio/x-raw,format=F32LE ! "
                   "filesink name=result sync=false location=\"{}\"",
                   (out / "iq-power.f32").string()),
       0,
       {}},
  };
  try {
    std::vector<Result> results;
    results.reserve(jobs.size());
    for (const Job& job : jobs) results.push_back(run(job));
    print_table(results);
  } catch (const std::exception& error) {
    fmt::print(stderr, "\ngpumap-quickstart: {}\n", error.what());
    return 1;
  }
  return 0;
}
