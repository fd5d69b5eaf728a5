// SPDX-License-Identifier: MIT
// Copies the frame, 16 bytes at a time. Its result block, which it leaves empty, is what the CPU waits for.
// gpumap: work chunk
// gpumap: view bytes
#version 460
#include <gpumap.glsl>

void main() {
  const uint64_t units = frame.out_view.bytes / 16ul;
  for (uint64_t i = gpumap_thread(); i < units; i += gpumap_thread_count()) {
    store_u32x4(frame.out_view.plane[0] + 16ul * i, load_u32x4(frame.in_view.plane[0] + 16ul * i));
  }
}
