// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>

#include "ring/control_block.hpp"

namespace gpumap::ring {

/// Which slots have a WriteLease. Private to the producer's process, and no business of the consumer: it frees a slot
/// when it has read it, and here the slot waits for its lease.
///
///     none ──lease──▶ leased ──publish──▶ kept ──end──▶ none
///                                          │              ▲
///                      freed while leased  └─▶ parked ─end┘  the slot is free only now
///
/// Two meet at `kept`: the lease's end on one thread, and on another the one who popped the slot as free. Both exchange
/// the state, so one comes second and sees what the first did: `parked`, and the lease's end frees the slot, or `none`,
/// and the popper has it.
class Writers {
 public:
  /// What a slot that was popped as free is.
  enum class Freed { ours, parked, corrupt };

  /// False when a lease has the slot, which only a corrupt block can bring about: a peer that frees it twice may have
  /// two threads here at once.
  [[nodiscard]] bool lease(std::uint32_t slot) noexcept {
    std::uint8_t state = none;
    return of(slot).compare_exchange_strong(state, leased, std::memory_order_acq_rel, std::memory_order_relaxed);
  }
  /// Before the frame is queued, for it may be read and freed at once.
  void publish(std::uint32_t slot) noexcept { of(slot).store(kept, std::memory_order_relaxed); }
  void publish_failed(std::uint32_t slot) noexcept { of(slot).store(leased, std::memory_order_relaxed); }
  /// The lease ends. True when the slot is free with it: it was never published, or waited here.
  [[nodiscard]] bool end(std::uint32_t slot) noexcept { return of(slot).exchange(none) != kept; }
  [[nodiscard]] Freed freed(std::uint32_t slot) noexcept {
    std::uint8_t state = of(slot).load(std::memory_order_acquire);
    if (state == kept && of(slot).compare_exchange_strong(state, parked)) return Freed::parked;
    return state == none ? Freed::ours : Freed::corrupt;
  }
  /// A lease lives, and its frame, if any, is nobody's.
  [[nodiscard]] bool holds(const ControlBlock& block, std::uint32_t slot) const noexcept {
    const std::uint8_t state = states_[slot].load(std::memory_order_acquire);
    if (state != kept) return state != none;
    const SlotState written = unpack(block.slot[slot].word.value.load(std::memory_order_acquire));
    const SlotState reading = unpack(block.reading[slot].value.load(std::memory_order_acquire));
    return reading == SlotState{written.sequence + 1, Phase::none};
  }

 private:
  enum State : std::uint8_t { none, leased, kept, parked };
  [[nodiscard]] std::atomic<std::uint8_t>& of(std::uint32_t slot) noexcept { return states_[slot]; }
  alignas(line_bytes) std::atomic<std::uint8_t> states_[max_slots] = {};
};

}  // namespace gpumap::ring
