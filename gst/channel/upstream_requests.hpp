// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "gpumap/link.hpp"
#include "gst/channel/channel.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/new_names.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

/// Which clients may send events upstream of a gpumapsink: a seek or QoS event of one changes what all of them get.
enum class UpstreamEvents { none, first, all };
[[nodiscard]] GType upstream_events_type();

/// Hands on the events and queries that clients send upstream of a gpumapsink. It has one thread, because a seek may
/// take long. A seek without a flush has a thread of its own, because it waits for the producer's streaming threads:
/// these may wait for another client or, while the pipeline stops, for an element that stops later than the gpumapsink.
/// So nobody waits for that thread. Thread safety: every member from any thread.
class UpstreamRequests {
 public:
  using FindServer = std::function<std::shared_ptr<LinkServer>()>;
  /// `sink` must outlive this object. `server` returns the current server, or null; called from any thread.
  UpstreamRequests(GstElement* sink, std::shared_ptr<Channel> channel, UpstreamEvents rule, FindServer server);
  ~UpstreamRequests();
  UpstreamRequests(const UpstreamRequests&) = delete;
  UpstreamRequests& operator=(const UpstreamRequests&) = delete;

  /// Does not wait. False: the queue is full; `question` is unchanged and left out.
  [[nodiscard]] bool take(LinkQuestion& question);
  /// Whether the caller is the thread of this object, which cannot end it.
  [[nodiscard]] bool runs_here() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }

 private:
  /// May outlive this object.
  struct WaitingSeek {
    explicit WaitingSeek(FindServer find) : server(std::move(find)) {}
    std::mutex mutex;
    bool is_there = false;  ///< from its hand-over to the thread to its answer
    FindServer server;      ///< null: nobody answers any more
  };
  void run();
  void handle(const LinkQuestion& question);
  void await_flush(guint32 number, const LinkQuestion& question);
  void tell_of_left_out();
  void answer(const LinkQuestion& question, const LinkText& text);
  [[nodiscard]] static bool send(GstElement* sink, Channel& channel, GstEvent* event);
  [[nodiscard]] bool leave_to_other_thread(const LinkQuestion& question, GstEvent* seek);
  enum class Others { none, may_come };
  [[nodiscard]] bool may_seek(GstEvent*& seek, Others others) const;
  [[nodiscard]] bool has_waiting_seek() const;
  [[nodiscard]] bool may_send(const LinkServer& server, const LinkQuestion& question) const;

  GstElement* const sink_;
  const std::shared_ptr<Channel> channel_;
  const UpstreamEvents rule_;
  const FindServer server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LinkQuestion> questions_;
  bool stopping_ = false;
  bool has_left_out_ = false;        ///< an event, for want of room; under mutex_
  bool told_left_out_ = false;       ///< used by the thread alone, as:
  std::map<pid_t, NewNames> names_;  ///< of each process
  /// Another seek is refused while one waits, so that one client cannot pile them up.
  const std::shared_ptr<WaitingSeek> waiting_seek_;
  std::thread thread_;
};

}  // namespace gpumap::gst
