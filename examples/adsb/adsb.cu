// SPDX-License-Identifier: MIT
//
// Finds the messages of aircraft transponders (Mode S, 1090 MHz) in unsigned 8-bit I and Q at 2 MS/s. Every sample may
// be the first of a message, so every sample has a thread, which asks: is there a preamble, are these bits a message
// that exists, does its parity agree? The bits are read three times: as if pulses began with a sample, and as if they
// began up to half a sample after or before. adsb.comp is the twin for compute shaders.
//
// How much louder pulses are than what is quiet around them, as a ratio of powers:
// gpumap: params ratio=2.25
//
// Messages end where they like, also in the next block: the last samples of a block are kept for it, see tail_at().
// gpumap: state 992
//
// The output is a list of records, in no order, with room for one every 16 samples and 16 more. The result block is
// zero before each launch, which makes its first word the counter of records; the application finds it in the buffer's
// meta.
// gpumap: output application/x-mode-s,rate={rate}
// gpumap: bytes bytes+512
// gpumap: results records=u64
#include <gpumap/grid.h>
#include <gpumap/kernel.h>

constexpr int preamble_samples = 16;                      // 8 us
constexpr int short_samples = preamble_samples + 2 * 56;  // a bit takes 1 us
constexpr int long_samples = preamble_samples + 2 * 112;
constexpr int max_kept = long_samples - 1;  // one more would have been a whole message

// State holds two tails, and frames take turns: each reads the one that the frame before left, and writes the other. So
// no thread overwrites what another still reads. A frame that was lost (leaky=oldest) leaves a number that is not ours.
struct Tail {
  gpumap_u64 for_sequence;  // the number of the frame to come
  gpumap_u32 samples;       // so many of the last ones hold something
  gpumap_u8 unused[6];
  uchar2 sample[max_kept];
};
static_assert(sizeof(Tail) == 496);

struct Bits {
  gpumap_u32 words[4] = {};

  __device__ static int place(int i) { return i / 8 % 4 * 8 + 7 - i % 8; }
  __device__ bool operator==(const Bits& other) const {
    for (int i = 0; i < 4; ++i) {
      if (words[i] != other.words[i]) return false;
    }
    return true;
  }
};

struct Record {
  int first_sample;
  gpumap_u32 bits;
  Bits message;
  gpumap_u32 level;
  gpumap_u32 remainder;
};
static_assert(sizeof(Record) == 32);

// The samples that were kept, those of this block after them. Counted from the block's first: kept ones are below 0.
struct Samples {
  const uchar2* kept_end;
  const uchar2* block;

  __device__ uchar2 at(int index) const { return index < 0 ? kept_end[index] : block[index]; }

  __device__ int power(int index) const {
    const uchar2 iq = at(index);
    const int i = 2 * iq.x - 255;  // the zero of the recording lies at 127.5
    const int q = 2 * iq.y - 255;
    return i * i + q * q;
  }
};

// Four pulses of half a microsecond, one sample each, 0, 1, 3.5 and 4.5 us from the first. Not asked of the samples
// beside them: a message that does not begin with a sample has part of each pulse there.
__device__ bool has_preamble(const Samples& s, int at, int pulses, float ratio) {
  if (s.power(at) <= s.power(at + 1) || s.power(at + 2) <= s.power(at + 1)) return false;
  if (s.power(at + 7) <= s.power(at + 8) || s.power(at + 9) <= s.power(at + 8)) return false;
  const int quiet =
      s.power(at + 4) + s.power(at + 5) + s.power(at + 11) + s.power(at + 12) + s.power(at + 13) + s.power(at + 14);
  return 6.0f * static_cast<float>(pulses) > 4.0f * ratio * static_cast<float>(quiet);
}

// The pulse of a 1 lies in the first half of its microsecond, that of a 0 in the second. A pulse half a sample late
// lies in two samples, with a quarter of the power in each, and with all of it where two such halves meet. So the
// samples of a bit are alike, or one has four times the other's power, and the bit before says which of them is the
// larger one: the limit lies at twice. Where pulses are early it is the bit behind that says so.
enum { on_time, late, early };
__device__ gpumap_u32 bit_of(const Samples& s, int at, int bit, int phase, gpumap_u32 neighbour) {
  const int first = at + preamble_samples + 2 * bit;
  const int one = s.power(first), zero = s.power(first + 1);
  if (phase == on_time) return one > zero ? 1 : 0;
  return (neighbour == 1 ? 2 * one > zero : one > 2 * zero) ? 1 : 0;
}
// Beside a message is silence: the second half of a 1 before it, the first half of a 0 behind it. The long formats
// begin with 10, so that this says their first bit, too.
__device__ gpumap_u32 silence(int phase) {
  return phase == late ? 1 : 0;
}

__device__ int bits_of(const Samples& s, int at, int phase) {
  return bit_of(s, at, 0, phase, silence(phase)) == 1 ? 112 : 56;
}

__device__ Bits read_bits(const Samples& s, int at, int length, int phase) {
  Bits message;
  gpumap_u32 neighbour = silence(phase);
  for (int n = 0; n < length; ++n) {
    const int i = phase == early ? length - 1 - n : n;
    neighbour = bit_of(s, at, i, phase, neighbour);
    message.words[i / 32] |= neighbour << Bits::place(i);
  }
  return message;
}

// What the division by the generator polynomial leaves.
__device__ gpumap_u32 remainder_of(const Bits& message, int length) {
  gpumap_u32 remainder = 0;
  for (int i = 0; i < length; ++i) {
    remainder = remainder << 1 | (message.words[i / 32] >> Bits::place(i) & 1);
    if ((remainder & 0x1000000) != 0) remainder ^= 0x1FFF409;
  }
  return remainder;
}

// That is 0 for DF 17 and 18, up to 79 for DF 11 in answer to an interrogator. The others are sent with the aircraft's
// address added: only who knows the aircraft can tell.
__device__ bool may_be_message(gpumap_u32 downlink_format, gpumap_u32 remainder) {
  switch (downlink_format) {
    case 17:
    case 18:
      return remainder == 0;
    case 11:
      return remainder < 80;
    case 0:
    case 4:
    case 5:
    case 16:
    case 20:
    case 21:
      return true;
    default:
      return false;
  }
}

__device__ void find_message(const gpumap_frame& frame, const Samples& s, int at, int samples) {
  const int pulses = s.power(at) + s.power(at + 2) + s.power(at + 7) + s.power(at + 9);
  if (!has_preamble(s, at, pulses, frame.params[0])) return;
  Bits sampled;
  for (int phase = on_time; phase <= early; ++phase) {
    const int length = bits_of(s, at, phase);
    const int end = at + preamble_samples + 2 * length;
    // A message is told by the block that brings its last sample: never twice, never not at all.
    if (end <= 0 || end > samples) continue;
    const Bits message = read_bits(s, at, length, phase);
    if (phase == on_time) sampled = message;
    // Only who knows the aircraft can tell which of the readings is right: each goes on, but for the same again.
    if (phase != on_time && message == sampled) continue;
    const gpumap_u32 remainder = remainder_of(message, length);
    if (!may_be_message((message.words[0] & 0xFF) >> 3, remainder)) continue;

    const gpumap_u64 number = atomicAdd(reinterpret_cast<gpumap_u64*>(frame.result), 1ull);
    // What has no room is counted all the same: the application can say how many were lost.
    if ((number + 1) * sizeof(Record) > frame.out.bytes) continue;
    reinterpret_cast<Record*>(frame.out.plane[0])[number] = {at, static_cast<gpumap_u32>(length), message,
                                                             static_cast<gpumap_u32>(pulses) / 4, remainder};
  }
}

extern "C" __global__ void adsb(gpumap_frame frame) {
  if (frame.in.format != GPUMAP_FORMAT_U8 || frame.in.channels != 2) return;
  const int samples = static_cast<int>(frame.in.bytes / 2);
  Tail* tails = reinterpret_cast<Tail*>(frame.state);
  const Tail& before = tails[frame.sequence % 2];
  const int kept = before.for_sequence == frame.sequence ? static_cast<int>(before.samples) : 0;
  const Samples s = {before.sample + max_kept, reinterpret_cast<const uchar2*>(frame.in.plane[0])};

  for (gpumap_u64 i = gpumap_thread(); i < kept + samples; i += gpumap_thread_count()) {
    const int at = static_cast<int>(i) - kept;
    if (at + short_samples <= samples) find_message(frame, s, at, samples);
  }

  Tail& after = tails[(frame.sequence + 1) % 2];
  const int keep = min(kept + samples, max_kept);
  for (gpumap_u64 i = gpumap_thread(); i < keep; i += gpumap_thread_count()) {
    const int back = static_cast<int>(i) + 1;
    after.sample[max_kept - back] = s.at(samples - back);
  }
  if (gpumap_thread() == 0) {
    after.for_sequence = frame.sequence + 1;
    after.samples = keep;
  }
}
