// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_tensors.hpp"

#include <fmt/format.h>

#include <utility>

#include "gpumap/error.hpp"
#include "gst/analytics/analytics_metas.hpp"
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

}  // namespace gpumap::gst
