// SPDX-License-Identifier: MIT
// What the transforms of spectrum get: samples of any format, times the window. See radio_window_job.
#include <gpumap/radio.h>

extern "C" __global__ void spectrum_window(gpumap_frame frame) {
  const auto& job = radio_job<radio_window_job>(frame);
  const float* window = reinterpret_cast<const float*>(frame.in.plane[1]);
  const gpumap_u32 shift = radio_log2(job.size);
  float2* out = radio_iq(frame.out.plane[0]);
  for (gpumap_u64 n = gpumap_thread(); n < job.transforms * job.size; n += gpumap_thread_count()) {
    const gpumap_u64 transform = n >> shift;
    const gpumap_u64 i = n & (job.size - 1);
    const float2 iq = radio_sample(frame, job.first + static_cast<gpumap_i64>(transform * job.hop + i));
    out[n] = make_float2(window[i] * iq.x, window[i] * iq.y);
  }
}
