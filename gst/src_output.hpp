// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include "gpumap/ring.hpp"

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
  /// Upstream's caps (system memory) arrived, or downstream changed its mind: choose `memory:GPUMap` where downstream
  /// takes it, else the plain caps, and push them. False when downstream takes neither.
  [[nodiscard]] bool negotiate(GstCaps* upstream);
  [[nodiscard]] bool renegotiate();
  [[nodiscard]] bool has_caps() const noexcept { return upstream_ != nullptr; }
  /// Make the buffer (transfer full): `carrier` (taken; may be null) plus the slot.
  [[nodiscard]] GstBuffer* wrap(ReadLease lease, GstBuffer* carrier) const;

 private:
  GstPad* pad_;
  GstCaps* upstream_ = nullptr;
  GstVideoInfo info_{};
  bool gpu_ = false;
  bool default_layout_only_ = false;  ///< downstream reads raw video, but no GstVideoMeta
};

}  // namespace gpumap::gst
