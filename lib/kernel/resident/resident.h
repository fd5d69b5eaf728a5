/* SPDX-License-Identifier: MIT
 *
 * The loop of a kernel that stays on the GPU, put before a user's source (resident_source.cpp): from here on
 * `__global__` functions are device functions, which the loop calls for each logical block of a frame's grid, and
 * blockIdx and gridDim are those of that grid. CUDA C++.
 *
 * Memory: thread 0 of a block sees the doorbell by an acquire at system scope, the others by the barrier behind it, so
 * that no line of an earlier frame is left in the multiprocessor's cache. What a turn comes after the first block sees
 * so; its release covers what it saw. Blocks tell each other of their parts at the GPU's scope; the last one's release
 * to the system covers what it saw of the others.
 */
#ifndef GPUMAP_RESIDENT_H
#define GPUMAP_RESIDENT_H

#include <gpumap/turn.h>

/* blockIdx and gridDim of the logical block: plain names, which may stand wherever those may. */
__shared__ uint3 gpumap_logical_block;
__shared__ dim3 gpumap_logical_grid;

namespace gpumap_resident {

__shared__ gpumap_turn turn;

/* The block's threads meet, and not those that still wait in the kernel: where some have left it before, as CUDA leaves
 * undefined, a frame does not end. At the kernel's own barrier others would go on in a turn that is not there yet. */
__device__ inline void meet() {
  asm volatile("barrier.sync 15;" : : : "memory");
}

__device__ inline gpumap_u64 acquire(gpumap_u64 address) {
  gpumap_u64 value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

__device__ inline void wait_until(gpumap_u64 address, gpumap_u64 value) {
  while (acquire(address) < value) {
  }
}

__device__ inline void release(gpumap_u64 address, gpumap_u64 value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

__device__ inline gpumap_u64 add(gpumap_u64 address) {
  gpumap_u64 before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(address) : "memory");
  return before;
}

/* Words where both ends are aligned, else bytes. */
__device__ inline void move(gpumap_u64 to, gpumap_u64 from, gpumap_u64 bytes, bool clear, gpumap_u64 self,
                            gpumap_u64 threads) {
  gpumap_u64 done = 0;
  if (((to | from) & 15) == 0) {
    for (gpumap_u64 i = self; i < bytes / 16; i += threads) {
      reinterpret_cast<uint4*>(to)[i] = clear ? uint4{} : reinterpret_cast<const uint4*>(from)[i];
    }
    done = bytes / 16 * 16;
  }
  for (gpumap_u64 i = done + self; i < bytes; i += threads) {
    reinterpret_cast<gpumap_u8*>(to)[i] = clear ? 0 : reinterpret_cast<const gpumap_u8*>(from)[i];
  }
}

template <typename Run>
__device__ inline void stay(const gpumap_residence& residence, Run run) {
  const unsigned self = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  gpumap_u64 parts = 0; /* of all blocks in all turns since the kernel began */
  for (gpumap_u64 number = residence.first;; ++number, parts += gridDim.x) {
    const gpumap_u64 at = residence.turns + residence.stride * (number & (residence.slots - 1));
    if (self == 0) {
      /* Before the doorbell, for this is long done when it rings. */
      if (gridDim.x != 1) wait_until(residence.parts, parts);
      wait_until(at, number + 1);
    }
    meet();
    /* All that it may be, in one go: to read how much of it was written for this turn would take as long again. */
    for (unsigned i = self; i < sizeof(gpumap_turn) / 16 - 4; i += threads) {
      reinterpret_cast<uint4*>(&turn.kind)[i] =
          reinterpret_cast<const uint4*>(&reinterpret_cast<const gpumap_turn*>(at)->kind)[i];
    }
    meet();
    if (turn.after != 0) {
      if (self == 0 && blockIdx.x == 0) {
        wait_until(turn.after, turn.until);
        if (gridDim.x != 1) release(residence.go, number + 1);
      } else if (self == 0) {
        wait_until(residence.go, number + 1);
      }
      meet();
    }
    const unsigned kind = turn.kind;
    if (kind == GPUMAP_TURN_RUN) {
      const gpumap_u64 all = gpumap_u64{turn.blocks[0]} * turn.blocks[1] * turn.blocks[2];
      for (gpumap_u64 block = blockIdx.x; block < all; block += gridDim.x) {
        if (self == 0) {
          const gpumap_u64 row = block / turn.blocks[0];
          gpumap_logical_block = dim3(block % turn.blocks[0], row % turn.blocks[1], row / turn.blocks[1]);
          gpumap_logical_grid = dim3(turn.blocks[0], turn.blocks[1], turn.blocks[2]);
        }
        meet();
        run(turn.function, turn.frame);
        meet();
      }
    } else if (kind != GPUMAP_TURN_LEAVE) {
      move(turn.to, turn.from, turn.bytes, kind == GPUMAP_TURN_CLEAR, self + gpumap_u64{threads} * blockIdx.x,
           gpumap_u64{threads} * gridDim.x);
    }
    meet();
    if (self == 0 && (gridDim.x == 1 || add(residence.parts) + 1 == parts + gridDim.x)) {
      release(residence.done, number + 1);
    }
    if (kind == GPUMAP_TURN_LEAVE) return;
  }
}

}  // namespace gpumap_resident

#define blockIdx gpumap_logical_block
#define gridDim gpumap_logical_grid
#undef __global__
#define __global__ __device__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __maxnreg__
#define __maxnreg__(...)
#undef __block_size__
#define __block_size__(...)
#undef __grid_constant__
#define __grid_constant__

#endif
