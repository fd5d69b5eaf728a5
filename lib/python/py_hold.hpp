// SPDX-License-Identifier: MIT
//
// What keeps the bytes of an array where they are: memory, a slot, a buffer of GStreamer's. Arrays, host views and
// DLPack tensors count as users; the last one to go gives the bytes back, on whatever thread, without the GIL.
#pragma once
#include <gpumap/gpumap.h>

#include <atomic>
#include <utility>
#include <vector>

namespace gpumap::python {

class Hold {
 public:
  Hold() = default;
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void keep() { users_.fetch_add(1, std::memory_order_relaxed); }
  void drop() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      give_back();
      delete this;
    }
  }
  /// Whether anyone but the caller uses the bytes.
  [[nodiscard]] bool shared() const { return users_.load(std::memory_order_acquire) > 1; }

  /// Work of `stream` may be in flight on the bytes until they are given back. With the GIL held.
  void used_by(void* stream);

  /// Makes a CUDA stream wait, or the calling thread, until the bytes are there. gpumap_last_error() has the cause.
  virtual gpumap_status wait_on_stream(void* /*stream*/) { return GPUMAP_OK; }
  virtual gpumap_status wait(int64_t /*timeout_ns*/) { return GPUMAP_OK; }
  /// Makes what the CPU wrote through a host view visible to the GPU.
  virtual gpumap_status flush() { return GPUMAP_OK; }
  /// `offset` counts from the first byte.
  virtual gpumap_status write(uint64_t offset, const void* from, uint64_t bytes) = 0;
  virtual gpumap_status read(uint64_t offset, void* to, uint64_t bytes) = 0;

 protected:
  virtual ~Hold() = default;
  /// The last user has gone. Does not throw.
  virtual void give_back() = 0;
  [[nodiscard]] const std::vector<void*>& streams() const { return streams_; }

 private:
  std::atomic<int> users_{1};
  std::vector<void*> streams_;
};

/// One use of a Hold.
class HoldRef {
 public:
  HoldRef() = default;
  /// Takes over the first use of a new one.
  explicit HoldRef(Hold* made) : hold_(made) {}
  HoldRef(const HoldRef& other) : hold_(other.hold_) {
    if (hold_ != nullptr) {
      hold_->keep();
    }
  }
  HoldRef(HoldRef&& other) noexcept : hold_(std::exchange(other.hold_, nullptr)) {}
  HoldRef& operator=(HoldRef other) noexcept {
    std::swap(hold_, other.hold_);
    return *this;
  }
  ~HoldRef() {
    if (hold_ != nullptr) {
      hold_->drop();
    }
  }
  Hold* operator->() const { return hold_; }
  [[nodiscard]] Hold* get() const { return hold_; }
  explicit operator bool() const { return hold_ != nullptr; }

 private:
  Hold* hold_ = nullptr;
};

/// Memory of gpumap_memory_alloc(), of a pool, or that a kernel wrote.
class MemoryHold : public Hold {
 public:
  MemoryHold(gpumap_memory memory, void* cuda_context) : memory_(memory), context_(cuda_context) {}
  [[nodiscard]] gpumap_memory memory() const { return memory_; }
  gpumap_status wait_on_stream(void* stream) override;
  gpumap_status wait(int64_t timeout_ns) override { return gpumap_memory_wait(memory_, nullptr, timeout_ns); }
  gpumap_status flush() override;
  gpumap_status write(uint64_t offset, const void* from, uint64_t bytes) override {
    return gpumap_memory_write(memory_, offset, from, bytes);
  }
  gpumap_status read(uint64_t offset, void* to, uint64_t bytes) override {
    return gpumap_memory_read(memory_, offset, to, bytes);
  }

 protected:
  void give_back() override;

 private:
  gpumap_memory memory_;
  void* context_;
};

/// A ring: closed when neither its object nor a host view of a slot that was written needs it.
class RingHold : public Hold {
 public:
  explicit RingHold(gpumap_ring ring) : ring_(ring) {}
  [[nodiscard]] gpumap_ring ring() const { return ring_; }
  gpumap_status write(uint64_t, const void*, uint64_t) override { return GPUMAP_ERROR_INVALID; }
  gpumap_status read(uint64_t, void*, uint64_t) override { return GPUMAP_ERROR_INVALID; }

 protected:
  void give_back() override { gpumap_ring_close(ring_); }

 private:
  gpumap_ring ring_;
};

/// A slot. One that was taken is released when the last user has gone. One that is written is published or given up by
/// its `with`, and whatever is left afterwards uses the ring's memory.
class SlotHold : public Hold {
 public:
  SlotHold(gpumap_slot slot, HoldRef ring_if_written, void* cuda_context)
      : slot_(slot), ring_(std::move(ring_if_written)), context_(cuda_context) {}
  [[nodiscard]] gpumap_slot slot() const { return slot_; }
  /// The slot was published, or released with an error that the caller has raised.
  void forget_slot() { slot_ = nullptr; }
  /// `fence` is that of one stream which waits for all others; `fenced` is false where there is none.
  gpumap_status join_streams(gpumap_fence& fence, bool& fenced);
  /// Releases the slot behind the work of the streams that used it. An error leaves it out.
  gpumap_status release();
  gpumap_status wait_on_stream(void* stream) override;
  gpumap_status wait(int64_t timeout_ns) override { return gpumap_slot_wait(slot_, nullptr, timeout_ns); }
  gpumap_status write(uint64_t offset, const void* from, uint64_t bytes) override {
    return gpumap_slot_write(slot_, offset, from, bytes);
  }
  gpumap_status read(uint64_t offset, void* to, uint64_t bytes) override {
    return gpumap_slot_read(slot_, offset, to, bytes);
  }

 protected:
  void give_back() override;

 private:
  gpumap_slot slot_;
  HoldRef ring_;
  void* context_;
};

}  // namespace gpumap::python
