// SPDX-License-Identifier: MIT
// The GPU's side of gpumap-bench's mode pingpong. Of the frame it takes:
//
//   in.plane[1]             the doorbell, in.channels bytes wide (4 or 8): a sequence that the CPU raises
//   out.plane[0]            the answer, in host memory: the doorbell's word
//   sequence                what the doorbell said when the last answer was given
//   duration                ns without a bell after which a resident kernel ends
//
// The kernel ends when the doorbell says all ones, and when nobody rings: it never runs for ever.
#include <gpumap/kernel.h>

__device__ gpumap_u64 now_ns() {
  gpumap_u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Nothing is read behind this one: it needs no order.
template <typename Word>
__device__ Word peek(gpumap_u64 bell) {
  return *reinterpret_cast<const volatile Word*>(bell);
}

// The clock is read once in this many looks, to keep it out of the round trip.
constexpr gpumap_u32 looks_per_clock = 1024;

/// The doorbell's next word; all ones when nobody rings.
template <typename Word>
__device__ Word next_bell(gpumap_u64 bell, Word last, gpumap_i64 idle_ns) {
  gpumap_u64 until = 0;
  for (gpumap_u32 looks = 1;; ++looks) {
    const Word said = peek<Word>(bell);
    if (said != last) return said;
    if (looks % looks_per_clock != 0) continue;
    const gpumap_u64 now = now_ns();
    if (until == 0) until = now + idle_ns;
    if (now > until) return ~Word{0};
  }
}

template <typename Word>
__device__ void echo(const gpumap_frame& frame) {
  for (Word last = static_cast<Word>(frame.sequence);;) {
    last = next_bell<Word>(frame.in.plane[1], last, frame.duration);
    if (last == ~Word{0}) return;
    *reinterpret_cast<volatile gpumap_u64*>(frame.out.plane[0]) = last;
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
