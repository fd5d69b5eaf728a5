// SPDX-License-Identifier: MIT
#include "gst/src/preroll_clock.hpp"

#include <gst/video/gstvideoencoder.h>

#include <algorithm>

#include "gst/channel/pipeline_state.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

/// By how much the first frames of sources may be late in different ways, such as sound from a device beside pictures.
constexpr GstClockTimeDiff spread = 200 * GST_MSECOND;

/// Whether frames of `src` come to an encoder of video, as far as that is known.
bool has_encoder_behind(GstElement* src) {
  Ptr<GstPad> at(gst_element_get_static_pad(src, "src"));
  while (at) {
    at = past_bins(Ptr<GstPad>(gst_pad_get_peer(at.get())));
    const Ptr<GstElement> element(at ? gst_pad_get_parent_element(at.get()) : nullptr);
    if (!element || GST_IS_VIDEO_ENCODER(element.get())) return GST_IS_VIDEO_ENCODER(element.get()) != 0;
    at.reset(gst_element_get_static_pad(element.get(), "src"));
  }
  return false;
}

struct Sources {
  GType kind;
  int number = 0;
  bool alike = true;     ///< all are of that kind, and none is live
  bool encoded = false;  ///< as video, one of them at least
};

void look_at_source(const GValue* value, gpointer user) {
  auto& sources = *static_cast<Sources*>(user);
  auto* const one = GST_ELEMENT_CAST(g_value_get_object(value));
  if (GST_IS_BIN(one) || !GST_OBJECT_FLAG_IS_SET(one, GST_ELEMENT_FLAG_SOURCE)) return;
  ++sources.number;
  gboolean live = FALSE;
  if (G_OBJECT_TYPE(one) == sources.kind) g_object_get(one, "is-live", &live, nullptr);
  sources.alike = sources.alike && G_OBJECT_TYPE(one) == sources.kind && live == FALSE;
  sources.encoded = sources.encoded || (sources.alike && has_encoder_behind(one));
}

/// How many sources record together; 0: they do not.
int count_recorded(GstElement* pipeline, GstElement* src) {
  Sources sources{G_OBJECT_TYPE(src)};
  GstIterator* const all = gst_bin_iterate_recurse(GST_BIN(pipeline));
  const GstIteratorResult seen = gst_iterator_foreach(all, look_at_source, &sources);
  gst_iterator_free(all);
  return seen == GST_ITERATOR_DONE && sources.alike && sources.encoded ? sources.number : 0;
}

}  // namespace

std::shared_ptr<PrerollClock> PrerollClock::join(GstElement* src, bool may_begin) {
  static const GQuark quark = g_quark_from_static_string("gpumap-preroll-clock");
  static std::mutex joining;
  const Ptr<GstElement> pipeline(top_level(src));
  const int number = GST_IS_BIN(pipeline.get()) ? count_recorded(pipeline.get(), src) : 0;
  if (number == 0) return nullptr;
  const guint seek = noted_seek_of(src);
  const std::lock_guard lock(joining);
  using Kept = std::weak_ptr<PrerollClock>;
  const auto* const kept = static_cast<const Kept*>(g_object_get_qdata(G_OBJECT(pipeline.get()), quark));
  auto clock = kept == nullptr ? nullptr : kept->lock();
  if (clock && clock->seek_ == seek) return clock;
  if (!may_begin) return nullptr;
  clock = std::make_shared<PrerollClock>();
  clock->seek_ = seek;
  clock->alone_ = number == 1;
  g_object_set_qdata_full(G_OBJECT(pipeline.get()), quark, new Kept(clock),
                          [](gpointer one) { delete static_cast<Kept*>(one); });
  return clock;
}

void PrerollClock::begin_at(GstClockTimeDiff monotonic_ns) {
  const std::lock_guard lock(mutex_);
  if (!begin_) begin_ = alone_ ? monotonic_ns : monotonic_ns - spread;
}

GstClockTimeDiff PrerollClock::running_time(GstClockTimeDiff monotonic_ns, GstClockTimeDiff own, bool plays) {
  const std::lock_guard lock(mutex_);
  const GstClockTimeDiff counted = monotonic_ns - begin_.value_or(monotonic_ns);
  if (!lag_ && plays) lag_ = std::max<GstClockTimeDiff>(counted - own, 0);
  return lag_ ? own + *lag_ : counted;
}

}  // namespace gpumap::gst
