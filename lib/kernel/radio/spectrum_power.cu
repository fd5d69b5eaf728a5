// SPDX-License-Identifier: MIT
// The rows of spectrum, frequency zero in the middle: see radio_power_job. A thread adds up a bin of a row, transform by
// transform, so that the sum is the same wherever frames end.
#include <gpumap/radio.h>

extern "C" __global__ void spectrum_power(gpumap_frame frame) {
  const auto& job = radio_job<radio_power_job>(frame);
  const float2* in = radio_iq(frame.in.plane[0]);
  const gpumap_u32 shift = radio_log2(job.size);
  for (gpumap_u64 n = gpumap_thread(); n < 1ull * job.rows * job.size; n += gpumap_thread_count()) {
    const gpumap_u64 row = n >> shift;
    const gpumap_u32 bin = static_cast<gpumap_u32>(n) & (job.size - 1);
    const gpumap_u32 k = (bin + job.size / 2) & (job.size - 1);
    const gpumap_u64 begin = row == 0 ? 0 : row * job.average - job.carried;
    const gpumap_u64 full = (row + 1) * job.average - job.carried;
    const gpumap_u64 end = full < job.transforms ? full : job.transforms;
    float sum = row == 0 && job.carried != 0 ? reinterpret_cast<const float*>(frame.in.plane[1])[bin] : 0.0f;
    for (gpumap_u64 t = begin; t < end; ++t) {
      const float2 x = in[t * job.size + k];
      sum += x.x * x.x + x.y * x.y;
    }
    if (full > job.transforms) {
      reinterpret_cast<float*>(frame.out.plane[1])[bin] = sum;
    } else {
      const float power = sum * job.scale;
      reinterpret_cast<float*>(frame.out.plane[0])[n] = job.decibel != 0 ? 10.0f * log10f(fmaxf(power, 1e-20f)) : power;
    }
  }
}
