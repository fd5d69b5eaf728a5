// SPDX-License-Identifier: MIT
#include "memory/cuda_import.hpp"

#if GPUMAP_HAVE_CUDA

#include "memory/mapping_steps.hpp"

namespace gpumap {

CudaImport::CudaImport(const CudaContext& context, UniqueFd fd, std::uint64_t allocation_bytes) : context_(context) {
  const auto& driver = context_.driver();
  const CudaContext::Scope scope(context_);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle{};
  handle.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  handle.handle.fd = fd.get();
  handle.size = allocation_bytes;
  handle.flags = CUDA_EXTERNAL_MEMORY_DEDICATED;
  context_.check(driver.cuImportExternalMemory(&memory_, &handle), "importing Vulkan memory");
  static_cast<void>(fd.release());  // CUDA owns the descriptor now

  CUDA_EXTERNAL_MEMORY_BUFFER_DESC range{};
  range.size = allocation_bytes;
  try {
    context_.check(driver.cuExternalMemoryGetMappedBuffer(&address_, memory_, &range), "mapping Vulkan memory");
  } catch (...) {
    release();
    throw;
  }
}

CudaImport::~CudaImport() {
  const TimedStep step(MappingStep::drop_import);
  if (const CudaContext::CleanupScope scope(context_); scope) release();
}

void CudaImport::release() noexcept {
  const auto& driver = context_.driver();
  if (address_ != 0) driver.cuMemFree(address_);
  driver.cuDestroyExternalMemory(memory_);
}

}  // namespace gpumap

#endif  // GPUMAP_HAVE_CUDA
