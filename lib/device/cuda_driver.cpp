// SPDX-License-Identifier: MIT
#include "device/cuda_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <thread>
#include <utility>

#include "device/cuda_span.hpp"
#include "device/cuda_timeline.hpp"
#include "device/resident_registry.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace cuda {
namespace {

Driver open_driver() {
  Driver driver;
  driver.library = DynamicLibrary("libcuda.so.1");
  if (!driver.library) {
    check_descriptors("CUDA", "opening libcuda.so.1");
    throw Error(ErrorCode::no_driver, "libcuda.so.1 was not found: install the NVIDIA driver to run CUDA kernels");
  }
  std::string missing;
#define GPUMAP_CUDA_LOAD(name, symbol, ...) \
  if (!driver.library.find(#symbol, driver.name)) missing += " " #symbol;
  GPUMAP_CUDA_MANDATORY(GPUMAP_CUDA_LOAD)
#undef GPUMAP_CUDA_LOAD
  if (!missing.empty()) {
    throw Error(ErrorCode::no_driver,
                fmt::format("libcuda.so.1 is too old: it lacks{}: update the NVIDIA driver", missing));
  }
  const auto all = [](std::initializer_list<bool> found) { return std::ranges::all_of(found, std::identity()); };
#define GPUMAP_CUDA_LOAD(name, symbol, ...) driver.library.find(#symbol, driver.name),
  driver.has_stream_memory = all({GPUMAP_CUDA_STREAM_MEMORY(GPUMAP_CUDA_LOAD)});
  driver.has_event_times = all({GPUMAP_CUDA_EVENT_TIMES(GPUMAP_CUDA_LOAD)});
  driver.has_enumerate = all({GPUMAP_CUDA_ENUMERATE(GPUMAP_CUDA_LOAD)});
  driver.has_parameters = all({GPUMAP_CUDA_PARAMETERS(GPUMAP_CUDA_LOAD)});
  driver.has_graphs = all({GPUMAP_CUDA_GRAPHS(GPUMAP_CUDA_LOAD)});
  driver.has_partitions = all({GPUMAP_CUDA_PARTITIONS(GPUMAP_CUDA_LOAD)});
#undef GPUMAP_CUDA_LOAD
  // A driver before CUDA 12.8 has an older function, which takes and gives the same.
  if (!driver.has_event_times) {
    driver.has_event_times = driver.library.find("cuEventElapsedTime", driver.cuEventElapsedTime);
  }
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS) {
    throw Error(ErrorCode::no_driver,
                fmt::format("CUDA does not start: cuInit says {}: check nvidia-smi", driver.name(result)));
  }
  driver.cuDriverGetVersion(&driver.version);
  return driver;
}

}  // namespace

const Driver& Driver::get() {
  static std::mutex mutex;
  static Driver* driver = nullptr;  // kept for the life of the process, as libcuda's own state is
  const std::lock_guard lock(mutex);
  if (driver == nullptr) driver = new Driver(open_driver());
  return *driver;
}

std::string Driver::name(CUresult result) const {
  const char* text = nullptr;
  if (cuGetErrorName(result, &text) != CUDA_SUCCESS || text == nullptr) {
    return fmt::format("CUDA error {}", static_cast<int>(result));
  }
  return text;
}

std::string Driver::version_text() const {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace cuda

namespace {

/// Errors after which every call on the context fails: only a new process helps.
bool is_sticky(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

ErrorCode code_of(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ErrorCode::no_memory;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_NOT_FOUND:
      return ErrorCode::invalid;
    default:
      return ErrorCode::not_supported;
  }
}

}  // namespace

CudaContext::CudaContext(const cuda::Driver& driver, int ordinal, std::string gpu_name, std::shared_ptr<Health> health)
    : driver_(driver),
      gpu_name_(std::move(gpu_name)),
      health_(std::move(health)),
      partitions_(std::make_unique<CudaPartitions>(*this)) {
  check(driver_.cuDeviceGet(&device_, ordinal), "opening the device");
  residents_ = std::make_unique<Residents>(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "retaining the primary context");
  try {
    const char* timeline = std::getenv("GPUMAP_CUDA_TIMELINE");
    stream_memory_ = driver_.has_stream_memory && (timeline == nullptr || std::string_view(timeline) != "events") &&
                     attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
    const Scope scope(*this);
    check(driver_.cuStreamCreate(&download_stream_, CU_STREAM_NON_BLOCKING), "creating a stream");
    check(driver_.cuStreamCreate(&upload_stream_, CU_STREAM_NON_BLOCKING), "creating a stream");
    clock_ = std::make_unique<CudaClock>(*this);
  } catch (...) {
    release();
    throw;
  }
}

CudaContext::~CudaContext() {
  release();
}

void CudaContext::release() noexcept {
  clock_.reset();
  if (const CleanupScope scope(*this); scope) {
    for (const CUstream stream : {download_stream_, upload_stream_}) {
      if (stream != nullptr) driver_.cuStreamDestroy(stream);
    }
  }
  // Ends: nothing runs on it, for that would keep the device.
  driver_.cuDevicePrimaryCtxRelease(device_);
}

CudaContext::Scope::Scope(const CudaContext& context) : driver_(context.driver_) {
  context.health_->check();
  CUcontext now = nullptr;
  if (driver_.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == context.context_) return;
  context.check(driver_.cuCtxPushCurrent(context.context_), "making the context current");
  pushed_ = true;
}

CudaContext::Scope::~Scope() {
  CUcontext popped = nullptr;
  if (pushed_) driver_.cuCtxPopCurrent(&popped);
}

CudaContext::CleanupScope::CleanupScope(const CudaContext& context) noexcept
    : driver_(context.driver_),
      current_(!context.health_->lost() && !context.stuck() &&
               driver_.cuCtxPushCurrent(context.context_) == CUDA_SUCCESS) {}

CudaContext::CleanupScope::~CleanupScope() {
  CUcontext popped = nullptr;
  if (current_) driver_.cuCtxPopCurrent(&popped);
}

void CudaContext::add(const std::shared_ptr<CudaTimeline>& timeline) const {
  const std::lock_guard lock(timelines_mutex_);
  std::erase_if(timelines_, [](const auto& one) { return one.expired(); });
  timelines_.push_back(timeline);
}

bool CudaContext::settles(std::chrono::nanoseconds longest, const std::atomic<bool>* cancel) const noexcept {
  const auto until = Clock::now() + longest;
  const std::atomic<bool> never{false};
  if (cancel == nullptr) cancel = &never;
  try {
    if (stuck()) return false;
    std::vector<std::shared_ptr<CudaTimeline>> all;
    {
      const std::lock_guard lock(timelines_mutex_);
      for (const auto& one : timelines_) {
        if (auto timeline = one.lock()) all.push_back(std::move(timeline));
      }
    }
    bool settled = true;
    for (const auto& timeline : all) {
      const Fence end(timeline, timeline->due());
      const WaitResult waited = end.wait(*cancel, until);
      if (waited == WaitResult::ready) continue;
      if (waited == WaitResult::cancelled) return false;
      end.give_up({});
      settled = false;
    }
    return settled;
  } catch (const std::exception&) {
    return true;  // the device is lost: nothing runs on it any more
  }
}

void CudaContext::wait_while_stuck(std::chrono::nanoseconds longest, const std::atomic<bool>* cancel) const {
  constexpr std::chrono::milliseconds step(2);
  const auto until = Clock::now() + longest;
  static_cast<void>(settles(longest, cancel));
  for (std::string work = stuck_.running(); !work.empty(); work = stuck_.running()) {
    if (cancel != nullptr && *cancel) return;
    if (Clock::now() >= until) {
      throw Error(ErrorCode::io,
                  fmt::format("{} still runs on {} {} s after others wanted to load code, which the driver does once "
                              "that has ended: start the process anew, and have that end",
                              work, gpu_name_, std::chrono::duration<double>(longest).count()));
    }
    std::this_thread::sleep_for(step);
  }
}

int CudaContext::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  return driver_.cuDeviceGetAttribute(&value, attribute, device_) == CUDA_SUCCESS ? value : 0;
}

void CudaContext::check(CUresult result, std::string_view what) const {
  if (result == CUDA_SUCCESS) return;
  if (is_sticky(result)) {
    health_->mark_lost(fmt::format("the CUDA context of {} was lost when {} ({}): restart the process", gpu_name_, what,
                                   driver_.name(result)));
  }
  health_->check();
  const char* text = nullptr;
  driver_.cuGetErrorString(result, &text);
  const std::string cause = fmt::format("{}: CUDA failed when {}: {} ({})", gpu_name_, what,
                                        text == nullptr ? "unknown error" : text, driver_.name(result));
  if (code_of(result) != ErrorCode::no_memory) throw Error(code_of(result), cause);
  throw Error(ErrorCode::no_memory, cause, "free memory on the GPU: nvidia-smi tells which processes have it");
}

void CudaContext::download(CUdeviceptr from, void* to, std::size_t bytes) {
  const Scope scope(*this);
  const std::lock_guard lock(download_mutex_);
  check(driver_.cuMemcpyDtoHAsync(to, from, bytes, download_stream_), "downloading");
  // Ends: no kernel is ever on this stream.
  check(driver_.cuStreamSynchronize(download_stream_), "downloading");
}

void CudaContext::upload(const void* from, CUdeviceptr to, std::size_t bytes) {
  const Scope scope(*this);
  const std::lock_guard lock(upload_mutex_);
  check(driver_.cuMemcpyHtoDAsync(to, from, bytes, upload_stream_), "uploading");
  // Ends: no kernel is ever on this stream.
  check(driver_.cuStreamSynchronize(upload_stream_), "uploading");
}

}  // namespace gpumap
