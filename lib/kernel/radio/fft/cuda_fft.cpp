// SPDX-License-Identifier: MIT
#include "kernel/radio/fft/cuda_fft.hpp"

#include "gpumap/error.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "device/cuda_driver.hpp"
#include "device/cuda_free.hpp"
#include "device/dynamic_library.hpp"
#include "device/gpu_device.hpp"
#include "queue/queues.hpp"

namespace gpumap {
namespace {

// Of cufft.h: unchanged since CUDA 4.
using CufftHandle = int;
constexpr int cufft_success = 0;
constexpr int cufft_alloc_failed = 2;
constexpr int cufft_c2c = 0x29;
constexpr int cufft_forward = -1;

struct Cufft {
  DynamicLibrary library;
  int (*plan_many)(CufftHandle* plan, int rank, int* n, int* inembed, int istride, int idist, int* onembed, int ostride,
                   int odist, int type, int batch) = nullptr;
  int (*set_stream)(CufftHandle plan, CUstream stream) = nullptr;
  int (*exec_c2c)(CufftHandle plan, void* from, void* to, int direction) = nullptr;
  int (*destroy)(CufftHandle plan) = nullptr;
};

std::vector<std::string> folders() {
  if (const char* folder = std::getenv("GPUMAP_CUFFT_PATH")) return {std::string(folder) + "/"};
  std::vector<std::string> made{""};
  if (const char* home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0') {
    made.push_back(std::string(home) + "/lib64/");
  }
  made.emplace_back("/usr/local/cuda/lib64/");
  return made;
}

std::unique_ptr<Cufft> open_cufft() {
  for (const std::string& folder : folders()) {
    for (const char* name : {"libcufft.so.12", "libcufft.so.11"}) {
      auto made = std::make_unique<Cufft>();
      made->library = DynamicLibrary(folder + name);
      if (made->library && made->library.find("cufftPlanMany", made->plan_many) &&
          made->library.find("cufftSetStream", made->set_stream) &&
          made->library.find("cufftExecC2C", made->exec_c2c) && made->library.find("cufftDestroy", made->destroy)) {
        return made;
      }
    }
  }
  return nullptr;
}

/// The process's, or null. Never closed: it keeps what it made for a context until the process ends.
const Cufft* cufft() {
  static const Cufft* const library = open_cufft().release();
  return library;
}

/// To plan, the driver waits until the GPU runs nothing: for work that does not end nobody waits there.
constexpr std::chrono::seconds longest_before_planning{60};

class CudaFft final : public Fft {
 public:
  CudaFft(std::shared_ptr<GpuDevice> device, const Cufft& library, std::uint32_t size)
      : device_(std::move(device)), library_(library), size_(size) {
    static_cast<void>(plan(1));
  }
  ~CudaFft() override {
    // What a plan holds is freed with it.
    if (const CudaFreeScope scope(*device_->cuda()); scope) {
      for (const auto& [batch, plan] : plans_) library_.destroy(plan);
    }
  }

  // A complex transform out of place leaves its input alone, says NVIDIA.
  void forward(Queue& queue, std::uint64_t from, std::uint64_t to, std::uint64_t transforms) override {
    // A plan is for one number of transforms and takes milliseconds to make. Frames bring any number: powers of two
    // make them up with a dozen plans.
    while (transforms != 0) {
      const std::uint64_t batch = std::bit_floor(std::min<std::uint64_t>(transforms, 1U << 20U));
      // To plan, the driver may wait until the GPU runs nothing, and nobody could cancel that.
      if (!plans_.contains(static_cast<int>(batch))) queue.finish();
      const CufftHandle handle = plan(static_cast<int>(batch));
      const CudaContext::Scope scope(*device_->cuda());
      // Only now: finish() submits what came before, and the queue must know that there is more.
      check(library_.set_stream(handle, stream_of(queue)), "choosing a stream");
      check(library_.exec_c2c(handle, pointer(from), pointer(to), cufft_forward), "transforming");
      const std::uint64_t bytes = batch * size_ * 2 * sizeof(float);
      from += bytes, to += bytes, transforms -= batch;
    }
  }

 private:
  static void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

  CufftHandle plan(int batch) {
    if (const auto found = plans_.find(batch); found != plans_.end()) return found->second;
    device_->cuda()->wait_while_stuck(longest_before_planning);
    const CudaContext::Scope scope(*device_->cuda());
    CufftHandle made = 0;
    int size = static_cast<int>(size_);
    check(library_.plan_many(&made, 1, &size, nullptr, 1, size, nullptr, 1, size, cufft_c2c, batch), "planning");
    plans_.emplace(batch, made);
    return made;
  }

  void check(int result, const char* what) const {
    if (result == cufft_success) return;
    device_->check_alive();
    throw Error(
        result == cufft_alloc_failed ? ErrorCode::no_memory : ErrorCode::not_supported,
        fmt::format("cuFFT: {} {} points: error {}: set GPUMAP_OWN_FFT=1 to do without it", what, size_, result));
  }

  const std::shared_ptr<GpuDevice> device_;
  const Cufft& library_;
  const std::uint32_t size_;
  std::map<int, CufftHandle> plans_;  ///< by the number of transforms
};

}  // namespace

std::unique_ptr<Fft> make_cuda_fft(const std::shared_ptr<Device>& device, std::uint32_t size) {
  auto gpu = std::dynamic_pointer_cast<GpuDevice>(device);
  if (!gpu || gpu->cuda() == nullptr || cufft() == nullptr) return nullptr;
  try {
    return std::make_unique<CudaFft>(std::move(gpu), *cufft(), size);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_supported) throw;
    return nullptr;
  }
}

}  // namespace gpumap
