// SPDX-License-Identifier: MIT
#include "gpumap/ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gpumap/error.hpp"
#include "ring/bell.hpp"
#include "ring/slot_ops.hpp"
#include "ring/state.hpp"

namespace gpumap {
namespace {

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
    throw Error(ErrorCode::invalid,
                fmt::format("{} slots of {} bytes exceed the address space: lower slots or slot-size", options.slots,
                            options.slot_bytes));
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
    throw Error(ErrorCode::no_memory,
                fmt::format("{} slots of {}: {}", options.slots, format_bytes(stride), error.what()));
  }
  if (!mapping || mapping->host() == nullptr || mapping->bytes() < wanted.bytes) {
    throw Error(ErrorCode::not_supported,
                fmt::format("the device gave no CPU mapping of {} bytes for a ring: use a transport other than {}",
                            wanted.bytes, to_string(transport)));
  }
  return mapping;
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
      throw Error(error.code(), fmt::format("{}, which fails: {}", fallback_reason, error.what()));
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

void Ring::set_spin(std::chrono::nanoseconds spin) noexcept {
  // The bound keeps `now + spin` from overflowing.
  const auto bounded = std::clamp<std::chrono::nanoseconds>(spin, std::chrono::nanoseconds(0), std::chrono::hours(1));
  state_->spin_ns.store(bounded.count(), std::memory_order_relaxed);
}
std::chrono::nanoseconds Ring::spin() const noexcept {
  return std::chrono::nanoseconds(state_->spin_ns.load(std::memory_order_relaxed));
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

}  // namespace gpumap
