// SPDX-License-Identifier: MIT
// Kernels that do not end for a while: the GPU waits before them for a timeline that the test raises.
#include <gmock/gmock.h>
#include <gst/check/gsttestclock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include "device/vulkan_timeline.hpp"
#include "gpu_buffer.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/kernel/watchdog.hpp"

namespace gpumap::gst::test {
namespace {

constexpr std::size_t frame_bytes = 4096;

/// Frames that are written when the test says so.
class Stall {
 public:
  Stall()
      : device_(std::dynamic_pointer_cast<GpuDevice>(Device::open())),
        timeline_(std::make_shared<VulkanTimeline>(device_)) {}
  ~Stall() { end(last_); }
  Stall(const Stall&) = delete;
  Stall& operator=(const Stall&) = delete;

  Buffer frame() {
    Buffer buffer = on_gpu(random_data(frame_bytes, 1));
    frame_memory(gst_buffer_peek_memory(buffer.get(), 0))->set_written(Fence(timeline_, ++last_));
    return buffer;
  }
  /// All up to frame `number`, from 1 on, are written.
  void end(std::uint64_t number) {
    if (number <= timeline_->completed()) return;
    timeline_->context().device().signalSemaphore(vk::SemaphoreSignalInfo(timeline_->semaphore(), number));
  }

 private:
  std::shared_ptr<GpuDevice> device_;
  std::shared_ptr<VulkanTimeline> timeline_;
  std::uint64_t last_ = 0;
};

/// Plain bytes, each one more than it was.
class Stalled : public testing::Test {
 protected:
  Stalled() {
    std::ofstream(settings_.location) << "#version 460\n#include <gpumap.glsl>\nvoid main() {\n"
                                         "  uint64_t i = gpumap_thread();\n"
                                         "  if (i < frame.out_view.bytes)\n"
                                         "    store_u8(frame.out_view.plane[0] + i,\n"
                                         "             load_u8(frame.in_view.plane[0] + i) + 1u);\n}\n";
  }
  ~Stalled() override { (void)std::remove(settings_.location.c_str()); }

  std::shared_ptr<KernelRunner> runner(bool check_bounds = false) {
    settings_.check_bounds = check_bounds;
    auto made = std::make_shared<KernelRunner>(settings_);
    const Caps caps = new_caps("application/x-bytes(memory:GPUMap)");
    made->set_caps(caps.get(), caps.get());
    return made;
  }

 private:
  KernelSettings settings_{.location = testing::TempDir() + "gpumap-stalled-" + std::to_string(getpid()) + ".comp"};
};

TEST_F(Stalled, WhatAKernelUsesOutlivesItsElement) {
  for (const bool check_bounds : {false, true}) {
    Stall stall;
    auto endless = runner(check_bounds);
    const Buffer frame = stall.frame();
    Buffer out;
    std::thread cancels([&] {
      (void)eventually([&] { return !endless->last_launched().signalled(); });
      endless->cancel(true);
    });
    out.reset(endless->run(frame.get()).buffer);
    cancels.join();
    EXPECT_EQ(out == nullptr, check_bounds) << "it waits for the frame only to look at it";
    const Fence launched = endless->last_launched();
    out.reset();
    endless.reset();
    ASSERT_FALSE(launched.signalled());
    // The validation layer tells of what is in use and freed.
    stall.end(1);
    EXPECT_EQ(launched.wait_for(patience), WaitResult::ready);
  }
}

TEST_F(Stalled, TheTimeOfOneFrameCounts) {
  constexpr std::uint32_t timeout_ms = 1000;
  GstClock* clock = gst_test_clock_new();
  gst_system_clock_set_default(clock);
  const Element element(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("gpumapkernel", "slow"))));
  GstBus* bus = gst_bus_new();
  gst_element_set_bus(element.get(), bus);
  Stall stall;
  const auto slow = runner();
  {
    const Watchdog watchdog(element.get(), slow, timeout_ms);
    constexpr std::size_t count = 6;
    std::vector<Buffer> frames, outputs;
    std::vector<Fence> launched;
    for (std::size_t i = 0; i < count; ++i) {
      frames.push_back(stall.frame());
      outputs.emplace_back(slow->run(frames.back().get()).buffer);
      launched.push_back(slow->last_launched());
    }
    const auto pass = [clock](int looks) {
      for (int i = 0; i < looks; ++i) ASSERT_TRUE(gst_test_clock_crank(GST_TEST_CLOCK(clock)));
    };
    // Each takes three quarters of the time, all together more than four times as much.
    for (std::size_t i = 0; i < count; ++i) {
      pass(3);
      stall.end(i + 1);
      ASSERT_EQ(launched[i].wait_for(patience), WaitResult::ready);
      ASSERT_EQ(gst_bus_peek(bus), nullptr) << i;
    }
    // With nothing to do no time runs out, and then one takes too long.
    pass(9);
    ASSERT_EQ(gst_bus_peek(bus), nullptr);
    frames.push_back(stall.frame());
    outputs.emplace_back(slow->run(frames.back().get()).buffer);
    pass(4);
    EXPECT_EQ(gst_bus_peek(bus), nullptr);
    pass(2);
    GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    GError* error = nullptr;
    gst_message_parse_error(message, &error, nullptr);
    EXPECT_THAT(error->message, testing::HasSubstr("has not ended for 1000 ms"));
    g_error_free(error);
    gst_message_unref(message);
    stall.end(count + 1);
  }
  gst_element_set_bus(element.get(), nullptr);
  gst_object_unref(bus);
  gst_system_clock_set_default(nullptr);
  gst_object_unref(clock);
}

}  // namespace
}  // namespace gpumap::gst::test
