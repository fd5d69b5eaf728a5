// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <functional>
#include <string>

#include "gpumap/fence.hpp"
#include "gst/ptr.hpp"
#include "gst/stopping.hpp"

namespace gpumap::gst {

// The states of an element and of the bins around it. From any thread.

/// Whether the element, or a bin around it, is on its way to another state, such as a bin whose sinks wait for a frame
/// to preroll.
[[nodiscard]] bool is_changing_state(GstElement* element);
/// The same, without the way to PLAYING, which needs no frames: the sinks have theirs.
[[nodiscard]] bool is_prerolling(GstElement* element);
/// Whether the pipeline around the element is in PLAYING. It may be on its way to another state, and the element may be
/// there already: the base time still holds, and the time at which the pipeline stopped is not set yet.
[[nodiscard]] bool is_in_playing(GstElement* element);
[[nodiscard]] GstClockTime base_time_of(GstElement* element);
/// The base time of the pipeline around the element while that is on its way to PLAYING, because it sets that time
/// first; otherwise invalid. A live pipeline is on its way until all sinks have their first frame. After a flush it may
/// still be the earlier time.
[[nodiscard]] GstClockTime coming_base_time(GstElement* element);
/// Whether the pipeline around the element is in PAUSED or PLAYING and is to play, so that the element was added later.
[[nodiscard]] bool joins_playing(GstElement* element);
/// Whether another thread has the state lock of a bin around the element, which changes no state: it is within
/// gst_element_send_event(), as a rule. Does not wait.
[[nodiscard]] bool is_sending_event(GstElement* element);
/// Waits until each sink that plays in the pipeline around the element has been outside of its render() once, or has
/// ended one. False: by the deadline one has not, such as a full appsink, which renders until the application lets it
/// go on.
[[nodiscard]] bool await_renders(GstElement* element, Deadline deadline);
/// The bin around all bins, which is its pipeline; transfer full.
[[nodiscard]] GstElement* top_level(GstElement* element);
/// The element's path for messages; empty for null. Takes `element`. It takes locks of objects, whose holders may wait
/// for a channel's lock.
[[nodiscard]] std::string path_of(GstElement* element);
[[nodiscard]] bool same_pipeline(GstElement* one, GstElement* other);
/// The pad of an element that stands behind `peer`, in either direction: a bin's ghost pad stands for a pad inside it,
/// and the other side of one, where a way comes out of the bin, for the pad that the ghost pad is linked to. Null: it
/// is linked to none.
[[nodiscard]] Ptr<GstPad> past_bins(Ptr<GstPad> peer);

/// Whether the event that the calling thread handles for `one` came from a bin around both elements, which sends it to
/// all its sources or sinks. gst_element_send_event() holds that bin's state lock and a reference to the event
/// meanwhile. Both must be found, because a language binding keeps a reference, too, and any thread may have the lock.
/// Does not wait for a lock.
[[nodiscard]] bool is_sent_to_both(GstEvent* event, GstElement* one, GstElement* other);
/// `seek` is one of the whole pipeline around the element, if the calling thread is in gst_element_send_event() of
/// that. Does not wait for a lock.
void note_seek(GstElement* element, GstEvent* seek);
/// The sequence number of the last one; 0: there was none.
[[nodiscard]] guint noted_seek_of(GstElement* element);
/// Whether `flush` is of the last seek of the whole pipeline around the element. A demuxer flushes all its branches at
/// the first seek that comes, and the pipeline sends the same seek through each of its sinks.
[[nodiscard]] bool is_of_noted_seek(GstElement* element, GstEvent* flush);

/// Repairs the states of sinks in the pipeline around `element` after a flush. A flush takes sinks out of PLAYING, and
/// their bin takes them back there once they have a frame. If the bin is on its own way to PLAYING at that moment, the
/// pipeline may stay in PAUSED forever: the bin does not notice the loss, or waits for a sink that has its frame
/// already, or the sink does not use a frame to commit its state. gst_element_send_event() keeps the two apart by the
/// state lock, which it holds while a seek waits for streaming threads. gpumap holds no lock over a wait, so it repairs
/// afterwards. Does not wait: until all sinks play, the thread of the system clock looks again, for a minute at most.
void mend_states_after_flush(GstElement* element);
/// The same, entirely in that thread: messages go to the application, which may wait for a lock that the caller has.
void mend_states_soon(GstElement* element);
/// For the way of `element` to PAUSED. A sink that the start of a flush met while it left PAUSED, as on its bin's way
/// to READY, waits there for a frame, and takes every later change of state for one that is under way already. This
/// lets it go on.
void mend_states_at_start(GstElement* element);

}  // namespace gpumap::gst
