// SPDX-License-Identifier: MIT
//
// gpumap's own declarations of libgstanalytics against its headers: it compiles where they agree. Built where Meson
// finds them.
#include "gst/analytics/analytics_api.hpp"

namespace gpumap::gst::ours {

#define OURS(result, name, ...) using name = result(__VA_ARGS__);
GPUMAP_GST_TENSORS(OURS)
GPUMAP_GST_RELATIONS(OURS)
GPUMAP_GST_ORIENTED(OURS)
#undef OURS

}  // namespace gpumap::gst::ours

#define GST_USE_UNSTABLE_API
// Its array of dimensions has no length, which C++ does not know.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <gst/analytics/analytics.h>
#pragma GCC diagnostic pop

#include "compare_headers.hpp"

#define OURS gpumap::gst
namespace theirs {

SAME_ENUM(GstTensorDataType)
SAME_ENUM(GstTensorDimOrder)
SAME_ENUM(GstTensorLayout)
#define SAME_VALUE(name) static_assert(int{gpumap::gst::name} == int{::name}, #name);
SAME_VALUE(GST_TENSOR_DATA_TYPE_INT8)
SAME_VALUE(GST_TENSOR_DATA_TYPE_INT16)
SAME_VALUE(GST_TENSOR_DATA_TYPE_INT32)
SAME_VALUE(GST_TENSOR_DATA_TYPE_INT64)
SAME_VALUE(GST_TENSOR_DATA_TYPE_UINT8)
SAME_VALUE(GST_TENSOR_DATA_TYPE_UINT16)
SAME_VALUE(GST_TENSOR_DATA_TYPE_UINT32)
SAME_VALUE(GST_TENSOR_DATA_TYPE_UINT64)
SAME_VALUE(GST_TENSOR_DATA_TYPE_FLOAT16)
SAME_VALUE(GST_TENSOR_DATA_TYPE_FLOAT32)
SAME_VALUE(GST_TENSOR_DATA_TYPE_FLOAT64)
SAME_VALUE(GST_TENSOR_DIM_ORDER_ROW_MAJOR)
SAME_VALUE(GST_TENSOR_DIM_ORDER_COL_MAJOR)
SAME_VALUE(GST_TENSOR_LAYOUT_CONTIGUOUS)
SAME_ENUM(GstAnalyticsRelTypes)
SAME_VALUE(GST_ANALYTICS_REL_TYPE_NONE)
SAME_VALUE(GST_ANALYTICS_REL_TYPE_IS_PART_OF)
SAME_VALUE(GST_ANALYTICS_REL_TYPE_CONTAIN)
SAME_VALUE(GST_ANALYTICS_REL_TYPE_RELATE_TO)
SAME_VALUE(GST_ANALYTICS_REL_TYPE_N_TO_N)
SAME_ALIAS(GstAnalyticsMtdType)
static_assert(GST_ANALYTICS_MTD_TYPE_ANY == 0);

THEIRS(GstAnalyticsRelationMeta)
SAME_STRUCT(GstAnalyticsRelationMetaInitParams)
SAME_MEMBER(GstAnalyticsRelationMetaInitParams, initial_relation_order)
SAME_MEMBER(GstAnalyticsRelationMetaInitParams, initial_buf_size)
SAME_STRUCT(GstAnalyticsMtd)
SAME_MEMBER(GstAnalyticsMtd, id)
SAME_MEMBER(GstAnalyticsMtd, meta)
SAME_STRUCT(GstTensor)
SAME_MEMBER(GstTensor, id)
SAME_MEMBER(GstTensor, layout)
SAME_MEMBER(GstTensor, data_type)
SAME_MEMBER(GstTensor, data)
SAME_MEMBER(GstTensor, dims_order)
SAME_MEMBER(GstTensor, num_dims)
static_assert(sizeof(gpumap::gst::GstTensor) == offsetof(::GstTensor, dims));
SAME_STRUCT(GstTensorMeta)
SAME_MEMBER(GstTensorMeta, meta)
SAME_MEMBER(GstTensorMeta, num_tensors)
SAME_MEMBER(GstTensorMeta, tensors)

#define SAME_FUNCTION(result, name, ...) \
  static_assert(std::is_same_v<Theirs<gpumap::gst::ours::name>::type, decltype(::name)>, #name " differs");
GPUMAP_GST_TENSORS(SAME_FUNCTION)
GPUMAP_GST_RELATIONS(SAME_FUNCTION)
GPUMAP_GST_ORIENTED(SAME_FUNCTION)

}  // namespace theirs

int main() {}
