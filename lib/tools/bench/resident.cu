// SPDX-License-Identifier: MIT
// The GPU's side of gpumap-bench's modes pingpong and lat. Of the frame they take:
//
//   in.plane[0], in.bytes   the payload: 16-byte aligned, a multiple of 4 bytes
//   in.plane[1]             the doorbell, in.channels bytes wide (4 or 8): a sequence that the CPU raises
//   out.plane[0]            the answer, in host memory: the sequence's low half above the payload's checksum
//   sequence                what the doorbell said when the last answer was given
//   duration                ns without a bell after which a resident kernel ends
//
// A resident kernel ends when the doorbell says all ones, and when nobody rings: it never runs for ever.
#include <gpumap/grid.h>
#include <gpumap/kernel.h>

__device__ gpumap_u64 now_ns() {
  gpumap_u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ gpumap_u64 look(gpumap_u64 bell) {
  gpumap_u64 said;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(said) : "l"(bell) : "memory");
  return said;
}

// Nothing is read behind this one: it needs no order.
template <typename Word>
__device__ Word peek(gpumap_u64 bell) {
  return *reinterpret_cast<const volatile Word*>(bell);
}

// The clock is read once in this many looks, to keep it out of the round trip.
constexpr gpumap_u32 looks_per_clock = 1024;

/// The doorbell's next word; all ones when nobody rings.
template <typename Word, typename Look>
__device__ Word next_bell(Look look_at, gpumap_u64 bell, Word last, gpumap_i64 idle_ns) {
  gpumap_u64 until = 0;
  for (gpumap_u32 looks = 1;; ++looks) {
    const Word said = look_at(bell);
    if (said != last) return said;
    if (looks % looks_per_clock != 0) continue;
    const gpumap_u64 now = now_ns();
    if (until == 0) until = now + idle_ns;
    if (now > until) return ~Word{0};
  }
}

/// One store: it depends on every load behind the checksum, so that it needs no fence before it.
__device__ void answer(const gpumap_frame& frame, gpumap_u64 bell, gpumap_u32 checksum) {
  *reinterpret_cast<volatile gpumap_u64*>(frame.out.plane[0]) = bell << 32 | checksum;
}

template <typename Word>
__device__ void echo(const gpumap_frame& frame) {
  for (Word last = static_cast<Word>(frame.sequence);;) {
    last = next_bell<Word>(peek<Word>, frame.in.plane[1], last, frame.duration);
    if (last == ~Word{0}) return;
    answer(frame, last, 0);
  }
}

/// One thread that answers every bell and reads nothing.
extern "C" __global__ void resident_echo(gpumap_frame frame) {
  if (frame.in.channels == 4) {
    echo<gpumap_u32>(frame);
  } else {
    echo<gpumap_u64>(frame);
  }
}

/// This thread's share of the checksum: the sum over 32-bit words of word[i] * (2 * i + 1), modulo 2^32. Odd weights
/// let every changed bit show, rising ones every word that moved. Past L1, which knows nothing of the CPU's stores.
__device__ gpumap_u32 weigh(const gpumap_view& in, gpumap_u32 thread, gpumap_u32 threads) {
  const uint4* quads = reinterpret_cast<const uint4*>(in.plane[0]);
  const gpumap_u32 count = static_cast<gpumap_u32>(in.bytes / 16);
  gpumap_u32 sum = 0;
#pragma unroll 8
  for (gpumap_u32 i = thread; i < count; i += threads) {
    const uint4 quad = __ldcg(quads + i);
    const gpumap_u32 weight = 8 * i + 1;
    sum += quad.x * weight + quad.y * (weight + 2) + quad.z * (weight + 4) + quad.w * (weight + 6);
  }
  const gpumap_u32* words = reinterpret_cast<const gpumap_u32*>(in.plane[0]);
  for (gpumap_u32 i = 4 * count + thread; i < in.bytes / 4; i += threads) sum += __ldcg(words + i) * (2 * i + 1);
  return sum;
}

/// Adds a warp's sums into one of the block's. The block is a whole number of warps.
__device__ void add_up(gpumap_u32* total, gpumap_u32 sum) {
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(~0u, sum, apart);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

/// One block that reads the payload behind every bell.
extern "C" __global__ void resident_read(gpumap_frame frame) {
  __shared__ gpumap_u64 bell;
  __shared__ gpumap_u32 total;
  for (gpumap_u64 last = frame.sequence;;) {
    if (threadIdx.x == 0) {
      total = 0;
      bell = next_bell<gpumap_u64>(look, frame.in.plane[1], last, frame.duration);
    }
    __syncthreads();
    last = bell;
    if (last == ~0ull) return;
    add_up(&total, weigh(frame.in, threadIdx.x, blockDim.x));
    __syncthreads();
    if (threadIdx.x == 0) answer(frame, last, total);
  }
}

/// The same reading by an ordinary launch. Block i leaves its part of the checksum in 32-bit word i of the answer.
extern "C" __global__ void read_once(gpumap_frame frame) {
  __shared__ gpumap_u32 total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  add_up(&total, weigh(frame.in, static_cast<gpumap_u32>(gpumap_thread()), blockDim.x * gridDim.x));
  __syncthreads();
  if (threadIdx.x == 0) reinterpret_cast<gpumap_u32*>(frame.out.plane[0])[blockIdx.x] = total;
}
