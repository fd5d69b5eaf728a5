// SPDX-License-Identifier: MIT
// Copy in.bytes bytes, 16 at a time where both sides allow it. Right for any grid, size and alignment.
// gpumap: params none
// gpumap: work chunk
// gpumap: view bytes
#include <gpumap/kernel.h>
#include <gpumap/grid.h>

template <typename Unit>
__device__ void copy_units(gpumap_u64 to, gpumap_u64 from, gpumap_u64 units) {
  for (gpumap_u64 i = gpumap_thread(); i < units; i += gpumap_thread_count()) {
    reinterpret_cast<Unit*>(to)[i] = reinterpret_cast<const Unit*>(from)[i];
  }
}

extern "C" __global__ void identity(gpumap_frame frame) {
  const gpumap_u64 bytes = frame.in.bytes;
  const gpumap_u64 from = frame.in.plane[0];
  const gpumap_u64 to = frame.out.plane[0];

  // The widest unit that reaches alignment on both sides at the same byte.
  const gpumap_u64 differ = from ^ to;
  const gpumap_u64 unit = (differ & 15) == 0 ? 16 : (differ & 7) == 0 ? 8 : (differ & 3) == 0 ? 4 : 1;
  const gpumap_u64 lead = (unit - (from & (unit - 1))) & (unit - 1);
  const gpumap_u64 head = lead < bytes ? lead : bytes;
  const gpumap_u64 units = (bytes - head) / unit;
  const gpumap_u64 tail = head + units * unit;

  if (unit == 16) {
    copy_units<uint4>(to + head, from + head, units);
  } else if (unit == 8) {
    copy_units<gpumap_u64>(to + head, from + head, units);
  } else if (unit == 4) {
    copy_units<gpumap_u32>(to + head, from + head, units);
  } else {
    copy_units<gpumap_u8>(to + head, from + head, units);
  }
  copy_units<gpumap_u8>(to, from, head);
  copy_units<gpumap_u8>(to + tail, from + tail, bytes - tail);
}
