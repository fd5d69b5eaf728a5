// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "gpumap/latency.hpp"
#include "gpumap/link.hpp"
#include "gpumap/ring.hpp"

namespace gpumap::link {

/// The words that a server and one of its clients share, without pointers and locks. A block of zero bytes is one in
/// which nothing was offered. Each client has a block of its own, so a client that lies reaches no other client's
/// words.
///
/// A frame's way. Every change is one atomic operation, so a process that dies between two of them leaves a state that
/// has a name:
///
///     server                                   client
///     note[slot] = …, shown[slot] = …
///     entry[t & mask] = {t, slot, offered}
///                                              entry: CAS offered -> taken: the frame is the client's
///     entry: CAS offered -> withdrawn: the     (fails: the server took it back; the next entry, then)
///     client never sees it                     … reads the slot, waits for its GPU …
///                                              returned[slot] = {t, slot, taken}
///     sees returned[slot], which it compares   returns += 1
///     with the ticket that it gave out
///
/// There is no cursor: each entry holds the ticket that it is for. There is no queue of returned slots: each slot has
/// one word for that, so a slot that is returned twice counts once.
///
/// Both compare-and-swaps on an entry have the same old value, so one of the two fails. All accesses are seq_cst: the
/// wake-ups (`asleep`, `wanted`) need one order with the entries, as in a ring's bell.
///
/// Wake-ups, in both directions, without a system call while the other side is busy:
///
///     sleeper                                  waker
///     word = 1                                 makes the condition true
///     looks once more                          word is 1: sets it to 0 and sends a message
///     poll() on the socket
///
/// A waker that died or lies delays the sleeper until its second look, 100 ms later at most.

inline constexpr std::uint64_t block_magic = 0x6b6e'696c'2d70'6d67;  // "gmp-link" in memory
inline constexpr std::uint32_t block_version = 5;
inline constexpr std::size_t line_bytes = 128;  ///< as in a ring: x86 prefetches lines in pairs

enum class Offer : std::uint8_t { none = 0, offered = 1, taken = 2, withdrawn = 3 };

enum class Revoked : std::uint64_t { no = 0, cut_off = 1, server_ended = 2 };

/// Serial numbers of `bits` bits that wrap: of two numbers, the one less than half the circle ahead is the later one.
/// Outside the model check, which uses few bits, `bits` is 54 and nothing wraps.
template <unsigned bits>
struct TicketArithmetic {
  static constexpr std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  [[nodiscard]] static constexpr std::uint64_t next(std::uint64_t ticket, std::uint64_t by = 1) noexcept {
    return (ticket + by) & mask;
  }
  /// How far `later` is ahead of `earlier`; negative when it is behind.
  [[nodiscard]] static constexpr std::int64_t ahead(std::uint64_t later, std::uint64_t earlier) noexcept {
    return static_cast<std::int64_t>((later - earlier) << (64 - bits)) >> (64 - bits);
  }
};

/// [ ticket: 54 | slot: 8 | state: 2 ]
struct Entry {
  std::uint64_t ticket = 0;
  std::uint32_t slot = 0;
  Offer state = Offer::none;
  [[nodiscard]] static constexpr Entry of(std::uint64_t word) noexcept {
    return {word >> 10U, static_cast<std::uint32_t>(word >> 2U & 0xffU), static_cast<Offer>(word & 3U)};
  }
  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return ticket << 10U | std::uint64_t{slot} << 2U | static_cast<std::uint64_t>(state);
  }
};
static_assert(max_slots == 256, "an entry has 8 bits for the slot");

/// The producer's time stamps of a frame, ns on CLOCK_MONOTONIC, which both sides share. All 0: the producer does not
/// stamp. The time of the publish is in FrameInfo.
struct FrameTimes {
  std::int64_t acquired_ns = 0, first_store_ns = 0, last_store_ns = 0;
  std::int64_t due_ns = 0, captured_ns = 0;

  [[nodiscard]] static FrameTimes of(const std::optional<FrameRecord>& record) noexcept {
    if (!record) return {};
    return {record->at(Stamp::acquired), record->at(Stamp::first_store), record->at(Stamp::last_store), record->due_ns,
            record->captured_ns};
  }
};

/// The frame's way up to `published`. Empty when the producer did not stamp it, or wrote an impossible time: before the
/// clock's beginning, or after `now_ns`.
[[nodiscard]] inline std::optional<FrameRecord> record_of(const FrameInfo& info, const FrameTimes& times,
                                                          std::int64_t now_ns) noexcept {
  const std::array stamps{times.acquired_ns, times.first_store_ns, times.last_store_ns, info.publish_ns};
  const bool possible = std::all_of(stamps.begin(), stamps.end(), [&](auto at) { return at >= 0 && at <= now_ns; });
  if (times.acquired_ns == 0 || !possible) return std::nullopt;
  FrameRecord record;
  record.sequence = info.sequence;
  record.bytes = info.bytes;
  std::copy(stamps.begin(), stamps.end(), record.at_ns.begin());
  // Differences of negative times could overflow: they count as not known.
  record.due_ns = std::max<std::int64_t>(times.due_ns, 0);
  record.captured_ns = std::max<std::int64_t>(times.captured_ns, 0);
  return record;
}
static_assert(static_cast<int>(Stamp::acquired) == 0 && static_cast<int>(Stamp::first_store) == 1 &&
              static_cast<int>(Stamp::last_store) == 2 && static_cast<int>(Stamp::published) == 3);

/// What goes with a slot. The server writes it while no client has the slot; the client that takes the slot reads it.
struct Shown {
  FrameInfo info;
  std::uint64_t messages = 0;    ///< messages that the server sent this client before the frame
  std::uint64_t note_bytes = 0;  ///< of the slot's note
  FrameTimes times;
};

/// `Word` is std::atomic<std::uint64_t>; the model check uses a word that calls its scheduler before each access.
template <typename Word>
struct BasicClientBlock {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slots;
  std::uint64_t block_bytes;
  std::uint64_t generation;

  alignas(line_bytes) Word revoked;              ///< server: a Revoked: whether the client still owns what it holds
  Word wanted;                                   ///< server: 1 while it wants to be woken for what comes back
  Word urgent;                                   ///< server: how many messages that overtake it sent
  Word passed_over;                              ///< server: frames that the client's share had no slot for
  alignas(line_bytes) Word asleep;               ///< client: 1 while it sleeps
  Word here;                                     ///< client: 1 once it is done with the ring before
  Word dealt_with;                               ///< client: how many messages in order it took; not trusted
  alignas(line_bytes) Word returns;              ///< client: how many slots came back; a hint to look, not trusted
  alignas(line_bytes) Word received;             ///< client: frames that it took, for observers: with each, so alone
  alignas(line_bytes) Word entry[max_slots];     ///< both
  alignas(line_bytes) Word returned[max_slots];  ///< client
  alignas(line_bytes) Shown shown[max_slots];    ///< server
};
using ClientBlock = BasicClientBlock<std::atomic<std::uint64_t>>;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::is_standard_layout_v<ClientBlock>);
static_assert(sizeof(Shown) == 128 && std::is_trivially_copyable_v<Shown>);
static_assert(offsetof(ClientBlock, revoked) == 128 && offsetof(ClientBlock, entry) == 640);

[[nodiscard]] constexpr std::uint64_t entries_for(std::uint32_t slots) noexcept {
  return std::bit_ceil(std::uint64_t{slots});
}

/// Behind the block each slot has max_link_note bytes for its note, written and read when `shown` is. Pages without a
/// note take no memory.
[[nodiscard]] constexpr std::size_t block_bytes(std::uint32_t slots) noexcept {
  return sizeof(ClientBlock) + std::size_t{slots} * max_link_note;
}

/// A frame that a client took.
struct Claimed {
  std::uint64_t ticket = 0;
  std::uint32_t slot = 0;
  Shown shown;  ///< a private copy
};

enum class Claim { nothing, got, lie };

/// The client's private side of a block. One thread at a time.
template <typename Word, typename Tickets = TicketArithmetic<54>>
class Claims {
 public:
  Claims(BasicClientBlock<Word>& block, std::uint32_t slots, std::uint64_t slot_bytes, std::uint64_t first_ticket = 0)
      : block_(block), slots_(slots), entries_(entries_for(slots)), slot_bytes_(slot_bytes), next_(first_ticket) {}

  /// Take the oldest frame that is offered. `lie`: the server offered an impossible slot; nothing more is taken from
  /// it.
  [[nodiscard]] Claim claim(Claimed& frame) noexcept {
    // Each turn moves on, or another CAS than ours did. The turns are bounded, because a server may withdraw as fast as
    // it offers.
    for (std::uint64_t turn = 0; turn < 4 * entries_; ++turn) {
      Word& word = block_.entry[next_ & (entries_ - 1)];
      std::uint64_t seen = word.load();
      const Entry entry = Entry::of(seen);
      if (entry.state == Offer::none) return Claim::nothing;
      const std::int64_t ahead = Tickets::ahead(entry.ticket, next_);
      if (ahead < 0) return Claim::nothing;  // of the lap before
      if (ahead > 0) {  // withdrawn, and the entry reused: the remaining frames are less than a lap old
        next_ = Tickets::next(entry.ticket, Tickets::mask + 2 - entries_);
        continue;
      }
      if (entry.state == Offer::offered) {
        if (entry.slot >= slots_ || held_[entry.slot]) return Claim::lie;
        if (!word.compare_exchange_strong(seen, Entry{entry.ticket, entry.slot, Offer::taken}.word())) continue;
        next_ = Tickets::next(next_);
        frame.ticket = entry.ticket;
        frame.slot = entry.slot;
        frame.shown = block_.shown[entry.slot];
        if constexpr (std::is_same_v<Word, std::atomic<std::uint64_t>>) {
          // From here on only the copy counts: without this the compiler might read the shared bytes again.
          asm volatile("" : "+m"(frame));
        }
        if (frame.shown.info.bytes > slot_bytes_ || frame.shown.note_bytes > max_link_note) return Claim::lie;
        held_[entry.slot] = true;
        tickets_[entry.slot] = entry.ticket;
        ++count_;
        return Claim::got;
      }
      next_ = Tickets::next(next_);
    }
    return Claim::nothing;
  }

  /// The slot's reader is done. True when the server wants to be woken. A slot that is not held is ignored.
  [[nodiscard]] bool give_back(std::uint32_t slot) noexcept {
    if (slot >= slots_ || !held_[slot]) return false;
    held_[slot] = false;
    --count_;
    // The count is stored behind it, in the order of all words: so this one need not wait until the server's core has
    // let its line go.
    block_.returned[slot].store(Entry{tickets_[slot], slot, Offer::taken}.word(), std::memory_order_release);
    block_.returns.store(++returns_);
    if (block_.wanted.load() == 0) return false;
    return block_.wanted.exchange(0) != 0;
  }

  /// Whether claim() may find something. Called in the thread that claims, without the lock of the other calls.
  [[nodiscard]] bool may_claim() const noexcept {
    const Entry entry = Entry::of(block_.entry[next_ & (entries_ - 1)].load());
    return entry.state != Offer::none && Tickets::ahead(entry.ticket, next_) >= 0;
  }

  [[nodiscard]] std::uint32_t held() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t next_ticket() const noexcept { return next_; }

 private:
  BasicClientBlock<Word>& block_;
  const std::uint32_t slots_;
  const std::uint64_t entries_;
  const std::uint64_t slot_bytes_;
  std::uint64_t next_;
  std::uint64_t returns_ = 0;
  std::uint32_t count_ = 0;
  std::array<bool, max_slots> held_{};
  std::array<std::uint64_t, max_slots> tickets_{};
};

}  // namespace gpumap::link
