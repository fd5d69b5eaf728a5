// SPDX-License-Identifier: MIT
//
// A libgstanalytics that is made up, for systems whose GStreamer has none or one without tensors: as much of it as
// gpumap and its tests call, and no transform of tensors, as in GStreamer 1.26. Where the real one is, tests run with
// that.
#include "gst/analytics/analytics_api.hpp"

#include <algorithm>
#include <vector>

namespace gpumap::gst {
namespace {

struct Thing {
  GQuark label = 0;
  gint x = 0, y = 0, width = 0, height = 0;
  gfloat confidence = 0;
  std::vector<gfloat> levels;  ///< of a classification
  std::vector<GQuark> classes;
};

struct Relations {
  GstMeta meta;
  std::vector<Thing>* things;
};

gboolean init_tensors(GstMeta* meta, gpointer /*params*/, GstBuffer* /*buffer*/) {
  reinterpret_cast<GstTensorMeta*>(meta)->num_tensors = 0;
  reinterpret_cast<GstTensorMeta*>(meta)->tensors = nullptr;
  return TRUE;
}

gsize bytes_of(GstTensorDataType type) {
  switch (type) {
    case GST_TENSOR_DATA_TYPE_INT8:
    case GST_TENSOR_DATA_TYPE_UINT8:
      return 1;
    case GST_TENSOR_DATA_TYPE_INT16:
    case GST_TENSOR_DATA_TYPE_UINT16:
    case GST_TENSOR_DATA_TYPE_FLOAT16:
      return 2;
    case GST_TENSOR_DATA_TYPE_INT32:
    case GST_TENSOR_DATA_TYPE_UINT32:
    case GST_TENSOR_DATA_TYPE_FLOAT32:
      return 4;
    default:
      return 8;
  }
}

gboolean init_relations(GstMeta* meta, gpointer /*params*/, GstBuffer* /*buffer*/) {
  reinterpret_cast<Relations*>(meta)->things = new std::vector<Thing>;
  return TRUE;
}

const GstMetaInfo* relations_info() {
  static const gchar* tags[] = {nullptr};
  static const GstMetaInfo* const info = gst_meta_register(
      gst_meta_api_type_register("GstAnalyticsRelationMetaAPI", tags), "GstAnalyticsRelationMeta", sizeof(Relations),
      init_relations, [](GstMeta* meta, GstBuffer* /*buffer*/) { delete reinterpret_cast<Relations*>(meta)->things; },
      [](GstBuffer* to, GstMeta* meta, GstBuffer* /*buffer*/, GQuark /*type*/, gpointer /*data*/) -> gboolean {
        auto* copy = reinterpret_cast<Relations*>(gst_buffer_add_meta(to, relations_info(), nullptr));
        *copy->things = *reinterpret_cast<Relations*>(meta)->things;
        return TRUE;
      });
  return info;
}

std::vector<Thing>& things_of(GstAnalyticsRelationMeta* meta) {
  return *reinterpret_cast<Relations*>(meta)->things;
}
const Thing& thing_of(const GstAnalyticsMtd* one) {
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
  gsize bytes = bytes_of(type);
  for (gsize i = 0; i < count; ++i) bytes *= dims[i];
  g_return_val_if_fail(gst_buffer_get_size(data) == bytes, nullptr);
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

GstAnalyticsRelationMeta* gst_buffer_add_analytics_relation_meta(GstBuffer* buffer) {
  return reinterpret_cast<GstAnalyticsRelationMeta*>(gst_buffer_add_meta(buffer, relations_info(), nullptr));
}
GstAnalyticsRelationMeta* gst_buffer_get_analytics_relation_meta(GstBuffer* buffer) {
  return reinterpret_cast<GstAnalyticsRelationMeta*>(gst_buffer_get_meta(buffer, relations_info()->api));
}
gboolean gst_analytics_relation_meta_add_od_mtd(GstAnalyticsRelationMeta* meta, GQuark type, gint x, gint y, gint width,
                                                gint height, gfloat confidence, GstAnalyticsMtd* made) {
  return add(meta, {type, x, y, width, height, confidence, {}, {}}, made);
}
gboolean gst_analytics_relation_meta_add_cls_mtd(GstAnalyticsRelationMeta* meta, gsize count, gfloat* levels,
                                                 GQuark* classes, GstAnalyticsMtd* made) {
  return add(meta, {0, 0, 0, 0, 0, 0, {levels, levels + count}, {classes, classes + count}}, made);
}

// What the tests read it by.
gboolean gst_analytics_relation_meta_iterate(GstAnalyticsRelationMeta* meta, gpointer* state, guintptr /*type*/,
                                             GstAnalyticsMtd* one) {
  const auto at = reinterpret_cast<guintptr>(*state);
  if (at >= things_of(meta).size()) return FALSE;
  *one = {static_cast<guint>(at), meta};
  *state = reinterpret_cast<gpointer>(at + 1);
  return TRUE;
}
gboolean gst_analytics_od_mtd_get_location(const GstAnalyticsMtd* one, gint* x, gint* y, gint* width, gint* height,
                                           gfloat* confidence) {
  const Thing& thing = thing_of(one);
  *x = thing.x;
  *y = thing.y;
  *width = thing.width;
  *height = thing.height;
  *confidence = thing.confidence;
  return TRUE;
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

#pragma GCC visibility pop

}  // extern "C"

}  // namespace gpumap::gst
