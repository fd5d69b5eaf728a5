// SPDX-License-Identifier: MIT
//
// From the pixels of a wavefront sensor (GRAY16_LE) to the commands of a deformable mirror: what each pixel in the light
// measures, a product with the reconstructor (to modes), and one with the mirror's modes (to commands), in float32.
// Sizes are those of the tables. commands.comp is the twin for compute shaders.
//
// Which pixels: the column in the low 16 bits, the row in the high ones. Both matrices lie row by row, filled up with
// zeros to a multiple of 32 numbers: each row begins with a cache line.
// gpumap: input video/x-raw,format=GRAY16_LE
// gpumap: table pixels uint32
// gpumap: table reconstructor float32
// gpumap: table modes float32
// gpumap: functions measure,reconstruct,command
// gpumap: params actuators:u32=1833 in [1,65536]
// gpumap: output application/x-mirror-commands
// gpumap: bytes 4*params.actuators
//
// Measurements, and behind them modes, go from function to function here. What fills their last line stays zero.
// gpumap: state 32768
//
// As many blocks as the reconstructor has rows.
// gpumap: block 128
// gpumap: grid 1089
#include <gpumap/kernel.h>

constexpr gpumap_u32 threads = 128, warp = 32, warps = threads / warp;

__device__ gpumap_u32 in_lines(gpumap_u32 numbers) { return (numbers + 31) / 32 * 32; }

struct Sizes {
  gpumap_u32 pixels, columns, modes, actuators;
  float *measured, *amplitudes;

  __device__ explicit Sizes(const gpumap_frame& frame)
      : pixels(static_cast<gpumap_u32>(frame.tables[0].count)),
        columns(in_lines(pixels)),
        modes(static_cast<gpumap_u32>(frame.tables[1].count / columns)),
        actuators(static_cast<gpumap_u32>(frame.out.bytes / sizeof(float))),
        measured(reinterpret_cast<float*>(frame.state)),
        amplitudes(measured + columns) {}
};

// What one of `team` threads has of the product of a row and a vector, sixteen bytes at a time. A row of a matrix is
// read once a frame: it stays in the L2, and leaves the L1 to the vector, which all rows share.
__device__ float part_of_product(gpumap_u64 row, const float* vector, gpumap_u32 columns, gpumap_u32 member,
                                 gpumap_u32 team) {
  const float4* row4 = reinterpret_cast<const float4*>(row);
  const float4* vector4 = reinterpret_cast<const float4*>(vector);
  float4 sum = {0, 0, 0, 0};
#pragma unroll 8
  for (gpumap_u32 i = member; i < columns / 4; i += team) {
    const float4 a = __ldcg(row4 + i), b = vector4[i];
    sum.x += a.x * b.x;
    sum.y += a.y * b.y;
    sum.z += a.z * b.z;
    sum.w += a.w * b.w;
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

__device__ float sum_of_warp(float value) {
  for (int distance = warp / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  return value;
}

extern "C" __global__ void measure(gpumap_frame frame) {
  const Sizes sizes(frame);
  const gpumap_u32* pixels = reinterpret_cast<const gpumap_u32*>(frame.tables[0].address);
  for (gpumap_u32 i = blockIdx.x * threads + threadIdx.x; i < sizes.pixels; i += gridDim.x * threads) {
    const gpumap_u64 at = frame.in.plane[0] + 1ull * (pixels[i] >> 16) * frame.in.stride[0] + 2 * (pixels[i] & 0xFFFF);
    sizes.measured[i] = static_cast<float>(*reinterpret_cast<const unsigned short*>(at) - 32768);
  }
}

// A block for each row, which is long: all its threads read at once.
extern "C" __global__ void reconstruct(gpumap_frame frame) {
  __shared__ float of_warps[warps];
  const Sizes sizes(frame);
  for (gpumap_u32 row = blockIdx.x; row < sizes.modes; row += gridDim.x) {
    const float part = sum_of_warp(part_of_product(frame.tables[1].address + 4ull * row * sizes.columns, sizes.measured,
                                                   sizes.columns, threadIdx.x, threads));
    if (threadIdx.x % warp == 0) of_warps[threadIdx.x / warp] = part;
    __syncthreads();
    if (threadIdx.x == 0) sizes.amplitudes[row] = (of_warps[0] + of_warps[1]) + (of_warps[2] + of_warps[3]);
    __syncthreads();  // before the next row's parts take their place
  }
}

// A warp for each row, which is short: no thread waits for one of another warp.
extern "C" __global__ void command(gpumap_frame frame) {
  const Sizes sizes(frame);
  const gpumap_u32 columns = in_lines(sizes.modes);
  for (gpumap_u32 row = blockIdx.x * warps + threadIdx.x / warp; row < sizes.actuators; row += gridDim.x * warps) {
    const float sum = sum_of_warp(part_of_product(frame.tables[2].address + 4ull * row * columns, sizes.amplitudes,
                                                  columns, threadIdx.x % warp, warp));
    if (threadIdx.x % warp == 0) reinterpret_cast<float*>(frame.out.plane[0])[row] = sum;
  }
}
