// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_tensors.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/analytics/analytics_library.hpp"
#include "gst/analytics/analytics_tensors.hpp"
#include "gst/memory/gpumap_memory.hpp"

namespace gpumap::gst {

namespace {

/// What is to be read of a tensor.
TensorInput described(const GstTensor& tensor, const DeclaredTensor& declared, const std::string& kernel) {
  const std::optional<NumberType> type = type_of(tensor);
  const gsize* sizes = tensor.dims();
  TensorInput made;
  made.dims.assign(sizes, sizes + tensor.num_dims);
  // Of one dimension both orders are the same.
  if (!type || (tensor.dims_order != GST_TENSOR_DIM_ORDER_ROW_MAJOR && tensor.num_dims > 1)) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: tensor \"{}\" came {}, and a kernel takes row-major numbers of 8 to 64 bits: "
                            "have upstream give such",
                            kernel, declared.id, type ? "column-major" : "in a type that kernels do not know"));
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

MappedTensors::MappedTensors(GstBuffer* in, const KernelLauncher& launcher) {
  for (const DeclaredTensor& declared : launcher.declaration().input_tensors) {
    const GstTensor* tensor = find_tensor(in, declared.id);
    if (tensor == nullptr) {
      throw Error(
          ErrorCode::invalid,
          fmt::format("kernel {}: it takes tensor \"{}\", and a frame came with these: {}: put an element before "
                      "it that gives it",
                      launcher.name(), declared.id, tensor_ids(in)));
    }
    TensorInput made = described(*tensor, declared, launcher.name());
    if (!find_in_gpu_memory(*tensor, launcher, made)) {
      maps_.emplace_back(new Map(tensor->data, declared.id));
      made.host = maps_.back()->bytes();
    }
    tensors_.push_back(std::move(made));
  }
}

void put_tensors(GstBuffer* out, GstMemory* memory, const KernelLauncher& launcher) {
  const std::vector<DeclaredTensor>& declared = launcher.declaration().output_tensors;
  std::vector<NewTensor> tensors;
  for (const TensorOutput& one : launcher.tensors()) {
    const DeclaredTensor& what = declared[tensors.size()];
    GstBuffer* data = gst_buffer_new();
    gst_buffer_append_memory(data,
                             gst_memory_share(memory, static_cast<gssize>(one.offset), static_cast<gssize>(one.bytes)));
    tensors.push_back({.id = what.id, .type = what.type, .dims = one.dims, .data = data});
  }
  add_tensors(out, tensors);
  gst_memory_unref(memory);
}

void put_tensor_of_picture(GstBuffer* out, const FrameFormat& format, const std::string& id) {
  const gpumap_u32 name = format.format();
  const bool planar = name >= GPUMAP_FORMAT_RGB_F32_PLANAR && name <= GPUMAP_FORMAT_RGB_U8_PLANAR;
  const bool interleaved = name >= GPUMAP_FORMAT_RGB_F32 && name <= GPUMAP_FORMAT_RGB_U8;
  if (!planar && !interleaved) return;
  const gpumap_view view = format.view(0, 0, nullptr);
  // GStreamer asserts that a tensor has the bytes that its dimensions take.
  if (gst_buffer_get_size(out) != format.image_bytes() || !AnalyticsLibrary::get().tensors_problem.empty()) return;
  constexpr std::array types{NumberType::f32, NumberType::f16, NumberType::u8};  // as gpumap_format has them
  const auto type = view.format - (planar ? GPUMAP_FORMAT_RGB_F32_PLANAR : GPUMAP_FORMAT_RGB_F32);
  // A batch of one, as networks take it.
  const std::array<std::uint64_t, 4> dims = planar ? std::array<std::uint64_t, 4>{1, 3, view.height, view.width}
                                                   : std::array<std::uint64_t, 4>{1, view.height, view.width, 3};
  GstBuffer* data = gst_buffer_new();
  for (guint i = 0; i < gst_buffer_n_memory(out); ++i) gst_buffer_append_memory(data, gst_buffer_get_memory(out, i));
  const NewTensor tensor{.id = id, .type = types[type], .dims = dims, .data = data};
  add_tensors(out, {&tensor, 1});
}

}  // namespace gpumap::gst
