// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpumap/link.hpp"
#include "link/client_block.hpp"
#include "link/memory.hpp"
#include "link/socket.hpp"
#include "link/wire.hpp"
#include "own_process.hpp"

namespace gpumap {

/// A connection. The consumer's ring has the server's slots under the same numbers: here each of them is under a
/// WriteLease until the server shows it a frame, which then goes through that ring. So leases, read fences and all that
/// is done with them are those of any ring.
struct LinkConsumer::State {
  struct Letter {
    link::DataHead head;
    std::vector<std::byte> payload;
  };

  /// What becomes of a frame, whose slot is under its WriteLease.
  using HandOver = std::function<LinkNext(std::uint32_t slot)>;

  State(std::shared_ptr<Device> device, LinkConsumerOptions wanted, UniqueFd connection, const link::Welcome& welcome,
        std::uint64_t server_generation, std::vector<UniqueFd>& fds);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Under `mutex`.
  /// Slots whose readers and fences are done go back to the server.
  void collect();
  void check_fences(std::unique_lock<std::mutex>& lock);  ///< unlocks it meanwhile
  void give_back(WriteLease lease);
  /// Frames and messages, in their order. Empty: nothing yet.
  [[nodiscard]] std::optional<LinkNext> take(LinkFrame& frame, const HandOver& hand_over);
  [[nodiscard]] bool take_urgent(LinkFrame& frame);
  void read_socket();
  void read(const link::Message& message);
  void hang_up(const std::string& reason);
  void ring_bell() const noexcept;
  void begin_call();

  /// Until something may be there to claim, or interrupt(); without the lock, in the thread that claims.
  [[nodiscard]] bool spin_until(Deadline end) const noexcept;

  /// The thread: gives back what is done while nobody calls next(), and ends the connection. It is never joined, for it
  /// may have to wait for a lease; it keeps the state alive.
  static void give_back_until_closed(const std::shared_ptr<State>& state);
  [[nodiscard]] bool is_cut_off() const noexcept {
    return memory.block().revoked.load() == static_cast<std::uint64_t>(link::Revoked::cut_off);
  }

  const OwnProcess process;
  const LinkConsumerOptions options;
  const std::uint64_t generation;
  UniqueFd socket;
  UniqueFd server;  ///< readable when the server's process has ended; may be empty
  UniqueFd bell;    ///< an eventfd of this process alone, for interrupt()
  link::BlockMemory memory;
  std::shared_ptr<Ring> ring;
  std::atomic<bool> interrupted{false};

  mutable std::mutex mutex;
  std::condition_variable changed;
  link::Claims<std::atomic<std::uint64_t>> claims;
  std::vector<WriteLease> leases;  ///< of each slot that is not shown
  std::optional<link::Claimed> claimed;
  std::deque<Letter> inbox;
  std::deque<std::vector<std::byte>> urgent;  ///< messages that overtake
  std::uint64_t asked = 0;
  std::map<std::uint64_t, std::optional<std::vector<std::byte>>> answers;  ///< of questions that somebody waits for
  std::uint64_t letters = 0;                                               ///< received
  /// How many messages came, were given by next() and the like, and had been when the last of those calls began.
  struct Progress {
    std::uint64_t read = 0, given = 0, done = 0;
  };
  Progress in_order, at_once;
  std::vector<std::byte> buffer;
  std::string why;
  bool moved = false;  ///< another server follows
  bool ended_well = false;
  bool ended = false;    ///< nothing more will be offered
  bool readable = true;  ///< the socket may have something
  bool thread_idle = false;
  bool closing = false;
  std::future<void> thread_over;  ///< ready once the thread has let go of this; for the destructor of the consumer
};

}  // namespace gpumap
