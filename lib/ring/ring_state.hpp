// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/fence.hpp"
#include "gpumap/ring.hpp"
#include "own_process.hpp"
#include "ring/control_block.hpp"
#include "ring/slot_queue.hpp"

namespace gpumap::ring {

/// Fences that have signalled, until no lock is held: the last holder of a timeline frees what belongs to it, and the
/// driver may wait for other work to do so.
class SpentFences {
 public:
  [[nodiscard]] bool full() const noexcept { return count_ == fences_.size(); }
  void add(Fence&& fence) noexcept { fences_[count_++] = std::move(fence); }

 private:
  std::array<Fence, 8> fences_;
  std::size_t count_ = 0;
};

/// The read fences of one slot. Private to the process: a fence holds pointers. The lock is taken only by those who
/// add fences and, once there are some, by the one who wants to lease the slot.
class ReadFences {
 public:
  void add(const Fence& fence);
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_acquire) != 0; }
  /// Forget those that have signalled; true when none is left.
  [[nodiscard]] bool drain();
  /// The same for callers that hold a lock. Where `spent` is full some may be left: call again.
  [[nodiscard]] bool drain(SpentFences& spent);
  /// Throws Error(device_lost) when a fence that is still to come can no longer signal.
  void check();
  /// Nobody waits for them any more: Fence::give_up().
  void give_up();

 private:
  void take_out(SpentFences& spent);  ///< those that have signalled, under the lock

  std::atomic<std::uint32_t> count_{0};
  std::mutex lock_;
  std::vector<Fence> fences_;
};

/// Free slots that wait for their read fences, oldest first. All of them were released before any slot that is still in
/// the queue of free ones, so looking here first keeps the order of release.
class PendingSlots {
 public:
  explicit PendingSlots(std::uint32_t slots);
  [[nodiscard]] ReadFences& fences(std::uint32_t slot) noexcept { return fences_[slot]; }

  [[nodiscard]] bool any() const noexcept { return count_.load() != 0; }
  void add(std::uint32_t slot);
  /// Take out the oldest slot whose fences have signalled.
  [[nodiscard]] bool take(std::uint32_t& slot);
  /// Throws Error(device_lost) when the oldest slot's fence can no longer signal.
  void check_oldest();

 private:
  std::unique_ptr<ReadFences[]> fences_;
  std::atomic<std::uint32_t> count_{0};  // seq_cst: part of the emptiness test before a sleep, see Bell
  std::mutex lock_;
  std::vector<std::uint32_t> slots_;
};

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

namespace gpumap {

/// The part of a ring that is private to this process.
struct Ring::State {
  State(std::shared_ptr<Device> on, std::shared_ptr<Mapping> mapped, const RingOptions& options, std::size_t stride,
        Transport way);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Who keeps the ring alive: one count for each side's leases, as one for both would be a line that every frame moves
  /// four times. The handle, which is all shared_ptrs that came from create(), counts as one on each side, so a count
  /// moves through zero only once the handle is gone.
  ///
  /// Then it may do so more than once: a caller that has a ReadLease may still acquire. The caller that raises a count
  /// from 0 adds a side, and the caller that lowers it to 0 takes one away, in whichever order the two come: `sides`
  /// does not reach zero meanwhile, because the raising caller has a lease of the other side; without one it may not
  /// call this.
  struct alignas(ring::line_bytes) Leases {
    std::atomic<std::uint64_t> count{1};
  };
  void keep(Leases& side) noexcept {
    if (side.count.fetch_add(1, std::memory_order_relaxed) == 0) sides.fetch_add(1, std::memory_order_relaxed);
  }
  /// True for the last of all: delete the ring, which a child of fork() never does.
  [[nodiscard]] bool let_go(Leases& side) noexcept {
    return process.here() && side.count.fetch_sub(1, std::memory_order_acq_rel) == 1 &&
           sides.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  /// What a lease that is given to acquire() or receive() holds of the ring: it may be the last, so it lasts for the
  /// whole call, and goes on to the new lease.
  class Hold {
   public:
    /// Ends the lease, but for the hold where it is one on `ring`.
    template <typename Lease>
    Hold(Ring& ring, Leases& side, Lease& lease) noexcept : ring_(ring), side_(side), held_(lease.ring_ == &ring) {
      if (held_) {
        lease.give_back();
        lease.ring_ = nullptr;
      } else {
        lease.end();
      }
    }
    ~Hold() {
      if (held_ && ring_.state_->let_go(side_)) delete &ring_;
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    template <typename Lease>
    void pass_to(Lease& lease) noexcept {
      if (!std::exchange(held_, false)) ring_.state_->keep(side_);
      lease.ring_ = &ring_;
    }

   private:
    Ring& ring_;
    Leases& side_;
    bool held_;
  };

  /// A slot of the `queue` that `take` takes from, leased: the first one that no writer keeps and that `accept`
  /// accepts. Throws Error(invalid) for a corrupt block.
  template <typename TakeOne, typename Accept>
  bool lease_one(std::uint32_t& slot, const char* queue, const TakeOne& take, const Accept& accept);
  /// The oldest free slot whose fences have signalled, leased. Throws Error(invalid) for a corrupt block.
  bool take_free(std::uint32_t& slot);
  /// Drop published frames, oldest first, until one gives a slot, leased. False where there is none, and where the
  /// upload of the oldest still reads its slot: those of later frames end later, so no frame is dropped for nothing.
  /// Throws Error(device_lost), as check_seldom() does, before anything is dropped.
  bool take_back(std::uint32_t& slot);
  /// Ask the driver, every 20 ms at most, whether the fence that keeps us from a slot can still signal.
  template <typename Check>
  void check_seldom(Check&& check) {
    constexpr std::int64_t interval_ns = 20'000'000;
    const std::int64_t now = monotonic_ns();
    std::int64_t last = fence_check_ns.load(std::memory_order_relaxed);
    if (now - last >= interval_ns && fence_check_ns.compare_exchange_strong(last, now)) check();
  }
  void check_pending() {
    if (pending.any()) check_seldom([this] { pending.check_oldest(); });
  }
  bool lease(std::uint32_t slot) noexcept;
  void end_lease(std::uint32_t slot, bool published) noexcept;
  /// Skips what is corrupt. Throws Error(invalid) when nothing else comes.
  bool take_published(std::uint32_t& slot, FrameInfo& info);
  [[nodiscard]] bool take_nudge() noexcept;

  const OwnProcess process;  ///< the block is mapped by children of fork(), too
  std::shared_ptr<Device> device;
  std::shared_ptr<Mapping> mapping;
  std::byte* host;
  std::size_t slot_stride;
  Transport transport;
  std::string fallback_reason;
  bool uploads;  ///< publish() calls upload(): the mapping is mirrored, or not coherent
  ring::Limits limits;
  ring::ControlMemory memory;
  ring::ControlBlock& block;
  ring::PendingSlots pending;
  std::vector<Fence> written;  ///< of each slot; set before it is queued, read by who takes it

  ring::Writers writers;
  ring::SeenEntries seen_freed;
  Leases write_leases;
  Leases read_leases;
  // Read on every call, written seldom.
  alignas(ring::line_bytes) std::atomic<bool> producer_flushing{false};
  std::atomic<bool> consumer_flushing{false};
  std::atomic<std::int64_t> spin_ns;
  // Written on slow paths only.
  alignas(ring::line_bytes) std::atomic<std::uint64_t> producer_waits{0};
  std::atomic<std::uint64_t> overtaken{0};
  std::atomic<std::uint64_t> consumer_waits{0};
  std::atomic<std::uint64_t> nudges_seen{0};
  std::atomic<std::int64_t> fence_check_ns{0};
  std::atomic<std::uint32_t> sides{2};
};

}  // namespace gpumap
