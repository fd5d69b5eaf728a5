// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>
#include <string>

#include "gst/ptr.hpp"

namespace gpumap::gst {

class Channel;

// The gpumapsinks and gpumapsrcs of this process, in any state: elements are linked, and queried for caps, before a
// channel is opened. Thread safety: from any thread.

enum class End { sink, src };

void know_end(End end, GstElement* element);  ///< once, when the element is made
void forget_end(GstElement* element);         ///< when the element is finalized

/// The channel of this name for an element that is one end of it. The other end is looked for in the innermost bin
/// around the element that has one of this name, so that many pipelines may use one description. When no bin has one,
/// it is looked for in the whole process.
[[nodiscard]] std::shared_ptr<Channel> channel_of(End end, GstElement* element, const std::string& name);

/// The sink pad (transfer full) of the gpumapsink that `src`, a gpumapsrc with these properties, meets; null: there is
/// none, or more than one. With a `socket_path` the channel's name does not count, on either side.
[[nodiscard]] GstPad* pad_of_sole_sink(GstElement* src, const std::string& channel, const std::string& socket_path);

/// For a message to an end that has met no other: which ends of this kind the process has, such as `this process has
/// gpumapsink channel="a"`.
[[nodiscard]] std::string ends_here(End kind);

/// An application ends the pipeline of `src` by `event`, which the calling thread handles: gpumapsinks of that pipeline
/// that have met no gpumapsrc drop their frames from here on. They would wait for one, and the thread that ends their
/// upstream for them.
void end_unmet_sinks(GstEvent* event, GstElement* src);

/// Whether the pipeline of `sink`, a gpumapsink, has other gpumapsinks.
[[nodiscard]] bool is_among_others(GstElement* sink);

enum class PeerAnswer {
  yes,
  no,
  loop,  ///< this thread is asking that peer already: the elements behind a gpumapsrc feed the gpumapsink of its
         ///< channel
};

/// As gst_pad_peer_query(), for queries that continue at the other side of a channel. A query that would come back to
/// the pad that asks, endlessly, is not sent. From any thread.
[[nodiscard]] PeerAnswer peer_query(GstPad* pad, GstQuery* query);

/// While it lives, this thread sends `event` from `place`, a pad or a channel, to the other side of a channel. The same
/// event, by its type and number, may come round to that place, endlessly: then it is not sent on.
class EventOnItsWay {
 public:
  EventOnItsWay(const void* place, GstEvent* event);
  ~EventOnItsWay();
  EventOnItsWay(const EventOnItsWay&) = delete;
  EventOnItsWay& operator=(const EventOnItsWay&) = delete;
  [[nodiscard]] bool came_round() const noexcept { return came_round_; }

 private:
  const EventOnItsWay* const before_;
  const void* const place_;
  const GstEventType type_;
  const guint32 number_;
  bool came_round_ = false;
};

/// While it lives, no other thread seeks with a flush upstream of a gpumapsink in the same pipeline. The state lock of
/// a pipeline keeps its application's seeks apart, but other pipelines and processes seek there, too: their flushes
/// would mix, and a source that pushes between one's end and the other's beginning fails, or waits for ever.
class SeekTurn {
 public:
  /// Waits for the turn, 5 s at most: then it is_refused(), for the seek that has it may wait for a lock that this
  /// thread has, of the pipeline's state. A thread that has the turn may seek again. No lock is held while it has it.
  /// `seek`: one without a flush waits for streaming threads, and needs no turn.
  SeekTurn(GstElement* sink, GstEvent* seek);
  ~SeekTurn();
  SeekTurn(const SeekTurn&) = delete;
  SeekTurn& operator=(const SeekTurn&) = delete;
  [[nodiscard]] bool is_refused() const noexcept { return is_refused_; }

 private:
  Ptr<GstElement> pipeline_;  ///< null: this is no turn
  bool is_refused_ = false;
};

}  // namespace gpumap::gst
