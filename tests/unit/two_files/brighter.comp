// SPDX-License-Identifier: MIT
// Adds `by` to each byte, and counts the bytes: see program_test.cpp.
// gpumap: params by:u32=5 in [0,255]
// gpumap: work chunk
// gpumap: view bytes
// gpumap: results count=u64
// gpumap: message brighter-bytes
#version 460
#include <gpumap.glsl>

void main() {
  const uint64_t thread = gpumap_thread();
  for (uint64_t i = thread; i < frame.in_view.bytes; i += gpumap_thread_count()) {
    store_u8(frame.out_view.plane[0] + i, (load_u8(frame.in_view.plane[0] + i) + uint(param_i64(0))) & 255u);
  }
  if (thread == 0ul) store_u64(frame.result, frame.in_view.bytes);
}
