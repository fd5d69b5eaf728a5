// SPDX-License-Identifier: MIT
//
// The few calls of CUDA's driver that gpumap.h has no equal for. libcuda is opened when the first array is on a GPU.
#pragma once
#include <cstdint>

namespace gpumap::python {

/// Has `stream` wait on the GPU for what `other` has so far. False where CUDA refuses; `error` says why.
bool cuda_stream_after(void* context, void* stream, void* other, const char*& error);
/// Copies within the GPU, on `stream`.
bool cuda_copy(void* context, uint64_t to, uint64_t from, uint64_t bytes, void* stream, const char*& error);
/// Waits until `stream` has done what it has so far, 5 s at most. False where it has not.
bool cuda_stream_done(void* context, void* stream, const char*& error);
/// The ordinal and the context of the memory at `address`.
bool cuda_pointer_device(uint64_t address, int32_t& ordinal, void*& context, const char*& error);

}  // namespace gpumap::python
