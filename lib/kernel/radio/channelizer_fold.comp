// SPDX-License-Identifier: MIT
// What the transforms of channelizer get: see radio_fold_job, and channelizer_fold.cu for the order.
// What channelizer declares, whose parameters are not this kernel's own:
// gpumap: params channels:f64=16,taps:f64=12,oversample:f64=1,attenuation:f64=80,around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels={2,1};application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output application/x-iq-channels,format=F32LE,channels={params.channels},rate={rate*params.oversample/2147483648 ? : (fraction){rate*params.oversample}/{max(params.channels,1)}}
#version 460
#define RADIO_JOB radio_fold_job
#include <gpumap_radio.glsl>

void main() {
  const uint64_t channels = uint64_t(job.channels);
  const uint64_t hop = uint64_t(job.hop);
  const uint64_t turn = uint64_t(job.turn);
  const int64_t newest = job.newest;
  const uint taps = job.taps;
  const uint64_t taps_at = frame.in_view.plane[1];
  const uint64_t to = frame.out_view.plane[0];
  const radio_stream stream = radio_open();
  const uint64_t count = job.steps * channels;
  const uint64_t stride = gpumap_thread_count();
  for (uint64_t n = gpumap_thread(); n < count; n += stride) {
    const uint64_t moved = n / channels * hop;
    const uint64_t back = (turn + moved + channels - n % channels) % channels;
    int64_t i = newest + int64_t(moved) - int64_t(back);
    vec2 sum = vec2(0.0);
    for (uint k = 0u; k < taps; ++k) {
      sum += load_f32(taps_at + 4ul * (uint64_t(k) * channels + back)) * radio_sample(stream, i);
      i -= int64_t(channels);
    }
    store_iq(to, n, sum);
  }
}
