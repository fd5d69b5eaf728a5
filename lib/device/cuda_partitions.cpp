// SPDX-License-Identifier: MIT
#include "device/cuda_partitions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpumap/error.hpp"

namespace gpumap {

CudaPartition::~CudaPartition() {
  if (context_ != nullptr) {
    // A lost context keeps what it has until the process ends.
    const CudaContext::CleanupScope scope(partitions_.context_);
    if (scope) partitions_.context_.driver().cuGreenCtxDestroy(context_);
  }
  partitions_.give_back(*this);
}

CUstream CudaPartition::create_stream(int priority) const {
  const CudaContext& context = partitions_.context_;
  CUstream stream = nullptr;
  context.check(context.driver().cuGreenCtxStreamCreate(&stream, context_, CU_STREAM_NON_BLOCKING, priority),
                "creating a stream of a partition");
  return stream;
}

std::unique_ptr<CudaPartition> CudaPartitions::take(double share) {
  const CudaContext::Scope scope(context_);
  // Made before the lock, which its end takes.
  std::unique_ptr<CudaPartition> made(new CudaPartition(*this));
  const std::lock_guard lock(mutex_);
  part();
  // A share as text ("0.1") is seldom the number that it means: 0.25 of 32 are 8.
  const auto wanted = static_cast<std::uint32_t>(std::floor(share * whole_ + 1e-6));
  const std::vector<std::size_t> chosen = choose(wanted);
  std::uint32_t count = 0, left = 0, least = whole_, most = 0;
  for (const Part& one : parts_) {
    least = std::min(least, one.resource.sm.smCount);
    most = std::max(most, one.resource.sm.smCount);
    if (!one.taken) left += one.resource.sm.smCount;
  }
  for (const std::size_t one : chosen) count += parts_[one].resource.sm.smCount;
  if (wanted < least) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("sm-share={} is {} of the {} multiprocessors of {}, but the driver's smallest part is {}: set "
                    "sm-share to {:.3f} or more, or leave it out",
                    share, wanted, whole_, context_.gpu_name(), least, std::ceil(1000.0 * least / whole_) / 1000));
  }
  if (chosen.empty() || count + most <= wanted) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("sm-share={} needs {} of the {} multiprocessors of {}, other kernels with a share leave {}: "
                    "lower the shares so that they fit together",
                    share, wanted, whole_, context_.gpu_name(), left));
  }
  std::vector<CUdevResource> resources;
  for (const std::size_t one : chosen) resources.push_back(parts_[one].resource);
  const auto& driver = context_.driver();
  CUdevResourceDesc description = nullptr;
  context_.check(
      driver.cuDevResourceGenerateDesc(&description, resources.data(), static_cast<unsigned>(resources.size())),
      "describing a partition");
  context_.check(driver.cuGreenCtxCreate(&made->context_, description, context_.device(), CU_GREEN_CTX_DEFAULT_STREAM),
                 "making a partition");
  for (const std::size_t one : chosen) parts_[one].taken = true;
  made->parts_ = chosen;
  made->multiprocessors_ = count;
  return made;
}

/// Of what is free, parts of `wanted` multiprocessors at most, and as many as can be. With the lock.
std::vector<std::size_t> CudaPartitions::choose(std::uint32_t wanted) const {
  // All are of one size but the last, which is tried with and without.
  std::vector<std::size_t> best;
  std::uint32_t best_count = 0;
  for (const bool with_last : {false, true}) {
    std::vector<std::size_t> chosen;
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t at = with_last ? parts_.size() - 1 - i : i;
      if (parts_[at].taken || count + parts_[at].resource.sm.smCount > wanted) continue;
      chosen.push_back(at);
      count += parts_[at].resource.sm.smCount;
    }
    if (count <= best_count) continue;
    best = std::move(chosen);
    best_count = count;
  }
  return best;
}

/// With the lock.
void CudaPartitions::part() {
  if (!parts_.empty()) return;
  const auto& driver = context_.driver();
  if (!driver.has_partitions) {
    throw Error(
        ErrorCode::not_supported,
        fmt::format("sm-share needs green contexts, which the driver of {} (CUDA {}) has not: update the NVIDIA "
                    "driver to one for CUDA 12.4 or later, or leave sm-share out",
                    context_.gpu_name(), driver.version_text()));
  }
  CUdevResource whole{};
  context_.check(driver.cuDeviceGetDevResource(context_.device(), &whole, CU_DEV_RESOURCE_TYPE_SM),
                 "asking for the multiprocessors");
  unsigned count = 0;
  context_.check(driver.cuDevSmResourceSplitByCount(nullptr, &count, &whole, nullptr, 0, 1),
                 "asking how the multiprocessors can be parted");
  std::vector<CUdevResource> groups(count);
  CUdevResource rest{};
  context_.check(driver.cuDevSmResourceSplitByCount(groups.data(), &count, &whole, &rest, 0, 1),
                 "parting the multiprocessors");
  groups.resize(count);
  if (rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount != 0) groups.push_back(rest);
  if (groups.empty()) {
    throw Error(ErrorCode::not_supported,
                fmt::format("the driver of {} (CUDA {}) parts none of its {} multiprocessors: leave sm-share out",
                            context_.gpu_name(), driver.version_text(), whole.sm.smCount));
  }
  for (const CUdevResource& group : groups) parts_.push_back({group, false});
  whole_ = whole.sm.smCount;
}

void CudaPartitions::give_back(const CudaPartition& partition) noexcept {
  if (partition.multiprocessors_ == 0) return;  // it did not come to be
  const std::lock_guard lock(mutex_);
  for (const std::size_t one : partition.parts_) parts_[one].taken = false;
}

}  // namespace gpumap
