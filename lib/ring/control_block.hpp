// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "gpumap/fence.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/ring.hpp"

namespace gpumap::ring {

/// The words of a ring that another process may map: no pointers, no booleans, no locks; zero bytes are an empty ring.
/// Whatever is read from it is checked against Limits, which are private to the process.

inline constexpr std::uint64_t control_magic = 0x676e'6972'2d70'6d67;  // "gmp-ring" in memory
inline constexpr std::uint32_t control_version = 3;

/// Two lines: the adjacent-line prefetcher of x86 pulls lines in pairs, so one line apart is still shared.
inline constexpr std::size_t line_bytes = 128;

enum class Side : std::uint32_t { open = 1, closed = 2 };
enum class Stamping : std::uint32_t { off = 0, on = 1 };
enum class Sleepers : std::uint32_t { none = 0, some = 1 };

/// Who has a slot. Each side has a word of its own for it, so that in steady state a line has one writer and moves one
/// way. Every change is one store, so a process that dies leaves a slot in a state that has a name.
enum class Phase : std::uint8_t {
  none = 0,       ///< either side's word
  leased = 1,     ///< producer's word: being written
  published = 2,  ///< producer's word: queued, being read, or freed since; the consumer's word tells
  held = 3,       ///< consumer's word: being read
};

struct SlotState {
  /// Producer's word: of the last frame published in the slot. Consumer's word: of the last one taken, plus one.
  std::uint64_t sequence = 0;
  Phase phase = Phase::none;
  friend bool operator==(const SlotState&, const SlotState&) = default;
};

/// [ sequence: 62 | phase: 2 ]
struct SlotWord {
  std::atomic<std::uint64_t> value;
};

[[nodiscard]] constexpr std::uint64_t pack(SlotState state) noexcept {
  return state.sequence << 2U | static_cast<std::uint64_t>(state.phase);
}

[[nodiscard]] constexpr SlotState unpack(std::uint64_t value) noexcept {
  return {value >> 2U, static_cast<Phase>(value & 3U)};
}

/// Two lines: what the producer writes for a frame, and the consumer only reads. `entry` belongs to the queue of
/// published slots, not to this slot: it serves the tickets of this index. But where slots are a power of two and come
/// back in order, ticket and slot agree, and one pair of lines is all that a frame moves from producer to consumer.
///
/// The entry comes last: the consumer polls its line, and a line that is filled in one go, after the other, is taken
/// away by the polls once instead of twice.
struct alignas(line_bytes) Slot {
  SlotWord word;  ///< the producer's
  FrameInfo info;
  std::atomic<std::uint64_t> entry;
};

/// The way of the slot's frame, where ControlBlock::stamping is on; else no one touches these lines. Each side writes
/// its own. The producer's are those of the frame in the slot where `at_ns[published]` is the frame's publish_ns. ns on
/// CLOCK_MONOTONIC, 0: not taken.
struct StampLines {
  struct alignas(line_bytes) {
    std::array<std::atomic<std::int64_t>, static_cast<std::size_t>(Stamp::received)> at_ns;  ///< acquired to published
    std::atomic<std::int64_t> due_ns;
    std::atomic<std::int64_t> captured_ns;
  } producer;
  /// From received on. What the GPU does is known only after the slot was given back, and is not here.
  struct alignas(line_bytes) {
    std::array<std::atomic<std::int64_t>, stamp_count - static_cast<std::size_t>(Stamp::received)> at_ns;
  } consumer;
};

struct alignas(line_bytes) Cursor {
  std::atomic<std::uint64_t> value;
};

/// Of a queue of slot indices, see slot_queue.hpp.
struct Cursors {
  Cursor pushed;
  Cursor popped;
};

/// Where one side sleeps, see Bell.
struct alignas(line_bytes) Bell {
  std::atomic<std::uint32_t> rung;
  std::atomic<std::uint32_t> sleepers;
};

struct ControlBlock {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slots;
  std::uint64_t slot_bytes;
  std::uint64_t slot_stride;
  std::uint64_t block_bytes;

  // Written once in a ring's life or seldom, read on every call: stays shared in both caches.
  alignas(line_bytes) std::atomic<std::uint32_t> producer_side;
  std::atomic<std::uint32_t> consumer_side;
  std::atomic<std::uint64_t> nudges;
  std::atomic<std::uint32_t> stamping;

  alignas(line_bytes) std::atomic<std::uint64_t> dropped_queued;  ///< published, never received
  std::atomic<std::uint64_t> dropped_refused;                     ///< never published: the ring was full

  Bell producer_bell;
  Bell consumer_bell;
  Cursors published;  ///< entries: slot[].entry
  Cursors freed;
  alignas(line_bytes) std::atomic<std::uint64_t> freed_entries[max_slots];
  alignas(line_bytes) SlotWord reading[max_slots];  ///< the consumer's words
  Slot slot[max_slots];
  StampLines stamps[max_slots];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "a lock would live in one process only");
static_assert(sizeof(SlotWord) == 8 && sizeof(std::atomic<std::uint32_t>) == 4 && alignof(SlotWord) == 8);
static_assert(std::is_standard_layout_v<ControlBlock> && std::is_trivially_copyable_v<FrameInfo>);
static_assert(sizeof(FrameInfo) == 72 && sizeof(Slot) == 128 && sizeof(Bell) == 128 && sizeof(Cursor) == 128);
static_assert(offsetof(Slot, entry) == 80, "on the second of the slot's lines");
static_assert(offsetof(ControlBlock, producer_side) == 128 && offsetof(ControlBlock, dropped_queued) == 256);
static_assert(offsetof(ControlBlock, producer_bell) == 384 && offsetof(ControlBlock, published) == 640);
static_assert(offsetof(ControlBlock, freed_entries) == 640 + 2 * sizeof(Cursors));
static_assert(offsetof(ControlBlock, slot) == offsetof(ControlBlock, reading) + sizeof(SlotWord) * max_slots);
static_assert(sizeof(StampLines) == 2 * line_bytes);
static_assert(offsetof(ControlBlock, stamps) == offsetof(ControlBlock, slot) + sizeof(Slot) * max_slots);
static_assert(max_slots == 256, "an entry has 8 bits for the slot");

/// What this process knows for itself and checks the block against.
struct Limits {
  std::uint32_t slots = 0;
  std::uint64_t mask = 0;  ///< entries of a queue in use, less one: a power of two, at least `slots`
  std::uint64_t slot_bytes = 0;

  [[nodiscard]] static constexpr Limits of(std::uint32_t slots, std::uint64_t slot_bytes) noexcept {
    return {slots, std::bit_ceil(std::uint64_t{slots}) - 1, slot_bytes};
  }
};

/// The block's memory: a sealed memfd, so that it can be handed to another process, which cannot shrink it under us.
/// Ownership: owns descriptor and mapping.
class ControlMemory {
 public:
  /// Throws Error(io).
  ControlMemory(std::uint32_t slots, std::uint64_t slot_bytes, std::uint64_t slot_stride);
  ~ControlMemory();
  ControlMemory(const ControlMemory&) = delete;
  ControlMemory& operator=(const ControlMemory&) = delete;

  [[nodiscard]] ControlBlock& block() const noexcept { return *block_; }
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_ = -1;
  ControlBlock* block_ = nullptr;
};

/// Sleeping and waking without a lost wake-up, and without a system call while nobody sleeps.
///
///     sleeper                                waker
///     1. seen = rung                         a. make the condition true (a frame, a slot, a flag)
///     2. sleepers = some                     b. sleepers is none: done, no system call
///     3. condition true: return              c. sleepers: exchange some -> none, only the one who gets `some` goes on
///     4. futex wait while rung == seen       d. rung += 1
///     5. back to 1                           e. futex wake, all of them
///
/// All of these are seq_cst, so they lie in one order. If b comes before 2, then a comes before 3 and the sleeper sees
/// the condition. If b comes after 2, somebody exchanges after 2, hence after 1, and adds to `rung` later still: the
/// wait at 4 either sees another value and returns or is already queued when e wakes it. A waker that loses the
/// exchange at c leaves the waking to the winner, and the sleeper's next 2 comes after that c, so its 3 sees this a.
///
/// A waker that dies between c and e, or one that lies, leaves a sleeper whom no later waker sees: no sleep lasts
/// longer than longest_sleep, and then the sleeper begins at 1 again.
///
/// A word instead of a count of sleepers: a process killed in its sleep would leave a count above zero for ever, and
/// every later publish would make a system call for the dead. The word heals with the first of them. Waking all is what
/// makes one word enough; with several threads on a side, those that find nothing sleep again.
///
/// The futex is not PRIVATE: another process may wait on it.

/// System calls made by bells of this process, ever. For tests and benchmarks.
[[nodiscard]] std::uint64_t futex_calls() noexcept;

/// What a waker that died costs, beside one look each time.
inline constexpr std::chrono::nanoseconds longest_sleep = std::chrono::milliseconds(100);

void wake_sleepers(Bell& bell) noexcept;
/// Wake them whatever the bell's words say, at the price of a system call: for commands, not for frames.
void wake_all(Bell& bell) noexcept;
/// Until `rung` differs from `seen`, a wake, the deadline, or for no reason.
void sleep_on(Bell& bell, std::uint32_t seen, Deadline deadline) noexcept;

/// Call after the condition became true by a seq_cst operation.
inline void sound(Bell& bell) noexcept {
  if (bell.sleepers.load() != static_cast<std::uint32_t>(Sleepers::none)) [[unlikely]]
    wake_sleepers(bell);
}

inline void relax_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

/// Ask `attempt` (giving optional<RingStatus>) until it answers: spinning for `spin`, then asleep on `bell`.
/// `slice` tells for how long one sleep may last at most, if not for longest_sleep; zero: for that long. `waits` counts
/// calls that slept.
template <typename Attempt, typename Slice>
RingStatus wait_on(Bell& bell, Deadline deadline, std::chrono::nanoseconds spin, std::atomic<std::uint64_t>& waits,
                   Attempt&& attempt, Slice&& slice) {
  if (const std::optional<RingStatus> status = attempt()) return *status;
  // Deadline{} is one look, and costs no look at the clock.
  if (deadline == Deadline{} || (deadline != no_deadline && deadline <= Clock::now())) return RingStatus::timeout;

  if (spin.count() > 0) {
    Deadline end{};
    do {
      for (int turn = 0; turn < 64; ++turn) {
        relax_cpu();
        if (const std::optional<RingStatus> status = attempt()) return *status;
      }
      const Deadline now = Clock::now();
      if (end == Deadline{}) end = std::min(deadline, now + spin);
      if (now >= end) break;
    } while (true);
  }

  for (bool counted = false;;) {
    const std::uint32_t seen = bell.rung.load();
    bell.sleepers.store(static_cast<std::uint32_t>(Sleepers::some));
    if (const std::optional<RingStatus> status = attempt()) return *status;
    const std::chrono::nanoseconds at_most = slice();
    const Deadline now = Clock::now();
    if (deadline <= now) return RingStatus::timeout;
    const Deadline until = std::min(deadline, now + (at_most.count() > 0 ? at_most : longest_sleep));
    if (!counted) waits.fetch_add(1, std::memory_order_relaxed);
    counted = true;
    sleep_on(bell, seen, until);
  }
}

}  // namespace gpumap::ring
