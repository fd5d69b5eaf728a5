// SPDX-License-Identifier: MIT
//
// As much of a CUDA driver as queues, fences and spans need: each stream is a thread, and the GPU's clock is one that
// is made up. Its state is the process's own, as a driver's is; a test ends with reset().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda_driver.hpp"
#include "gpumap/latency.hpp"

namespace gpumap::fake_cuda {

inline std::atomic<double> clock_rate{1};      ///< ns of the GPU's in a ns of the CPU's
inline std::atomic<bool> stream_memory{true};  ///< stream memory operations work
inline std::atomic<bool> stalled{false};       ///< no stream goes on
inline std::atomic<CUresult> write_value{CUDA_SUCCESS}, event_query{CUDA_SUCCESS};  ///< what these calls answer
inline std::atomic<int> streams_to_come{1 << 20};                                   ///< then there is no memory for one
inline std::atomic<int> retained{0};                                                ///< primary contexts
inline thread_local std::vector<CUcontext> contexts;                                ///< pushed, the last one current
inline thread_local int pushes = 0;                                                 ///< of contexts

class Stream {
 public:
  explicit Stream(int how_urgent = 0, const void* part = nullptr) : priority(how_urgent), partition(part) {}
  ~Stream() {
    push([this] { ended_ = true; });
    thread_.join();
  }
  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_.empty(); });
  }
  [[nodiscard]] bool empty() {
    const std::lock_guard lock(mutex_);
    return work_.empty();
  }

  const int priority;           ///< as CUDA counts
  const void* const partition;  ///< the green context; null: none

 private:
  void run() {
    for (std::unique_lock lock(mutex_); !ended_;) {
      changed_.wait(lock, [this] { return !work_.empty(); });
      const auto work = work_.front();
      lock.unlock();
      while (stalled) std::this_thread::yield();
      work();
      lock.lock();
      work_.pop_front();
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool ended_ = false;
  std::thread thread_{[this] { run(); }};
};

struct Event {
  std::atomic<int> pending{0};
  std::shared_ptr<std::atomic<bool>> last_record = std::make_shared<std::atomic<bool>>(true);  ///< it has been reached
  std::atomic<bool> recorded{false};
  std::atomic<std::int64_t> cpu_ns{0}, gpu_ns{0};
};

/// What was made and not destroyed.
template <typename Thing>
class Live {
 public:
  Thing* add(Thing* thing) {
    const std::lock_guard lock(mutex_);
    return *things_.insert(thing).first;
  }
  Thing* remove(Thing* thing) {
    const std::lock_guard lock(mutex_);
    things_.erase(thing);
    return thing;
  }
  [[nodiscard]] std::size_t count() {
    const std::lock_guard lock(mutex_);
    return things_.size();
  }
  /// What a lost context leaves behind ends with the process.
  template <typename Destroy>
  void end(const Destroy& destroy) {
    for (Thing* thing : std::exchange(things_, {})) destroy(thing);
  }

 private:
  std::mutex mutex_;
  std::set<Thing*> things_;
};
inline Live<Stream> streams;
inline Live<Event> events;
inline Live<void> host_blocks;

/// No queue is left.
inline void reset() {
  stalled = false;
  streams.end([](const Stream* stream) { delete stream; });
  events.end([](const Event* event) { delete event; });
  host_blocks.end([](void* memory) { std::free(memory); });
  clock_rate = 1;
  stream_memory = true;
  write_value = event_query = CUDA_SUCCESS;
  streams_to_come = 1 << 20;
}

inline Stream& of(CUstream stream) {
  return *reinterpret_cast<Stream*>(stream);
}
inline Event& of(CUevent event) {
  return *reinterpret_cast<Event*>(event);
}
inline std::atomic_ref<std::uint64_t> word(CUdeviceptr address) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(address));
}

/// The pages' own addresses serve as the device's.
inline void fill_memory(cuda::Driver& driver) {
  driver.cuMemHostAlloc = [](void** memory, std::size_t bytes, unsigned) {
    *memory = host_blocks.add(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    return CUDA_SUCCESS;
  };
  driver.cuMemFreeHost = [](void* memory) {
    std::free(host_blocks.remove(memory));
    return CUDA_SUCCESS;
  };
  driver.cuMemHostGetDevicePointer = [](CUdeviceptr* address, void* memory, unsigned) {
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
  };
  driver.cuStreamWaitValue64 = [](CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned) {
    of(stream).push([=] {
      while (word(address).load() < value) std::this_thread::yield();
    });
    return CUDA_SUCCESS;
  };
  driver.cuStreamWriteValue64 = [](CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned) {
    if (write_value == CUDA_SUCCESS) of(stream).push([=] { word(address).store(value); });
    return write_value.load();
  };
}

inline void fill_events(cuda::Driver& driver) {
  driver.cuEventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(events.add(new Event));
    return CUDA_SUCCESS;
  };
  driver.cuEventDestroy = [](CUevent event) {
    while (of(event).pending != 0) std::this_thread::yield();
    delete events.remove(&of(event));
    return CUDA_SUCCESS;
  };
  driver.cuEventRecord = [](CUevent event, CUstream stream) {
    Event& recorded = of(event);
    ++recorded.pending;
    recorded.recorded = true;
    recorded.last_record = std::make_shared<std::atomic<bool>>(false);
    of(stream).push([&recorded, reached = recorded.last_record] {
      const std::int64_t now = monotonic_ns();
      recorded.cpu_ns = now;
      recorded.gpu_ns = static_cast<std::int64_t>(static_cast<double>(now) * clock_rate) - 1'000'000'000'000;
      *reached = true;
      --recorded.pending;
    });
    return CUDA_SUCCESS;
  };
  // For the last record before this call, whatever is recorded later.
  driver.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    of(stream).push([reached = of(event).last_record] {
      while (!*reached) std::this_thread::yield();
    });
    return CUDA_SUCCESS;
  };
  driver.cuEventQuery = [](CUevent event) {
    if (event_query != CUDA_SUCCESS) return event_query.load();
    return of(event).pending == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  driver.cuEventElapsedTime = [](float* ms, CUevent from, CUevent to) {
    if (!of(from).recorded || !of(to).recorded) return CUDA_ERROR_INVALID_HANDLE;
    if (of(from).pending != 0 || of(to).pending != 0) return CUDA_ERROR_NOT_READY;
    *ms = static_cast<float>(static_cast<double>(of(to).gpu_ns - of(from).gpu_ns) / 1e6);
    return CUDA_SUCCESS;
  };
  driver.has_event_times = true;
}

/// The device's; nobody looks behind it.
[[nodiscard]] inline CUcontext primary() {
  static int behind = 0;
  return reinterpret_cast<CUcontext>(&behind);
}

/// Which a test may change, while nobody uses it.
[[nodiscard]] inline cuda::Driver& table() {
  static auto* const driver = [] {
    auto* made = new cuda::Driver;
    made->cuGetErrorName = [](CUresult, const char** text) { return *text = "CUDA_ERROR_MADE_UP", CUDA_SUCCESS; };
    made->cuGetErrorString = [](CUresult, const char** text) { return *text = "made up", CUDA_SUCCESS; };
    made->cuDeviceGet = [](CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; };
    made->cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
      return *value = stream_memory ? 1 : 0, CUDA_SUCCESS;
    };
    made->cuOccupancyMaxActiveBlocksPerMultiprocessor = [](int* blocks, CUfunction, int, std::size_t) {
      return *blocks = 1, CUDA_SUCCESS;
    };
    made->cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
      return *context = primary(), ++retained, CUDA_SUCCESS;
    };
    made->cuDevicePrimaryCtxRelease = [](CUdevice) { return --retained, CUDA_SUCCESS; };
    made->cuCtxGetCurrent = [](CUcontext* context) {
      return *context = contexts.empty() ? nullptr : contexts.back(), CUDA_SUCCESS;
    };
    made->cuCtxPushCurrent = [](CUcontext context) { return contexts.push_back(context), ++pushes, CUDA_SUCCESS; };
    made->cuCtxPopCurrent = [](CUcontext*) { return contexts.pop_back(), CUDA_SUCCESS; };
    made->cuStreamCreate = [](CUstream* stream, unsigned) {
      if (streams_to_come-- <= 0) return CUDA_ERROR_OUT_OF_MEMORY;
      return *stream = reinterpret_cast<CUstream>(streams.add(new Stream)), CUDA_SUCCESS;
    };
    made->cuCtxGetStreamPriorityRange = [](int* least, int* greatest) {
      return *least = 0, *greatest = -5, CUDA_SUCCESS;
    };
    made->cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int priority) {
      if (streams_to_come-- <= 0) return CUDA_ERROR_OUT_OF_MEMORY;
      return *stream = reinterpret_cast<CUstream>(streams.add(new Stream(priority))), CUDA_SUCCESS;
    };
    made->cuStreamDestroy = [](CUstream stream) { return delete streams.remove(&of(stream)), CUDA_SUCCESS; };
    made->cuStreamSynchronize = [](CUstream stream) { return of(stream).synchronize(), CUDA_SUCCESS; };
    made->cuStreamQuery = [](CUstream stream) { return of(stream).empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; };
    fill_memory(*made);
    fill_events(*made);
    made->has_stream_memory = true;
    return made;
  }();
  return *driver;
}
[[nodiscard]] inline const cuda::Driver& driver() {
  return table();
}

}  // namespace gpumap::fake_cuda
