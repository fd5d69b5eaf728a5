// SPDX-License-Identifier: MIT
// How a frame goes across: upstream's slot is published, or its memory copied into one.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/ptr.hpp"
#include "gst/sink/core.hpp"
#include "gst/sink/metadata_buffer.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

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
  channel_ring.ring().publish(lease, info);
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
  written.end_writing();
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
  if (channel.has_ended_unmet()) return GST_FLOW_OK;

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
      drops_.fetch_add(1, std::memory_order_relaxed);
      mark_hole();
      if (session->log) session->log->add_dropped(1);
      return GST_FLOW_OK;
    case RingStatus::closed:
      if (channel.has_ended_unmet()) return GST_FLOW_OK;
      return channel.downstream_flow() != GST_FLOW_OK ? channel.downstream_flow() : GST_FLOW_EOS;
    default:
      return GST_FLOW_FLUSHING;
  }
}

}  // namespace gpumap::gst
