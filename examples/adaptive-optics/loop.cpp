// SPDX-License-Identifier: MIT
#include "loop.hpp"

#include <fmt/format.h>
#include <gst/gst.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "checker.hpp"
#include "counter.hpp"

namespace adaptive_optics {

namespace {

using Clock = std::chrono::steady_clock;

struct Unref {
  void operator()(GstMessage* message) const { gst_message_unref(message); }
  void operator()(GstCaps* caps) const { gst_caps_unref(caps); }
  void operator()(GstQuery* query) const { gst_query_unref(query); }
  void operator()(GstStructure* structure) const { gst_structure_free(structure); }
  void operator()(GError* error) const { g_error_free(error); }
  template <typename T>
  void operator()(T* object) const {
    gst_object_unref(object);
  }
};
template <typename T>
using Owned = std::unique_ptr<T, Unref>;

std::int64_t now_ns() {
  return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

/// One frame on its way around the loop.
struct Frame {
  std::vector<std::uint16_t> pixels;
  std::vector<float> commands;
  Wavefront wavefront{};
  std::int64_t stored_ns = 0;  ///< the last pixel was
  std::int64_t seen_ns = 0;    ///< the commands were, by the CPU
};
// As many frames may wait to be checked.
constexpr std::size_t kept_frames = 64;

template <typename T>
std::filesystem::path write_table(const std::filesystem::path& file, const std::vector<T>& numbers) {
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.size() * sizeof(T)));
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
  return std::filesystem::absolute(file);
}

std::string error_on(GstBus* bus, GstClockTime patience) {
  const Owned<GstMessage> message(gst_bus_timed_pop_filtered(bus, patience, GST_MESSAGE_ERROR));
  if (!message) return {};
  GError* error = nullptr;
  gst_message_parse_error(message.get(), &error, nullptr);
  const Owned<GError> owned(error);
  return fmt::format("{}: {}", GST_MESSAGE_SRC_NAME(message.get()), error->message);
}

/// The pipeline, and what each of three threads does: the telescope's (drive), the pipeline's (answer), and one that
/// checks what went around (follow). Counters say how far each has come; a frame belongs to one of them at a time.
class Loop {
 public:
  Loop(const LoopOptions& options, Telescope& telescope, const std::shared_ptr<const Tables>& tables);
  ~Loop() { stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  LoopFigures run(const std::atomic<bool>& interrupted, const std::function<void(std::uint64_t)>& progress);

 private:
  void drive();
  void follow();
  static GstPadProbeReturn answer(GstPad* pad, GstPadProbeInfo* info, gpointer loop);

  void negotiate();
  void send(Frame& exposed);
  [[nodiscard]] bool is_over(std::uint64_t number) const;
  void fail(const std::string& why);
  [[nodiscard]] std::string failure() const;
  /// In a thread of its own; what it throws is the loop's failure.
  std::thread start(void (Loop::*work)());
  void stop();

  [[nodiscard]] Frame& frame(std::uint64_t number) { return frames_[number % frames_.size()]; }

  const LoopOptions& options_;
  Telescope& telescope_;
  Checker checker_;
  std::vector<Frame> frames_;
  Owned<GstElement> pipeline_;
  Owned<GstPad> pad_;
  Owned<GstBufferPool> pool_;

  Counter answered_, checked_;
  std::atomic<bool> asked_to_end_{false}, done_{false}, failed_{false};
  Clock::time_point warm_;  ///< when the first frame that counts was sent; of drive()
  LoopFigures figures_;
  mutable std::mutex mutex_;
  std::string failure_;
  std::thread driving_, following_;
};

Loop::Loop(const LoopOptions& options, Telescope& telescope, const std::shared_ptr<const Tables>& tables)
    : options_(options), telescope_(telescope), checker_(tables, options.size.width()), frames_(kept_frames) {
  for (Frame& one : frames_) {
    one.pixels.resize(options.size.pixels());
    one.commands.resize(static_cast<std::size_t>(options.size.actuators));
  }
  const std::string description = fmt::format(
      "gpumapsink name=sensor busy-poll={0}  gpumapsrc busy-poll={0} ! gpumapkernel name=kernel params=actuators={1} "
      "mode={2} resident-blocks={3} ! application/x-mirror-commands ! fakesink name=mirror sync=false "
      "async=false",
      options.busy_poll_us, options.size.actuators, options.mode, options.resident_blocks);
  GError* error = nullptr;
  pipeline_.reset(gst_parse_launch(description.c_str(), &error));
  const Owned<GError> owned(error);
  if (error != nullptr) throw std::runtime_error(fmt::format("{} (is GST_PLUGIN_PATH set?)", error->message));

  const std::string declare =
      fmt::format("table corners={}; table reconstructor={}; table modes={}; grid {}",
                  write_table(options.folder / "corners.u32", tables->corners).string(),
                  write_table(options.folder / "reconstructor.f32", tables->reconstructor.numbers).string(),
                  write_table(options.folder / "modes.f32", tables->modes.numbers).string(), options.size.modes);
  const Owned<GstElement> kernel(gst_bin_get_by_name(GST_BIN(pipeline_.get()), "kernel"));
  g_object_set(kernel.get(), "location", options.kernel.c_str(), "declare", declare.c_str(), nullptr);

  const Owned<GstElement> mirror(gst_bin_get_by_name(GST_BIN(pipeline_.get()), "mirror"));
  const Owned<GstPad> commands(gst_element_get_static_pad(mirror.get(), "sink"));
  gst_pad_add_probe(commands.get(), GST_PAD_PROBE_TYPE_BUFFER, answer, this, nullptr);
  // The sensor is a pad of our own: its thread is the one that sends.
  const Owned<GstElement> sensor(gst_bin_get_by_name(GST_BIN(pipeline_.get()), "sensor"));
  const Owned<GstPad> pixels(gst_element_get_static_pad(sensor.get(), "sink"));
  pad_.reset(GST_PAD(gst_object_ref_sink(gst_pad_new("pixels", GST_PAD_SRC))));
  if (gst_pad_link(pad_.get(), pixels.get()) != GST_PAD_LINK_OK) throw std::runtime_error("gpumapsink takes no pixels");
  gst_pad_set_active(pad_.get(), TRUE);
}

/// Caps, and memory of the ring to write pixels into.
void Loop::negotiate() {
  const int width = options_.size.width();
  const Owned<GstCaps> caps(gst_caps_new_simple("video/x-raw", "format", G_TYPE_STRING, "GRAY16_LE", "width",
                                                G_TYPE_INT, width, "height", G_TYPE_INT, width, "framerate",
                                                GST_TYPE_FRACTION, 0, 1, nullptr));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(pad_.get(), gst_event_new_stream_start("wavefront-sensor"));
  gst_pad_push_event(pad_.get(), gst_event_new_caps(caps.get()));
  gst_pad_push_event(pad_.get(), gst_event_new_segment(&segment));
  const Owned<GstQuery> query(gst_query_new_allocation(caps.get(), TRUE));
  if (!gst_pad_peer_query(pad_.get(), query.get()) || gst_query_get_n_allocation_pools(query.get()) == 0) {
    throw std::runtime_error("gpumapsink offers no memory for pixels");
  }
  GstBufferPool* pool = nullptr;
  guint bytes = 0;
  guint least = 0;
  guint most = 0;
  gst_query_parse_nth_allocation_pool(query.get(), 0, &pool, &bytes, &least, &most);
  pool_.reset(pool);
  if (!pool_) throw std::runtime_error("gpumapsink offers no memory for pixels");
  GstStructure* config = gst_buffer_pool_get_config(pool_.get());
  gst_buffer_pool_config_set_params(config, caps.get(), bytes, least, most);
  if (!gst_buffer_pool_set_config(pool_.get(), config) || !gst_buffer_pool_set_active(pool_.get(), TRUE)) {
    throw std::runtime_error("gpumapsink's memory for pixels cannot be had");
  }
}

/// The sensor is read out: pixels go straight into GPU memory.
void Loop::send(Frame& exposed) {
  GstBuffer* buffer = nullptr;
  if (gst_buffer_pool_acquire_buffer(pool_.get(), &buffer, nullptr) != GST_FLOW_OK) {
    throw std::runtime_error("gpumapsink has no slot for a frame");
  }
  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_WRITE)) {
    gst_buffer_unref(buffer);
    throw std::runtime_error("a slot cannot be mapped");
  }
  const std::size_t bytes = exposed.pixels.size() * sizeof(std::uint16_t);
  std::memcpy(map.data, exposed.pixels.data(), std::min<std::size_t>(bytes, map.size));
  exposed.stored_ns = now_ns();
  gst_buffer_unmap(buffer, &map);
  const GstFlowReturn flow = gst_pad_push(pad_.get(), buffer);
  if (flow != GST_FLOW_OK)
    throw std::runtime_error(fmt::format("gpumapsink took no frame: {}", gst_flow_get_name(flow)));
}

bool Loop::is_over(std::uint64_t number) const {
  if (asked_to_end_ || (options_.frames && number >= *options_.frames)) return true;
  return options_.seconds && number > warm_up &&
         Clock::now() - warm_ >= std::chrono::duration<double>(*options_.seconds);
}

/// While the GPU works on one frame, the sensor takes the light of the next one: what comes of a frame moves the mirror
/// before the frame after the next.
void Loop::drive() {
  const std::chrono::microseconds spin(options_.busy_poll_us);
  negotiate();
  std::uint64_t number = 0;
  for (; !is_over(number); ++number) {
    if (number >= frames_.size() && !checked_.wait_for(number - frames_.size() + 1)) return;
    Frame& now = frame(number);
    now.wavefront = telescope_.expose(now.pixels);
    if (!answered_.wait_for(number, spin)) return;
    if (number > 0) telescope_.correct(frame(number - 1).commands);
    if (number == warm_up) warm_ = Clock::now();
    send(now);
  }
  if (!checked_.wait_for(number)) return;
  checker_.finish();
  done_ = true;
}

GstPadProbeReturn Loop::answer(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer loop) {
  auto& self = *static_cast<Loop*>(loop);
  Frame& sent = self.frame(self.answered_.count());
  const std::size_t bytes = sent.commands.size() * sizeof(float);
  const std::size_t got = gst_buffer_extract(GST_PAD_PROBE_INFO_BUFFER(info), 0, sent.commands.data(), bytes);
  sent.seen_ns = now_ns();
  if (got != bytes) {
    self.fail(fmt::format("{} bytes of commands came, not {}", got, bytes));
    return GST_PAD_PROBE_OK;
  }
  self.answered_.advance();
  return GST_PAD_PROBE_OK;
}

void Loop::follow() {
  std::int64_t began_ns = 0;
  for (std::uint64_t number = 0; answered_.wait_for(number + 1); ++number) {
    const Frame& came = frame(number);
    checker_.check(number, came.pixels, came.commands);
    figures_.wavefronts.add(number, came.wavefront);
    if (number == warm_up) began_ns = came.stored_ns;
    if (number >= warm_up) {
      figures_.latencies.add(came.seen_ns - came.stored_ns);
      figures_.seconds = static_cast<double>(came.seen_ns - began_ns) / 1e9;
    }
    checked_.advance();
  }
}

void Loop::fail(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
  }
  failed_ = true;
  answered_.stop();
  checked_.stop();
}

std::string Loop::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::thread Loop::start(void (Loop::*work)()) {
  return std::thread([this, work] {
    try {
      (this->*work)();
    } catch (const std::exception& error) {
      fail(error.what());
    }
  });
}

void Loop::stop() {
  asked_to_end_ = true;
  answered_.stop();
  checked_.stop();
  gst_element_set_state(pipeline_.get(), GST_STATE_NULL);
  // Ends: both gates are stopped, and the pad of a pipeline in NULL takes nothing more.
  if (driving_.joinable()) driving_.join();
  // Ends: the same.
  if (following_.joinable()) following_.join();
  gst_pad_set_active(pad_.get(), FALSE);
  if (pool_) gst_buffer_pool_set_active(pool_.get(), FALSE);
  pool_.reset();
}

LoopFigures Loop::run(const std::atomic<bool>& interrupted, const std::function<void(std::uint64_t)>& progress) {
  const Owned<GstBus> bus(gst_element_get_bus(pipeline_.get()));
  if (gst_element_set_state(pipeline_.get(), GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) {
    const std::string why = error_on(bus.get(), 0);
    throw std::runtime_error(why.empty() ? "the pipeline does not start" : why);
  }
  following_ = start(&Loop::follow);
  driving_ = start(&Loop::drive);
  while (!done_ && !failed_) {
    // What an element says of an error tells more than what came of it in these threads.
    const std::string error = error_on(bus.get(), 20 * GST_MSECOND);
    if (!error.empty()) throw std::runtime_error(error);
    if (interrupted) asked_to_end_ = true;
    progress(checked_.count());
  }
  if (const std::string error = error_on(bus.get(), failed_ ? 200 * GST_MSECOND : 0); !error.empty()) {
    throw std::runtime_error(error);
  }
  if (failed_) throw std::runtime_error(failure());

  const Owned<GstElement> sensor(gst_bin_get_by_name(GST_BIN(pipeline_.get()), "sensor"));
  GstStructure* raw = nullptr;
  g_object_get(sensor.get(), "stats", &raw, nullptr);
  const Owned<GstStructure> stats(raw);
  const auto text = [&](const char* field) {
    const char* value = gst_structure_get_string(stats.get(), field);
    return std::string(value != nullptr ? value : "?");
  };
  figures_.device = text("device");
  figures_.transport = text("transport");
  stop();
  figures_.frames = checked_.count();
  figures_.checks_all = checker_.checks_all();
  figures_.checked_frames = checker_.frames();
  figures_.worst_of_bound = checker_.worst_of_bound();
  return std::move(figures_);
}

}  // namespace

LoopFigures run_loop(const LoopOptions& options, Telescope& telescope, const std::shared_ptr<const Tables>& tables,
                     const std::atomic<bool>& interrupted, const std::function<void(std::uint64_t)>& progress) {
  return Loop(options, telescope, tables).run(interrupted, progress);
}

}  // namespace adaptive_optics
