// SPDX-License-Identifier: MIT
#include "gpumap/frame_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

/// Where each begins in memory that has several: whatever a vector load asks for.
constexpr std::size_t alignment = 256;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

std::uint64_t count_of(std::span<const std::uint64_t> dims) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : dims) count *= size;
  return count;
}

/// Of elements of `one` byte each, as many as a kernel is shown; empty: a size or all of it cannot be told to it.
std::optional<std::size_t> bytes_of_all(std::span<const std::uint64_t> dims, std::size_t one) {
  constexpr std::uint64_t most = std::uint64_t{1} << 62U;
  std::uint64_t bytes = one;
  for (const std::uint64_t size : dims) {
    if (size > std::numeric_limits<gpumap_u32>::max() || (size != 0 && bytes > most / size)) return {};
    bytes *= size;
  }
  return bytes;
}

gpumap_tensor shown(std::uint64_t address, std::span<const std::uint64_t> dims) {
  gpumap_tensor made{};
  made.address = address;
  made.count = count_of(dims);
  made.rank = static_cast<gpumap_u32>(dims.size());
  std::fill(std::begin(made.dims), std::end(made.dims), 1);
  for (std::size_t i = 0; i < dims.size(); ++i) made.dims[i] = static_cast<gpumap_u32>(dims[i]);
  return made;
}

bool fits(std::span<const std::uint64_t> wanted, std::span<const std::uint64_t> has) {
  return std::equal(wanted.begin(), wanted.end(), has.begin(), has.end(),
                    [](std::uint64_t one, std::uint64_t other) { return one == 0 || one == other; });
}

}  // namespace

FrameTensors::FrameTensors(std::shared_ptr<Device> device, Backend backend, std::string kernel,
                           std::vector<DeclaredTensor> inputs, std::vector<DeclaredTensor> outputs, bool guarded)
    : device_(std::move(device)),
      backend_(backend),
      kernel_(std::move(kernel)),
      declared_inputs_(std::move(inputs)),
      declared_outputs_(std::move(outputs)),
      guarded_(guarded) {}

void FrameTensors::begin(const gpumap_view& in) {
  const std::pair<std::string_view, std::uint64_t> variables[] = {
      {"width", in.width}, {"height", in.height}, {"rate", in.rate}, {"channels", in.channels}};
  std::vector<std::vector<std::uint64_t>> inputs;
  std::vector<TensorOutput> outputs;
  std::size_t bytes = 0;
  try {
    for (const DeclaredTensor& tensor : declared_inputs_) inputs.push_back(dims_of(tensor, variables));
    for (const DeclaredTensor& tensor : declared_outputs_) {
      TensorOutput made{.dims = dims_of(tensor, variables), .offset = bytes};
      made.bytes = count_of(made.dims) * bytes_of(tensor.type);
      bytes += aligned(made.bytes + (guarded_ ? BoundsCheck::guard_bytes : 0));
      outputs.push_back(std::move(made));
    }
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("kernel {}: {}", kernel_, error.what()));
  }
  inputs_ = std::move(inputs);
  outputs_ = std::move(outputs);
  output_bytes_ = bytes;
  // Else a queue of small frames would hold tensors as large as the largest that came before.
  for (const auto& pool : {output_pool_, copy_pool_}) {
    if (pool) pool->begin();
  }
}

void FrameTensors::check(std::span<const TensorInput> in) const {
  if (in.size() != declared_inputs_.size()) {
    throw Error(ErrorCode::invalid, fmt::format("kernel {}: {} tensors came with a frame, and it declares {}: give one "
                                                "for each line input-tensor",
                                                kernel_, in.size(), declared_inputs_.size()));
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    const DeclaredTensor& declared = declared_inputs_[i];
    if (in[i].type != declared.type || !fits(inputs_[i], in[i].dims)) {
      throw Error(ErrorCode::invalid,
                  fmt::format("kernel {}: tensor \"{}\" is {} {}, and the line input-tensor says {} {}: change one of "
                              "them",
                              kernel_, declared.id, to_string(in[i].type), dims_text(in[i].dims),
                              to_string(declared.type), dims_text(inputs_[i])));
    }
    const auto needed = bytes_of_all(in[i].dims, bytes_of(declared.type));
    if (!needed) {
      throw Error(ErrorCode::invalid, fmt::format("kernel {}: tensor \"{}\" of {} is larger than any memory: see what "
                                                  "upstream sends",
                                                  kernel_, declared.id, dims_text(in[i].dims)));
    }
    const std::size_t has = in[i].is_on_gpu() ? in[i].bytes : in[i].host.size();
    if (has < *needed) {
      throw Error(ErrorCode::invalid,
                  fmt::format("kernel {}: tensor \"{}\" has {} bytes, and {} of {} take {}: see what upstream sends",
                              kernel_, declared.id, has, to_string(declared.type), dims_text(in[i].dims), *needed));
    }
  }
}

bool FrameTensors::take(std::span<const TensorInput> in, const std::atomic<bool>& cancelled, Room& room) {
  check(in);
  std::size_t copied = 0;
  for (const TensorInput& tensor : in) copied += aligned(tensor.is_on_gpu() ? 0 : tensor.host.size());
  if (copied != 0) {
    room.copied = BlockPool::lend(copy_pool_, device_, backend_, Placement::host, copied, cancelled);
    if (!room.copied) return false;
  }
  std::size_t at = 0;
  for (const TensorInput& tensor : in) {
    if (tensor.is_on_gpu() || tensor.host.empty()) continue;  // of no elements there may be no memory
    std::memcpy(room.copied.mapping().host() + at, tensor.host.data(), tensor.host.size());
    at += aligned(tensor.host.size());
  }
  if (room.copied) room.copied.mapping().flush(0, copied);
  if (output_bytes_ == 0) return true;
  room.outputs = BlockPool::lend(output_pool_, device_, backend_, Placement::device, output_bytes_, cancelled);
  return static_cast<bool>(room.outputs);
}

std::vector<BoundsCheck::Range> FrameTensors::ranges(const Room& room) const {
  std::vector<BoundsCheck::Range> made;
  for (std::size_t i = 0; room.outputs && i < outputs_.size(); ++i) {
    made.push_back({.memory = &room.outputs.mapping(),
                    .end = outputs_[i].offset + outputs_[i].bytes,
                    .bytes = outputs_[i].bytes,
                    .what = fmt::format("its tensor \"{}\"", declared_outputs_[i].id),
                    .remedy = fmt::format("frame.out_tensors[{}]'s count and dims", i)});
  }
  return made;
}

void FrameTensors::show(std::span<const TensorInput> in, const Room& room, Queue& queue, gpumap_frame& frame) const {
  std::size_t copied = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].mapping != nullptr) {
      frame.in_tensors[i] = shown(in[i].mapping->address(backend_) + in[i].offset, in[i].dims);
    } else if (in[i].address != 0) {
      frame.in_tensors[i] = shown(in[i].address, in[i].dims);
    } else if (in[i].host.empty()) {
      frame.in_tensors[i] = shown(0, in[i].dims);
    } else {
      frame.in_tensors[i] = shown(room.copied.mapping().address(backend_) + copied, in[i].dims);
      copied += aligned(in[i].host.size());
    }
  }
  if (!room.outputs) return;
  queue.clear(room.outputs.mapping(), 0, output_bytes_);
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    frame.out_tensors[i] = shown(room.outputs.mapping().address(backend_) + outputs_[i].offset, outputs_[i].dims);
  }
}

}  // namespace gpumap
