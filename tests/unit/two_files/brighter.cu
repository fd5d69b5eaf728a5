// SPDX-License-Identifier: MIT
// Adds `by` to each byte, and counts the bytes: see program_test.cpp.
// gpumap: params by:u32=5 in [0,255]
// gpumap: work chunk
// gpumap: view bytes
// gpumap: results count=u64
// gpumap: message brighter-bytes
#include <gpumap/grid.h>

extern "C" __global__ void brighter(gpumap_frame frame) {
  const gpumap_u64 thread = gpumap_thread();
  for (gpumap_u64 i = thread; i < frame.in.bytes; i += gpumap_thread_count()) {
    const gpumap_u8 value = reinterpret_cast<const gpumap_u8*>(frame.in.plane[0])[i];
    reinterpret_cast<gpumap_u8*>(frame.out.plane[0])[i] = static_cast<gpumap_u8>(value + gpumap_param_i64(frame, 0));
  }
  if (thread == 0) *reinterpret_cast<gpumap_u64*>(frame.result) = frame.in.bytes;
}
