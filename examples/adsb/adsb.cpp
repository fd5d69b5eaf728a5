// SPDX-License-Identifier: MIT
//
// A recording through the kernel adsb, as any GStreamer application would do it: what the kernel found lies in the
// buffers that appsink gives, and how many there are in their meta. Started by the command `run` beside it.
#include <fmt/format.h>
#include <gst/app/gstappsink.h>
#include <gst/gst.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "mode_s.hpp"

namespace {

struct Unref {
  void operator()(GstSample* sample) const { gst_sample_unref(sample); }
  void operator()(GstMessage* message) const { gst_message_unref(message); }
  void operator()(GError* error) const { g_error_free(error); }
  template <typename T>
  void operator()(T* object) const {
    gst_object_unref(object);
  }
};
template <typename T>
using Owned = std::unique_ptr<T, Unref>;

constexpr int sample_rate = 2'000'000;

/// What the kernel found in the block that `buffer` is of.
std::vector<adsb::Record> records_of(GstBuffer* buffer) {
  guint64 found = 0;
  if (GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, "GpumapResult")) {
    gst_structure_get_uint64(gst_custom_meta_get_structure(meta), "records", &found);
  }
  const std::size_t room = gst_buffer_get_size(buffer) / sizeof(adsb::Record);
  if (found > room) fmt::print(stderr, "{} of {} records had no room\n", found - room, found);
  std::vector<adsb::Record> records(std::min<std::size_t>(found, room));
  if (records.empty()) return records;
  gst_buffer_extract(buffer, 0, records.data(), records.size() * sizeof(adsb::Record));
  return records;
}

std::int64_t first_sample_of(GstBuffer* buffer) {
  return static_cast<std::int64_t>(gst_util_uint64_scale_round(GST_BUFFER_PTS(buffer), sample_rate, GST_SECOND));
}

void throw_error_of(GstElement* pipeline) {
  const Owned<GstBus> bus(gst_element_get_bus(pipeline));
  const Owned<GstMessage> message(gst_bus_pop_filtered(bus.get(), GST_MESSAGE_ERROR));
  if (!message) return;
  GError* error = nullptr;
  gst_message_parse_error(message.get(), &error, nullptr);
  const Owned<GError> owned(error);
  throw std::runtime_error(fmt::format("{}: {}", GST_MESSAGE_SRC_NAME(message.get()), error->message));
}

std::string line_of(const adsb::Message& message) {
  const double seconds = static_cast<double>(message.first_sample) / sample_rate;
  return fmt::format("{:>10.6f}  {:<28} {:>2}  {:06x}  {:>6.1f}  {:<26} {}", seconds, adsb::hex(message),
                     adsb::downlink_format(message), message.address, message.level_db, adsb::type(message),
                     adsb::content(message));
}

/// To the terminal and to a file.
class Table {
 public:
  explicit Table(const std::filesystem::path& path) : file_(path) {
    if (!file_) throw std::runtime_error("cannot write " + path.string());
    add(fmt::format("{:>10}  {:<28} {:>2}  {:<6}  {:>6}  {:<26} {}", "seconds", "message", "DF", "ICAO", "dBFS", "type",
                    "content"));
  }
  void add(const std::string& line) {
    file_ << line << '\n';
    fmt::print("{}\n", line);
  }

 private:
  std::ofstream file_;
};

/// What is being done, in one line that is written over, where standard error is a terminal.
class Progress {
 public:
  ~Progress() { clear(); }
  void say(const std::string& text) const {
    if (!terminal_) return;
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - start_;
    fmt::print(stderr, "\r\033[K  {}, {:.0f} s", text, since.count());
  }
  void clear() const {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void run(const std::filesystem::path& recording, const std::filesystem::path& kernel, int block_bytes, Table& table) {
  const std::string description = fmt::format(
      "filesrc location=\"{}\" blocksize={} ! rawaudioparse use-sink-caps=false format=pcm pcm-format=u8 "
      "sample-rate={} num-channels=2 ! gpumapsink gpumapsrc ! gpumapkernel location=\"{}\" ! application/x-mode-s ! "
      "appsink name=found sync=false",
      recording.string(), block_bytes, sample_rate, kernel.string());
  fmt::print(stderr, "  gst-launch-1.0 {}\n\n", description);
  GError* error = nullptr;
  const Owned<GstElement> pipeline(gst_parse_launch(description.c_str(), &error));
  const Owned<GError> owned(error);
  if (error != nullptr) throw std::runtime_error(fmt::format("{} (is GST_PLUGIN_PATH set?)", error->message));
  const auto stop = [](GstElement* running) { gst_element_set_state(running, GST_STATE_NULL); };
  const std::unique_ptr<GstElement, decltype(stop)> running(pipeline.get(), stop);
  const Owned<GstElement> found(gst_bin_get_by_name(GST_BIN(pipeline.get()), "found"));

  adsb::Aircraft aircraft;
  std::map<unsigned, int> counts;
  int all = 0;
  const auto samples = static_cast<std::int64_t>(std::filesystem::file_size(recording) / 2);
  const Progress progress;
  std::string doing = fmt::format("compiling {} and starting the device", kernel.filename().string());
  progress.say(doing);
  gst_element_set_state(pipeline.get(), GST_STATE_PLAYING);
  // An error ends the stream at appsink only after a state change: look for one while nothing comes.
  while (!gst_app_sink_is_eos(GST_APP_SINK(found.get()))) {
    const Owned<GstSample> sample(gst_app_sink_try_pull_sample(GST_APP_SINK(found.get()), GST_SECOND / 5));
    if (!sample) {
      throw_error_of(pipeline.get());
      progress.say(doing);
      continue;
    }
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    progress.clear();
    for (const adsb::Message& message : aircraft.messages(records_of(buffer), first_sample_of(buffer))) {
      table.add(line_of(message));
      ++counts[adsb::downlink_format(message)];
      ++all;
    }
    doing = fmt::format("searching: at {:.0f} % of the recording, {} messages",
                        100.0 * static_cast<double>(first_sample_of(buffer)) / static_cast<double>(samples), all);
    progress.say(doing);
  }
  progress.clear();
  std::string sum = fmt::format("{} messages", all);
  for (const auto& [format, count] : counts) sum += fmt::format(", {} of DF {}", count, format);
  table.add(sum);
}

}  // namespace

int main(int argc, char** argv) {
  std::filesystem::path out = ".";
  std::filesystem::path recording;
  std::filesystem::path kernel;
  int block_bytes = 65536;
  CLI::App app("Find the messages of aircraft in a radio recording, on the GPU.");
  app.set_version_flag("--version", "gpumap-adsb " GPUMAP_VERSION);
  app.add_option("--out", out, "folder for messages.txt")->check(CLI::ExistingDirectory);
  app.add_option("--kernel", kernel, "adsb.cu or adsb.comp")->check(CLI::ExistingFile)->required();
  app.add_option("--block", block_bytes, "bytes that the kernel sees at once")->check(CLI::Range(2, 1 << 26));
  app.add_option("recording", recording, "unsigned 8-bit I and Q at 2 MS/s; a generated signal when absent")
      ->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  gst_init(nullptr, nullptr);
  try {
    if (recording.empty()) {
      recording = out / "generated.bin";
      const adsb::Signal signal = adsb::make_signal(200);
      std::ofstream file(recording, std::ios::binary);
      file.write(reinterpret_cast<const char*>(signal.iq.data()), static_cast<std::streamsize>(signal.iq.size()));
      if (!file.flush()) throw std::runtime_error("cannot write " + recording.string());
    }
    Table table(out / "messages.txt");
    run(recording, kernel, block_bytes, table);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpumap-adsb: {}\n", error.what());
    return 1;
  }
  return 0;
}
