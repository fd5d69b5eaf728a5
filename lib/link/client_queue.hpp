// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "link/client_block.hpp"
#include "prefetch.hpp"

namespace gpumap::link {

/// The server's private side of one client's block: which slots the client was shown, and under which ticket. The words
/// of the block are compared with that and never trusted. One thread at a time.
template <typename Word, typename Tickets = TicketArithmetic<54>>
class ClientQueue {
 public:
  ClientQueue(BasicClientBlock<Word>& block, std::uint32_t slots, std::uint64_t first_ticket = 0)
      : block_(block), slots_(slots), entries_(entries_for(slots)), next_(first_ticket), oldest_(first_ticket) {}

  /// Fetch what offer() will write; what the caller does in between hides the way.
  void expect_offer(std::uint32_t slot) const noexcept {
    constexpr std::size_t line = 64;
    for (std::size_t at = 0; at < sizeof(Shown); at += line) {
      prefetch_to_write(reinterpret_cast<const std::byte*>(&block_.shown[slot]) + at);
    }
  }
  /// Show the client a frame. True when the client sleeps and must be woken. Precondition: `slot` is not shown to it.
  /// `lost` gets a slot that the client left unread for a whole lap, which only a client that lies does: that slot is
  /// no longer shown.
  [[nodiscard]] bool offer(std::uint32_t slot, const Shown& shown, std::optional<std::uint32_t>& lost) noexcept {
    block_.shown[slot] = shown;
    const std::uint64_t at = next_ & (entries_ - 1);
    const Slot before = given_[at];
    const std::uint64_t old = block_.entry[at].exchange(Entry{next_, slot, Offer::offered}.word());
    if (before.used && shows(before.slot) && tickets_[before.slot] == before.ticket &&
        old == Entry{before.ticket, before.slot, Offer::offered}.word()) {
      lost = before.slot;
      hide(before.slot);
    }
    given_[at] = {next_, slot, true};
    tickets_[slot] = next_;
    shown_[slot] = true;
    ++count_;
    next_ = Tickets::next(next_);
    if (Tickets::ahead(next_, oldest_) > static_cast<std::int64_t>(entries_)) {
      oldest_ = Tickets::next(next_, Tickets::mask + 1 - entries_);
    }
    if (block_.asleep.load() == 0) return false;
    return block_.asleep.exchange(0) != 0;
  }

  /// Take back the oldest frame that the client has not taken; the client never sees it. Empty: there is none.
  [[nodiscard]] std::optional<std::uint32_t> withdraw() noexcept {
    for (; oldest_ != next_; oldest_ = Tickets::next(oldest_)) {
      const Slot given = given_[oldest_ & (entries_ - 1)];
      if (!shows(given.slot) || tickets_[given.slot] != oldest_) continue;
      std::uint64_t expected = Entry{oldest_, given.slot, Offer::offered}.word();
      if (!block_.entry[oldest_ & (entries_ - 1)].compare_exchange_strong(
              expected, Entry{oldest_, given.slot, Offer::withdrawn}.word())) {
        continue;
      }
      oldest_ = Tickets::next(oldest_);
      hide(given.slot);
      return given.slot;
    }
    return std::nullopt;
  }

  /// Call `freed` with each slot that came back. False: the client lies. `look_again`: also when its count is
  /// unchanged.
  template <typename Freed>
  [[nodiscard]] bool reclaim(bool look_again, Freed&& freed) noexcept {
    if (count_ == 0) return true;
    const std::uint64_t returns = block_.returns.load();
    if (returns == returns_ && !look_again) return true;
    returns_ = returns;
    for (std::uint32_t slot = 0; slot < slots_; ++slot) {
      if (!shown_[slot]) continue;
      const std::uint64_t word = block_.returned[slot].load();
      if (word == returned_[slot]) continue;
      if (word != Entry{tickets_[slot], slot, Offer::taken}.word()) return false;
      returned_[slot] = word;
      hide(slot);
      freed(slot);
    }
    return true;
  }

  /// Ask to be woken when a slot comes back; call reclaim() once more afterwards.
  void want_returns() noexcept {
    constexpr std::uint32_t most = 64;  // wake-ups that are under way
    if (block_.wanted.exchange(1) == 0 && looks_ < most) ++looks_;
  }
  /// A wake-up arrived. False: the server had not asked for one.
  [[nodiscard]] bool takes_look() noexcept {
    if (looks_ == 0) return false;
    --looks_;
    return true;
  }
  /// The client has all slots that it may have, and misses a frame.
  void pass_over() noexcept { block_.passed_over.store(++passed_over_); }
  /// The client no longer owns what it still holds.
  void revoke(Revoked why) noexcept { block_.revoked.store(static_cast<std::uint64_t>(why)); }

  [[nodiscard]] bool shows(std::uint32_t slot) const noexcept { return shown_[slot]; }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t next_ticket() const noexcept { return next_; }
  /// The ticket under which `slot` is shown.
  [[nodiscard]] std::uint64_t ticket(std::uint32_t slot) const noexcept { return tickets_[slot]; }

 private:
  struct Slot {
    std::uint64_t ticket = 0;
    std::uint32_t slot = 0;
    bool used = false;
  };
  void hide(std::uint32_t slot) noexcept {
    shown_[slot] = false;
    --count_;
  }

  BasicClientBlock<Word>& block_;
  const std::uint32_t slots_;
  const std::uint64_t entries_;
  std::uint64_t next_;
  std::uint64_t oldest_;  ///< every frame before it is taken or withdrawn
  std::uint64_t returns_ = 0;
  std::uint64_t passed_over_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t looks_ = 0;  ///< wake-ups that were asked for and have not arrived
  std::array<bool, max_slots> shown_{};
  std::array<std::uint64_t, max_slots> tickets_{};
  std::array<std::uint64_t, max_slots> returned_{};  ///< the words when they were last read
  std::array<Slot, max_slots> given_{};              ///< what each entry was last used for
};

}  // namespace gpumap::link
