// SPDX-License-Identifier: MIT
// A pass of Stockham's FFT, radix 2 or 4: see radio_fft_job, and radio_fft.cu for its shape.
#version 460
#define RADIO_JOB radio_fft_job
#include <gpumap_radio.glsl>

void main() {
  const uint size = job.size;
  const uint stride = job.stride;
  const uint radix = job.radix;
  const uint butterflies = size / radix;
  const int shift = findMSB(butterflies);
  const uint64_t twiddle = frame.in_view.plane[1];
  const uint64_t count = job.transforms * uint64_t(butterflies);
  const uint64_t step = gpumap_thread_count();
  for (uint64_t n = gpumap_thread(); n < count; n += step) {
    const uint64_t base = (n >> shift) * uint64_t(size);
    const uint i = uint(n) & (butterflies - 1u);
    const uint within = i & (stride - 1u);
    const uint turn = i - within;  // p * stride: an index into the whole turn's table
    const uint64_t from = frame.in_view.plane[0] + 8ul * (base + uint64_t(i));
    const uint64_t to = frame.out_view.plane[0] + 8ul * (base + uint64_t(within) + uint64_t(turn) * uint64_t(radix));
    const vec2 a = load_iq(from, 0ul);
    const vec2 b = load_iq(from, uint64_t(butterflies));
    if (radix == 2u) {
      store_iq(to, 0ul, a + b);
      store_iq(to, uint64_t(stride), radio_multiply(load_iq(twiddle, uint64_t(turn)), a - b));
      continue;
    }
    const vec2 c = load_iq(from, 2ul * uint64_t(butterflies));
    const vec2 d = load_iq(from, 3ul * uint64_t(butterflies));
    const vec2 ac = a + c;
    const vec2 bd = b + d;
    const vec2 a_c = a - c;
    const vec2 ib_d = vec2(d.y - b.y, b.x - d.x);  // i * (b - d)
    store_iq(to, 0ul, ac + bd);
    store_iq(to, uint64_t(stride), radio_multiply(load_iq(twiddle, uint64_t(turn)), a_c - ib_d));
    store_iq(to, 2ul * uint64_t(stride), radio_multiply(load_iq(twiddle, 2ul * uint64_t(turn)), ac - bd));
    store_iq(to, 3ul * uint64_t(stride), radio_multiply(load_iq(twiddle, 3ul * uint64_t(turn)), a_c + ib_d));
  }
}
