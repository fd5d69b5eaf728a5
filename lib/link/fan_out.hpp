// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "gpumap/link.hpp"
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

/// Which client has which slot: each slot has one bit for each client, and is free when no bit is set. Private to the
/// server's process. `Free` is called once with each slot that becomes free. One thread at a time.
template <typename Word, typename Free, typename Tickets = TicketArithmetic<54>>
class FanOut {
 public:
  struct Client {
    Client(BasicClientBlock<Word>& block, std::uint32_t slots, LinkLeak when_slow, std::uint64_t first)
        : queue(block, slots, first), leak(when_slow) {}
    ClientQueue<Word, Tickets> queue;
    LinkLeak leak;
    std::uint64_t shown = 0, dropped = 0;  ///< frames
  };

  /// `reserve`: slots that are never given to clients that may miss frames, so that the producer always has some to
  /// write.
  FanOut(std::uint32_t slots, std::uint32_t reserve, Free free)
      : slots_(slots), reserve_(std::min(reserve, slots - 1)), free_(std::move(free)) {}

  void join(std::uint32_t client, BasicClientBlock<Word>& block, LinkLeak leak, std::uint64_t first_ticket = 0) {
    closing_ &= ~bit(client);
    clients_[client].emplace(block, slots_, leak, first_ticket);
  }
  /// The client is gone: all slots that it was shown come back.
  void leave(std::uint32_t client) noexcept {
    if (!clients_[client]) return;
    clients_[client].reset();
    for (std::uint32_t slot = 0; slot < slots_; ++slot) release(slot, client);
  }
  /// The client leaves and keeps what it holds: the frames that it has not taken come back.
  void stop_offering(std::uint32_t client) noexcept {
    if (!clients_[client]) return;
    closing_ |= bit(client);
    while (const auto slot = clients_[client]->queue.withdraw()) release(*slot, client);
  }

  /// publish() of this slot follows.
  void expect_publish(std::uint32_t slot) const noexcept {
    for (const auto& client : clients_) {
      if (client) client->queue.expect_offer(slot);
    }
  }
  /// Show a frame to every client that may have it, by `show(client)`, and wake those that sleep, by `wake(client)`.
  /// Precondition: no client has `slot`. When no client gets the frame, the slot is free at once.
  template <typename Show, typename Wake>
  void publish(std::uint32_t slot, const Show& show, const Wake& wake) noexcept {
    busy_[slot] = true;
    ++busy_count_;
    for (std::uint32_t index = 0; index < max_link_clients; ++index) {
      if (!clients_[index] || (closing_ & bit(index)) != 0) continue;
      Client& client = *clients_[index];
      if (client.leak != LinkLeak::no && !may_have(client, index)) {
        ++client.dropped;
        client.queue.pass_over();
        continue;
      }
      ++client.shown;
      masks_[slot] |= bit(index);
      std::optional<std::uint32_t> lost;
      if (client.queue.offer(slot, show(index), lost)) wake(index);
      if (lost) release(*lost, index);
    }
    if (masks_[slot] == 0) end(slot);
  }

  /// Collect what `client` gave back, and call `came_back(client, slot)` for each slot before it is free. False: the
  /// client lies; disconnect it.
  template <typename CameBack>
  [[nodiscard]] bool reclaim(std::uint32_t client, bool look_again, const CameBack& came_back) noexcept {
    return !clients_[client] || clients_[client]->queue.reclaim(look_again, [&](std::uint32_t slot) {
      came_back(client, slot);
      release(slot, client);
    });
  }
  [[nodiscard]] bool reclaim(std::uint32_t client, bool look_again) noexcept {
    return reclaim(client, look_again, [](std::uint32_t, std::uint32_t) {});
  }

  /// Take back frames that clients have not taken, oldest first, until a slot is free: from clients with
  /// LinkLeak::oldest, or from all. True: a slot is free.
  [[nodiscard]] bool make_room(bool of_all) noexcept {
    const std::uint64_t before = freed_;
    for (bool any = true; any && freed_ == before;) {
      any = false;
      for (std::uint32_t index = 0; index < max_link_clients && freed_ == before; ++index) {
        if (!clients_[index] || (!of_all && clients_[index]->leak != LinkLeak::oldest)) continue;
        any = take_back(index) || any;
      }
    }
    return freed_ != before;
  }

  /// Take back all frames that clients have not taken.
  void withdraw_all() noexcept {
    for (std::uint32_t index = 0; index < max_link_clients; ++index) {
      if (!clients_[index]) continue;
      while (const auto slot = clients_[index]->queue.withdraw()) {
        --clients_[index]->shown;
        release(*slot, index);
      }
    }
  }

  void want_returns() noexcept {
    for (auto& client : clients_) {
      if (client && client->queue.count() > 0) client->queue.want_returns();
    }
  }

  [[nodiscard]] std::optional<Client>& client(std::uint32_t index) noexcept { return clients_[index]; }
  /// Whether the client is shown frames: it has joined, and has not begun to leave.
  [[nodiscard]] bool takes_frames(std::uint32_t index) const noexcept {
    return clients_[index].has_value() && (closing_ & bit(index)) == 0;
  }
  [[nodiscard]] std::uint32_t busy() const noexcept { return busy_count_; }  ///< slots that clients have
  [[nodiscard]] std::uint32_t holders(std::uint32_t slot) const noexcept { return masks_[slot]; }

 private:
  [[nodiscard]] static constexpr std::uint32_t bit(std::uint32_t client) noexcept { return std::uint32_t{1} << client; }

  [[nodiscard]] bool take_back(std::uint32_t index) noexcept {
    const auto slot = clients_[index]->queue.withdraw();
    if (!slot) return false;
    --clients_[index]->shown;
    ++clients_[index]->dropped;
    release(*slot, index);
    return true;
  }

  /// A client that may miss frames has at most its share, and never the last slots. Otherwise a client that sleeps
  /// while it holds frames would stop all others.
  [[nodiscard]] bool may_have(Client& client, std::uint32_t index) noexcept {
    const auto sharing = static_cast<std::uint32_t>(std::count_if(
        clients_.begin(), clients_.end(), [](const auto& one) { return one && one->leak != LinkLeak::no; }));
    const std::uint32_t share = std::max(1U, (slots_ - reserve_) / std::max(1U, sharing));
    const auto fits = [&] { return slots_ - busy_count_ >= reserve_ && client.queue.count() < share; };
    return fits() || (client.leak == LinkLeak::oldest && take_back(index) && fits());
  }

  void release(std::uint32_t slot, std::uint32_t client) noexcept {
    if ((masks_[slot] & bit(client)) == 0) return;
    masks_[slot] &= ~bit(client);
    if (masks_[slot] == 0) end(slot);
  }
  void end(std::uint32_t slot) noexcept {
    busy_[slot] = false;
    --busy_count_;
    ++freed_;
    free_(slot);
  }

  const std::uint32_t slots_;
  const std::uint32_t reserve_;
  Free free_;
  std::uint32_t closing_ = 0;
  std::uint32_t busy_count_ = 0;
  std::uint64_t freed_ = 0;
  std::array<std::optional<Client>, max_link_clients> clients_;
  std::array<std::uint32_t, max_slots> masks_{};
  std::array<bool, max_slots> busy_{};
};

}  // namespace gpumap::link
