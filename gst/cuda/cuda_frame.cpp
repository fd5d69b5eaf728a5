// SPDX-License-Identifier: MIT
#include "gst/cuda/cuda_frame.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <vector>

#include "gpumap/thread_schedule.hpp"

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

CudaLoans::~CudaLoans() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  // Ends: the thread looks at ended_ every 2 ms, and asks fences without waiting for them.
  if (watcher_.joinable()) watcher_.join();
}

void CudaLoans::keep(CudaFrame frame, const Fence& until) {
  if (!frame) return;
  {
    const std::lock_guard lock(mutex_);
    held_.emplace_back(until, std::move(frame));
    if (!watcher_.joinable()) {
      watcher_ = start_thread("gpumap-cuda", "frames of CUDA elements", [this] { watch(); });
    }
  }
  changed_.notify_all();
}

void CudaLoans::sweep() {
  std::vector<CudaFrame> done;  // given back outside of the lock: a pool may call anything
  const std::lock_guard lock(mutex_);
  std::erase_if(held_, [&done](auto& loan) {
    if (!loan.first.signalled()) return false;
    done.push_back(std::move(loan.second));
    return true;
  });
}

Fence CudaLoans::excess(std::size_t frames) const {
  const std::lock_guard lock(mutex_);
  return held_.size() > frames ? held_.front().first : Fence();
}

/// The next frame sweeps as a rule. Where none comes, this does.
void CudaLoans::watch() {
  constexpr std::chrono::milliseconds patience{2};
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [this] { return ended_ || !held_.empty(); });
    if (changed_.wait_for(lock, patience, [this] { return ended_; })) return;
    lock.unlock();
    try {
      sweep();
    } catch (const std::exception&) {
      // The device is lost, and the streaming thread finds out.
    }
    lock.lock();
  }
}

}  // namespace gpumap::gst
