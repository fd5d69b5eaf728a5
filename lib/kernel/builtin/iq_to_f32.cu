// SPDX-License-Identifier: MIT
// Every interleaved sample as a float32 in -1 to 1, any channel count. Right for any grid.
// gpumap: params around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved;application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output audio/x-raw,format=F32LE,layout=interleaved,channels={channels},rate={rate}
#include <gpumap/grid.h>
#include <gpumap/samples.h>

extern "C" __global__ void iq_to_f32(gpumap_frame frame) {
  const gpumap_u32 format = gpumap_sample_format(frame.in.format, frame.params[0] != 0.0f);
  const gpumap_u64 given = gpumap_sample_count(format, frame.in.bytes);
  const gpumap_u64 room = frame.out.bytes / sizeof(float);
  const gpumap_u64 samples = given < room ? given : room;
  float* out = reinterpret_cast<float*>(frame.out.plane[0]);
  for (gpumap_u64 i = gpumap_thread(); i < samples; i += gpumap_thread_count()) {
    out[i] = gpumap_sample(frame.in.plane[0], format, i);
  }
}
