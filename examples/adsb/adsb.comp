// SPDX-License-Identifier: MIT
//
// Finds the messages of aircraft transponders (Mode S, 1090 MHz) in unsigned 8-bit I and Q at 2 MS/s. Every sample may
// be the first of a message, so every sample has a thread, which asks: is there a preamble, are these bits a message
// that exists, does its parity agree? The bits are read three times: as if pulses began with a sample, and as if they
// began up to half a sample after or before. adsb.cu is the twin in CUDA C++.
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
#version 460
#extension GL_EXT_shader_atomic_int64 : require
#include <gpumap.glsl>

const int preamble_samples = 16;                    // 8 us
const int short_samples = preamble_samples + 2 * 56;  // a bit takes 1 us
const int long_samples = preamble_samples + 2 * 112;
const int max_kept = long_samples - 1;  // one more would have been a whole message
const uint64_t tail_bytes = 496ul;       // number of the frame to come, samples kept, the samples up to the end
const uint64_t record_bytes = 32ul;

// State holds two tails, and frames take turns: each reads the one that the frame before left, and writes the other. So
// no thread overwrites what another still reads. A frame that was lost (leaky=oldest) leaves a number that is not ours.
uint64_t tail_at(uint64_t sequence) { return frame.state + tail_bytes * (sequence & 1ul); }

// The samples that were kept, those of this block after them. Counted from the block's first: kept ones are below 0.
uint64_t sample_at(int index) {
  const uint64_t zero = index < 0 ? tail_at(frame.sequence) + tail_bytes : frame.in_view.plane[0];
  return zero + uint64_t(int64_t(2 * index));
}

int power(int index) {
  const uint iq = load_u16(sample_at(index));
  const int i = 2 * int(iq & 0xFFu) - 255;  // the zero of the recording lies at 127.5
  const int q = 2 * int(iq >> 8) - 255;
  return i * i + q * q;
}

// Four pulses of half a microsecond, one sample each, 0, 1, 3.5 and 4.5 us from the first. Not asked of the samples
// beside them: a message that does not begin with a sample has part of each pulse there.
bool has_preamble(int at, int pulses) {
  if (power(at) <= power(at + 1) || power(at + 2) <= power(at + 1)) return false;
  if (power(at + 7) <= power(at + 8) || power(at + 9) <= power(at + 8)) return false;
  const int quiet = power(at + 4) + power(at + 5) + power(at + 11) + power(at + 12) + power(at + 13) + power(at + 14);
  return 6.0 * float(pulses) > 4.0 * frame.params[0] * float(quiet);
}

// The pulse of a 1 lies in the first half of its microsecond, that of a 0 in the second. A pulse half a sample late
// lies in two samples, with a quarter of the power in each, and with all of it where two such halves meet. So the
// samples of a bit are alike, or one has four times the other's power, and the bit before says which of them is the
// larger one: the limit lies at twice. Where pulses are early it is the bit behind that says so.
const int on_time = 0, late = 1, early = 2;
uint bit_of(int at, int bit, int phase, uint neighbour) {
  const int first = at + preamble_samples + 2 * bit;
  const int one = power(first), zero = power(first + 1);
  if (phase == on_time) return one > zero ? 1u : 0u;
  return (neighbour == 1u ? 2 * one > zero : one > 2 * zero) ? 1u : 0u;
}
// Beside a message is silence: the second half of a 1 before it, the first half of a 0 behind it. The long formats
// begin with 10, so that this says their first bit, too.
uint silence(int phase) { return phase == late ? 1u : 0u; }

int bits_of(int at, int phase) { return bit_of(at, 0, phase, silence(phase)) == 1u ? 112 : 56; }

uvec4 read_bits(int at, int length, int phase) {
  uvec4 message = uvec4(0u);
  uint neighbour = silence(phase);
  for (int n = 0; n < length; ++n) {
    const int i = phase == early ? length - 1 - n : n;
    neighbour = bit_of(at, i, phase, neighbour);
    message[i / 32] |= neighbour << (i / 8 % 4 * 8 + 7 - i % 8);
  }
  return message;
}

// What the division by the generator polynomial leaves.
uint remainder_of(uvec4 message, int length) {
  uint remainder = 0u;
  for (int i = 0; i < length; ++i) {
    remainder = remainder << 1 | message[i / 32] >> (i / 8 % 4 * 8 + 7 - i % 8) & 1u;
    if ((remainder & 0x1000000u) != 0u) remainder ^= 0x1FFF409u;
  }
  return remainder;
}

// That is 0 for DF 17 and 18, up to 79 for DF 11 in answer to an interrogator. The others are sent with the aircraft's
// address added: only who knows the aircraft can tell.
bool may_be_message(uint downlink_format, uint remainder) {
  switch (downlink_format) {
    case 17u:
    case 18u:
      return remainder == 0u;
    case 11u:
      return remainder < 80u;
    case 0u:
    case 4u:
    case 5u:
    case 16u:
    case 20u:
    case 21u:
      return true;
    default:
      return false;
  }
}

void find_message(int at, int samples) {
  const int pulses = power(at) + power(at + 2) + power(at + 7) + power(at + 9);
  if (!has_preamble(at, pulses)) return;
  uvec4 sampled = uvec4(0u);
  for (int phase = on_time; phase <= early; ++phase) {
    const int length = bits_of(at, phase);
    const int end = at + preamble_samples + 2 * length;
    // A message is told by the block that brings its last sample: never twice, never not at all.
    if (end <= 0 || end > samples) continue;
    const uvec4 message = read_bits(at, length, phase);
    if (phase == on_time) sampled = message;
    // Only who knows the aircraft can tell which of the readings is right: each goes on, but for the same again.
    if (phase != on_time && message == sampled) continue;
    const uint remainder = remainder_of(message, length);
    if (!may_be_message((message[0] & 0xFFu) >> 3, remainder)) continue;

    const uint64_t number = atomicAdd(gpumap_u64_at(frame.result).value, 1ul);
    // What has no room is counted all the same: the application can say how many were lost.
    if ((number + 1ul) * record_bytes > frame.out_view.bytes) continue;
    const uint64_t record = frame.out_view.plane[0] + number * record_bytes;
    store_u32(record, uint(at));
    store_u32(record + 4ul, uint(length));
    for (int i = 0; i < 4; ++i) store_u32(record + 8ul + 4ul * uint64_t(i), message[i]);
    store_u32(record + 24ul, uint(pulses) / 4u);
    store_u32(record + 28ul, remainder);
  }
}

void main() {
  if (frame.in_view.format != GPUMAP_FORMAT_U8 || frame.in_view.channels != 2u) return;
  const int samples = int(frame.in_view.bytes / 2ul);
  const uint64_t before = tail_at(frame.sequence);
  const int kept = load_u64(before) == frame.sequence ? int(load_u32(before + 8ul)) : 0;

  const uint64_t step = gpumap_thread_count();
  for (uint64_t i = gpumap_thread(); i < uint64_t(kept + samples); i += step) {
    const int at = int(i) - kept;
    if (at + short_samples <= samples) find_message(at, samples);
  }

  const uint64_t after = tail_at(frame.sequence + 1ul);
  const int keep = min(kept + samples, max_kept);
  for (uint64_t i = gpumap_thread(); i < uint64_t(keep); i += step) {
    const int back = int(i) + 1;
    store_u16(after + tail_bytes - 2ul * uint64_t(back), load_u16(sample_at(samples - back)));
  }
  if (gpumap_thread() == 0ul) {
    store_u64(after, frame.sequence + 1ul);
    store_u32(after + 8ul, uint(keep));
  }
}
