// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpumap/link.hpp"
#include "link/client_block.hpp"
#include "link/incoming.hpp"
#include "link/link_memory.hpp"
#include "link/socket.hpp"
#include "link/wire.hpp"
#include "own_process.hpp"

namespace gpumap {

/// A connection. The consumer's ring has the server's slots under the same numbers: here each of them is under a
/// WriteLease until the server shows it a frame, which then goes through that ring. So leases, read fences and all that
/// is done with them are those of any ring.
struct LinkConsumer::State {
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
  void read_incoming() { incoming.read_all(memory->block().urgent.load()); }
  /// That this side ends, unless the socket has no room for it: again later, then.
  void say_goodbye();
  /// Frames and messages, in their order. Empty: nothing yet.
  [[nodiscard]] std::optional<LinkNext> take(LinkFrame& frame, const HandOver& hand_over);
  void ring_bell() const noexcept;
  void begin_call();

  /// Until something may be there to claim, or interrupt(); without the lock, in the thread that claims.
  [[nodiscard]] bool spin_until(Deadline end) const noexcept;

  /// The thread: gives back what is done while nobody calls next(), and ends the connection. It is never joined, for it
  /// may have to wait for a lease; it keeps the state alive.
  static void give_back_until_closed(const std::shared_ptr<State>& state);
  [[nodiscard]] bool is_cut_off() const noexcept { return is_cut_off(*memory); }
  [[nodiscard]] static bool is_cut_off(const link::BlockMemory& memory) noexcept {
    return memory.block().revoked.load() == static_cast<std::uint64_t>(link::Revoked::cut_off);
  }

  const OwnProcess process;
  const LinkConsumerOptions options;
  const std::uint64_t generation;
  UniqueFd socket;
  UniqueFd server;  ///< readable when the server's process has ended; may be empty
  UniqueFd bell;    ///< an eventfd of this process alone, for interrupt()
  /// Shared with who asks whether leases that live longer are cut off.
  const std::shared_ptr<link::BlockMemory> memory;
  std::shared_ptr<Ring> ring;
  std::atomic<bool> interrupted{false};

  mutable std::mutex mutex;
  std::condition_variable changed;
  link::Claims<std::atomic<std::uint64_t>> claims;
  std::vector<WriteLease> leases;  ///< of each slot that is not shown
  std::optional<link::Claimed> claimed;
  link::Incoming incoming;
  std::uint64_t asked = 0;
  bool thread_idle = false;
  bool closing = false;
  bool said_goodbye = false;
  std::future<void> thread_over;  ///< ready once the thread has let go of this; for the destructor of the consumer
};

}  // namespace gpumap
