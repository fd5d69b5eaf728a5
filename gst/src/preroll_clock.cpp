// SPDX-License-Identifier: MIT
#include "gst/src/preroll_clock.hpp"

#include <gst/video/gstvideoencoder.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "gst/channel/pipeline_state.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

/// By how much the first frames of sources may be late in different ways, such as sound from a device beside pictures.
constexpr GstClockTimeDiff spread = 200 * GST_MSECOND;

/// Where what comes to `pad` goes on, in or out of bins: pads of the elements behind.
std::vector<Ptr<GstPad>> pads_behind(GstPad* pad) {
  std::vector<Ptr<GstPad>> behind;
  const auto follow = [&behind](GstPad* out) {
    Ptr<GstPad> peer = past_bins(Ptr<GstPad>(gst_pad_get_peer(out)));
    if (peer) behind.push_back(std::move(peer));
  };
  if (GST_PAD_IS_SRC(pad)) {
    follow(pad);
    return behind;
  }
  GstIterator* const links = gst_pad_iterate_internal_links(pad);
  GValue link = G_VALUE_INIT;
  while (links != nullptr && gst_iterator_next(links, &link) == GST_ITERATOR_OK) {
    follow(GST_PAD_CAST(g_value_get_object(&link)));
    g_value_unset(&link);
  }
  if (links != nullptr) gst_iterator_free(links);
  return behind;
}

enum class Comes { not_at_all, beside, alone };

/// Whether frames of `src` come to an element that `is` such a one, as far as that is known, and to others `beside`, as
/// behind a tee.
Comes comes_to(GstElement* src, bool (*is)(GstElement*)) {
  Comes comes = Comes::alone;
  const Ptr<GstPad> begin(gst_element_get_static_pad(src, "src"));
  std::vector<Ptr<GstPad>> found;
  if (begin) found = pads_behind(begin.get());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Ptr<GstElement> element(gst_pad_get_parent_element(found[i].get()));
    if (element && is(element.get())) return comes;
    std::vector<Ptr<GstPad>> behind = pads_behind(found[i].get());
    if (behind.size() > 1) comes = Comes::beside;
    for (Ptr<GstPad>& next : behind) {
      const auto is_next = [&](const Ptr<GstPad>& one) { return one.get() == next.get(); };
      if (std::ranges::none_of(found, is_next)) found.push_back(std::move(next));
    }
  }
  return Comes::not_at_all;
}

bool is_video_encoder(GstElement* element) {
  return GST_IS_VIDEO_ENCODER(element) != 0;
}

bool is_of(GstElement* element, GstElementFactoryListType kinds) {
  GstElementFactory* const factory = gst_element_get_factory(element);
  return factory != nullptr && gst_element_factory_list_is_type(factory, kinds) != 0;
}

bool is_audio_encoder(GstElement* element) {
  return is_of(element, GST_ELEMENT_FACTORY_TYPE_ENCODER | GST_ELEMENT_FACTORY_TYPE_MEDIA_AUDIO);
}

bool records(GstElement* element) {
  return is_of(element, GST_ELEMENT_FACTORY_TYPE_ENCODER | GST_ELEMENT_FACTORY_TYPE_MUXER);
}

bool is_video_parser(GstElement* element) {
  return is_of(element, GST_ELEMENT_FACTORY_TYPE_PARSER | GST_ELEMENT_FACTORY_TYPE_MEDIA_VIDEO);
}

bool is_file(GstElement* element) {
  GstElementFactory* const factory = gst_element_get_factory(element);
  return factory != nullptr && std::string_view(GST_OBJECT_NAME(factory)) == "filesink";
}

/// Its pipeline may play only once a key frame has come.
bool is_muxed_into_file(GstElement* src) {
  return comes_to(src, is_video_parser) == Comes::alone && comes_to(src, is_file) == Comes::alone;
}

struct Sources {
  GType kind;
  int number = 0;
  bool alike = true;     ///< all are of that kind
  bool live = false;     ///< one of them at least
  bool encoded = false;  ///< as video, here or before, one of them at least
  bool sound = false;    ///< so is one of them as sound
  bool recorded = true;  ///< all, and not shown beside
};

void look_at_source(const GValue* value, gpointer user) {
  auto& sources = *static_cast<Sources*>(user);
  auto* const one = GST_ELEMENT_CAST(g_value_get_object(value));
  if (GST_IS_BIN(one) || !GST_OBJECT_FLAG_IS_SET(one, GST_ELEMENT_FLAG_SOURCE)) return;
  ++sources.number;
  sources.alike = sources.alike && G_OBJECT_TYPE(one) == sources.kind;
  if (!sources.alike) return;
  gboolean live = FALSE;
  g_object_get(one, "is-live", &live, nullptr);
  sources.live = sources.live || live != FALSE;
  const bool recorded = comes_to(one, records) == Comes::alone;
  sources.recorded = sources.recorded && recorded;
  sources.encoded =
      sources.encoded || comes_to(one, is_video_encoder) == Comes::alone || (recorded && is_muxed_into_file(one));
  sources.sound = sources.sound || comes_to(one, is_audio_encoder) == Comes::alone;
}

/// Those of the pipeline around `src`. None: that is no bin, or changes right now.
Sources sources_beside(GstElement* src) {
  Sources sources{.kind = G_OBJECT_TYPE(src)};
  const Ptr<GstElement> pipeline(top_level(src));
  if (!GST_IS_BIN(pipeline.get())) return sources;
  GstIterator* const all = gst_bin_iterate_recurse(GST_BIN(pipeline.get()));
  const GstIteratorResult seen = gst_iterator_foreach(all, look_at_source, &sources);
  gst_iterator_free(all);
  if (seen != GST_ITERATOR_DONE) sources.number = 0;
  return sources;
}

}  // namespace

Recorded recorded_of(GstElement* src) {
  if (comes_to(src, records) == Comes::not_at_all) return Recorded::no;
  const Sources sources = sources_beside(src);
  if (sources.number == 0 || !sources.alike || !sources.recorded) return Recorded::beside_others;
  return sources.number == 1 ? Recorded::sole : Recorded::alone;
}

bool comes_to_file(GstElement* src) {
  const auto can_be_emptied = [](GstElement* element) {
    if (!is_file(element)) return false;
    gchar* location = nullptr;
    g_object_get(element, "location", &location, nullptr);
    const bool regular = location != nullptr && g_file_test(location, G_FILE_TEST_IS_REGULAR) != 0;
    g_free(location);
    return regular;
  };
  return comes_to(src, can_be_emptied) != Comes::not_at_all;
}

std::shared_ptr<PrerollClock> PrerollClock::join(GstElement* src, bool may_begin, bool has_given) {
  static const GQuark quark = g_quark_from_static_string("gpumap-preroll-clock");
  static std::mutex joining;
  const Sources sources = sources_beside(src);
  const bool alone = sources.number == 1;
  const bool needs_one = sources.encoded || (sources.sound && alone);
  if (sources.number == 0 || !sources.alike || sources.live || !needs_one) return nullptr;
  const Ptr<GstElement> pipeline(top_level(src));
  const guint seek = noted_seek_of(src);
  const std::lock_guard lock(joining);
  using Kept = std::weak_ptr<PrerollClock>;
  const auto* const kept = static_cast<const Kept*>(g_object_get_qdata(G_OBJECT(pipeline.get()), quark));
  auto clock = kept == nullptr ? nullptr : kept->lock();
  if (clock && clock->seek_ == seek) return clock;
  if (!may_begin && !(has_given && alone)) return nullptr;
  clock = std::make_shared<PrerollClock>();
  clock->seek_ = seek;
  clock->alone_ = alone;
  g_object_set_qdata_full(G_OBJECT(pipeline.get()), quark, new Kept(clock),
                          [](gpointer one) { delete static_cast<Kept*>(one); });
  return clock;
}

bool PrerollClock::begin_at(GstClockTimeDiff monotonic_ns) {
  const std::lock_guard lock(mutex_);
  if (begin_) return false;
  begin_ = alone_ ? monotonic_ns : monotonic_ns - spread;
  return alone_;
}

void PrerollClock::move_begin(GstClockTimeDiff by) {
  const std::lock_guard lock(mutex_);
  *begin_ += by;
  if (lag_) *lag_ -= by;
}

GstClockTimeDiff PrerollClock::running_time(GstClockTimeDiff monotonic_ns, GstClockTimeDiff own, bool plays) {
  const std::lock_guard lock(mutex_);
  const GstClockTimeDiff counted = monotonic_ns - begin_.value_or(monotonic_ns);
  // What was given in a preroll may be a little early. A pipeline that has played for longer goes on.
  if (const GstClockTimeDiff lag = counted - own; !lag_ && plays) lag_ = lag > -spread ? lag : 0;
  return lag_ ? own + *lag_ : counted;
}

}  // namespace gpumap::gst
