// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
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

namespace link {

/// Between two tries to connect; `tried`: since the first one. A server that was away is found within an eighth of that
/// time, and one that stays away is asked for once a second.
[[nodiscard]] constexpr std::chrono::nanoseconds pause_after(std::chrono::nanoseconds tried) {
  return std::clamp<std::chrono::nanoseconds>(tried / 8, std::chrono::milliseconds(10), std::chrono::seconds(1));
}

}  // namespace link

/// A connection. The consumer's ring has the slots of the server's ring under the same numbers. Each slot is under a
/// WriteLease here until the server shows a frame in it; the frame then goes through that ring. So leases and read
/// fences are those of any ring.
struct LinkConsumer::State {
  /// Hands a frame on, whose slot is still under its WriteLease.
  using HandOver = std::function<LinkNext(std::uint32_t slot)>;

  /// `on` null: the device of the server's memory.
  State(std::shared_ptr<Device> on, LinkConsumerOptions wanted, UniqueFd connection, const link::Welcome& welcome,
        std::uint64_t server_generation, std::vector<UniqueFd>& fds);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The ring and the block that the server offers. Throws as connect().
  void follow(const link::Welcome& welcome, std::vector<UniqueFd>& fds);

  // Under `mutex`.
  /// Give slots whose readers and fences are done back to the server.
  void collect();
  /// End the connection if the fence of a slot can no longer signal. Unlocks `lock` meanwhile.
  void check_fences(std::unique_lock<std::mutex>& lock);
  void give_back(WriteLease lease);
  void read_incoming() { incoming.read_all(memory->block().urgent.load()); }
  /// Tell the server that this side ends. A full socket has no room for that: then it must be called again later.
  void say_goodbye();
  [[nodiscard]] bool claim();
  /// Go on with the ring that is the next message. Precondition: no frame of this one is left.
  void change();
  /// Take the next frame or message, in their order. Empty: nothing yet.
  [[nodiscard]] std::optional<LinkNext> take(LinkFrame& frame, const HandOver& hand_over);
  void ring_bell() const noexcept;
  void begin_call();
  /// Whether interrupt() was called, once. An exchange alone would cost each frame a locked instruction.
  [[nodiscard]] bool is_interrupted() noexcept { return interrupted.load() && interrupted.exchange(false); }

  /// Spin until there may be a frame to claim, or interrupt() was called. Without the lock, in the thread that claims.
  /// Precondition: there is a ring.
  [[nodiscard]] bool spin_until(Deadline end) const noexcept;

  /// Starts the thread. Throws when none can be had.
  static void start(std::shared_ptr<State> state);
  /// The thread: gives slots back while no thread calls next(), and ends the connection. It is never joined, because it
  /// may have to wait for a lease; it keeps the state alive. At the process's end it leaves the state as it is.
  static void give_back_until_closed(std::shared_ptr<State> state);
  [[nodiscard]] std::shared_ptr<link::BlockMemory> block_memory() const;  ///< takes `mutex`
  [[nodiscard]] static bool is_cut_off(const link::BlockMemory& memory) noexcept {
    return memory.block().revoked.load() == static_cast<std::uint64_t>(link::Revoked::cut_off);
  }

  const OwnProcess process;
  const LinkConsumerOptions options;
  const std::uint64_t generation;
  const std::shared_ptr<Device> given;  ///< null: each ring is on the device of its memory
  std::shared_ptr<Device> device;       ///< of the last ring
  UniqueFd socket;
  UniqueFd server;  ///< readable when the server's process has ended; may be empty
  UniqueFd bell;    ///< an eventfd of this process alone, for interrupt()
  /// Shared with callers that ask whether leases that outlive this object are cut off.
  std::shared_ptr<link::BlockMemory> memory;
  std::shared_ptr<Ring> ring;  ///< null: the server has none for now
  /// Of the server before, for the thread to let go: their end waits for the GPU.
  std::vector<std::shared_ptr<Ring>> last_rings;
  std::atomic<bool> interrupted{false};

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::optional<link::Claims<std::atomic<std::uint64_t>>> claims;
  std::vector<WriteLease> leases;  ///< of each slot without a frame
  std::optional<link::Claimed> claimed;
  link::Incoming incoming;
  std::uint64_t asked = 0;
  std::uint64_t received = 0;  ///< frames
  bool thread_idle = false;
  bool closing = false;
  bool said_goodbye = false;
  std::future<void> thread_over;  ///< ready once the thread no longer uses this; for the consumer's destructor
};

}  // namespace gpumap
