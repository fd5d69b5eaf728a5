// SPDX-License-Identifier: MIT
#include "ring/slot_ops.hpp"

#include <atomic>

#include "ring/bell.hpp"

namespace gpumap::ring {
namespace {

void make_free(ControlBlock& block, const Limits& limits, std::uint32_t slot) noexcept {
  // A push fails on a corrupt queue only: the slot is lost with it.
  if (push(block.freed, limits, slot)) sound(block.producer_bell);
}

/// Clear one side's field. The two sides may do so at the same time: the one whose exchange comes second sees the
/// other's field cleared already, so exactly one of them frees the slot.
template <typename Clear>
void release(ControlBlock& block, const Limits& limits, std::uint32_t slot, Clear&& clear) noexcept {
  auto& word = block.slot[slot].word.value;
  std::uint64_t seen = word.load(std::memory_order_acquire);
  for (;;) {
    SlotState state = unpack(seen);
    if (!clear(state)) return;  // A foreign hand changed the word: never free a slot twice.
    if (word.compare_exchange_weak(seen, pack(state), std::memory_order_acq_rel, std::memory_order_acquire)) {
      if (state.writer == Writer::none && state.reader == Reader::none) make_free(block, limits, slot);
      return;
    }
  }
}

bool clear_reader(SlotState& state) noexcept {
  const bool ours = state.reader == Reader::held;
  state.reader = Reader::none;
  return ours;
}

/// Pop from the published queue and move the reader out of `queued`. `change` sets what comes next.
template <typename Change>
Take unqueue(ControlBlock& block, const Limits& limits, Ticket& ticket, Change&& change) noexcept {
  switch (pop(block.published, limits, ticket)) {
    case Pop::empty:
      return Take::nothing;
    case Pop::corrupt:
      return Take::corrupt;
    case Pop::got:
      break;
  }
  auto& word = block.slot[ticket.slot].word.value;
  std::uint64_t seen = word.load(std::memory_order_acquire);
  for (;;) {
    SlotState state = unpack(seen);
    if (state.reader != Reader::queued || state.sequence != ticket.sequence) return Take::corrupt;
    change(state);
    if (word.compare_exchange_weak(seen, pack(state), std::memory_order_acq_rel, std::memory_order_acquire))
      return Take::taken;
  }
}

}  // namespace

Take take_free(ControlBlock& block, const Limits& limits, std::uint32_t& slot) noexcept {
  Ticket ticket;
  switch (pop(block.freed, limits, ticket)) {
    case Pop::empty:
      return Take::nothing;
    case Pop::corrupt:
      return Take::corrupt;
    case Pop::got:
      break;
  }
  slot = ticket.slot;
  return Take::taken;
}

bool claim(ControlBlock& block, std::uint32_t slot) noexcept {
  auto& word = block.slot[slot].word.value;
  SlotState state = unpack(word.load(std::memory_order_acquire));
  if (state.writer != Writer::none || state.reader != Reader::none) return false;
  state.writer = Writer::leased;
  // A plain store: who popped a free slot is alone with it.
  word.store(pack(state), std::memory_order_release);
  return true;
}

bool publish(ControlBlock& block, const Limits& limits, std::uint32_t slot, const FrameInfo& info) noexcept {
  Slot& place = block.slot[slot];
  const std::uint64_t before = place.word.value.load(std::memory_order_relaxed);
  place.info = info;
  // The sequence is the queue's own ticket, so sequences and order agree when several threads publish at once.
  const bool queued = push(block.published, limits, slot, [&](std::uint64_t ticket) {
    place.info.sequence = ticket;
    place.word.value.store(pack({ticket, Writer::kept, Reader::queued}), std::memory_order_release);
  });
  if (!queued) {
    place.word.value.store(before, std::memory_order_release);
    return false;
  }
  sound(block.consumer_bell);
  return true;
}

Take take_published(ControlBlock& block, const Limits& limits, std::uint32_t& slot, FrameInfo& info) noexcept {
  Ticket ticket;
  const Take take = unqueue(block, limits, ticket, [](SlotState& state) { state.reader = Reader::held; });
  if (take != Take::taken) return take;
  slot = ticket.slot;
  info = block.slot[slot].info;
  // From here on only the copy counts: without this the compiler may read the shared bytes a second time for the check.
  asm volatile("" : "+m"(info));
  info.sequence = ticket.sequence;
  if (info.bytes > limits.slot_bytes) {
    release_reader(block, limits, slot);
    return Take::corrupt;
  }
  return Take::taken;
}

Take take_back(ControlBlock& block, const Limits& limits, std::uint32_t& slot, bool& claimed) noexcept {
  Ticket ticket;
  const Take take = unqueue(block, limits, ticket, [&](SlotState& state) {
    claimed = state.writer == Writer::none;
    state.reader = Reader::none;
    if (claimed) state.writer = Writer::leased;
  });
  if (take == Take::taken) {
    slot = ticket.slot;
    block.dropped_queued.fetch_add(1, std::memory_order_relaxed);
  }
  return take;
}

void release_writer(ControlBlock& block, const Limits& limits, std::uint32_t slot) noexcept {
  release(block, limits, slot, [](SlotState& state) {
    const bool ours = state.writer == Writer::leased || state.writer == Writer::kept;
    state.writer = Writer::none;
    return ours;
  });
}

void release_reader(ControlBlock& block, const Limits& limits, std::uint32_t slot) noexcept {
  release(block, limits, slot, clear_reader);
}

void drop_published(ControlBlock& block, const Limits& limits) noexcept {
  // At most one round: a producer that goes on publishing does not keep us here.
  for (std::uint32_t turn = 0; turn < limits.slots; ++turn) {
    std::uint32_t slot = 0;
    bool claimed = false;
    const Take take = take_back(block, limits, slot, claimed);
    if (take == Take::nothing) return;
    // Claimed for a moment: releasing the writer queues the slot as free.
    if (take == Take::taken && claimed) release_writer(block, limits, slot);
  }
}

}  // namespace gpumap::ring
