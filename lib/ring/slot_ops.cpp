// SPDX-License-Identifier: MIT
#include "ring/slot_ops.hpp"

#include <algorithm>
#include <atomic>

#include "prefetch.hpp"
#include "ring/control_block.hpp"

namespace gpumap::ring {

namespace {

void make_free(ControlBlock& block, const Limits& limits, std::uint32_t slot) noexcept {
  // A push fails on a corrupt queue only: the slot is lost with it.
  if (push(FreedQueue{block}, limits, slot)) sound(block.producer_bell);
}

Take as_take(Pop popped) noexcept {
  switch (popped) {
    case Pop::got:
      return Take::taken;
    case Pop::corrupt:
      return Take::corrupt;
    default:
      return Take::nothing;
  }
}

/// Pop the oldest published slot and set the consumer's word, as the thread that popped the ticket may: nobody else
/// does until the slot is free again. No compare-and-swap, for nobody else writes it meanwhile.
template <typename... Wanted>
Take unqueue(ControlBlock& block, const Limits& limits, Ticket& ticket, Phase next, const Wanted&... wanted) {
  const Take popped = as_take(pop(PublishedQueue{block}, limits, ticket, wanted...));
  if (popped != Take::taken) return popped;
  const std::uint64_t written = block.slot[ticket.slot].word.value.load(std::memory_order_acquire);
  if (written != pack({ticket.sequence, Phase::published})) return Take::corrupt;
  auto& reading = block.reading[ticket.slot].value;
  const SlotState before = unpack(reading.load(std::memory_order_acquire));
  // A cursor set back would give a frame twice.
  if (before.phase != Phase::none || before.sequence > ticket.sequence) return Take::corrupt;
  reading.store(pack({ticket.sequence + 1, next}), std::memory_order_release);
  return Take::taken;
}

}  // namespace

Take take_free(ControlBlock& block, const Limits& limits, SeenEntries& seen, std::uint32_t& slot) noexcept {
  Ticket ticket;
  const Take popped = as_take(pop(SeenFreedQueue{{block}, seen}, limits, ticket));
  if (popped == Take::taken) slot = ticket.slot;
  return popped;
}

void mark(ControlBlock& block, std::uint32_t slot, Phase phase) noexcept {
  auto& word = block.slot[slot].word.value;
  SlotState state = unpack(word.load(std::memory_order_relaxed));
  state.phase = phase;
  word.store(pack(state), std::memory_order_release);
}

void expect_publish(ControlBlock& block, const Limits& limits, std::uint32_t slot) noexcept {
  const std::uint64_t ticket = block.published.pushed.value.load(std::memory_order_relaxed);
  prefetch_to_write(&block.slot[slot].word);
  prefetch_to_write(&block.slot[ticket & limits.mask].entry);
}

bool publish(ControlBlock& block, const Limits& limits, std::uint32_t slot, const FrameInfo& info,
             std::int64_t publish_ns) noexcept {
  Slot& place = block.slot[slot];
  const std::uint64_t before = place.word.value.load(std::memory_order_relaxed);
  place.info = info;
  place.info.publish_ns = publish_ns;
  // The sequence is the queue's own ticket, so sequences and order agree when several threads publish at once.
  const bool queued = push(PublishedQueue{block}, limits, slot, [&](std::uint64_t ticket) {
    place.word.value.store(pack({ticket, Phase::published}), std::memory_order_release);
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
  const Take take = unqueue(block, limits, ticket, Phase::held);
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
  // A frame that is queued behind this one travels while this one is used.
  const Slot& next = block.slot[(ticket.sequence + 1) & limits.mask];
  prefetch_to_read(&next.entry);
  prefetch_to_read(&next.word);
  return Take::taken;
}

Take take_back(ControlBlock& block, const Limits& limits, std::uint32_t& slot,
               const std::function<bool(std::uint32_t)>& writable) {
  Ticket ticket;
  const Take take = unqueue(block, limits, ticket, Phase::none, writable);
  if (take == Take::taken) {
    slot = ticket.slot;
    block.dropped_queued.fetch_add(1, std::memory_order_relaxed);
  }
  return take;
}

void release_reader(ControlBlock& block, const Limits& limits, std::uint32_t slot) noexcept {
  auto& reading = block.reading[slot].value;
  SlotState state = unpack(reading.load(std::memory_order_relaxed));
  if (state.phase != Phase::held) return;  // A foreign hand changed the word: never free a slot twice.
  state.phase = Phase::none;
  reading.store(pack(state), std::memory_order_release);
  make_free(block, limits, slot);
}

void drop_published(ControlBlock& block, const Limits& limits) noexcept {
  // At most one round: a producer that goes on publishing does not keep us here.
  for (std::uint32_t turn = 0; turn < limits.slots; ++turn) {
    Ticket ticket;
    const Take take = unqueue(block, limits, ticket, Phase::none);
    if (take == Take::nothing) return;
    if (take != Take::taken) continue;
    block.dropped_queued.fetch_add(1, std::memory_order_relaxed);
    make_free(block, limits, ticket.slot);
  }
}

void begin_stamps(ControlBlock& block, std::uint32_t slot, std::int64_t acquired_ns) noexcept {
  auto& mine = block.stamps[slot].producer;
  for (auto& at : mine.at_ns) at.store(0, std::memory_order_relaxed);
  mine.due_ns.store(0, std::memory_order_relaxed);
  mine.captured_ns.store(0, std::memory_order_relaxed);
  stamp_of(block, slot, Stamp::acquired).store(acquired_ns, std::memory_order_relaxed);
}

std::optional<FrameRecord> read_stamps(ControlBlock& block, std::uint32_t slot, const FrameInfo& info) noexcept {
  const StampLines& lines = block.stamps[slot];
  constexpr auto published = static_cast<std::size_t>(Stamp::published);
  if (lines.producer.at_ns[published].load(std::memory_order_relaxed) != info.publish_ns) return std::nullopt;
  // Another process may have written them: no time before the clock's beginning, where differences could overflow.
  const auto time = [](const std::atomic<std::int64_t>& at) {
    return std::max<std::int64_t>(at.load(std::memory_order_relaxed), 0);
  };
  FrameRecord record;
  record.sequence = info.sequence;
  record.bytes = info.bytes;
  std::ranges::transform(lines.producer.at_ns, record.at_ns.begin(), time);
  record.at_ns[static_cast<std::size_t>(Stamp::received)] = time(lines.consumer.at_ns.front());
  record.due_ns = time(lines.producer.due_ns);
  record.captured_ns = time(lines.producer.captured_ns);
  return record;
}

}  // namespace gpumap::ring
