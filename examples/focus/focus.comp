// SPDX-License-Identifier: MIT
//
// How sharp a frame is, as one figure: the variance of the Laplacian of its luma. Blurring takes away what differs from
// pixel to pixel, so the figure falls. For NV12, I420 and GRAY8, whose plane 0 is luma. focus.cu is the twin in CUDA C++.
//
// What is told is the figure alone: in an element message of each frame, in the buffer's meta, and as the output.
// gpumap: results sharpness=f32
// gpumap: output application/x-focus
// gpumap: bytes 4
// gpumap: block 32x8
//
// Two sums and a counter, in GPU memory. Each launch leaves them at zero, as the first one finds them.
// gpumap: state 24
#version 460
#extension GL_EXT_shader_atomic_int64 : require
#include <gpumap.glsl>

const uint threads = gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z;
// Sums of whole numbers: the order in which threads come makes no difference, as it would to floats.
shared int64_t sums[threads];
shared uint64_t squares[threads];

int luma(uint x, uint y) {
  return int(load_u8(frame.in_view.plane[0] + uint64_t(y) * uint64_t(frame.in_view.stride[0]) + uint64_t(x)));
}

uint64_t exchange_zero(uint64_t address) { return atomicExchange(gpumap_u64_at(address).value, 0ul); }

// E[L^2] - E[L]^2. The whole part of the first is taken as such: 33 million squares are more than a float can hold.
float variance(int64_t sum, uint64_t square, uint64_t count) {
  if (count == 0ul) return 0.0;
  const float mean = float(sum) / float(count);
  return float(square / count) + float(square % count) / float(count) - mean * mean;
}

void main() {
  const uint width = frame.in_view.width;
  const uint height = frame.in_view.height;
  const uint x = gl_GlobalInvocationID.x;
  const uint y = gl_GlobalInvocationID.y;
  // Pixels at the edge lack a neighbour: they are left out.
  int laplacian = 0;
  if (x > 0u && y > 0u && x + 1u < width && y + 1u < height) {
    laplacian = 4 * luma(x, y) - luma(x - 1u, y) - luma(x + 1u, y) - luma(x, y - 1u) - luma(x, y + 1u);
  }

  // Of a workgroup's threads in shared memory; of all workgroups by atomics, three from each.
  const uint within = gl_LocalInvocationIndex;
  sums[within] = int64_t(laplacian);
  squares[within] = uint64_t(laplacian * laplacian);
  for (uint left = threads; left > 1u;) {
    const uint half_left = (left + 1u) / 2u;
    barrier();
    if (within + half_left < left) {
      sums[within] += sums[within + half_left];
      squares[within] += squares[within + half_left];
    }
    left = half_left;
  }
  if (within != 0u) return;
  const uint64_t groups = uint64_t(gl_NumWorkGroups.x * gl_NumWorkGroups.y);
  atomicAdd(gpumap_u64_at(frame.state).value, uint64_t(sums[0]));
  atomicAdd(gpumap_u64_at(frame.state + 8ul).value, squares[0]);
  memoryBarrierBuffer();  // a workgroup that sees this one counted sees its sums
  if (atomicAdd(gpumap_u64_at(frame.state + 16ul).value, 1ul) + 1ul != groups) return;

  // The last workgroup has all there is.
  memoryBarrierBuffer();
  const int64_t sum = int64_t(exchange_zero(frame.state));
  const uint64_t square = exchange_zero(frame.state + 8ul);
  exchange_zero(frame.state + 16ul);
  const uint64_t count = width > 2u && height > 2u ? uint64_t(width - 2u) * uint64_t(height - 2u) : 0ul;
  const float sharpness = variance(sum, square, count);
  store_f32(frame.result, sharpness);
  store_f32(frame.out_view.plane[0], sharpness);
}
