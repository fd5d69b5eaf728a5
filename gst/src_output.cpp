// SPDX-License-Identifier: MIT
#include "src_output.hpp"

#include <memory>
#include <utility>

#include "caps.hpp"
#include "latency_meta.hpp"
#include "memory.hpp"
#include "refusal.hpp"
#include "video_layout.hpp"

namespace gpumap::gst {

namespace {

/// Elements accept what their template says, so ask for more than that.
bool peer_takes(GstPad* pad, GstCaps* caps) {
  if (!gst_pad_peer_query_accept_caps(pad, caps)) return false;
  GstCaps* allowed = gst_pad_peer_query_caps(pad, caps);
  const bool takes = !gst_caps_is_empty(allowed);
  gst_caps_unref(allowed);
  return takes;
}

}  // namespace

SrcOutput::~SrcOutput() {
  reset();
}

void SrcOutput::reset() {
  gst_clear_caps(&upstream_);
  settled_ = false;
  gpu_ = false;
  default_layout_only_ = false;
}

void SrcOutput::set_caps(GstCaps* upstream) {
  gst_caps_replace(&upstream_, upstream);
  settled_ = false;
}

std::string SrcOutput::refusal() const {
  return refusal_text(pad_, upstream_);
}

bool SrcOutput::settle() {
  if (settled_) return true;
  if (upstream_ == nullptr) upstream_ = gst_caps_new_empty_simple(bytes_name);
  GstCaps* gpu = with_feature(upstream_, true);
  GstCaps* plain = with_feature(upstream_, false);
  // Asked one at a time: a downstream that takes anything must not make us guess which of the two it meant.
  gpu_ = peer_takes(pad_, gpu);
  // Pushing them would not tell: a sticky event counts as sent even where downstream refuses it.
  if (!gpu_ && gst_pad_is_linked(pad_) && !peer_takes(pad_, plain)) {
    gst_caps_unref(gpu);
    gst_caps_unref(plain);
    return false;
  }
  GstCaps* chosen = gpu_ ? gpu : plain;
  GstCaps* current = gst_pad_get_current_caps(pad_);
  bool pushed = true;
  if (current == nullptr || !gst_caps_is_equal(current, chosen)) {
    pushed = gst_pad_push_event(pad_, gst_event_new_caps(chosen)) != 0;
  }
  if (current != nullptr) gst_caps_unref(current);

  default_layout_only_ = false;
  if (!gpu_ && gst_structure_has_name(gst_caps_get_structure(plain, 0), "video/x-raw") &&
      gst_video_info_from_caps(&info_, plain)) {
    default_layout_only_ = !peer_reads_video_meta(pad_, plain);
  }
  gst_caps_unref(gpu);
  gst_caps_unref(plain);
  settled_ = pushed;
  return pushed;
}

GstBuffer* SrcOutput::wrap(Channel::Next frame) const {
  GstBuffer* buffer = frame.carrier ? frame.carrier.release() : gst_buffer_new();
  const auto bytes = static_cast<gsize>(frame.lease.info().bytes);
  auto slot = std::make_unique<Bytes>(std::move(frame.lease));
  slot->set_sequence(frame.sequence);
  slot->set_trace(frame.trace);
  add_latency_meta(buffer, std::move(frame.trace));
  // Read-only: a CPU element that wants to change the frame gets a copy, made by DMA.
  GstMemory* memory = memory_new(wrapping_allocator(), std::move(slot), bytes, GST_MEMORY_FLAG_READONLY);
  gst_buffer_append_memory(buffer, memory);
  return default_layout_only_ ? in_default_layout(buffer, info_) : buffer;
}

}  // namespace gpumap::gst
