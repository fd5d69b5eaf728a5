// SPDX-License-Identifier: MIT
#include "gst/sink/core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"
#include "gst/channel/ends.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/gst_error.hpp"
#include "gst/latency/latency_report.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/ptr.hpp"

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
// After this time with a full ring and no gpumapsrc, the element warns.
constexpr int lonely_slices = 150;
constexpr std::int64_t long_without_ns = std::chrono::nanoseconds(lonely_slices * wait_slice).count();
// An event that the application sends to the pipeline takes no time, unless a source waits for the thread that waits
// here, as GstBaseSrc does at EOS.
constexpr int event_slices = 10;

/// Where the ways of the frames go; null: they are not followed. What an application asks for begins with its start; a
/// tracer follows the channel from beginning to end.
std::shared_ptr<LatencyLog> log_of(const SinkSettings& settings) {
  auto log = traced_log(settings.channel);
  if (log || (!settings.stamps && settings.latency_interval_ms == 0)) return log;
  log = LatencyLog::of_channel(settings.channel);
  log->reset();
  return log;
}

}  // namespace

void SinkCore::open(const SinkSettings& settings) {
  auto device = Device::open(settings.device);
  if (device->info().access == DeviceAccess::none) throw Error(ErrorCode::not_supported, device->info().reason);
  const std::lock_guard lock(mutex_);
  device_ = std::move(device);
}

void SinkCore::start(GstElement* sink, const SinkSettings& settings) {
  start(sink, settings, channel_of(End::sink, sink, settings.channel));
}

void SinkCore::start(GstElement* sink, const SinkSettings& settings, const std::shared_ptr<Channel>& channel) {
  open(settings);
  std::string holder;
  if (!channel->attach_sink(sink, holder)) {
    throw FiguredError(
        Error(ErrorCode::invalid, fmt::format("channel \"{}\" has a gpumapsink already ({})", settings.channel, holder),
              "give each pair of gpumapsink and gpumapsrc a channel name of its own"),
        {{"channel", settings.channel}, {"holder", holder}});
  }
  try {
    join(sink, settings, channel);
  } catch (...) {
    reports_.reset();
    channel->detach_sink(false, 0);
    throw;
  }
}

void SinkCore::join(GstElement* sink, const SinkSettings& settings, const std::shared_ptr<Channel>& channel) {
  std::shared_ptr<LatencyLog> log = log_of(settings);
  channel->set_log(log);
  if (settings.latency_interval_ms != 0) reports_ = report_latency(sink, log, settings.latency_interval_ms);
  copier_.start(settings.copy_threads, try_schedule(sink, settings.threads));
  const std::lock_guard lock(mutex_);
  session_ = std::make_shared<const Session>(Session{settings, device_, channel, log});
  stamping_ = log != nullptr;
  log_ = std::move(log);
  flushing_ = false;
  gone_ = {};
  maps_->cpu_reads = 0;
  maps_->upstream_reads = false;
  slow_slots_.reset();
  hoards_ = false;
  lonely_told_ = false;
  stall_told_.clear();
  hole_ = false;
  no_slot_since_ns_ = 0;
  slots_limit_ = max_slots;
  transport_ = settings.transport;
  frames_ = zero_copy_ = copied_ = bytes_copied_ = bytes_in_place_ = drops_ = gathered_ = 0;
}

void SinkCore::stop(bool drained) {
  set_flushing(true);
  if (const auto session = this->session()) {
    const guint linger_ms = session->settings.linger_ms;
    session->channel->detach_sink(drained, linger_ms != G_MAXUINT ? linger_ms * GST_MSECOND : GST_CLOCK_TIME_NONE);
  }
  copier_.stop();
  reports_.reset();
  const std::scoped_lock lock(order_, mutex_);
  gone_ = counters();
  channel_ring_.reset();
  session_.reset();
}

SinkCore::Counters SinkCore::counters() const {
  Counters sum = gone_;
  if (!channel_ring_) return sum;
  const RingCounters now = channel_ring_->ring().counters();
  // What a flush or a stop cuts off was not wanted any more: no drop.
  sum.drops += now.overtaken;
  sum.waits += now.producer_waits;
  sum.published += now.published;
  return sum;
}

std::uint64_t SinkCore::given_up() const {
  const std::lock_guard lock(mutex_);
  if (!session_ || session_->settings.when_full == WhenFull::block) return 0;
  return drops_ + counters().drops;
}

std::string SinkCore::summary() const {
  const std::uint64_t copied = copied_;
  const std::uint64_t in_place = zero_copy_;
  const bool reads = maps_->cpu_reads > 0;
  const std::lock_guard lock(mutex_);
  const std::uint64_t drops = drops_ + counters().drops;
  if (copied + in_place + drops == 0) return {};
  std::string why;
  if (copied > 0 && gathered_ > 0 && bytes_in_place_ > 0) {
    why = fmt::format(" ({} of {} bytes)", bytes_copied_.load(), bytes_copied_ + bytes_in_place_);
  } else if (copied > 0) {
    why = reads     ? " (upstream reads what it writes)"
          : hoards_ ? " (upstream keeps too many slots: more slots avoid that)"
                    : " (upstream brings memory of its own)";
  }
  return fmt::format("{} frames: {} written in place, {} copied{}, {} dropped; transport {}", frames_.load(), in_place,
                     copied, why, drops, transport_ ? to_string(*transport_) : "auto");
}

std::shared_ptr<const SinkCore::Session> SinkCore::session() const {
  const std::lock_guard lock(mutex_);
  return session_;
}

SinkCore::Present SinkCore::present() const {
  const std::lock_guard lock(mutex_);
  return {session_, channel_ring_};
}

std::shared_ptr<Channel> SinkCore::channel() const {
  const auto session = this->session();
  return session ? session->channel : nullptr;
}

bool SinkCore::queue_is_empty() const {
  const auto current = channel_ring();
  return !current || current->ring().queued() == 0;
}

std::shared_ptr<ChannelRing> SinkCore::channel_ring() const {
  const std::lock_guard lock(mutex_);
  return channel_ring_;
}

void SinkCore::set_flushing(bool flushing) {
  const std::lock_guard lock(mutex_);
  flushing_ = flushing;
  no_slot_since_ns_ = 0;
  if (channel_ring_) channel_ring_->ring().set_producer_flushing(flushing);
}

bool SinkCore::waits_for_itself(const Ring& ring, int slices) {
  const std::uint32_t held = ring.held_by_writers();
  return (slices >= starved_slices && held == ring.slots()) ||
         (slices >= stalled_slices && held > 0 && ring.queued() == 0);
}

std::optional<RingStatus> SinkCore::wait_for_slot(const Session& session, ChannelRing& channel_ring, WriteLease& lease,
                                                  const std::function<bool()>& stopped, Patience patience, int own) {
  const auto slot_wait = patience == Patience::waits ? wait_slice : 0ms;
  int sending = 0;  // slices in a row in which the application sent an event
  int quiet = 0;    // slices since another thread rendered a frame, which waits for the clock and gives its slot back
  for (int slice = 1;; ++slice) {
    const RingStatus status = channel_ring.ring().acquire(lease, session.settings.when_full, Clock::now() + slot_wait);
    const bool drops_oldest = session.settings.when_full == WhenFull::drop_oldest;
    if (status == RingStatus::full && drops_oldest) {
      if (const auto far = session.channel->far_src(); far && far->make_room()) continue;
    }
    if (status == RingStatus::ok && no_slot_since_ns_.load(std::memory_order_relaxed) != 0) no_slot_since_ns_ = 0;
    if ((status == RingStatus::full || status == RingStatus::timeout) && end_stall(session)) continue;
    if (status == RingStatus::full) tell_who_has_all();
    if (status != RingStatus::timeout || patience == Patience::does_not_wait) return status;
    if (this->channel_ring().get() != &channel_ring || is_outgrown(session, channel_ring.ring())) return std::nullopt;
    if (stopped()) return RingStatus::timeout;
    if (session.channel->downstream_flow() != GST_FLOW_OK || session.channel->has_ended_unmet()) {
      return RingStatus::closed;
    }
    quiet = rendering_ > own ? 0 : quiet + 1;
    if (waits_for_itself(channel_ring.ring(), quiet)) return RingStatus::full;
    if (slice > lonely_slices) sending = is_kept_from_ending(session) ? sending + 1 : 0;
    if (sending == event_slices) session.channel->end_unmet();
    if (slice == lonely_slices) tell_who_stalls("has waited 3 s for a slot");
    if (slice == lonely_slices) tell_if_alone(fmt::format("all {} slots are full, and ", channel_ring.ring().slots()));
  }
}

bool SinkCore::is_kept_from_ending(const Session& session) {
  if (!session.settings.socket_path.empty()) return false;
  const Ptr<GstElement> src(session.channel->src());
  const Ptr<GstElement> sink(session.channel->sink());
  return !src && sink && is_sending_event(sink.get());
}

bool SinkCore::end_stall(const Session& session) {
  if (!session.channel->sink_playing()) return false;  // who is paused needs none
  std::int64_t since = 0;
  if (no_slot_since_ns_.compare_exchange_strong(since, monotonic_ns())) return false;
  if (session.settings.stall_limit_ms == 0) return false;
  const auto far = session.channel->far_src();
  return far && far->end_stall(Deadline(std::chrono::nanoseconds(since)));
}

void SinkCore::tell_if_alone(const std::string& why) {
  const auto session = this->session();
  if (!session || !session->settings.socket_path.empty()) return;
  const Ptr<GstElement> src(session->channel->src());
  const Ptr<GstElement> sink(session->channel->sink());
  // One may be on its way: a kernel behind it, which is compiled, starts before it.
  const Ptr<GstPad> pad(session->channel->src_pad());
  const Ptr<GstElement> announced(pad ? gst_pad_get_parent_element(pad.get()) : nullptr);
  if (announced && is_changing_state(announced.get())) return;
  if (src || !sink || lonely_told_.exchange(true)) return;
  const std::string& channel = session->channel->name();
  post_warning(sink.get(),
               FiguredError(Error(ErrorCode::not_found,
                                  fmt::format("{}no gpumapsrc is there to take a frame from channel \"{}\"; {}", why,
                                              printable(channel), ends_here(End::src)),
                                  "start one in this process with the same channel, or set leaky=oldest"),
                            {{"channel", channel}, {"slots", session->settings.slots}}));
}

void SinkCore::tell_who_has_all() {
  const std::int64_t since = no_slot_since_ns_;
  if (since == 0 || since == told_drops_since_ns_ || monotonic_ns() - since < long_without_ns) return;
  if (tell_who_stalls("has dropped each frame for 3 s")) told_drops_since_ns_ = since;
}

bool SinkCore::tell_who_stalls(const char* has_waited) {
  const auto session = this->session();
  if (!session || session->settings.socket_path.empty()) return false;
  const auto far = session->channel->far_src();
  const std::string who = far ? far->who_stalls() : std::string();
  if (who.empty()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stall_told_, who) == who) return true;
  }
  const Ptr<GstElement> sink(session->channel->sink());
  if (!sink) return true;
  const SinkSettings& settings = session->settings;
  post_warning(sink.get(),
               FiguredError(Error(ErrorCode::busy, fmt::format("gpumapsink at socket-path {} {}: {}",
                                                               printable(settings.socket_path), has_waited, who)),
                            {{"socket-path", settings.socket_path},
                             {"slots", settings.slots},
                             {"waited-ms", std::uint64_t{lonely_slices} * wait_slice.count()},
                             {"stall-limit", settings.stall_limit_ms}}));
  return true;
}

RingStatus SinkCore::acquire(std::size_t bytes, std::unique_ptr<FrameMemory>& slot,
                             const std::function<bool()>& stopped, Patience patience, Writer writer) {
  const bool for_upstream = writer == Writer::upstream;
  if (for_upstream && hoards_) return RingStatus::full;
  WriteLease lease;
  SlowSlots::Next next{};
  RingStatus status{};
  Present present;
  while (true) {
    present = this->present();
    if (!suffices(present, bytes)) {
      present = {};  // provision() may have to wait until the old ring is gone
      provision(bytes);
      present = this->present();
    }
    const auto& [session, current] = present;
    if (!session || !current) return RingStatus::flushing;
    next = for_upstream ? next_place(current->ring(), bytes) : SlowSlots::Next::slot;
    if (next == SlowSlots::Next::host) return RingStatus::full;
    if (const auto waited = wait_for_slot(*session, *current, lease, stopped, patience, 0)) {
      status = *waited;
      break;
    }
  }
  if (status == RingStatus::ok) {
    const bool trusted = !for_upstream || upstream_ == Upstream::writes_only;
    slot = std::make_unique<FrameMemory>(std::move(lease), maps_, trusted);
    if (next == SlowSlots::Next::timed_slot) slot->use_cpu_clock();
  } else if (for_upstream && status == RingStatus::full && present.session->settings.when_full == WhenFull::block) {
    give_host_memory(present.session->settings);
  }
  return status;
}

SlowSlots::Next SinkCore::next_place(const Ring& ring, std::size_t bytes) const {
  // Slots in host memory may be read as well as written.
  if (ring.mapping()->cpu_readable()) return SlowSlots::Next::slot;
  const bool reads = upstream_ == Upstream::reads || maps_->upstream_reads.load(std::memory_order_relaxed);
  return reads ? SlowSlots::Next::host : slow_slots_.next(bytes);
}

std::unique_ptr<FrameMemory> SinkCore::lend(GstMemory* slot, std::size_t at, std::size_t bytes) const {
  const WriteLease* lease = frame_memory(slot)->writable_lease();
  if (lease == nullptr || hoards_) return nullptr;
  const SlowSlots::Next next = next_place(*lease->ring(), bytes);
  if (next == SlowSlots::Next::host) {
    return slow_slots_.times_host(bytes) ? std::make_unique<FrameMemory>(bytes) : nullptr;
  }
  auto part = std::make_unique<FrameMemory>(Ptr<GstMemory>(gst_memory_ref(slot)), at, bytes,
                                            upstream_ == Upstream::writes_only);
  if (next == SlowSlots::Next::timed_slot) part->use_cpu_clock();
  return part;
}

void SinkCore::give_host_memory(const SinkSettings& settings) {
  // For good: a slot handed out behind frames in host memory would be missing when those come to be copied.
  if (hoards_.exchange(true)) return;
  GST_WARNING(
      "channel %s: upstream keeps too many of the %u slots and wants more: from here on it gets host memory, copied "
      "once a frame; more slots avoid that",
      settings.channel.c_str(), settings.slots);
}

void SinkCore::watch_upstream(FrameMemory& bytes) {
  using Next = SlowSlots::Next;
  if (!SlowSlots::tells(bytes.bytes()) || bytes.cpu_readable()) return;
  const Next where = bytes.is_host() ? Next::host : bytes.uses_cpu_clock() ? Next::timed_slot : Next::slot;
  if (slow_slots_.filled(where, bytes.bytes(), bytes.take_time_mapped())) {
    maps_->cpu_reads.fetch_add(1, std::memory_order_relaxed);
    const auto session = this->session();
    GST_WARNING(
        "channel %s: upstream reads what it writes, which GPU memory makes slow: from here on it gets host "
        "memory, copied once a frame",
        session ? session->settings.channel.c_str() : "");
  }
}

void SinkCore::report(const std::exception& error) const {
  const auto channel = this->channel();
  GstElement* sink = channel ? channel->sink() : nullptr;
  if (sink == nullptr) return;
  post_error(sink, error);
  gst_object_unref(sink);
}

GstStructure* SinkCore::stats(const char* name) const {
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
      name, "frames", G_TYPE_UINT64, u64(frames_), "zero-copy-frames", G_TYPE_UINT64, u64(zero_copy_), "copied-frames",
      G_TYPE_UINT64, u64(copied_), "bytes-copied", G_TYPE_UINT64, u64(bytes_copied_), "bytes-in-place", G_TYPE_UINT64,
      u64(bytes_in_place_), "gathered-buffers", G_TYPE_UINT64, u64(gathered_), "drops", G_TYPE_UINT64,
      u64(drops_ + counted.drops), "cpu-reads", G_TYPE_UINT64, u64(maps_->cpu_reads), "waits", G_TYPE_UINT64,
      u64(counted.waits), "device", G_TYPE_STRING, device ? device->info().name.c_str() : "", "transport",
      G_TYPE_STRING, transport ? to_string(*transport).data() : "auto", "copy-threads", G_TYPE_UINT, copying.threads,
      "copy-kernel", G_TYPE_STRING, copying.kernel.data(), nullptr);
  add_latency(made, log.get());
  return made;
}

// How a frame goes across: upstream's slot is published, or its memory copied into one.
namespace {

std::int64_t ring_time(GstClockTime time) {
  return GST_CLOCK_TIME_IS_VALID(time) ? static_cast<std::int64_t>(time) : no_time;
}

/// Calls `use` with what `buffer` has from byte `from` on, `bytes` in all, in as many pieces as there are memories.
template <typename Use>
void for_each_piece(GstBuffer* buffer, std::size_t from, std::size_t bytes, Use use) {
  for (guint i = 0; i < gst_buffer_n_memory(buffer) && bytes > 0; ++i) {
    GstMemory* memory = gst_buffer_peek_memory(buffer, i);
    if (from >= memory->size) {
      from -= memory->size;
      continue;
    }
    if (FrameMemory* ours = frame_memory(memory); ours != nullptr) ours->end_writing();
    GstMapInfo map;
    if (!gst_memory_map(memory, &map, GST_MAP_READ)) {
      throw Error(ErrorCode::invalid,
                  "a buffer from upstream cannot be mapped for reading: put the element that "
                  "downloads this memory (cudadownload, gldownload, …) before gpumapsink");
    }
    const auto unmap = [&map](GstMemory* mapped) { gst_memory_unmap(mapped, &map); };
    const std::unique_ptr<GstMemory, decltype(unmap)> mapped(memory, unmap);
    const std::size_t some = std::min(map.size - from, bytes);
    use(std::span(reinterpret_cast<const std::byte*>(map.data) + from, some));
    from = 0;
    bytes -= some;
  }
}

}  // namespace

bool SinkCore::publish(ChannelRing& channel_ring, WriteLease& lease, GstBuffer* buffer, std::size_t bytes,
                       const FrameOrigin& origin) {
  FrameInfo info;
  info.bytes = bytes;
  info.pts = ring_time(GST_BUFFER_PTS(buffer));
  info.dts = ring_time(GST_BUFFER_DTS(buffer));
  info.duration = ring_time(GST_BUFFER_DURATION(buffer));
  info.offset = GST_BUFFER_OFFSET(buffer);
  info.offset_end = GST_BUFFER_OFFSET_END(buffer);
  if (stamping()) lease.stamp_source(origin.due_ns, origin.captured_ns);
  Ptr<GstBuffer> carrier(carrier_of(buffer));
  const std::lock_guard lock(order_);
  if (channel_ring_.get() != &channel_ring) return false;
  if (hole_.load(std::memory_order_relaxed) && hole_.exchange(false)) {
    GST_BUFFER_FLAG_SET(carrier.get(), GST_BUFFER_FLAG_DISCONT);
  }
  info.flags = GST_BUFFER_FLAGS(carrier.get());
  GST_LOG("frame %" G_GUINT64_FORMAT " of %zu bytes, pts %" GST_TIME_FORMAT ", in slot %u of ring %p",
          frames_.load(std::memory_order_relaxed), bytes, GST_TIME_ARGS(GST_BUFFER_PTS(buffer)), lease.slot(),
          static_cast<void*>(&channel_ring.ring()));
  channel_ring.put(lease.slot(), carrier.release());
  try {
    channel_ring.ring().publish(lease, info);
  } catch (const Error&) {
    const std::lock_guard now(mutex_);
    if (flushing_) return false;  // nobody wants the frame any more, for which the GPU would have been waited for
    throw;
  }
  frames_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void SinkCore::copy(WriteLease& lease, GstBuffer* buffer) {
  if (stamping()) lease.stamp(Stamp::first_store, monotonic_ns());
  std::size_t at = 0;
  for_each_piece(buffer, 0, gst_buffer_get_size(buffer), [&](std::span<const std::byte> piece) {
    copier_.copy(lease, at, piece);
    at += piece.size();
  });
  if (stamping()) lease.stamp(Stamp::last_store, monotonic_ns());
}

void SinkCore::take_part(GstMemory* slot, GstMemory* part) {
  FrameMemory& written = *frame_memory(part);
  watch_upstream(written);
  frame_memory(slot)->count_copied(written.fill_slot(part->size, copier_));
  // From here on it belongs to the readers too.
  for (GstMemory* one = part; one != nullptr; one = one->parent) {
    GST_MINI_OBJECT_FLAG_SET(one, GST_MEMORY_FLAG_READONLY);
  }
}

void SinkCore::fill(GstMemory* slot, std::size_t at, GstBuffer* buffer, std::size_t from, std::size_t bytes) {
  FrameMemory& memory = *frame_memory(slot);
  GstMemory* only = gst_buffer_n_memory(buffer) == 1 ? gst_buffer_peek_memory(buffer, 0) : nullptr;
  if (FrameMemory* ours = frame_memory(only); ours != nullptr && from == 0) watch_upstream(*ours);
  const WriteLease* lease = memory.writable_lease();
  for_each_piece(buffer, from, bytes, [&](std::span<const std::byte> piece) {
    if (lease != nullptr) {
      copier_.copy(*lease, at, piece);
    } else {
      std::memcpy(memory.map(GST_MAP_WRITE) + at, piece.data(), piece.size());
      memory.unmap();
    }
    at += piece.size();
  });
  memory.count_copied(bytes);
}

void SinkCore::count_copied(std::size_t bytes) {
  copied_.fetch_add(1, std::memory_order_relaxed);
  bytes_copied_.fetch_add(bytes, std::memory_order_relaxed);
}

std::optional<GstFlowReturn> SinkCore::send(GstBuffer* buffer, const FrameOrigin& origin,
                                            const std::function<bool()>& stopped, Patience patience) {
  Present at = present();
  auto& [session, current] = at;
  if (!session) return GST_FLOW_FLUSHING;
  const Channel& channel = *session->channel;
  const GstFlowReturn downstream = channel.downstream_flow();
  if (downstream != GST_FLOW_OK) return downstream;
  const auto drop = [this, log = session->log.get()] {
    drops_.fetch_add(1, std::memory_order_relaxed);
    mark_hole();
    if (log != nullptr) log->add_dropped(1);
    return GST_FLOW_OK;
  };
  if (channel.has_ended_unmet()) return drop();

  const std::size_t bytes = gst_buffer_get_size(buffer);
  if (current && gst_buffer_n_memory(buffer) == 1) {
    GstMemory* memory = gst_buffer_peek_memory(buffer, 0);
    FrameMemory* ours = frame_memory(memory);
    if (ours != nullptr) watch_upstream(*ours);
    WriteLease* lease = ours != nullptr && memory->offset == 0 ? ours->writable_lease() : nullptr;
    if (lease != nullptr && lease->ring() == &current->ring()) {
      const std::size_t settled = ours->fill_slot(bytes, copier_);
      // From here on it belongs to the readers too.
      GST_MINI_OBJECT_FLAG_SET(memory, GST_MEMORY_FLAG_READONLY);
      if (publish(*current, *lease, buffer, bytes, origin)) {
        bytes_in_place_.fetch_add(bytes - settled, std::memory_order_relaxed);
        if (settled != 0) {
          count_copied(settled);
        } else {
          zero_copy_.fetch_add(1, std::memory_order_relaxed);
        }
        channel.hand_on();
        return GST_FLOW_OK;
      }
      GST_MINI_OBJECT_FLAG_UNSET(memory, GST_MEMORY_FLAG_READONLY);
    }
  }

  WriteLease lease;
  RingStatus status = RingStatus::full;
  Renewal renewal = Renewal::where_too_small;
  for (bool good = suffices(at, bytes);; good = false) {
    if (!good) {
      current.reset();  // provision() may have to wait until the old ring is gone
      provision(bytes, renewal);
      current = channel_ring();
    }
    if (!current) return GST_FLOW_FLUSHING;
    const auto waited = wait_for_slot(*session, *current, lease, stopped, patience, 1);
    if (!waited) continue;
    status = *waited;
    if (status == RingStatus::ok) {
      copy(lease, buffer);
      if (publish(*current, lease, buffer, bytes, origin)) {
        count_copied(bytes);
        channel.hand_on();
        return GST_FLOW_OK;
      }
      lease = {};
      renewal = Renewal::where_too_small;
      continue;
    }
    // A ring whose slots upstream keeps, while it pushes what lies in none of them, is left to it: the next one is
    // free.
    const bool starved = status == RingStatus::full && session->settings.when_full == WhenFull::block;
    if (!starved || std::exchange(renewal, Renewal::always) == Renewal::always) break;
    give_host_memory(session->settings);
  }
  switch (status) {
    case RingStatus::timeout:
      return std::nullopt;
    case RingStatus::full:
      GST_DEBUG("channel %s: the ring is full: dropped pts %" GST_TIME_FORMAT, session->settings.channel.c_str(),
                GST_TIME_ARGS(GST_BUFFER_PTS(buffer)));
      return drop();
    case RingStatus::closed:
      if (channel.has_ended_unmet()) return drop();
      return channel.downstream_flow() != GST_FLOW_OK ? channel.downstream_flow() : GST_FLOW_EOS;
    default:
      return GST_FLOW_FLUSHING;
  }
}

}  // namespace gpumap::gst
