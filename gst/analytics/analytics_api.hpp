// SPDX-License-Identifier: MIT
//
// What gpumap uses of libgstanalytics, declared here: Debian 12 has no such library, and a build there is to find the
// one of the GStreamer that it runs with. Names are its own. tests/unit/gst_analytics_api_test.cpp compares it with the
// headers where they are.
//
// In a namespace, so that a file may include libgstanalytics' headers too.
#pragma once

#include <gst/gst.h>

// X(result, name, parameters...); from GStreamer 1.26 on
#define GPUMAP_GST_TENSORS(X)                                                                                       \
  X(const GstMetaInfo*, gst_tensor_meta_get_info, void)                                                             \
  X(void, gst_tensor_meta_set, GstTensorMeta* meta, guint count, GstTensor** tensors)                               \
  X(GstTensor*, gst_tensor_new_simple, GQuark id, GstTensorDataType type, GstBuffer* data, GstTensorDimOrder order, \
    gsize count, gsize* dims)                                                                                       \
  X(GstTensor*, gst_tensor_copy, const GstTensor* tensor)                                                           \
  X(void, gst_tensor_free, GstTensor* tensor)

// From GStreamer 1.24 on
#define GPUMAP_GST_RELATIONS(X)                                                                                        \
  X(const GstMetaInfo*, gst_analytics_relation_meta_get_info, void)                                                    \
  X(GstAnalyticsRelationMeta*, gst_buffer_add_analytics_relation_meta, GstBuffer* buffer)                              \
  X(GstAnalyticsRelationMeta*, gst_buffer_add_analytics_relation_meta_full, GstBuffer* buffer,                         \
    GstAnalyticsRelationMetaInitParams* params)                                                                        \
  X(GstAnalyticsRelationMeta*, gst_buffer_get_analytics_relation_meta, GstBuffer* buffer)                              \
  X(gboolean, gst_analytics_relation_meta_add_od_mtd, GstAnalyticsRelationMeta* meta, GQuark type, gint x, gint y,     \
    gint width, gint height, gfloat confidence, GstAnalyticsMtd* made)                                                 \
  X(gboolean, gst_analytics_relation_meta_add_cls_mtd, GstAnalyticsRelationMeta* meta, gsize count, gfloat* levels,    \
    GQuark* classes, GstAnalyticsMtd* made)                                                                            \
  X(gboolean, gst_analytics_relation_meta_add_tracking_mtd, GstAnalyticsRelationMeta* meta, guint64 id,                \
    GstClockTime first_seen, GstAnalyticsMtd* made)                                                                    \
  X(gboolean, gst_analytics_relation_meta_iterate, GstAnalyticsRelationMeta* meta, gpointer* state,                    \
    GstAnalyticsMtdType type, GstAnalyticsMtd* one)                                                                    \
  X(GstAnalyticsRelTypes, gst_analytics_relation_meta_get_relation, const GstAnalyticsRelationMeta* meta, guint first, \
    guint second)                                                                                                      \
  X(gboolean, gst_analytics_relation_meta_set_relation, GstAnalyticsRelationMeta* meta, GstAnalyticsRelTypes type,     \
    guint first, guint second)                                                                                         \
  X(GstAnalyticsMtdType, gst_analytics_mtd_get_mtd_type, const GstAnalyticsMtd* one)                                   \
  X(GstAnalyticsMtdType, gst_analytics_od_mtd_get_mtd_type, void)                                                      \
  X(GstAnalyticsMtdType, gst_analytics_cls_mtd_get_mtd_type, void)                                                     \
  X(GstAnalyticsMtdType, gst_analytics_tracking_mtd_get_mtd_type, void)                                                \
  X(GQuark, gst_analytics_od_mtd_get_obj_type, const GstAnalyticsMtd* one)                                             \
  X(gboolean, gst_analytics_od_mtd_get_location, const GstAnalyticsMtd* one, gint* x, gint* y, gint* width,            \
    gint* height, gfloat* confidence)                                                                                  \
  X(gsize, gst_analytics_cls_mtd_get_length, const GstAnalyticsMtd* one)                                               \
  X(gfloat, gst_analytics_cls_mtd_get_level, const GstAnalyticsMtd* one, gsize index)                                  \
  X(GQuark, gst_analytics_cls_mtd_get_quark, const GstAnalyticsMtd* one, gsize index)                                  \
  X(gboolean, gst_analytics_tracking_mtd_get_info, const GstAnalyticsMtd* one, guint64* id, GstClockTime* first_seen,  \
    GstClockTime* last_seen, gboolean* lost)                                                                           \
  X(gboolean, gst_analytics_tracking_mtd_update_last_seen, GstAnalyticsMtd* one, GstClockTime last_seen)               \
  X(gboolean, gst_analytics_tracking_mtd_set_lost, GstAnalyticsMtd* one)

// Of boxes that are turned, from GStreamer 1.26 on
#define GPUMAP_GST_ORIENTED(X)                                                                                       \
  X(gboolean, gst_analytics_relation_meta_add_oriented_od_mtd, GstAnalyticsRelationMeta* meta, GQuark type, gint x,  \
    gint y, gint width, gint height, gfloat rotation, gfloat confidence, GstAnalyticsMtd* made)                      \
  X(gboolean, gst_analytics_od_mtd_get_oriented_location, const GstAnalyticsMtd* one, gint* x, gint* y, gint* width, \
    gint* height, gfloat* rotation, gfloat* confidence)

namespace gpumap::gst {

enum GstTensorDataType {
  GST_TENSOR_DATA_TYPE_INT8 = 1,
  GST_TENSOR_DATA_TYPE_INT16 = 2,
  GST_TENSOR_DATA_TYPE_INT32 = 3,
  GST_TENSOR_DATA_TYPE_INT64 = 4,
  GST_TENSOR_DATA_TYPE_UINT8 = 6,
  GST_TENSOR_DATA_TYPE_UINT16 = 7,
  GST_TENSOR_DATA_TYPE_UINT32 = 8,
  GST_TENSOR_DATA_TYPE_UINT64 = 9,
  GST_TENSOR_DATA_TYPE_FLOAT16 = 10,
  GST_TENSOR_DATA_TYPE_FLOAT32 = 11,
  GST_TENSOR_DATA_TYPE_FLOAT64 = 12,
};
enum GstTensorDimOrder { GST_TENSOR_DIM_ORDER_ROW_MAJOR = 0, GST_TENSOR_DIM_ORDER_COL_MAJOR = 1 };
enum GstTensorLayout { GST_TENSOR_LAYOUT_CONTIGUOUS = 0 };

/// How it begins; `num_dims` sizes follow. The library makes them.
struct GstTensor {
  GQuark id;
  GstTensorLayout layout;
  GstTensorDataType data_type;
  GstBuffer* data;
  GstTensorDimOrder dims_order;
  gsize num_dims;

  [[nodiscard]] const gsize* dims() const { return reinterpret_cast<const gsize*>(this + 1); }
};
struct GstTensorMeta {
  GstMeta meta;
  gsize num_tensors;
  GstTensor** tensors;
};

struct GstAnalyticsRelationMeta;
struct GstAnalyticsRelationMetaInitParams {
  gsize initial_relation_order;
  gsize initial_buf_size;
};
/// Flags.
enum GstAnalyticsRelTypes {
  GST_ANALYTICS_REL_TYPE_NONE = 0,
  GST_ANALYTICS_REL_TYPE_IS_PART_OF = 2,
  GST_ANALYTICS_REL_TYPE_CONTAIN = 4,
  GST_ANALYTICS_REL_TYPE_RELATE_TO = 8,
  GST_ANALYTICS_REL_TYPE_N_TO_N = 16,
};
using GstAnalyticsMtdType = guintptr;  ///< 0: any
/// One thing that a relation meta says.
struct GstAnalyticsMtd {
  guint id;
  GstAnalyticsRelationMeta* meta;
};

}  // namespace gpumap::gst
