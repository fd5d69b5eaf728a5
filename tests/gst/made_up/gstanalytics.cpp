// SPDX-License-Identifier: MIT
//
// A libgstanalytics that is made up, for systems whose GStreamer has none or one without tensors: as much of it as
// gpumap and its tests call, and no transform of tensors, as in GStreamer 1.26. Where the real one is, tests run with
// that.
#include "gst/analytics/analytics_api.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace gpumap::gst {
namespace {

constexpr GstAnalyticsMtdType detection = 1, classification = 2, tracking = 3;

struct Thing {
  GstAnalyticsMtdType type = detection;
  GQuark label = 0;
  gint x = 0, y = 0, width = 0, height = 0;
  gfloat rotation = 0, confidence = 0;
  std::vector<gfloat> levels{};  ///< of a classification
  std::vector<GQuark> classes{};
  guint64 id = 0;  ///< of tracking
  GstClockTime first_seen = 0, last_seen = 0;
  gboolean lost = FALSE;
};
struct Known {
  std::vector<Thing> things;
  std::map<std::pair<guint, guint>, GstAnalyticsRelTypes> relations;
};

struct Relations {
  GstMeta meta;
  Known* known;
};

gboolean init_tensors(GstMeta* meta, gpointer /*params*/, GstBuffer* /*buffer*/) {
  reinterpret_cast<GstTensorMeta*>(meta)->num_tensors = 0;
  reinterpret_cast<GstTensorMeta*>(meta)->tensors = nullptr;
  return TRUE;
}

/// As of the real one, by the type's number.
gsize bytes_of(int type, gsize elements) {
  switch (type) {
    case 0:
    case 5:  // 4 bits
      return elements / 2 + elements % 2;
    case GST_TENSOR_DATA_TYPE_INT8:
    case GST_TENSOR_DATA_TYPE_UINT8:
      return elements;
    case GST_TENSOR_DATA_TYPE_INT16:
    case GST_TENSOR_DATA_TYPE_UINT16:
    case GST_TENSOR_DATA_TYPE_FLOAT16:
    case 13:  // bfloat16
      return 2 * elements;
    case GST_TENSOR_DATA_TYPE_INT32:
    case GST_TENSOR_DATA_TYPE_UINT32:
    case GST_TENSOR_DATA_TYPE_FLOAT32:
      return 4 * elements;
    default:
      return 8 * elements;
  }
}

gboolean init_relations(GstMeta* meta, gpointer /*params*/, GstBuffer* /*buffer*/) {
  reinterpret_cast<Relations*>(meta)->known = new Known;
  return TRUE;
}

Known& known_of(GstAnalyticsRelationMeta* meta) {
  return *reinterpret_cast<Relations*>(meta)->known;
}
std::vector<Thing>& things_of(GstAnalyticsRelationMeta* meta) {
  return known_of(meta).things;
}
Thing& thing_of(const GstAnalyticsMtd* one) {
  return things_of(one->meta).at(one->id);
}
gboolean add(GstAnalyticsRelationMeta* meta, Thing thing, GstAnalyticsMtd* made) {
  things_of(meta).push_back(std::move(thing));
  *made = {static_cast<guint>(things_of(meta).size() - 1), meta};
  return TRUE;
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

void gst_tensor_free(GstTensor* tensor) {
  gst_clear_buffer(&tensor->data);
  g_free(tensor);
}

const GstMetaInfo* gst_tensor_meta_get_info(void) {
  static const gchar* tags[] = {nullptr};
  static const GstMetaInfo* const info = gst_meta_register(
      gst_meta_api_type_register("GstTensorMetaAPI", tags), "GstTensorMeta", sizeof(GstTensorMeta), init_tensors,
      [](GstMeta* meta, GstBuffer* /*buffer*/) {
        auto* tensors = reinterpret_cast<GstTensorMeta*>(meta);
        std::for_each(tensors->tensors, tensors->tensors + tensors->num_tensors, gst_tensor_free);
        g_free(tensors->tensors);
      },
      nullptr);
  return info;
}

void gst_tensor_meta_set(GstTensorMeta* meta, guint count, GstTensor** tensors) {
  meta->num_tensors = count;
  meta->tensors = tensors;
}

GstTensor* gst_tensor_new_simple(GQuark id, GstTensorDataType type, GstBuffer* data, GstTensorDimOrder order,
                                 gsize count, gsize* dims) {
  constexpr int last_type = 13;
  g_return_val_if_fail(int{type} <= last_type && int{order} <= 1 && count > 0, nullptr);
  gsize elements = 1;
  for (gsize i = 0; i < count; ++i) elements *= dims[i];
  const bool dynamic = std::find(dims, dims + count, 0U) != dims + count;
  g_return_val_if_fail(dynamic || gst_buffer_get_size(data) == bytes_of(type, elements), nullptr);
  auto* made = static_cast<GstTensor*>(g_malloc0(sizeof(GstTensor) + count * sizeof(gsize)));
  *made = {id, GST_TENSOR_LAYOUT_CONTIGUOUS, type, data, order, count};
  std::copy(dims, dims + count, reinterpret_cast<gsize*>(made + 1));
  return made;
}

GstTensor* gst_tensor_copy(const GstTensor* tensor) {
  auto* copy = static_cast<GstTensor*>(
      g_memdup2(tensor, sizeof(GstTensor) + static_cast<gsize>(tensor->num_dims) * sizeof(gsize)));
  gst_buffer_ref(copy->data);
  return copy;
}

const GstMetaInfo* gst_analytics_relation_meta_get_info(void) {
  static const gchar* tags[] = {nullptr};
  static const GstMetaInfo* const info = gst_meta_register(
      gst_meta_api_type_register("GstAnalyticsRelationMetaAPI", tags), "GstAnalyticsRelationMeta", sizeof(Relations),
      init_relations, [](GstMeta* meta, GstBuffer* /*buffer*/) { delete reinterpret_cast<Relations*>(meta)->known; },
      [](GstBuffer* to, GstMeta* meta, GstBuffer* /*buffer*/, GQuark /*type*/, gpointer /*data*/) -> gboolean {
        auto* copy = gst_buffer_add_meta(to, gst_analytics_relation_meta_get_info(), nullptr);
        *reinterpret_cast<Relations*>(copy)->known = *reinterpret_cast<Relations*>(meta)->known;
        return TRUE;
      });
  return info;
}
GstAnalyticsRelationMeta* gst_buffer_add_analytics_relation_meta(GstBuffer* buffer) {
  return reinterpret_cast<GstAnalyticsRelationMeta*>(
      gst_buffer_add_meta(buffer, gst_analytics_relation_meta_get_info(), nullptr));
}
GstAnalyticsRelationMeta* gst_buffer_add_analytics_relation_meta_full(GstBuffer* buffer,
                                                                      GstAnalyticsRelationMetaInitParams* /*params*/) {
  return gst_buffer_add_analytics_relation_meta(buffer);
}
GstAnalyticsRelationMeta* gst_buffer_get_analytics_relation_meta(GstBuffer* buffer) {
  return reinterpret_cast<GstAnalyticsRelationMeta*>(
      gst_buffer_get_meta(buffer, gst_analytics_relation_meta_get_info()->api));
}

gboolean gst_analytics_relation_meta_add_oriented_od_mtd(GstAnalyticsRelationMeta* meta, GQuark type, gint x, gint y,
                                                         gint width, gint height, gfloat rotation, gfloat confidence,
                                                         GstAnalyticsMtd* made) {
  return add(meta, {detection, type, x, y, width, height, rotation, confidence}, made);
}
gboolean gst_analytics_relation_meta_add_od_mtd(GstAnalyticsRelationMeta* meta, GQuark type, gint x, gint y, gint width,
                                                gint height, gfloat confidence, GstAnalyticsMtd* made) {
  return gst_analytics_relation_meta_add_oriented_od_mtd(meta, type, x, y, width, height, 0, confidence, made);
}
gboolean gst_analytics_relation_meta_add_cls_mtd(GstAnalyticsRelationMeta* meta, gsize count, gfloat* levels,
                                                 GQuark* classes, GstAnalyticsMtd* made) {
  Thing thing{.type = classification};
  thing.levels.assign(levels, levels + count);
  thing.classes.assign(classes, classes + count);
  return add(meta, thing, made);
}
gboolean gst_analytics_relation_meta_add_tracking_mtd(GstAnalyticsRelationMeta* meta, guint64 id,
                                                      GstClockTime first_seen, GstAnalyticsMtd* made) {
  Thing thing{.type = tracking};
  thing.id = id;
  thing.first_seen = thing.last_seen = first_seen;
  return add(meta, thing, made);
}
gpointer gst_analytics_relation_meta_add_mtd(GstAnalyticsRelationMeta* meta, gconstpointer type, gsize /*size*/,
                                             GstAnalyticsMtd* made) {
  add(meta, {.type = reinterpret_cast<GstAnalyticsMtdType>(type)}, made);
  return nullptr;
}

gboolean gst_analytics_relation_meta_iterate(GstAnalyticsRelationMeta* meta, gpointer* state,
                                             GstAnalyticsMtdType /*type*/, GstAnalyticsMtd* one) {
  const auto at = reinterpret_cast<guintptr>(*state);
  if (at >= things_of(meta).size()) return FALSE;
  *one = {static_cast<guint>(at), meta};
  *state = reinterpret_cast<gpointer>(at + 1);
  return TRUE;
}
gboolean gst_analytics_relation_meta_set_relation(GstAnalyticsRelationMeta* meta, GstAnalyticsRelTypes type,
                                                  guint first, guint second) {
  g_return_val_if_fail(first < things_of(meta).size() && second < things_of(meta).size(), FALSE);
  known_of(meta).relations[{first, second}] = type;
  return TRUE;
}
GstAnalyticsRelTypes gst_analytics_relation_meta_get_relation(const GstAnalyticsRelationMeta* meta, guint first,
                                                              guint second) {
  const auto& relations = reinterpret_cast<const Relations*>(meta)->known->relations;
  const auto found = relations.find({first, second});
  return found != relations.end() ? found->second : GST_ANALYTICS_REL_TYPE_NONE;
}

GstAnalyticsMtdType gst_analytics_mtd_get_mtd_type(const GstAnalyticsMtd* one) {
  return thing_of(one).type;
}
GstAnalyticsMtdType gst_analytics_od_mtd_get_mtd_type(void) {
  return detection;
}
GstAnalyticsMtdType gst_analytics_cls_mtd_get_mtd_type(void) {
  return classification;
}
GstAnalyticsMtdType gst_analytics_tracking_mtd_get_mtd_type(void) {
  return tracking;
}

gboolean gst_analytics_od_mtd_get_oriented_location(const GstAnalyticsMtd* one, gint* x, gint* y, gint* width,
                                                    gint* height, gfloat* rotation, gfloat* confidence) {
  const Thing& thing = thing_of(one);
  *x = thing.x;
  *y = thing.y;
  *width = thing.width;
  *height = thing.height;
  *rotation = thing.rotation;
  *confidence = thing.confidence;
  return TRUE;
}
gboolean gst_analytics_od_mtd_get_location(const GstAnalyticsMtd* one, gint* x, gint* y, gint* width, gint* height,
                                           gfloat* confidence) {
  gfloat rotation = 0;
  return gst_analytics_od_mtd_get_oriented_location(one, x, y, width, height, &rotation, confidence);
}
GQuark gst_analytics_od_mtd_get_obj_type(const GstAnalyticsMtd* one) {
  return thing_of(one).label;
}
gsize gst_analytics_cls_mtd_get_length(const GstAnalyticsMtd* one) {
  return thing_of(one).levels.size();
}
gfloat gst_analytics_cls_mtd_get_level(const GstAnalyticsMtd* one, gsize at) {
  return thing_of(one).levels.at(at);
}
GQuark gst_analytics_cls_mtd_get_quark(const GstAnalyticsMtd* one, gsize at) {
  return thing_of(one).classes.at(at);
}
gboolean gst_analytics_tracking_mtd_get_info(const GstAnalyticsMtd* one, guint64* id, GstClockTime* first_seen,
                                             GstClockTime* last_seen, gboolean* lost) {
  const Thing& thing = thing_of(one);
  *id = thing.id;
  *first_seen = thing.first_seen;
  *last_seen = thing.last_seen;
  *lost = thing.lost;
  return TRUE;
}
gboolean gst_analytics_tracking_mtd_update_last_seen(GstAnalyticsMtd* one, GstClockTime last_seen) {
  thing_of(one).last_seen = last_seen;
  return TRUE;
}
gboolean gst_analytics_tracking_mtd_set_lost(GstAnalyticsMtd* one) {
  thing_of(one).lost = TRUE;
  return TRUE;
}

#pragma GCC visibility pop

}  // extern "C"

}  // namespace gpumap::gst
