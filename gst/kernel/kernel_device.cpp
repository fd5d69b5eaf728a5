// SPDX-License-Identifier: MIT
#include "gst/kernel/kernel_device.hpp"

#include <fmt/format.h>

#include "gpumap/error.hpp"
#include "gst/memory/gpumap_memory.hpp"

namespace gpumap::gst {

const std::shared_ptr<Device>& device_of(GstBuffer* frame) {
  static const auto& none = *new std::shared_ptr<Device>;  // for good: a thread may come here while the process ends
  const FrameMemory* memory =
      gst_buffer_n_memory(frame) == 1 ? frame_memory(gst_buffer_peek_memory(frame, 0)) : nullptr;
  return memory != nullptr ? memory->device() : none;
}

std::shared_ptr<Device> device_to_follow(std::string_view selector, const Device& own,
                                         const std::shared_ptr<Device>& frames) {
  if (!frames || frames.get() == &own) return nullptr;
  if (selector == "auto") return frames;
  const std::string& address = frames->info().pci_address;
  throw Error(
      ErrorCode::invalid,
      fmt::format("a frame in the memory of {} reached a gpumapkernel with device={}, which is {}: leave device "
                  "out, to follow the frames{}",
                  name_of(frames->info()), selector, name_of(own.info()),
                  address.empty() ? "" : fmt::format(", or set device={}", address)));
}

}  // namespace gpumap::gst
