// SPDX-License-Identifier: MIT
// The F-engine of a correlator: each voltage times the gain of its antenna and channel. In memory lie the gains, pairs of
// float32, and behind them the voltages, pairs of int8: `times` for each gain.
// gpumap: params gains:u32=1 in [1,16777216],times:u32=1 in [1,65536]
// gpumap: view bytes
// gpumap: bytes params.gains*params.times*8
#version 460
#include <gpumap.glsl>

void main() {
  const uint64_t gains = uint64_t(param_i64(0));
  const uint64_t times = uint64_t(param_i64(1));
  const uint64_t voltages = frame.in_view.plane[0] + gains * 8ul;
  for (uint64_t i = gpumap_thread(); i < gains * times; i += gpumap_thread_count()) {
    const vec2 gain = load_f32x2(frame.in_view.plane[0] + i / times * 8ul);
    const vec2 voltage = vec2(load_i8(voltages + i * 2ul), load_i8(voltages + i * 2ul + 1ul));
    store_f32x2(frame.out_view.plane[0] + i * 8ul, vec2(gain.x * voltage.x - gain.y * voltage.y,
                                                        gain.x * voltage.y + gain.y * voltage.x));
  }
}
