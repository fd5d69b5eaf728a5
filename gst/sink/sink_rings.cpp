// SPDX-License-Identifier: MIT
#include "gst/sink/core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/gst_error.hpp"
#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

// How a gpumapsink comes by its rings: one for the frames of the moment, a larger one where frames grow.
namespace {

using namespace std::chrono_literals;

void warn(const Channel& channel, const Error& warning) {
  const Ptr<GstElement> sink(channel.sink());
  if (sink) post_warning(sink.get(), warning);
}

}  // namespace

void SinkCore::provision(std::size_t bytes, Renewal renewal) {
  // The pool's thread and the element's may both find the slots too small: one ring is made, not two.
  const std::lock_guard one_at_a_time(provisioning_);
  std::shared_ptr<const Session> session;
  std::weak_ptr<Mapping> old;
  std::optional<Transport> replaced;
  std::shared_ptr<ChannelRing> present;  ///< that has slots enough in size, but not in number
  std::size_t spare = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!session_ || flushing_) return;
    session = session_;
    if (channel_ring_ && channel_ring_->ring().slot_bytes() >= bytes) {
      if (renewal == Renewal::where_too_small) {
        if (!is_outgrown(*session, channel_ring_->ring())) return;
        present = channel_ring_;
      }
      bytes = channel_ring_->ring().slot_bytes();
    } else if (channel_ring_ && session->channel->rings_waiting() > 0) {
      spare = bytes / 2;  // frames that grow while the src stands still would bring a ring each
    }
    if (channel_ring_) {
      old = channel_ring_->ring().mapping();
      replaced = channel_ring_->ring().transport();
    }
  }
  const SinkSettings& settings = session->settings;
  if (!present && settings.slot_bytes != 0 && bytes > settings.slot_bytes) {
    throw Error(ErrorCode::invalid, fmt::format("a frame of {} bytes does not fit slot-size {}: set slot-size to {} or "
                                                "more, or to 0 to take it from the caps",
                                                bytes, settings.slot_bytes, bytes));
  }
  std::shared_ptr<Ring> ring =
      present ? grow_ring(*session, present->ring()) : make_ring(*session, bytes, spare, old, replaced);
  if (!ring) return;
  if (!ring->fallback_reason().empty()) {
    warn(*session->channel, FiguredError(Error(ErrorCode::no_memory, ring->fallback_reason()),
                                         {{"slots", ring->slots()}, {"slot-bytes", ring->slot_stride()}}));
  }
  const std::scoped_lock lock(order_, mutex_);
  // Making it took time: after a stop in between, the next start must find neither ring nor frames of this one.
  if (flushing_ || session_ != session) return;
  GST_INFO("channel %s: ring of %u slots of %zu bytes on %s, transport %s", settings.channel.c_str(), ring->slots(),
           ring->slot_bytes(), session->device->info().name.c_str(), to_string(ring->transport()).data());
  gone_ = counters();
  transport_ = ring->transport();
  auto made = std::make_shared<ChannelRing>(std::move(ring), gone_.published, session->log);
  session->channel->push_ring(made);
  channel_ring_ = std::move(made);
}

void SinkCore::provide_ring(std::size_t bytes) {
  if (!channel_ring()) provision(bytes);
}

std::uint32_t SinkCore::wanted_slots(const Session& session) const {
  const std::uint64_t wanted = std::uint64_t{session.settings.slots} + session.channel->kept_slots();
  // The settings are met or the start fails; what comes on top may have to do with less.
  const std::uint64_t most = std::max(slots_limit_.load(std::memory_order_relaxed), session.settings.slots);
  return static_cast<std::uint32_t>(std::min(wanted, most));
}

std::shared_ptr<Ring> SinkCore::grow_ring(const Session& session, const Ring& ring) {
  RingOptions options;
  options.slots = wanted_slots(session);
  options.slot_bytes = ring.slot_bytes();
  options.spin = std::chrono::microseconds(session.settings.busy_poll_us);
  options.transport = ring.transport();
  try {
    return Ring::create(session.device, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_memory) throw;
    slots_limit_ = ring.slots();
    warn(*session.channel,
         within(fmt::format("there is no memory for {} slots instead of {}, because downstream keeps so many: where it "
                            "keeps them all, no frame comes until it gives one back",
                            options.slots, ring.slots()),
                error, {{"present-slots", ring.slots()}}));
    return nullptr;
  }
}

std::shared_ptr<Ring> SinkCore::make_ring(const Session& session, std::size_t bytes, std::size_t spare,
                                          const std::weak_ptr<Mapping>& old, std::optional<Transport> replaced) {
  const SinkSettings& settings = session.settings;
  RingOptions options;
  options.slots = settings.slots;
  const auto needed = std::max<std::size_t>({bytes, settings.slot_bytes, 1});
  options.slot_bytes = needed + spare;
  options.spin = std::chrono::microseconds(settings.busy_poll_us);
  options.transport = settings.transport;
  // A ring in the window makes room for the next one: auto gives the window up only when that was not enough.
  if (replaced == Transport::bar && !options.transport) options.transport = Transport::bar;

  Deadline patience = Clock::now() + 2s;
  for (;;) {
    try {
      return Ring::create(session.device, options);
    } catch (const Error& error) {
      // Where memory is short the ring before this one may be in the way: it goes once its last frame has been read.
      if (error.code() != ErrorCode::no_memory || !replaced) throw;
      if (std::exchange(options.slot_bytes, needed) != needed) continue;
      if (Clock::now() > patience) {
        if (options.transport == settings.transport) throw;
        options.transport = settings.transport;
        continue;
      }
      // Once no one has its memory (leases do), that is free a moment later.
      if (old.expired()) patience = std::min(patience, Clock::now() + 100ms);
      {
        const std::scoped_lock lock(order_, mutex_);
        if (flushing_ || session_.get() != &session) return nullptr;
        if (channel_ring_) session.channel->retire_ring();
        gone_ = counters();
        channel_ring_.reset();
      }
      std::this_thread::sleep_for(1ms);
    }
  }
}

}  // namespace gpumap::gst
