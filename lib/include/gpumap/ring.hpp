// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/memory.hpp"

namespace gpumap {

inline constexpr std::uint32_t min_slots = 2;
inline constexpr std::uint32_t max_slots = 256;
inline constexpr std::int64_t no_time = -1;

/// What travels with a published slot. Plain data: it lies in the control block, which another process may map.
struct FrameInfo {
  std::uint64_t sequence = 0;  ///< set by publish: frames published on this ring before this one
  std::uint64_t bytes = 0;     ///< bytes in use, from the slot's start
  std::int64_t pts = no_time;  ///< ns
  std::int64_t dts = no_time;
  std::int64_t duration = no_time;
  std::uint64_t offset = ~std::uint64_t{0};
  std::uint64_t offset_end = ~std::uint64_t{0};
  std::uint32_t flags = 0;      ///< the application's own (GstBufferFlags in the plugin)
  std::uint32_t user = 0;       ///< the application's own
  std::int64_t publish_ns = 0;  ///< set by publish: CLOCK_MONOTONIC
};

struct RingOptions {
  std::uint32_t slots = 8;             ///< min_slots to max_slots; a power of two saves a cache miss a frame
  std::size_t slot_bytes = 0;          ///< at least 1; a slot starts every slot_stride() bytes
  std::optional<Transport> transport;  ///< empty: bar, or pinned where the BAR window has no room
  bool require_coherent = false;
  bool treat_as_non_coherent = false;
  std::chrono::nanoseconds spin{0};  ///< busy-poll for this long before a wait sleeps in the kernel
};

/// What a full ring does to a producer.
enum class WhenFull {
  block,        ///< wait for a slot
  drop_newest,  ///< give up at once: the caller drops what it holds
  drop_oldest,  ///< take back the oldest queued slot; give up at once when the consumer holds them all, or the oldest
                ///< one's upload is still under way
};

enum class RingStatus {
  ok,
  timeout,
  flushing,  ///< interrupted; see Ring::set_flushing
  closed,    ///< the other side is gone; a consumer gets this only once the queue is empty
  full,      ///< no slot, and WhenFull says not to wait
};

struct RingCounters {
  std::uint64_t published = 0, received = 0;
  std::uint64_t dropped = 0;                             ///< published, never received
  std::uint64_t overtaken = 0;                           ///< those of them that made room for a newer frame
  std::uint64_t refused = 0;                             ///< acquires that found the ring full
  std::uint64_t producer_waits = 0, consumer_waits = 0;  ///< waits that went past spinning
};

class Ring;

/// The right to write one slot. Move-only. Destroyed unpublished, the slot is free again; destroyed after publish, the
/// slot stays with the queue or the consumer. While it lives, the slot is not handed out anew, so what was written
/// stays there. Keeps its ring alive. Thread safety: one thread at a time.
class GPUMAP_API WriteLease {
 public:
  WriteLease() = default;
  WriteLease(WriteLease&& other) noexcept;
  WriteLease& operator=(WriteLease&& other) noexcept;
  ~WriteLease();

  [[nodiscard]] explicit operator bool() const noexcept { return ring_ != nullptr; }
  [[nodiscard]] std::byte* host() const noexcept;     ///< the slot's first byte, 4096-aligned
  [[nodiscard]] std::size_t bytes() const noexcept;   ///< the slot's size
  [[nodiscard]] std::size_t offset() const noexcept;  ///< in ring->mapping()
  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }
  [[nodiscard]] bool published() const noexcept { return published_; }
  [[nodiscard]] Ring* ring() const noexcept { return ring_; }  ///< null when empty; lives as long as the lease

  /// Of the frame that is written: first_store, which keeps the first time, and last_store, which keeps the last; ns on
  /// CLOCK_MONOTONIC. The ring itself stamps acquired and published. Nothing where Ring::stamping() is not.
  void stamp(Stamp stamp, std::int64_t at_ns) noexcept;
  /// When the frame was due, and when it was captured; 0: not known.
  void stamp_source(std::int64_t due_ns, std::int64_t captured_ns) noexcept;

 private:
  friend class Ring;
  void end() noexcept;
  void give_back() noexcept;  ///< the slot, but not the hold on the ring
  Ring* ring_ = nullptr;
  std::uint32_t slot_ = 0;
  bool published_ = false;
};

/// The right to read one published slot. Move-only; destroyed, the slot is released: leased again once its read fences
/// have signalled. Keeps its ring alive. Thread safety: add_read_fence from any thread, the rest one at a time.
class GPUMAP_API ReadLease {
 public:
  ReadLease() = default;
  ReadLease(ReadLease&& other) noexcept;
  ReadLease& operator=(ReadLease&& other) noexcept;
  ~ReadLease();

  [[nodiscard]] explicit operator bool() const noexcept { return ring_ != nullptr; }
  [[nodiscard]] const FrameInfo& info() const noexcept { return info_; }  ///< a private copy, checked against the ring
  [[nodiscard]] std::size_t offset() const noexcept;
  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }
  /// What brings the frame to the GPU: kernels wait for it. Signalled already but for Transport::pinned.
  [[nodiscard]] const Fence& written() const noexcept { return written_; }
  /// GPU work that reads the slot: it is not leased again before this fence has signalled.
  void add_read_fence(const Fence& fence) const;
  /// The frame's way up to `received`; empty where the ring did not stamp it.
  [[nodiscard]] std::optional<FrameRecord> stamps() const noexcept;
  /// `launched` and what comes after it, into the slot, for who looks into the control block. The ring stamps received
  /// and released. Nothing where Ring::stamping() is not.
  void stamp(Stamp stamp, std::int64_t at_ns) const noexcept;
  /// Give the slot back now. When that was, where the ring stamps, else 0.
  std::int64_t release() noexcept { return end(); }
  [[nodiscard]] Ring* ring() const noexcept { return ring_; }  ///< null when empty; lives as long as the lease

 private:
  friend class Ring;
  std::int64_t end() noexcept;
  std::int64_t give_back() noexcept;  ///< the slot, but not the hold on the ring
  Ring* ring_ = nullptr;
  std::uint32_t slot_ = 0;
  FrameInfo info_;
  Fence written_;
};

/// A fixed set of slots in one mapping, plus the queue of published ones. One producer side, one consumer side; on each
/// side any number of threads may call, and leases may be dropped by any thread.
///
/// It lives as long as a shared_ptr from create() or a lease. A weak_ptr tells of the shared_ptrs alone: leases are
/// counted apart, each side's by itself. Whether the memory is gone, a weak_ptr to mapping() tells.
///
/// It serves the process that made it. In a child of its fork() all handles do nothing and free nothing: acquire() and
/// receive() give closed, publish() throws Error(invalid).
///
/// It has a cache line of its own: leases read the pointer in it, copies of the handle write beside it.
class alignas(64) GPUMAP_API Ring {
 public:
  /// Throws Error(invalid | no_memory | not_supported).
  [[nodiscard]] static std::shared_ptr<Ring> create(std::shared_ptr<Device> device, const RingOptions& options);
  /// On memory that is there, of at least slots * (slot_bytes rounded up to 4096) bytes, which a CPU can reach. The
  /// transport says how it gets to the GPU, and is not empty. Throws Error(invalid).
  [[nodiscard]] static std::shared_ptr<Ring> create(std::shared_ptr<Device> device, std::shared_ptr<Mapping> mapping,
                                                    const RingOptions& options);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  [[nodiscard]] const std::shared_ptr<Device>& device() const noexcept;
  [[nodiscard]] const std::shared_ptr<Mapping>& mapping() const noexcept;
  [[nodiscard]] std::uint32_t slots() const noexcept;
  [[nodiscard]] std::size_t slot_bytes() const noexcept;
  [[nodiscard]] std::size_t slot_stride() const noexcept;  ///< slot_bytes rounded up to 4096
  [[nodiscard]] Transport transport() const noexcept;
  /// Why RingOptions::transport left empty did not give bar, with figures and remedy; empty when it did.
  [[nodiscard]] const std::string& fallback_reason() const noexcept;

  // Producer side.
  /// The free slot released longest ago whose read fences have signalled; before all, one whose lease ended after its
  /// reader, or unpublished. ok, timeout, flushing, closed or full. What
  /// `lease` held before is let go first. Throws Error(device_lost) when the fences it needs can no longer signal,
  /// Error(invalid) when another process corrupted the control block.
  [[nodiscard]] RingStatus acquire(WriteLease& lease, WhenFull when_full = WhenFull::block,
                                   Deadline deadline = no_deadline);
  /// Store fence, upload (a flush where not coherent, DMA, or nothing), stamp, queue. Error(invalid) when info.bytes
  /// exceeds the slot or the lease is empty or published already. Blocks only for Transport::pageable.
  void publish(WriteLease& lease, const FrameInfo& info);
  /// No more frames: consumers get what is queued, then closed.
  void close_producer() noexcept;

  // Consumer side.
  /// The oldest published frame. ok, timeout, flushing or closed. What `lease` held before is released first. A frame
  /// that another process corrupted is skipped; Error(invalid) when there is nothing else.
  [[nodiscard]] RingStatus receive(ReadLease& lease, Deadline deadline = no_deadline);
  void close_consumer() noexcept;  ///< producers get closed; queued frames are dropped

  // Both.
  /// While set, waiting calls of that side return flushing at once. Counts nest never: set is set.
  void set_producer_flushing(bool flushing) noexcept;
  void set_consumer_flushing(bool flushing) noexcept;
  /// Wake a sleeping consumer, or the next one that would wait, so that it returns timeout once (an event waits for it
  /// beside the ring). Frames come first: a nudge is kept while there are some.
  void nudge_consumer() noexcept;
  /// Drop everything queued (a flush).
  void drop_queued() noexcept;
  void set_spin(std::chrono::nanoseconds spin) noexcept;
  [[nodiscard]] std::chrono::nanoseconds spin() const noexcept;
  /// Stamp the way of the frames that are acquired from now on. Off at first: then it costs nothing.
  void set_stamping(bool stamping) noexcept;
  [[nodiscard]] bool stamping() const noexcept;
  [[nodiscard]] std::uint32_t queued() const noexcept;
  [[nodiscard]] std::uint64_t published() const noexcept;  ///< the sequence that the next publish gets
  /// Slots whose write lease lives and whose frame, if any, nobody has queued or reads.
  [[nodiscard]] std::uint32_t held_by_writers() const noexcept;
  [[nodiscard]] RingCounters counters() const noexcept;

 private:
  friend class WriteLease;
  friend class ReadLease;
  struct GPUMAP_NO_EXPORT State;
  explicit Ring(std::unique_ptr<State> state);
  static void let_go_of_handle(Ring* ring) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace gpumap
