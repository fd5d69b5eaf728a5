// SPDX-License-Identifier: MIT
#include "gst/latency/meta.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

namespace gpumap::gst {

namespace {

static_assert(GPUMAP_LATENCY_N_STAMPS == stamp_count);
static_assert(GPUMAP_LATENCY_RELEASED == static_cast<int>(Stamp::released));
static_assert(GPUMAP_LATENCY_LAUNCHED == static_cast<int>(Stamp::launched));

GType api_type() {
  static const GType type = [] {
    // Nothing of the frame's content: a copy that is smaller, or in another format, is still of the same frame.
    static const gchar* tags[] = {nullptr};
    return gst_meta_api_type_register(GPUMAP_LATENCY_META_API, tags);
  }();
  return type;
}

GpumapLatencyMeta* cast(GstMeta* meta) {
  return reinterpret_cast<GpumapLatencyMeta*>(meta);
}

using Trace = std::shared_ptr<FrameTrace>;
static_assert(sizeof(Trace) <= sizeof(GpumapLatencyMeta::trace) && alignof(Trace) <= alignof(gpointer));

/// It lives in the meta, so that a frame costs one allocation less.
Trace& trace_in(GpumapLatencyMeta* meta) {
  return *std::launder(reinterpret_cast<Trace*>(meta->trace));
}

gboolean init(GstMeta* base, gpointer /*params*/, GstBuffer* /*buffer*/) {
  GpumapLatencyMeta* meta = cast(base);
  meta->sequence = 0;
  std::ranges::fill(meta->at_ns, 0);
  meta->due_ns = meta->captured_ns = 0;
  new (meta->trace) Trace;
  return TRUE;
}

void free_meta(GstMeta* base, GstBuffer* /*buffer*/) {
  std::destroy_at(&trace_in(cast(base)));
}

gboolean transform(GstBuffer* to, GstMeta* base, GstBuffer* /*from*/, GQuark type, gpointer /*data*/) {
  static const GQuark copy = g_quark_from_static_string("gst-copy");
  // Elements that make one frame of another ask by names of their own; the tags allow all of them.
  if (type == copy || gst_buffer_get_meta(to, api_type()) == nullptr) add_latency_meta(to, trace_in(cast(base)));
  return TRUE;
}

const GstMetaInfo* info() {
  static const GstMetaInfo* const made =
      gst_meta_register(api_type(), "GpumapLatencyMeta", sizeof(GpumapLatencyMeta), init, free_meta, transform);
  return made;
}

GpumapLatencyMeta* meta_of(GstBuffer* buffer) {
  return cast(gst_buffer_get_meta(buffer, api_type()));
}

void show(GpumapLatencyMeta* meta) {
  const FrameRecord record = trace_in(meta)->record();
  meta->sequence = record.sequence;
  std::ranges::copy(record.at_ns, meta->at_ns);
  meta->due_ns = record.due_ns;
  meta->captured_ns = record.captured_ns;
}

}  // namespace

void register_latency_meta() {
  static_cast<void>(info());
}

void add_latency_meta(GstBuffer* buffer, std::shared_ptr<FrameTrace> trace) {
  if (!trace) return;
  GpumapLatencyMeta* meta = cast(gst_buffer_add_meta(buffer, info(), nullptr));
  trace_in(meta) = std::move(trace);
  show(meta);
}

std::shared_ptr<FrameTrace> trace_of(GstBuffer* buffer) {
  GpumapLatencyMeta* meta = meta_of(buffer);
  return meta != nullptr ? trace_in(meta) : nullptr;
}

void refresh_latency_meta(GstBuffer* buffer) {
  GpumapLatencyMeta* meta = meta_of(buffer);
  if (meta != nullptr && trace_in(meta)) show(meta);
}

}  // namespace gpumap::gst
