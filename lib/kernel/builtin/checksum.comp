// SPDX-License-Identifier: MIT
// The sum of <gpumap/kernel.hpp> over in_view.bytes bytes, added into result word 0. Right for any grid, size and
// alignment. The result block lies in host memory, and an atomic across the PCIe takes 0.1 us, one after the other:
// workgroups add to the state, the sum and how many are done, and the last one brings the sum over. Without state each
// goes the long way.
// gpumap: params none
// gpumap: work chunk
// gpumap: view bytes
// gpumap: output unchanged
// gpumap: state 16 self-clearing
// gpumap: results checksum=u64
// gpumap: message gpumap-checksum
#version 460
#extension GL_EXT_shader_atomic_int64 : require
#include <gpumap.glsl>

shared uint64_t partial[gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z];

uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ul;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBul;
  return x ^ (x >> 31);
}

// Up to 8 bytes as a little-endian word, zero-padded.
uint64_t word_at(uint64_t address, uint64_t bytes) {
  if (bytes >= 8ul && gpumap_aligned(address, 8u)) return load_u64(address);
  if (bytes >= 8ul && gpumap_aligned(address, 4u)) {
    return uint64_t(load_u32(address)) | uint64_t(load_u32(address + 4ul)) << 32;
  }
  uint64_t word = 0ul;
  const uint count = uint(min(bytes, 8ul));
  for (uint i = 0u; i < count; ++i) word |= uint64_t(load_u8(address + uint64_t(i))) << (8u * i);
  return word;
}

void main() {
  const uint64_t address = frame.in_view.plane[0];
  const uint64_t bytes = frame.in_view.bytes;
  const uint64_t words = (bytes + 7ul) / 8ul;
  const uint64_t thread = gpumap_thread();
  const uint64_t step = gpumap_thread_count();

  uint64_t sum = thread == 0ul ? mix64(bytes) : 0ul;
  for (uint64_t i = thread; i < words; i += step) {
    sum += mix64(word_at(address + 8ul * i, bytes - 8ul * i) + (i + 1ul) * 0x9E3779B97F4A7C15ul);
  }

  const uint within = gl_LocalInvocationIndex;
  partial[within] = sum;
  for (uint left = gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z; left > 1u;) {
    const uint half_left = (left + 1u) / 2u;
    barrier();
    if (within + half_left < left) partial[within] += partial[within + half_left];
    left = half_left;
  }
  if (within != 0u) return;
  if (frame.state_bytes < 16ul) {
    atomicAdd(gpumap_u64_at(frame.result).value, partial[0]);
    return;
  }
  const uint64_t done = frame.state + 8ul;
  atomicAdd(gpumap_u64_at(frame.state).value, partial[0]);
  memoryBarrierBuffer();
  const uint last = gl_NumWorkGroups.x * gl_NumWorkGroups.y * gl_NumWorkGroups.z - 1u;
  if (atomicAdd(gpumap_u32_at(done).value, 1u) != last) return;
  memoryBarrierBuffer();
  // As new for the next launch.
  atomicExchange(gpumap_u32_at(done).value, 0u);
  atomicAdd(gpumap_u64_at(frame.result).value, atomicExchange(gpumap_u64_at(frame.state).value, 0ul));
}
