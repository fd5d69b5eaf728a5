// SPDX-License-Identifier: MIT
#include "c/c_ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "c/stream_messages.hpp"
#include "gpumap/error.hpp"

namespace gpumap::c {
namespace {

/// How long a release waits for GPU work that writes a slot which is not published.
constexpr std::int64_t longest_write_ns = 60'000'000'000;

std::optional<Transport> transport_of(std::uint32_t transport) {
  switch (transport) {
    case GPUMAP_TRANSPORT_AUTO:
      return {};
    case GPUMAP_TRANSPORT_BAR:
      return Transport::bar;
    case GPUMAP_TRANSPORT_PINNED:
      return Transport::pinned;
    case GPUMAP_TRANSPORT_ZERO_COPY:
      return Transport::zero_copy;
    case GPUMAP_TRANSPORT_PAGEABLE:
      return Transport::pageable;
    default:
      throw Error(ErrorCode::invalid, fmt::format("no transport is {}: see gpumap_transport", transport));
  }
}

std::uint32_t number_of(Transport transport) noexcept {
  switch (transport) {
    case Transport::bar:
      return GPUMAP_TRANSPORT_BAR;
    case Transport::pinned:
      return GPUMAP_TRANSPORT_PINNED;
    case Transport::zero_copy:
      return GPUMAP_TRANSPORT_ZERO_COPY;
    default:
      return GPUMAP_TRANSPORT_PAGEABLE;
  }
}

/// The frame as the C++ library has it. Times that are negative are not known.
FrameInfo frame_of(const gpumap_frame_info* given, std::size_t slot_bytes) {
  FrameInfo info;
  info.bytes = slot_bytes;
  if (given == nullptr) return info;
  // A caller with an older header knows fewer members: these have the values of nothing known.
  const gpumap_frame_info frame = options_of(given, "gpumap_frame_info");
  info.bytes = frame.bytes;
  info.pts = std::max(frame.pts, no_time);
  info.dts = std::max(frame.dts, no_time);
  info.duration = std::max(frame.duration, no_time);
  info.offset = frame.offset;
  info.offset_end = frame.offset_end;
  info.flags = frame.flags;
  info.user = frame.user;
  return info;
}

gpumap_frame_info told_of(const FrameInfo& frame) {
  gpumap_frame_info made{};
  made.bytes = frame.bytes;
  made.pts = frame.pts;
  made.dts = frame.dts;
  made.duration = frame.duration;
  made.offset = frame.offset;
  made.offset_end = frame.offset_end;
  made.flags = frame.flags;
  made.user = frame.user;
  made.sequence = frame.sequence;
  made.publish_ns = frame.publish_ns;
  return made;
}

[[noreturn]] void throw_ended() {
  throw Failure(GPUMAP_ERROR_CLOSED,
                "the stream was ended by gpumap_ring_end(), or its server was closed: make another ring");
}

/// Of a picture that is no video of GStreamer's, clients know the layout from its caps alone. Throws
/// Error(not_supported).
void check_crosses(const std::optional<gpumap_layout>& layout) {
  if (!layout || !is_picture(layout->format) || gst_number_of(layout->format) != 0) return;
  const auto usual = usual_layout(layout->format, layout->width, layout->height);
  const auto lies_as = [&](const gpumap_layout& other) {
    return std::equal(layout->offset, layout->offset + layout->planes, other.offset) &&
           std::equal(layout->stride, layout->stride + layout->planes, other.stride);
  };
  if (usual && lies_as(*usual)) return;
  throw Error(ErrorCode::not_supported,
              fmt::format("a layout of format {} does not reach the clients of a served ring, who lay such frames "
                          "without gaps: give rows one behind the other",
                          layout->format));
}

}  // namespace

gpumap_ring_info info_of(const Ring& ring) {
  gpumap_ring_info made{};
  const RingCounters counters = ring.counters();
  made.slot_bytes = ring.slot_bytes();
  made.published = counters.published;
  made.taken = counters.received;
  made.dropped = counters.dropped;
  made.slots = ring.slots();
  made.transport = number_of(ring.transport());
  made.queued = ring.queued();
  return made;
}

gpumap_status RingCore::interrupted() const {
  if (closed_) throw Failure(GPUMAP_ERROR_CLOSED, "gpumap_ring_close() was called while this call waited");
  return GPUMAP_STOPPED;
}

void StreamState::set_caps(const Caps& from) {
  caps = std::make_shared<const std::string>(text_of(from));
  usual = layout_of(from);
}

std::optional<gpumap_layout> SlotObject::known_layout() const {
  std::optional<gpumap_layout> made = stream.layout ? stream.layout : stream.usual;
  // What crosses beside the caps says nothing of colours and fields.
  if (stream.layout && stream.usual && stream.layout->format == stream.usual->format) {
    if (made->matrix == 0) made->matrix = stream.usual->matrix;
    if (made->range == 0) made->range = stream.usual->range;
    if (made->interlace == 0) made->interlace = stream.usual->interlace;
  }
  // Another process may have said anything.
  if (made && made->format != GPUMAP_FORMAT_VIDEO_OTHER) check_layout(*made, info.bytes);
  return made;
}

gpumap_layout SlotObject::layout() const {
  const auto known = known_layout();
  if (known) return *known;
  throw Error(ErrorCode::not_supported,
              stream.caps ? fmt::format("caps \"{}\" say no layout that gpumap knows: read the caps", *stream.caps)
                          : std::string("the producer says no caps: it calls gpumap_ring_set_caps()"));
}

void SlotObject::check_revoked() const {
  // Nothing of the rings before is taken back.
  const bool is_of_ring_now = connection != nullptr && connection->ring().get() == read.ring();
  if (!is_of_ring_now || !connection->revoked()) return;
  throw Failure(GPUMAP_ERROR_REVOKED,
                "the producer took the slot back, as this client kept it for longer than the producer waits: release "
                "slots sooner, or connect with another gpumap_leaky");
}

gpumap_status LocalRing::acquire(std::uint32_t when_full, std::int64_t timeout_ns, std::unique_ptr<Object>& slot) {
  if (when_full > GPUMAP_WHEN_FULL_DROP_OLDEST) {
    throw Error(ErrorCode::invalid, fmt::format("when_full is {}: see gpumap_when_full", when_full));
  }
  std::shared_ptr<LinkServer> server;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) throw_ended();
    server = server_;
  }
  const WhenFull when = when_full == GPUMAP_WHEN_FULL_DROP_OLDEST ? WhenFull::drop_oldest
                        : timeout_ns == 0                         ? WhenFull::drop_newest
                                                                  : WhenFull::block;
  WriteLease lease;
  const RingStatus status = server ? server->acquire(lease, when, deadline_of(timeout_ns))
                                   : ring_->acquire(lease, when, deadline_of(timeout_ns));
  switch (status) {
    case RingStatus::ok:
      slot = std::make_unique<SlotObject>(shared_from_this(), std::move(lease));
      return GPUMAP_OK;
    case RingStatus::timeout:
      return GPUMAP_TIMEOUT;
    case RingStatus::full:
      return GPUMAP_FULL;
    case RingStatus::flushing:
      return interrupted();
    case RingStatus::closed:
      break;
  }
  throw_ended();
}

gpumap_status LocalRing::take(std::int64_t timeout_ns, std::unique_ptr<Object>& slot) {
  struct Taking {
    explicit Taking(LocalRing& of) : of_(of) {
      const std::lock_guard lock(of_.mutex_);
      if (of_.server_) {
        throw Error(ErrorCode::invalid,
                    "this ring is served, and its clients take the frames: connect to it by gpumap_ring_connect()");
      }
      ++of_.takers_;
    }
    ~Taking() { --of_.takers_; }
    Taking(const Taking&) = delete;
    Taking& operator=(const Taking&) = delete;

   private:
    LocalRing& of_;
  };
  const Taking taking(*this);
  ReadLease lease;
  switch (ring_->receive(lease, deadline_of(timeout_ns))) {
    case RingStatus::ok: {
      const FrameInfo info = lease.info();
      StreamState stream = streams_[lease.slot()];
      slot = std::make_unique<SlotObject>(shared_from_this(), std::move(lease), info, std::move(stream), nullptr);
      return GPUMAP_OK;
    }
    case RingStatus::flushing:
      return interrupted();
    case RingStatus::closed:
      return GPUMAP_END;
    default:
      return GPUMAP_TIMEOUT;
  }
}

void LocalRing::publish(WriteLease& lease, const FrameInfo& info) {
  std::shared_ptr<LinkServer> server;
  {
    const std::lock_guard lock(mutex_);
    streams_[lease.slot()] = stream_;
    server = server_;
    if (server) tell_of_segment();
  }
  if (server) {
    server->publish(lease, info);
  } else {
    ring_->publish(lease, info);
  }
}

/// Behind the caps, as on a GStreamer pad.
void LocalRing::tell_of_segment() {
  if (std::exchange(told_segment_, true)) return;
  server_->send(segment_message(), key_of(Kept::segment));
}

void LocalRing::set_caps(const char* caps) {
  std::optional<Caps> parsed;
  StreamState stream;
  if (caps != nullptr && *caps != '\0') {
    parsed = parse_caps(caps);
    stream.set_caps(*parsed);
  }
  const std::lock_guard lock(mutex_);
  if (server_ && caps_ && !parsed) {
    throw Error(ErrorCode::invalid,
                "this ring is served, and its clients have its caps: give them others, for they cannot lose them");
  }
  caps_ = std::move(parsed);
  stream.layout = stream_.layout;
  stream_ = std::move(stream);
  if (!server_ || !caps_) return;
  server_->send(caps_message(*caps_), key_of(Kept::caps));
  tell_of_segment();
}

void LocalRing::set_layout(const gpumap_layout* layout) {
  std::optional<gpumap_layout> wanted;
  if (layout != nullptr) {
    wanted = options_of(layout, "gpumap_layout");
    check_layout(*wanted, ring_->slot_bytes());
  }
  const std::lock_guard lock(mutex_);
  if (server_) check_crosses(wanted);
  stream_.layout = wanted;
  if (server_) server_->send(layout_message(wanted ? &*wanted : nullptr), key_of(Kept::layout));
}

void LocalRing::end() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return;
  if (server_) server_->send(end_message(), key_of(Kept::end));
  ring_->close_producer();
}

void LocalRing::drop_queued() {
  if (const auto server = this->server()) {
    server->withdraw_all();
  } else {
    ring_->drop_queued();
  }
}

gpumap_ring_info LocalRing::info() const {
  gpumap_ring_info made = info_of(*ring_);
  made.served = server() ? 1 : 0;
  put_text(made.why, ring_->fallback_reason());
  return made;
}

void LocalRing::stop(bool stopped) {
  stopped_ = stopped;
  ring_->set_producer_flushing(stopped);
  const std::lock_guard lock(mutex_);
  // The server is no caller that waits: its clients get what is published all the same.
  ring_->set_consumer_flushing(stopped_ && !was_served_);
}

std::shared_ptr<LinkServer> LocalRing::server() const {
  const std::lock_guard lock(mutex_);
  return server_;
}

void LocalRing::serve(LinkServerOptions options, std::int64_t base_ns) {
  const std::lock_guard lock(mutex_);
  if (was_served_) throw Error(ErrorCode::invalid, "this ring is or was served: make another one for another server");
  if (ended_) throw_ended();
  if (ring_->queued() != 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("{} frames of this ring wait for gpumap_ring_take(): take them, or call "
                            "gpumap_ring_drop_queued(), before it is served",
                            ring_->queued()));
  }
  if (takers_ != 0) {
    throw Error(ErrorCode::invalid,
                "another thread is in gpumap_ring_take(), and once the ring is served its clients take the frames: end "
                "that call before, by gpumap_ring_stop()");
  }
  check_crosses(stream_.layout);
  const std::string id = "gpumap/" + options.path;
  server_ = LinkServer::serve(ring_, std::move(options));
  was_served_ = true;
  ring_->set_consumer_flushing(false);
  server_->send(time_message(base_ns), key_of(Kept::time));
  server_->send(stream_start_message(id), key_of(Kept::stream_start));
  if (caps_) {
    server_->send(caps_message(*caps_), key_of(Kept::caps));
    tell_of_segment();
  }
  if (stream_.layout) server_->send(layout_message(&*stream_.layout), key_of(Kept::layout));
}

void LocalRing::end_serving() noexcept {
  std::shared_ptr<LinkServer> last;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    last.swap(server_);
  }
  ring_->close_producer();
  // Who waited for a slot has the server, too, and is not to be the last one: the server's destructor waits for
  // clients.
  const Deadline end = Clock::now() + patience_at_end;
  while (last.use_count() > 1 && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Not under the lock.
}

}  // namespace gpumap::c

using namespace gpumap;     // NOLINT: definitions of the C interface
using namespace gpumap::c;  // NOLINT

gpumap_status gpumap_ring_create(gpumap_device device, const gpumap_ring_options* options, gpumap_ring* ring) {
  return guarded([&] {
    need(ring, "where the ring is to go");
    need(options, "gpumap_ring_options");
    const auto on = use<DeviceObject>(device);
    const gpumap_ring_options wanted = options_of(options, "gpumap_ring_options");
    RingOptions made;
    if (wanted.slots != 0) made.slots = wanted.slots;
    made.slot_bytes = wanted.slot_bytes;
    made.transport = transport_of(wanted.transport);
    made.spin = std::chrono::nanoseconds(std::max<std::int64_t>(wanted.spin_ns, 0));
    MappingOptions memory;
    require(memory, *on, wanted.flags);
    made.require_coherent = memory.require_coherent;
    made.treat_as_non_coherent = memory.treat_as_non_coherent;
    hand_out(std::make_unique<RingObject>(std::make_shared<LocalRing>(Ring::create(on->device, made))), ring);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_close(gpumap_ring ring) {
  return guarded([&] {
    if (ring != nullptr) close<RingObject>(ring)->core->close();
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_get_info(gpumap_ring ring, gpumap_ring_info* info) {
  return guarded([&] {
    tell(use<RingObject>(ring)->core->info(), info, "gpumap_ring_info");
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_get_device(gpumap_ring ring, gpumap_device* device) {
  return guarded([&] {
    need(device, "where the device is to go");
    hand_out(std::make_unique<DeviceObject>(use<RingObject>(ring)->core->device(), 0U), device);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_acquire(gpumap_ring ring, uint32_t when_full, int64_t timeout_ns, gpumap_slot* slot) {
  return guarded([&] {
    need(slot, "where the slot is to go");
    std::unique_ptr<Object> made;
    const gpumap_status status = use<RingObject>(ring)->core->acquire(when_full, timeout_ns, made);
    if (status == GPUMAP_OK) hand_out(std::move(made), slot);
    return status;
  });
}

gpumap_status gpumap_ring_take(gpumap_ring ring, int64_t timeout_ns, gpumap_slot* slot) {
  return guarded([&] {
    need(slot, "where the slot is to go");
    std::unique_ptr<Object> made;
    const gpumap_status status = use<RingObject>(ring)->core->take(timeout_ns, made);
    if (status == GPUMAP_OK) hand_out(std::move(made), slot);
    return status;
  });
}

gpumap_status gpumap_slot_publish(gpumap_slot slot, const gpumap_frame_info* info, const gpumap_fence* after,
                                  int64_t timeout_ns) {
  return guarded([&]() -> gpumap_status {
    const Deadline deadline = deadline_of(timeout_ns);
    const auto object = use<SlotObject>(slot);
    const Turns::Turn turn(object->turns, deadline);
    if (!turn) return GPUMAP_TIMEOUT;
    if (!object->write) {
      throw Error(ErrorCode::invalid,
                  "only a slot of gpumap_ring_acquire() is published, and once: this was taken, or "
                  "is published by another thread");
    }
    const FrameInfo frame = frame_of(info, object->bytes);
    const Fence written = fence_of(*object->device, after);
    switch (written.wait(object->core->stopped(), deadline)) {
      case WaitResult::ready:
        break;
      case WaitResult::timeout:
        return GPUMAP_TIMEOUT;
      case WaitResult::cancelled:
        return object->core->interrupted();
    }
    try {
      object->core->publish(object->write, frame);
    } catch (const Error&) {
      if (object->core->stopped()) return object->core->interrupted();  // by which a copy ends as well
      throw;
    }
    object->write = {};
    static_cast<void>(close<SlotObject>(slot));
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_slot_release(gpumap_slot slot, const gpumap_fence* until) {
  return guarded([&]() -> gpumap_status {
    if (slot == nullptr) return GPUMAP_OK;
    const Deadline deadline = deadline_of(longest_write_ns);
    const auto object = use<SlotObject>(slot);
    const Turns::Turn turn(object->turns, deadline);
    if (!turn) return GPUMAP_TIMEOUT;
    const Fence used = fence_of(*object->device, until);
    if (object->is_taken) {
      const std::lock_guard lock(object->mutex);
      if (!used.signalled()) object->read.add_read_fence(used);
    } else if (object->write) {
      const std::atomic<bool> never{false};
      if (used.wait(never, deadline) != WaitResult::ready) return GPUMAP_TIMEOUT;
      object->write = {};  // here: a publish may wait for its turn
    }
    // A lease for reading ends with the last call that is under way: one that launches a kernel has yet to say until
    // when it reads.
    static_cast<void>(close<SlotObject>(slot));
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_slot_wait(gpumap_slot slot, const gpumap_fence* who, int64_t timeout_ns) {
  return guarded([&] {
    const auto object = use<SlotObject>(slot);
    return let_wait(*object->device, object->written, who, timeout_ns);
  });
}

gpumap_status gpumap_slot_get_memory(gpumap_slot slot, gpumap_memory_info* info) {
  return guarded([&] {
    tell(use<SlotObject>(slot)->place().info(), info, "gpumap_memory_info");
    return GPUMAP_OK;
  });
}

namespace {

/// Throws for a slot that was acquired.
void need_taken(const SlotObject& slot) {
  if (slot.is_taken) return;
  throw Error(ErrorCode::invalid, "a slot of gpumap_ring_acquire() has no frame yet: ask one of gpumap_ring_take()");
}

}  // namespace

gpumap_status gpumap_slot_get_frame(gpumap_slot slot, gpumap_frame_info* info) {
  return guarded([&] {
    const auto object = use<SlotObject>(slot);
    need_taken(*object);
    tell(told_of(object->info), info, "gpumap_frame_info");
    return GPUMAP_OK;
  });
}

const char* gpumap_slot_caps(gpumap_slot slot) {
  return guarded_or<const char*>(nullptr, [&] {
    const auto object = use<SlotObject>(slot);
    need_taken(*object);
    return object->stream.caps ? object->stream.caps->c_str() : "";
  });
}

gpumap_status gpumap_slot_get_layout(gpumap_slot slot, gpumap_layout* layout) {
  return guarded([&] {
    const auto object = use<SlotObject>(slot);
    need_taken(*object);
    tell(object->layout(), layout, "gpumap_layout");
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_slot_write(gpumap_slot slot, uint64_t offset, const void* from, uint64_t bytes) {
  return guarded([&] {
    const auto object = use<SlotObject>(slot);
    if (object->is_taken) {
      throw Error(ErrorCode::invalid,
                  "a slot of gpumap_ring_take() is only read: write to one of gpumap_ring_acquire()");
    }
    object->place().copy_in(offset, from, bytes);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_slot_read(gpumap_slot slot, uint64_t offset, void* to, uint64_t bytes) {
  return guarded([&]() -> gpumap_status {
    const auto object = use<SlotObject>(slot);
    if (object->written.wait_for(patience_of(longest_write_ns)) != WaitResult::ready) return GPUMAP_TIMEOUT;
    object->place().copy_out(offset, to, bytes);
    object->check_revoked();
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_slot_check(gpumap_slot slot) {
  return guarded([&] {
    use<SlotObject>(slot)->check_revoked();
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_slot_export_vulkan(gpumap_slot slot, gpumap_vulkan_export* exported) {
  return guarded([&] {
    need(exported, "gpumap_vulkan_export");
    check_size(exported->struct_size, "gpumap_vulkan_export");
    tell(use<SlotObject>(slot)->place().exported(), exported, "gpumap_vulkan_export");
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_stop(gpumap_ring ring) {
  return guarded([&] {
    use<RingObject>(ring)->core->stop(true);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_resume(gpumap_ring ring) {
  return guarded([&] {
    use<RingObject>(ring)->core->stop(false);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_drop_queued(gpumap_ring ring) {
  return guarded([&] {
    use<RingObject>(ring)->core->drop_queued();
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_set_caps(gpumap_ring ring, const char* caps) {
  return guarded([&] {
    use<RingObject>(ring)->core->set_caps(caps);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_set_layout(gpumap_ring ring, const gpumap_layout* layout) {
  return guarded([&] {
    use<RingObject>(ring)->core->set_layout(layout);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_end(gpumap_ring ring) {
  return guarded([&] {
    use<RingObject>(ring)->core->end();
    return GPUMAP_OK;
  });
}
