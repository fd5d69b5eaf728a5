// SPDX-License-Identifier: MIT
//
// How sharp a frame is, as one figure: the variance of the Laplacian of its luma. Blurring takes away what differs from
// pixel to pixel, so the figure falls. For NV12, I420 and GRAY8, whose plane 0 is luma. focus.comp is the twin for
// compute shaders.
//
// What is told is the figure alone: in an element message of each frame, in the buffer's meta, and as the output.
// gpumap: results sharpness=f32
// gpumap: output application/x-focus
// gpumap: bytes 4
// gpumap: block 32x8
//
// Two sums and a counter, in GPU memory. Each launch leaves them at zero, as the first one finds them.
// gpumap: state 24
#include <gpumap/kernel.h>

constexpr gpumap_u32 threads = 32 * 8;

struct Sums {
  gpumap_u64 sum;  // of signed numbers: adding wraps as it should
  gpumap_u64 square;
  gpumap_u64 groups;
};

__device__ int luma(const gpumap_view& in, gpumap_u32 x, gpumap_u32 y) {
  return reinterpret_cast<const gpumap_u8*>(in.plane[0])[1ull * y * in.stride[0] + x];
}

// E[L^2] - E[L]^2. The whole part of the first is taken as such: 33 million squares are more than a float can hold.
__device__ float variance(gpumap_i64 sum, gpumap_u64 square, gpumap_u64 count) {
  if (count == 0) return 0;
  const float mean = static_cast<float>(sum) / static_cast<float>(count);
  return static_cast<float>(square / count) + static_cast<float>(square % count) / static_cast<float>(count) -
         mean * mean;
}

extern "C" __global__ void focus(gpumap_frame frame) {
  // Sums of whole numbers: the order in which threads come makes no difference, as it would to floats.
  __shared__ gpumap_i64 sums[threads];
  __shared__ gpumap_u64 squares[threads];
  const gpumap_u32 width = frame.in.width;
  const gpumap_u32 height = frame.in.height;
  const gpumap_u32 x = blockIdx.x * blockDim.x + threadIdx.x;
  const gpumap_u32 y = blockIdx.y * blockDim.y + threadIdx.y;
  // Pixels at the edge lack a neighbour: they are left out.
  int laplacian = 0;
  if (x > 0 && y > 0 && x + 1 < width && y + 1 < height) {
    laplacian = 4 * luma(frame.in, x, y) - luma(frame.in, x - 1, y) - luma(frame.in, x + 1, y) -
                luma(frame.in, x, y - 1) - luma(frame.in, x, y + 1);
  }

  // Of a block's threads in shared memory; of all blocks by atomics, three from each.
  const gpumap_u32 within = threadIdx.y * blockDim.x + threadIdx.x;
  sums[within] = laplacian;
  squares[within] = static_cast<gpumap_u64>(laplacian * laplacian);
  for (gpumap_u32 left = threads / 2; left > 0; left /= 2) {
    __syncthreads();
    if (within < left) {
      sums[within] += sums[within + left];
      squares[within] += squares[within + left];
    }
  }
  // No thread returns early: this kernel may stay on the GPU.
  Sums& all = *reinterpret_cast<Sums*>(frame.state);
  bool last = false;
  if (within == 0) {
    atomicAdd(&all.sum, static_cast<gpumap_u64>(sums[0]));
    atomicAdd(&all.square, squares[0]);
    __threadfence();  // a block that sees this one counted sees its sums
    last = atomicAdd(&all.groups, 1ull) + 1 == 1ull * gridDim.x * gridDim.y;
  }
  // The last block has all there is.
  if (last) {
    __threadfence();
    const gpumap_i64 sum = static_cast<gpumap_i64>(atomicExch(&all.sum, 0ull));
    const gpumap_u64 square = atomicExch(&all.square, 0ull);
    all.groups = 0;
    const gpumap_u64 count = width > 2 && height > 2 ? 1ull * (width - 2) * (height - 2) : 0;
    const float sharpness = variance(sum, square, count);
    *reinterpret_cast<float*>(frame.result) = sharpness;
    *reinterpret_cast<float*>(frame.out.plane[0]) = sharpness;
  }
}
