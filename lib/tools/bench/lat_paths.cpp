// SPDX-License-Identifier: MIT
#include "lat_paths.hpp"

#include <algorithm>
#include <cstring>
#include <gpumap/copy.hpp>
#include <numeric>
#include <random>

#include "device/cuda_timeline.hpp"

namespace bench {
namespace {

using gpumap::Backend;
using gpumap::Placement;

// Consecutive blocks differ in every word: a kernel that reads an old one is found out.
constexpr std::size_t block_count = 4;
constexpr std::uint32_t block_threads = 256;
constexpr std::size_t max_blocks = 64;

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

/// The kernel of an ordinary launch, its payload and its answer.
struct Launch {
  Launch(const Context& context, const ResidentKernels& kernels, std::uint64_t payload, std::size_t bytes)
      : kernel(*kernels.read_once),
        answer(context.allocate(Placement::host, max_blocks * sizeof(std::uint32_t))),
        queue(context.create_queue()) {
    frame.in.plane[0] = payload;
    frame.in.bytes = bytes;
    frame.out.plane[0] = answer->address(context.backend);
    const std::size_t blocks = (bytes / 16 + block_threads - 1) / block_threads;
    grid.blocks[0] = static_cast<std::uint32_t>(std::clamp<std::size_t>(blocks, 1, max_blocks));
    grid.threads[0] = block_threads;
  }

  [[nodiscard]] gpumap::Fence submit() const {
    queue->launch(kernel, grid, frame);
    return queue->submit();
  }
  [[nodiscard]] std::uint32_t wait(const gpumap::Fence& fence) const {
    poll(fence);
    answer->invalidate(0, grid.blocks[0] * sizeof(std::uint32_t));
    const auto* sums = reinterpret_cast<const std::uint32_t*>(answer->host());
    return std::accumulate(sums, sums + grid.blocks[0], 0U);
  }

  const gpumap::Kernel& kernel;
  std::shared_ptr<gpumap::Mapping> answer;
  std::unique_ptr<gpumap::Queue> queue;  // last of what owns: ends before the memory goes
  gpumap_frame frame{};
  gpumap::Grid grid;
};

class LaunchPath final : public LatPath {
 public:
  /// With `dma` the kernel reads device memory that the stored bytes are copied to.
  LaunchPath(const Context& context, const ResidentKernels& kernels, Placement placement, std::size_t bytes, bool dma)
      : placement_(placement),
        bytes_(bytes),
        memory_(context.allocate(placement, bytes)),
        mirror_(dma ? context.allocate(Placement::device, bytes) : nullptr),
        launch_(context, kernels, (dma ? *mirror_ : *memory_).address(context.backend), bytes) {}

  std::optional<LatRound> round(const std::byte* block) override {
    LatRound round;
    const std::int64_t began = now_ns();
    store(*memory_, placement_, block, bytes_);
    round.stored_ns = now_ns() - began;
    if (mirror_) launch_.queue->copy(*memory_, 0, *mirror_, 0, bytes_);
    round.checksum = launch_.wait(launch_.submit());
    round.done_ns = now_ns() - began;
    return round;
  }

 private:
  const Placement placement_;
  const std::size_t bytes_;
  std::shared_ptr<gpumap::Mapping> memory_, mirror_;
  Launch launch_;
};

/// A word in the BAR that the CPU raises and a CUDA stream waits for.
class BellTimeline final : public gpumap::CudaTimeline {
 public:
  BellTimeline(std::shared_ptr<gpumap::GpuDevice> device, std::byte* host, std::uint64_t address)
      : CudaTimeline(std::move(device)), word_(reinterpret_cast<volatile std::uint64_t*>(host)), address_(address) {
    ring(0);
  }

  void ring(std::uint64_t value) {
    rung_ = value;
    gpumap::store_fence();
    *word_ = value;
    gpumap::store_fence();
  }
  [[nodiscard]] std::uint64_t completed() override { return rung_; }
  void make_wait(gpumap::CUstream stream, std::uint64_t value) override {
    context_.check(context_.driver().cuStreamWaitValue64(stream, address_, value, gpumap::CU_STREAM_WAIT_VALUE_GEQ),
                   "waiting for a doorbell");
  }

 private:
  void raise(std::uint64_t value) override { ring(value); }

  volatile std::uint64_t* word_;
  const std::uint64_t address_;
  std::uint64_t rung_ = 0;
};

class QueuedPath final : public LatPath {
 public:
  QueuedPath(const Context& context, const ResidentKernels& kernels, std::size_t bytes)
      : bytes_(bytes),
        bell_at_((bytes + page_bytes - 1) / page_bytes * page_bytes),
        memory_(context.device->allocate(
            {.placement = Placement::bar, .bytes = bell_at_ + page_bytes, .require_coherent = true}, context.backend)),
        bell_(std::make_shared<BellTimeline>(std::dynamic_pointer_cast<gpumap::GpuDevice>(context.device),
                                             memory_->host() + bell_at_, memory_->address(context.backend) + bell_at_)),
        launch_(context, kernels, memory_->address(context.backend), bytes) {}
  // The queue waits for what it was given before it goes: nothing may be left that waits for a bell.
  ~QueuedPath() override { bell_->ring(~std::uint64_t{0}); }

  std::optional<LatRound> round(const std::byte* block) override {
    launch_.queue->wait({bell_, ++sequence_}, never);
    const gpumap::Fence fence = launch_.submit();
    // The stream should stand at the doorbell when it rings.
    for (const std::int64_t there = now_ns() + to_get_there_ns; now_ns() < there;) __builtin_ia32_pause();
    LatRound round;
    const std::int64_t began = now_ns();
    store(*memory_, Placement::bar, block, bytes_);
    round.stored_ns = now_ns() - began;
    bell_->ring(sequence_);
    round.checksum = launch_.wait(fence);
    round.done_ns = now_ns() - began;
    return round;
  }

 private:
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::int64_t to_get_there_ns = 20'000;

  const std::size_t bytes_, bell_at_;
  std::shared_ptr<gpumap::Mapping> memory_;
  std::shared_ptr<BellTimeline> bell_;
  std::uint64_t sequence_ = 0;
  Launch launch_;
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

std::unique_ptr<LatPath> queued_path(const Context& context, const ResidentKernels& kernels, std::size_t bytes) {
  const auto* device = dynamic_cast<const gpumap::GpuDevice*>(context.device.get());
  if (context.backend == Backend::cuda && device->cuda()->stream_memory()) {
    return std::make_unique<QueuedPath>(context, kernels, bytes);
  }
  return nullptr;
}

std::unique_ptr<LatPath> dma_path(const Context& context, const ResidentKernels& kernels, std::size_t bytes) {
  return std::make_unique<LaunchPath>(context, kernels, Placement::host, bytes, true);
}

}  // namespace bench
