// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpumap/ring.hpp"
#include "lane.hpp"

namespace gpumap::gst {

/// Where a gpumapsink and a gpumapsrc of one process meet. Frames go through the ring; events and changes of ring wait
/// beside it, each with the sequence of the frame that it precedes, so that order is kept without a lock on the frames'
/// path. Thread safety: every member from any thread; next() from one thread at a time.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  /// What the src side does when the sink side flushes. Called in the flushing thread.
  using FlushHandler = std::function<void(GstEvent*)>;

  [[nodiscard]] static std::shared_ptr<Channel> open(const std::string& name);
  explicit Channel(std::string name) : name_(std::move(name)) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Sink side. False: the side is taken; `holder` gets the name of the element that has it. What the sink before left
  // and no src is there to take is dropped.
  [[nodiscard]] bool attach_sink(GstElement* sink, std::string& holder);
  /// `drained`: after EOS, what is queued still goes to the src; else it is dropped. Of a stream that no src has seen
  /// yet it waits here, even once both elements are gone, until a src or another sink comes.
  void detach_sink(bool drained);
  void push_lane(const std::shared_ptr<Lane>& lane);
  void retire_lane();                ///< let its memory go once its last frame has been taken
  void push_event(GstEvent* event);  ///< takes it
  void flush(GstEvent* event);       ///< FLUSH_START or FLUSH_STOP; takes it
  /// What downstream of the src last returned: the sink hands EOS and errors on to its own upstream.
  [[nodiscard]] GstFlowReturn downstream_flow() const noexcept { return flow_.load(std::memory_order_relaxed); }

  /// Each side says when it starts and stops playing: only in between is its base time worth reading.
  void set_sink_playing(bool playing) noexcept;
  void set_src_playing(bool playing) noexcept;
  [[nodiscard]] bool sink_playing() const noexcept { return sink_playing_.load(std::memory_order_acquire); }
  [[nodiscard]] bool src_playing() const noexcept { return src_playing_.load(std::memory_order_acquire); }
  /// Changes with every call of these two.
  [[nodiscard]] guint plays() const noexcept { return plays_.load(std::memory_order_acquire); }

  // Src side.
  [[nodiscard]] bool attach_src(GstElement* src, FlushHandler on_flush, std::string& holder);
  void detach_src();
  void set_downstream_flow(GstFlowReturn flow) noexcept;
  void set_src_flushing(bool flushing);
  void interrupt_src();  ///< next() returns `interrupted` once: the src has something else to look at
  void set_src_spin(std::chrono::nanoseconds spin);
  /// Where the ways of the channel's frames go; null where they are not followed.
  void set_log(std::shared_ptr<LatencyLog> log);
  [[nodiscard]] std::shared_ptr<LatencyLog> log() const;
  /// The other side's element, transfer full, or null.
  [[nodiscard]] GstElement* sink() const;
  [[nodiscard]] GstElement* src() const;

  struct UnrefBuffer {
    void operator()(GstBuffer* buffer) const { gst_buffer_unref(buffer); }
  };
  using BufferPtr = std::unique_ptr<GstBuffer, UnrefBuffer>;

  struct Next {
    enum class Kind { frame, event, timeout, interrupted, flushing } kind = Kind::timeout;
    ReadLease lease;                    ///< frame
    std::uint64_t sequence = 0;         ///< frame: its number on the channel
    BufferPtr carrier;                  ///< frame
    std::shared_ptr<FrameTrace> trace;  ///< frame; null where its way is not followed
    GstEvent* event = nullptr;          ///< event; transfer full
  };
  [[nodiscard]] Next next(Deadline deadline);

 private:
  struct Item {
    std::uint64_t before = 0;    ///< goes out ahead of this sequence of the lane in front of it
    GstEvent* event = nullptr;   ///< or:
    std::shared_ptr<Lane> lane;  ///< or: frames come from this one from now on; neither: from none
  };

  void add(Item item);
  void drop_all(bool keep_sticky);
  void remember(GstEvent* event);
  void clear(std::deque<Item>& items);

  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  GstElement* sink_ = nullptr;
  GstElement* src_ = nullptr;
  FlushHandler on_flush_;
  std::deque<Item> items_;
  std::atomic<std::size_t> pending_{0};
  std::shared_ptr<Lane> newest_;      ///< the sink side's lane
  std::shared_ptr<Lane> current_;     ///< the src side's lane
  std::vector<GstEvent*> delivered_;  ///< sticky events that a src took: a src that comes later needs them too
  bool ended_ = false;                ///< the last event that a src took was EOS
  ReadLease held_;                    ///< received from current_, but events go first
  bool src_flushing_ = false;
  bool interrupted_ = false;
  std::shared_ptr<Channel> kept_;  ///< itself, while what is queued waits and no element holds it
  std::chrono::nanoseconds src_spin_{0};
  std::shared_ptr<LatencyLog> log_;
  std::atomic<GstFlowReturn> flow_{GST_FLOW_OK};
  std::atomic<bool> sink_playing_{false}, src_playing_{false};
  std::atomic<guint> plays_{0};
};

}  // namespace gpumap::gst
