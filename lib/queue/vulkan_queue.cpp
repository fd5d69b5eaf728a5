// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/vulkan_device.hpp"
#include "device/vulkan_span.hpp"
#include "gpumap/error.hpp"
#include "gpumap/patience.hpp"
#include "memory/gpu_mapping.hpp"
#include "memory/vulkan_allocation.hpp"
#include "queue/queues.hpp"

namespace gpumap {
namespace {

using Access = vk::AccessFlagBits;
using Stage = vk::PipelineStageFlagBits;

constexpr std::uint32_t blocks_per_chunk = 64;
// Whole cache lines, and whole non-coherent atoms (at most 256 bytes by the Vulkan specification).
constexpr std::uint64_t block_bytes = (sizeof(gpumap_frame) + 255) / 256 * 256;

/// Blocks of host memory with a device address, one for each launch in flight. Grows as needed, never shrinks.
/// Thread safety: one thread at a time.
class VulkanArguments {
 public:
  explicit VulkanArguments(VulkanContext& context) : context_(context) {}

  using Block = std::uint32_t;
  /// Copy `frame` to a block that nobody uses.
  [[nodiscard]] Block store(const gpumap_frame& frame);
  [[nodiscard]] std::uint64_t address(Block block) const;
  void recycle(const std::vector<Block>& blocks) { idle_.insert(idle_.end(), blocks.begin(), blocks.end()); }

 private:
  VulkanContext& context_;
  std::vector<VulkanAllocation> chunks_;
  std::vector<Block> idle_;
};

constexpr std::uint64_t offset_of(VulkanArguments::Block block) {
  return block % blocks_per_chunk * block_bytes;
}

VulkanArguments::Block VulkanArguments::store(const gpumap_frame& frame) {
  if (idle_.empty()) {
    const auto first = static_cast<Block>(chunks_.size() * blocks_per_chunk);
    chunks_.emplace_back(context_, Placement::host, blocks_per_chunk * block_bytes, false);
    for (Block i = blocks_per_chunk; i > 0; --i) idle_.push_back(first + i - 1);
  }
  const Block block = idle_.back();
  const auto& chunk = chunks_.at(block / blocks_per_chunk);
  std::memcpy(chunk.host + offset_of(block), &frame, sizeof frame);
  if (!chunk.coherent) chunk.flush(context_, offset_of(block), sizeof frame);
  idle_.pop_back();
  return block;
}

std::uint64_t VulkanArguments::address(Block block) const {
  return chunks_.at(block / blocks_per_chunk).address + offset_of(block);
}

/// What one submission holds until the GPU is done with it.
struct Batch {
  vk::raii::CommandBuffer commands{nullptr};
  std::vector<VulkanArguments::Block> arguments;
  std::vector<std::shared_ptr<const void>> owners;  // pipelines launched, timelines waited for
  std::uint64_t value = 0;                          // of this queue's timeline, when done

  void clear() {
    arguments.clear();
    owners.clear();
  }
};

/// A stream of command buffers. All queues of a device share its VkQueue, which executes in order but overlaps what no
/// barrier keeps apart: one before each command makes a stream of it.
class VulkanQueue final : public Queue {
 public:
  explicit VulkanQueue(std::shared_ptr<GpuDevice> device)
      : device_(std::move(device)),
        context_(*device_->vulkan()),
        timeline_(std::make_shared<VulkanTimeline>(device_)),
        arguments_(context_) {
    try {
      const auto flags = vk::CommandPoolCreateFlagBits::eResetCommandBuffer | vk::CommandPoolCreateFlagBits::eTransient;
      pool_ = vk::raii::CommandPool(context_.device(), {flags, context_.queue_family()});
    } catch (const vk::SystemError& error) {
      context_.fail(error, "creating a queue");
    }
    max_blocks_ = context_.physical().getProperties().limits.maxComputeWorkGroupCount;
  }

  ~VulkanQueue() override {
    if (submitted_ == 0 || timeline_->drain(submitted_, patience_of_ends(*device_))) return;
    // All that the GPU may use, before a wait for it may take for ever.
    struct Used {
      std::shared_ptr<GpuDevice> device;
      std::shared_ptr<VulkanTimeline> timeline;
      std::shared_ptr<VulkanSpans> spans;
      VulkanArguments arguments;
      vk::raii::CommandPool pool;
      std::deque<Batch> batches;
    };
    keep_for_good(std::make_shared<const Used>(
        Used{device_, timeline_, std::move(spans_), std::move(arguments_), std::move(pool_), std::move(in_flight_)}));
    Fence(timeline_, submitted_).give_up(last_kernel_.empty() ? std::string() : "kernel " + last_kernel_);
  }

  [[nodiscard]] Backend backend() const noexcept override { return Backend::vulkan; }

  WaitResult wait(const Fence& fence, const std::atomic<bool>& cancel) override {
    device_->check_alive();
    if (fence.signalled()) return WaitResult::ready;
    const auto timeline = std::dynamic_pointer_cast<VulkanTimeline>(fence.timeline());
    if (timeline == timeline_) return WaitResult::ready;  // the barriers keep this queue in order
    if (!timeline || &timeline->context() != &context_) return fence.wait(cancel);
    // The wait holds for the whole batch: what was recorded before waits too, which is late but never wrong.
    // Room for all three first: whatever fails here leaves no semaphore listed that nobody keeps.
    Batch& batch = recording();
    wait_semaphores_.reserve(wait_semaphores_.size() + 1);
    wait_values_.reserve(wait_values_.size() + 1);
    batch.owners.push_back(timeline);
    wait_semaphores_.push_back(timeline->semaphore());
    wait_values_.push_back(fence.value());
    return WaitResult::ready;
  }

  void launch(const Kernel& kernel, const Grid& grid, const gpumap_frame& frame) override {
    device_->check_alive();
    const auto& shader = check_launch(kernel, grid);
    try {
      Batch& batch = recording();
      batch.owners.push_back(shader.owner());
      last_kernel_ = kernel.name();
      const auto block = arguments_.store(frame);
      batch.arguments.push_back(block);
      const std::uint64_t address = arguments_.address(block);
      order(batch, Stage::eComputeShader, Access::eShaderRead | Access::eShaderWrite);
      batch.commands.bindPipeline(vk::PipelineBindPoint::eCompute, vk::Pipeline(shader.pipeline()));
      batch.commands.pushConstants<std::uint64_t>(vk::PipelineLayout(shader.layout()),
                                                  vk::ShaderStageFlagBits::eCompute, 0, address);
      batch.commands.dispatch(grid.blocks[0], grid.blocks[1], grid.blocks[2]);
    } catch (const vk::SystemError& error) {
      context_.fail(error, "launching kernel " + kernel.name());
    }
  }

  void copy(const Mapping& from, std::size_t from_offset, const Mapping& to, std::size_t to_offset,
            std::size_t bytes) override {
    device_->check_alive();
    const auto& source = own_mapping(from, *device_);
    const auto& target = own_mapping(to, *device_);
    check_copy(source, from_offset, target, to_offset, bytes);
    if (source.buffer() == VK_NULL_HANDLE || target.buffer() == VK_NULL_HANDLE) {
      throw Error(ErrorCode::invalid, "copy: host memory that was allocated for CUDA has no Vulkan buffer");
    }
    if (bytes == 0) return;
    try {
      Batch& batch = recording();
      order(batch, Stage::eTransfer, Access::eTransferRead | Access::eTransferWrite);
      batch.commands.copyBuffer(
          vk::Buffer(source.buffer()), vk::Buffer(target.buffer()),
          vk::BufferCopy(source.buffer_offset() + from_offset, target.buffer_offset() + to_offset, bytes));
    } catch (const vk::SystemError& error) {
      context_.fail(error, "copying");
    }
  }

  void clear(const Mapping& mapping, std::size_t offset, std::size_t bytes) override {
    device_->check_alive();
    const auto& target = own_mapping(mapping, *device_);
    check_clear(target, offset, bytes);
    if (target.buffer() == VK_NULL_HANDLE) throw Error(ErrorCode::invalid, "clear: memory that has no Vulkan buffer");
    if (bytes == 0) return;
    try {
      Batch& batch = recording();
      order(batch, Stage::eTransfer, Access::eTransferWrite);
      batch.commands.fillBuffer(vk::Buffer(target.buffer()), target.buffer_offset() + offset, bytes, 0);
    } catch (const vk::SystemError& error) {
      context_.fail(error, "clearing");
    }
  }

  void record(std::shared_ptr<const void> owner, const std::function<void(VkCommandBuffer)>& record) {
    device_->check_alive();
    try {
      Batch& batch = recording();
      batch.owners.push_back(std::move(owner));
      order(batch, Stage::eComputeShader, Access::eShaderRead | Access::eShaderWrite);
      record(*batch.commands);
    } catch (const vk::SystemError& error) {
      context_.fail(error, "recording commands");
    }
  }

  [[nodiscard]] Fence submit() override {
    device_->check_alive();
    if (!recording_) return {timeline_, submitted_};
    try {
      Batch& batch = current_;
      order(batch, Stage::eHost, Access::eHostRead);
      batch.commands.end();
      recording_ = false;

      const vk::TimelineSemaphoreSubmitInfo values(wait_values_, next_);
      const std::vector<vk::PipelineStageFlags> stages(wait_semaphores_.size(), Stage::eAllCommands);
      const vk::CommandBuffer commands = *batch.commands;
      const vk::Semaphore signal = timeline_->semaphore();
      context_.submit(vk::SubmitInfo(wait_semaphores_, stages, commands, signal, &values), *timeline_, next_);
      submitted_ = batch.value = next_++;
      in_flight_.push_back(std::exchange(current_, Batch()));
      wait_semaphores_.clear();
      wait_values_.clear();
      return {timeline_, submitted_};
    } catch (const vk::SystemError& error) {
      // Nothing of it will run, or wait. Its value will never be a batch's.
      recording_ = false;
      if (spans_) spans_->lose(next_);
      ++next_;
      arguments_.recycle(current_.arguments);
      current_.clear();
      wait_semaphores_.clear();
      wait_values_.clear();
      context_.fail(error, "submitting");
    }
  }

  [[nodiscard]] std::shared_ptr<GpuSpan> begin_span() override {
    device_->check_alive();
    try {
      if (!spans_) spans_ = std::make_shared<VulkanSpans>(device_, timeline_);
      return spans_->begin([this]() -> const vk::raii::CommandBuffer& { return recording().commands; }, next_);
    } catch (const vk::SystemError& error) {
      context_.fail(error, "beginning a span");
    }
  }

  void end_span(GpuSpan& span) override {
    if (!spans_) return Queue::end_span(span);  // none of its spans
    device_->check_alive();
    spans_->check_end(span);
    try {
      spans_->end(span, recording().commands, next_);
    } catch (const vk::SystemError& error) {
      context_.fail(error, "ending a span");
    }
  }

  [[nodiscard]] std::string no_span_reason() const override { return spans_ ? spans_->reason() : std::string(); }

 private:
  [[nodiscard]] const VulkanKernel& check_launch(const Kernel& kernel, const Grid& grid) const {
    const auto* shader = dynamic_cast<const VulkanKernel*>(&kernel);
    if (shader == nullptr) {
      throw Error(ErrorCode::invalid,
                  fmt::format("kernel {} is CUDA and this queue runs Vulkan: use a CUDA queue or its compute-shader "
                              "twin",
                              kernel.name()));
    }
    if (grid.threads != shader->workgroup()) {
      const auto& size = shader->workgroup();
      throw Error(
          ErrorCode::invalid,
          fmt::format(
              "kernel {} has workgroups of {}x{}x{}, the grid asks for {}x{}x{}: take the grid from Kernel::grid_for()",
              kernel.name(), size[0], size[1], size[2], grid.threads[0], grid.threads[1], grid.threads[2]));
    }
    for (std::size_t i = 0; i < max_blocks_.size(); ++i) {
      if (grid.blocks[i] >= 1 && grid.blocks[i] <= max_blocks_[i]) continue;
      throw Error(ErrorCode::invalid,
                  fmt::format("kernel {}: {} blocks in dimension {}, the device takes 1 to {}: use another grid",
                              kernel.name(), grid.blocks[i], i, max_blocks_[i]));
    }
    return *shader;
  }

  /// The batch being recorded; begins one, in a command buffer that is done where there is one.
  Batch& recording() {
    if (recording_) return current_;
    try {
      if (!in_flight_.empty() && timeline_->completed() >= in_flight_.front().value) {
        current_ = std::move(in_flight_.front());
        in_flight_.pop_front();
        arguments_.recycle(current_.arguments);
        current_.clear();
        current_.commands.reset();
      } else if (!*current_.commands) {
        const vk::CommandBufferAllocateInfo info(*pool_, vk::CommandBufferLevel::ePrimary, 1);
        current_.commands = std::move(vk::raii::CommandBuffers(context_.device(), info).front());
      }
      current_.commands.begin({vk::CommandBufferUsageFlagBits::eOneTimeSubmit});
    } catch (const vk::SystemError& error) {
      context_.fail(error, "recording commands");
    }
    recording_ = true;
    return current_;
  }

  /// What comes next sees all that came before, on this queue and, by submission order, on the others.
  static void order(const Batch& batch, vk::PipelineStageFlags stage, vk::AccessFlags access) {
    const vk::MemoryBarrier barrier(Access::eShaderWrite | Access::eTransferWrite, access);
    batch.commands.pipelineBarrier(Stage::eComputeShader | Stage::eTransfer, stage, {}, barrier, {}, {});
  }

  const std::shared_ptr<GpuDevice> device_;
  VulkanContext& context_;
  const std::shared_ptr<VulkanTimeline> timeline_;
  std::shared_ptr<VulkanSpans> spans_;  // null until asked for
  VulkanArguments arguments_;
  vk::raii::CommandPool pool_{nullptr};
  std::array<std::uint32_t, 3> max_blocks_{};
  std::deque<Batch> in_flight_;
  Batch current_;
  bool recording_ = false;
  std::string last_kernel_;  // its name
  std::vector<vk::Semaphore> wait_semaphores_;
  std::vector<std::uint64_t> wait_values_;
  std::uint64_t submitted_ = 0;  // of the timeline, what the last batch brings that was submitted
  std::uint64_t next_ = 1;       // what the one that is being recorded shall bring
};

}  // namespace

std::unique_ptr<Queue> create_vulkan_queue(std::shared_ptr<GpuDevice> device) {
  return std::make_unique<VulkanQueue>(std::move(device));
}

void record_commands(Queue& queue, std::shared_ptr<const void> owner,
                     const std::function<void(VkCommandBuffer)>& record) {
  auto* vulkan_queue = dynamic_cast<VulkanQueue*>(&queue);
  if (vulkan_queue == nullptr) throw Error(ErrorCode::invalid, "a queue that is not Vulkan's has no command buffer");
  vulkan_queue->record(std::move(owner), record);
}

}  // namespace gpumap
