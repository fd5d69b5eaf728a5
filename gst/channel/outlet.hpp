// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpumap/link.hpp"
#include "gpumap/thread_schedule.hpp"
#include "gst/channel/channel.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/upstream_requests.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

struct OutletSettings {
  std::shared_ptr<LinkAddress> address;  ///< where the outlet serves; taken before there is a frame
  bool wait_for_connection = false;
  UpstreamEvents upstream_events = UpstreamEvents::first;
  guint busy_poll_us = 0;                               ///< the ring's spin, which the sink waits with for a slot
  const std::atomic<std::uint64_t>* dropped = nullptr;  ///< LinkServerOptions::dropped
  std::chrono::nanoseconds stall_limit{0};              ///< LinkServerOptions::stall_limit
  std::vector<uid_t> allowed_users{};                   ///< LinkServerOptions::allowed_users
  ThreadSchedule schedule{};                            ///< of the link's threads
};

/// Takes a gpumapsrc's place behind a gpumapsink that serves a socket: takes frames and events out of the channel, in
/// their order, and shows them to other processes. The sink's thread itself shows a frame that nothing goes before.
/// What may have to wait for a client is left to the turns of the server's thread: events, changes of ring, and the
/// frames behind them. Nothing waits there: what cannot pass now is looked at again in the next turn. Thread safety:
/// one thread at a time.
class Outlet {
 public:
  /// `sink` must outlive this object. It posts the errors and emits client-connected and client-disconnected. `clients`
  /// is kept at the number of clients.
  Outlet(GstElement* sink, std::shared_ptr<Channel> channel, OutletSettings settings, std::atomic<guint>& clients);
  /// `stop(false)`.
  ~Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  /// `drained`: after EOS; queued frames and events are still sent, for at most 5 s.
  void stop(bool drained);
  /// Whether the caller is a thread of this object, as in a handler of its messages and signals, or one that a client's
  /// seek calls: these cannot end the object.
  [[nodiscard]] bool runs_here() const noexcept;
  /// Whether EOS has not been sent because frames before it wait for a client. From any thread.
  [[nodiscard]] bool holds_back_end();

 private:
  struct Door;
  enum class Needs { client, first_client, followers, nothing };
  [[nodiscard]] LinkServerOptions server_options();
  [[nodiscard]] std::string who_stalls();
  void open_door();
  void close_door();
  void take_turn();
  void step();
  void give_up(const std::exception& error);
  void wake();
  void hand_on();
  [[nodiscard]] bool show_ready();
  void watch_time(Deadline moment);
  void on_event(GstEvent* event);
  void flush(GstEvent* event);
  [[nodiscard]] std::shared_ptr<LinkServer> server();
  void give_time_to_read();
  void end();
  [[nodiscard]] bool has_ended() const;  ///< EOS was sent, and what came last; under mutex_
  void tell(const LinkClient& client, const std::string& reason);
  void tell_of_gone(const LinkClient& client, const char* reason);
  void tell_of_all(const char* reason);
  void tell_of_lost_end();
  void tell_if_starved();

  // Under step_.
  [[nodiscard]] bool has_waiting() const noexcept;
  void forget_waiting();
  [[nodiscard]] bool pass_waiting();
  [[nodiscard]] bool may_pass(Needs needs);
  [[nodiscard]] static bool needs_client(GstEvent* event);
  void serve(std::shared_ptr<Ring> ring);
  void pass(GstEvent* event);
  void show(Channel::Next& frame);
  void send(const LinkText& text, std::uint32_t key, LinkServer::Unread unread = LinkServer::Unread::send);
  void check_layouts(GstBuffer* carrier, std::uint64_t bytes);
  void forget(std::uint32_t key);
  void forget_last_stream();
  [[nodiscard]] std::uint32_t key_of(GstEvent* event);

  GstElement* const sink_;
  const std::shared_ptr<Channel> channel_;
  OutletSettings settings_;               ///< without the address, which the server has
  std::shared_ptr<Ring> ring_;            ///< the ring that is served
  std::optional<Deadline> retire_by_;     ///< when the served ring is let go, once the channel has none
  std::vector<LinkClient> told_;          ///< connected clients, as the application knows; under mutex_
  std::shared_ptr<LinkServer> server_;    ///< changes under step_ and mutex_
  std::optional<Channel::Next> frame_;    ///< taken from the channel, and not shown yet
  Ptr<GstEvent> event_;                   ///< likewise
  std::optional<Deadline> follow_by_;     ///< until when another ring waits for clients that may miss frames
  std::optional<Deadline> unread_since_;  ///< since when a client that may miss nothing reads nothing
  std::set<std::uint32_t> kept_;          ///< what the server keeps
  std::vector<std::string> names_;        ///< of kept events that have several names in one type
  std::optional<VideoLayout> layout_;
  std::optional<VideoLayout> checked_layout_;  ///< a layout that fits into frames of `checked_bytes_` bytes
  std::uint64_t checked_bytes_ = 0;
  bool told_of_metas_ = false;                     ///< in this stream, that some do not cross
  std::optional<Channel::FarTime> time_;           ///< the time that clients know
  Channel::SinkTime sink_time_;                    ///< at that moment
  GstClockTime ended_base_ = GST_CLOCK_TIME_NONE;  ///< the base time that a flush ended
  Deadline next_look_{};                           ///< when watch_time() looks again at an unchanged time
  bool failed_ = false;
  bool told_starved_ = false;   ///< the server's thread alone
  std::exception_ptr failure_;  ///< met in the sink's thread, for the server's to tell
  std::atomic<guint>& clients_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> flushing_{false};
  std::atomic<bool> gave_time_{false};  ///< clients had their time and have read nothing since
  std::mutex step_;                     ///< held while a frame or event passes; before mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;  ///< EOS was sent, and no stream behind it has begun to be
  std::unique_ptr<UpstreamRequests> requests_;
  std::shared_ptr<Door> door_;  ///< the channel's calls go through it
};

/// Installs the signals of gpumapsink's class.
void install_outlet_signals(GObjectClass* klass);

}  // namespace gpumap::gst
