// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/kernel_launcher.hpp"
#include "gst/analytics/analytics_api.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/kernel/foreign_frames.hpp"
#include "gst/kernel/kernel_caps.hpp"
#include "gst/memory/frame_format.hpp"

// Between a kernel's lines `input-tensor` and `output-tensor` and GstTensorMeta.

namespace gpumap::gst {

/// Throws Error where libgstanalytics, which what the kernel declares needs, is not there, or `late_results` does not
/// go with it.
void check_analytics(const std::string& kernel, const Declaration& declaration, bool late_results);

/// The tensors that a kernel takes, as they came with a buffer: where they lie in GPU memory that the launcher reaches,
/// CUDA's own elements' too, or else mapped for the CPU as long as this lives.
class MappedTensors {
 public:
  MappedTensors() = default;
  /// Throws Error(invalid) where one is missing or cannot be taken.
  MappedTensors(GstBuffer* in, const KernelLauncher& launcher, CudaFrames& cuda);
  [[nodiscard]] bool cancelled() const noexcept { return cancelled_; }
  [[nodiscard]] std::vector<TensorInput>&& take() { return std::move(tensors_); }
  /// Those in CUDA memory, to be kept until the kernel has read them.
  [[nodiscard]] std::vector<CudaFrame> take_lent() { return std::exchange(lent_, {}); }

 private:
  class Map;
  struct Unmap {
    void operator()(Map* map) const;
  };
  [[nodiscard]] bool find_in_cuda_memory(const GstTensor& tensor, const KernelLauncher& launcher, CudaFrames& cuda,
                                         TensorInput& made);

  std::vector<TensorInput> tensors_;
  std::vector<std::unique_ptr<Map, Unmap>> maps_;
  std::vector<CudaFrame> lent_;
  bool cancelled_ = false;
};

/// Put the tensors that the launcher declares on `out`. `memory` (transfer full) has them all; `convert` makes of the
/// part of each (transfer full, both) the memory that goes out.
void put_tensors(GstBuffer* out, GstMemory* memory, const KernelLauncher& launcher,
                 const std::function<GstMemory*(GstMemory* part)>& convert);
/// Say on `out`, of application/x-tensor, that its bytes are a tensor, where libgstanalytics is there. `id`: of the
/// caps.
void put_tensor(GstBuffer* out, const TensorShape& shape, const std::string& id);

/// What becomes of a frame's metas in a kernel.
struct MetaRule {
  bool keeps_bytes = true;   ///< what comes out is laid out as what went in: what is said of that holds
  bool keeps_colors = true;  ///< the same format and colorimetry
  /// The part of the input's picture that is shown, and the size at which it is.
  struct Picture {
    gint x = 0, y = 0, shown_width = 0, shown_height = 0;
    gint width = 0, height = 0;
    [[nodiscard]] bool is_moved() const { return x != 0 || y != 0 || shown_width != width || shown_height != height; }
  };
  std::optional<Picture> picture;  ///< empty: what it is of the input's, no one knows
};

/// The rule for a kernel between these caps; `crop`: what one that converts shows of a picture.
[[nodiscard]] MetaRule meta_rule(const std::optional<Crop>& crop, bool keeps_bytes, const GstCaps* in,
                                 const GstCaps* out);

/// Give `out`, which has its memory already, the metas of `in`. Those that describe its memory stay behind; regions of
/// interest and other metas of a size are cropped and scaled with the picture, where they can be.
void copy_metas(GstBuffer* out, GstBuffer* in, const MetaRule& rule);

}  // namespace gpumap::gst
