// SPDX-License-Identifier: MIT
// Which steps an allocation is timed in: those of its placement, by the thread that asked and the innermost clock.
#include "memory/mapping_steps.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <gpumap/device.hpp>
#include <thread>

namespace gpumap {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array placements{Placement::bar, Placement::device, Placement::host, Placement::mirrored,
                                Placement::mirrored_pageable};
constexpr std::size_t bytes = std::size_t{1} << 20;

std::int64_t ns_since(Clock::time_point began) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count();
}

std::int64_t sum(const MappingTimes& times) {
  std::int64_t all = 0;
  for (std::size_t step = 0; step < mapping_steps; ++step) all += times.ns(static_cast<MappingStep>(step)).value_or(0);
  return all;
}

TEST(MappingSteps, EachPlacementGoesThroughItsOwn) {
  const auto device = Device::open();
  const bool cuda = device->has(Backend::cuda);
  for (const Placement placement : placements) {
    SCOPED_TRACE(static_cast<int>(placement));
    // Vulkan maps what it allocates; CUDA's page-locked memory and malloc's have their address from the start.
    const bool mapped =
        placement == Placement::bar || (!cuda && (placement == Placement::host || placement == Placement::mirrored));
    const bool imported = cuda && placement != Placement::host;
    std::shared_ptr<Mapping> mapping;
    {
      const MappingTimes times;
      const auto began = Clock::now();
      mapping = device->allocate({placement, bytes});
      const std::int64_t whole = ns_since(began);
      EXPECT_GT(times.ns(MappingStep::allocate).value_or(0), 0);
      EXPECT_EQ(times.ns(MappingStep::map).has_value(), mapped);
      EXPECT_EQ(times.ns(MappingStep::import_to_cuda).has_value(), imported);
      EXPECT_FALSE(times.ns(MappingStep::drop_import).has_value());
      EXPECT_LE(sum(times), whole) << "a step counted twice";
    }
    const MappingTimes times;
    const auto began = Clock::now();
    mapping.reset();
    const std::int64_t whole = ns_since(began);
    EXPECT_GT(times.ns(MappingStep::free).value_or(0), 0);
    EXPECT_EQ(times.ns(MappingStep::drop_import).has_value(), imported);
    EXPECT_FALSE(times.ns(MappingStep::allocate).has_value());
    EXPECT_FALSE(times.ns(MappingStep::map).has_value());
    EXPECT_FALSE(times.ns(MappingStep::import_to_cuda).has_value());
    EXPECT_LE(sum(times), whole) << "a step counted twice";
  }
}

TEST(MappingSteps, AThreadCountsItsOwn) {
  const auto device = Device::open();
  const MappingTimes times;
  std::thread([&] { static_cast<void>(device->allocate({Placement::bar, bytes})); }).join();
  EXPECT_EQ(sum(times), 0);
}

TEST(MappingSteps, TheInnermostCounts) {
  const auto device = Device::open();
  const MappingTimes outer;
  {
    const MappingTimes inner;
    static_cast<void>(device->allocate({Placement::bar, bytes}));
    EXPECT_GT(sum(inner), 0);
    EXPECT_EQ(sum(outer), 0);
  }
  static_cast<void>(device->allocate({Placement::bar, bytes}));
  EXPECT_GT(sum(outer), 0);
}

}  // namespace
}  // namespace gpumap
