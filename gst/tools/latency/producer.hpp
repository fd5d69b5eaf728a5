// SPDX-License-Identifier: MIT
// gpumap-latency: an upstream of our own, which knows when each frame is due and how many are under way.
#pragma once

#include <gst/gst.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <gpumap/latency.hpp>
#include <optional>
#include <string>
#include <thread>

#include "gst/ptr.hpp"
#include "gst/tools/latency/gate.hpp"
#include "gst/tools/latency/options.hpp"

namespace latency {

using gpumap::gst::Ptr;

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
  /// Called around the push of each frame, where somebody else than gpumapsink counts: with acquired, first and last
  /// store and due filled in.
  std::function<void(gpumap::FrameRecord)> before_push;
  std::function<void()> after_push;
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

  void start();  ///< the pipeline plays: its base time is known
  /// Where frames still go to, the pipeline has to have stopped before.
  void stop();
  [[nodiscard]] Gate& gate() noexcept { return gate_; }  ///< what arrives at the other end

 private:
  void run();
  void negotiate();
  void wait_until(std::int64_t due_ns) const;
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
  std::thread thread_;
  std::uint64_t seed_ = 0x243F6A8885A308D3;
};

}  // namespace latency
