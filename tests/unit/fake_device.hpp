// SPDX-License-Identifier: MIT
// A device without a GPU: slots in ordinary memory, fences raised by hand. For tests of what stands above a device.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/error.hpp"

namespace gpumap::test {

/// A timeline that the test raises.
class FakeTimeline : public Timeline {
 public:
  std::uint64_t completed() override {
    ++asked;
    return reached.load();
  }
  void check() override {
    if (lost.load()) throw Error(ErrorCode::device_lost, "the fake device was lost on purpose");
  }
  std::atomic<std::uint64_t> reached{0};
  std::atomic<std::uint64_t> asked{0};
  std::atomic<bool> lost{false};
};

/// Page-aligned host memory with inaccessible pages on both sides: a store outside faults at once.
class FakeMapping : public Mapping {
 public:
  explicit FakeMapping(const MappingOptions& options) : options_(options) {
    span_bytes_ = (options.bytes + page - 1) / page * page + 2 * page;
    void* at = mmap(nullptr, span_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw Error(ErrorCode::no_memory, "no address space for a fake mapping");
    base_ = static_cast<std::byte*>(at);
    mprotect(base_ + page, span_bytes_ - 2 * page, PROT_READ | PROT_WRITE);
  }
  ~FakeMapping() override { munmap(base_, span_bytes_); }

  [[nodiscard]] Placement placement() const noexcept override { return options_.placement; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return options_.bytes; }
  [[nodiscard]] std::byte* host() const noexcept override { return base_ + page; }
  [[nodiscard]] std::uint64_t address(Backend) const noexcept override {
    return reinterpret_cast<std::uint64_t>(host());
  }
  [[nodiscard]] bool coherent() const noexcept override { return !options_.treat_as_non_coherent; }
  void flush(std::size_t offset, std::size_t bytes) const override {
    check(offset, bytes);
    const std::lock_guard guard(lock_);
    flushed_.emplace_back(offset, bytes);
  }
  void invalidate(std::size_t offset, std::size_t bytes) const override { check(offset, bytes); }
  [[nodiscard]] bool cpu_readable() const noexcept override { return true; }
  /// Flushes, like the real one; the fence is the test's own where it set one.
  [[nodiscard]] Fence upload(std::size_t offset, std::size_t bytes) const override {
    flush(offset, bytes);
    return next_upload;
  }
  mutable Fence next_upload;
  void download(std::size_t offset, std::span<std::byte> to) const override {
    check(offset, to.size());
    if (!to.empty()) std::memcpy(to.data(), host() + offset, to.size());
  }
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> flushed() const {
    const std::lock_guard guard(lock_);
    return flushed_;
  }

 private:
  static constexpr std::size_t page = 4096;
  void check(std::size_t offset, std::size_t bytes) const {
    if (offset > options_.bytes || bytes > options_.bytes - offset) {
      throw Error(ErrorCode::invalid, "a range outside the fake mapping");
    }
  }
  MappingOptions options_;
  std::size_t span_bytes_ = 0;
  std::byte* base_ = nullptr;
  mutable std::mutex lock_;
  mutable std::vector<std::pair<std::size_t, std::size_t>> flushed_;
};

/// Gives FakeMappings, for Placement::bar up to `window` bytes in one request; has no queues.
class FakeDevice : public Device {
 public:
  explicit FakeDevice(std::uint64_t window = std::uint64_t{1} << 32U) : window_(window) {
    info_.name = "fake";
    info_.software = true;
    info_.window_bytes = info_.memory_bytes = info_.window_free_bytes = window;
    info_.access = DeviceAccess::software;
  }
  [[nodiscard]] const DeviceInfo& info() const noexcept override { return info_; }
  [[nodiscard]] Backend default_backend() const noexcept override { return Backend::vulkan; }
  [[nodiscard]] bool has(Backend backend) const noexcept override { return backend == Backend::vulkan; }
  [[nodiscard]] std::uint64_t window_free_bytes() const override { return window_; }
  [[nodiscard]] std::shared_ptr<Mapping> allocate(const MappingOptions& options, std::optional<Backend>) override {
    last_options = options;
    if (options.placement == Placement::bar && options.bytes > window_)
      throw Error(ErrorCode::no_memory, "fake window exhausted");
    return std::make_shared<FakeMapping>(options);
  }
  [[nodiscard]] std::unique_ptr<Queue> create_queue(std::optional<Backend>) override {
    throw Error(ErrorCode::not_supported, "a fake device runs nothing");
  }
  [[nodiscard]] std::string lost() const override { return is_lost ? "the fake device was lost on purpose" : ""; }

  std::atomic<bool> is_lost{false};
  MappingOptions last_options;

 private:
  std::uint64_t window_;
  DeviceInfo info_;
};

}  // namespace gpumap::test
