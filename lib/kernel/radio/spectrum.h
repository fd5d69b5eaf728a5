/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/spectrum.h>: what the kernels have in common that end in a row of a spectrum.
 */
#ifndef GPUMAP_SPECTRUM_H
#define GPUMAP_SPECTRUM_H

#include <gpumap/radio.h>

/* From transform `begin` up to `end` it is row `row`; `finished` when all of its transforms are there. */
struct SpectrumRow {
  gpumap_u64 begin, end;
  bool finished, resumed;
};

__device__ inline SpectrumRow spectrum_row(const radio_power_job& job, gpumap_u64 row) {
  const gpumap_u64 full = (row + 1) * job.average - job.carried;
  return {row == 0 ? 0 : row * job.average - job.carried, full < job.transforms ? full : job.transforms,
          full <= job.transforms, row == 0 && job.carried != 0};
}

__device__ inline float spectrum_power_of(const radio_power_job& job, float sum) {
  const float power = sum * job.scale;
  return job.decibel != 0 ? 10.0f * log10f(fmaxf(power, 1e-20f)) : power;
}

#endif
