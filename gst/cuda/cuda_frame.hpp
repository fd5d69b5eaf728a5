// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "gpumap/fence.hpp"

namespace gpumap::gst {

/// A buffer in CUDA memory, mapped for the GPU. Ownership: a reference to the buffer and the map, both of which end
/// with this. Empty when default-constructed or moved from. Thread safety: one thread at a time.
class CudaFrame {
 public:
  CudaFrame() = default;
  /// Takes `buffer` and the map of its one memory over; `layout` says where in that its planes lie.
  CudaFrame(GstBuffer* buffer, const GstMapInfo& map, const GstVideoMeta& layout);

  [[nodiscard]] explicit operator bool() const noexcept { return mapped_ != nullptr; }
  [[nodiscard]] std::uint64_t address() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Stays where it is when this is moved. GStreamer 1.22 takes such without const.
  [[nodiscard]] GstVideoMeta& layout() const noexcept { return mapped_->layout; }

  [[nodiscard]] GstMemory* memory() const noexcept { return mapped_->map.memory; }

  /// End the map; the buffer (transfer full).
  [[nodiscard]] GstBuffer* release();

 private:
  struct Mapped {
    Mapped(GstBuffer* buffer_of_it, const GstMapInfo& map_of_it, const GstVideoMeta& layout_of_it)
        : buffer(buffer_of_it), map(map_of_it), layout(layout_of_it) {}
    ~Mapped();
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    GstBuffer* buffer;
    GstMapInfo map;
    GstVideoMeta layout;
  };
  std::unique_ptr<Mapped> mapped_;
};

/// Frames that GPU work still uses when their element has handed its output on, or was flushed. They go back by
/// themselves, some ms after that work at the latest: an upstream with few buffers may need them before it can send
/// anything. The owner waits for that work before it destroys this. Thread safety: every member from any thread.
class CudaLoans {
 public:
  CudaLoans() = default;
  ~CudaLoans();
  CudaLoans(const CudaLoans&) = delete;
  CudaLoans& operator=(const CudaLoans&) = delete;

  /// Nothing for an empty one.
  void keep(CudaFrame frame, const Fence& until);
  /// Let those go whose work is done.
  void sweep();
  /// The work of the oldest one, where there are more than `frames`; else a fence that has been signalled.
  [[nodiscard]] Fence excess(std::size_t frames) const;

 private:
  void watch();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Fence, CudaFrame>> held_;
  bool ended_ = false;
  std::thread watcher_;  ///< from the first frame on
};

}  // namespace gpumap::gst
