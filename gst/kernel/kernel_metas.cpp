// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_metas.hpp"

#include <fmt/format.h>
#include <gst/audio/audio.h>
#include <gst/video/video.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {
namespace {

/// What is to be read of a tensor.
TensorInput described(const GstTensor& tensor, const std::string& id, const std::string& kernel) {
  const std::optional<NumberType> type = type_of(tensor);
  const gsize* sizes = tensor.dims();
  TensorInput made;
  made.dims.assign(sizes, sizes + tensor.num_dims);
  // Of one dimension both orders are the same.
  if (!type || (tensor.dims_order != GST_TENSOR_DIM_ORDER_ROW_MAJOR && tensor.num_dims > 1)) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: tensor \"{}\" came {}, and a kernel takes row-major numbers of 8 to 64 bits: "
                            "have upstream give such",
                            kernel, id, type ? "column-major" : "in a type that kernels do not know"));
  }
  made.type = *type;
  return made;
}

/// In memory that the launcher reaches; false: it is not.
bool find_in_gpu_memory(const GstTensor& tensor, const KernelLauncher& launcher, TensorInput& made) {
  GstMemory* memory = gst_buffer_n_memory(tensor.data) == 1 ? gst_buffer_peek_memory(tensor.data, 0) : nullptr;
  FrameMemory* frame = frame_memory(memory);
  if (memory == nullptr || frame == nullptr || frame->is_host() || frame->device() != launcher.shared_device()) {
    return false;
  }
  if (frame->mapping().address(launcher.backend()) == 0) return false;
  const std::size_t offset = frame->offset() + memory->offset;
  if (offset % bytes_of(made.type) != 0) return false;  // a load there would be the kernel's last
  made.mapping = &frame->mapping();
  made.offset = offset;
  made.bytes = memory->size;
  made.written = frame->written();
  made.holder = frame;
  return true;
}

}  // namespace

void check_analytics(const std::string& kernel, const Declaration& declaration, bool late_results) {
  const bool tensors = !declaration.input_tensors.empty() || !declaration.output_tensors.empty();
  if (!tensors && !declaration.analytics) return;
  const AnalyticsLibrary& library = AnalyticsLibrary::get();
  if (tensors && !library.tensors_problem.empty()) {
    throw Error(
        ErrorCode::not_supported,
        fmt::format("kernel {}: it declares {}: {}", kernel,
                    declaration.output_tensors.empty() ? "input-tensor" : "output-tensor", library.tensors_problem));
  }
  if (!declaration.analytics) return;
  if (!library.relations_problem.empty()) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {}: it declares analytics: {}", kernel, library.relations_problem));
  }
  if (late_results) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: it declares analytics, which go with their frame, and late-results is true: "
                            "leave one of them out",
                            kernel));
  }
}

class MappedTensors::Map {
 public:
  /// Throws Error(io).
  Map(GstBuffer* buffer, const std::string& id) : buffer_(buffer) {
    if (gst_buffer_map(buffer, &info_, GST_MAP_READ) == 0) {
      throw Error(ErrorCode::io, fmt::format("the memory of tensor \"{}\" cannot be mapped for the CPU: see what "
                                             "upstream sends",
                                             id));
    }
    gst_buffer_ref(buffer);
  }
  ~Map() {
    gst_buffer_unmap(buffer_, &info_);
    gst_buffer_unref(buffer_);
  }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {reinterpret_cast<const std::byte*>(info_.data), info_.size};
  }

 private:
  GstBuffer* buffer_;
  GstMapInfo info_{};
};

void MappedTensors::Unmap::operator()(Map* map) const {
  delete map;
}

/// In memory of GStreamer's own CUDA elements that the launcher reaches; false: it is not.
bool MappedTensors::find_in_cuda_memory(const GstTensor& tensor, const KernelLauncher& launcher, CudaFrames& cuda,
                                        TensorInput& made) {
  GstMemory* memory = gst_buffer_n_memory(tensor.data) == 1 ? gst_buffer_peek_memory(tensor.data, 0) : nullptr;
  if (launcher.backend() != Backend::cuda || !is_cuda_memory_of(launcher.device(), memory)) return false;
  CudaFrame mapped = cuda.map_bytes(tensor.data);
  cancelled_ = !mapped;
  if (cancelled_ || mapped.address() % bytes_of(made.type) != 0) return false;
  made.address = mapped.address();
  made.bytes = mapped.bytes();
  lent_.push_back(std::move(mapped));
  return true;
}

MappedTensors::MappedTensors(GstBuffer* in, const KernelLauncher& launcher, CudaFrames& cuda) {
  for (std::size_t i = 0; i < launcher.declaration().input_tensors.size(); ++i) {
    // No reference: for CUDA memory a kernel that stayed on the GPU is loaded anew.
    const std::string id = launcher.declaration().input_tensors[i].id;
    const GstTensor* tensor = find_tensor(in, id);
    if (tensor == nullptr) {
      throw Error(
          ErrorCode::invalid,
          fmt::format("kernel {}: it takes tensor \"{}\", and a frame came with these: {}: put an element before "
                      "it that gives it",
                      launcher.name(), id, tensor_ids(in)));
    }
    TensorInput made = described(*tensor, id, launcher.name());
    if (!find_in_gpu_memory(*tensor, launcher, made) && !find_in_cuda_memory(*tensor, launcher, cuda, made)) {
      if (cancelled_) return;
      maps_.emplace_back(new Map(tensor->data, id));
      made.host = maps_.back()->bytes();
    }
    tensors_.push_back(std::move(made));
  }
}

void put_tensors(GstBuffer* out, GstMemory* memory, const KernelLauncher& launcher,
                 const std::function<GstMemory*(GstMemory* part)>& convert) {
  const Ptr<GstMemory> all(memory);
  std::vector<Ptr<GstMemory>> parts;
  for (const TensorOutput& one : launcher.tensors()) {
    GstMemory* part = gst_memory_share(memory, static_cast<gssize>(one.offset), static_cast<gssize>(one.bytes));
    parts.emplace_back(convert(part));
  }
  std::vector<NewTensor> tensors;
  for (const TensorOutput& one : launcher.tensors()) {
    const DeclaredTensor& what = launcher.declaration().output_tensors[tensors.size()];
    GstBuffer* data = gst_buffer_new();
    gst_buffer_append_memory(data, parts[tensors.size()].release());
    tensors.push_back({.id = what.id, .type = what.type, .dims = one.dims, .data = data});
  }
  add_tensors(out, tensors);
}

void put_tensor(GstBuffer* out, const TensorShape& shape, const std::string& id) {
  // GStreamer asserts that a tensor has the bytes that its dimensions take.
  if (gst_buffer_get_size(out) != shape.bytes() || !AnalyticsLibrary::get().tensors_problem.empty()) return;
  GstBuffer* data = gst_buffer_new();
  for (guint i = 0; i < gst_buffer_n_memory(out); ++i) gst_buffer_append_memory(data, gst_buffer_get_memory(out, i));
  const NewTensor tensor{.id = id, .type = shape.type, .dims = shape.dims, .data = data};
  add_tensors(out, {&tensor, 1});
}

namespace {

bool has_tag(const GstMetaInfo& info, GQuark tag) {
  return gst_meta_api_type_has_tag(info.api, tag) != 0;
}

/// Looked up once: each look takes a lock of the whole process.
struct Quarks {
  GQuark memory = g_quark_from_static_string(GST_META_TAG_MEMORY_STR);
  GQuark memory_reference = g_quark_from_static_string(GST_META_TAG_MEMORY_REFERENCE_STR);
  GQuark rate = g_quark_from_static_string(GST_META_TAG_AUDIO_RATE_STR);
  GQuark channels = g_quark_from_static_string(GST_META_TAG_AUDIO_CHANNELS_STR);
  GQuark colors = g_quark_from_static_string(GST_META_TAG_VIDEO_COLORSPACE_STR);
  GQuark size = g_quark_from_static_string(GST_META_TAG_VIDEO_SIZE_STR);
  GQuark copy = g_quark_from_static_string("gst-copy");
};

const Quarks& quarks() {
  static const Quarks found;
  return found;
}

/// The same field in both, or in neither.
bool agree(const GstStructure* one, const GstStructure* other, const char* field) {
  return g_strcmp0(gst_structure_get_string(one, field), gst_structure_get_string(other, field)) == 0;
}

std::pair<gint, gint> size_of(const GstStructure* structure) {
  std::pair<gint, gint> size;
  gst_structure_get_int(structure, "width", &size.first);
  gst_structure_get_int(structure, "height", &size.second);
  return size;
}

void copy(GstBuffer* out, GstMeta* meta, GstBuffer* in) {
  GstMetaTransformCopy all{FALSE, 0, static_cast<gsize>(-1)};
  if (meta->info->transform_func != nullptr) {
    meta->info->transform_func(out, meta, in, quarks().copy, &all);
  }
}

/// A length or a place along one axis, of `shown` pixels that become `size`.
guint scaled(gint64 length, gint shown, gint size) {
  return static_cast<guint>(length * size / shown);
}

void move_region(GstBuffer* out, const GstVideoRegionOfInterestMeta& region, const MetaRule::Picture& picture) {
  const gint64 left = std::max<gint64>(gint64{region.x} - picture.x, 0);
  const gint64 top = std::max<gint64>(gint64{region.y} - picture.y, 0);
  const gint64 right = std::min<gint64>(gint64{region.x} + region.w - picture.x, picture.shown_width);
  const gint64 bottom = std::min<gint64>(gint64{region.y} + region.h - picture.y, picture.shown_height);
  if (left >= right || top >= bottom) return;  // not shown
  GstVideoRegionOfInterestMeta* moved = gst_buffer_add_video_region_of_interest_meta_id(
      out, region.roi_type, scaled(left, picture.shown_width, picture.width),
      scaled(top, picture.shown_height, picture.height), scaled(right - left, picture.shown_width, picture.width),
      scaled(bottom - top, picture.shown_height, picture.height));
  moved->id = region.id;
  moved->parent_id = region.parent_id;
  for (const GList* param = region.params; param != nullptr; param = param->next) {
    gst_video_region_of_interest_meta_add_param(moved, gst_structure_copy(static_cast<GstStructure*>(param->data)));
  }
}

void move(GstBuffer* out, GstMeta* meta, GstBuffer* in, const MetaRule::Picture& picture) {
  if (meta->info->api == GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE) {
    move_region(out, *reinterpret_cast<GstVideoRegionOfInterestMeta*>(meta), picture);
    return;
  }
  // Of the rest GStreamer knows how to scale, not to crop.
  if (picture.x != 0 || picture.y != 0 || meta->info->transform_func == nullptr) return;
  GstVideoInfo from;
  GstVideoInfo to;
  gst_video_info_set_format(&from, GST_VIDEO_FORMAT_RGB, static_cast<guint>(picture.shown_width),
                            static_cast<guint>(picture.shown_height));
  gst_video_info_set_format(&to, GST_VIDEO_FORMAT_RGB, static_cast<guint>(picture.width),
                            static_cast<guint>(picture.height));
  GstVideoMetaTransform sizes{&from, &to};
  meta->info->transform_func(out, meta, in, gst_video_meta_transform_scale_get_quark(), &sizes);
}

}  // namespace

MetaRule meta_rule(const std::optional<Crop>& crop, bool keeps_bytes, const GstCaps* in, const GstCaps* out) {
  const GstStructure* from = gst_caps_get_structure(in, 0);
  const GstStructure* to = gst_caps_get_structure(out, 0);
  MetaRule rule;
  rule.keeps_bytes = keeps_bytes;
  rule.keeps_colors = keeps_bytes || (g_strcmp0(gst_structure_get_name(from), gst_structure_get_name(to)) == 0 &&
                                      agree(from, to, "format") && agree(from, to, "colorimetry"));
  const auto [width, height] = size_of(from);
  const auto [out_width, out_height] = size_of(to);
  if (width <= 0 || height <= 0 || out_width <= 0 || out_height <= 0) return rule;
  MetaRule::Picture picture{.shown_width = width, .shown_height = height, .width = out_width, .height = out_height};
  if (crop) {
    picture.x = crop->width.start;
    picture.y = crop->height.start;
    picture.shown_width = crop->width.shown_of(width);
    picture.shown_height = crop->height.shown_of(height);
  }
  // Any other kernel may have turned the picture, or put several into one.
  if (crop || !picture.is_moved()) rule.picture = picture;
  return rule;
}

void copy_metas(GstBuffer* out, GstBuffer* in, const MetaRule& rule) {
  const Quarks& tags = quarks();
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(in, &state)) {
    const GstMetaInfo& info = *meta->info;
    if (has_tag(info, tags.memory) || has_tag(info, tags.memory_reference)) continue;
    if (!rule.keeps_bytes) {
      if (info.api == GST_AUDIO_META_API_TYPE) continue;  // where each channel's plane lies
      if (has_tag(info, tags.rate) || has_tag(info, tags.channels)) continue;
      if (has_tag(info, tags.colors) && !rule.keeps_colors) continue;
      const bool has_size = has_tag(info, tags.size) || info.api == GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE;
      if (has_size && !rule.picture) continue;
      if (has_size && rule.picture->is_moved()) {
        move(out, meta, in, *rule.picture);
        continue;
      }
    }
    copy(out, meta, in);
  }
}

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
