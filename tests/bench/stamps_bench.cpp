// SPDX-License-Identifier: MIT
// What following a frame costs, and whether what it says is true.
//
// One thread takes each frame all the way: a slot from gpumapsink's pool, mapped, unmapped and pushed into the element,
// taken from the channel and wrapped as gpumapsrc wraps it, and let go. Batches with stamps and without take turns, so
// that drift hits both. Truth: the same thread reads the clock just outside of the calls; what lies between is compared
// with the stages. Not measured: kernels and their GPU times (first-light-bench has them), the hand-over
// between threads.
#include <fmt/format.h>
#include <gst/gst.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "figures.hpp"
#include "gpumap/device.hpp"
#include "gpumap/latency.hpp"
#include "gst/channel/channel.hpp"
#include "gst/elements.hpp"
#include "gst/latency/latency_meta.h"
#include "gst/ptr.hpp"
#include "gst/src/output.hpp"

namespace {

using gpumap::FrameRecord;
using gpumap::LatencyLog;
using gpumap::Stage;
using gpumap::gst::Channel;
using gpumap::gst::SrcOutput;

constexpr std::size_t kept = 100'000;

/// A meta as large as gpumap's, with nothing in it.
const GstMetaInfo* empty_meta() {
  static const GstMetaInfo* const made = [] {
    static const gchar* tags[] = {nullptr};
    const auto init = [](GstMeta*, gpointer, GstBuffer*) -> gboolean { return TRUE; };
    return gst_meta_register(gst_meta_api_type_register("GpumapBenchMetaAPI", tags), "GpumapBenchMeta",
                             sizeof(GpumapLatencyMeta), init, nullptr, nullptr);
  }();
  return made;
}

/// A gpumapsink without a pipeline, whose channel this program reads itself.
class Way {
 public:
  Way(std::string channel, bool stamps) : name_(std::move(channel)), channel_(Channel::open(name_)) {
    if (stamps) {
      log_ = LatencyLog::of_channel(name_);
      log_->keep_frames(kept);
    }
    sink_ = GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("gpumapsink", nullptr)));
    g_object_set(sink_, "channel", name_.c_str(), "stamps", static_cast<gboolean>(stamps), nullptr);
    if (gst_element_set_state(sink_, GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) {
      throw std::runtime_error("gpumapsink does not start: see GST_DEBUG=2");
    }
    pad_ = gst_element_get_static_pad(sink_, "sink");
    GstCaps* caps = gst_caps_from_string("video/x-raw,format=GRAY8,width=64,height=16,framerate=0/1");
    gst_pad_send_event(pad_, gst_event_new_stream_start("bench"));
    gst_pad_send_event(pad_, gst_event_new_caps(caps));
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    gst_pad_send_event(pad_, gst_event_new_segment(&segment));
    GstQuery* query = gst_query_new_allocation(caps, TRUE);
    gst_pad_query(pad_, query);
    gst_query_parse_nth_allocation_pool(query, 0, &pool_, nullptr, nullptr, nullptr);
    gst_query_unref(query);
    gst_caps_unref(caps);
    if (pool_ == nullptr || gst_buffer_pool_set_active(pool_, TRUE) == 0) throw std::runtime_error("no pool of slots");
  }
  ~Way() {
    gst_buffer_pool_set_active(pool_, FALSE);
    gst_object_unref(pool_);
    gst_object_unref(pad_);
    gst_element_set_state(sink_, GST_STATE_NULL);
    gst_object_unref(sink_);
  }
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  /// The clock just outside of each step.
  struct Clock {
    std::int64_t before = 0, acquired = 0, mapped = 0, unmapped = 0, pushed = 0, received = 0, released = 0;
  };
  /// `tick` is told whether a followed frame takes a look at the clock there that another does not. `meta`: an empty
  /// one goes with the buffer.
  template <typename Tick>
  void frame(Tick&& tick, Clock& clock, bool meta = false) {
    clock.before = tick(false);
    GstBuffer* buffer = nullptr;
    if (gst_buffer_pool_acquire_buffer(pool_, &buffer, nullptr) != GST_FLOW_OK) throw std::runtime_error("no slot");
    clock.acquired = tick(true);
    GstMapInfo map;
    if (gst_buffer_map(buffer, &map, GST_MAP_WRITE) == 0) throw std::runtime_error("cannot map a slot");
    clock.mapped = tick(false);
    std::fill_n(map.data, 64, static_cast<guint8>(count_++));
    clock.unmapped = tick(false);
    gst_buffer_unmap(buffer, &map);
    GST_BUFFER_PTS(buffer) = count_ * 1000;
    if (gst_pad_chain(pad_, buffer) != GST_FLOW_OK) throw std::runtime_error("gpumapsink takes no frame");
    clock.pushed = tick(false);
    Channel::Next next;
    do {
      next = channel_->next(gpumap::no_deadline);
      if (next.event != nullptr) gst_event_unref(next.event);
    } while (next.kind == Channel::Next::Kind::event);
    buffer = output_.wrap(std::move(next), gpumap::gst::SrcOutput::Memory::slot);
    if (meta) gst_buffer_add_meta(buffer, empty_meta(), nullptr);
    clock.received = tick(true);
    gst_buffer_unref(buffer);
    clock.released = tick(true);
  }
  [[nodiscard]] std::vector<FrameRecord> frames() { return log_->take_frames(); }

 private:
  std::string name_;
  std::shared_ptr<LatencyLog> log_;
  std::shared_ptr<Channel> channel_;
  gpumap::gst::Ptr<GstPad> srcpad_{GST_PAD(gst_object_ref_sink(gst_pad_new("src", GST_PAD_SRC)))};
  SrcOutput output_{nullptr, srcpad_.get(), {}};
  GstElement* sink_ = nullptr;
  GstPad* pad_ = nullptr;
  GstBufferPool* pool_ = nullptr;
  std::uint64_t count_ = 0;
};

struct Options {
  int rounds = 200;
  int batch = 1000;
  std::string json;
};

/// What of following a frame is left where gpumap does nothing at all.
enum class Bare { nothing, looks, looks_and_meta };

double batch_ns(Way& way, int frames, Bare bare = Bare::nothing) {
  Way::Clock none;
  const auto tick = [bare](bool takes) { return takes && bare != Bare::nothing ? bench::now_ns() : 0; };
  const std::int64_t began = bench::now_ns();
  for (int n = 0; n < frames; ++n) way.frame(tick, none, bare == Bare::looks_and_meta);
  return static_cast<double>(bench::now_ns() - began) / frames;
}

double median(std::vector<double> of) {
  std::ranges::nth_element(of, of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2));
  return of[of.size() / 2];
}

/// One look at the clock, with nothing else to do.
double clock_ns() {
  constexpr int looks = 1'000'000;
  const std::int64_t began = bench::now_ns();
  for (int n = 0; n < looks; ++n) static_cast<void>(gpumap::monotonic_ns());
  return static_cast<double>(bench::now_ns() - began) / looks;
}

nlohmann::json cost(const Options& options) {
  Way off("stamps-bench-off", false);
  Way also_off("stamps-bench-also-off", false);
  Way on("stamps-bench-on", true);
  std::vector<double> off_ns;
  std::vector<double> on_ns;
  std::vector<double> more_ns;
  std::vector<double> noise_ns;
  std::vector<double> looks_ns;
  std::vector<double> bare_ns;
  for (int round = -5; round < options.rounds; ++round) {
    const double without = batch_ns(off, options.batch);
    const double with = batch_ns(on, options.batch);
    const double looking = batch_ns(off, options.batch, Bare::looks);
    const double bare = batch_ns(off, options.batch, Bare::looks_and_meta);
    const double again = batch_ns(also_off, options.batch);
    if (round < 0) continue;
    off_ns.push_back(without);
    on_ns.push_back(with);
    more_ns.push_back(with - (without + again) / 2);
    noise_ns.push_back(again - without);
    looks_ns.push_back(looking - (without + again) / 2);
    bare_ns.push_back(bare - (without + again) / 2);
  }
  nlohmann::json made{{"off_ns", median(off_ns)},
                      {"on_ns", median(on_ns)},
                      {"more_ns", median(more_ns)},
                      {"noise_ns", median(noise_ns)},
                      {"three_looks_ns", median(looks_ns)},
                      {"three_looks_and_a_meta_ns", median(bare_ns)},
                      {"clock_ns", clock_ns()}};
  std::cout << fmt::format(
      "a frame without stamps {:.0f} ns, with {:.0f} ns: {:+.0f} ns, where two runs without differ by {:+.0f} ns\n"
      "three bare looks at the clock: {:+.0f} ns, with an empty GstMeta: {:+.0f} ns; a look on its own: {:.0f} ns\n",
      made["off_ns"].get<double>(), made["on_ns"].get<double>(), made["more_ns"].get<double>(),
      made["noise_ns"].get<double>(), made["three_looks_ns"].get<double>(),
      made["three_looks_and_a_meta_ns"].get<double>(), made["clock_ns"].get<double>());
  return made;
}

nlohmann::json truth(const Options& options) {
  Way way("stamps-bench-truth", true);
  std::vector<Way::Clock> clocks(static_cast<std::size_t>(options.batch) * 10);
  for (auto& clock : clocks) way.frame([](bool) { return bench::now_ns(); }, clock);
  const std::vector<FrameRecord> frames = way.frames();
  if (frames.size() != clocks.size()) throw std::runtime_error("frames are missing in the log");
  struct Compared {
    const char* name;
    std::vector<std::int64_t> off_by;
  };
  std::array<Compared, 2> compared{{{"write", {}}, {"whole", {}}}};
  for (std::size_t n = 0; n < frames.size(); ++n) {
    const auto stages = stage_times(frames[n]);
    const Way::Clock& clock = clocks[n];
    // The stamps of mapping and unmapping lie just outside of the two ticks, those of the whole just inside.
    compared[0].off_by.push_back(stages[static_cast<std::size_t>(Stage::write)].value() -
                                 (clock.unmapped - clock.mapped));
    compared[1].off_by.push_back((clock.released - clock.acquired) -
                                 total_time(frames[n], gpumap::Total::whole).value());
  }
  nlohmann::json made;
  for (auto& [name, off_by] : compared) {
    for (auto& value : off_by) value = std::abs(value);
    const bench::Summary summary = bench::summarise(off_by);
    made[name] = to_json(summary);
    std::cout << fmt::format("{}: off the clock outside by {:.3f} us (median), {:.3f} us (p99)\n", name,
                             summary.median_us, summary.p99_us);
  }
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("What following frames (gpumapsink stamps=true) costs, and how true it is");
  app.add_option("--rounds", options.rounds, "Pairs of batches")->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batch, "Frames in a batch")->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "Write the figures here");
  CLI11_PARSE(app, argc, argv);
  try {
    gst_init(nullptr, nullptr);
    gst_plugin_register_static(GST_VERSION_MAJOR, GST_VERSION_MINOR, "gpumap", "gpumap", gpumap_register_elements,
                               GPUMAP_VERSION, "MIT/X11", "gpumap", "gpumap", "gpumap");
    const nlohmann::json report{{"device", gpumap::Device::open("auto")->info().name},
                                {"cpu", bench::cpu_name()},
                                {"frames_a_batch", options.batch},
                                {"rounds", options.rounds},
                                {"cost", cost(options)},
                                {"truth", truth(options)}};
    if (!options.json.empty() && !(std::ofstream(options.json) << report.dump(2) << '\n')) {
      throw std::runtime_error(options.json + ": cannot write");
    }
  } catch (const std::exception& error) {
    std::cerr << "stamps-bench: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
