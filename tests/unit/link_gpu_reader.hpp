// SPDX-License-Identifier: MIT
// A client of a link whose GPU reads each frame in the producer's memory: the frames are checked behind it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "link_helpers.hpp"
#include "never.hpp"

namespace gpumap::test {

class GpuReader {
 public:
  enum class Read { frame, closed, torn, failed };

  GpuReader(const std::shared_ptr<Device>& device, const std::string& path, LinkLeak leak)
      : queue_(device->create_queue()), consumer_(connect(device, path, leak)), reads_(3) {
    bytes_ = consumer_->ring()->slot_bytes();
    for (Step& read : reads_) read.copy = device->allocate({.placement = Placement::host, .bytes = bytes_});
  }

  /// Let the GPU read the next frame; the one before the last two is then checked.
  [[nodiscard]] Read next() {
    Step& read = reads_[seen_ % reads_.size()];
    if (!is_whole(read)) return Read::torn;
    ReadLease lease;
    const LinkNext next = consumer_->next(lease, read.frame, soon());
    if (next == LinkNext::closed) return Read::closed;
    if (next != LinkNext::frame) return Read::failed;
    read.slot = lease.slot();
    read.used = true;
    if (seen_ == 0) first_ = read.frame.info.sequence;
    last_ = read.frame.info.sequence;
    ++seen_;
    queue_->copy(*consumer_->ring()->mapping(), lease.offset(), *read.copy, 0, bytes_);
    read.fence = queue_->submit();
    lease.add_read_fence(read.fence);
    return Read::frame;  // the lease ends here, and the GPU reads on
  }
  /// Whether all frames so far were whole.
  [[nodiscard]] bool finish() {
    return std::all_of(reads_.begin(), reads_.end(), [this](Step& read) { return is_whole(read); });
  }

  [[nodiscard]] std::uint64_t seen() const { return seen_; }
  /// Frames that came between the first and the last, and were not seen.
  [[nodiscard]] std::uint64_t missed() const { return seen_ == 0 ? 0 : last_ - first_ + 1 - seen_; }
  [[nodiscard]] std::uint64_t last() const { return last_; }
  [[nodiscard]] LinkConsumer& consumer() { return *consumer_; }
  [[nodiscard]] Queue& queue() { return *queue_; }

 private:
  struct Step {
    Fence fence;
    LinkFrame frame;
    std::uint32_t slot = 0;
    bool used = false;
    std::shared_ptr<Mapping> copy;
  };

  static std::unique_ptr<LinkConsumer> connect(const std::shared_ptr<Device>& device, const std::string& path,
                                               LinkLeak leak) {
    LinkConsumerOptions options;
    options.path = path;
    options.leak = leak;
    options.patience = patience;
    return LinkConsumer::connect(device, options);
  }

  bool is_whole(Step& read) const {
    if (!std::exchange(read.used, false)) return true;
    if (read.fence.wait(test::never, soon()) != WaitResult::ready) return false;
    read.copy->invalidate(0, bytes_);
    return torn_at(read.copy->host(), read.frame.info.bytes, read.frame.info.sequence, read.slot) ==
           read.frame.info.bytes;
  }

  std::unique_ptr<Queue> queue_;
  std::unique_ptr<LinkConsumer> consumer_;
  std::vector<Step> reads_;
  std::size_t bytes_ = 0;
  std::uint64_t seen_ = 0, first_ = 0, last_ = 0;
};

}  // namespace gpumap::test
