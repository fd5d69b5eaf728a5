// SPDX-License-Identifier: MIT
// The twin of resident.cu for drivers without CUDA, with the same frame; `duration` is how often its loop may turn. A
// software driver cuts a shader's loops off after 65,535 turns in all, and what it computes then is wrong.
#version 460
#define GPUMAP_OWN_WORKGROUP_SIZE
#include <gpumap.glsl>

layout(local_size_x = 1) in;

// What the CPU writes while this runs.
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent volatile buffer live_u32_at { uint value; };
layout(buffer_reference, scalar, buffer_reference_align = 8) coherent volatile buffer live_u64_at { uint64_t value; };

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

void main() {
  uint64_t last = frame.sequence;
  for (uint turns = uint(frame.duration); turns > 0u; --turns) {
    const uint64_t said = look_8(last);
    if (said == stop) return;
    if (said != last) live_u64_at(frame.out_view.plane[0]).value = said;
    last = said;
  }
}
