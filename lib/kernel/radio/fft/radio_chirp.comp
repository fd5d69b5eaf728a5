// SPDX-License-Identifier: MIT
// Rows times a table: see radio_chirp_job.
#version 460
#define RADIO_JOB radio_chirp_job
#include <gpumap_radio.glsl>

void main() {
  const uint from_size = job.from_size;
  const uint to_size = job.to_size;
  const bool backwards = job.backwards != 0u;
  const uint64_t table = frame.in_view.plane[1];
  const uint64_t from = frame.in_view.plane[0];
  const uint64_t to = frame.out_view.plane[0];
  const uint64_t count = job.transforms * uint64_t(to_size);
  const uint64_t step = gpumap_thread_count();
  for (uint64_t n = gpumap_thread(); n < count; n += step) {
    const uint64_t row = n / uint64_t(to_size);
    const uint i = uint(n - row * uint64_t(to_size));
    vec2 value = vec2(0.0);
    if (i < from_size) {
      const uint at = backwards && i != 0u ? from_size - i : i;
      value = radio_multiply(load_iq(from, row * uint64_t(from_size) + uint64_t(at)), load_iq(table, uint64_t(i)));
    }
    store_iq(to, n, value);
  }
}
