// SPDX-License-Identifier: MIT
#include "gpumap/ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"
#include "gpumap/patience.hpp"
#include "ring/control_block.hpp"
#include "ring/ring_state.hpp"
#include "ring/slot_ops.hpp"

namespace gpumap {
namespace {

using std::chrono::nanoseconds;

constexpr std::size_t slot_alignment = 4096;

void set_flag(std::atomic<bool>& flag, bool value, ring::Bell& bell) noexcept {
  flag.store(value);
  if (value) ring::wake_all(bell);
}

void check(const std::shared_ptr<Device>& device, const RingOptions& options) {
  if (!device) throw Error(ErrorCode::invalid, "a ring needs a device, got none: open one with Device::open");
  if (options.slots < min_slots || options.slots > max_slots) {
    throw Error(ErrorCode::invalid, fmt::format("a ring of {} slots requested, {} to {} allowed: change slots",
                                                options.slots, min_slots, max_slots));
  }
  if (options.slot_bytes == 0) {
    throw Error(ErrorCode::invalid, "a ring with slots of 0 bytes requested: set slot_bytes to the size of a frame");
  }
  const std::size_t largest = std::numeric_limits<std::size_t>::max() / options.slots - slot_alignment;
  if (options.slot_bytes > largest) {
    throw FiguredError(
        Error(ErrorCode::invalid,
              fmt::format("{} slots of {} bytes exceed the address space", options.slots, options.slot_bytes),
              "lower slots or slot-size"),
        {{"slots", options.slots}, {"slot-bytes", options.slot_bytes}});
  }
}

std::shared_ptr<Mapping> allocate(Device& device, const RingOptions& options, std::size_t stride, Transport transport) {
  MappingOptions wanted;
  wanted.placement = placement_of(transport);
  wanted.bytes = stride * options.slots;
  wanted.require_coherent = options.require_coherent;
  wanted.treat_as_non_coherent = options.treat_as_non_coherent;
  std::shared_ptr<Mapping> mapping;
  try {
    mapping = device.allocate(wanted);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_memory) throw;
    throw within(fmt::format("{} slots of {}", options.slots, format_bytes(stride)), error,
                 {{"slots", options.slots}, {"slot-bytes", stride}});
  }
  if (!mapping || mapping->host() == nullptr || mapping->bytes() < wanted.bytes) {
    throw Error(ErrorCode::not_supported,
                fmt::format("the device gave no CPU mapping of {} bytes for a ring: use a transport other than {}",
                            wanted.bytes, to_string(transport)));
  }
  return mapping;
}

bool closed(const std::atomic<std::uint32_t>& side) noexcept {
  return side.load() != static_cast<std::uint32_t>(ring::Side::open);
}

constexpr nanoseconds shortest_slice{20'000};
constexpr nanoseconds longest_slice{200'000};

[[noreturn]] void corrupt(const ring::Limits& limits, const char* queue) {
  throw Error(ErrorCode::invalid,
              fmt::format("the ring's control block is corrupt: {} entries of the {} queue in a row "
                          "name no slot of {}; another process wrote to it: restart both sides",
                          limits.slots, queue, limits.slots));
}

}  // namespace

std::shared_ptr<Ring> Ring::create(std::shared_ptr<Device> device, const RingOptions& options) {
  check(device, options);
  const std::size_t stride = (options.slot_bytes + slot_alignment - 1) / slot_alignment * slot_alignment;
  Transport transport = options.transport.value_or(Transport::bar);
  std::string fallback_reason;
  std::shared_ptr<Mapping> mapping;
  try {
    mapping = allocate(*device, options, stride, transport);
  } catch (const Error& error) {
    if (options.transport || error.code() != ErrorCode::no_memory) throw;
    fallback_reason = fmt::format("{}; taking transport=pinned", error.what());
    transport = Transport::pinned;
  }
  if (!mapping) {
    try {
      mapping = allocate(*device, options, stride, transport);
    } catch (const Error& error) {
      throw within(fallback_reason + ", which fails", error);
    }
  }
  auto state = std::make_unique<State>(std::move(device), std::move(mapping), options, stride, transport);
  state->fallback_reason = std::move(fallback_reason);
  auto made = std::shared_ptr<Ring>(new Ring(std::move(state)), &Ring::let_go_of_handle);
  made->set_spin(options.spin);
  return made;
}

std::shared_ptr<Ring> Ring::create(std::shared_ptr<Device> device, std::shared_ptr<Mapping> mapping,
                                   const RingOptions& options) {
  check(device, options);
  const std::size_t stride = (options.slot_bytes + slot_alignment - 1) / slot_alignment * slot_alignment;
  if (!options.transport || !mapping || mapping->host() == nullptr || mapping->bytes() / options.slots < stride) {
    throw Error(ErrorCode::invalid,
                fmt::format("a ring of {} slots of {} bytes on {} bytes of given memory: give a transport, and memory "
                            "that the CPU reaches and that has room",
                            options.slots, stride, mapping && mapping->host() != nullptr ? mapping->bytes() : 0));
  }
  auto state = std::make_unique<State>(std::move(device), std::move(mapping), options, stride, *options.transport);
  auto made = std::shared_ptr<Ring>(new Ring(std::move(state)), &Ring::let_go_of_handle);
  made->set_spin(options.spin);
  return made;
}

Ring::Ring(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ring::~Ring() = default;

void Ring::let_go_of_handle(Ring* ring) noexcept {
  State& state = *ring->state_;
  // Not the last: the handle is counted on the readers' side, too.
  static_cast<void>(state.let_go(state.write_leases));
  if (state.let_go(state.read_leases)) delete ring;
}

const std::shared_ptr<Device>& Ring::device() const noexcept {
  return state_->device;
}
const std::shared_ptr<Mapping>& Ring::mapping() const noexcept {
  return state_->mapping;
}
std::uint32_t Ring::slots() const noexcept {
  return state_->limits.slots;
}
std::size_t Ring::slot_bytes() const noexcept {
  return state_->limits.slot_bytes;
}
std::size_t Ring::slot_stride() const noexcept {
  return state_->slot_stride;
}

Transport Ring::transport() const noexcept {
  return state_->transport;
}
const std::string& Ring::fallback_reason() const noexcept {
  return state_->fallback_reason;
}

void Ring::close_producer() noexcept {
  if (!state_->process.here()) return;
  state_->block.producer_side.store(static_cast<std::uint32_t>(ring::Side::closed));
  ring::wake_all(state_->block.consumer_bell);
  ring::wake_all(state_->block.producer_bell);
}

void Ring::close_consumer() noexcept {
  if (!state_->process.here()) return;
  state_->block.consumer_side.store(static_cast<std::uint32_t>(ring::Side::closed));
  // A publish that does not see the store above is seen here: both sides are seq_cst.
  ring::drop_published(state_->block, state_->limits);
  ring::wake_all(state_->block.producer_bell);
  ring::wake_all(state_->block.consumer_bell);
}

void Ring::set_producer_flushing(bool flushing) noexcept {
  if (state_->process.here()) set_flag(state_->producer_flushing, flushing, state_->block.producer_bell);
}

void Ring::set_consumer_flushing(bool flushing) noexcept {
  if (state_->process.here()) set_flag(state_->consumer_flushing, flushing, state_->block.consumer_bell);
}

void Ring::nudge_consumer() noexcept {
  if (!state_->process.here()) return;
  state_->block.nudges.fetch_add(1);
  ring::wake_all(state_->block.consumer_bell);
}

void Ring::drop_queued() noexcept {
  if (!state_->process.here()) return;
  ring::drop_published(state_->block, state_->limits);
  ring::wake_all(state_->block.producer_bell);
}

void Ring::set_spin(nanoseconds spin) noexcept {
  // The bound keeps `now + spin` from overflowing.
  const auto bounded = std::clamp<nanoseconds>(spin, nanoseconds(0), std::chrono::hours(1));
  state_->spin_ns.store(bounded.count(), std::memory_order_relaxed);
}
nanoseconds Ring::spin() const noexcept {
  return nanoseconds(state_->spin_ns.load(std::memory_order_relaxed));
}

void Ring::set_stamping(bool stamping) noexcept {
  if (!state_->process.here()) return;
  state_->block.stamping.store(static_cast<std::uint32_t>(stamping ? ring::Stamping::on : ring::Stamping::off),
                               std::memory_order_relaxed);
}

bool Ring::stamping() const noexcept {
  return state_->process.here() && ring::stamps(state_->block);
}

std::uint32_t Ring::queued() const noexcept {
  const std::uint64_t popped = state_->block.published.popped.value.load();
  const std::uint64_t pushed = state_->block.published.pushed.value.load();
  return pushed <= popped ? 0 : static_cast<std::uint32_t>(std::min<std::uint64_t>(pushed - popped, slots()));
}

std::uint64_t Ring::published() const noexcept {
  return state_->block.published.pushed.value.load();
}

std::uint32_t Ring::held_by_writers() const noexcept {
  std::uint32_t held = 0;
  for (std::uint32_t slot = 0; slot < slots(); ++slot) {
    if (state_->writers.holds(state_->block, slot)) ++held;
  }
  return held;
}

RingCounters Ring::counters() const noexcept {
  const ring::ControlBlock& block = state_->block;
  RingCounters counters;
  // Nobody counts on the hot path: the queue's own cursors tell.
  const std::uint64_t dropped = block.dropped_queued.load();
  const std::uint64_t popped = block.published.popped.value.load();
  counters.published = block.published.pushed.value.load();
  counters.received = popped < dropped ? 0 : popped - dropped;
  counters.dropped = dropped;
  counters.overtaken = state_->overtaken.load(std::memory_order_relaxed);
  counters.refused = block.dropped_refused.load();
  counters.producer_waits = state_->producer_waits.load(std::memory_order_relaxed);
  counters.consumer_waits = state_->consumer_waits.load(std::memory_order_relaxed);
  return counters;
}

// The producer's side.

RingStatus Ring::acquire(WriteLease& lease, WhenFull when_full, Deadline deadline) {
  State& state = *state_;
  State::Hold hold(*this, state.write_leases, lease);
  if (!state.process.here()) [[unlikely]]
    return RingStatus::closed;
  std::uint32_t slot = 0;
  const auto attempt = [&]() -> std::optional<RingStatus> {
    if (state.producer_flushing.load()) return RingStatus::flushing;
    if (closed(state.block.consumer_side) || closed(state.block.producer_side)) return RingStatus::closed;
    if (state.take_free(slot)) return RingStatus::ok;
    return std::nullopt;
  };
  // How long to sleep without looking at fences, which ring no bell.
  auto slice = [&state, next = shortest_slice]() mutable {
    if (!state.pending.any()) return nanoseconds(0);
    state.check_pending();
    return std::exchange(next, std::min(next * 2, longest_slice));
  };
  RingStatus status = RingStatus::full;
  if (when_full == WhenFull::block) {
    status =
        ring::wait_on(state.block.producer_bell, deadline, nanoseconds(state.spin_ns.load(std::memory_order_relaxed)),
                      state.producer_waits, attempt, slice);
  } else if (const auto now = attempt()) {
    status = *now;
  } else if (when_full == WhenFull::drop_oldest && (state.take_back(slot) || state.take_free(slot))) {
    // Free ones are asked again: the consumer may have taken and released what we were about to take back.
    status = RingStatus::ok;
  } else {
    state.check_pending();
    state.block.dropped_refused.fetch_add(1, std::memory_order_relaxed);
  }
  if (status != RingStatus::ok) return status;
  if (ring::stamps(state.block)) ring::begin_stamps(state.block, slot, monotonic_ns());
  hold.pass_to(lease);
  lease.slot_ = slot;
  lease.published_ = false;
  return status;
}

void Ring::publish(WriteLease& lease, const FrameInfo& info) {
  State& state = *state_;
  if (lease.ring_ != this) {
    throw Error(ErrorCode::invalid, lease.ring_ != nullptr
                                        ? "publish of a lease of another ring: publish it where it was acquired"
                                        : "publish of an empty lease: acquire a slot first");
  }
  if (!state.process.here()) [[unlikely]] {
    throw Error(ErrorCode::invalid, "publish after fork(): a ring serves the process that made it, not its children");
  }
  if (lease.published_) {
    throw Error(ErrorCode::invalid,
                fmt::format("slot {} is published already: acquire a new lease for each frame", lease.slot_));
  }
  if (info.bytes > state.limits.slot_bytes) {
    throw Error(ErrorCode::invalid, fmt::format("publish of {} bytes from a slot of {}: make slot_bytes larger",
                                                info.bytes, state.limits.slot_bytes));
  }
  ring::expect_publish(state.block, state.limits, lease.slot_);
  store_fence();
  if (state.uploads) {
    const auto given_up = [&state] { return state.producer_flushing.load(); };
    Fence written = info.bytes == 0 ? Fence() : state.mapping->upload_unless(given_up, lease.offset(), info.bytes);
    // It reads the slot, as a kernel does: a slot that nobody receives must wait for it all the same.
    state.pending.fences(lease.slot_).add(written);
    state.written[lease.slot_] = std::move(written);
  }
  state.writers.publish(lease.slot_);
  const std::int64_t now = monotonic_ns();
  if (ring::stamps(state.block)) {
    ring::stamp_of(state.block, lease.slot_, Stamp::published).store(now, std::memory_order_relaxed);
  }
  if (!ring::publish(state.block, state.limits, lease.slot_, info, now)) {
    state.writers.publish_failed(lease.slot_);
    throw Error(
        ErrorCode::invalid,
        fmt::format("the ring's control block is corrupt: slot {} cannot be queued; another process wrote to it: "
                    "restart both sides",
                    lease.slot_));
  }
  lease.published_ = true;
  // The consumer may have closed while we queued, and then nobody else empties the queue.
  if (closed(state.block.consumer_side)) [[unlikely]]
    ring::drop_published(state.block, state.limits);
}

void WriteLease::give_back() noexcept {
  if (ring_->state_->process.here()) ring_->state_->end_lease(slot_, published_);
}

void WriteLease::end() noexcept {
  if (ring_ == nullptr) return;
  give_back();
  Ring* const ring = std::exchange(ring_, nullptr);
  if (ring->state_->let_go(ring->state_->write_leases)) delete ring;
}

WriteLease::WriteLease(WriteLease&& other) noexcept
    : ring_(std::exchange(other.ring_, nullptr)),
      slot_(other.slot_),
      published_(std::exchange(other.published_, false)) {}

WriteLease& WriteLease::operator=(WriteLease&& other) noexcept {
  if (this == &other) return *this;
  end();
  ring_ = std::exchange(other.ring_, nullptr);
  slot_ = other.slot_;
  published_ = std::exchange(other.published_, false);
  return *this;
}

WriteLease::~WriteLease() {
  end();
}

void WriteLease::stamp(Stamp stamp, std::int64_t at_ns) noexcept {
  if (ring_ == nullptr || published_ || !ring_->stamping()) return;
  auto& at = ring::stamp_of(ring_->state_->block, slot_, stamp);
  if (stamp == Stamp::first_store && at.load(std::memory_order_relaxed) != 0) return;
  at.store(at_ns, std::memory_order_relaxed);
}

void WriteLease::stamp_source(std::int64_t due_ns, std::int64_t captured_ns) noexcept {
  if (ring_ == nullptr || published_ || !ring_->stamping()) return;
  auto& source = ring_->state_->block.stamps[slot_].producer;
  source.due_ns.store(due_ns, std::memory_order_relaxed);
  source.captured_ns.store(captured_ns, std::memory_order_relaxed);
}

std::byte* WriteLease::host() const noexcept {
  return ring_ != nullptr ? ring_->state_->host + offset() : nullptr;
}
std::size_t WriteLease::bytes() const noexcept {
  return ring_ != nullptr ? ring_->slot_bytes() : 0;
}
std::size_t WriteLease::offset() const noexcept {
  return ring_ != nullptr ? slot_ * ring_->state_->slot_stride : 0;
}

// The consumer's side.

RingStatus Ring::receive(ReadLease& lease, Deadline deadline) {
  State& state = *state_;
  State::Hold hold(*this, state.read_leases, lease);
  if (!state.process.here()) [[unlikely]]
    return RingStatus::closed;
  std::uint32_t slot = 0;
  FrameInfo info;
  const auto attempt = [&]() -> std::optional<RingStatus> {
    if (state.consumer_flushing.load()) return RingStatus::flushing;
    if (closed(state.block.consumer_side)) return RingStatus::closed;
    if (state.take_published(slot, info)) return RingStatus::ok;
    // Closed is said after the last publish, so who sees it looks once more before believing in an empty queue.
    if (closed(state.block.producer_side))
      return state.take_published(slot, info) ? RingStatus::ok : RingStatus::closed;
    if (state.take_nudge()) return RingStatus::timeout;
    return std::nullopt;
  };
  const RingStatus status =
      ring::wait_on(state.block.consumer_bell, deadline, nanoseconds(state.spin_ns.load(std::memory_order_relaxed)),
                    state.consumer_waits, attempt, [] { return nanoseconds(0); });
  if (status != RingStatus::ok) return status;
  if (ring::stamps(state.block)) {
    ring::stamp_of(state.block, slot, Stamp::received).store(monotonic_ns(), std::memory_order_relaxed);
  }
  hold.pass_to(lease);
  lease.slot_ = slot;
  lease.info_ = info;
  lease.written_ = state.written[slot];
  return status;
}

std::int64_t ReadLease::give_back() noexcept {
  Ring::State& state = *ring_->state_;
  std::int64_t released_ns = 0;
  if (!state.process.here()) [[unlikely]]
    return released_ns;
  if (ring::stamps(state.block)) {
    released_ns = monotonic_ns();
    ring::stamp_of(state.block, slot_, Stamp::released).store(released_ns, std::memory_order_relaxed);
  }
  ring::release_reader(state.block, state.limits, slot_);
  written_ = Fence();
  return released_ns;
}

std::int64_t ReadLease::end() noexcept {
  if (ring_ == nullptr) return 0;
  const std::int64_t released_ns = give_back();
  Ring* const ring = std::exchange(ring_, nullptr);
  if (ring->state_->let_go(ring->state_->read_leases)) delete ring;
  return released_ns;
}

ReadLease::ReadLease(ReadLease&& other) noexcept
    : ring_(std::exchange(other.ring_, nullptr)),
      slot_(other.slot_),
      info_(other.info_),
      written_(std::move(other.written_)) {}

ReadLease& ReadLease::operator=(ReadLease&& other) noexcept {
  if (this == &other) return *this;
  end();
  ring_ = std::exchange(other.ring_, nullptr);
  slot_ = other.slot_;
  info_ = other.info_;
  written_ = std::move(other.written_);
  return *this;
}

ReadLease::~ReadLease() {
  end();
}

std::size_t ReadLease::offset() const noexcept {
  return ring_ != nullptr ? slot_ * ring_->state_->slot_stride : 0;
}

std::optional<FrameRecord> ReadLease::stamps() const noexcept {
  if (ring_ == nullptr || !ring_->stamping()) return std::nullopt;
  return ring::read_stamps(ring_->state_->block, slot_, info_);
}

void ReadLease::stamp(Stamp stamp, std::int64_t at_ns) const noexcept {
  if (ring_ == nullptr || stamp <= Stamp::received || stamp >= Stamp::released || !ring_->stamping()) return;
  ring::stamp_of(ring_->state_->block, slot_, stamp).store(at_ns, std::memory_order_relaxed);
}

void ReadLease::add_read_fence(const Fence& fence) const {
  if (ring_ == nullptr) throw Error(ErrorCode::invalid, "a read fence for an empty lease: receive a frame first");
  ring_->state_->pending.fences(slot_).add(fence);
}

// What both sides keep in this process.

Ring::State::State(std::shared_ptr<Device> on, std::shared_ptr<Mapping> mapped, const RingOptions& options,
                   std::size_t stride, Transport way)
    : device(std::move(on)),
      mapping(std::move(mapped)),
      host(mapping->host()),
      slot_stride(stride),
      transport(way),
      uploads(way == Transport::pinned || way == Transport::pageable || !mapping->coherent() ||
              options.treat_as_non_coherent),
      limits(ring::Limits::of(options.slots, options.slot_bytes)),
      memory(options.slots, options.slot_bytes, stride),
      block(memory.block()),
      pending(options.slots),
      written(options.slots),
      spin_ns(0) {}

/// The leases are gone, or the ring would live. GPU work may still read: the memory must outlive it.
Ring::State::~State() {
  const Deadline end = Clock::now() + patience_of_ends(*device);
  try {
    for (std::uint32_t slot = 0; slot < limits.slots; ++slot) {
      for (auto pause = std::chrono::microseconds(20); !pending.fences(slot).drain();
           pause = std::min(pause * 2, std::chrono::microseconds(1000))) {
        pending.fences(slot).check();
        if (Clock::now() >= end) {
          std::fprintf(stderr,
                       "gpumap: GPU work still reads slot %u of a ring after its end: %zu bytes stay allocated\n", slot,
                       mapping->bytes());
          for (; slot < limits.slots; ++slot) pending.fences(slot).give_up();
          keep_for_good(mapping);
          return;
        }
        std::this_thread::sleep_for(pause);
      }
    }
  } catch (const std::exception&) {
    // The device is lost: nothing runs on it any more.
  }
}

template <typename TakeOne, typename Accept>
bool Ring::State::lease_one(std::uint32_t& slot, const char* queue, const TakeOne& take, const Accept& accept) {
  for (std::uint32_t bad = 0; bad < limits.slots;) {
    switch (take()) {
      case ring::Take::nothing:
        return false;
      case ring::Take::corrupt:
        ++bad;
        continue;
      case ring::Take::taken:
        break;
    }
    switch (writers.freed(slot)) {
      case ring::Writers::Freed::parked:
        // Its writer keeps the slot: the next one, then.
        continue;
      case ring::Writers::Freed::corrupt:
        ++bad;
        continue;
      case ring::Writers::Freed::ours:
        break;
    }
    if (!accept()) continue;
    if (lease(slot)) return true;
    ++bad;
  }
  corrupt(limits, queue);
}

bool Ring::State::take_free(std::uint32_t& slot) {
  if (pending.any() && pending.take(slot) && lease(slot)) return true;
  return lease_one(
      slot, "free", [&] { return ring::take_free(block, limits, seen_freed, slot); },
      [&] {
        if (!pending.fences(slot).any()) return true;
        // Into the list before asking: signalled() may throw, and the slot must not be lost.
        pending.add(slot);
        if (pending.take(slot)) return true;
        // Others asleep on this side wait for a release; from now on they have to look at fences, too.
        ring::sound(block.producer_bell);
        return false;
      });
}

bool Ring::State::lease(std::uint32_t slot) noexcept {
  if (!writers.lease(slot)) return false;
  ring::mark(block, slot, ring::Phase::leased);
  return true;
}

void Ring::State::end_lease(std::uint32_t slot, bool published) noexcept {
  if (!writers.end(slot)) return;
  if (!published) ring::mark(block, slot, ring::Phase::none);
  // Not into the queue: there it would change places with the slots that are queued, and slots in their order are what
  // lets ticket and slot agree. Here it is the next to be leased.
  pending.add(slot);
  ring::sound(block.producer_bell);
}

bool Ring::State::take_back(std::uint32_t& slot) {
  // Nobody but its upload reads a slot that is queued.
  const auto uploaded = [this](std::uint32_t queued) {
    ring::ReadFences& upload = pending.fences(queued);
    if (!upload.any() || upload.drain()) return true;
    check_seldom([&upload] { upload.check(); });
    return false;
  };
  return lease_one(
      slot, "published",
      [&] {
        const ring::Take taken = ring::take_back(block, limits, slot, uploaded);
        // Dropped also where its writer keeps the slot.
        if (taken == ring::Take::taken) overtaken.fetch_add(1, std::memory_order_relaxed);
        return taken;
      },
      [] { return true; });
}

bool Ring::State::take_published(std::uint32_t& slot, FrameInfo& info) {
  for (std::uint32_t bad = 0; bad < limits.slots; ++bad) {
    switch (ring::take_published(block, limits, slot, info)) {
      case ring::Take::nothing:
        return false;
      case ring::Take::taken:
        return true;
      case ring::Take::corrupt:
        block.dropped_queued.fetch_add(1, std::memory_order_relaxed);
        break;
    }
  }
  corrupt(limits, "published");
}

bool Ring::State::take_nudge() noexcept {
  std::uint64_t seen = nudges_seen.load(std::memory_order_relaxed);
  const std::uint64_t now = block.nudges.load();
  return seen != now && nudges_seen.compare_exchange_strong(seen, now, std::memory_order_relaxed);
}

}  // namespace gpumap
