// SPDX-License-Identifier: MIT
// A submission that the driver refuses: nothing of it runs, nothing that it held is lost, and the queue goes on.
#include <gmock/gmock.h>

#include <cstring>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <gpumap/kernel.hpp>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "device/gpu_device.hpp"
#include "device/vulkan_device.hpp"
#include "queue/queues.hpp"
#include "span_helpers.hpp"

namespace gpumap {
namespace {

constexpr const char* store = R"(#version 460
#include <gpumap.glsl>
void main() {
  if (gl_GlobalInvocationID.x == 0u) store_u32(frame.out_view.plane[0], uint(frame.sequence));
}
)";

/// The class has another name in newer headers of Vulkan.
using Dispatcher = std::remove_cvref_t<decltype(*std::declval<const vk::raii::Device&>().getDispatcher())>;

/// While it lives, this device's vkQueueSubmit fails, and its allocations are counted.
class Refusing {
 public:
  explicit Refusing(const Device& device)
      // The table is the device's own, and not const.
      : calls_(const_cast<Dispatcher&>(*dynamic_cast<const GpuDevice&>(device).vulkan()->device().getDispatcher())),
        submit_(calls_.vkQueueSubmit) {
    allocate_ = calls_.vkAllocateMemory;
    allocations_ = 0;
    calls_.vkQueueSubmit = [](VkQueue, std::uint32_t, const VkSubmitInfo*, VkFence) {
      return VK_ERROR_OUT_OF_HOST_MEMORY;
    };
    calls_.vkAllocateMemory = [](VkDevice of, const VkMemoryAllocateInfo* info, const VkAllocationCallbacks* callbacks,
                                 VkDeviceMemory* memory) {
      ++allocations_;
      return allocate_(of, info, callbacks, memory);
    };
  }
  ~Refusing() {
    calls_.vkQueueSubmit = submit_;
    calls_.vkAllocateMemory = allocate_;
  }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;

  [[nodiscard]] static unsigned allocations() { return allocations_; }

 private:
  Dispatcher& calls_;
  const PFN_vkQueueSubmit submit_;
  static inline PFN_vkAllocateMemory allocate_;
  static inline unsigned allocations_;
};

class RefusedSubmit : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(validation_message_count(), 0U); }

  void launch(std::uint32_t value) {
    gpumap_frame frame{};
    frame.sequence = value;
    frame.out.plane[0] = memory_->address(Backend::vulkan);
    frame.out.bytes = 4;
    queue_->launch(*kernel_, {.blocks = {1, 1, 1}, .threads = {256, 1, 1}}, frame);
  }
  void submit() {
    const Fence fence = queue_->submit();
    EXPECT_EQ(fence.wait_for(std::chrono::seconds(60)), WaitResult::ready);
  }
  void submit_refused() {
    try {
      static_cast<void>(queue_->submit());
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::no_memory);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("submitting"));
    }
  }
  [[nodiscard]] std::uint32_t stored() const {
    memory_->invalidate(0, 4);
    std::uint32_t value = 0;
    std::memcpy(&value, memory_->host(), 4);
    return value;
  }

  const std::shared_ptr<Device> device_ = Device::open();
  const std::shared_ptr<Mapping> memory_ =
      device_->allocate({.placement = Placement::host, .bytes = 4}, Backend::vulkan);
  const std::shared_ptr<Kernel> kernel_ =
      Kernel::load(device_, {.language = Language::glsl, .name = "store.comp", .code = store, .function = ""});
  const std::unique_ptr<Queue> queue_ = device_->create_queue(Backend::vulkan);
};

TEST_F(RefusedSubmit, LosesNoArguments) {
  for (int i = 0; i < 3; ++i) launch(1);
  submit();
  {
    const Refusing refusing(*device_);
    // Many times the arguments that are allocated at once.
    for (std::uint32_t i = 0; i < 1000; ++i) {
      launch(1000 + i);
      if (i % 3 == 0) launch(2000 + i);
      submit_refused();
    }
    EXPECT_EQ(Refusing::allocations(), 0U);
  }
  EXPECT_EQ(stored(), 1U);
  launch(77);
  submit();
  EXPECT_EQ(stored(), 77U);
}

TEST_F(RefusedSubmit, RunsNothingAndGoesOn) {
  launch(1);
  const Fence before = queue_->submit();
  {
    const Refusing refusing(*device_);
    launch(2);
    submit_refused();
    // What holds for the last submission that there was.
    EXPECT_EQ(queue_->submit().wait_for(std::chrono::seconds(60)), WaitResult::ready);
  }
  EXPECT_EQ(stored(), 1U);
  EXPECT_TRUE(before.signalled());
  for (std::uint32_t i = 3; i < 40; ++i) {
    launch(i);
    submit();
    EXPECT_EQ(stored(), i);
  }
}

TEST_F(RefusedSubmit, LetsGoOfWhatItHeld) {
  const auto held = std::make_shared<int>(1);
  {
    const Refusing refusing(*device_);
    record_commands(*queue_, held, [](VkCommandBuffer) {});
    EXPECT_EQ(held.use_count(), 2);
    submit_refused();
  }
  EXPECT_EQ(held.use_count(), 1);
}

// The queries of these spans hold the times of earlier ones.
TEST_F(RefusedSubmit, HasNoTimes) {
  const auto span = [this] {
    auto made = queue_->begin_span();
    launch(5);
    return made;
  };
  const auto earlier = span();
  if (!earlier) GTEST_SKIP() << queue_->no_span_reason();
  const auto another = span();
  const auto third = span();
  for (const auto& one : {earlier, another, third}) queue_->end_span(*one);
  submit();
  for (const auto& one : {earlier, another, third}) ASSERT_TRUE(told(*one));

  const auto ends_refused = span();
  submit();
  std::shared_ptr<GpuSpan> refused, begins_refused;
  {
    const Refusing refusing(*device_);
    refused = span();
    begins_refused = span();
    queue_->end_span(*ends_refused);
    queue_->end_span(*refused);
    submit_refused();
  }
  const auto later = span();
  queue_->end_span(*later);
  queue_->end_span(*begins_refused);
  submit();
  EXPECT_FALSE(refused->times());
  EXPECT_FALSE(ends_refused->times());
  EXPECT_FALSE(begins_refused->times());
  EXPECT_TRUE(told(*later));
}

}  // namespace
}  // namespace gpumap
