// SPDX-License-Identifier: MIT
// gpumap-latency: an upstream of our own, which knows when each frame is due and how many are under way,
// and how it waits for what comes to its end, in its process or in another one.
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gpumap/latency.hpp>
#include <optional>
#include <string>
#include <thread>

#include "gst/ptr.hpp"
#include "gst/tools/latency/options.hpp"

namespace latency {

using gpumap::gst::Ptr;

/// What a gate counts in. All zero is a valid one: so are new pages that two processes share.
struct Arrivals {
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint32_t> asleep{0};   ///< the producer, for more of them: a futex
  std::atomic<std::uint64_t> entered{0};  ///< frames that the producer began
};

/// Arrivals in memory of their own, which another process maps by its descriptor.
class SharedArrivals {
 public:
  /// New ones, or those behind a descriptor of this process, which it closes. Throws std::system_error.
  explicit SharedArrivals(int fd = -1);
  ~SharedArrivals();
  SharedArrivals(const SharedArrivals&) = delete;
  SharedArrivals& operator=(const SharedArrivals&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] Arrivals& operator*() const noexcept { return *words_; }
  [[nodiscard]] Arrivals* operator->() const noexcept { return words_; }

 private:
  int fd_;
  Arrivals* words_;
};

/// What a producer waits for: frames at the end of their way, or the time at which its next one is due. It sleeps, or
/// spins where that is asked for. One thread waits.
class Gate {
 public:
  /// `shared` outlives it; null: it has its own.
  explicit Gate(bool spin, Arrivals* shared = nullptr) : spin_(spin), arrivals_(shared != nullptr ? *shared : own_) {}
  void arrived();  ///< from any thread
  /// Until `count` have arrived, or stop().
  void wait_for(std::uint64_t count);
  /// Until that time on CLOCK_MONOTONIC, or stop().
  void wait_until(std::int64_t time_ns);
  void stop();
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed) != 0; }
  [[nodiscard]] std::uint64_t count() const noexcept { return arrivals_.count.load(std::memory_order_acquire); }

 private:
  void wake();

  const bool spin_;
  Arrivals own_;
  Arrivals& arrivals_;
  std::atomic<std::uint32_t> stopped_{0};  ///< a futex, for wait_until()
};

/// A producer's own memory, larger than the CPU's caches: a frame that comes to be copied is rarely in them. All use
/// the same bytes, one at a time.
class OwnMemory {
 public:
  explicit OwnMemory(std::size_t frame_bytes);
  [[nodiscard]] std::byte* next() noexcept;

 private:
  std::size_t stride_, count_, at_ = 0;
};

/// Which frames, and when.
struct ProducerPlan {
  std::string caps;
  std::size_t frame_bytes = 0;
  std::size_t frames = 0;
  bool in_place = true;    ///< write into the memory that downstream offers; else push memory of its own
  double rate = 0;         ///< frames a second; 0: as fast as they go
  unsigned in_flight = 0;  ///< 0: any number
  bool spin = false;
};

struct ProducerOptions {
  ProducerPlan plan;
  /// Where another process counts what comes to its end; the first frame then goes alone, for it waits until that
  /// process has connected. Null: this process counts.
  Arrivals* arrivals = nullptr;
  /// Called before each frame is made, with its number.
  std::function<void(std::size_t)> before_frame;
  /// Called before the push of each frame, where somebody else than gpumapsink counts: with acquired, first and last
  /// store and due filled in.
  std::function<void(gpumap::FrameRecord)> before_push;
};

/// Pushes frames into `first` from a thread of its own, then EOS.
/// Thread safety: start() and stop() from one thread; gate() from any.
class Producer {
 public:
  /// `pipeline` and `first` have to outlive it. Throws std::runtime_error when they cannot be linked.
  Producer(GstElement* pipeline, GstElement* first, ProducerOptions options);
  ~Producer() { stop(); }
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;

  /// The pipeline plays: what its clock shows at running time 0 is known, and times of frames are made of that. Throws
  /// std::runtime_error where frames are to be due at certain times and it is not.
  void start();
  /// Where frames still go to, the pipeline has to have stopped before.
  void stop();
  [[nodiscard]] Gate& gate() noexcept { return gate_; }  ///< what arrives at the other end

 private:
  void run();
  void negotiate();
  /// Null: downstream is flushing, or has no memory and said why.
  GstBuffer* make_frame(gpumap::FrameRecord& record);
  GstBuffer* offered_buffer();

  GstElement* const pipeline_;
  const ProducerOptions options_;
  Ptr<GstPad> pad_;
  Ptr<GstCaps> caps_;
  Ptr<GstBufferPool> pool_;
  Ptr<GstAllocator> allocator_;
  GstAllocationParams params_{};
  std::optional<OwnMemory> memory_;
  Gate gate_;
  std::int64_t base_ns_ = 0;
  std::thread thread_;
  std::uint64_t seed_ = 0x243F6A8885A308D3;
};

/// An upstream that is not ours, held between two frames: its thread comes back from the element that it feeds when no
/// more than the allowed number of frames are under way. So it begins no frame too early, whose time would have the
/// wait in it.
class HeldUpstream {
 public:
  /// `element`: what it feeds, which has to have stopped before this ends. `in_flight` and `arrivals` as a Producer's.
  HeldUpstream(GstElement* element, unsigned in_flight, bool spin, Arrivals* arrivals = nullptr);
  HeldUpstream(const HeldUpstream&) = delete;
  HeldUpstream& operator=(const HeldUpstream&) = delete;
  [[nodiscard]] Gate& gate() noexcept { return gate_; }
  /// When it could begin the frame that it brings; 0: it is the first one. In its thread.
  [[nodiscard]] std::int64_t began_ns() const noexcept { return began_ns_; }

 private:
  static GstFlowReturn chain(GstPad* pad, GstObject* parent, GstBuffer* buffer);

  const unsigned in_flight_;
  const bool first_alone_;
  Gate gate_;
  std::uint64_t pushed_ = 0;
  std::int64_t began_ns_ = 0;
  GstPadChainFunction element_chain_ = nullptr;
};

}  // namespace latency
