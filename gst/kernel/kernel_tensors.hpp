// SPDX-License-Identifier: MIT
// Between a kernel's lines `input-tensor` and `output-tensor` and GstTensorMeta.
#pragma once

#include <gst/gst.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/kernel_launcher.hpp"
#include "gst/memory/frame_format.hpp"

namespace gpumap::gst {

/// Throws Error where libgstanalytics, which what the kernel declares needs, is not there, or `late_results` does not
/// go with it.
void check_analytics(const std::string& kernel, const Declaration& declaration, bool late_results);

/// The tensors that a kernel takes, as they came with a buffer: where they lie in GPU memory that the launcher reaches,
/// or else mapped for the CPU as long as this lives.
class MappedTensors {
 public:
  MappedTensors() = default;
  /// Throws Error(invalid) where one is missing or cannot be taken.
  MappedTensors(GstBuffer* in, const KernelLauncher& launcher);
  [[nodiscard]] std::vector<TensorInput>&& take() { return std::move(tensors_); }

 private:
  class Map;
  struct Unmap {
    void operator()(Map* map) const;
  };
  std::vector<TensorInput> tensors_;
  std::vector<std::unique_ptr<Map, Unmap>> maps_;
};

/// Put the tensors that the launcher declares on `out`. `memory` (transfer full) has them all.
void put_tensors(GstBuffer* out, GstMemory* memory, const KernelLauncher& launcher);
/// Say on `out`, of application/x-tensor, that its bytes are a tensor, where libgstanalytics is there. `id`: of the
/// caps.
void put_tensor_of_picture(GstBuffer* out, const FrameFormat& format, const std::string& id);

}  // namespace gpumap::gst
