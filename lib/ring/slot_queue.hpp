// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>

#include "ring/control_block.hpp"

namespace gpumap::ring {

/// A bounded queue of slot indices for any number of pushers and poppers, in memory that another process may map.
///
/// Every push gets a ticket: 0, 1, 2, … Entry [ticket & mask] holds ticket + 1 beside the slot, so an entry says by
/// itself whether it is filled; a popper never reads the pushers' cursor and a pusher never reads the poppers'. A slot
/// lies in a queue at most once, so a queue of at least `slots` entries is never full: entry [t & mask] was popped
/// before ticket t is pushed.
///
/// Push, for ticket t:            dies after            the next pusher sees
///   1. read pushed = t           -                     the same
///   2. entry: (t - n) -> t       2: slot is queued     entry t filled, pushed still t: it moves pushed on itself
///   3. pushed: t -> t + 1        3                     t + 1
/// There is no moment at which a dead pusher leaves a hole that stops the others.
///
/// Pop. Two may want the oldest: the consumer in receive(), and the producer in acquire(drop_oldest) or drop_queued().
///
///     producer (drop_oldest)                      consumer (receive)
///     popped -> 7                                 popped -> 7
///     entry[7] -> ticket 7, slot 5                entry[7] -> ticket 7, slot 5
///     popped: CAS 7 -> 8, wins: slot 5 is mine    (sleeps here)
///     my word of slot 5: leased
///     … writes, publishes slot 5 as ticket 9 …
///                                                 popped: CAS 7 -> 8, fails: popped only grows, so it can never be 7
///                                                 again, however often slot 5 or the entry came round meanwhile
///                                                 popped -> 8, entry[8] -> ticket 8: takes that
///
/// Nobody touches the slot's words or memory before the CAS is won; what was read earlier is thrown away on failure.
///
/// All accesses are seq_cst: a Bell needs push and the emptiness test in one total order with its own word, and on
/// x86-64 only the compare-and-swaps, which are full barriers anyway, cost more than a plain access.

struct Ticket {
  std::uint64_t sequence = 0;
  std::uint32_t slot = 0;
};

enum class Pop { empty, got, corrupt, unwanted };

/// Entry: [ ticket + 1: 56 | slot: 8 ].
namespace entry {
[[nodiscard]] constexpr std::uint64_t pack(std::uint64_t ticket, std::uint32_t slot) noexcept {
  return (ticket + 1) << 8U | slot;
}
[[nodiscard]] constexpr std::uint64_t stamp(std::uint64_t word) noexcept {
  return word >> 8U;
}  // ticket + 1, or 0
inline constexpr std::uint64_t max_ticket = (std::uint64_t{1} << 56U) - 2;  // at 10 million frames a second: 228 years
}  // namespace entry

/// Producer to consumer.
struct PublishedQueue {
  ControlBlock& block;
  [[nodiscard]] Cursors& cursors() const noexcept { return block.published; }
  [[nodiscard]] std::atomic<std::uint64_t>& entry(std::uint64_t index) const noexcept {
    return block.slot[index].entry;
  }
  [[nodiscard]] std::uint64_t read(std::uint64_t ticket, std::uint64_t mask) const noexcept {
    return entry(ticket & mask).load();
  }
};

/// Consumer to producer.
struct FreedQueue {
  ControlBlock& block;
  [[nodiscard]] Cursors& cursors() const noexcept { return block.freed; }
  [[nodiscard]] std::atomic<std::uint64_t>& entry(std::uint64_t index) const noexcept {
    return block.freed_entries[index];
  }
};

/// Entries of the freed queue as the producer's side last saw them. Private to its process.
struct SeenEntries {
  alignas(line_bytes) std::atomic<std::uint64_t> words[max_slots] = {};
};

/// The freed queue for those who pop. Eight entries lie on a line, which the consumer takes away with each slot that it
/// frees: the core that has to fetch it copies all that is there, and the next pops leave the line with the consumer.
///
/// A copy may be old, never wrong: the entry of a ticket changes only after that ticket was popped, and then the
/// popper's compare-and-swap on the cursor fails.
struct SeenFreedQueue : FreedQueue {
  SeenEntries& seen;
  [[nodiscard]] std::uint64_t read(std::uint64_t ticket, std::uint64_t mask) const noexcept {
    constexpr std::uint64_t in_line = 64 / sizeof(std::uint64_t) - 1;
    const std::uint64_t index = ticket & mask;
    const std::uint64_t known = seen.words[index].load(std::memory_order_acquire);
    if (ring::entry::stamp(known) == ticket + 1) return known;
    const std::uint64_t word = entry(index).load();
    if (ring::entry::stamp(word) != ticket + 1) return word;
    for (std::uint64_t next = index + 1; next <= mask && (next & in_line) != 0; ++next) {
      seen.words[next].store(entry(next).load(), std::memory_order_release);
    }
    return word;
  }
};

/// Push, telling `prepare` the ticket before the entry can be seen; `prepare` may be called again with a later ticket.
/// False when the queue's words make no sense (a foreign process wrote there): nothing was pushed.
template <typename Queue, typename Prepare>
bool push(Queue queue, const Limits& limits, std::uint32_t slot, Prepare&& prepare) noexcept {
  auto& pushed = queue.cursors().pushed.value;
  std::uint64_t ticket = pushed.load();
  for (;;) {
    if (ticket > entry::max_ticket) return false;
    auto& word = queue.entry(ticket & limits.mask);
    std::uint64_t seen = word.load();
    if (entry::stamp(seen) <= ticket) {
      prepare(ticket);
      if (word.compare_exchange_strong(seen, entry::pack(ticket, slot))) {
        // Failure means that another pusher moved the cursor on for us.
        pushed.compare_exchange_strong(ticket, ticket + 1);
        return true;
      }
      ticket = pushed.load();
    } else if (entry::stamp(seen) == ticket + 1) {
      if (pushed.compare_exchange_strong(ticket, ticket + 1)) ++ticket;
    } else {  // A later lap: our cursor value is stale, or the words are corrupt.
      const std::uint64_t again = pushed.load();
      if (again == ticket) return false;
      ticket = again;
    }
  }
}

template <typename Queue>
bool push(Queue queue, const Limits& limits, std::uint32_t slot) noexcept {
  return push(queue, limits, slot, [](std::uint64_t) {});
}

/// Pop the oldest, if `wanted` says so of its slot, which it may be asked more than once. `got` promises
/// slot < limits.slots. `corrupt`: the oldest entry was thrown away where that was possible; try again a bounded number
/// of times. What `wanted` throws leaves the queue as it was.
template <typename Queue, typename Wanted>
Pop pop(Queue queue, const Limits& limits, Ticket& ticket, Wanted&& wanted) {
  auto& popped = queue.cursors().popped.value;
  std::uint64_t oldest = popped.load();
  for (;;) {
    const std::uint64_t word = queue.read(oldest, limits.mask);
    if (entry::stamp(word) <= oldest) return Pop::empty;
    if (entry::stamp(word) == oldest + 1) {
      const auto slot = static_cast<std::uint32_t>(word & 0xffU);
      if (slot < limits.slots && !wanted(slot)) return Pop::unwanted;
      if (!popped.compare_exchange_weak(oldest, oldest + 1)) continue;
      ticket = {oldest, slot};
      return slot < limits.slots ? Pop::got : Pop::corrupt;
    }
    // A later lap: our cursor value is stale, or the words are corrupt.
    const std::uint64_t again = popped.load();
    if (again == oldest) return Pop::corrupt;
    oldest = again;
  }
}

template <typename Queue>
Pop pop(Queue queue, const Limits& limits, Ticket& ticket) noexcept {
  return pop(queue, limits, ticket, [](std::uint32_t) { return true; });
}

}  // namespace gpumap::ring
