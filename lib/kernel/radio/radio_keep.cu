// SPDX-License-Identifier: MIT
// The samples that later frames still need, or that ddc_filter reads: see radio_keep_job.
#include <gpumap/radio.h>

extern "C" __global__ void radio_keep(gpumap_frame frame) {
  const auto& job = radio_job<radio_keep_job>(frame);
  float2* out = radio_iq(frame.out.plane[0]);
  for (gpumap_u64 n = gpumap_thread(); n < job.count; n += gpumap_thread_count()) {
    const gpumap_i64 i = job.first + static_cast<gpumap_i64>(n);
    float2 iq = radio_sample(frame, i);
    // Those kept were turned when they came.
    if (i >= 0 && (job.start | job.step) != 0) {
      iq = radio_multiply(
          iq, radio_phasor(job.start + (job.position + static_cast<gpumap_u64>(i)) % job.period * job.step));
    }
    out[n] = iq;
  }
}
