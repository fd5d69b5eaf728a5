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
#define GPUMAP_GST_RELATIONS(X)                                                                                     \
  X(GstAnalyticsRelationMeta*, gst_buffer_add_analytics_relation_meta, GstBuffer* buffer)                           \
  X(GstAnalyticsRelationMeta*, gst_buffer_get_analytics_relation_meta, GstBuffer* buffer)                           \
  X(gboolean, gst_analytics_relation_meta_add_od_mtd, GstAnalyticsRelationMeta* meta, GQuark type, gint x, gint y,  \
    gint width, gint height, gfloat confidence, GstAnalyticsMtd* made)                                              \
  X(gboolean, gst_analytics_relation_meta_add_cls_mtd, GstAnalyticsRelationMeta* meta, gsize count, gfloat* levels, \
    GQuark* classes, GstAnalyticsMtd* made)

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
/// One thing that a relation meta says.
struct GstAnalyticsMtd {
  guint id;
  GstAnalyticsRelationMeta* meta;
};

}  // namespace gpumap::gst
