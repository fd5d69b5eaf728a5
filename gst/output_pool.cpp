// SPDX-License-Identifier: MIT
#include "output_pool.hpp"

#include <algorithm>
#include <utility>

namespace gpumap::gst {

OutputBlock OutputPool::take() {
  {
    const std::lock_guard lock(mutex_);
    const auto done = [](const Fence& fence) { return fence.signalled(); };
    const auto idle = std::find_if(free_.begin(), free_.end(), [&](const OutputBlock& block) {
      return std::all_of(block.readers.begin(), block.readers.end(), done);
    });
    if (idle != free_.end()) {
      OutputBlock block = std::move(*idle);
      free_.erase(idle);
      block.readers.clear();
      return block;
    }
  }
  return {device_->allocate({.placement = placement_, .bytes = bytes_}, backend_), {}};
}

void OutputPool::give_back(OutputBlock&& block) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(block));
}

}  // namespace gpumap::gst
