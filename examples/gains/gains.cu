// SPDX-License-Identifier: MIT
// The F-engine of a correlator: each voltage times the gain of its antenna and channel. In memory lie the gains, pairs of
// float32, and behind them the voltages, pairs of int8: `times` for each gain.
// gpumap: params gains:u32=1 in [1,16777216],times:u32=1 in [1,65536]
// gpumap: view bytes
// gpumap: bytes params.gains*params.times*8
#include <gpumap/grid.h>
#include <gpumap/kernel.h>

extern "C" __global__ void gains(gpumap_frame frame) {
  const auto gains = static_cast<gpumap_u64>(gpumap_param_i64(frame, 0));
  const auto times = static_cast<gpumap_u64>(gpumap_param_i64(frame, 1));
  const auto* const gain_of = reinterpret_cast<const float2*>(frame.in.plane[0]);
  const auto* const voltages = reinterpret_cast<const char2*>(gain_of + gains);
  auto* const products = reinterpret_cast<float2*>(frame.out.plane[0]);
  for (gpumap_u64 i = gpumap_thread(); i < gains * times; i += gpumap_thread_count()) {
    const float2 gain = gain_of[i / times];
    const char2 voltage = voltages[i];
    products[i] = make_float2(gain.x * voltage.x - gain.y * voltage.y, gain.x * voltage.y + gain.y * voltage.x);
  }
}
