// SPDX-License-Identifier: MIT
#include "kernel_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpumap/error.hpp"
#include "memory.hpp"
#include "video_layout.hpp"

namespace gpumap::gst {

/// Where an input buffer lies on the GPU.
struct KernelRunner::Input {
  Bytes* bytes = nullptr;
  std::size_t offset = 0;  ///< in the mapping
  std::size_t size = 0;
  std::uint64_t address = 0;
  GstVideoMeta* meta = nullptr;
};

namespace {

constexpr std::size_t result_bytes = GPUMAP_RESULT_WORDS * sizeof(std::uint64_t);

KernelSource source_for(const KernelSettings& settings, const Builtin* builtin, Backend backend) {
  if (builtin != nullptr) return source_of(*builtin, backend);
  return load_kernel_file(settings.location, settings.function);
}

const Builtin* builtin_for(const KernelSettings& settings) {
  if (!settings.location.empty()) return nullptr;
  const Builtin* builtin = find_builtin(settings.kernel);
  if (builtin != nullptr) return builtin;
  std::string names;
  for (const Builtin& known : builtins()) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  throw Error(ErrorCode::invalid, fmt::format("no built-in kernel \"{}\": choose one of {}, or set location to a file",
                                              settings.kernel, names));
}

GstMemory* wrap_host(const std::shared_ptr<OutputPool>& pool, OutputBlock block, std::size_t bytes) {
  struct Loan {
    std::shared_ptr<OutputPool> pool;
    OutputBlock block;
  };
  std::byte* data = block.mapping->host();
  auto* loan = new Loan{pool, std::move(block)};
  return gst_memory_new_wrapped(static_cast<GstMemoryFlags>(0), data, bytes, 0, bytes, loan, [](gpointer data_of_loan) {
    auto* returned = static_cast<Loan*>(data_of_loan);
    returned->pool->give_back(std::move(returned->block));
    delete returned;
  });
}

}  // namespace

KernelRunner::KernelRunner(const KernelSettings& settings)
    : device_(Device::open(settings.device)), builtin_(builtin_for(settings)), backend_(Backend::vulkan) {
  const KernelSource source = source_for(settings, builtin_, settings.backend.value_or(device_->default_backend()));
  backend_ = backend_of(source.language);
  if (!device_->has(backend_)) {
    throw Error(ErrorCode::not_supported,
                fmt::format("{} needs {}, which {} does not have here: {}", source.name,
                            backend_ == Backend::cuda ? "CUDA" : "Vulkan", device_->info().name,
                            backend_ == Backend::cuda ? "give a compute shader (.comp or .spv), or install the NVIDIA "
                                                        "driver and build gpumap with the CUDA Toolkit"
                                                      : "install a Vulkan driver for it"));
  }
  name_ = builtin_ != nullptr ? std::string(builtin_->name) : source.name;
  set_params(settings.params);
  kernel_ = Kernel::load(device_, source);
  queue_ = device_->create_queue(backend_);
  result_ = device_->allocate({.placement = Placement::host, .bytes = result_bytes}, backend_);
  std::memset(result_->host(), 0, result_bytes);
}

KernelRunner::~KernelRunner() {
  queue_.reset();  // waits for the launches in flight: they use the kernel, the result block and the outputs
  if (found_ != nullptr) gst_structure_free(found_);
}

void KernelRunner::set_params(const std::string& params) {
  if (builtin_ != nullptr) {
    apply_parameters(*builtin_, params, frame_.params);
    return;
  }
  std::fill(std::begin(frame_.params), std::end(frame_.params), 0.0F);
  std::size_t at = 0;
  for (const auto& [name, values] : parse_parameters(params)) {
    for (const float value : values) frame_.params[at++] = value;
  }
}

void KernelRunner::set_caps(const GstCaps* in, const GstCaps* out, bool gpu_output, bool downstream_reads_video_meta) {
  in_format_ = FrameFormat::from_caps(in);
  out_format_ = FrameFormat::from_caps(out);
  frame_.color = in_format_.color();
  gpu_output_ = gpu_output;
  video_meta_ok_ = downstream_reads_video_meta;
}

KernelRunner::Input KernelRunner::input_of(GstBuffer* in) const {
  GstMemory* memory = gst_buffer_n_memory(in) == 1 ? gst_buffer_peek_memory(in, 0) : nullptr;
  Bytes* bytes = memory_bytes(memory);
  if (memory == nullptr || bytes == nullptr) {
    throw Error(ErrorCode::invalid,
                "a buffer that is not in GPU memory reached gpumapkernel: feed it from gpumapsrc or "
                "another gpumapkernel, with nothing between that changes frames on the CPU");
  }
  if (bytes->device() != device_) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("a frame in the memory of {} reached a gpumapkernel on {}: give gpumapsink and gpumapkernel "
                    "the same device",
                    bytes->device()->info().name, device_->info().name));
  }
  Input made;
  made.bytes = bytes;
  made.offset = bytes->offset() + memory->offset;
  made.size = memory->size;
  made.address = bytes->mapping().address(backend_);
  if (made.address == 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("{} runs {}, which does not reach the page-locked memory of transport=zero-copy on {}: use "
                            "backend={} on gpumapkernel, or transport=pinned on gpumapsink",
                            name_, backend_ == Backend::cuda ? "CUDA" : "Vulkan", device_->info().name,
                            backend_ == Backend::cuda ? "vulkan" : "cuda"));
  }
  made.address += made.offset;
  made.meta = in_format_.is_video() ? gst_buffer_get_video_meta(in) : nullptr;
  if (made.meta != nullptr) {
    in_format_.check(*made.meta, made.size);
  } else if (made.size < in_format_.image_bytes()) {
    throw Error(ErrorCode::invalid, fmt::format("a frame of {} bytes where the caps say {}: see what upstream sends",
                                                made.size, in_format_.image_bytes()));
  }
  return made;
}

std::size_t KernelRunner::output_bytes(std::size_t input_bytes) const {
  const bool copies = builtin_ != nullptr && (builtin_->in_place || builtin_->name == "identity");
  if (copies) return input_bytes;
  if (out_format_.image_bytes() != 0) return out_format_.image_bytes();
  const std::size_t samples = input_bytes / std::max<std::size_t>(in_format_.bytes_per_sample(), 1);
  return samples * std::max<std::size_t>(out_format_.bytes_per_sample(), 1);
}

OutputBlock KernelRunner::take(std::shared_ptr<OutputPool>& pool, Placement placement, std::size_t bytes) {
  if (!pool || pool->bytes() < bytes) {
    pool = std::make_shared<OutputPool>(device_, backend_, placement, std::max<std::size_t>(bytes, 1));
  }
  return pool->take();
}

bool KernelRunner::wait(const Fence& fence) {
  return fence.wait(no_deadline, std::chrono::microseconds(50), &cancelled_) == WaitResult::ready;
}

void KernelRunner::drain() {
  (void)wait(last_);
}

void KernelRunner::read_result(GstBuffer* out, std::uint64_t sequence) {
  std::uint64_t word = 0;
  result_->invalidate(0, result_bytes);
  std::memcpy(&word, result_->host(), sizeof(word));
  std::memset(result_->host(), 0, result_bytes);
  result_->flush(0, result_bytes);
  if (found_ != nullptr) gst_structure_free(found_);
  found_ = gst_structure_new(
      "gpumap-checksum", "kernel", G_TYPE_STRING, name_.c_str(), "checksum", G_TYPE_UINT64, static_cast<guint64>(word),
      "bytes", G_TYPE_UINT64, static_cast<guint64>(gst_buffer_get_size(out)), "sequence", G_TYPE_UINT64,
      static_cast<guint64>(sequence), "pts", G_TYPE_UINT64, static_cast<guint64>(GST_BUFFER_PTS(out)), nullptr);
  if (GstCustomMeta* meta = gst_buffer_add_custom_meta(out, "GpumapResult")) {
    gst_structure_set(gst_custom_meta_get_structure(meta), "checksum", G_TYPE_UINT64, static_cast<guint64>(word),
                      nullptr);
  }
}

GstStructure* KernelRunner::take_result() noexcept {
  return std::exchange(found_, nullptr);
}

GstBuffer* KernelRunner::run(GstBuffer* in) {
  const Input input = input_of(in);
  const bool in_place = builtin_ != nullptr && builtin_->in_place;
  const std::size_t bytes = output_bytes(input.size);

  OutputBlock device_block;
  if (!in_place) device_block = take(device_pool_, Placement::device, bytes);
  OutputBlock host_block;
  if (!gpu_output_) host_block = take(host_pool_, Placement::host, bytes);

  const bool same_layout = builtin_ != nullptr && (in_place || builtin_->name == "identity");
  frame_.in = in_format_.view(input.address, input.size, input.meta);
  frame_.out =
      in_place ? frame_.in
               : out_format_.view(device_block.mapping->address(backend_), bytes, same_layout ? input.meta : nullptr);
  frame_.sequence = input.bytes->sequence();
  frame_.pts = GST_BUFFER_PTS_IS_VALID(in) ? static_cast<std::int64_t>(GST_BUFFER_PTS(in)) : -1;
  frame_.duration = GST_BUFFER_DURATION_IS_VALID(in) ? static_cast<std::int64_t>(GST_BUFFER_DURATION(in)) : -1;
  frame_.result = result_->address(backend_);

  queue_->wait(input.bytes->written());
  queue_->launch(*kernel_, kernel_->grid_for(frame_), frame_);
  if (!gpu_output_) {
    if (in_place) {
      queue_->copy(input.bytes->mapping(), input.offset, *host_block.mapping, 0, bytes);
    } else {
      queue_->copy(*device_block.mapping, 0, *host_block.mapping, 0, bytes);
    }
  }
  last_ = queue_->submit();
  input.bytes->add_read_fence(last_);
  ++runs_;

  GstBuffer* out = nullptr;
  bool finished = true;
  const bool has_result = builtin_ != nullptr && builtin_->has_result;
  if (has_result || !gpu_output_) finished = wait(last_);
  if (gpu_output_ && in_place) {
    out = gst_buffer_copy(in);
  } else {
    out = gst_buffer_new();
    if (gpu_output_) {
      auto made =
          std::make_unique<Bytes>(device_, std::move(device_block), bytes,
                                  [pool = device_pool_](OutputBlock&& block) { pool->give_back(std::move(block)); });
      made->set_written(last_);
      made->set_sequence(frame_.sequence);
      gst_buffer_append_memory(out, memory_new(wrapping_allocator(), std::move(made), bytes, GST_MEMORY_FLAG_READONLY));
    } else {
      if (!in_place) {
        device_block.readers.push_back(last_);
        device_pool_->give_back(std::move(device_block));
      }
      host_block.readers.push_back(last_);
      host_block.mapping->invalidate(0, bytes);
      gst_buffer_append_memory(out, wrap_host(host_pool_, std::move(host_block), bytes));
    }
    // Metas too; those that describe the input's memory stay behind with it.
    gst_buffer_copy_into(
        out, in,
        static_cast<GstBufferCopyFlags>(static_cast<unsigned>(GST_BUFFER_COPY_FLAGS) | GST_BUFFER_COPY_TIMESTAMPS |
                                        GST_BUFFER_COPY_META | GST_BUFFER_COPY_DEEP),
        0, static_cast<gsize>(-1));
    if (same_layout && input.meta != nullptr) {
      gst_buffer_add_video_meta_full(out, input.meta->flags, input.meta->format, input.meta->width, input.meta->height,
                                     input.meta->n_planes, input.meta->offset, input.meta->stride);
    }
  }
  if (!finished) {
    gst_buffer_unref(out);
    return nullptr;
  }
  if (has_result) read_result(out, frame_.sequence);
  if (!gpu_output_ && !video_meta_ok_ && out_format_.is_video()) out = in_default_layout(out, out_format_.video());
  return out;
}

}  // namespace gpumap::gst
