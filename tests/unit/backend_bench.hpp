// SPDX-License-Identifier: MIT
//
// What a test needs to run kernels on one backend.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "builtin_reference.hpp"
#include "gpumap/device.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/program.hpp"

namespace gpumap {

inline constexpr std::byte poison{0xA5};

/// A device, a queue and memory for one frame, on one backend.
class Bench {
 public:
  static constexpr std::size_t memory_bytes = std::size_t{32} << 20;

  explicit Bench(Backend backend);

  /// Copies `bytes` to the input, poisons `out_bytes` of output, clears the result block.
  void prepare(reference::Bytes bytes, std::size_t out_bytes);
  /// Launches and waits.
  void run(const Kernel& kernel, const gpumap_frame& frame);
  void run(Program& program, const gpumap_frame& frame);
  [[nodiscard]] const Kernel& builtin(const std::string& name);

  [[nodiscard]] const std::shared_ptr<Device>& device() const { return device_; }
  [[nodiscard]] Backend backend() const { return backend_; }
  [[nodiscard]] std::uint64_t in() const { return in_->address(backend_); }
  [[nodiscard]] std::uint64_t out() const { return out_->address(backend_); }
  [[nodiscard]] std::uint64_t result() const { return result_->address(backend_); }
  [[nodiscard]] const std::byte* output() const { return out_->host(); }
  [[nodiscard]] std::uint64_t result_word(std::size_t index) const;

 private:
  void finish();

  Backend backend_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Queue> queue_;
  std::shared_ptr<Mapping> in_, out_, result_;
  std::map<std::string, std::shared_ptr<Kernel>> kernels_;
};

/// Opens the backend's bench once a program; skips the test where this machine lacks the backend. A word from the
/// validation layer fails the test.
class BackendTest : public ::testing::TestWithParam<Backend> {
 public:
  static inline bool accept_software = true;  ///< false: skip too where the only device is a software driver

 protected:
  void SetUp() override;
  void TearDown() override { EXPECT_EQ(validation_message_count(), 0U); }
  Bench* bench_ = nullptr;
};

/// A suite on the backends that the program is about: those of a GPU, or Vulkan on whatever there is.
#ifdef GPUMAP_TEST_GPU
#define GPUMAP_ON_BACKENDS(Suite)                                              \
  const bool Suite##_needs_gpu = (BackendTest::accept_software = false, true); \
  INSTANTIATE_TEST_SUITE_P(Gpu, Suite, ::testing::Values(Backend::cuda, Backend::vulkan))
#else
#define GPUMAP_ON_BACKENDS(Suite) INSTANTIATE_TEST_SUITE_P(Vulkan, Suite, ::testing::Values(Backend::vulkan))
#endif

/// A compute shader, named test.comp in messages.
inline KernelSource glsl(std::string code) {
  return {.language = Language::glsl, .name = "test.comp", .code = std::move(code), .function = {}};
}

/// All that a built-in launches, whether one kernel or several, but for those that are made for one size or format.
inline std::vector<KernelSource> sources_of(const Builtin& builtin, Backend backend) {
  if (builtin.kernels.empty()) return {source_of(builtin, backend)};
  std::vector<KernelSource> sources;
  for (const KernelText& kernel : builtin.kernels) sources.push_back(source_of(kernel, backend));
  return sources;
}

/// The built-in kernels against builtin_reference.hpp: one table of cases, instantiated for each backend that a test
/// program is about.
class BuiltinTest : public BackendTest {};

}  // namespace gpumap
