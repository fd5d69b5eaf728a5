// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "gpumap/block_pool.hpp"
#include "gpumap/device.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/frame_tensors.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/memory.hpp"
#include "gpumap/ring.hpp"
#include "gpumap/slot_copier.hpp"
#include "gst/memory/slot_usage.hpp"
#include "gst/ptr.hpp"
#include "gst/stopping.hpp"

namespace gpumap {

class SlotCopier;
}

namespace gpumap::gst {

/// Nothing else ends a map, or a copy: a kernel without an end would keep the element that waits from ever stopping.
/// After 30 s, or 1 s once `stops()`, throws Error(io), which says that `what` has not ended. With a `giver`, which
/// then stops, until its end_of_waits(). `once`: looks, and does not wait.
void await_written(const Fence& written, const std::function<bool()>& stops, const char* what,
                   const Giver* giver = nullptr, bool once = false);

/// For the warning that tells of a frame with FrameMemory::recalled().
inline constexpr const char* taken_back =
    "a frame that its producer has taken back is left out, and so are others like it: take frames faster, set leaky on "
    "gpumapsrc, or raise stall-limit on gpumapsink";

/// Where a map() on slot memory is counted.
struct MapCounters {
  std::atomic<std::uint64_t> cpu_reads{0};  ///< maps for reading: each cost a download, never a read of the BAR
  std::atomic<bool> upstream_reads{false};  ///< an upstream element asked to read what it writes
};

/// What one GstMemory of type GPUMap stands for: a slot that is being written (or host memory in its place), a part of
/// one, a slot that is being read, or the output of a kernel, plus the host shadow that CPU reads go to where the CPU
/// would read through the BAR. Thread safety: every member from any thread.
class FrameMemory final : public FrameHolder {
 public:
  FrameMemory(WriteLease lease, std::shared_ptr<MapCounters> counters, bool trust_readwrite);
  explicit FrameMemory(std::size_t host_bytes);  ///< in place of a slot, for an upstream that reads what it writes
  /// `bytes` from byte `at` on of a slot that is being written, which somebody else publishes. The slot is not handed
  /// out anew while a part lives.
  FrameMemory(Ptr<GstMemory> slot, std::size_t at, std::size_t bytes, bool trust_readwrite);
  explicit FrameMemory(ReadLease&& lease);
  /// A block of `pool`, where it goes back; null: of none. The CPU reads and writes a block of host memory directly.
  FrameMemory(std::shared_ptr<Device> device, MemoryBlock block, std::size_t bytes, std::shared_ptr<BlockPool> pool);
  ~FrameMemory() override;
  FrameMemory(const FrameMemory&) = delete;
  FrameMemory& operator=(const FrameMemory&) = delete;

  [[nodiscard]] const std::shared_ptr<Device>& device() const noexcept { return *device_; }  ///< null: host memory
  [[nodiscard]] const Mapping& mapping() const noexcept { return *mapping_; }
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// Of the frame on its channel.
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  void set_sequence(std::uint64_t sequence) noexcept { sequence_ = sequence; }

  /// A received slot only: the way of its frame, which ends for the slot when this does. Null: it is not followed.
  void set_trace(std::shared_ptr<FrameTrace> trace) noexcept { trace_ = std::move(trace); }
  /// A received slot only: counts as lent until it is given back.
  void set_loan(Loans::Loan loan) noexcept { loan_ = std::move(loan); }
  /// Its producer writes there anew, for it waited too long: map() fails, and kernels are to leave it out.
  [[nodiscard]] bool recalled() const { return loan_.recalled(); }
  void check_recall() const;  ///< throws Error(io) where it is recalled
  /// A stamp of the slot's frame, where this is its slot.
  void stamp(Stamp stamp, std::int64_t at_ns) const noexcept override;

  /// CPU pointer for GstMapFlags; throws Error.
  [[nodiscard]] std::byte* map(GstMapFlags flags);
  void unmap();
  /// How long it was mapped since this was last asked, by the clock on the wall, or by the CPU clock of the mapping
  /// thread (host memory always). 0 where that tells nothing: see SlowSlots::tells().
  void use_cpu_clock() noexcept { cpu_clock_ = true; }
  [[nodiscard]] bool uses_cpu_clock() const noexcept { return cpu_clock_; }
  [[nodiscard]] std::chrono::nanoseconds take_time_mapped();
  [[nodiscard]] bool is_host() const noexcept { return std::holds_alternative<std::monostate>(holder_); }
  /// Slot memory that the CPU reads as fast as any other: no shadow is needed.
  [[nodiscard]] bool cpu_readable() const noexcept { return mapping_ != nullptr && mapping_->cpu_readable(); }

  /// A part of `slot` that begins at its byte `at`.
  [[nodiscard]] bool is_part_of(GstMemory* slot, std::size_t at) const noexcept;
  /// A part only: upstream has written it, and somebody else reads it.
  void end_writing();

  /// So many bytes of the content were copied here. One thread at a time, with fill_slot().
  void count_copied(std::size_t bytes) noexcept { copied_ += bytes; }
  /// A slot that is being written, or a part of one: bring what the CPU left in the shadow into the slot. Returns the
  /// bytes copied, there or as counted.
  std::size_t fill_slot(std::size_t bytes, SlotCopier& copier);
  /// The write lease when this is an unpublished slot, else null.
  [[nodiscard]] WriteLease* writable_lease() noexcept;

  /// GPU work that fills these bytes; default: none, the CPU wrote them.
  [[nodiscard]] Fence written() const;
  /// Wait for that work, as await_written(), until the giver is to stop. Throws Error(io), and from then on at once
  /// while the work has not ended: GStreamer maps what it could not map once more, to copy it.
  void await_written() const;
  /// What `stream`, a CUstream of the device's context, is given from here on starts after that work. The GPU waits for
  /// CUDA work, the CPU as await_written() for other work. Throws Error(not_supported | io | device_lost).
  void let_cuda_stream_wait(void* stream) const;
  /// Once `giver`, which may be null, is to stop, a map() waits little longer for that work, and for a copy.
  void set_written(const Fence& fence, std::shared_ptr<const Giver> giver = nullptr);
  /// GPU work that reads these bytes.
  void add_read_fence(const Fence& fence) override;

 private:
  [[nodiscard]] std::chrono::nanoseconds now() const noexcept;
  [[nodiscard]] bool is_timed() const noexcept { return SlowSlots::tells(bytes_); }
  void stamp_store(Stamp stamp, std::chrono::nanoseconds now) noexcept;
  std::byte* locate(GstMapFlags flags);
  [[nodiscard]] bool is_direct(bool reads, bool writes) const noexcept;
  void make_shadow();
  [[nodiscard]] std::shared_ptr<const Giver> giver() const;
  [[nodiscard]] bool reads_what_is_written(GstMapFlags flags) const noexcept;
  [[nodiscard]] bool is_part() const noexcept { return std::holds_alternative<Ptr<GstMemory>>(holder_); }

  Loans::Loan loan_;  ///< before holder_, so that the slot is back when it ends
  std::variant<std::monostate, WriteLease, ReadLease, MemoryBlock, Ptr<GstMemory>> holder_;  ///< the last of a part
  // Of the ring, which the lease keeps, or of what is here: to count one more holder of them for each frame would take
  // a line of the CPU's cache back and forth between the producer's core and the consumer's.
  const std::shared_ptr<Device>* device_ = &own_device_;
  Mapping* mapping_ = nullptr;
  std::shared_ptr<Device> own_device_;
  std::size_t offset_ = 0;
  std::size_t bytes_ = 0;
  std::uint64_t sequence_ = 0;
  std::size_t copied_ = 0;
  std::shared_ptr<FrameTrace> trace_;
  std::shared_ptr<MapCounters> counters_;
  bool trust_readwrite_ = false;
  std::shared_ptr<BlockPool> pool_;

  mutable std::mutex mutex_;
  std::unique_ptr<std::byte, decltype(&std::free)> shadow_{nullptr, &std::free};
  bool shadow_dirty_ = false;
  bool mapped_to_write_ = false;
  bool is_written_ = false;  ///< a part, see end_writing()
  int maps_ = 0;
  bool cpu_clock_ = false;
  std::chrono::nanoseconds mapped_since_{0};
  std::chrono::nanoseconds time_mapped_{0};
  bool has_content_ = false;

  mutable std::mutex work_mutex_;  ///< of the two below, and of a block's readers: a map() may wait with mutex_
  Fence written_;
  std::shared_ptr<const Giver> giver_;
  mutable std::atomic<bool> waited_in_vain_{false};
};

/// Asked by GstAllocator::alloc; null: take system memory instead. A part of a slot has to begin at a multiple of
/// `align`.
using AllocateSlot = std::function<std::unique_ptr<FrameMemory>(std::size_t bytes, std::size_t align)>;

/// An allocator (transfer full) whose memories are `FrameMemory`. With `allocate` it serves gst_allocator_alloc(): a
/// slot where one is to be had, else system memory.
[[nodiscard]] GstAllocator* allocator_new(AllocateSlot allocate);

/// Wrap (transfer full). `flags` as GstMemoryFlags: consumers' memory is READONLY, so that a CPU write copies first.
[[nodiscard]] GstMemory* memory_new(GstAllocator* allocator, std::unique_ptr<FrameMemory> bytes, std::size_t size,
                                    GstMemoryFlags flags);
/// The FrameMemory behind a memory; null for memory of another kind. The memory owns it.
[[nodiscard]] FrameMemory* frame_memory(GstMemory* memory);

/// The allocator (borrowed) for memories that no one asks to allocate: consumers' slots and kernel outputs.
[[nodiscard]] GstAllocator* wrapping_allocator();

/// What belongs to `from` and not to its memory (transfer full): flags, times and metas, and of the metas on memory
/// those that describe it, for the bytes stay as they are. Metas that keep upstream's own memory alive are left behind.
[[nodiscard]] GstBuffer* carrier_of(GstBuffer* from);

}  // namespace gpumap::gst
