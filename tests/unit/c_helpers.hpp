// SPDX-License-Identifier: MIT
// What the tests of gpumap.h share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gpumap/gpumap.h"

namespace gpumap::test {

/// A status by its name, with the text of an error.
inline std::string said(gpumap_status status) {
  const std::string name = gpumap_status_name(status);
  return status < 0 ? name + ": " + gpumap_last_error() : name;
}
#define EXPECT_OK(call) EXPECT_EQ(said(call), "GPUMAP_OK")
#define ASSERT_OK(call) ASSERT_EQ(said(call), "GPUMAP_OK")

/// That the call fails so, and that its text has `words`.
inline void expect_error(gpumap_status got, gpumap_status wanted, const std::string& words) {
  EXPECT_STREQ(gpumap_status_name(got), gpumap_status_name(wanted)) << gpumap_last_error();
  EXPECT_NE(std::string(gpumap_last_error()).find(words), std::string::npos) << gpumap_last_error();
}

inline std::vector<unsigned char> random_frame(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<unsigned char> made(bytes);
  for (unsigned char& one : made) one = static_cast<unsigned char>(random());
  return made;
}

class CInterface : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(gpumap_device_open("auto", 0, &device_)); }
  void TearDown() override { EXPECT_OK(gpumap_device_close(device_)); }

  [[nodiscard]] gpumap_memory memory(std::uint64_t bytes) const {
    gpumap_memory made = nullptr;
    EXPECT_OK(gpumap_memory_alloc(device_, bytes, nullptr, &made));
    return made;
  }
  [[nodiscard]] gpumap_ring ring(std::uint64_t slot_bytes, std::uint32_t slots) const {
    auto options = GPUMAP_INIT(gpumap_ring_options);
    options.slot_bytes = slot_bytes;
    options.slots = slots;
    gpumap_ring made = nullptr;
    EXPECT_OK(gpumap_ring_create(device_, &options, &made));
    return made;
  }
  /// Publishes one frame, `content`, with that pts.
  static void send(gpumap_ring ring, const std::vector<unsigned char>& content, std::int64_t pts = 0) {
    gpumap_slot slot = nullptr;
    ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &slot));
    ASSERT_OK(gpumap_slot_write(slot, 0, content.data(), content.size()));
    gpumap_frame_info info = gpumap_frame_of(content.size());
    info.pts = pts;
    ASSERT_OK(gpumap_slot_publish(slot, &info, nullptr, 0));
  }
  static std::vector<unsigned char> content_of(gpumap_slot slot) {
    auto info = GPUMAP_INIT(gpumap_frame_info);
    EXPECT_OK(gpumap_slot_get_frame(slot, &info));
    std::vector<unsigned char> got(info.bytes);
    EXPECT_OK(gpumap_slot_read(slot, 0, got.data(), got.size()));
    return got;
  }

  static constexpr std::int64_t long_ns = 60'000'000'000;  ///< for what hangs, not for what is slow
  gpumap_device device_ = nullptr;
};

}  // namespace gpumap::test
