// SPDX-License-Identifier: MIT
#include "end_of_stream.hpp"

namespace gpumap::gst {

namespace {

void post(GstElement* element, guint32 seqnum) {
  GstMessage* message = gst_message_new_eos(GST_OBJECT_CAST(element));
  gst_message_set_seqnum(message, seqnum);
  gst_element_post_message(element, message);
}

}  // namespace

void EndOfStream::reached(GstElement* element, GstEvent* event) {
  const guint32 seqnum = gst_event_get_seqnum(event);
  {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    seqnum_ = seqnum;
    if (!playing_) return;
  }
  post(element, seqnum);
}

void EndOfStream::set_playing(GstElement* element, bool playing) {
  guint32 seqnum = 0;
  {
    const std::lock_guard lock(mutex_);
    playing_ = playing;
    if (!playing || !reached_) return;
    seqnum = seqnum_;
  }
  post(element, seqnum);
}

void EndOfStream::clear() {
  const std::lock_guard lock(mutex_);
  reached_ = false;
}

}  // namespace gpumap::gst
