// SPDX-License-Identifier: MIT
// What the transforms of spectrum get: samples of any format, row by row. See radio_rows_job.
#version 460
#define RADIO_JOB radio_rows_job
#include <gpumap_radio.glsl>

void main() {
  const uint64_t size = uint64_t(job.size);
  const int shift = findMSB(job.size);
  const uint64_t hop = uint64_t(job.hop);
  const int64_t first = job.first;
  const uint64_t to = frame.out_view.plane[0];
  const radio_stream stream = radio_open();
  const uint64_t count = job.transforms * size;
  const uint64_t step = gpumap_thread_count();
  for (uint64_t n = gpumap_thread(); n < count; n += step) {
    const uint64_t i = n & (size - 1ul);
    store_iq(to, n, radio_sample(stream, first + int64_t((n >> shift) * hop + i)));
  }
}
