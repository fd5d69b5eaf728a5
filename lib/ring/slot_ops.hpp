// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "ring/control_block.hpp"
#include "ring/slot_queue.hpp"

namespace gpumap::ring {

/// The steps of a slot's life on a raw control block, which may hold foreign bytes: every index and length that comes
/// back is in range, whatever the block says.
///
///            acquire            publish             receive             ~ReadLease
///   free ──▶ leased, none ──▶ kept, queued ──▶ kept|none, held ──▶ kept|none, none ──▶ free once both are none
///              │                      ~WriteLease: kept -> none at any time
///              └─ ~WriteLease: none, none: free

enum class Take { nothing, taken, corrupt };

/// Pop the oldest free slot; its writer state stays none until claim().
[[nodiscard]] Take take_free(ControlBlock& block, const Limits& limits, std::uint32_t& slot) noexcept;
/// Writer none -> leased. False when the word says that the slot is not free.
[[nodiscard]] bool claim(ControlBlock& block, std::uint32_t slot) noexcept;
/// Writer leased -> kept, reader -> queued, queue. False when the block is corrupt: the slot stays leased.
[[nodiscard]] bool publish(ControlBlock& block, const Limits& limits, std::uint32_t slot,
                           const FrameInfo& info) noexcept;
/// Pop the oldest published slot; reader queued -> held. `info` is a private copy with bytes <= limits.slot_bytes.
[[nodiscard]] Take take_published(ControlBlock& block, const Limits& limits, std::uint32_t& slot,
                                  FrameInfo& info) noexcept;
/// Pop the oldest published slot and drop its frame. When nobody keeps the slot it is leased to the caller (`claimed`).
[[nodiscard]] Take take_back(ControlBlock& block, const Limits& limits, std::uint32_t& slot, bool& claimed) noexcept;
/// Writer -> none. When that frees the slot, queue it as free and wake the producer.
void release_writer(ControlBlock& block, const Limits& limits, std::uint32_t slot) noexcept;
/// Reader held -> none. When that frees the slot, queue it as free and wake the producer.
void release_reader(ControlBlock& block, const Limits& limits, std::uint32_t slot) noexcept;
/// Drop everything that is queued now.
void drop_published(ControlBlock& block, const Limits& limits) noexcept;

}  // namespace gpumap::ring
