// SPDX-License-Identifier: MIT
// The twin of resident.cu for drivers without CUDA: all three of its kernels in one, with the same frame. An ordinary
// launch has a `duration` of 0; for a resident kernel it is how often its loops may turn. A software driver cuts a
// shader's loops off after 65,535 turns in all, payload included, and what it computes then is wrong: end before that.
#version 460
#define GPUMAP_OWN_WORKGROUP_SIZE
#include <gpumap.glsl>

layout(local_size_x = 256) in;

// What the CPU writes while this runs.
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent volatile buffer live_u32_at { uint value; };
layout(buffer_reference, scalar, buffer_reference_align = 8) coherent volatile buffer live_u64_at { uint64_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 16) coherent volatile buffer live_u32x4_at { uvec4 value; };

shared uint64_t bell;
shared uint total;

const uint64_t stop = 0xFFFFFFFFFFFFFFFFul;

uint64_t look() {
  const uint64_t address = frame.in_view.plane[1];
  if (frame.in_view.channels == 8u) return live_u64_at(address).value;
  const uint said = live_u32_at(address).value;
  return said == 0xFFFFFFFFu ? stop : uint64_t(said);
}

// Many looks a turn: the CPU's side may wait longer for a core than 65,535 single looks take.
uint64_t look_8(uint64_t last) {
  uint64_t said = look();
  if (said == last) said = look();
  if (said == last) said = look();
  if (said == last) said = look();
  if (said == last) said = look();
  if (said == last) said = look();
  if (said == last) said = look();
  if (said == last) said = look();
  return said;
}

uint weigh(uint thread, uint threads) {
  const uint64_t payload = frame.in_view.plane[0];
  const uint words = uint(frame.in_view.bytes / 4ul);
  const uint quads = words / 4u;
  uint sum = 0u;
  for (uint i = thread; i < quads; i += threads) {
    const uint weight = 8u * i + 1u;
    const uvec4 quad = live_u32x4_at(payload + 16ul * uint64_t(i)).value;
    sum += quad.x * weight + quad.y * (weight + 2u) + quad.z * (weight + 4u) + quad.w * (weight + 6u);
  }
  for (uint i = 4u * quads + thread; i < words; i += threads) {
    sum += live_u32_at(payload + 4ul * uint64_t(i)).value * (2u * i + 1u);
  }
  return sum;
}

void read_once() {
  if (gl_LocalInvocationIndex == 0u) total = 0u;
  barrier();
  atomicAdd(total, weigh(gl_GlobalInvocationID.x, gl_NumWorkGroups.x * gl_WorkGroupSize.x));
  barrier();
  if (gl_LocalInvocationIndex == 0u) store_u32(frame.out_view.plane[0] + 4ul * uint64_t(gl_WorkGroupID.x), total);
}

void stay() {
  const uint turns_to_read = uint(frame.in_view.bytes / uint64_t(16u * gl_WorkGroupSize.x)) + 3u;
  uint turns = uint(frame.duration);
  uint64_t last = frame.sequence;
  for (;;) {
    if (gl_LocalInvocationIndex == 0u) {
      uint64_t said = last;
      for (; said == last && turns > turns_to_read; --turns) said = look_8(last);
      turns -= min(turns, turns_to_read);
      bell = said == last ? stop : said;
      total = 0u;
    }
    barrier();
    last = bell;
    if (last == stop) return;
    atomicAdd(total, weigh(gl_LocalInvocationIndex, gl_WorkGroupSize.x));
    barrier();
    if (gl_LocalInvocationIndex == 0u) live_u64_at(frame.out_view.plane[0]).value = last << 32 | uint64_t(total);
  }
}

void main() {
  if (frame.duration == 0l) {
    read_once();
  } else {
    stay();
  }
}
