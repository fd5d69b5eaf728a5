// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gpumap/device.hpp"
#include "gst/channel/channel.hpp"
#include "gst/cuda/cuda_slots.hpp"
#include "gst/stopping.hpp"

namespace gpumap::gst {

/// The elements at the two ends of a ring, in messages.
struct ElementNames {
  const char* takes = "gpumapsink";  ///< frames from upstream
  const char* gives = "gpumapsrc";   ///< them to downstream
};

/// Why what follows `pad` does not take these caps, in memory:GPUMap or in system memory, and what to do about it.
[[nodiscard]] std::string refusal_text(GstPad* pad, const GstCaps* caps, const ElementNames& names);

/// What leaves gpumapsrc and gpumapupload: caps as downstream likes them, buffers that are the slots.
/// Thread safety: the streaming thread only, except where a member says otherwise.
class SrcOutput {
 public:
  struct Moment {
    bool flushing = false;
    bool playing = false;
  };
  /// What the output asks of its element.
  struct Hooks {
    /// Whether upstream can give anything of `wanted`, which is in system memory.
    std::function<bool(GstCaps* wanted)> upstream_gives;
    std::function<Moment()> moment;
    std::function<std::string()> device;  ///< which GPU has the slots, as Device::open() takes it; from any thread
  };
  /// The ring, in messages.
  struct RingNames {
    ElementNames elements;
    std::string where;          ///< behind "of the 8 slots": of channel "left"; empty: the element's own
    bool is_elsewhere = false;  ///< another process's: it does not grow here
  };

  /// Both are the element's, which outlives this.
  SrcOutput(GstElement* element, GstPad* pad, Hooks hooks);
  ~SrcOutput();
  SrcOutput(const SrcOutput&) = delete;
  SrcOutput& operator=(const SrcOutput&) = delete;

  void reset();
  /// At each start.
  void begin(RingNames names);
  /// Upstream's caps (system memory) arrived. They take effect with negotiate(): upstream elements may try some caps
  /// and send others before the first frame.
  void set_caps(GstCaps* upstream);
  /// As gst_pad_check_reconfigure(): downstream changed its mind, or is another one. negotiate() is to follow.
  bool check_reconfigure();
  void forget_keeping() noexcept { keeps_ = false; }  ///< a flush gave back what downstream kept
  /// Where caps have changed, choose `memory:GPUMap` where downstream names it, else `memory:CUDAMemory` where it names
  /// that and there is CUDA (or takes nothing else), else the plain caps, and push them. An
  /// upstream that named none (filesrc) has bytes: downstream gets no caps, or those of bytes where it names
  /// memory:GPUMap. False when downstream takes neither; refusal() then says why.
  [[nodiscard]] bool negotiate();
  /// Why that is, or why downstream refused a frame.
  [[nodiscard]] std::string refusal() const;
  /// Downstream takes these caps no more, and upstream, which hears of it, can give others. Frames under the old ones
  /// are still on their way; downstream may refuse them.
  [[nodiscard]] bool awaits_caps() const noexcept { return awaits_caps_; }
  /// A frame was refused: see whether that is so. An element that converts accepts what it cannot convert any more, and
  /// the RECONFIGURE that says so may still be on its way here.
  [[nodiscard]] bool await_caps();
  [[nodiscard]] bool has_caps() const noexcept { return upstream_ != nullptr; }
  /// Some of downstream reads GPU memory: it could do nothing with a copy in host memory.
  [[nodiscard]] bool needs_gpu_memory() const noexcept { return gpu_ || cuda_ || kernel_behind_; }
  /// Every frame lies in GPU memory, or that is being decided anew. From any thread.
  [[nodiscard]] bool may_give_gpu_caps() const noexcept {
    return gst_pad_needs_reconfigure(pad_) != 0 || undecided_ || gpu_;
  }
  /// How many buffers downstream keeps, as it says itself in the ALLOCATION query for the caps of the moment.
  [[nodiscard]] std::uint32_t kept_buffers() const noexcept { return kept_buffers_; }

  enum class Memory { slot, copy };
  /// A copy where downstream keeps so many slots that upstream would have none to write into. Waits up to 1 s until
  /// downstream gives one back, while paused without end; a flush ends the wait. Posts a warning once a start. Always a
  /// copy where slots are scarce and downstream reads host memory.
  [[nodiscard]] Memory memory_for(const Channel::Next& frame, Channel& channel);
  /// Frames that left as copies since the start. From any thread.
  [[nodiscard]] guint64 host_copies() const noexcept { return host_copies_.load(std::memory_order_relaxed); }
  /// Frames that were copied within the GPU, into CUDA memory, since the start. From any thread.
  [[nodiscard]] guint64 gpu_copies() const noexcept { return cuda_slots_.copies(); }
  /// Answer a CONTEXT query of a CUDA element downstream. False for any other query. From any thread.
  [[nodiscard]] bool answer_context(GstQuery* query);
  /// Make the buffer (transfer full): the frame's carrier (which may be null) plus its slot, or a copy of that in host
  /// memory. Throws Error.
  [[nodiscard]] GstBuffer* wrap(Channel::Next&& frame, Memory memory);
  /// Push a buffer of wrap() (taken), as the downstream of the last moment reads it. OK where that downstream changed
  /// while the frame was under way and refused it: the frame is lost, see take_loss(). Throws Error.
  [[nodiscard]] GstFlowReturn push(GstBuffer* buffer);
  /// Whether a frame was lost since this was last asked: the next one is to be marked DISCONT.
  [[nodiscard]] bool take_loss() noexcept { return std::exchange(lost_one_, false); }
  void note_loss() noexcept { lost_one_ = true; }

 private:
  [[nodiscard]] GstBuffer* fit(GstBuffer* buffer);
  [[nodiscard]] std::shared_ptr<Device> device() const noexcept;
  [[nodiscard]] bool prefers_cuda(GstCaps* plain) const;
  [[nodiscard]] GstPadProbeReturn fit_at_last(GstPadProbeInfo& info);
  [[nodiscard]] bool waits_for_return(Loans& loans) const;
  void tell_of_keeping(const Channel::Next& frame, bool more_slots);
  [[nodiscard]] bool choose_caps();
  [[nodiscard]] bool push_caps(GstCaps* caps);
  bool ask_allocation(GstCaps* caps);  ///< false: downstream does not answer
  [[nodiscard]] bool stays_plain(GstCaps* plain);
  [[nodiscard]] bool default_layout_only() const noexcept { return video_ && !gpu_ && !cuda_ && !reads_video_meta_; }

  [[nodiscard]] bool upstream_gives_others() const;

  GstElement* element_;
  GstPad* pad_;
  const std::shared_ptr<const Giver> giver_;
  Hooks hooks_;
  RingNames names_;
  GstCaps* upstream_ = nullptr;
  bool negotiated_ = false;
  bool agreed_ = false;  ///< downstream once took these caps of upstream's
  bool awaits_caps_ = false;
  bool plain_for_branch_ = false;  ///< though another branch of a tee names GPU memory
  GstVideoInfo info_{};
  std::atomic<bool> gpu_{false};
  bool gave_gpu_ = false;               ///< downstream once took memory:GPUMap
  std::atomic<bool> undecided_{false};  ///< between a RECONFIGURE and the caps that follow it
  bool cuda_ = false;                   ///< frames go as memory of libgstcuda's
  CudaSlots cuda_slots_;
  std::atomic<bool> context_told_{false};
  bool kernel_behind_ = false;     ///< a gpumapkernel follows, whatever the caps
  bool video_ = false;             ///< info_ holds
  bool reads_video_meta_ = false;  ///< downstream does
  std::uint32_t kept_buffers_ = 0;
  bool keeps_ = false;  ///< downstream was seen to keep slots: it gets copies once it has too many
  bool keeping_told_ = false;
  bool lost_one_ = false;      ///< the last frame went to no one
  std::exception_ptr failed_;  ///< the last frame, at the last moment
  std::atomic<guint64> host_copies_{0};
};

/// The caps of an upstream that names none.
inline constexpr const char* bytes_name = "application/octet-stream";

}  // namespace gpumap::gst
