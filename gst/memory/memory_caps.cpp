// SPDX-License-Identifier: MIT
#include "gst/memory/memory_caps.hpp"

#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

bool is_memory(const gchar* feature) {
  return g_str_has_prefix(feature, "memory:") != 0;
}

/// A copy (transfer full) with this memory feature in every structure; null: system memory.
GstCaps* with_memory(const GstCaps* caps, const char* memory) {
  if (gst_caps_is_any(caps)) return gst_caps_new_any();
  return of_each_structure(caps, [&](GstCaps* made, const GstStructure* structure, const GstCapsFeatures* before) {
    GstCapsFeatures* features = gst_caps_features_new_empty();
    for (guint i = 0; i < gst_caps_features_get_size(before); ++i) {
      const gchar* feature = gst_caps_features_get_nth(before, i);
      if (!is_memory(feature)) gst_caps_features_add(features, feature);
    }
    if (memory != nullptr) gst_caps_features_add(features, memory);
    gst_caps_append_structure_full(made, gst_structure_copy(structure), features);
  });
}

/// The structures (transfer full) whose features `fit`; ANY features intersect with any, so they are narrowed to system
/// memory instead of dropped.
template <typename Fits>
GstCaps* only(const GstCaps* caps, Fits fits) {
  if (gst_caps_is_any(caps)) return gst_caps_new_any();
  return of_each_structure(caps, [&](GstCaps* made, const GstStructure* structure, const GstCapsFeatures* features) {
    const bool any = gst_caps_features_is_any(features) != 0;
    if (!any && !fits(features)) return;
    gst_caps_append_structure_full(made, gst_structure_copy(structure),
                                   any ? nullptr : gst_caps_features_copy(features));
  });
}

/// A CAPS query finds its way through queue, tee, identity and capsfilter, where ACCEPT_CAPS may end at a template.
bool peer_takes(GstPad* srcpad, const GstCaps* caps, const char* memory) {
  const Ptr<GstCaps> asked(with_memory(caps, memory));
  const Ptr<GstCaps> answer(gst_pad_peer_query_caps(srcpad, asked.get()));
  return gst_caps_can_intersect(answer.get(), asked.get()) != 0;  // some answer more than they were asked
}

}  // namespace

bool has_feature(const GstCapsFeatures* features, const char* feature) {
  return features != nullptr && !gst_caps_features_is_any(features) &&
         gst_caps_features_contains(features, feature) != 0;
}

bool is_system_memory(const GstCapsFeatures* features) {
  if (features == nullptr) return true;
  if (gst_caps_features_is_any(features)) return false;
  for (guint i = 0; i < gst_caps_features_get_size(features); ++i) {
    const gchar* feature = gst_caps_features_get_nth(features, i);
    if (is_memory(feature) && g_strcmp0(feature, GST_CAPS_FEATURE_MEMORY_SYSTEM_MEMORY) != 0) return false;
  }
  return true;
}

bool begins_with_feature(const GstCaps* caps, const char* feature) {
  return caps != nullptr && !gst_caps_is_any(caps) && !gst_caps_is_empty(caps) &&
         has_feature(gst_caps_get_features(caps, 0), feature);
}

bool is_system_caps(const GstCaps* caps) {
  return all_features(caps, is_system_memory);
}

GstCaps* with_feature(const GstCaps* caps, bool gpu) {
  return with_memory(caps, gpu ? feature_name : nullptr);
}

GstCaps* in_either_memory(const GstCaps* caps) {
  GstCaps* both = with_feature(caps, true);
  gst_caps_append(both, with_feature(caps, false));
  return both;
}

GstCaps* system_only(const GstCaps* caps) {
  return only(caps, is_system_memory);
}

GstCaps* from_either_memory(const GstCaps* caps, const char* third) {
  Ptr<GstCaps> kept(only(caps, [third](const GstCapsFeatures* features) {
    return is_system_memory(features) || has_feature(features, feature_name) ||
           (third != nullptr && has_feature(features, third));
  }));
  if (gst_caps_is_any(kept.get())) return kept.release();
  // What both memories have is there once, in the same order.
  return gst_caps_merge(gst_caps_new_empty(), with_feature(kept.get(), false));
}

GstCaps* structures_by(const GstCaps* caps, const char* feature, bool with) {
  return structures_if(caps, [&](const GstCapsFeatures* features) { return has_feature(features, feature) == with; });
}

GstCaps* gpu_caps_as(const GstCaps* caps, std::initializer_list<const char*> features, const char* known) {
  const auto append = [&](GstCaps* made, const GstStructure* structure, const GstCapsFeatures* before) {
    // Interlaced in other ways than the GPU's elements know it, or with metas of its own: they are not asked about it.
    if (!has_feature(before, feature_name) || gst_caps_features_get_size(before) != 1) return;
    for (const char* feature : features) {
      gst_caps_append_structure_full(made, gst_structure_copy(structure), gst_caps_features_new(feature, nullptr));
    }
  };
  const Ptr<GstCaps> asked(of_each_structure(caps, append));
  const Ptr<GstCaps> taken(gst_caps_from_string(known));
  return gst_caps_intersect_full(asked.get(), taken.get(), GST_CAPS_INTERSECT_FIRST);
}

bool peer_names_memory(GstPad* srcpad, const GstCaps* caps, const char* feature) {
  constexpr const char* of_no_one = "memory:GPUMapNobody";
  return peer_takes(srcpad, caps, feature) && !peer_takes(srcpad, caps, of_no_one);
}

namespace {

constexpr const char* reads_query = "gpumap-reads-gpu-memory";
constexpr const char* gives_query = "gpumap-gives-gpu-memory";

/// Elements pass on what they do not know, a tee to one branch after the other until one answers.
bool peer_says_yes(GstPad* pad, const char* name) {
  const Ptr<GstQuery> query(gst_query_new_custom(GST_QUERY_CUSTOM, gst_structure_new_empty(name)));
  return gst_pad_peer_query(pad, query.get()) != 0;
}

bool is_custom(const GstQuery* query, const char* name) {
  return GST_QUERY_TYPE(query) == GST_QUERY_CUSTOM &&
         gst_structure_has_name(gst_query_get_structure(const_cast<GstQuery*>(query)), name) != 0;
}

}  // namespace

bool peer_reads_gpu_memory(GstPad* srcpad) {
  return peer_says_yes(srcpad, reads_query);
}

bool answer_reads_gpu_memory(const GstQuery* query) {
  return is_custom(query, reads_query);
}

bool upstream_gives_gpu_memory(GstPad* sinkpad) {
  return peer_says_yes(sinkpad, gives_query);
}

bool asks_for_gpu_memory(const GstQuery* query) {
  return is_custom(query, gives_query);
}

void forget_memory_at_unlink(GstPad* srcpad) {
  const auto unlinked = +[](GstPad* pad, GstPad* /*peer*/, gpointer /*user*/) {
    const Ptr<GstCaps> caps(gst_pad_get_current_caps(pad));
    if (!is_gpu_caps(caps.get())) return;
    const Ptr<GstCaps> plain(with_feature(caps.get(), false));
    const Ptr<GstEvent> event(gst_event_new_caps(plain.get()));
    (void)gst_pad_store_sticky_event(pad, event.get());
  };
  g_signal_connect(srcpad, "unlinked", G_CALLBACK(unlinked), nullptr);
}

}  // namespace gpumap::gst
