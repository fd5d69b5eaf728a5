// SPDX-License-Identifier: MIT
// How long a frame is in an element, for elements that do the same: from entering its sink pad until what it makes of
// it leaves its source pad, one frame at a time, the elements in turns. By default gpumapkernel's convert beside
// GStreamer's cudaconvert, both from and to memory:CUDAMemory; both have waited for the GPU when a frame leaves them.
//
// Not measured: how frames come into GPU memory and out of it, negotiation, the first frames.
#include <fmt/format.h>
#include <gst/gst.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <gpumap/device.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "figures.hpp"
#include "gst/elements.hpp"

namespace {

struct Options {
  std::string source =
      "videotestsrc pattern=snow ! video/x-raw,format=NV12,width=1920,height=1080 ! cudaupload ! "
      "video/x-raw(memory:CUDAMemory)";
  std::vector<std::string> elements{"gpumapkernel kernel=convert backend=cuda", "cudaconvert"};
  std::string caps = "video/x-raw(memory:CUDAMemory),format=RGBA";
  unsigned frames = 300;
  unsigned warmup = 20;
  unsigned rounds = 5;
  std::string commit, json;
};

/// One element between the source and a fakesink.
class Line {
 public:
  Line(const Options& options, const std::string& element) : element_(element), warmup_(options.warmup) {
    const std::string line =
        fmt::format("{} ! identity name=before ! {} ! {} ! identity name=after ! fakesink sync=false name=end",
                    options.source, element, options.caps);
    GError* error = nullptr;
    pipeline_ = gst_parse_launch(line.c_str(), &error);
    if (error != nullptr) {
      const std::string text = error->message;
      g_error_free(error);
      if (pipeline_ != nullptr) gst_object_unref(pipeline_);
      throw std::runtime_error(fmt::format("{}: {}", line, text));
    }
    watch("before", "src", [](GstPad*, GstPadProbeInfo*, gpointer self) {
      static_cast<Line*>(self)->entered_ = bench::now_ns();
      return GST_PAD_PROBE_OK;
    });
    watch("after", "sink", [](GstPad*, GstPadProbeInfo*, gpointer self) {
      static_cast<Line*>(self)->left();
      return GST_PAD_PROBE_OK;
    });
  }
  ~Line() {
    gst_element_set_state(pipeline_, GST_STATE_NULL);
    gst_object_unref(pipeline_);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  /// Times of `frames` frames after the first ones, in ns.
  std::vector<std::int64_t> run(unsigned frames) {
    wanted_ = frames;
    gst_element_set_state(pipeline_, GST_STATE_PLAYING);
    GstBus* bus = gst_element_get_bus(pipeline_);
    constexpr GstClockTime patience = 60 * GST_SECOND;
    GstMessage* message = gst_bus_timed_pop_filtered(
        bus, patience, static_cast<GstMessageType>(GST_MESSAGE_ERROR | GST_MESSAGE_EOS | GST_MESSAGE_APPLICATION));
    gst_object_unref(bus);
    std::string failure = message == nullptr ? "no end after 60 s" : "";
    if (message != nullptr && GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
      GError* error = nullptr;
      gst_message_parse_error(message, &error, nullptr);
      failure = error->message;
      g_error_free(error);
    }
    if (message != nullptr) gst_message_unref(message);
    gst_element_set_state(pipeline_, GST_STATE_NULL);
    if (!failure.empty()) throw std::runtime_error(fmt::format("{}: {}", element_, failure));
    if (times_.size() < wanted_) throw std::runtime_error(fmt::format("{}: the source ended early", element_));
    return std::move(times_);
  }

 private:
  void watch(const char* name, const char* pad_name, GstPadProbeCallback call) {
    GstElement* element = gst_bin_get_by_name(GST_BIN(pipeline_), name);
    GstPad* pad = gst_element_get_static_pad(element, pad_name);
    gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, call, this, nullptr);
    gst_object_unref(pad);
    gst_object_unref(element);
  }
  void left() {
    const std::int64_t now = bench::now_ns();
    if (++seen_ <= warmup_ || times_.size() >= wanted_) return;
    times_.push_back(now - entered_);
    if (times_.size() == wanted_) {
      gst_element_post_message(pipeline_,
                               gst_message_new_application(GST_OBJECT(pipeline_), gst_structure_new_empty("enough")));
    }
  }

  std::string element_;
  unsigned warmup_;
  GstElement* pipeline_ = nullptr;
  // Of the streaming thread, until the message is out.
  std::int64_t entered_ = 0;
  unsigned seen_ = 0;
  std::size_t wanted_ = 0;
  std::vector<std::int64_t> times_;
};

void measure(const Options& options) {
  std::map<std::string, std::vector<std::int64_t>> times;
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < options.elements.size(); ++i) {
      const std::string& element = options.elements[(i + round) % options.elements.size()];
      const auto more = Line(options, element).run(options.frames);
      times[element].insert(times[element].end(), more.begin(), more.end());
    }
  }
  const auto device = gpumap::Device::open("auto");
  nlohmann::json report{{"benchmark", "element"},
                        {"device", device->info().name},
                        {"software", device->info().software},
                        {"cuda_driver", device->info().cuda_driver},
                        {"cpu", bench::cpu_name()},
                        {"commit", options.commit},
                        {"source", options.source},
                        {"caps", options.caps}};
  std::cout << fmt::format("{}\n{:<48} {:>9} {:>9} {:>9} {:>9}\n", options.source, "us in the element", "median", "P90",
                           "P99", "min");
  double first = 0;
  for (const std::string& element : options.elements) {
    const bench::Summary summary = bench::summarise(times[element]);
    if (first == 0) first = summary.median_us;
    const double ratio = summary.median_us / first;
    std::cout << fmt::format("{:<48} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}  {:.2f} of the first\n", element,
                             summary.median_us, summary.p90_us, summary.p99_us, summary.min_us, ratio);
    nlohmann::json row = to_json(summary);
    row["element"] = element;
    row["of_the_first"] = ratio;
    report["elements"].push_back(std::move(row));
  }
  if (options.json.empty()) return;
  if (!(std::ofstream(options.json) << report.dump(2) << '\n'))
    throw std::runtime_error(options.json + ": cannot write");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("How long a frame is in an element, beside others that do the same");
  app.add_option("--source", options.source, "What makes frames, as for gst-launch-1.0");
  app.add_option("--elements", options.elements, "The elements, with their properties")->expected(1, 20);
  app.add_option("--caps", options.caps, "What they are to make of them");
  app.add_option("--frames", options.frames, "Frames of each in a round")->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "Frames before them");
  app.add_option("--rounds", options.rounds, "Rounds")->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "Write the figures there");
  app.add_option("--commit", options.commit, "Commit to note in the JSON");
  CLI11_PARSE(app, argc, argv);
  try {
    gst_init(nullptr, nullptr);
    gst_plugin_register_static(GST_VERSION_MAJOR, GST_VERSION_MINOR, "gpumap", "gpumap", gpumap_register_elements,
                               GPUMAP_VERSION, "MIT/X11", "gpumap", "gpumap", "gpumap");
    measure(options);
  } catch (const std::exception& error) {
    std::cerr << "element-bench: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
