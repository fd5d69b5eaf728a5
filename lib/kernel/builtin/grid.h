/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/grid.h>: this thread's number in the whole grid, and how many there are, whatever the
 * grid's shape. A loop over them is right for any launch. gpumap.glsl has the same two. */
#ifndef GPUMAP_GRID_H
#define GPUMAP_GRID_H

#include <gpumap/kernel.h>

// From 0 to gpumap_thread_count() - 1.
__device__ inline gpumap_u64 gpumap_thread() {
  const gpumap_u64 block = blockIdx.x + gridDim.x * (blockIdx.y + static_cast<gpumap_u64>(gridDim.y) * blockIdx.z);
  const gpumap_u32 within = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  return block * (blockDim.x * blockDim.y * blockDim.z) + within;
}

// At least 1; whole blocks.
__device__ inline gpumap_u64 gpumap_thread_count() {
  return static_cast<gpumap_u64>(gridDim.x) * gridDim.y * gridDim.z * (blockDim.x * blockDim.y * blockDim.z);
}

#endif
