// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "ring/control_block.hpp"
#include "ring/slot_queue.hpp"

namespace gpumap::ring {

/// The steps of a slot's life on a raw control block, which may hold foreign bytes: every index and length that comes
/// back is in range, whatever the block says.
///
///     producer's word:    leased ──────▶ published ─────────────────────────────────────▶ leased …
///                         │   ▲            │ queue                             queue ▲
///              ~WriteLease▼   │acquire     ▼                                         │
///                         none        consumer's word:   held ──────────▶ none ──────┘
///                                                      receive       ~ReadLease
///
/// A slot whose reader is done is freed even while its WriteLease lives: the producer's side, which alone hands out
/// slots, knows its own leases (ring_state.hpp) and keeps such a slot back.
///
/// Lines that one frame moves between two cores, where each side has a thread that spins and slots are a power of two
/// that come back in order:
///     producer writes   slot[n].word, slot[n].entry     consumer reads both, at once
///     consumer writes   freed_entries[n]                producer reads it, up to eight at a time
/// All else that is written (cursors, consumer's words, leases, counts) stays with its side. Where ticket and slot do
/// not agree, the entry lies on a third line, and the consumer learns from it which other two to fetch.

enum class Take { nothing, taken, corrupt };

/// Pop the oldest free slot.
[[nodiscard]] Take take_free(ControlBlock& block, const Limits& limits, SeenEntries& seen,
                             std::uint32_t& slot) noexcept;
/// Set the producer's word of a slot that the caller is alone with.
void mark(ControlBlock& block, std::uint32_t slot, Phase phase) noexcept;
/// Fetch the lines that publish() will write; what the caller does in between hides the way.
void expect_publish(ControlBlock& block, const Limits& limits, std::uint32_t slot) noexcept;
/// Leased -> published, and queue. False when the block is corrupt: the slot stays leased.
[[nodiscard]] bool publish(ControlBlock& block, const Limits& limits, std::uint32_t slot, const FrameInfo& info,
                           std::int64_t publish_ns) noexcept;
/// Pop the oldest published slot, to hold it. `info` is a private copy with bytes <= limits.slot_bytes.
[[nodiscard]] Take take_published(ControlBlock& block, const Limits& limits, std::uint32_t& slot,
                                  FrameInfo& info) noexcept;
/// Pop the oldest published slot and drop its frame, if `writable` says that the slot may be written: the slot is the
/// caller's, and in no queue. Throws what `writable` does, and has then done nothing.
[[nodiscard]] Take take_back(ControlBlock& block, const Limits& limits, std::uint32_t& slot,
                             const std::function<bool(std::uint32_t)>& writable);
/// Held -> none; queue the slot as free and wake the producer.
void release_reader(ControlBlock& block, const Limits& limits, std::uint32_t slot) noexcept;
[[nodiscard]] inline bool stamps(const ControlBlock& block) noexcept {
  return block.stamping.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(Stamping::on);
}
/// Where a stamp of the slot's frame is kept.
[[nodiscard]] inline std::atomic<std::int64_t>& stamp_of(ControlBlock& block, std::uint32_t slot,
                                                         Stamp stamp) noexcept {
  constexpr auto first_of_consumer = static_cast<std::size_t>(Stamp::received);
  StampLines& lines = block.stamps[slot];
  const auto at = static_cast<std::size_t>(stamp);
  return at < first_of_consumer ? lines.producer.at_ns[at] : lines.consumer.at_ns[at - first_of_consumer];
}
/// Nothing is known of the frame that will be written but when its slot was acquired.
void begin_stamps(ControlBlock& block, std::uint32_t slot, std::int64_t acquired_ns) noexcept;
/// The producer's stamps of the frame in the slot, as `info` names it; empty where they are of another, or of none.
[[nodiscard]] std::optional<FrameRecord> read_stamps(ControlBlock& block, std::uint32_t slot,
                                                     const FrameInfo& info) noexcept;
/// Drop everything that is queued now; the slots are free.
void drop_published(ControlBlock& block, const Limits& limits) noexcept;

}  // namespace gpumap::ring
