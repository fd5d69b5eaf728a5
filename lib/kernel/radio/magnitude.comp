// SPDX-License-Identifier: MIT
// sqrt(I*I + Q*Q) of every pair of samples, scaled to -1 to 1, as mono float32. Right for any grid.
// gpumap: params around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels=2;application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output audio/x-raw,format=F32LE,layout=interleaved,channels=1,rate={rate}
#version 460
#include <gpumap.glsl>
#include <gpumap_samples.glsl>

void main() {
  const uint format = gpumap_sample_format(frame.in_view.format, frame.params[0] != 0.0);
  const uint64_t from = frame.in_view.plane[0];
  const uint64_t to = frame.out_view.plane[0];
  const uint64_t given = gpumap_sample_count(format, frame.in_view.bytes) / 2ul;
  const uint64_t pairs = min(given, frame.out_view.bytes / 4ul);
  const uint64_t step = gpumap_thread_count();
  for (uint64_t i = gpumap_thread(); i < pairs; i += step) {
    const float in_phase = gpumap_sample(from, format, 2ul * i);
    const float quadrature = gpumap_sample(from, format, 2ul * i + 1ul);
    store_f32(to + 4ul * i, sqrt(in_phase * in_phase + quadrature * quadrature));
  }
}
