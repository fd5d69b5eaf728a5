// SPDX-License-Identifier: MIT
// The sum of <gpumap/kernel.hpp> over in.bytes bytes, added into result word 0. Right for any grid, size and
// alignment. The result block lies in host memory, and an atomic across the PCIe takes 0.1 us, one after the other:
// blocks add to the state, and the last one brings the sum over. Without state each block goes the long way.
// gpumap: params none
// gpumap: work chunk
// gpumap: view bytes
// gpumap: output unchanged
// gpumap: state 16 self-clearing
// gpumap: results checksum=u64
// gpumap: message gpumap-checksum
#include <gpumap/kernel.h>
#include <gpumap/grid.h>

__device__ gpumap_u64 mix64(gpumap_u64 x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Up to 8 bytes as a little-endian word, zero-padded.
__device__ gpumap_u64 word_at(gpumap_u64 address, gpumap_u64 bytes) {
  if (bytes >= 8 && (address & 7) == 0) return *reinterpret_cast<const gpumap_u64*>(address);
  if (bytes >= 8 && (address & 3) == 0) {
    const gpumap_u32* halves = reinterpret_cast<const gpumap_u32*>(address);
    return halves[0] | static_cast<gpumap_u64>(halves[1]) << 32;
  }
  gpumap_u64 word = 0;
  for (gpumap_u64 i = 0; i < (bytes < 8 ? bytes : 8); ++i) {
    word |= static_cast<gpumap_u64>(reinterpret_cast<const gpumap_u8*>(address)[i]) << (8 * i);
  }
  return word;
}

// Zero before and after each launch.
struct State {
  gpumap_u64 sum;
  gpumap_u32 done;  // blocks
  gpumap_u32 unused;
};

extern "C" __global__ void checksum(gpumap_frame frame) {
  __shared__ gpumap_u64 partial[1024];
  const gpumap_u64 bytes = frame.in.bytes;
  const gpumap_u64 words = (bytes + 7) / 8;
  const gpumap_u64 thread = gpumap_thread();

  gpumap_u64 sum = thread == 0 ? mix64(bytes) : 0;
  for (gpumap_u64 i = thread; i < words; i += gpumap_thread_count()) {
    sum += mix64(word_at(frame.in.plane[0] + 8 * i, bytes - 8 * i) + (i + 1) * 0x9E3779B97F4A7C15ull);
  }

  const gpumap_u32 within = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  partial[within] = sum;
  for (gpumap_u32 left = blockDim.x * blockDim.y * blockDim.z; left > 1;) {
    const gpumap_u32 half = (left + 1) / 2;
    __syncthreads();
    if (within + half < left) partial[within] += partial[within + half];
    left = half;
  }
  // No thread returns early: this kernel may stay on the GPU.
  if (within == 0) {
    gpumap_u64* const result = reinterpret_cast<gpumap_u64*>(frame.result);
    if (frame.state_bytes < sizeof(State)) {
      atomicAdd(result, partial[0]);
    } else {
      State* const state = reinterpret_cast<State*>(frame.state);
      atomicAdd(&state->sum, partial[0]);
      __threadfence();
      const gpumap_u32 last = gridDim.x * gridDim.y * gridDim.z - 1;
      if (atomicInc(&state->done, last) == last) {
        __threadfence();
        atomicAdd(result, atomicExch(&state->sum, 0ull));  // as new for the next launch
      }
    }
  }
}
