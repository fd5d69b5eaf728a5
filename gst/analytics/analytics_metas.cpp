// SPDX-License-Identifier: MIT
#include "gst/analytics/analytics_metas.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "gst/runtime_library.hpp"

namespace gpumap::gst {

namespace {

AnalyticsLibrary open_library() {
  AnalyticsLibrary made;
  RuntimeLibrary library("libgstanalytics-1.0.so.0");
  const std::string packages = "libgstreamer-plugins-bad1.0-0 of GStreamer ";
#define GPUMAP_GST_ANALYTICS_LOAD(result, name, ...) library.find(#name, made.name);
  GPUMAP_GST_TENSORS(GPUMAP_GST_ANALYTICS_LOAD)
  made.tensors_problem = library.problem(packages + "1.26 or newer", "1.26");
  GPUMAP_GST_RELATIONS(GPUMAP_GST_ANALYTICS_LOAD)
  made.relations_problem = library.problem(packages + "1.24 or newer", "1.24");
  GPUMAP_GST_ORIENTED(GPUMAP_GST_ANALYTICS_LOAD)
#undef GPUMAP_GST_ANALYTICS_LOAD
  return made;
}

}  // namespace

const AnalyticsLibrary& AnalyticsLibrary::get() {
  static const auto* const library = new AnalyticsLibrary(open_library());
  return *library;
}

namespace {

constexpr std::pair<NumberType, GstTensorDataType> types[] = {
    {NumberType::u8, GST_TENSOR_DATA_TYPE_UINT8},    {NumberType::i8, GST_TENSOR_DATA_TYPE_INT8},
    {NumberType::u16, GST_TENSOR_DATA_TYPE_UINT16},  {NumberType::i16, GST_TENSOR_DATA_TYPE_INT16},
    {NumberType::u32, GST_TENSOR_DATA_TYPE_UINT32},  {NumberType::i32, GST_TENSOR_DATA_TYPE_INT32},
    {NumberType::u64, GST_TENSOR_DATA_TYPE_UINT64},  {NumberType::i64, GST_TENSOR_DATA_TYPE_INT64},
    {NumberType::f16, GST_TENSOR_DATA_TYPE_FLOAT16}, {NumberType::f32, GST_TENSOR_DATA_TYPE_FLOAT32},
    {NumberType::f64, GST_TENSOR_DATA_TYPE_FLOAT64},
};

GstTensorDataType data_type_of(NumberType type) {
  return std::find_if(std::begin(types), std::end(types), [type](const auto& one) { return one.first == type; })
      ->second;
}

/// `call` each meta of tensors that `buffer` has, until one call says true.
template <typename Call>
void each_meta(GstBuffer* buffer, Call call) {
  gpointer any = nullptr;
  if (gst_buffer_iterate_meta(buffer, &any) == nullptr) return;
  const GType api = g_type_from_name("GstTensorMetaAPI");
  if (api == 0) return;  // no one in this process has made one
  // Before GStreamer 1.26 its onnxinference had a meta of this name that is another struct.
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  if (!library.tensors_problem.empty()) return;
  const GstMetaInfo* const known = library.gst_tensor_meta_get_info();
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta_filtered(buffer, &state, api)) {
    if (meta->info == known && call(*reinterpret_cast<GstTensorMeta*>(meta))) return;
  }
}

void remove(GstTensorMeta& meta, GQuark id) {
  gsize kept = 0;
  for (gsize i = 0; i < meta.num_tensors; ++i) {
    if (meta.tensors[i]->id == id) {
      AnalyticsLibrary::get().gst_tensor_free(meta.tensors[i]);
    } else {
      meta.tensors[kept++] = meta.tensors[i];
    }
  }
  meta.num_tensors = kept;
}

}  // namespace

// gst_buffer_add_tensor_meta() of 1.26 would give one that is there.
void add_tensor_meta(GstBuffer* buffer, const std::vector<GstTensor*>& tensors) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  auto* meta =
      reinterpret_cast<GstTensorMeta*>(gst_buffer_add_meta(buffer, library.gst_tensor_meta_get_info(), nullptr));
  auto** array = g_new(GstTensor*, tensors.size());
  std::copy(tensors.begin(), tensors.end(), array);
  library.gst_tensor_meta_set(meta, static_cast<guint>(tensors.size()), array);
}

void add_tensors(GstBuffer* buffer, std::span<const NewTensor> tensors) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  std::vector<GstTensor*> made;
  for (const NewTensor& tensor : tensors) {
    const GQuark id = g_quark_from_string(tensor.id.c_str());
    each_meta(buffer, [id](GstTensorMeta& meta) {
      remove(meta, id);
      return false;
    });
    std::vector<gsize> dims(tensor.dims.begin(), tensor.dims.end());
    made.push_back(library.gst_tensor_new_simple(id, data_type_of(tensor.type), tensor.data,
                                                 GST_TENSOR_DIM_ORDER_ROW_MAJOR, dims.size(), dims.data()));
  }
  add_tensor_meta(buffer, made);
}

const GstTensor* find_tensor(GstBuffer* buffer, const std::string& id) {
  const GQuark wanted = g_quark_try_string(id.c_str());
  if (wanted == 0) return nullptr;  // nobody has used that name yet; tensors without one have 0, too
  const GstTensor* found = nullptr;
  each_meta(buffer, [&](GstTensorMeta& meta) {
    for (gsize i = 0; i < meta.num_tensors && found == nullptr; ++i) {
      if (meta.tensors[i]->id == wanted) found = meta.tensors[i];
    }
    return found != nullptr;
  });
  return found;
}

std::string tensor_ids(GstBuffer* buffer) {
  std::string ids;
  each_meta(buffer, [&](GstTensorMeta& meta) {
    for (gsize i = 0; i < meta.num_tensors; ++i) {
      const gchar* id = g_quark_to_string(meta.tensors[i]->id);
      ids += std::string(ids.empty() ? "" : ", ") + (id != nullptr ? id : "one without a name");
    }
    return false;
  });
  return ids.empty() ? "none" : ids;
}

std::optional<NumberType> type_of(const GstTensor& tensor) {
  const auto* found =
      std::find_if(std::begin(types), std::end(types), [&](const auto& one) { return one.second == tensor.data_type; });
  if (found == std::end(types)) return {};
  return found->first;
}

void copy_tensors(GstBuffer* to, GstBuffer* from) {
  each_meta(from, [&](GstTensorMeta& meta) {
    if (meta.meta.info->transform_func != nullptr) return true;
    std::vector<GstTensor*> copies;
    for (gsize i = 0; i < meta.num_tensors; ++i) {
      copies.push_back(AnalyticsLibrary::get().gst_tensor_copy(meta.tensors[i]));
    }
    add_tensor_meta(to, copies);
    return false;
  });
}

namespace {

float number_of(ResultType type, std::uint64_t word) {
  switch (type) {
    case ResultType::u64:
      return static_cast<float>(word);
    case ResultType::i64:
      return static_cast<float>(static_cast<std::int64_t>(word));
    case ResultType::f32:
      return std::bit_cast<float>(static_cast<std::uint32_t>(word));
    case ResultType::f64:
      return static_cast<float>(std::bit_cast<double>(word));
  }
  return 0;
}

gint low(std::uint64_t word) {
  return static_cast<gint>(static_cast<std::uint32_t>(word));
}
gint high(std::uint64_t word) {
  return low(word >> 32U);
}

}  // namespace

void add_relations(GstBuffer* buffer, const DeclaredAnalytics& declared,
                   std::span<const std::pair<std::string, ResultType>> results, std::span<const std::uint64_t> words) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  // What others have found out in the same frame stands beside it.
  GstAnalyticsRelationMeta* meta = library.gst_buffer_get_analytics_relation_meta(buffer);
  if (meta == nullptr) meta = library.gst_buffer_add_analytics_relation_meta(buffer);
  if (meta == nullptr) return;
  GstAnalyticsMtd made{};
  if (declared.kind == DeclaredAnalytics::Kind::classification) {
    std::vector<gfloat> levels;
    std::vector<GQuark> classes;
    for (std::size_t i = 0; i < results.size(); ++i) {
      levels.push_back(number_of(results[i].second, words[i]));
      classes.push_back(g_quark_from_string(results[i].first.c_str()));
    }
    library.gst_analytics_relation_meta_add_cls_mtd(meta, levels.size(), levels.data(), classes.data(), &made);
    return;
  }
  const std::uint64_t count = std::min<std::uint64_t>(words[0], (words.size() - 1) / detection_words);
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<const std::uint64_t> one = words.subspan(1 + i * detection_words, detection_words);
    const auto number = static_cast<std::uint32_t>(high(one[2]));
    const GQuark label = number < declared.labels.size() ? g_quark_from_string(declared.labels[number].c_str()) : 0;
    library.gst_analytics_relation_meta_add_od_mtd(meta, label, low(one[0]), high(one[0]), low(one[1]), high(one[1]),
                                                   number_of(ResultType::f32, one[2]), &made);
  }
}

}  // namespace gpumap::gst
