// SPDX-License-Identifier: MIT
//
// A picture from a tensor: planar red, green and blue as float32 or float16 back to RGBA. It undoes what kernel=convert
// did with the same `mean` and `scale`. from_tensor.comp is the twin for compute shaders.
// gpumap: params mean=[0,0,0],scale=[1,1,1]
// gpumap: output video/x-raw,format=RGBA,width={width},height={height}
#include <gpumap/kernel.h>

__device__ float value_at(const gpumap_view& in, gpumap_u32 channel, gpumap_u32 x, gpumap_u32 y) {
  const gpumap_u64 row = in.plane[channel] + 1ull * y * in.stride[channel];
  if (in.format == GPUMAP_FORMAT_RGB_F32_PLANAR) return reinterpret_cast<const float*>(row)[x];
  if (in.format != GPUMAP_FORMAT_RGB_F16_PLANAR) return 0;
  // cuda_fp16.h would have to be found at run time; the instruction is always there.
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(reinterpret_cast<const unsigned short*>(row)[x]));
  return value;
}

extern "C" __global__ void from_tensor(gpumap_frame frame) {
  const gpumap_u32 x = blockIdx.x * blockDim.x + threadIdx.x;
  const gpumap_u32 y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= frame.out.width || y >= frame.out.height) return;
  gpumap_u32 rgba = 0xFF000000u;
  for (gpumap_u32 c = 0; c < 3; ++c) {
    const float colour = value_at(frame.in, c, x, y) / frame.params[3 + c] + frame.params[c];
    rgba |= static_cast<gpumap_u32>(fminf(fmaxf(colour, 0.0f), 1.0f) * 255.0f + 0.5f) << (8 * c);
  }
  reinterpret_cast<gpumap_u32*>(frame.out.plane[0] + 1ull * y * frame.out.stride[0])[x] = rgba;
}
