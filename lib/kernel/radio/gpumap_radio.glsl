// SPDX-License-Identifier: MIT
// <gpumap_radio.glsl>: the twin of gpumap/radio.h, which says what everything means. Includes what a kernel of the radio
// built-ins needs. Such a kernel says #define RADIO_JOB and the name of its job before the include.
#ifndef GPUMAP_RADIO_GLSL
#define GPUMAP_RADIO_GLSL

#define RADIO_BLOCK_THREADS 128

#define GPUMAP_OWN_WORKGROUP_SIZE
#include <gpumap.glsl>
#include <gpumap_samples.glsl>
layout(local_size_x = RADIO_BLOCK_THREADS) in;

struct radio_keep_job {
  int64_t first;
  uint64_t count;
  uint64_t start;
  uint64_t position;
  uint64_t period;
  uint64_t step;
};
struct radio_ddc_job {
  uint64_t outputs;
  uint64_t phase;
  uint up;
  uint down;
  uint taps;
  uint phases;
  uint begin;
  uint end;
  uint sum_threads;
  uint reserved;
};
struct radio_level_job {
  uint64_t count;
  float scale;
  uint reserved;
};
struct radio_audio_job {
  uint64_t outputs;
  uint64_t phase;
  uint up;
  uint down;
  uint taps;
  uint sum_threads;
};
struct radio_fft_job {
  uint64_t transforms;
  uint size;
  uint stride;
  uint radix;
  uint reserved;
};
struct radio_chirp_job {
  uint64_t transforms;
  uint from_size;
  uint to_size;
  uint backwards;
  uint reserved;
};
struct radio_rows_job {
  int64_t first;
  uint64_t transforms;
  uint size;
  uint hop;
};
struct radio_power_job {
  uint64_t transforms;
  uint size;
  uint average;
  uint carried;
  uint decibel;
  float scale;
  uint rows;
  uint terms;
  float window[4];
};
struct radio_fold_job {
  int64_t newest;
  uint64_t steps;
  uint channels;
  uint hop;
  uint taps;
  uint turn;
};

// params are the last of a frame.
struct radio_before_params {
  gpumap_view views[2];
  uint64_t words[8];
  gpumap_color color;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer radio_job_at {
  radio_before_params before;
  RADIO_JOB value;
};
#define job (radio_job_at(gpumap_push.frame_address).value)

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer radio_iq_at { vec2 value; };
vec2 load_iq(uint64_t address, uint64_t index) { return radio_iq_at(address + 8ul * index).value; }
void store_iq(uint64_t address, uint64_t index, vec2 iq) { radio_iq_at(address + 8ul * index).value = iq; }

// Where the samples lie, read once a thread: not every driver moves loads out of a loop.
struct radio_stream {
  uint64_t from;
  uint format;
  bool real;
  uint64_t kept;
  int64_t kept_count;
};
radio_stream radio_open() {
  return radio_stream(frame.in_view.plane[0], frame.in_view.format, frame.in_view.channels == 1u, frame.state,
                      int64_t(frame.state_bytes / 8ul));
}

vec2 radio_sample(radio_stream stream, int64_t i) {
  if (i >= 0l) {
    if (stream.real) return vec2(gpumap_sample(stream.from, stream.format, uint64_t(i)), 0.0);
    const uint64_t at = 2ul * uint64_t(i);
    return vec2(gpumap_sample(stream.from, stream.format, at), gpumap_sample(stream.from, stream.format, at + 1ul));
  }
  const int64_t at = i + stream.kept_count;
  return at < 0l ? vec2(0.0) : load_iq(stream.kept, uint64_t(at));
}

vec2 radio_multiply(vec2 a, vec2 b) { return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }

float radio_angle(vec2 iq) {
  const float x = abs(iq.x), y = abs(iq.y);
  const float large = max(x, y);
  if (large == 0.0) return 0.0;
  float slope = min(x, y) / large;
  const bool steep = slope > 0.4142135623731;
  if (steep) slope = (slope - 1.0) / (slope + 1.0);
  const float z = slope * slope;
  float angle =
      (((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1) * z * slope + slope;
  if (steep) angle += 0.785398163397448;
  if (y > x) angle = 1.570796326794897 - angle;
  if (iq.x < 0.0) angle = 3.141592653589793 - angle;
  return iq.y < 0.0 ? -angle : angle;
}

vec2 radio_phasor(uint64_t phase) {
  const uint turn = uint(phase >> 32);
  const uint quarter = (turn + 0x20000000u) >> 30;
  const float x = float(int(turn - (quarter << 30))) * 1.46291807927e-9;
  const float z = x * x;
  const float sine = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x;
  const float cosine = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z -
                       0.5 * z + 1.0;
  switch (quarter) {
    case 0u:
      return vec2(cosine, sine);
    case 1u:
      return vec2(-sine, cosine);
    case 2u:
      return vec2(-cosine, -sine);
    default:
      return vec2(sine, -cosine);
  }
}

#endif
