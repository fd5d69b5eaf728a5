// SPDX-License-Identifier: MIT
// Copy in_view.bytes bytes, 16 at a time where both sides allow it. Right for any grid, size and alignment.
// gpumap: params none
// gpumap: work chunk
// gpumap: view bytes
#version 460
#include <gpumap.glsl>

void main() {
  const uint64_t bytes = frame.in_view.bytes;
  const uint64_t from = frame.in_view.plane[0];
  const uint64_t to = frame.out_view.plane[0];

  // The widest unit that reaches alignment on both sides at the same byte.
  const uint differ = uint(from ^ to);
  const uint unit = (differ & 15u) == 0u ? 16u : (differ & 7u) == 0u ? 8u : (differ & 3u) == 0u ? 4u : 1u;
  const uint64_t head = min(uint64_t((unit - (uint(from) & (unit - 1u))) & (unit - 1u)), bytes);
  const uint64_t units = (bytes - head) / uint64_t(unit);
  const uint64_t tail = head + units * uint64_t(unit);

  const uint64_t thread = gpumap_thread();
  const uint64_t step = gpumap_thread_count();
  for (uint64_t i = thread; i < units; i += step) {
    const uint64_t at = head + i * uint64_t(unit);
    if (unit == 16u) {
      store_u32x4(to + at, load_u32x4(from + at));
    } else if (unit == 8u) {
      store_u64(to + at, load_u64(from + at));
    } else if (unit == 4u) {
      store_u32(to + at, load_u32(from + at));
    } else {
      store_u8(to + at, load_u8(from + at));
    }
  }
  for (uint64_t i = thread; i < head; i += step) store_u8(to + i, load_u8(from + i));
  for (uint64_t i = tail + thread; i < bytes; i += step) store_u8(to + i, load_u8(from + i));
}
