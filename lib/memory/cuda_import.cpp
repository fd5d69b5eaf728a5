// SPDX-License-Identifier: MIT
#include "memory/cuda_import.hpp"

#include <chrono>
#include <mutex>

#include "device/cuda_free.hpp"
#include "device/resident_registry.hpp"

namespace gpumap {

namespace {

/// One import or its end at a time, which the driver does not need but compute-sanitizer does: it hears of an end after
/// the driver has given the address to another thread's import, and then takes the new memory for freed. An end may
/// wait for a kernel, so nobody waits long for another's.
using OneAtATime = std::unique_lock<std::timed_mutex>;
OneAtATime one_at_a_time() {
  static auto* const mutex = new std::timed_mutex;
  return OneAtATime(*mutex, std::chrono::system_clock::now() + std::chrono::milliseconds(100));
}

}  // namespace

CudaImport::CudaImport(const CudaContext& context, UniqueFd fd, std::uint64_t allocation_bytes) : context_(context) {
  const auto& driver = context_.driver();
  const CudaContext::Scope scope(context_);
  const OneAtATime lock = one_at_a_time();
  const Residents::NewMemory arrives(context_.residents());
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
  const OneAtATime lock = one_at_a_time();
  release();
}

void CudaImport::release() noexcept {
  const CudaFreeScope scope(context_);
  if (!scope) return;
  const auto& driver = context_.driver();
  // Ends: what was submitted before has ended.
  if (address_ != 0) driver.cuMemFree(address_);
  // Ends: likewise.
  driver.cuDestroyExternalMemory(memory_);
}

}  // namespace gpumap
