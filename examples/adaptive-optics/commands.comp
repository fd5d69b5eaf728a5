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
shared float parts[threads];

uint in_lines(uint numbers) { return (numbers + 31u) / 32u * 32u; }
uint pixels() { return uint(frame.tables[0].count); }
uint modes() { return uint(frame.tables[1].count) / in_lines(pixels()); }
uint64_t amplitudes() { return frame.state + 4ul * uint64_t(in_lines(pixels())); }

void measure() {
  for (uint i = gl_WorkGroupID.x * threads + gl_LocalInvocationIndex; i < pixels(); i += gl_NumWorkGroups.x * threads) {
    const uint pixel = load_u32(frame.tables[0].address + 4ul * uint64_t(i));
    const uint64_t at = frame.in_view.plane[0] + uint64_t(pixel >> 16) * uint64_t(frame.in_view.stride[0]) +
                        2ul * uint64_t(pixel & 0xFFFFu);
    store_f32(frame.state + 4ul * uint64_t(i), float(int(load_u16(at)) - 32768));
  }
}

// A matrix and a vector: a workgroup for each row, sixteen bytes a thread at a time. With as many workgroups as rows that
// is a turn for each 512 numbers: far from the 65,535 after which lavapipe ends a thread's loops.
void multiply(uint table, uint rows, uint columns, uint64_t vector, uint64_t to) {
  const uint member = gl_LocalInvocationIndex;
  for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
    const uint64_t numbers = frame.tables[table].address + 4ul * uint64_t(row) * uint64_t(columns);
    vec4 sum = vec4(0.0);
    for (uint i = member; i < columns / 4u; i += threads) {
      sum += load_f32x4(numbers + 16ul * uint64_t(i)) * load_f32x4(vector + 16ul * uint64_t(i));
    }
    parts[member] = (sum.x + sum.y) + (sum.z + sum.w);
    for (uint distance = threads / 2u; distance > 0u; distance /= 2u) {
      barrier();
      if (member < distance) parts[member] += parts[member + distance];
    }
    if (member == 0u) store_f32(to + 4ul * uint64_t(row), parts[0]);
    barrier();  // before the next row's parts take their place
  }
}

void reconstruct() { multiply(1u, modes(), in_lines(pixels()), frame.state, amplitudes()); }
void command() {
  multiply(2u, uint(frame.out_view.bytes) / 4u, in_lines(modes()), amplitudes(), frame.out_view.plane[0]);
}
