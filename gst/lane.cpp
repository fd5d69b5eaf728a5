// SPDX-License-Identifier: MIT
#include "lane.hpp"

namespace gpumap::gst {

Lane::~Lane() {
  for (auto& carrier : carriers_) {
    if (GstBuffer* buffer = carrier.load(std::memory_order_relaxed)) gst_buffer_unref(buffer);
  }
}

void Lane::put(std::uint32_t slot, GstBuffer* carrier) {
  // A frame that was dropped from the queue leaves its carrier behind.
  if (GstBuffer* old = carriers_[slot].exchange(carrier, std::memory_order_acq_rel)) gst_buffer_unref(old);
}

GstBuffer* Lane::take(std::uint32_t slot) {
  return carriers_[slot].exchange(nullptr, std::memory_order_acq_rel);
}

}  // namespace gpumap::gst
