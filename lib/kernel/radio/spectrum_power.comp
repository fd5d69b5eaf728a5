// SPDX-License-Identifier: MIT
// The rows of spectrum, frequency zero in the middle: see radio_power_job, and spectrum_power.cu for the sums.
// What spectrum declares, whose parameters are not this kernel's own:
// gpumap: params size:f64=1024,overlap:f64=0,average:f64=1,window:f64=1,db:f64=0,around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels={2,1};application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output application/x-spectrum,format=F32LE,bins={params.size},unit={params.db ? decibel : power},rate={rate}
#version 460
#define RADIO_JOB radio_power_job
#include <gpumap_radio.glsl>
#include <gpumap_sums.glsl>

// Bin k of what the window leaves: see radio_power_job.
vec2 windowed(uint64_t row, uint64_t k) {
  const uint64_t last = uint64_t(job.size) - 1ul;
  vec2 x = job.window[0] * load_iq(row, k);
  for (uint away = 1u; away < job.terms; ++away) {
    const vec2 sum = load_iq(row, (k - uint64_t(away)) & last) + load_iq(row, (k + uint64_t(away)) & last);
    x += ((away & 1u) != 0u ? -job.window[away] : job.window[away]) * sum;
  }
  return x;
}

void main() {
  const uint64_t size = uint64_t(job.size);
  const uint64_t average = uint64_t(job.average);
  const uint64_t carried = uint64_t(job.carried);
  const uint64_t transforms = job.transforms;
  const uint64_t count = uint64_t(job.rows) * size;
  const int shift = findMSB(job.size);
  const uint64_t transformed = frame.in_view.plane[0];
  const uint64_t step = gpumap_thread_count();
  for (uint64_t n = gpumap_thread(); n < count; n += step) {
    const uint64_t row = n >> shift;
    const uint64_t bin = n & (size - 1ul);
    const uint64_t k = (bin + size / 2ul) & (size - 1ul);
    const uint64_t begin = row == 0ul ? 0ul : row * average - carried;
    const uint64_t full = (row + 1ul) * average - carried;
    const uint64_t end = min(full, transforms);
    const uint64_t carried_at = frame.in_view.plane[1] + 4ul * bin;
    float some = 0.0, sum = 0.0, lost = 0.0;
    uint64_t in_row = 0ul;
    if (row == 0ul && carried != 0ul) {
      some = load_f32(carried_at);
      sum = load_f32(carried_at + 4ul * size);
      lost = load_f32(carried_at + 8ul * size);
      in_row = carried;
    }
    for (uint64_t t = begin; t < end; ++t) {
      const vec2 x = windowed(transformed + 8ul * t * size, k);
      some += x.x * x.x + x.y * x.y;
      if (++in_row % GPUMAP_PLAIN_SUM != 0ul) continue;
      gpumap_add(sum, lost, some);
      some = 0.0;
    }
    if (full > transforms) {
      const uint64_t left_at = frame.out_view.plane[1] + 4ul * bin;
      store_f32(left_at, some);
      store_f32(left_at + 4ul * size, sum);
      store_f32(left_at + 8ul * size, lost);
    } else {
      gpumap_add(sum, lost, some);
      const float power = sum * job.scale;
      // 10 log10 is 3.01 log2.
      store_f32(frame.out_view.plane[0] + 4ul * n,
                job.decibel != 0u ? 3.0102999566398120 * log2(max(power, 1e-20)) : power);
    }
  }
}
