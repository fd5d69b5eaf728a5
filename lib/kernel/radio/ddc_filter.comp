// SPDX-License-Identifier: MIT
// The polyphase FIR of ddc: see radio_ddc_job, and ddc_filter.cu for its shape.
#version 460
#define RADIO_JOB radio_ddc_job
#include <gpumap_radio.glsl>

shared vec2 partial[RADIO_BLOCK_THREADS];

void main() {
  const uint outputs_per_block = RADIO_BLOCK_THREADS / RADIO_SUM_THREADS;
  const uint thread = gl_LocalInvocationIndex;
  const uint lane = thread % RADIO_SUM_THREADS;
  const uint64_t outputs = job.outputs;
  const uint64_t up = uint64_t(job.up);
  const uint64_t down = uint64_t(job.down);
  const uint taps = job.taps;
  const uint64_t samples = frame.in_view.plane[0];
  const uint64_t filter_rows = frame.in_view.plane[1];
  const uint64_t step = uint64_t(gl_NumWorkGroups.x) * uint64_t(outputs_per_block);
  for (uint64_t base = uint64_t(gl_WorkGroupID.x) * uint64_t(outputs_per_block); base < outputs; base += step) {
    const uint64_t n = base + uint64_t(thread / RADIO_SUM_THREADS);
    vec2 sum = vec2(0.0);
    if (n < outputs) {
      const uint64_t at = job.phase + n * down;
      const uint64_t newest = samples + 8ul * (at / up);
      const uint64_t filter_row = filter_rows + 4ul * (at % up) * uint64_t(taps);
      for (uint k = lane; k < taps; k += RADIO_SUM_THREADS) {
        sum += load_f32(filter_row + 4ul * uint64_t(k)) * load_iq(newest - 8ul * uint64_t(k), 0ul);
      }
    }
    partial[thread] = sum;
    for (uint half_left = RADIO_SUM_THREADS / 2; half_left > 0u; half_left /= 2u) {
      barrier();
      if (lane < half_left) partial[thread] += partial[thread + half_left];
    }
    if (lane == 0u && n < outputs) store_iq(frame.out_view.plane[0], n, partial[thread]);
    barrier();
  }
}
