// SPDX-License-Identifier: MIT
// Memory that is short: the BAR window and page-locked memory, used up by an environment variable.
#include "device/budget.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <memory>
#include <string>
#include <vector>

namespace gpumap {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t mib = std::size_t{1} << 20U;

class Limit : public ::testing::Test {
 protected:
  explicit Limit(const char* variable) : variable_(variable) { setenv(variable, std::to_string(64 * mib).c_str(), 1); }
  ~Limit() override { unsetenv(variable_); }
  void TearDown() override { EXPECT_EQ(validation_message_count(), 0U); }

  [[nodiscard]] std::shared_ptr<Mapping> allocate(Placement placement, std::size_t bytes) {
    return device_->allocate({placement, bytes});
  }
  template <typename Matcher>
  void expect_refused(Placement placement, std::size_t bytes, ErrorCode code, Matcher text) {
    try {
      static_cast<void>(allocate(placement, bytes));
      FAIL() << "more than there is";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_THAT(error.what(), text);
    }
  }

  const char* variable_;
  std::shared_ptr<Device> device_ = Device::open();
};

class WindowLimit : public Limit {
 protected:
  WindowLimit() : Limit("GPUMAP_WINDOW_LIMIT") {}
};

TEST_F(WindowLimit, FullWindowIsExplainedAndComesBack) {
  const std::uint64_t before = device_->window_free_bytes();
  EXPECT_LE(before, 64 * mib);
  auto first = allocate(Placement::bar, 40 * mib);
  EXPECT_LE(device_->window_free_bytes(), before - 40 * mib);
  expect_refused(Placement::bar, 32 * mib, ErrorCode::no_memory,
                 AllOf(HasSubstr("BAR window 64 MiB, 40 MiB in use, 32 MiB asked"),
                       HasSubstr("lower slots or slot-size, or use another transport")));
  for (const auto placement : {Placement::host, Placement::mirrored, Placement::mirrored_pageable}) {
    EXPECT_NE(allocate(placement, 32 * mib), nullptr) << "not part of the window";
  }
  first.reset();
  EXPECT_EQ(device_->window_free_bytes(), before);
  EXPECT_NE(allocate(Placement::bar, 32 * mib), nullptr);
}

TEST_F(WindowLimit, NonsenseIsRefused) {
  setenv("GPUMAP_WINDOW_LIMIT", "64M", 1);
  expect_refused(Placement::bar, 4096, ErrorCode::invalid, HasSubstr("GPUMAP_WINDOW_LIMIT=\"64M\""));
}

class PinnedLimit : public Limit {
 protected:
  PinnedLimit() : Limit("GPUMAP_PINNED_LIMIT") {}
};

TEST_F(PinnedLimit, UsedUpIsExplainedAndComesBack) {
  for (const auto placement : {Placement::host, Placement::mirrored}) {
    auto first = allocate(placement, 40 * mib);
    for (const auto second : {Placement::host, Placement::mirrored}) {
      expect_refused(second, 32 * mib, ErrorCode::no_memory,
                     AllOf(HasSubstr("page-locked host memory: 32 MiB asked, 40"), HasSubstr("held by this process"),
                           HasSubstr("GPUMAP_PINNED_LIMIT 64 MiB"), HasSubstr("ulimit -l "),
                           HasSubstr("lower slots or slot-size"), HasSubstr("transport=pageable")));
    }
    EXPECT_NE(allocate(Placement::bar, 32 * mib), nullptr) << "not page-locked";
    EXPECT_NE(allocate(Placement::mirrored_pageable, 128 * mib), nullptr) << "not page-locked";
    first.reset();
    EXPECT_NE(allocate(placement, 32 * mib), nullptr);
  }
}

TEST_F(PinnedLimit, TheDriversRefusalIsExplainedAlike) {
  const auto held = reserve_page_locked(8 * mib);
  const Error error = page_locked_refused("the driver", 8 * mib);
  EXPECT_EQ(error.code(), ErrorCode::no_memory);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("8 MiB asked"), HasSubstr("refused by the driver"), HasSubstr("ulimit -l"),
                                  HasSubstr("transport=pageable")));
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
  EXPECT_EQ(format_bytes(4096), "4 KiB");
  EXPECT_EQ(format_bytes(256U << 20U), "256 MiB");
  EXPECT_EQ(format_bytes((1U << 20U) + (1U << 19U)), "1.5 MiB");
  EXPECT_EQ(format_bytes((40U << 20U) + 4096), "40 MiB");
}

}  // namespace
}  // namespace gpumap
