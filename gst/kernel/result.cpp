// SPDX-License-Identifier: MIT
#include "gst/kernel/runner.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "gpumap/printable.hpp"
#include "gst/analytics/analytics_metas.hpp"

namespace gpumap::gst {

namespace {

constexpr const char* usual_message = "gpumap-result";
constexpr const char* meta_name = "GpumapResult";
constexpr const char* late_meta_name = "GpumapLateResults";
using Words = ResultBlocks::Words;

void set_words(GstStructure* structure, const Words& words) {
  GValue array = G_VALUE_INIT;
  g_value_init(&array, GST_TYPE_ARRAY);
  for (const std::uint64_t word : words) {
    GValue value = G_VALUE_INIT;
    g_value_init(&value, G_TYPE_UINT64);
    g_value_set_uint64(&value, word);
    gst_value_array_append_and_take_value(&array, &value);
  }
  gst_structure_take_value(structure, "words", &array);
}

void set_fields(GstStructure* structure, const Words& words,
                const std::vector<std::pair<std::string, ResultType>>& fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto& [name, type] = fields[i];
    const auto half = static_cast<std::uint32_t>(words[i]);
    switch (type) {
      case ResultType::u64:
        gst_structure_set(structure, name.c_str(), G_TYPE_UINT64, static_cast<guint64>(words[i]), nullptr);
        break;
      case ResultType::i64:
        gst_structure_set(structure, name.c_str(), G_TYPE_INT64, static_cast<gint64>(words[i]), nullptr);
        break;
      case ResultType::f32:
        gst_structure_set(structure, name.c_str(), G_TYPE_DOUBLE, double{std::bit_cast<float>(half)}, nullptr);
        break;
      case ResultType::f64:
        gst_structure_set(structure, name.c_str(), G_TYPE_DOUBLE, std::bit_cast<double>(words[i]), nullptr);
        break;
    }
  }
}

}  // namespace

void KernelResult::collect(KernelLauncher& launcher) {
  while (!kept_.empty()) {
    auto words = launcher.next_result();
    if (!words) return;
    read(kept_.front(), std::move(*words));
    kept_.pop_front();
  }
}

void KernelResult::forget() {
  kept_.clear();
  found_.reset();
  messages_.clear();
  for_meta_.clear();
}

void KernelResult::tell(GstStructure* to, const Words& words) const {
  if (!rule_.fields.empty()) {
    set_fields(to, words, rule_.fields);
  } else {
    set_words(to, words);
  }
}

void KernelResult::read(const Of& of, Words words) {
  const bool none = std::all_of(words.begin(), words.end(), [](std::uint64_t word) { return word == 0; });
  if (none && rule_.fields.empty()) return;  // by a name, zero is a figure like any other

  const char* name = rule_.message.empty() ? usual_message : rule_.message.c_str();
  Ptr<GstStructure> message(gst_structure_new(
      name, "kernel", G_TYPE_STRING, printable(rule_.kernel).c_str(), "bytes", G_TYPE_UINT64,
      static_cast<guint64>(of.bytes), "sequence", G_TYPE_UINT64, static_cast<guint64>(of.sequence), "pts",
      G_TYPE_UINT64, static_cast<guint64>(of.pts), "offset", G_TYPE_UINT64, static_cast<guint64>(of.offset), nullptr));
  tell(message.get(), words);
  if (late_) {
    for_meta_.emplace_back(gst_structure_copy(message.get()));
  } else {
    found_ = std::move(words);
  }
  messages_.push_back(std::move(message));
}

void KernelResult::put_on(GstBuffer* out) {
  // A meta that is there is of a kernel before. Of the same bytes, what it says holds beside ours.
  const auto structure_of = [out](const char* name) -> GstStructure* {
    GstCustomMeta* meta = gst_buffer_get_custom_meta(out, name);
    if (meta == nullptr) meta = gst_buffer_add_custom_meta(out, name);
    return meta != nullptr ? gst_custom_meta_get_structure(meta) : nullptr;
  };
  if (const auto found = std::exchange(found_, std::nullopt)) {
    if (GstStructure* structure = structure_of(meta_name)) tell(structure, *found);
    if (rule_.analytics) add_relations(out, rule_.analytics, rule_.fields, *found);
  }
  if (for_meta_.empty()) return;
  GstStructure* structure = structure_of(late_meta_name);
  if (structure == nullptr) return;
  GValue results = G_VALUE_INIT;
  g_value_init(&results, GST_TYPE_ARRAY);
  if (const GValue* before = gst_structure_get_value(structure, "results")) g_value_copy(before, &results);
  for (const Ptr<GstStructure>& one : for_meta_) {
    GValue value = G_VALUE_INIT;
    g_value_init(&value, GST_TYPE_STRUCTURE);
    gst_value_set_structure(&value, one.get());
    gst_value_array_append_and_take_value(&results, &value);
  }
  for_meta_.clear();
  gst_structure_take_value(structure, "results", &results);
}

GstStructure* KernelResult::take_message() noexcept {
  if (messages_.empty()) return nullptr;
  GstStructure* message = messages_.front().release();
  messages_.pop_front();
  return message;
}

void remove_result_meta(GstBuffer* buffer) {
  gpointer any = nullptr;
  if (gst_buffer_iterate_meta(buffer, &any) == nullptr) return;  // to look for a name takes longer
  while (GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, meta_name))
    gst_buffer_remove_meta(buffer, &meta->meta);
}

}  // namespace gpumap::gst
