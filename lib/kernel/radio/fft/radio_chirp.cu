// SPDX-License-Identifier: MIT
// Rows times a table: see radio_chirp_job.
#include <gpumap/radio.h>

extern "C" __global__ void radio_chirp(gpumap_frame frame) {
  const auto& job = radio_job<radio_chirp_job>(frame);
  const float2* table = radio_iq(frame.in.plane[1]);
  for (gpumap_u64 n = gpumap_thread(); n < job.transforms * job.to_size; n += gpumap_thread_count()) {
    const gpumap_u64 row = n / job.to_size;
    const gpumap_u32 i = static_cast<gpumap_u32>(n - row * job.to_size);
    float2 value = make_float2(0.0f, 0.0f);
    if (i < job.from_size) {
      const gpumap_u32 at = job.backwards != 0 && i != 0 ? job.from_size - i : i;
      value = radio_multiply(radio_iq(frame.in.plane[0])[row * job.from_size + at], table[i]);
    }
    radio_iq(frame.out.plane[0])[n] = value;
  }
}
