// SPDX-License-Identifier: MIT
// What the transforms of spectrum get: samples of any format, row by row. See radio_rows_job.
#include <gpumap/radio.h>

extern "C" __global__ void spectrum_rows(gpumap_frame frame) {
  const auto& job = radio_job<radio_rows_job>(frame);
  const gpumap_u32 shift = radio_log2(job.size);
  float2* out = radio_iq(frame.out.plane[0]);
  for (gpumap_u64 n = gpumap_thread(); n < job.transforms * job.size; n += gpumap_thread_count()) {
    const gpumap_u64 transform = n >> shift;
    const gpumap_u64 i = n & (job.size - 1);
    out[n] = radio_sample(frame, job.first + static_cast<gpumap_i64>(transform * job.hop + i));
  }
}
