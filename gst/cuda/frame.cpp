// SPDX-License-Identifier: MIT
#include "gst/cuda/frame.hpp"

#include <algorithm>

namespace gpumap::gst {

CudaFrame::CudaFrame(GstBuffer* buffer, const GstMapInfo& map, const GstVideoMeta& layout)
    : mapped_(std::make_unique<Mapped>(buffer, map, layout)) {}

CudaFrame::Mapped::~Mapped() {
  gst_memory_unmap(map.memory, &map);
  if (buffer != nullptr) gst_buffer_unref(buffer);
}

std::uint64_t CudaFrame::address() const noexcept {
  return reinterpret_cast<std::uintptr_t>(mapped_->map.data);
}

std::size_t CudaFrame::bytes() const noexcept {
  return mapped_->map.size;
}

GstBuffer* CudaFrame::release() {
  GstBuffer* buffer = std::exchange(mapped_->buffer, nullptr);
  mapped_.reset();
  return buffer;
}

void CudaLoans::sweep() {
  std::erase_if(held_, [](const auto& loan) { return loan.first.signalled(); });
}

}  // namespace gpumap::gst
