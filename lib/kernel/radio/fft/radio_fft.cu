// SPDX-License-Identifier: MIT
// A pass of Stockham's FFT, radix 2 or 4: see radio_fft_job. Each pass sorts as it goes, so that there is no reversal of
// bits, and reads and writes neighbouring values in neighbouring threads.
#include <gpumap/radio.h>

extern "C" __global__ void radio_fft(gpumap_frame frame) {
  const auto& job = radio_job<radio_fft_job>(frame);
  const gpumap_u32 butterflies = job.size / job.radix;
  const gpumap_u32 shift = radio_log2(butterflies);
  const float2* twiddle = radio_iq(frame.in.plane[1]);
  for (gpumap_u64 n = gpumap_thread(); n < job.transforms * butterflies; n += gpumap_thread_count()) {
    const gpumap_u64 base = (n >> shift) * job.size;
    const gpumap_u32 i = static_cast<gpumap_u32>(n) & (butterflies - 1);
    const gpumap_u32 within = i & (job.stride - 1);
    const gpumap_u32 turn = i - within;  // p * stride: an index into the whole turn's table
    const float2* in = radio_iq(frame.in.plane[0]) + base + i;
    float2* out = radio_iq(frame.out.plane[0]) + base + within + 1ull * turn * job.radix;
    const float2 a = in[0];
    const float2 b = in[butterflies];
    if (job.radix == 2) {
      out[0] = make_float2(a.x + b.x, a.y + b.y);
      out[job.stride] = radio_multiply(twiddle[turn], make_float2(a.x - b.x, a.y - b.y));
      continue;
    }
    const float2 c = in[2 * butterflies];
    const float2 d = in[3 * butterflies];
    const float2 ac = make_float2(a.x + c.x, a.y + c.y);
    const float2 bd = make_float2(b.x + d.x, b.y + d.y);
    const float2 a_c = make_float2(a.x - c.x, a.y - c.y);
    const float2 ib_d = make_float2(d.y - b.y, b.x - d.x);  // i * (b - d)
    out[0] = make_float2(ac.x + bd.x, ac.y + bd.y);
    out[job.stride] = radio_multiply(twiddle[turn], make_float2(a_c.x - ib_d.x, a_c.y - ib_d.y));
    out[2 * job.stride] = radio_multiply(twiddle[2 * turn], make_float2(ac.x - bd.x, ac.y - bd.y));
    out[3 * job.stride] = radio_multiply(twiddle[3 * turn], make_float2(a_c.x + ib_d.x, a_c.y + ib_d.y));
  }
}
