// SPDX-License-Identifier: MIT
#include "device/gpu_device.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <utility>

#include "device/cuda_driver.hpp"
#include "device/unique_fd.hpp"
#include "device/vulkan_device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/patience.hpp"
#include "gpumap/printable.hpp"

namespace gpumap {

void check_descriptors(std::string_view name, std::string_view what) {
  const UniqueFd another(open("/", O_PATH | O_CLOEXEC));
  if (another || (errno != EMFILE && errno != ENFILE)) return;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  throw Error(
      ErrorCode::no_resources,
      fmt::format("{}: no file descriptor is left while {}: this process may have {}", name, what, limit.rlim_cur),
      "raise ulimit -n");
}

GpuDevice::GpuDevice(DeviceInfo info, std::shared_ptr<Health> health, std::unique_ptr<VulkanContext> vulkan,
                     std::unique_ptr<CudaContext> cuda)
    : info_(std::move(info)), health_(std::move(health)), vulkan_(std::move(vulkan)), cuda_(std::move(cuda)) {}

GpuDevice::~GpuDevice() = default;

Backend GpuDevice::default_backend() const noexcept {
  return cuda_ ? Backend::cuda : Backend::vulkan;
}

bool GpuDevice::has(Backend backend) const noexcept {
  return backend == Backend::cuda ? cuda_ != nullptr : vulkan_ != nullptr;
}

bool GpuDevice::stuck() const noexcept {
  return (vulkan_ && vulkan_->stuck_work().any()) || (cuda_ && cuda_->stuck());
}

std::chrono::milliseconds patience_of_ends(const Device& device) noexcept {
  constexpr std::chrono::milliseconds patience_of_others{300};
  const auto* gpu = dynamic_cast<const GpuDevice*>(&device);
  return gpu != nullptr && gpu->stuck() ? patience_of_others : patience_at_end;
}

std::uint64_t GpuDevice::window_free_bytes() const {
  return vulkan_->window_free_bytes();
}

Backend GpuDevice::choose(std::optional<Backend> backend) const {
  check_alive();
  const Backend chosen = backend.value_or(default_backend());
  if (!has(chosen)) {
    throw Error(ErrorCode::not_supported,
                fmt::format("{} has no CUDA: use the Vulkan backend, or a GPU with the NVIDIA driver", info_.name));
  }
  return chosen;
}

namespace {

constexpr const char* nameless = "work of a queue";

/// Without a hold on either, whose end would ask here again.
bool are_same(const std::weak_ptr<Timeline>& one, const std::weak_ptr<Timeline>& other) noexcept {
  return !one.owner_before(other) && !other.owner_before(one);
}

}  // namespace

void StuckWork::note(const Fence& end, const std::string& work) {
  if (end.signalled()) return;
  {
    const std::lock_guard lock(mutex_);
    may_run_ = true;
    for (One& known : noted_) {
      if (!are_same(known.timeline, end.timeline())) continue;
      known.until = std::max(known.until, end.value());
      if (!work.empty()) known.work = work;
      return;
    }
    noted_.push_back({end.timeline(), end.value(), work.empty() ? nameless : work});
  }
  std::fprintf(
      stderr,
      "gpumap: %s still runs, and is not waited for any longer: what is to be freed meanwhile stays allocated\n",
      printable(work.empty() ? nameless : work).c_str());
}

std::string StuckWork::running() const {
  if (!may_run_) return {};
  std::unique_lock lock(mutex_);
  const std::vector<One> known = noted_;
  lock.unlock();  // what a timeline does when it goes asks here again
  for (const One& one : known) {
    if (const auto timeline = one.timeline.lock(); timeline && timeline->completed() < one.until) return one.work;
  }
  lock.lock();
  // More may have been given up meanwhile, of these timelines as well.
  std::erase_if(noted_, [&known](const One& one) {
    return std::ranges::any_of(
        known, [&one](const One& ended) { return are_same(one.timeline, ended.timeline) && one.until == ended.until; });
  });
  may_run_ = !noted_.empty();
  return noted_.empty() ? std::string() : noted_.front().work;
}

bool StuckWork::any() const noexcept {
  try {
    return !running().empty();
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace gpumap
