// SPDX-License-Identifier: MIT
#include "gst/analytics/relations.hpp"

#include <algorithm>
#include <bit>

#include "gst/analytics/analytics_library.hpp"

namespace gpumap::gst {

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
