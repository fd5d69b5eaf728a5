// SPDX-License-Identifier: MIT
// What the transforms of spectrum get: samples of any format, times the window. See radio_window_job.
#version 460
#define RADIO_JOB radio_window_job
#include <gpumap_radio.glsl>

void main() {
  const uint64_t size = uint64_t(job.size);
  const int shift = findMSB(job.size);
  const uint64_t count = job.transforms * size;
  const uint64_t step = gpumap_thread_count();
  for (uint64_t n = gpumap_thread(); n < count; n += step) {
    const uint64_t i = n & (size - 1ul);
    const vec2 iq = radio_sample(job.first + int64_t((n >> shift) * uint64_t(job.hop) + i));
    store_iq(frame.out_view.plane[0], n, load_f32(frame.in_view.plane[1] + 4ul * i) * iq);
  }
}
