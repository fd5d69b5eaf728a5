// SPDX-License-Identifier: MIT
#include "lat_paths.hpp"

#include <algorithm>
#include <cstring>
#include <gpumap/copy.hpp>
#include <random>

namespace bench {
namespace {

using gpumap::Backend;
using gpumap::Placement;

// Consecutive blocks differ in every word: a kernel that reads an old one is found out.
constexpr std::size_t block_count = 4;
constexpr std::uint32_t block_threads = 256;
constexpr std::size_t most_blocks = 64;

/// Stores as each kind of memory wants them, with what orders them before a doorbell or a launch.
void store(const gpumap::Mapping& to, Placement placement, const std::byte* block, std::size_t bytes) {
  if (placement == Placement::bar) {
    gpumap::stream_copy(to.host(), block, bytes);
  } else {
    std::memcpy(to.host(), block, bytes);
  }
  gpumap::store_fence();
  to.flush(0, bytes);
}

class ResidentPath final : public LatPath {
 public:
  ResidentPath(const Context& context, const ResidentKernels& kernels, Placement placement, std::size_t bytes)
      : placement_(placement),
        bytes_(bytes),
        resident_(context, kernels, {.placement = placement, .payload_bytes = bytes}) {}

  void begin() override { resident_.start(); }
  void end() override { resident_.stop(); }
  std::optional<LatRound> round(const std::byte* block) override {
    LatRound round;
    const std::int64_t began = now_ns();
    store(resident_.memory(), placement_, block, bytes_);
    round.stored_ns = now_ns() - began;
    resident_.ring();
    const auto checksum = resident_.answer();
    round.done_ns = now_ns() - began;
    if (!checksum) return {};
    round.checksum = *checksum;
    return round;
  }

 private:
  const Placement placement_;
  const std::size_t bytes_;
  Resident resident_;
};

class LaunchPath final : public LatPath {
 public:
  /// With `dma` the kernel reads device memory that the stored bytes are copied to.
  LaunchPath(const Context& context, const ResidentKernels& kernels, Placement placement, std::size_t bytes, bool dma)
      : kernel_(*kernels.read_once),
        placement_(placement),
        bytes_(bytes),
        memory_(context.allocate(placement, bytes)),
        mirror_(dma ? context.allocate(Placement::device, bytes) : nullptr),
        answer_(context.allocate(Placement::host, most_blocks * sizeof(std::uint32_t))),
        queue_(context.create_queue()) {
    frame_.in.plane[0] = (dma ? *mirror_ : *memory_).address(context.backend);
    frame_.in.bytes = bytes;
    frame_.out.plane[0] = answer_->address(context.backend);
    const std::size_t blocks = (bytes / 16 + block_threads - 1) / block_threads;
    grid_.blocks[0] = static_cast<std::uint32_t>(std::clamp<std::size_t>(blocks, 1, most_blocks));
    grid_.threads[0] = block_threads;
  }

  std::optional<LatRound> round(const std::byte* block) override {
    LatRound round;
    const std::int64_t began = now_ns();
    store(*memory_, placement_, block, bytes_);
    round.stored_ns = now_ns() - began;
    if (mirror_) queue_->copy(*memory_, 0, *mirror_, 0, bytes_);
    queue_->launch(kernel_, grid_, frame_);
    poll(queue_->submit());
    const std::size_t answer_bytes = grid_.blocks[0] * sizeof(std::uint32_t);
    answer_->invalidate(0, answer_bytes);
    const auto* sums = reinterpret_cast<const std::uint32_t*>(answer_->host());
    for (std::uint32_t i = 0; i < grid_.blocks[0]; ++i) round.checksum += sums[i];
    round.done_ns = now_ns() - began;
    return round;
  }

 private:
  const gpumap::Kernel& kernel_;
  const Placement placement_;
  const std::size_t bytes_;
  std::shared_ptr<gpumap::Mapping> memory_, mirror_, answer_;
  std::unique_ptr<gpumap::Queue> queue_;  // last: ends before the memory goes
  gpumap_frame frame_{};
  gpumap::Grid grid_;
};

}  // namespace

Blocks::Blocks(std::size_t bytes) : words_(bytes / sizeof(std::uint32_t)), data_(words_ * block_count) {
  std::mt19937 random(static_cast<std::uint32_t>(bytes));
  for (std::uint32_t& word : data_) word = static_cast<std::uint32_t>(random());
  for (std::size_t i = 0; i < block_count; ++i) sums_.push_back(weigh({data_.data() + i * words_, words_}));
}

const std::byte* Blocks::next() {
  at_ = (at_ + 1) % block_count;
  std::uint32_t* words = data_.data() + at_ * words_;
  // No two blocks of a run are alike; the first word has weight one.
  ++words[0];
  ++sums_[at_];
  return reinterpret_cast<const std::byte*>(words);
}

std::unique_ptr<LatPath> resident_path(const Context& context, const ResidentKernels& kernels, Placement placement,
                                       std::size_t bytes) {
  return std::make_unique<ResidentPath>(context, kernels, placement, bytes);
}

std::unique_ptr<LatPath> launch_path(const Context& context, const ResidentKernels& kernels, Placement placement,
                                     std::size_t bytes) {
  return std::make_unique<LaunchPath>(context, kernels, placement, bytes, false);
}

std::unique_ptr<LatPath> dma_path(const Context& context, const ResidentKernels& kernels, std::size_t bytes) {
  return std::make_unique<LaunchPath>(context, kernels, Placement::host, bytes, true);
}

}  // namespace bench
