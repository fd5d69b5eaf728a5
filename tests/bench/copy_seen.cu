// SPDX-License-Identifier: MIT
// Copies the frame, 16 bytes at a time. Its result block, which it leaves empty, is what the CPU waits for.
// gpumap: work chunk
// gpumap: view bytes
#include <gpumap/kernel.h>
#include <gpumap/grid.h>

extern "C" __global__ void copy_seen(gpumap_frame frame) {
  const uint4* from = reinterpret_cast<const uint4*>(frame.in.plane[0]);
  uint4* to = reinterpret_cast<uint4*>(frame.out.plane[0]);
  const gpumap_u64 units = frame.out.bytes / sizeof(uint4);
  for (gpumap_u64 i = gpumap_thread(); i < units; i += gpumap_thread_count()) to[i] = from[i];
}
