// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "gpumap/link.hpp"
#include "gst/channel/channel.hpp"
#include "gst/link/event_text.hpp"
#include "gst/link/new_names.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

/// Which clients may send events upstream of a gpumapsink: a seek or QoS event of one changes what all of them get.
enum class UpstreamEvents { none, first, all };
[[nodiscard]] GType upstream_events_type();

/// Hands on the events and queries that clients send upstream of a gpumapsink. It has one thread, because a seek may
/// take long, and a second one for seeks without a flush, which wait for the producer's streaming threads: these may
/// wait for another client. Thread safety: every member from any thread.
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

 private:
  void run();
  void run_waiting_seeks();
  void handle(const LinkQuestion& question);
  void answer(const LinkQuestion& question, const LinkText& text);
  [[nodiscard]] bool send(GstEvent* event);
  [[nodiscard]] bool leave_to_other_thread(const LinkQuestion& question, GstEvent* seek);
  [[nodiscard]] bool may_seek(GstEvent* seek) const;
  [[nodiscard]] bool may_send(const LinkServer& server, const LinkQuestion& question) const;

  GstElement* const sink_;
  const std::shared_ptr<Channel> channel_;
  const UpstreamEvents rule_;
  const FindServer server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LinkQuestion> questions_;
  bool stopping_ = false;
  std::map<pid_t, NewNames> names_;  ///< of each process; used by the thread alone
  /// The seek that waits. Another one is refused meanwhile, so that one client cannot pile them up. Under mutex_.
  std::optional<std::pair<LinkQuestion, Ptr<GstEvent>>> waiting_seek_;
  bool seek_waits_ = false;     ///< from its hand-over to the other thread to its answer; under mutex_
  std::thread waiting_thread_;  ///< from the first such seek on
  std::thread thread_;
};

}  // namespace gpumap::gst
