// SPDX-License-Identifier: MIT
// What the tests of whole pipelines on a GPU share. Without a GPU they skip, but for GPUMAP_TEST_SOFTWARE=1: then they
// run on a software driver with few frames, so that a machine without a GPU exercises them too.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>

#include "../gst/pipeline.hpp"
#include "gpumap/device.hpp"
#include "gpumap/error.hpp"

namespace gpumap::gst::test {

/// A folder for kernels of the user's, which goes with this.
class KernelFolder {
 public:
  KernelFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "gpumap-kernels-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder: set TMPDIR");
    path_ = pattern;
  }
  ~KernelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  KernelFolder(const KernelFolder&) = delete;
  KernelFolder& operator=(const KernelFolder&) = delete;

  /// Write a file; its path.
  [[nodiscard]] std::string add(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = path_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

class GpuPipeline : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = Device::open();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    software_ = device_->info().software;
    if (software_ && std::getenv("GPUMAP_TEST_SOFTWARE") == nullptr) GTEST_SKIP() << "the only GPU here is the CPU";
    // Ten thousand frames, or cycles, take longer than a test of the elements may.
    alarm(1500);
  }

  /// How often to do something: as this device can, and no more often than GPUMAP_TEST_FRAMES says.
  [[nodiscard]] unsigned times(unsigned on_gpu, unsigned on_software) const {
    const unsigned count = software_ ? on_software : on_gpu;
    const char* text = std::getenv("GPUMAP_TEST_FRAMES");
    if (text == nullptr) return count;
    return std::min(count, static_cast<unsigned>(std::max(1L, std::strtol(text, nullptr, 10))));
  }

  std::shared_ptr<Device> device_;
  bool software_ = false;
  KernelFolder folder_;
};

}  // namespace gpumap::gst::test
