// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpumap/link.hpp"
#include "gpumap/thread_schedule.hpp"
#include "gst/channel/channel.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/upstream_requests.hpp"

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
/// their order, and shows them to other processes. The sink's thread itself shows a frame that nothing goes before;
/// what may have to wait for a client is left to a thread of the outlet's: events, changes of ring, and the frames
/// behind them. A change of ring is a new server at the same address, to which clients connect again. Thread safety:
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
  /// A client as the application knows it: `number` stays, while each ring's server numbers its clients anew.
  struct Told {
    LinkClient client;
    guint number = 0;
  };
  [[nodiscard]] std::string who_stalls();
  void open_door();
  void close_door();
  void run();
  void rest();
  void step();
  void give_up(const std::exception& error);
  void wake();
  void hand_on();
  [[nodiscard]] bool show_ready();
  void watch_time(Deadline moment);
  void on_event(GstEvent* event);
  void flush(GstEvent* event);
  [[nodiscard]] std::shared_ptr<LinkServer> server();
  void set_server(std::shared_ptr<LinkServer> server);
  void end_server(std::shared_ptr<LinkServer> last);
  void forward(GstEvent* event, std::unique_lock<std::mutex>& lock);
  void forward(Channel::Next& frame, std::unique_lock<std::mutex>& lock);
  void show(Channel::Next& frame);
  [[nodiscard]] bool serve_without_frame(std::unique_lock<std::mutex>& lock);  ///< unlocks it meanwhile
  void wait_for_client();                                                      ///< if the settings ask for that
  void wait_for_moving();
  void await_moving(std::unique_lock<std::mutex>& lock);                              ///< unlocks it meanwhile
  void retire(std::unique_lock<std::mutex>& lock);                                    ///< unlocks it meanwhile
  void serve(const std::shared_ptr<Ring>& ring, std::unique_lock<std::mutex>& lock);  ///< unlocks it meanwhile
  void send(const LinkText& text, std::uint32_t key);
  void wait_until_read();
  void give_time_to_read();
  void check_layouts(GstBuffer* carrier, std::uint64_t bytes);
  void forget(std::uint32_t key, LinkServer* server);
  void forget_last_stream();
  [[nodiscard]] std::uint32_t key_of(GstEvent* event);
  void end();
  void tell(const LinkClient& client, const std::string& reason);
  [[nodiscard]] guint number_for(const LinkClient& client) const;
  void tell_of_gone(const Told& one, const char* reason);
  void tell_of_lost(const char* reason, std::vector<LinkClient> here = {});

  GstElement* const sink_;
  const std::shared_ptr<Channel> channel_;
  OutletSettings settings_;            ///< without an address after a failure
  std::shared_ptr<Ring> ring_;         ///< the ring that is served
  std::optional<Deadline> retire_by_;  ///< when the served ring is let go, once the channel has none
  std::vector<LinkClient> moving_;     ///< clients of the last server, which connect again
  std::vector<Told> told_;             ///< connected clients; under mutex_
  bool retiring_ = false;              ///< clients go to the next ring; under mutex_
  std::vector<Told> gone_;             ///< clients of the last server that have not connected again; under mutex_
  std::vector<LinkText> owed_;         ///< for these: messages that were sent meanwhile and are not kept
  /// Slots of earlier rings that clients still have, kept for as long as a writer could still get them.
  std::list<std::pair<std::weak_ptr<Ring>, std::vector<ReadLease>>> left_;
  std::shared_ptr<LinkServer> server_;  ///< written by the thread, under mutex_, and before a failure under step_, too
  std::map<std::uint32_t, LinkText> kept_;
  std::vector<std::string> names_;  ///< of kept events that have several names in one type
  std::optional<VideoLayout> layout_;
  std::optional<VideoLayout> checked_layout_;  ///< a layout that fits into frames of `checked_bytes_` bytes
  std::uint64_t checked_bytes_ = 0;
  std::optional<Channel::FarTime> time_;           ///< the time that clients know
  Channel::SinkTime sink_time_;                    ///< at that moment
  GstClockTime ended_base_ = GST_CLOCK_TIME_NONE;  ///< the base time that the last flush ended
  Deadline next_look_{};                           ///< when watch_time() looks again at an unchanged time
  bool failed_ = false;
  std::uint64_t flushes_ = 0;   ///< under step_, as:
  bool passing_ = false;        ///< the thread has taken a frame or an event, which is not sent yet
  std::exception_ptr failure_;  ///< met in the sink's thread, for this one to tell
  std::atomic<guint>& clients_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> flushing_{false};
  std::atomic<bool> gave_time_{false};  ///< clients had their time and have read nothing since
  std::mutex step_;                     ///< held while a frame or event passes; before mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;  ///< EOS was sent
  bool woken_ = false;  ///< something waits for the thread; under mutex_
  std::unique_ptr<UpstreamRequests> requests_;
  std::shared_ptr<Door> door_;  ///< the channel's calls go through it
  std::thread thread_;
};

/// Installs the signals of gpumapsink's class.
void install_outlet_signals(GObjectClass* klass);

}  // namespace gpumap::gst
