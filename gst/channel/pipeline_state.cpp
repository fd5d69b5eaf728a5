// SPDX-License-Identifier: MIT
#include "gst/channel/pipeline_state.hpp"

#include <gst/base/gstbasesink.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

bool is_changing_state(GstElement* element) {
  return any_around(element, [](GstElement* at) { return GST_STATE_PENDING(at) != GST_STATE_VOID_PENDING; });
}

bool is_prerolling(GstElement* element) {
  return any_around(element, [](GstElement* at) {
    return GST_STATE_PENDING(at) != GST_STATE_VOID_PENDING && GST_STATE_NEXT(at) != GST_STATE_PLAYING;
  });
}

bool is_in_playing(GstElement* element) {
  GstElement* pipeline = top_level(element);
  GST_OBJECT_LOCK(pipeline);
  const bool plays = GST_STATE(pipeline) == GST_STATE_PLAYING;
  GST_OBJECT_UNLOCK(pipeline);
  gst_object_unref(pipeline);
  return plays;
}

GstClockTime base_time_of(GstElement* element) {
  GST_OBJECT_LOCK(element);
  const GstClockTime base = element->base_time;
  GST_OBJECT_UNLOCK(element);
  return base;
}

GstClockTime coming_base_time(GstElement* element) {
  const Ptr<GstElement> pipeline(top_level(element));
  GST_OBJECT_LOCK(pipeline.get());
  const GstClockTime base = GST_STATE_NEXT(pipeline.get()) == GST_STATE_PLAYING ? pipeline->base_time : 0;
  GST_OBJECT_UNLOCK(pipeline.get());
  return base != 0 ? base : GST_CLOCK_TIME_NONE;
}

bool joins_playing(GstElement* element) {
  const Ptr<GstElement> pipeline(top_level(element));
  GST_OBJECT_LOCK(pipeline.get());
  const bool plays = pipeline.get() != element && GST_STATE(pipeline.get()) >= GST_STATE_PAUSED &&
                     GST_STATE_TARGET(pipeline.get()) == GST_STATE_PLAYING;
  GST_OBJECT_UNLOCK(pipeline.get());
  return plays;
}

GstElement* top_level(GstElement* element) {
  GstObject* at = GST_OBJECT_CAST(gst_object_ref(element));
  while (GstObject* parent = gst_object_get_parent(at)) {
    gst_object_unref(at);
    at = parent;
  }
  return GST_ELEMENT_CAST(at);
}

std::string path_of(GstElement* element) {
  if (element == nullptr) return "";
  gchar* text = gst_object_get_path_string(GST_OBJECT(element));
  std::string path = text;
  g_free(text);
  gst_object_unref(element);
  return path;
}

bool same_pipeline(GstElement* one, GstElement* other) {
  GstElement* top = top_level(one);
  GstElement* other_top = top_level(other);
  const bool same = top == other_top;
  gst_object_unref(top);
  gst_object_unref(other_top);
  return same;
}

Ptr<GstPad> past_bins(Ptr<GstPad> peer) {
  while (peer && GST_IS_PROXY_PAD(peer.get())) {
    if (GST_IS_GHOST_PAD(peer.get())) {
      peer.reset(gst_ghost_pad_get_target(GST_GHOST_PAD(peer.get())));
      continue;
    }
    GstProxyPad* internal = gst_proxy_pad_get_internal(GST_PROXY_PAD(peer.get()));
    const Ptr<GstPad> ghost(internal != nullptr ? GST_PAD(internal) : nullptr);
    peer.reset(ghost ? gst_pad_get_peer(ghost.get()) : nullptr);
  }
  return peer;
}

namespace {

/// Whether the calling thread has the state lock of `element`. The lock is recursive, so a try by this thread succeeds
/// also when the lock is free, and another thread must try, too. When the other thread's try fails and this thread's
/// succeeds, a third thread may have released the lock in between, but hardly at each of `tries`.
bool has_state_lock(GstElement* element) {
  constexpr int tries = 8;
  const auto is_free = [](gpointer at) -> gpointer {
    if (GST_STATE_TRYLOCK(at) == FALSE) return nullptr;
    GST_STATE_UNLOCK(at);
    return at;
  };
  for (int i = 0; i < tries; ++i) {
    GThread* other = g_thread_try_new("gpumap-state", is_free, element, nullptr);
    // Ends: the thread waits for nothing.
    if (other == nullptr || g_thread_join(other) != nullptr) return false;  // without a thread it cannot be known
    if (is_free(element) == nullptr) return false;
  }
  return true;
}

/// Under which a pipeline keeps the number of the last seek of all of it.
GQuark noted_seek() {
  static const GQuark quark = g_quark_from_static_string("gpumap-seek");
  return quark;
}

/// The states of a sink that is to play, and of its bin.
struct Standing {
  bool plays, waits;  ///< for a frame to commit its state with
  bool bin_plays;
  bool bin_changes;  ///< it is on its way to another state
  bool bin_waits;    ///< for this sink's frame. Else it may be going on just now, in a thread of its own
};

Standing standing_of(GstElement* sink) {
  Standing now{};
  GST_OBJECT_LOCK(sink);
  now.plays = GST_STATE(sink) == GST_STATE_PLAYING;
  now.waits = GST_STATE_PENDING(sink) != GST_STATE_VOID_PENDING;
  GST_OBJECT_UNLOCK(sink);
  const Ptr<GstObject> parent(gst_object_get_parent(GST_OBJECT_CAST(sink)));
  if (!parent) return {.plays = true};  // it was removed from its bin
  GstBin* const bin = GST_BIN(parent.get());
  GST_OBJECT_LOCK(bin);
  now.bin_plays = GST_STATE(bin) == GST_STATE_PLAYING;
  now.bin_changes = GST_STATE_PENDING(bin) != GST_STATE_VOID_PENDING;
  for (const GList* at = bin->messages; at != nullptr; at = at->next) {
    auto* const message = static_cast<GstMessage*>(at->data);
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ASYNC_START && GST_MESSAGE_SRC(message) == GST_OBJECT_CAST(sink)) {
      now.bin_waits = now.bin_changes;
    }
  }
  GST_OBJECT_UNLOCK(bin);
  return now;
}

/// A sink that was set to PAUSED on purpose has that as its target.
bool is_to_play(GstElement* sink) {
  return GST_STATE(sink) >= GST_STATE_PAUSED && GST_STATE_TARGET(sink) == GST_STATE_PLAYING &&
         !GST_OBJECT_FLAG_IS_SET(sink, GST_ELEMENT_FLAG_LOCKED_STATE);
}

/// See mend_states_at_start().
bool waits_below_paused(GstElement* sink) {
  return GST_STATE(sink) < GST_STATE_PAUSED && GST_STATE_PENDING(sink) != GST_STATE_VOID_PENDING &&
         GST_STATE_NEXT(sink) == GST_STATE(sink) && GST_STATE_RETURN(sink) == GST_STATE_CHANGE_ASYNC;
}

/// Finds sinks in `bin`, and in the bins in it, that are `wanted`, which is asked under the sink's lock.
void find_sinks(GstBin* bin, bool (*wanted)(GstElement*), std::vector<Ptr<GstElement>>& sinks) {
  std::vector<Ptr<GstElement>> children;
  GST_OBJECT_LOCK(bin);
  for (GList* at = GST_BIN_CHILDREN(bin); at != nullptr; at = at->next) {
    auto* child = GST_ELEMENT_CAST(at->data);
    if (GST_OBJECT_FLAG_IS_SET(child, GST_ELEMENT_FLAG_SINK)) children.emplace_back(GST_ELEMENT(gst_object_ref(child)));
  }
  GST_OBJECT_UNLOCK(bin);
  for (Ptr<GstElement>& child : children) {
    if (GST_IS_BIN(child.get())) find_sinks(GST_BIN(child.get()), wanted, sinks);
    GST_OBJECT_LOCK(child.get());
    const bool takes = wanted(child.get());
    GST_OBJECT_UNLOCK(child.get());
    if (takes) sinks.push_back(std::move(child));
  }
}

std::vector<Ptr<GstElement>> sinks_around(GstElement* element, bool (*wanted)(GstElement*)) {
  const Ptr<GstElement> top(top_level(element));
  std::vector<Ptr<GstElement>> sinks;
  if (GST_IS_BIN(top.get())) find_sinks(GST_BIN(top.get()), wanted, sinks);
  return sinks;
}

/// When the change to PLAYING came in the middle of a flush, a GstBaseSink waits for a frame to commit its state, but
/// does not use the next one for that. False: another thread has the lock; it may be in the sink's render().
bool mend_preroll(GstElement* element) {
  if (!GST_IS_BASE_SINK(element)) return true;
  GstBaseSink* sink = GST_BASE_SINK(element);
  if (g_mutex_trylock(GST_BASE_SINK_GET_PREROLL_LOCK(sink)) == FALSE) return false;
  if (sink->playing_async != 0) sink->need_preroll = TRUE;
  g_mutex_unlock(GST_BASE_SINK_GET_PREROLL_LOCK(sink));
  return true;
}

}  // namespace

bool await_renders(GstElement* element, Deadline deadline) {
  constexpr std::chrono::milliseconds pause(5);
  const auto rendered = [](const Ptr<GstElement>& sink) {
    guint64 frames = 0;
    const Ptr<GstStructure> stats(gst_base_sink_get_stats(GST_BASE_SINK(sink.get())));
    gst_structure_get_uint64(stats.get(), "rendered", &frames);
    return frames;
  };
  auto sinks = sinks_around(element, is_to_play);
  std::erase_if(sinks, [](const Ptr<GstElement>& sink) { return !GST_IS_BASE_SINK(sink.get()); });
  std::vector<std::pair<Ptr<GstElement>, guint64>> waited_for;
  for (Ptr<GstElement>& sink : sinks) {
    const guint64 before = rendered(sink);
    waited_for.emplace_back(std::move(sink), before);
  }
  while (true) {
    std::erase_if(waited_for, [&](const auto& one) {
      GMutex* const lock = GST_BASE_SINK_GET_PREROLL_LOCK(one.first.get());
      if (g_mutex_trylock(lock) == FALSE) return rendered(one.first) != one.second;
      g_mutex_unlock(lock);
      return true;
    });
    if (waited_for.empty()) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
  }
}

bool is_sending_event(GstElement* element) {
  return any_around(element, [](GstElement* at) {
    if (!GST_IS_BIN(at) || GST_STATE_PENDING(at) != GST_STATE_VOID_PENDING) return false;
    if (GST_STATE_TRYLOCK(at) == FALSE) return true;
    GST_STATE_UNLOCK(at);
    return false;
  });
}

bool is_sent_to_both(GstEvent* event, GstElement* one, GstElement* other) {
  if (GST_MINI_OBJECT_REFCOUNT_VALUE(event) == 1) return false;
  return any_around(one, [other](GstElement* at) {
    return GST_IS_BIN(at) && gst_object_has_as_ancestor(GST_OBJECT_CAST(other), GST_OBJECT_CAST(at)) != 0 &&
           has_state_lock(at);
  });
}

void note_seek(GstElement* element, GstEvent* seek) {
  const Ptr<GstElement> top(top_level(element));
  if (top.get() == element || !has_state_lock(top.get())) return;
  g_object_set_qdata(G_OBJECT(top.get()), noted_seek(), GUINT_TO_POINTER(gst_event_get_seqnum(seek)));
}

guint noted_seek_of(GstElement* element) {
  const Ptr<GstElement> top(top_level(element));
  return GPOINTER_TO_UINT(g_object_get_qdata(G_OBJECT(top.get()), noted_seek()));
}

bool is_of_noted_seek(GstElement* element, GstEvent* flush) {
  return noted_seek_of(element) == gst_event_get_seqnum(flush);
}

namespace {

/// What a bin does with a sink's frame takes less time.
constexpr GstClockTime long_pause = GST_SECOND / 2;

/// How a look at the sinks ends.
enum class Look {
  done,    ///< all play
  again,   ///< some do not yet
  stands,  ///< a sink has its frame, and its bin does not go on; which may be about to
};

/// After a look that ended like `last`, `pause` ago. Waits for no lock, and holds none while it posts.
Look mend_states(GstElement* element, Look last, GstClockTime pause) {
  const Ptr<GstElement> top(top_level(element));
  if (!GST_IS_BIN(top.get()) || is_stopping(top.get())) return Look::done;
  if (GST_STATE_TRYLOCK(top.get()) == FALSE) return Look::again;
  // A change of state that begins after this sets each sink anew.
  GST_STATE_UNLOCK(top.get());
  bool all = true;
  bool stands = false;
  for (const Ptr<GstElement>& sink : sinks_around(element, is_to_play)) {
    // Each message may change the state of the next sink, and a sink's first message its state before the second.
    Standing now = standing_of(sink.get());
    all = all && now.plays && !now.bin_changes;
    if (now.waits) all = mend_preroll(sink.get()) && all;
    GstObject* const from = GST_OBJECT_CAST(sink.get());
    // The bin has not noticed: it waits for nothing.
    if (!now.plays && now.bin_plays && !now.bin_changes) {
      GST_INFO_OBJECT(from, "lost its state in a flush: its bin is informed");
      gst_element_post_message(sink.get(), gst_message_new_async_start(from));
      now = standing_of(sink.get());
      if (!now.waits) gst_element_post_message(sink.get(), gst_message_new_async_done(from, GST_CLOCK_TIME_NONE));
      continue;
    }
    // The sink has a frame, and its bin waits for that message, or has lost it. A sink that waits for a frame posts it
    // itself. A bin that has it, or is to get it, and hears it again changes its state twice.
    if (now.waits || !now.bin_changes) continue;
    stands = true;
    if (last == Look::stands && (now.bin_waits || pause >= long_pause)) {
      gst_element_post_message(sink.get(), gst_message_new_async_done(from, GST_CLOCK_TIME_NONE));
    }
  }
  return all ? Look::done : stands ? Look::stands : Look::again;
}

struct Later {
  GWeakRef element;
  Look last;
  GstClockTime pause;  ///< before this look
  gint64 until_us;
};

/// Looks again after `pause`, in the thread of the system clock.
void mend_later(GstElement* element, Look last, GstClockTime pause, gint64 until_us) {
  if (g_get_monotonic_time() > until_us) return;
  auto* later = new Later{{}, last, pause, until_us};
  g_weak_ref_init(&later->element, element);
  const Ptr<GstClock> clock(gst_system_clock_obtain());
  GstClockID id = gst_clock_new_single_shot_id(clock.get(), gst_clock_get_time(clock.get()) + pause);
  const auto look = [](GstClock*, GstClockTime, GstClockID, gpointer data) -> gboolean {
    auto* now = static_cast<Later*>(data);
    const Ptr<GstElement> of(static_cast<GstElement*>(g_weak_ref_get(&now->element)));
    const Look seen = of ? mend_states(of.get(), now->last, now->pause) : Look::done;
    if (seen != Look::done) {
      mend_later(of.get(), seen, std::min<GstClockTime>(2 * now->pause, GST_SECOND), now->until_us);
    }
    return TRUE;
  };
  gst_clock_id_wait_async(id, look, later, [](gpointer data) {
    auto* done = static_cast<Later*>(data);
    g_weak_ref_clear(&done->element);
    delete done;
  });
  gst_clock_id_unref(id);
}

}  // namespace

void mend_states_soon(GstElement* element) {
  constexpr GstClockTime first_pause = 10 * GST_MSECOND;
  constexpr gint64 longest_us = gint64{60} * G_USEC_PER_SEC;
  mend_later(element, Look::again, first_pause, g_get_monotonic_time() + longest_us);
}

void mend_states_at_start(GstElement* element) {
  for (const Ptr<GstElement>& sink : sinks_around(element, waits_below_paused)) {
    if (GST_STATE_TRYLOCK(sink.get()) == FALSE) continue;  // somebody changes its state
    GST_INFO_OBJECT(sink.get(), "a flush met it below PAUSED: it goes on");
    gst_element_continue_state(sink.get(), GST_STATE_CHANGE_SUCCESS);
    GST_STATE_UNLOCK(sink.get());
  }
}

void mend_states_after_flush(GstElement* element) {
  if (mend_states(element, Look::again, 0) != Look::done) mend_states_soon(element);
}

}  // namespace gpumap::gst
