// SPDX-License-Identifier: MIT
#include "memory/gpu_mapping.hpp"

#include <fmt/format.h>

#include <array>

#include "gpumap/error.hpp"
#include "gpumap/memory.hpp"

namespace gpumap {

void GpuMapping::check_range(std::size_t offset, std::size_t bytes, const char* what) const {
  if (offset <= this->bytes() && bytes <= this->bytes() - offset) return;
  throw Error(ErrorCode::invalid, fmt::format("{} of {} bytes at offset {} leaves the mapping of {} bytes", what, bytes,
                                              offset, this->bytes()));
}

void GpuMapping::flush(std::size_t offset, std::size_t bytes) const {
  check_range(offset, bytes, "flush");
  if (coherent_ || bytes == 0 || host() == nullptr) return;
  flushes_.fetch_add(1, std::memory_order_relaxed);
  flush_range(offset, bytes);
}

void GpuMapping::invalidate(std::size_t offset, std::size_t bytes) const {
  check_range(offset, bytes, "invalidate");
  if (coherent_ || bytes == 0 || host() == nullptr) return;
  flushes_.fetch_add(1, std::memory_order_relaxed);
  invalidate_range(offset, bytes);
}

Fence GpuMapping::upload(std::size_t offset, std::size_t bytes) const {
  flush(offset, bytes);
  return {};
}

UniqueFd GpuMapping::export_fd() const {
  throw Error(ErrorCode::not_supported, "page-locked host memory cannot be exported: export device memory instead");
}

MemoryExport GpuMapping::export_memory() const {
  throw Error(ErrorCode::not_supported,
              "page-locked host memory (transport=pinned or zero-copy) cannot be passed to another process: use "
              "transport=bar");
}

const GpuMapping& own_mapping(const Mapping& mapping, const GpuDevice& device) {
  const auto* own = dynamic_cast<const GpuMapping*>(&mapping);
  if (own == nullptr || &own->device() != &device) {
    throw Error(ErrorCode::invalid, "the mapping belongs to another device than the queue: copy through host memory");
  }
  return *own;
}

void check_copy(const GpuMapping& from, std::size_t from_offset, const GpuMapping& to, std::size_t to_offset,
                std::size_t bytes) {
  from.check_range(from_offset, bytes, "copy from");
  to.check_range(to_offset, bytes, "copy to");
  if (&from == &to && from_offset < to_offset + bytes && to_offset < from_offset + bytes) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("copy of {} bytes from offset {} to {} of the same mapping overlaps: copy through other memory",
                    bytes, from_offset, to_offset));
  }
}

std::uint64_t cuda_address(const GpuMapping& mapping, const char* what) {
  if (const std::uint64_t address = mapping.address(Backend::cuda); address != 0) return address;
  throw Error(
      ErrorCode::invalid,
      fmt::format("{}: host memory that was allocated for Vulkan has no CUDA address: use a queue of Vulkan", what));
}

void check_clear(const GpuMapping& mapping, std::size_t offset, std::size_t bytes) {
  mapping.check_range(offset, bytes, "clear");
  if (offset % 4 == 0 && bytes % 4 == 0) return;
  throw Error(ErrorCode::invalid,
              fmt::format("clear of {} bytes at offset {}: both have to be multiples of 4", bytes, offset));
}

VulkanExport export_to_vulkan(const Mapping& mapping) {
  const auto* own = dynamic_cast<const GpuMapping*>(&mapping);
  if (own == nullptr) {
    throw Error(ErrorCode::not_supported, "memory that is not the GPU's cannot be exported: copy it through the host");
  }
  MemoryExport memory = own->export_memory();
  return {memory.fd.release(), memory.allocation_bytes, memory.buffer_bytes, memory.base, memory.memory_type};
}

namespace {

struct Row {
  std::string_view name;
  Placement placement;
};
/// In the order of Transport.
constexpr std::array rows{
    Row{"bar", Placement::bar},
    Row{"pinned", Placement::mirrored},
    Row{"zero-copy", Placement::host},
    Row{"pageable", Placement::mirrored_pageable},
};
static_assert(rows.size() == all_transports.size() &&
                  static_cast<std::size_t>(all_transports.back()) + 1 == all_transports.size(),
              "a transport lacks a row here, or in all_transports");

}  // namespace

std::string_view to_string(Transport transport) noexcept {
  return rows[static_cast<std::size_t>(transport)].name;
}

Placement placement_of(Transport transport) noexcept {
  return rows[static_cast<std::size_t>(transport)].placement;
}

}  // namespace gpumap
