// SPDX-License-Identifier: MIT
//
// A picture from a tensor: planar red, green and blue as float32 or float16 back to RGBA. It undoes what kernel=convert
// did with the same `mean` and `scale`. from_tensor.cu is the twin in CUDA C++.
// gpumap: params mean=[0,0,0],scale=[1,1,1]
// gpumap: output video/x-raw,format=RGBA,width={width},height={height}
#version 460
#include <gpumap.glsl>

float value_at(uint channel, uint x, uint y) {
  const uint64_t row = frame.in_view.plane[channel] + uint64_t(y) * uint64_t(frame.in_view.stride[channel]);
  if (frame.in_view.format == GPUMAP_FORMAT_RGB_F32_PLANAR) return load_f32(row + 4ul * uint64_t(x));
  if (frame.in_view.format == GPUMAP_FORMAT_RGB_F16_PLANAR) return unpackHalf2x16(load_u16(row + 2ul * uint64_t(x))).x;
  return 0.0;
}

void main() {
  const uint x = gl_GlobalInvocationID.x;
  const uint y = gl_GlobalInvocationID.y;
  if (x >= frame.out_view.width || y >= frame.out_view.height) return;
  uint rgba = 0xFF000000u;
  for (uint c = 0u; c < 3u; ++c) {
    const float colour = value_at(c, x, y) / frame.params[3u + c] + frame.params[c];
    rgba |= uint(clamp(colour, 0.0, 1.0) * 255.0 + 0.5) << (8u * c);
  }
  store_u32(frame.out_view.plane[0] + uint64_t(y) * uint64_t(frame.out_view.stride[0]) + 4ul * uint64_t(x), rgba);
}
