// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <cstdint>
#include <string>

#include "gst/channel/channel.hpp"

namespace gpumap::gst {

/// What leaves a gpumapsrc: caps as downstream likes them, buffers that are the slots.
/// Thread safety: the streaming thread only.
class SrcOutput {
 public:
  explicit SrcOutput(GstPad* pad) : pad_(pad) {}
  ~SrcOutput();
  SrcOutput(const SrcOutput&) = delete;
  SrcOutput& operator=(const SrcOutput&) = delete;

  void reset();
  /// Upstream's caps (system memory) arrived. They take effect with negotiate(): upstream elements may try some caps
  /// and send others before the first frame.
  void set_caps(GstCaps* upstream);
  void reconsider() noexcept { negotiated_ = false; }  ///< downstream changed its mind
  /// Where caps have changed, choose `memory:GPUMap` where downstream names it, else the plain caps, and push them. An
  /// upstream that named none (filesrc) has bytes: downstream gets no caps, or those of bytes where it names
  /// memory:GPUMap. False when downstream takes neither; refusal() then says why.
  [[nodiscard]] bool negotiate();
  [[nodiscard]] std::string refusal() const;
  [[nodiscard]] bool has_caps() const noexcept { return upstream_ != nullptr; }
  /// Some of downstream reads GPU memory: it could do nothing with a copy in host memory.
  [[nodiscard]] bool needs_gpu_memory() const noexcept { return gpu_ || kernel_behind_; }
  /// How many buffers downstream keeps, as it says itself in the ALLOCATION query for the caps of the moment.
  [[nodiscard]] std::uint32_t kept_buffers() const noexcept { return kept_buffers_; }

  enum class Memory { slot, copy };
  /// Make the buffer (transfer full): the frame's carrier (which may be null) plus its slot, or a copy of that in host
  /// memory. Throws Error.
  [[nodiscard]] GstBuffer* wrap(Channel::Next&& frame, Memory memory) const;

 private:
  [[nodiscard]] bool push_caps(GstCaps* caps);
  void ask_allocation(GstCaps* caps);
  [[nodiscard]] bool default_layout_only() const noexcept { return video_ && !gpu_ && !reads_video_meta_; }

  GstPad* pad_;
  GstCaps* upstream_ = nullptr;
  bool negotiated_ = false;
  bool agreed_ = false;  ///< downstream once took these caps of upstream's
  GstVideoInfo info_{};
  bool gpu_ = false;
  bool kernel_behind_ = false;     ///< a gpumapkernel follows, whatever the caps
  bool video_ = false;             ///< info_ holds
  bool reads_video_meta_ = false;  ///< downstream does
  std::uint32_t kept_buffers_ = 0;
};

}  // namespace gpumap::gst
