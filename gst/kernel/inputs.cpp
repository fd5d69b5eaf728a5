// SPDX-License-Identifier: MIT
// What a KernelRunner hands a kernel beside the frame at hand: tables from files, and the frames before.
#include "gst/kernel/inputs.hpp"

#include "gst/cuda/memory.hpp"
#include "gst/kernel/runner.hpp"

namespace gpumap::gst {

std::unique_ptr<Tables> tables_of(const KernelPlan& plan, const KernelSettings& settings,
                                  const std::shared_ptr<Device>& device) {
  if (plan.declaration.tables.empty() && settings.tables.empty()) return nullptr;
  return std::make_unique<Tables>(device, backend_of(plan.source.language), plan.source.name, plan.declaration.tables,
                                  settings.tables);
}

std::string KernelRunner::refresh_tables() {
  return tables_ ? tables_->refresh(last_) : std::string();
}

void KernelRunner::lend_inputs(bool gap) {
  if (tables_) tables_->lend(frame_);
  if (!history_) return;
  if (gap) history_->forget();
  history_->lend(frame_);
}

void KernelRunner::remember(const Input& input) {
  if (!history_) return;
  if (input.bytes != nullptr) {
    queue_->copy(input.bytes->mapping(), input.offset, *history_->room(input.size), 0, input.size);
    history_->add(frame_.in, input.address);
    return;
  }
  // In CUDA memory rows lie wherever its allocator put them: the copy has GStreamer's default layout.
  const std::size_t bytes = in_format_.image_bytes();
  const std::uint64_t address = history_->room(bytes)->address(backend_);
  const gpumap_view copied = in_format_.view(address, bytes, nullptr);
  copy_rows(*device_, *queue_, in_format_.video(), in_format_.view(input.address, input.size, input.meta), copied);
  history_->add(declaration_.on_bytes ? FrameFormat().view(address, bytes, nullptr) : copied, address);
}

}  // namespace gpumap::gst
