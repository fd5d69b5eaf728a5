// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gpumap/link.hpp"
#include "gpumap/thread_schedule.hpp"
#include "gst/channel/channel.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/new_names.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

/// What a gpumapsrc does when a producer goes without EOS.
enum class OnLost { wait, eos, error };
[[nodiscard]] GType on_lost_type();

struct InletSettings {
  std::string path;
  OnLost on_lost = OnLost::wait;
  LinkLeak leak = LinkLeak::no;
  guint busy_poll_us = 0;
  std::vector<uid_t> allowed_users{};  ///< LinkConsumerOptions::allowed_users
  ThreadSchedule schedule{};           ///< of the link's threads
};

/// Takes a gpumapsink's place before a gpumapsrc that connects to a socket: puts the frames and events of another
/// process into the channel, in their order. The src's thread itself takes frames while it waits for them. A thread of
/// the inlet's connects, and connects again when the producer is gone, and has what is no frame's business: events, and
/// what comes while the src is busy or stands. Thread safety: one thread at a time.
class Inlet {
 public:
  /// `src` must outlive this object and posts its errors.
  Inlet(GstElement* src, std::shared_ptr<Channel> channel, InletSettings settings);
  ~Inlet();
  Inlet(const Inlet&) = delete;
  Inlet& operator=(const Inlet&) = delete;
  /// Whether the caller is the thread of this object, as in a handler of its messages: that one cannot end the object.
  [[nodiscard]] bool runs_here() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }

 private:
  class Far;
  void run();
  [[nodiscard]] std::shared_ptr<LinkConsumer> connect(LinkConsumerOptions options);
  [[nodiscard]] bool follow(const std::shared_ptr<LinkConsumer>& connection);
  void begin_ring(LinkConsumer& consumer);
  [[nodiscard]] LinkNext next(LinkConsumer& consumer);
  [[nodiscard]] LinkNext bring(Deadline deadline);
  [[nodiscard]] LinkNext pass(Deadline deadline);
  void flush(GstEvent* event);
  void end_flush();
  void tell_of_lost_connection() const;
  [[nodiscard]] bool is_over() const;
  void lose(const std::string& why);
  [[nodiscard]] std::uint32_t max_ahead(std::uint32_t slots) const;
  void read(std::span<const std::byte> text);
  void refuse(GstEventType type, const std::string& field) const;
  void tell_of_refused_names();
  void tell_if_passed_over(const LinkConsumer& consumer);
  void push(GstEvent* event);
  void hear_what_overtakes();
  void prepare_carrier(std::uint64_t bytes);
  [[nodiscard]] GstBuffer* make_carrier(const LinkFrame& frame);
  void put_way(ChannelRing& ring, std::uint32_t slot, const LinkFrame& frame);

  GstElement* const src_;
  const std::shared_ptr<Channel> channel_;
  const InletSettings settings_;
  const std::shared_ptr<Far> far_;
  std::optional<VideoLayout> layout_;
  Ptr<GstBuffer> blank_;  ///< the next frame's carrier, with the layout of a frame of `blank_bytes_` bytes
  std::uint64_t blank_bytes_ = 0;
  std::shared_ptr<LatencyLog> log_;  ///< from the first frame that the producer stamped on
  std::uint64_t frames_ = 0;
  std::uint64_t next_sequence_ = 0;  ///< the producer's number of the frame after the last one
  bool ended_ = false;               ///< EOS came
  bool flushing_ = false;
  bool told_wait_ = false;                     ///< the warning that no producer is there was posted
  bool told_full_ = false;                     ///< the warning that the producer has no place was posted
  bool told_passed_over_ = false;              ///< the warning that no slot is left for this client was posted
  std::uint64_t passed_over_ = 0;              ///< LinkConsumer::passed_over() when the src last had not waited long
  Deadline misses_since_{};                    ///< it has waited long since then, and missed frames
  std::shared_ptr<ChannelRing> ring_;          ///< that frames go into; null: the producer has none for now
  LinkConsumer* consumer_ = nullptr;           ///< whose frames follow() takes
  LinkFrame frame_;                            ///< what came last; of the thread whose turn it is
  std::function<void(std::uint32_t)> before_;  ///< puts what goes with the frame into its slot of the ring
  std::string why_;                            ///< why the last connection is closed
  NewNames names_;                             ///< of the producers
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace gpumap::gst
