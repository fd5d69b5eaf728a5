// SPDX-License-Identifier: MIT
#include "sink_core.hpp"

#include <fmt/format.h>
#include <gst/video/video.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "error.hpp"
#include "gpumap/error.hpp"
#include "latency_tracer.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

namespace {

using namespace std::chrono_literals;

// Waits for a slot look up this often, for a pool that is being stopped on its own.
constexpr auto wait_slice = 20ms;
// Upstream elements that keep every slot without giving one back would wait for themselves for ever: after this many
// slices they get host memory.
constexpr int starved_slices = 10;
// So would those that keep all but what the reader keeps, who may keep its last frame until the next one comes. But a
// reader may also be slow, or paused: wait longer.
constexpr int stalled_slices = 50;
// A ring that is full while no gpumapsrc is there: so long, and it is said.
constexpr int lonely_slices = 150;

/// GStreamer copies these with the memory only.
void copy_metas_on_memory(GstBuffer* to, GstBuffer* from) {
  static const GQuark on_memory = g_quark_from_static_string(GST_META_TAG_MEMORY_STR);
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(from, &state)) {
    if (!gst_meta_api_type_has_tag(meta->info->api, on_memory) || meta->info->transform_func == nullptr) continue;
    GstMetaTransformCopy whole{FALSE, 0, static_cast<gsize>(-1)};
    meta->info->transform_func(to, meta, from, g_quark_from_static_string("gst-copy"), &whole);
  }
}

/// Than GstVideoMeta, which every frame of a pool has and which looks at no memory.
bool has_other_metas(GstBuffer* buffer) {
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
    if (meta->info->api != GST_VIDEO_META_API_TYPE) return true;
  }
  return false;
}

/// What belongs to `from` and not to its memory: flags, times and metas, and of the metas on memory those that describe
/// it, for the bytes stay as they are. Metas that keep upstream's own memory alive are left behind.
GstBuffer* carrier_of(GstBuffer* from) {
  GstBuffer* carrier = gst_buffer_new();
  const bool has_metas = has_other_metas(from);
  // Some (GstAudioMeta) look at how much memory there is: it is lent meanwhile.
  for (guint i = 0; has_metas && i < gst_buffer_n_memory(from); ++i) {
    gst_buffer_append_memory(carrier, gst_buffer_get_memory(from, i));
  }
  constexpr auto parts =
      static_cast<GstBufferCopyFlags>(static_cast<unsigned>(GST_BUFFER_COPY_FLAGS) | GST_BUFFER_COPY_TIMESTAMPS |
                                      GST_BUFFER_COPY_META | GST_BUFFER_COPY_DEEP);
  gst_buffer_copy_into(carrier, from, parts, 0, static_cast<gsize>(-1));
  copy_metas_on_memory(carrier, from);
  if (has_metas) gst_buffer_remove_all_memory(carrier);
  GST_BUFFER_FLAG_UNSET(carrier, GST_BUFFER_FLAG_TAG_MEMORY);
  return carrier;
}

/// Where the ways of the frames go; null: they are not followed. What an application asks for begins with its start; a
/// tracer follows the channel from beginning to end.
std::shared_ptr<LatencyLog> log_of(const SinkSettings& settings) {
  auto log = traced_log(settings.channel);
  if (log || (!settings.stamps && settings.latency_interval_ms == 0)) return log;
  log = LatencyLog::of_channel(settings.channel);
  log->reset();
  return log;
}

std::int64_t ring_time(GstClockTime time) {
  return GST_CLOCK_TIME_IS_VALID(time) ? static_cast<std::int64_t>(time) : no_time;
}

}  // namespace

void SinkCore::open(const SinkSettings& settings) {
  auto device = Device::open(settings.device);
  if (device->info().transport == "none") throw Error(ErrorCode::not_supported, device->info().reason);
  const std::lock_guard lock(mutex_);
  device_ = std::move(device);
}

void SinkCore::start(GstElement* sink, const SinkSettings& settings) {
  open(settings);
  auto channel = Channel::open(settings.channel);
  std::string holder;
  if (!channel->attach_sink(sink, holder)) {
    throw Error(ErrorCode::invalid, fmt::format("channel \"{}\" has a gpumapsink already ({}): give each pair of "
                                                "gpumapsink and gpumapsrc a channel name of its own",
                                                settings.channel, holder));
  }
  std::shared_ptr<LatencyLog> log = log_of(settings);
  channel->set_log(log);
  if (settings.latency_interval_ms != 0) reports_ = report_latency(sink, log, settings.latency_interval_ms);
  const std::lock_guard lock(mutex_);
  session_ = std::make_shared<const Session>(Session{settings, device_, std::move(channel), log});
  stamping_ = log != nullptr;
  log_ = std::move(log);
  flushing_ = false;
  gone_ = {};
  maps_->cpu_reads = 0;
  maps_->upstream_reads = false;
  slow_slots_.reset();
  hoards_ = false;
  lonely_told_ = false;
  hole_ = false;
  most_slots_ = max_slots;
  transport_ = settings.transport;
  copier_.start(settings.copy_threads);
  frames_ = zero_copy_ = copied_ = bytes_copied_ = drops_ = 0;
}

void SinkCore::stop(bool drained) {
  set_flushing(true);
  if (const auto session = this->session()) {
    const guint linger_ms = session->settings.linger_ms;
    session->channel->detach_sink(drained, linger_ms != G_MAXUINT ? linger_ms * GST_MSECOND : GST_CLOCK_TIME_NONE);
  }
  copier_.stop();
  reports_.reset();
  const std::lock_guard lock(mutex_);
  gone_ = counters();
  lane_.reset();
  session_.reset();
}

SinkCore::Counters SinkCore::counters() const {
  Counters sum = gone_;
  if (!lane_) return sum;
  const RingCounters now = lane_->ring().counters();
  // What a flush or a stop cuts off was not wanted any more: no drop.
  sum.drops += now.overtaken;
  sum.waits += now.producer_waits;
  sum.published += now.published;
  return sum;
}

std::shared_ptr<const SinkCore::Session> SinkCore::session() const {
  const std::lock_guard lock(mutex_);
  return session_;
}

std::shared_ptr<Channel> SinkCore::channel() const {
  const auto session = this->session();
  return session ? session->channel : nullptr;
}

bool SinkCore::queue_is_empty() const {
  const auto current = lane();
  return !current || current->ring().queued() == 0;
}

std::shared_ptr<Lane> SinkCore::lane() const {
  const std::lock_guard lock(mutex_);
  return lane_;
}

void SinkCore::set_flushing(bool flushing) {
  const std::lock_guard lock(mutex_);
  flushing_ = flushing;
  if (lane_) lane_->ring().set_producer_flushing(flushing);
}

bool SinkCore::waits_for_itself(const Ring& ring, int slices, int own) const {
  // A frame that waits for the clock in another thread gives its slot back.
  if (rendering_ > own) return false;
  const std::uint32_t held = ring.held_by_writers();
  return (slices >= starved_slices && held == ring.slots()) ||
         (slices >= stalled_slices && held > 0 && ring.queued() == 0);
}

RingStatus SinkCore::wait_for_slot(const Session& session, Lane& lane, WriteLease& lease,
                                   const std::function<bool()>& stopped, Patience patience, int own) {
  const auto slot_wait = patience == Patience::waits ? wait_slice : 0ms;
  for (int slice = 1;; ++slice) {
    const RingStatus status = lane.ring().acquire(lease, session.settings.when_full, Clock::now() + slot_wait);
    if (status != RingStatus::timeout || patience == Patience::does_not_wait) return status;
    if (stopped() || is_outgrown(session, lane.ring())) return RingStatus::timeout;
    if (session.channel->downstream_flow() != GST_FLOW_OK) return RingStatus::closed;
    if (waits_for_itself(lane.ring(), slice, own)) return RingStatus::full;
    if (slice == lonely_slices) tell_of_loneliness(session, lane.ring());
  }
}

void SinkCore::tell_of_loneliness(const Session& session, const Ring& ring) {
  if (lonely_told_ || !session.channel->sink_playing()) return;
  GstElement* src = session.channel->src();
  GstElement* sink = session.channel->sink();
  if (src == nullptr && sink != nullptr) {
    lonely_told_ = true;
    post_warning(sink,
                 fmt::format("all {} slots are full, and no gpumapsrc is there to take a frame from channel \"{}\": "
                             "start one in this process with the same channel, or set leaky=oldest",
                             ring.slots(), session.channel->name()));
  }
  gst_clear_object(&src);
  gst_clear_object(&sink);
}

RingStatus SinkCore::acquire(std::size_t bytes, std::unique_ptr<Bytes>& slot, const std::function<bool()>& stopped,
                             Patience patience) {
  if (hoards_) return RingStatus::full;
  WriteLease lease;
  SlowSlots::Next next{};
  RingStatus status{};
  std::shared_ptr<const Session> session;
  while (true) {
    provision(bytes);
    session = this->session();
    const auto current = lane();
    if (!session || !current) return RingStatus::flushing;
    // Slots in host memory may be read as well as written.
    const bool readable = current->ring().mapping()->cpu_readable();
    const bool reads = upstream_ == Upstream::reads || maps_->upstream_reads.load(std::memory_order_relaxed);
    next = readable ? SlowSlots::Next::slot : slow_slots_.next();
    if ((reads && !readable) || next == SlowSlots::Next::host) return RingStatus::full;
    status = wait_for_slot(*session, *current, lease, stopped, patience, 0);
    if (status != RingStatus::timeout || !is_outgrown(*session, current->ring())) break;
  }
  if (status == RingStatus::ok) {
    slot = std::make_unique<Bytes>(std::move(lease), maps_, upstream_ == Upstream::writes_only);
    if (next == SlowSlots::Next::timed_slot) slot->use_cpu_clock();
  } else if (status == RingStatus::full && session->settings.when_full == WhenFull::block) {
    give_host_memory(session->settings);
  }
  return status;
}

void SinkCore::give_host_memory(const SinkSettings& settings) {
  // For good: a slot handed out behind frames in host memory would be missing when those come to be copied.
  if (hoards_.exchange(true)) return;
  GST_WARNING(
      "channel %s: upstream keeps too many of the %u slots and wants more: from here on it gets host memory, copied "
      "once a frame; more slots avoid that",
      settings.channel.c_str(), settings.slots);
}

void SinkCore::watch_upstream(const Session& session, Bytes& bytes) {
  using Next = SlowSlots::Next;
  if (bytes.cpu_readable()) return;
  const Next where = bytes.is_host() ? Next::host : bytes.uses_cpu_clock() ? Next::timed_slot : Next::slot;
  if (slow_slots_.filled(where, bytes.bytes(), bytes.take_time_mapped())) {
    maps_->cpu_reads.fetch_add(1, std::memory_order_relaxed);
    GST_WARNING(
        "channel %s: upstream reads what it writes, which GPU memory makes slow: from here on it gets host "
        "memory, copied once a frame",
        session.settings.channel.c_str());
  }
}

void SinkCore::publish(Lane& lane, WriteLease& lease, GstBuffer* buffer, std::size_t bytes, const FrameOrigin& origin) {
  FrameInfo info;
  info.bytes = bytes;
  info.pts = ring_time(GST_BUFFER_PTS(buffer));
  info.dts = ring_time(GST_BUFFER_DTS(buffer));
  info.duration = ring_time(GST_BUFFER_DURATION(buffer));
  info.offset = GST_BUFFER_OFFSET(buffer);
  info.offset_end = GST_BUFFER_OFFSET_END(buffer);
  if (stamping()) lease.stamp_source(origin.due_ns, origin.captured_ns);
  GstBuffer* carrier = carrier_of(buffer);
  if (hole_.load(std::memory_order_relaxed) && hole_.exchange(false)) {
    GST_BUFFER_FLAG_SET(carrier, GST_BUFFER_FLAG_DISCONT);
  }
  info.flags = GST_BUFFER_FLAGS(carrier);
  GST_LOG("frame %" G_GUINT64_FORMAT " of %zu bytes, pts %" GST_TIME_FORMAT ", in slot %u of ring %p",
          frames_.load(std::memory_order_relaxed), bytes, GST_TIME_ARGS(GST_BUFFER_PTS(buffer)), lease.slot(),
          static_cast<void*>(&lane.ring()));
  lane.put(lease.slot(), carrier);
  lane.ring().publish(lease, info);
  frames_.fetch_add(1, std::memory_order_relaxed);
}

void SinkCore::copy(WriteLease& lease, GstBuffer* buffer) {
  if (stamping()) lease.stamp(Stamp::first_store, monotonic_ns());
  std::size_t at = 0;
  for (guint i = 0; i < gst_buffer_n_memory(buffer); ++i) {
    GstMemory* memory = gst_buffer_peek_memory(buffer, i);
    GstMapInfo map;
    if (!gst_memory_map(memory, &map, GST_MAP_READ)) {
      throw Error(ErrorCode::invalid,
                  "a buffer from upstream cannot be mapped for reading: put the element that "
                  "downloads this memory (cudadownload, gldownload, …) before gpumapsink");
    }
    const auto unmap = [&map](GstMemory* mapped) { gst_memory_unmap(mapped, &map); };
    const std::unique_ptr<GstMemory, decltype(unmap)> mapped(memory, unmap);
    copier_.copy(lease, at, {reinterpret_cast<const std::byte*>(map.data), map.size});
    at += map.size;
  }
  if (stamping()) lease.stamp(Stamp::last_store, monotonic_ns());
  copied_.fetch_add(1, std::memory_order_relaxed);
  bytes_copied_.fetch_add(at, std::memory_order_relaxed);
}

std::optional<GstFlowReturn> SinkCore::send(GstBuffer* buffer, const FrameOrigin& origin,
                                            const std::function<bool()>& stopped, Patience patience) {
  const auto session = this->session();
  if (!session) return GST_FLOW_FLUSHING;
  const Channel& channel = *session->channel;
  const GstFlowReturn downstream = channel.downstream_flow();
  if (downstream != GST_FLOW_OK) return downstream;

  const std::size_t bytes = gst_buffer_get_size(buffer);
  auto current = lane();
  if (current && gst_buffer_n_memory(buffer) == 1) {
    GstMemory* memory = gst_buffer_peek_memory(buffer, 0);
    Bytes* ours = memory_bytes(memory);
    if (ours != nullptr) watch_upstream(*session, *ours);
    WriteLease* lease = ours != nullptr && memory->offset == 0 ? ours->writable_lease() : nullptr;
    if (lease != nullptr && lease->ring() == &current->ring()) {
      const std::size_t settled = ours->settle(bytes, copier_);
      if (settled != 0) {
        copied_.fetch_add(1, std::memory_order_relaxed);
        bytes_copied_.fetch_add(settled, std::memory_order_relaxed);
      } else {
        zero_copy_.fetch_add(1, std::memory_order_relaxed);
      }
      // From here on it belongs to the readers too.
      GST_MINI_OBJECT_FLAG_SET(memory, GST_MEMORY_FLAG_READONLY);
      publish(*current, *lease, buffer, bytes, origin);
      return GST_FLOW_OK;
    }
  }

  WriteLease lease;
  RingStatus status = RingStatus::full;
  Renewal renewal = Renewal::where_too_small;
  while (true) {
    current.reset();  // provision() may have to wait until the old ring is gone
    provision(bytes, renewal);
    current = lane();
    if (!current) return GST_FLOW_FLUSHING;
    status = wait_for_slot(*session, *current, lease, stopped, patience, 1);
    if (status == RingStatus::timeout && is_outgrown(*session, current->ring())) continue;
    // A ring whose slots upstream keeps, while it pushes what lies in none of them, is left to it: the next one is
    // free.
    const bool starved = status == RingStatus::full && session->settings.when_full == WhenFull::block;
    if (!starved || std::exchange(renewal, Renewal::always) == Renewal::always) break;
    give_host_memory(session->settings);
  }
  switch (status) {
    case RingStatus::ok:
      break;
    case RingStatus::timeout:
      return std::nullopt;
    case RingStatus::full:
      GST_DEBUG("channel %s: the ring is full: dropped pts %" GST_TIME_FORMAT, session->settings.channel.c_str(),
                GST_TIME_ARGS(GST_BUFFER_PTS(buffer)));
      drops_.fetch_add(1, std::memory_order_relaxed);
      mark_hole();
      if (session->log) session->log->add_dropped(1);
      return GST_FLOW_OK;
    case RingStatus::closed:
      return channel.downstream_flow() != GST_FLOW_OK ? channel.downstream_flow() : GST_FLOW_EOS;
    default:
      return GST_FLOW_FLUSHING;
  }
  copy(lease, buffer);
  publish(*current, lease, buffer, bytes, origin);
  return GST_FLOW_OK;
}

void SinkCore::report(const std::exception& error) const {
  const auto channel = this->channel();
  GstElement* sink = channel ? channel->sink() : nullptr;
  if (sink == nullptr) return;
  post_error(sink, error);
  gst_object_unref(sink);
}

GstStructure* SinkCore::stats() const {
  Counters counted;
  std::optional<Transport> transport;
  std::shared_ptr<Device> device;
  std::shared_ptr<LatencyLog> log;
  {
    const std::lock_guard lock(mutex_);
    device = device_;
    log = log_;
    counted = counters();
    transport = transport_;
  }
  const Copier::Plan copying = copier_.last();
  const auto u64 = [](std::uint64_t value) { return static_cast<guint64>(value); };
  GstStructure* made = gst_structure_new(
      "gpumapsink-stats", "frames", G_TYPE_UINT64, u64(frames_), "zero-copy-frames", G_TYPE_UINT64, u64(zero_copy_),
      "copied-frames", G_TYPE_UINT64, u64(copied_), "bytes-copied", G_TYPE_UINT64, u64(bytes_copied_), "drops",
      G_TYPE_UINT64, u64(drops_ + counted.drops), "cpu-reads", G_TYPE_UINT64, u64(maps_->cpu_reads), "waits",
      G_TYPE_UINT64, u64(counted.waits), "device", G_TYPE_STRING, device ? device->info().name.c_str() : "",
      "transport", G_TYPE_STRING, transport ? to_string(*transport).data() : "auto", "copy-threads", G_TYPE_UINT,
      copying.threads, "copy-kernel", G_TYPE_STRING, copying.kernel.data(), nullptr);
  add_latency(made, log.get());
  return made;
}

}  // namespace gpumap::gst
