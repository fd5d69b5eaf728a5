// SPDX-License-Identifier: MIT
#include "backend_bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "gpumap/error.hpp"

namespace gpumap {

Bench::Bench(Backend backend) : backend_(backend), device_(Device::open("auto")) {
  queue_ = device_->create_queue(backend);
  in_ = device_->allocate({.placement = Placement::bar, .bytes = memory_bytes});
  out_ = device_->allocate({.placement = Placement::host, .bytes = memory_bytes}, backend);
  result_ = device_->allocate({.placement = Placement::host, .bytes = 4096}, backend);
}

void Bench::prepare(reference::Bytes bytes, std::size_t out_bytes) {
  std::copy(bytes.begin(), bytes.end(), in_->host());
  in_->flush(0, bytes.size());
  std::memset(out_->host(), static_cast<int>(poison), out_bytes);
  out_->flush(0, out_bytes);
  std::memset(result_->host(), 0, result_->bytes());
  result_->flush(0, result_->bytes());
}

void Bench::run(const Kernel& kernel, const gpumap_frame& frame) {
  queue_->launch(kernel, kernel.grid_for(frame), frame);
  finish();
}

void Bench::run(Program& program, const gpumap_frame& frame) {
  program.run(*queue_, frame);
  finish();
}

void Bench::finish() {
  ASSERT_EQ(queue_->submit().wait_for(std::chrono::seconds(60)), WaitResult::ready);
  out_->invalidate(0, out_->bytes());
  result_->invalidate(0, result_->bytes());
}

const Kernel& Bench::builtin(const std::string& name) {
  auto& kernel = kernels_[name];
  if (!kernel) kernel = Kernel::load(device_, source_of(*find_builtin(name), backend_));
  return *kernel;
}

std::uint64_t Bench::result_word(std::size_t index) const {
  std::uint64_t word = 0;
  std::memcpy(&word, result_->host() + index * sizeof word, sizeof word);
  return word;
}

void BackendTest::SetUp() {
  std::shared_ptr<Device> device;
  try {
    device = Device::open("auto");
  } catch (const Error& error) {
    if (accept_software) throw;
    GTEST_SKIP() << error.what();
  }
  if (device->info().software && !accept_software) GTEST_SKIP() << "no GPU here, only " << device->info().name;
  if (!device->has(GetParam())) GTEST_SKIP() << device->info().name << " does not have this backend";
  // After the first open: the library's own statics must outlive what is kept here.
  static std::map<Backend, std::unique_ptr<Bench>> benches;
  auto& bench = benches[GetParam()];
  if (!bench) bench = std::make_unique<Bench>(GetParam());
  bench_ = bench.get();
}

}  // namespace gpumap
