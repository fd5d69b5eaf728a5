// SPDX-License-Identifier: MIT
// Linked into programs of the unit suite that are run on the GPU as well: where there is none they are skipped here,
// and do not pass a second time on the software driver.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "gpumap/device.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

class NeedsGpu : public ::testing::Environment {
 public:
  void SetUp() override {
    std::string lack;
    try {
      const auto device = Device::open();
      if (device->info().software) lack = "no GPU here, only " + device->info().name;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::no_driver && error.code() != ErrorCode::no_device) throw;
      lack = error.what();
    }
    if (lack.empty()) return;
    std::printf("skipped: %s\n", lack.c_str());
    std::exit(77);  // what Meson calls a skipped test; GoogleTest itself would call it passed
  }
};

[[maybe_unused]] const auto* const environment = ::testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
}  // namespace gpumap
