// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "gst/channel/channel.hpp"

namespace gpumap::gst {

/// What leaves a gpumapsrc: caps as downstream likes them, buffers that are the slots.
/// Thread safety: the streaming thread only.
class SrcOutput {
 public:
  /// Whether upstream can give anything of `wanted`, which is in system memory.
  using UpstreamGives = std::function<bool(GstCaps* wanted)>;

  SrcOutput(GstPad* pad, UpstreamGives upstream_gives) : pad_(pad), upstream_gives_(std::move(upstream_gives)) {}
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
  /// Downstream takes these caps no more, and upstream, which hears of it, can give others. Frames under the old ones
  /// are still on their way; downstream may refuse them.
  [[nodiscard]] bool awaits_caps() const noexcept { return awaits_caps_; }
  /// A frame was refused: see whether that is so. An element that converts accepts what it cannot convert any more, and
  /// the RECONFIGURE that says so may still be on its way here.
  [[nodiscard]] bool await_caps();
  [[nodiscard]] bool has_caps() const noexcept { return upstream_ != nullptr; }
  /// Some of downstream reads GPU memory: it could do nothing with a copy in host memory.
  [[nodiscard]] bool needs_gpu_memory() const noexcept { return gpu_ || kernel_behind_; }
  /// Every frame lies in GPU memory. From any thread.
  [[nodiscard]] bool gives_gpu_caps() const noexcept { return gpu_; }
  /// How many buffers downstream keeps, as it says itself in the ALLOCATION query for the caps of the moment.
  [[nodiscard]] std::uint32_t kept_buffers() const noexcept { return kept_buffers_; }

  enum class Memory { slot, copy };
  /// Make the buffer (transfer full): the frame's carrier (which may be null) plus its slot, or a copy of that in host
  /// memory. Throws Error.
  [[nodiscard]] GstBuffer* wrap(Channel::Next&& frame, Memory memory) const;
  /// A buffer of wrap() for the downstream of the moment (both transfer full). Throws Error.
  [[nodiscard]] GstBuffer* fit(GstBuffer* buffer) const;

 private:
  [[nodiscard]] bool push_caps(GstCaps* caps);
  bool ask_allocation(GstCaps* caps);  ///< false: downstream does not answer
  [[nodiscard]] bool stays_plain(GstCaps* plain);
  [[nodiscard]] bool default_layout_only() const noexcept { return video_ && !gpu_ && !reads_video_meta_; }

  [[nodiscard]] bool upstream_gives_others() const;

  GstPad* pad_;
  UpstreamGives upstream_gives_;
  GstCaps* upstream_ = nullptr;
  bool negotiated_ = false;
  bool agreed_ = false;  ///< downstream once took these caps of upstream's
  bool awaits_caps_ = false;
  bool plain_for_branch_ = false;  ///< though another branch of a tee names GPU memory
  GstVideoInfo info_{};
  std::atomic<bool> gpu_{false};
  bool kernel_behind_ = false;     ///< a gpumapkernel follows, whatever the caps
  bool video_ = false;             ///< info_ holds
  bool reads_video_meta_ = false;  ///< downstream does
  std::uint32_t kept_buffers_ = 0;
};

}  // namespace gpumap::gst
