// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "channel.hpp"
#include "src_output.hpp"

namespace gpumap::gst {

struct SrcSettings {
  std::string channel = "default";
  guint timeout_ms = 0;  ///< 0: wait for ever
  guint busy_poll_us = 0;
  bool is_live = false;
};

/// What a gpumapsrc does: takes frames and events out of the channel and pushes them on, in the thread of the pad's
/// task. Thread safety: as each member says.
class SrcStream {
 public:
  SrcStream(GstElement* element, GstPad* pad) : element_(element), pad_(pad), output_(pad) {}
  ~SrcStream();
  SrcStream(const SrcStream&) = delete;
  SrcStream& operator=(const SrcStream&) = delete;

  /// Meet the channel. Throws Error(invalid) when it has a src already. State changes only, as stop().
  void start(const SrcSettings& settings);
  void stop();

  /// From any thread. Flushing ends every wait; unset, the task may be started.
  void set_flushing(bool flushing);
  void set_playing(bool playing);
  [[nodiscard]] bool start_task();
  /// Takes `event`. EOS goes out behind the frame of the moment, and upstream of the sink is told. False: not started.
  bool send_eos(GstEvent* event);
  /// The pad at which frames enter the channel, transfer full, or null. From any thread.
  [[nodiscard]] GstPad* far_pad();
  /// Takes a QoS event from downstream, gives it (transfer full) as whoever feeds the sink understands it, or null.
  [[nodiscard]] GstEvent* qos_for_sink(GstEvent* qos) const;
  /// As it was set when this started.
  [[nodiscard]] bool is_live() const noexcept { return live_; }

  /// Transfer full. From any thread.
  [[nodiscard]] GstStructure* stats();

 private:
  // The streaming thread.
  void step();
  [[nodiscard]] bool wait_while_paused();
  [[nodiscard]] bool end_asked();
  [[nodiscard]] bool wants_frames();
  [[nodiscard]] bool push(GstEvent* event);
  void push(Channel::Next& frame);
  void push_stream_start();
  void push_segment();
  void follow_base_times();
  [[nodiscard]] GstClockTimeDiff running_time_shift() const;
  void refuse();
  [[noreturn]] void time_out() const;
  void end(GstFlowReturn flow);

  // The sink's thread.
  void on_flush(GstEvent* event);

  [[nodiscard]] std::shared_ptr<Channel> channel();

  GstElement* element_;
  GstPad* pad_;
  SrcSettings settings_;
  SrcOutput output_;
  bool started_ = false;                    ///< stream-start went out
  GstEvent* segment_ = nullptr;             ///< as it came from the sink
  std::atomic<GstClockTimeDiff> shift_{0};  ///< running time here minus running time there
  guint plays_ = 0;                         ///< of the channel, when shift_ was last computed
  std::atomic<guint64> frames_{0}, bytes_{0};
  std::atomic<bool> live_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Channel> channel_;  ///< changes only while the task is stopped
  bool playing_ = false;
  bool played_ = false;      ///< since the start
  GstEvent* eos_ = nullptr;  ///< that the application sent
  bool flushing_ = true;
};

}  // namespace gpumap::gst
