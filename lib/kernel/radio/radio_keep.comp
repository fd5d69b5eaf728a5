// SPDX-License-Identifier: MIT
// The samples that later frames still need, or that ddc_filter reads: see radio_keep_job.
#version 460
#define RADIO_JOB radio_keep_job
#include <gpumap_radio.glsl>

void main() {
  const radio_stream stream = radio_open();
  const radio_keep_job given = job;
  const uint64_t to = frame.out_view.plane[0];
  const uint64_t step = gpumap_thread_count();
  for (uint64_t n = gpumap_thread(); n < given.count; n += step) {
    const int64_t i = given.first + int64_t(n);
    vec2 iq = radio_sample(stream, i);
    // Those kept were turned when they came.
    if (i >= 0l && (given.start | given.step) != 0ul) {
      iq = radio_multiply(iq, radio_phasor(given.start + (given.position + uint64_t(i)) % given.period * given.step));
    }
    store_iq(to, n, iq);
  }
}
