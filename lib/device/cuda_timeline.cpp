// SPDX-License-Identifier: MIT
#include "device/cuda_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "device/resident_registry.hpp"
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

namespace {

/// The counter is a word in page-locked host memory that the stream itself writes: looking at it costs a load.
class WordTimeline final : public CudaTimeline {
 public:
  WordTimeline(std::shared_ptr<GpuDevice> device, const CudaQueueOptions& options)
      : CudaTimeline(std::move(device), options) {
    const auto& driver = context_.driver();
    const CudaContext::Scope scope(context_);
    const Residents::NewMemory arrives(context_.residents());
    void* host = nullptr;
    constexpr std::size_t cache_line = 64;
    context_.check(driver.cuMemHostAlloc(&host, cache_line, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                   "allocating a timeline");
    word_ = static_cast<std::uint64_t*>(host);
    *word_ = 0;
    if (const CUresult mapped = driver.cuMemHostGetDevicePointer(&address_, word_, 0); mapped != CUDA_SUCCESS) {
      free_page_locked(context_, word_);
      context_.check(mapped, "mapping a timeline");
    }
  }

  ~WordTimeline() override {
    // Freed memory must not be written: let the stream's last signal come first.
    if (!drain(patience_at_end)) return;
    free_page_locked(context_, word_);
  }

  [[nodiscard]] std::uint64_t completed() override {
    return std::atomic_ref<std::uint64_t>(*word_).load(std::memory_order_acquire);
  }

  [[nodiscard]] CUdeviceptr word() const noexcept override { return address_; }

  void raise(std::uint64_t value) override {
    // The default flags put a system-wide memory barrier before the write: who sees the value sees the work's results.
    context_.check(context_.driver().cuStreamWriteValue64(stream(), address_, value, CU_STREAM_WRITE_VALUE_DEFAULT),
                   "signalling a timeline");
  }

  void make_wait(CUstream other, std::uint64_t value) override {
    context_.check(context_.driver().cuStreamWaitValue64(other, address_, value, CU_STREAM_WAIT_VALUE_GEQ),
                   "waiting for a timeline");
  }

 private:
  std::uint64_t* word_ = nullptr;
  CUdeviceptr address_ = 0;
};

/// For drivers without stream memory operations: one event for each value, asked in order.
class EventTimeline final : public CudaTimeline {
 public:
  EventTimeline(std::shared_ptr<GpuDevice> device, const CudaQueueOptions& options)
      : CudaTimeline(std::move(device), options) {}

  ~EventTimeline() override {
    const CudaContext::CleanupScope scope(context_);
    if (!scope) return;
    for (const auto& [value, event] : pending_) context_.driver().cuEventDestroy(event);
    for (const CUevent event : idle_) context_.driver().cuEventDestroy(event);
  }

  [[nodiscard]] std::uint64_t completed() override {
    const std::lock_guard lock(mutex_);
    // Not while lost: the driver's answer would be the fault, which check() reports.
    if (context_.health().lost()) return completed_;
    try {
      const CudaContext::Scope scope(context_);
      while (!pending_.empty() && context_.driver().cuEventQuery(pending_.front().second) == CUDA_SUCCESS) {
        completed_ = pending_.front().first;
        idle_.push_back(pending_.front().second);
        pending_.pop_front();
      }
    } catch (const Error&) {
      // Lost meanwhile.
    }
    return completed_;
  }

  void raise(std::uint64_t value) override {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      CUevent event = nullptr;
      context_.check(context_.driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "creating an event");
      idle_.push_back(event);
    }
    context_.check(context_.driver().cuEventRecord(idle_.back(), stream()), "recording an event");
    pending_.emplace_back(value, idle_.back());
    idle_.pop_back();
  }

  void make_wait(CUstream other, std::uint64_t value) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [pending_value, event] : pending_) {
      if (pending_value < value) continue;
      context_.check(context_.driver().cuStreamWaitEvent(other, event, 0), "waiting for an event");
      return;
    }
  }

 private:
  std::mutex mutex_;
  std::deque<std::pair<std::uint64_t, CUevent>> pending_;
  std::vector<CUevent> idle_;
  std::uint64_t completed_ = 0;
};

/// As CUDA counts, where fewer is more urgent. Inside a Scope.
int priority_of(const CudaContext& context, std::uint32_t asked) {
  if (asked == 0) return 0;
  int least = 0, greatest = 0;
  context.check(context.driver().cuCtxGetStreamPriorityRange(&least, &greatest), "asking for the priorities");
  const auto most = static_cast<std::uint32_t>(std::max(-greatest, 0));
  if (asked > most) {
    throw Error(ErrorCode::invalid, fmt::format("priority={}: {} knows 0 to {}: set it to {} or less", asked,
                                                context.gpu_name(), most, most));
  }
  return -static_cast<int>(asked);
}

}  // namespace

CudaTimeline::CudaTimeline(std::shared_ptr<GpuDevice> device, const CudaQueueOptions& options)
    : device_(std::move(device)), context_(*device_->cuda()) {
  const CudaContext::Scope scope(context_);
  const int priority = priority_of(context_, options.priority);
  if (options.sm_share != 0) {
    partition_ = context_.partitions().take(options.sm_share);
    demand_.emplace(context_.residents(), Residents::Needs::share);
    stream_ = partition_->create_stream(priority);
  } else {
    context_.check(context_.driver().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority),
                   "creating a stream");
  }
}

CudaTimeline::~CudaTimeline() {
  if (stream_ == nullptr) return;
  if (const CudaContext::CleanupScope scope(context_); scope) context_.driver().cuStreamDestroy(stream_);
}

void CudaTimeline::end() noexcept {
  if (!partition_) return;
  // Ends: what was submitted before has ended, or is given up.
  const CudaFreeScope scope(context_);
  if (!scope) return;
  const std::lock_guard lock(stream_mutex_);
  context_.driver().cuStreamDestroy(std::exchange(stream_, nullptr));
  partition_.reset();
}

void CudaTimeline::check() {
  const CudaContext::Scope scope(context_);
  const std::lock_guard lock(stream_mutex_);
  if (stream_ == nullptr) return;
  const CUresult result = context_.driver().cuStreamQuery(stream_);
  if (result != CUDA_ERROR_NOT_READY) context_.check(result, "running kernels");
}

bool CudaTimeline::drain(std::chrono::nanoseconds longest) const noexcept {
  constexpr std::chrono::microseconds longest_sleep{200};
  if (stream_ == nullptr) return true;
  try {
    const CudaContext::Scope scope(context_);
    const auto until = Clock::now() + longest;
    for (std::chrono::nanoseconds sleep{0}; context_.driver().cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY;
         sleep = std::min<std::chrono::nanoseconds>(sleep * 2 + std::chrono::microseconds(1), longest_sleep)) {
      if (Clock::now() >= until) return false;
      std::this_thread::sleep_for(sleep);
    }
  } catch (const std::exception&) {
    // The device is lost: nothing runs on it any more.
  }
  return true;
}

bool end_stream(const std::shared_ptr<CudaTimeline>& timeline, std::uint64_t submitted,
                const std::string& work) noexcept {
  timeline->end_demand();
  if (timeline->drain(patience_at_end)) {
    timeline->end();
    return true;
  }
  try {
    const CudaContext::Scope scope(timeline->context());
    timeline->signal(submitted + 1);
    Fence(timeline, submitted + 1).give_up(work);
    keep_for_good(timeline);
  } catch (const std::exception&) {
    return true;  // the device is lost: nothing runs on it any more
  }
  return false;
}

std::shared_ptr<CudaTimeline> create_cuda_timeline(std::shared_ptr<GpuDevice> device, const CudaQueueOptions& options) {
  const CudaContext& context = *device->cuda();
  std::shared_ptr<CudaTimeline> made;
  if (context.stream_memory()) {
    made = std::make_shared<WordTimeline>(std::move(device), options);
  } else {
    made = std::make_shared<EventTimeline>(std::move(device), options);
  }
  context.add(made);
  return made;
}

}  // namespace gpumap
