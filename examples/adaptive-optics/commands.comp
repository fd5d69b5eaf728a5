// SPDX-License-Identifier: MIT
//
// The twin of commands.cu, which says what this does, for compute shaders.
// gpumap: input video/x-raw,format=GRAY16_LE
// gpumap: table pixels uint32
// gpumap: table reconstructor float32
// gpumap: table modes float32
// gpumap: functions measure,reconstruct,command
// gpumap: params actuators:u32=1833 in [1,65536]
// gpumap: output application/x-mirror-commands
// gpumap: bytes 4*params.actuators
// gpumap: state 32768
// gpumap: block 128
// gpumap: grid 1089
#version 460
#include <gpumap.glsl>

const uint threads = 128u;
// How many threads share a row of the second matrix, which is short. Subgroups differ from device to device.
const uint few = 32u;

uint in_lines(uint numbers) { return (numbers + 31u) / 32u * 32u; }
uint pixels() { return uint(frame.tables[0].count); }
uint modes() { return uint(frame.tables[1].count) / in_lines(pixels()); }
uint64_t amplitudes() { return frame.state + 4ul * uint64_t(in_lines(pixels())); }

// What one of `team` threads has of the product of a row of matrix `table` and a vector, sixteen bytes at a time. With
// as many workgroups as rows that is a turn for each 128 numbers: far from the 65,535 after which lavapipe ends a
// thread's loops.
float part_of_product(uint table, uint row, uint64_t vector, uint columns, uint member, uint team) {
  const uint64_t numbers = frame.tables[table].address + 4ul * uint64_t(row) * uint64_t(columns);
  vec4 sum = vec4(0.0);
  for (uint i = member; i < columns / 4u; i += team) {
    sum += load_f32x4(numbers + 16ul * uint64_t(i)) * load_f32x4(vector + 16ul * uint64_t(i));
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

void measure() {
  for (uint i = gl_WorkGroupID.x * threads + gl_LocalInvocationIndex; i < pixels(); i += gl_NumWorkGroups.x * threads) {
    const uint pixel = load_u32(frame.tables[0].address + 4ul * uint64_t(i));
    const uint64_t at = frame.in_view.plane[0] + uint64_t(pixel >> 16) * uint64_t(frame.in_view.stride[0]) +
                        2ul * uint64_t(pixel & 0xFFFFu);
    store_f32(frame.state + 4ul * uint64_t(i), float(int(load_u16(at)) - 32768));
  }
}

void reconstruct() {
  for (uint row = gl_WorkGroupID.x; row < modes(); row += gl_NumWorkGroups.x) {
    const float part = part_of_product(1u, row, frame.state, in_lines(pixels()), gl_LocalInvocationIndex, threads);
    const float sum = sum_of_team(part, threads);
    if (gl_LocalInvocationIndex == 0u) store_f32(amplitudes() + 4ul * uint64_t(row), sum);
  }
}

// Threads of a workgroup go on together, as barriers ask: the last rows may be none.
void command() {
  const uint rows = threads / few, actuators = uint(frame.out_view.bytes) / 4u;
  for (uint first = gl_WorkGroupID.x * rows; first < actuators; first += gl_NumWorkGroups.x * rows) {
    const uint row = first + gl_LocalInvocationIndex / few, member = gl_LocalInvocationIndex % few;
    float part = 0.0;
    if (row < actuators) part = part_of_product(2u, row, amplitudes(), in_lines(modes()), member, few);
    const float sum = sum_of_team(part, few);
    if (row < actuators && member == 0u) store_f32(frame.out_view.plane[0] + 4ul * uint64_t(row), sum);
  }
}
