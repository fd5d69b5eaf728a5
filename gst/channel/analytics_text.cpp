// SPDX-License-Identifier: MIT
#include "gst/channel/analytics_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "gpumap/link.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/channel/new_names.hpp"

namespace gpumap::gst {
namespace {

/// Takes a name's number, 0 of the empty one. Empty: it is invalid, or no room is left for it.
std::optional<GQuark> take_name(ByteReader& text, NewNames& names) {
  const char* const name = text.take_text();
  if (!text.is_whole()) return {};
  if (*name == '\0') return 0;
  return names.admit(name) ? std::optional(g_quark_from_string(name)) : std::nullopt;
}

struct TensorHead {
  std::int32_t type = 0, order = 0;
  std::uint32_t dims = 0, bytes = 0;
};

/// Whether the tensor has as many bytes as its elements take: of any number where one dimension is 0, "dynamic".
bool is_tensor(int type, int order, std::span<const gsize> dims, gsize bytes) {
  constexpr std::uint8_t bits[] = {4, 8, 16, 32, 64, 4, 8, 16, 32, 64, 16, 32, 64, 16};  // by GstTensorDataType of 1.26
  const bool known = type >= 0 && static_cast<std::size_t>(type) < std::size(bits) &&
                     (order == GST_TENSOR_DIM_ORDER_ROW_MAJOR || order == GST_TENSOR_DIM_ORDER_COL_MAJOR);
  if (!known || dims.empty()) return false;
  gsize elements = 1;
  for (const gsize dim : dims) {
    if (dim == 0) return true;
    if (__builtin_mul_overflow(elements, dim, &elements)) return false;
  }
  return elements / 2 <= bytes && (elements * bits[type] + 7) / 8 == bytes;
}

GstTensor* take_tensor(ByteReader& text, NewNames& names) {
  const auto head = text.take<TensorHead>();
  const auto id = take_name(text, names);
  std::vector<gsize> dims;
  for (std::uint32_t dim = 0; text.is_whole() && dim < head.dims; ++dim) dims.push_back(text.take<std::uint64_t>());
  const auto bytes = text.take_bytes(head.bytes);
  if (!text.is_whole() || !id || !is_tensor(head.type, head.order, dims, bytes.size())) return nullptr;
  GstBuffer* const data = bytes.empty() ? gst_buffer_new() : gst_buffer_new_memdup(bytes.data(), bytes.size());
  return AnalyticsLibrary::get().gst_tensor_new_simple(*id, static_cast<GstTensorDataType>(head.type), data,
                                                       static_cast<GstTensorDimOrder>(head.order), dims.size(),
                                                       dims.data());
}

// Things are as many as the text's first number says; relations between them follow to its end.
enum class Thing : std::uint8_t { detection = 1, classification = 2, tracking = 3 };

struct Detection {
  gint x = 0, y = 0, width = 0, height = 0;
  gfloat rotation = 0, confidence = 0;
  /// The library turns the box, in int.
  [[nodiscard]] bool is_sane() const {
    constexpr gint most = std::numeric_limits<gint>::max() / 4;
    return x > -most && x < most && y > -most && y < most && width >= 0 && width < most && height >= 0 &&
           height < most && std::isfinite(rotation) && std::isfinite(confidence);
  }
};
struct Tracking {
  guint64 id = 0;
  GstClockTime first_seen = 0, last_seen = 0;
  guint64 lost = 0;
};
struct Relation {
  std::uint32_t first = 0, second = 0;  ///< places among the things
  std::uint32_t types = 0;
};

bool put_detection(LinkText& text, const GstAnalyticsMtd& one) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  Detection read;
  if (library.gst_analytics_od_mtd_get_oriented_location != nullptr) {
    library.gst_analytics_od_mtd_get_oriented_location(&one, &read.x, &read.y, &read.width, &read.height,
                                                       &read.rotation, &read.confidence);
  } else {
    library.gst_analytics_od_mtd_get_location(&one, &read.x, &read.y, &read.width, &read.height, &read.confidence);
  }
  put(text, Thing::detection);
  put_text(text, g_quark_to_string(library.gst_analytics_od_mtd_get_obj_type(&one)));
  put(text, read);
  return read.is_sane();
}

bool take_detection(GstAnalyticsRelationMeta* meta, ByteReader& text, NewNames& names, GstAnalyticsMtd& made) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  const auto label = take_name(text, names);
  const auto read = text.take<Detection>();
  if (!text.is_whole() || !label || !read.is_sane()) return false;
  if (read.rotation == 0) {
    return library.gst_analytics_relation_meta_add_od_mtd(meta, *label, read.x, read.y, read.width, read.height,
                                                          read.confidence, &made) != 0;
  }
  return library.gst_analytics_relation_meta_add_oriented_od_mtd != nullptr &&
         library.gst_analytics_relation_meta_add_oriented_od_mtd(meta, *label, read.x, read.y, read.width, read.height,
                                                                 read.rotation, read.confidence, &made) != 0;
}

bool put_classification(LinkText& text, const GstAnalyticsMtd& one) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  const gsize count = library.gst_analytics_cls_mtd_get_length(&one);
  put(text, Thing::classification);
  put(text, static_cast<std::uint32_t>(count));
  for (gsize i = 0; i < count; ++i) {
    const gfloat level = library.gst_analytics_cls_mtd_get_level(&one, i);
    if (!std::isfinite(level)) return false;
    put(text, level);
    put_text(text, g_quark_to_string(library.gst_analytics_cls_mtd_get_quark(&one, i)));
  }
  return count > 0;
}

bool take_classification(GstAnalyticsRelationMeta* meta, ByteReader& text, NewNames& names, GstAnalyticsMtd& made) {
  const auto count = text.take<std::uint32_t>();
  std::vector<gfloat> levels;
  std::vector<GQuark> classes;
  while (levels.size() < count) {
    levels.push_back(text.take<gfloat>());
    const auto name = take_name(text, names);
    if (!name || !std::isfinite(levels.back())) return false;
    classes.push_back(*name);
  }
  return count > 0 && AnalyticsLibrary::get().gst_analytics_relation_meta_add_cls_mtd(meta, count, levels.data(),
                                                                                      classes.data(), &made) != 0;
}

bool put_tracking(LinkText& text, const GstAnalyticsMtd& one) {
  Tracking read;
  gboolean lost = FALSE;
  AnalyticsLibrary::get().gst_analytics_tracking_mtd_get_info(&one, &read.id, &read.first_seen, &read.last_seen, &lost);
  read.lost = lost != FALSE ? 1 : 0;
  put(text, Thing::tracking);
  put(text, read);
  return true;
}

bool take_tracking(GstAnalyticsRelationMeta* meta, ByteReader& text, GstAnalyticsMtd& made) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  const auto read = text.take<Tracking>();
  if (!text.is_whole() ||
      library.gst_analytics_relation_meta_add_tracking_mtd(meta, read.id, read.first_seen, &made) == 0) {
    return false;
  }
  library.gst_analytics_tracking_mtd_update_last_seen(&made, read.last_seen);
  if (read.lost != 0) library.gst_analytics_tracking_mtd_set_lost(&made);
  return true;
}

/// False: it is of another kind, or nothing that take_thing() would take.
bool put_thing(LinkText& text, const GstAnalyticsMtd& one) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  const GstAnalyticsMtdType type = library.gst_analytics_mtd_get_mtd_type(&one);
  if (type == library.gst_analytics_od_mtd_get_mtd_type()) return put_detection(text, one);
  if (type == library.gst_analytics_cls_mtd_get_mtd_type()) return put_classification(text, one);
  return type == library.gst_analytics_tracking_mtd_get_mtd_type() && put_tracking(text, one);
}

bool take_thing(GstAnalyticsRelationMeta* meta, ByteReader& text, NewNames& names, GstAnalyticsMtd& made) {
  switch (text.take<Thing>()) {
    case Thing::detection:
      return take_detection(meta, text, names, made);
    case Thing::classification:
      return take_classification(meta, text, names, made);
    case Thing::tracking:
      return take_tracking(meta, text, made);
  }
  return false;
}

bool take_relation(GstAnalyticsRelationMeta* meta, ByteReader& text, const std::vector<guint>& ids) {
  constexpr std::uint32_t known = GST_ANALYTICS_REL_TYPE_IS_PART_OF | GST_ANALYTICS_REL_TYPE_CONTAIN |
                                  GST_ANALYTICS_REL_TYPE_RELATE_TO | GST_ANALYTICS_REL_TYPE_N_TO_N;
  const auto read = text.take<Relation>();
  return text.is_whole() && read.first < ids.size() && read.second < ids.size() &&
         AnalyticsLibrary::get().gst_analytics_relation_meta_set_relation(
             meta, static_cast<GstAnalyticsRelTypes>(read.types & known), ids[read.first], ids[read.second]) != 0;
}

}  // namespace

GstTensorMeta* tensors_in(GstMeta* meta) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  const bool is = library.tensors_problem.empty() && meta->info == library.gst_tensor_meta_get_info();
  return is ? reinterpret_cast<GstTensorMeta*>(meta) : nullptr;
}

GstAnalyticsRelationMeta* relations_in(GstMeta* meta) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  const bool is = library.relations_problem.empty() && meta->info == library.gst_analytics_relation_meta_get_info();
  return is ? reinterpret_cast<GstAnalyticsRelationMeta*>(meta) : nullptr;
}

bool put_tensors(LinkText& text, const GstTensorMeta& meta, std::size_t most) {
  for (const GstTensor* const one : std::span(meta.tensors, meta.num_tensors)) {
    const gsize bytes = one->data != nullptr ? gst_buffer_get_size(one->data) : 0;
    const std::span dims(one->dims(), one->num_dims);
    if (one->data == nullptr || one->layout != GST_TENSOR_LAYOUT_CONTIGUOUS ||
        !is_tensor(one->data_type, one->dims_order, dims, bytes)) {
      return false;
    }
    put(text, TensorHead{one->data_type, one->dims_order, static_cast<std::uint32_t>(dims.size()),
                         static_cast<std::uint32_t>(bytes)});
    put_text(text, g_quark_to_string(one->id));
    for (const gsize dim : dims) put(text, std::uint64_t{dim});
    const std::size_t at = text.size();
    if (at > most || bytes > most - at) return false;
    text.resize(at + bytes);
    if (gst_buffer_extract(one->data, 0, text.data() + at, bytes) != bytes) return false;
  }
  return true;
}

bool take_tensors(GstBuffer* carrier, ByteReader& text, NewNames& names) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  if (!library.tensors_problem.empty()) return true;
  std::vector<GstTensor*> made;
  while (!text.empty()) {
    GstTensor* const one = take_tensor(text, names);
    if (one == nullptr) {
      std::for_each(made.begin(), made.end(), library.gst_tensor_free);
      return false;
    }
    made.push_back(one);
  }
  add_tensor_meta(carrier, made);
  return true;
}

unsigned put_relations(LinkText& text, GstAnalyticsRelationMeta* meta, std::size_t most) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  unsigned left_out = 0;
  const std::size_t head = text.size();
  put(text, std::uint32_t{0});
  std::vector<guint> ids;
  gpointer state = nullptr;
  GstAnalyticsMtd one{};
  while (text.size() <= most && library.gst_analytics_relation_meta_iterate(meta, &state, 0, &one) != 0) {
    const std::size_t begin = text.size();
    if (put_thing(text, one)) {
      ids.push_back(one.id);
    } else {
      text.resize(begin);
      ++left_out;
    }
  }
  const auto count = static_cast<std::uint32_t>(ids.size());
  std::memcpy(&text[head], &count, sizeof count);
  for (std::uint32_t first = 0; first < count && text.size() <= most; ++first) {
    for (std::uint32_t second = 0; second < count; ++second) {
      const auto types = library.gst_analytics_relation_meta_get_relation(meta, ids[first], ids[second]);
      if (types != GST_ANALYTICS_REL_TYPE_NONE) put(text, Relation{first, second, types});
    }
  }
  return left_out;
}

bool take_relations(GstBuffer* carrier, ByteReader& text, NewNames& names) {
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  if (!library.relations_problem.empty()) return true;
  const auto count = text.take<std::uint32_t>();
  constexpr std::size_t smallest = 1 + sizeof(std::uint32_t) + sizeof(gfloat) + 1;  // one class without a name
  if (count > max_link_note / smallest) return false;
  if (library.gst_buffer_get_analytics_relation_meta(carrier) != nullptr) return false;
  // Else the library would make its matrix of relations anew for every five things.
  GstAnalyticsRelationMetaInitParams params{std::max<gsize>(count, 5), 1024};
  GstAnalyticsRelationMeta* const meta = library.gst_buffer_add_analytics_relation_meta_full(carrier, &params);
  std::vector<guint> ids;
  bool sound = true;
  while (sound && ids.size() < count) {
    GstAnalyticsMtd made{};
    sound = take_thing(meta, text, names, made);
    ids.push_back(made.id);
  }
  while (sound && !text.empty()) sound = take_relation(meta, text, ids);
  if (!sound) gst_buffer_remove_meta(carrier, reinterpret_cast<GstMeta*>(meta));
  return sound;
}

}  // namespace gpumap::gst
