// SPDX-License-Identifier: MIT
// The rows of spectrum, frequency zero in the middle: see radio_power_job. A thread adds up a bin of a row, transform by
// transform, so that the sum is the same wherever frames end.
#include <gpumap/radio.h>

// Bin k of what the window leaves: see radio_power_job.
__device__ float2 windowed(const float2* row, gpumap_u32 k, const radio_power_job& job) {
  const gpumap_u32 last = job.size - 1;
  float2 x = make_float2(job.window[0] * row[k].x, job.window[0] * row[k].y);
  for (gpumap_u32 away = 1; away < job.terms; ++away) {
    const float2 a = row[(k - away) & last];
    const float2 b = row[(k + away) & last];
    const float weight = (away & 1) != 0 ? -job.window[away] : job.window[away];
    x.x += weight * (a.x + b.x);
    x.y += weight * (a.y + b.y);
  }
  return x;
}

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
      const float2 x = windowed(in + t * job.size, k, job);
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
