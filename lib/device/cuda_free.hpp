// SPDX-License-Identifier: MIT
#pragma once

#include "device/cuda_driver.hpp"
#include "device/resident_registry.hpp"

namespace gpumap {

/// For calls of the driver that wait until the GPU runs nothing (Residents::Absence), in destructors: kernels that stay
/// leave for them, and all that was submitted before is waited for, for patience_at_end at most. False where some of it
/// still runs, and where the context is lost: then what was to be freed stays. Never throws.
class CudaFreeScope {
 public:
  explicit CudaFreeScope(const CudaContext& context) noexcept
      : absence_(context.residents()), scope_(settled(context)) {}
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(scope_); }

 private:
  /// Work that does not end is given up, by which the scope is false.
  static const CudaContext& settled(const CudaContext& context) noexcept {
    static_cast<void>(context.settles(patience_at_end));
    return context;
  }

  const Residents::Absence absence_;
  const CudaContext::CleanupScope scope_;
};

/// Page-locked memory of CUDA's; null: none. Where work that was given up runs, it stays.
inline void free_page_locked(const CudaContext& context, void* memory) noexcept {
  if (memory == nullptr) return;
  // Ends: what was submitted before has ended, or is given up.
  if (const CudaFreeScope scope(context); scope) context.driver().cuMemFreeHost(memory);
}

}  // namespace gpumap
