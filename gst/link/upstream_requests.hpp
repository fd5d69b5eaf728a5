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

#include "gpumap/link.hpp"
#include "gst/channel/channel.hpp"
#include "gst/link/new_names.hpp"

namespace gpumap::gst {

/// Which clients may send events upstream of a gpumapsink: a seek, or QoS, of one changes what all of them get.
enum class UpstreamEvents { none, first, all };
[[nodiscard]] GType upstream_events_type();

/// Hands on what clients send and ask upstream of a gpumapsink. It has one thread, for a seek may take its time.
/// Thread safety: every member from any thread.
class UpstreamDesk {
 public:
  using FindServer = std::function<std::shared_ptr<LinkServer>()>;
  /// Of `sink`, which outlives it. `server`: that of the moment, or null; from any thread.
  UpstreamDesk(GstElement* sink, std::shared_ptr<Channel> channel, UpstreamEvents rule, FindServer server);
  ~UpstreamDesk();
  UpstreamDesk(const UpstreamDesk&) = delete;
  UpstreamDesk& operator=(const UpstreamDesk&) = delete;

  /// Does not wait. False, with `question` as it was: there is very much else, and it is left out.
  [[nodiscard]] bool take(LinkQuestion& question);

 private:
  void run();
  void handle(const LinkQuestion& question);
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
  std::map<pid_t, NewNames> names_;  ///< of each process; the thread's
  std::thread thread_;
};

}  // namespace gpumap::gst
