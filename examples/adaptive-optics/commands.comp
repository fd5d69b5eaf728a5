// SPDX-License-Identifier: MIT
//
// From the pixels of a Shack-Hartmann wavefront sensor to the commands of a deformable mirror, for GRAY16_LE: slopes of
// each lit subaperture, a product with the reconstructor (slopes to modes), and one with the mirror's modes (modes to
// commands), in float32. Sizes are those of the tables. commands.cu is the twin in CUDA C++.
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
// As many workgroups as the reconstructor has rows, each of as many threads as are added up.
// gpumap: block 128
// gpumap: grid 1089
#version 460
#include <gpumap.glsl>

const uint threads = 128u;
// How many threads share a row of the second matrix, which is short. Subgroups differ from device to device.
const uint few = 32u;

uint in_lines(uint numbers) { return (numbers + 31u) / 32u * 32u; }

uint subapertures() { return uint(frame.tables[0].count); }
uint columns() { return in_lines(2u * subapertures() + 1u); }
uint modes() { return uint(frame.tables[1].count) / columns(); }
uint actuators() { return uint(frame.out_view.bytes) / 4u; }

uint64_t amplitudes() { return frame.state + 4ul * uint64_t(columns()); }

// What one of `team` threads has of the product of a row and a vector, sixteen bytes at a time. With as many workgroups
// as rows that is a turn for each 128 numbers: far from the 65,535 after which lavapipe ends a thread's loops.
float part_of_product(uint64_t row, uint64_t vector, uint count, uint member, uint team) {
  vec4 sum = vec4(0.0);
  for (uint i = member; i < count / 4u; i += team) {
    sum += load_f32x4(row + 16ul * uint64_t(i)) * load_f32x4(vector + 16ul * uint64_t(i));
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

shared float parts[threads];

// The sum over each `team` of threads that follow one another, a power of two; all threads have to come here.
float sum_of_team(float part, uint team) {
  const uint within = gl_LocalInvocationIndex;
  parts[within] = part;
  for (uint distance = team / 2u; distance > 0u; distance /= 2u) {
    barrier();
    if (within % team < distance) parts[within] += parts[within + distance];
  }
  barrier();
  const float sum = parts[within / team * team];
  barrier();  // before the next parts take their place
  return sum;
}

// Where the light of a subaperture lies, from -1 to 1 across and down: sums of four pixels are whole numbers, which a
// float holds, so the division is all that rounds. A dark one counts as in the middle.
void measure() {
  const uint first = gl_WorkGroupID.x * threads + gl_LocalInvocationIndex;
  if (first == 0u) store_f32(frame.state + 8ul * uint64_t(subapertures()), 1.0);
  for (uint i = first; i < subapertures(); i += gl_NumWorkGroups.x * threads) {
    const uint corner = load_u32(frame.tables[0].address + 4ul * uint64_t(i));
    const uint64_t at = frame.in_view.plane[0] + uint64_t(corner >> 16) * uint64_t(frame.in_view.stride[0]) +
                        2ul * uint64_t(corner & 0xFFFFu);
    // Subapertures begin at even columns, and rows at multiples of 4 bytes: two pixels are one word.
    const uint above = load_u32(at);
    const uint below = load_u32(at + uint64_t(frame.in_view.stride[0]));
    const int left = int((above & 0xFFFFu) + (below & 0xFFFFu)), right = int((above >> 16) + (below >> 16));
    const int upper = int((above & 0xFFFFu) + (above >> 16)), lower = int((below & 0xFFFFu) + (below >> 16));
    const float light = float(max(left + right, 1));
    store_f32(frame.state + 4ul * uint64_t(i), float(right - left) / light);
    store_f32(frame.state + 4ul * uint64_t(subapertures() + i), float(lower - upper) / light);
  }
}

// A workgroup for each row, which is long: all its threads read at once.
void reconstruct() {
  for (uint row = gl_WorkGroupID.x; row < modes(); row += gl_NumWorkGroups.x) {
    const uint64_t matrix_row = frame.tables[1].address + 4ul * uint64_t(row) * uint64_t(columns());
    const float sum =
        sum_of_team(part_of_product(matrix_row, frame.state, columns(), gl_LocalInvocationIndex, threads), threads);
    if (gl_LocalInvocationIndex == 0u) store_f32(amplitudes() + 4ul * uint64_t(row), sum);
  }
}

// A few threads for each row. Those of a workgroup go on together, as barriers ask: the last rows may be none.
void command() {
  const uint count = in_lines(modes());
  const uint rows = threads / few;
  for (uint first = gl_WorkGroupID.x * rows; first < actuators(); first += gl_NumWorkGroups.x * rows) {
    const uint row = first + gl_LocalInvocationIndex / few;
    const uint64_t matrix_row = frame.tables[2].address + 4ul * uint64_t(row) * uint64_t(count);
    float part = 0.0;
    if (row < actuators()) part = part_of_product(matrix_row, amplitudes(), count, gl_LocalInvocationIndex % few, few);
    const float sum = sum_of_team(part, few);
    if (row < actuators() && gl_LocalInvocationIndex % few == 0u) {
      store_f32(frame.out_view.plane[0] + 4ul * uint64_t(row), sum);
    }
  }
}
