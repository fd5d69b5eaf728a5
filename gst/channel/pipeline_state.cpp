// SPDX-License-Identifier: MIT
#include "gst/channel/pipeline_state.hpp"

#include <chrono>
#include <thread>

namespace gpumap::gst {

namespace {

bool any_around(GstElement* element, const std::function<bool(GstElement*)>& holds) {
  bool found = false;
  for (GstObject* at = GST_OBJECT_CAST(gst_object_ref(element)); at != nullptr;) {
    if (GST_IS_ELEMENT(at)) found = found || holds(GST_ELEMENT_CAST(at));
    GstObject* parent = gst_object_get_parent(at);
    gst_object_unref(at);
    at = parent;
  }
  return found;
}

}  // namespace

bool is_stopping(GstElement* element) {
  return any_around(element, [](GstElement* at) { return GST_STATE_TARGET(at) < GST_STATE_PAUSED; });
}

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

bool is_sent_to_both(GstEvent* event, GstElement* one, GstElement* other, std::chrono::milliseconds patience) {
  if (GST_MINI_OBJECT_REFCOUNT_VALUE(event) == 1) return false;
  bool sent = false;
  // The lock is recursive: whether this thread has it only another one can tell.
  std::thread([&] {
    const auto end = std::chrono::steady_clock::now() + patience;
    const auto is_locked = [&](GstElement* at) {
      if (!GST_IS_BIN(at) || gst_object_has_as_ancestor(GST_OBJECT_CAST(other), GST_OBJECT_CAST(at)) == 0) return false;
      if (GST_STATE_TRYLOCK(at) == FALSE) return true;
      GST_STATE_UNLOCK(at);
      return false;
    };
    while (true) {
      sent = any_around(one, is_locked);
      if (!sent || std::chrono::steady_clock::now() >= end) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }).join();
  return sent;
}

StateHold::StateHold(GstElement* element, const std::function<bool()>& given_up) : top_(top_level(element)) {
  // A thread that has the lock may be without a processor for long; one that waits for the caller must not do so for
  // ever.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (true) {
    held_ = GST_STATE_TRYLOCK(top_) != FALSE;
    stops_ = !held_ && is_stopping(top_);
    if (held_ || stops_ || std::chrono::steady_clock::now() >= end || (given_up && given_up())) return;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

StateHold::~StateHold() {
  if (held_) GST_STATE_UNLOCK(top_);
  gst_object_unref(top_);
}

}  // namespace gpumap::gst
