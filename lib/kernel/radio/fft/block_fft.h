/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/block_fft.h>: a block's FFTs. Its RADIO_FFT_THREADS threads hold 32 values each, in
 * registers, and transform them as 32 points and then as `radix` points: together, 32 * radix. Between the two they
 * change places through shared memory. Everything is unrolled, so that no index of a register is known late.
 */
#ifndef GPUMAP_BLOCK_FFT_H
#define GPUMAP_BLOCK_FFT_H

#include <gpumap/radio.h>

#define BLOCK_FFT_VALUES 32

__device__ constexpr float block_fft_cosines[17] = {
    1.0f,          0.98078528f,   0.923879533f,  0.831469612f,  0.707106781f,  0.555570233f,
    0.382683432f,  0.195090322f,  0.0f,          -0.195090322f, -0.382683432f, -0.555570233f,
    -0.707106781f, -0.831469612f, -0.923879533f, -0.98078528f,  -1.0f};

/* exp(-2 pi i n / 32) */
__device__ inline float2 block_fft_root_of_32(int n) {
  const int real = n % 32, imaginary = (n + 8) % 32;
  return make_float2(block_fft_cosines[real > 16 ? 32 - real : real],
                     block_fft_cosines[imaginary > 16 ? 32 - imaginary : imaginary]);
}

/* value * exp(-2 pi i n / 32), for n from 0 to 15. */
__device__ inline float2 block_fft_turned(float2 value, int n) {
  if (n == 0) return value;
  if (n == 8) return make_float2(value.y, -value.x);
  return radio_multiply(value, block_fft_root_of_32(n));
}

/* exp(-2 pi i n / size), `size` being a power of two, and n below 2^24: exact but for the last bit. */
__device__ inline float2 block_fft_root(gpumap_u32 n, gpumap_u32 size) {
  float2 root;
  sincospif(-2.0f / size * n, &root.y, &root.x);
  return root;
}

/* Where the k-th of `size` transformed values is: their order is that of the bits of k, read backwards. */
template <int size>
__device__ constexpr int block_fft_place(int k) {
  int place = 0;
  for (int bit = 1; bit < size; bit *= 2) place = 2 * place + (k & bit ? 1 : 0);
  return place;
}

/* The transform of `size` values, a power of two up to 32, in place. */
template <int size, int half = size / 2>
__device__ inline void block_fft_transform(float2* values) {
#pragma unroll
  for (int i = 0; i < size / 2; ++i) {
    float2& low = values[i / half * 2 * half + i % half];
    float2& high = values[i / half * 2 * half + i % half + half];
    const float2 difference = make_float2(low.x - high.x, low.y - high.y);
    low = make_float2(low.x + high.x, low.y + high.y);
    high = block_fft_turned(difference, i % half * (16 / half));
  }
  if constexpr (half > 1) block_fft_transform<size, half / 2>(values);
}

/* Transformed value k times step^k. Products of products: a chain of them would add up its errors. */
template <int size>
__device__ inline void block_fft_twiddle(float2* values, float2 step) {
  float2 powers[size];
  powers[1] = step;
#pragma unroll
  for (int k = 2; k < size; ++k) powers[k] = radio_multiply(powers[k / 2], powers[k - k / 2]);
#pragma unroll
  for (int k = 1; k < size; ++k) {
    float2& value = values[block_fft_place<size>(k)];
    value = radio_multiply(value, powers[k]);
  }
}

/* Value i goes to shared[to(i)], and shared[from(i)] takes its place. Real and imaginary parts one after the other:
 * both at once would need twice the memory. All threads of the block come here together. */
template <typename To, typename From>
__device__ inline void block_fft_exchange(float2* values, float* shared, const To& to, const From& from) {
#pragma unroll
  for (int i = 0; i < BLOCK_FFT_VALUES; ++i) shared[to(i)] = values[i].x;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < BLOCK_FFT_VALUES; ++i) values[i].x = shared[from(i)];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < BLOCK_FFT_VALUES; ++i) shared[to(i)] = values[i].y;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < BLOCK_FFT_VALUES; ++i) values[i].y = shared[from(i)];
  __syncthreads();
}

#endif
