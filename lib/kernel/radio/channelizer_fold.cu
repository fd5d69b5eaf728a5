// SPDX-License-Identifier: MIT
// What the transforms of channelizer get: samples times the prototype filter, folded to one value a channel. See
// radio_fold_job. Value u holds the samples whose number in the stream is u modulo channels, so that the transform is
// referred to the stream's first sample whatever the hop.
// What channelizer declares, whose parameters are not this kernel's own:
// gpumap: params channels:f64=16,taps:f64=12,oversample:f64=1,attenuation:f64=80,around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels={2,1};application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output application/x-iq-channels,format=F32LE,channels={params.channels},rate={rate*params.oversample/2147483648 ? : (fraction){rate*params.oversample}/{max(params.channels,1)}}
#include <gpumap/radio.h>

extern "C" __global__ void channelizer_fold(gpumap_frame frame) {
  const auto& job = radio_job<radio_fold_job>(frame);
  const float* filter = reinterpret_cast<const float*>(frame.in.plane[1]);
  for (gpumap_u64 n = gpumap_thread(); n < job.steps * job.channels; n += gpumap_thread_count()) {
    const gpumap_u64 step = n / job.channels;
    const gpumap_u32 u = static_cast<gpumap_u32>(n % job.channels);
    const gpumap_u32 back = static_cast<gpumap_u32>((job.turn + step * job.hop + job.channels - u) % job.channels);
    gpumap_i64 i = job.newest + static_cast<gpumap_i64>(step * job.hop) - back;
    float2 sum = make_float2(0.0f, 0.0f);
    for (gpumap_u32 k = 0; k < job.taps; ++k, i -= job.channels) {
      const float2 iq = radio_sample(frame, i);
      const float tap = filter[1ull * k * job.channels + back];
      sum.x += tap * iq.x;
      sum.y += tap * iq.y;
    }
    radio_iq(frame.out.plane[0])[n] = sum;
  }
}
