// SPDX-License-Identifier: MIT
//
// From the pixels of a Shack-Hartmann wavefront sensor to the commands of a deformable mirror, for GRAY16_LE: slopes of
// each lit subaperture, a product with the reconstructor (slopes to modes), and one with the mirror's modes (modes to
// commands), in float32. Sizes are those of the tables. commands.comp is the twin for compute shaders.
//
// Where each lit subaperture begins: its first column in the low 16 bits, its first row in the high ones. It has 2x2
// pixels.
// gpumap: input video/x-raw,format=GRAY16_LE
// gpumap: table corners uint32
//
// Both matrices lie row by row. Rows are filled up with zeros to a multiple of 32 numbers: each begins with a cache
// line. A row of the first has a number for each slope across, each slope down and a constant 1, whose number takes
// away what the slopes of a flat wavefront give. It has a row for each mode, the second one for each actuator.
// gpumap: table reconstructor float32
// gpumap: table modes float32
//
// gpumap: functions measure,reconstruct,command
// gpumap: params actuators:u32=1833 in [1,65536]
// gpumap: output application/x-mirror-commands
// gpumap: bytes 4*params.actuators
//
// Measurements, and behind them modes, go from function to function here. What fills their last line stays zero.
// gpumap: state 32768
//
// As many blocks as the reconstructor has rows, each of as many threads as reduce() adds up.
// gpumap: block 128
// gpumap: grid 1089
#include <gpumap/kernel.h>

constexpr gpumap_u32 threads = 128;
constexpr gpumap_u32 warp = 32;
constexpr gpumap_u32 warps = threads / warp;

struct Sizes {
  gpumap_u32 subapertures, columns, modes, mode_columns, actuators;

  __device__ explicit Sizes(const gpumap_frame& frame)
      : subapertures(static_cast<gpumap_u32>(frame.tables[0].count)),
        columns(in_lines(2 * subapertures + 1)),
        modes(static_cast<gpumap_u32>(frame.tables[1].count / columns)),
        mode_columns(in_lines(modes)),
        actuators(static_cast<gpumap_u32>(frame.out.bytes / sizeof(float))) {}

 private:
  __device__ static gpumap_u32 in_lines(gpumap_u32 numbers) { return (numbers + 31) / 32 * 32; }
};

__device__ float* measurements_of(const gpumap_frame& frame) {
  return reinterpret_cast<float*>(frame.state);
}

__device__ float* amplitudes_of(const gpumap_frame& frame, const Sizes& sizes) {
  return measurements_of(frame) + sizes.columns;
}

// What one of `team` threads has of the product of a row and a vector, sixteen bytes at a time. A row of a matrix is
// read once a frame: it stays in the L2, and leaves the L1 to the vector, which all rows share.
__device__ float part_of_product(const float* row, const float* vector, gpumap_u32 columns, gpumap_u32 member,
                                 gpumap_u32 team) {
  const float4* row4 = reinterpret_cast<const float4*>(row);
  const float4* vector4 = reinterpret_cast<const float4*>(vector);
  float4 sum = {0, 0, 0, 0};
#pragma unroll 8
  for (gpumap_u32 i = member; i < columns / 4; i += team) {
    const float4 a = __ldcg(row4 + i);
    const float4 b = vector4[i];
    sum.x += a.x * b.x;
    sum.y += a.y * b.y;
    sum.z += a.z * b.z;
    sum.w += a.w * b.w;
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

__device__ float sum_of_warp(float value) {
  for (gpumap_u32 distance = warp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, static_cast<int>(distance));
  }
  return value;
}

// Where the light of a subaperture lies, from -1 to 1 across and down: sums of four pixels are whole numbers, which a
// float holds, so the division is all that rounds. A dark one counts as in the middle.
extern "C" __global__ void measure(gpumap_frame frame) {
  const Sizes sizes(frame);
  const gpumap_u32* corners = reinterpret_cast<const gpumap_u32*>(frame.tables[0].address);
  float* slopes = measurements_of(frame);
  const gpumap_u32 first = blockIdx.x * threads + threadIdx.x;
  if (first == 0) slopes[2 * sizes.subapertures] = 1;
  for (gpumap_u32 i = first; i < sizes.subapertures; i += gridDim.x * threads) {
    const gpumap_u32 corner = corners[i];
    const gpumap_u64 at = frame.in.plane[0] + 1ull * (corner >> 16) * frame.in.stride[0] + 2 * (corner & 0xFFFF);
    // Subapertures begin at even columns, and rows at multiples of 4 bytes: two pixels are one word.
    const ushort2 above = *reinterpret_cast<const ushort2*>(at);
    const ushort2 below = *reinterpret_cast<const ushort2*>(at + frame.in.stride[0]);
    const int left = above.x + below.x, right = above.y + below.y;
    const int upper = above.x + above.y, lower = below.x + below.y;
    const float light = static_cast<float>(max(left + right, 1));
    slopes[i] = static_cast<float>(right - left) / light;
    slopes[sizes.subapertures + i] = static_cast<float>(lower - upper) / light;
  }
}

// A block for each row, which is long: all its threads read at once.
extern "C" __global__ void reconstruct(gpumap_frame frame) {
  __shared__ float of_warps[warps];
  const Sizes sizes(frame);
  const float* matrix = reinterpret_cast<const float*>(frame.tables[1].address);
  for (gpumap_u32 row = blockIdx.x; row < sizes.modes; row += gridDim.x) {
    const float part = sum_of_warp(part_of_product(matrix + 1ull * row * sizes.columns, measurements_of(frame),
                                                   sizes.columns, threadIdx.x, threads));
    if (threadIdx.x % warp == 0) of_warps[threadIdx.x / warp] = part;
    __syncthreads();
    if (threadIdx.x == 0) {
      amplitudes_of(frame, sizes)[row] = (of_warps[0] + of_warps[1]) + (of_warps[2] + of_warps[3]);
    }
    __syncthreads();  // before the next row's parts take their place
  }
}

// A warp for each row, which is short: no thread waits for one of another warp.
extern "C" __global__ void command(gpumap_frame frame) {
  const Sizes sizes(frame);
  const float* matrix = reinterpret_cast<const float*>(frame.tables[2].address);
  float* commands = reinterpret_cast<float*>(frame.out.plane[0]);
  for (gpumap_u32 row = blockIdx.x * warps + threadIdx.x / warp; row < sizes.actuators; row += gridDim.x * warps) {
    const float sum = sum_of_warp(part_of_product(matrix + 1ull * row * sizes.mode_columns, amplitudes_of(frame, sizes),
                                                  sizes.mode_columns, threadIdx.x % warp, warp));
    if (threadIdx.x % warp == 0) commands[row] = sum;
  }
}
