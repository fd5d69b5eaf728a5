// SPDX-License-Identifier: MIT
// The samples that later frames still need, or that ddc_filter reads: see radio_keep_job.
#version 460
#define RADIO_JOB radio_keep_job
#include <gpumap_radio.glsl>

void main() {
  const uint64_t step = gpumap_thread_count();
  for (uint64_t n = gpumap_thread(); n < job.count; n += step) {
    const int64_t i = job.first + int64_t(n);
    vec2 iq = radio_sample(i);
    // Those kept were turned when they came.
    if (i >= 0l && job.step != 0ul) {
      iq = radio_multiply(iq, radio_phasor((job.position + uint64_t(i)) % job.period * job.step));
    }
    store_iq(frame.out_view.plane[0], n, iq);
  }
}
