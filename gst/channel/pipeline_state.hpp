// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <functional>
#include <string>

namespace gpumap::gst {

// What an element learns from the bins that it is in. From any thread.

/// It, or a bin around it, is on its way below PAUSED.
[[nodiscard]] bool is_stopping(GstElement* element);
/// It, or a bin around it, is on its way to another state: before all, a bin whose sinks wait for a frame to preroll.
[[nodiscard]] bool is_changing_state(GstElement* element);
/// The same, but for the way to PLAYING, which needs no frames: its sinks have theirs.
[[nodiscard]] bool is_prerolling(GstElement* element);
/// The pipeline around it is in PLAYING, though it may be on its way to another state, and the element there before it:
/// the base time holds still, and the time at which the pipeline stopped is not written down yet.
[[nodiscard]] bool is_in_playing(GstElement* element);
[[nodiscard]] GstClockTime base_time_of(GstElement* element);
/// The base time of the pipeline around it, which is on its way to PLAYING and sets that time first; invalid where it
/// is not. A live pipeline is so until all sinks have their first frame. After a flush it may still be the time before.
[[nodiscard]] GstClockTime coming_base_time(GstElement* element);
/// The pipeline around it is in PAUSED or PLAYING and is to play: it was added later.
[[nodiscard]] bool joins_playing(GstElement* element);
/// The bin around all bins, which is its pipeline; transfer full.
[[nodiscard]] GstElement* top_level(GstElement* element);
/// For people; empty for null. Takes `element`. It takes the locks of objects, whose holders may wait for a channel's.
[[nodiscard]] std::string path_of(GstElement* element);
[[nodiscard]] bool same_pipeline(GstElement* one, GstElement* other);

/// Whether the event that the calling thread handles for `one` came from a bin around both elements, which sends it to
/// all its sources or sinks. gst_element_send_event() holds that bin's state lock and a reference to the event
/// meanwhile. A language binding keeps a reference, too, and any thread may have the lock: only both together tell.
/// Does not wait for a lock.
[[nodiscard]] bool is_sent_to_both(GstEvent* event, GstElement* one, GstElement* other);

/// Mends what a flush may have broken in the pipeline around `element`; to be called behind the flush. A flush takes
/// sinks out of PLAYING, and their bin takes them back there once they have a frame. Where the bin was on its own way
/// to PLAYING at that moment, it may not notice the loss, or wait for a sink that has its frame already, or the sink
/// may take no frame for one to commit its state with: the pipeline would stay in PAUSED for ever.
/// gst_element_send_event() keeps the two apart by the state lock, which it then has while a seek waits for streaming
/// threads. gpumap holds no lock over a wait, so it looks afterwards. Does not wait: until all sinks play, the thread
/// of the system clock looks again, for a minute at most.
void mend_states_after_flush(GstElement* element);
/// The same, all of it in that thread: messages go to the application, which may wait for a lock that the caller has.
void mend_states_soon(GstElement* element);

}  // namespace gpumap::gst
