// SPDX-License-Identifier: MIT
// Which GPU a gpumapkernel runs on. There may be one here, so the other one is a device that runs nothing.
#include <gmock/gmock.h>

#include "fake_device.hpp"
#include "gpumap/error.hpp"
#include "gst/kernel/neighbours.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// One of several of a kind.
class Twin : public gpumap::test::FakeDevice {
 public:
  explicit Twin(const char* address) {
    info_ = FakeDevice::info();
    info_.name = "Twin GPU";
    info_.pci_address = address;
  }
  [[nodiscard]] const DeviceInfo& info() const noexcept override { return info_; }

 private:
  DeviceInfo info_;
};

Buffer frame_on(const std::shared_ptr<Device>& device) {
  constexpr std::size_t bytes = 64;
  MemoryBlock block{device->allocate({.placement = Placement::host, .bytes = bytes}, {}), {}};
  auto made = std::make_unique<FrameMemory>(device, std::move(block), bytes, nullptr);
  Buffer buffer(gst_buffer_new());
  gst_buffer_append_memory(buffer.get(),
                           memory_new(wrapping_allocator(), std::move(made), bytes, GST_MEMORY_FLAG_READONLY));
  return buffer;
}

TEST(DeviceChoice, AutoFollowsTheFrames) {
  const auto here = std::make_shared<Twin>("0000:3b:00.0"), there = std::make_shared<Twin>("0000:86:00.0");
  EXPECT_EQ(device_to_follow("auto", *here, there), there);
  EXPECT_EQ(device_to_follow("auto", *here, here), nullptr);
  EXPECT_EQ(device_to_follow("auto", *here, nullptr), nullptr);
  EXPECT_EQ(device_to_follow("0", *here, here), nullptr);
  EXPECT_EQ(device_of(frame_on(there).get()), there);
  EXPECT_EQ(device_of(new_buffer(random_data(9, 1)).get()), nullptr);
}

TEST(DeviceChoice, ADeviceThatWasChosenDoesNotAndSaysWhichTwoTheyAre) {
  const auto here = std::make_shared<Twin>("0000:3b:00.0"), there = std::make_shared<Twin>("0000:86:00.0");
  try {
    (void)device_to_follow("0", *here, there);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("a frame in the memory of Twin GPU at 0000:86:00.0"),
                                    HasSubstr("device=0, which is Twin GPU at 0000:3b:00.0"),
                                    HasSubstr("leave device out"), HasSubstr("set device=0000:86:00.0")));
  }
}

/// What becomes of a frame on `device` in a kernel with these options.
std::string error_of(const std::shared_ptr<Device>& device, const std::string& options) {
  Pipeline pipeline(
      "appsrc name=in format=time caps=application/octet-stream ! gpumapkernel name=kernel kernel=checksum " + options +
      " ! fakesink");
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), frame_on(device));
  std::string error = pipeline.wait();
  EXPECT_EQ(pipeline.culprit(), "kernel");
  return error;
}

TEST(DeviceChoice, TheElementGoesWhereItsFramesAre) {
  const auto there = std::make_shared<Twin>("0000:86:00.0");
  // This one runs nothing, which shows that the kernel was taken there.
  EXPECT_THAT(error_of(there, ""), HasSubstr("kernel checksum: no device"));
  EXPECT_THAT(error_of(there, "device=0"), HasSubstr("a frame in the memory of Twin GPU at 0000:86:00.0 reached"));
}

}  // namespace
}  // namespace gpumap::gst::test
