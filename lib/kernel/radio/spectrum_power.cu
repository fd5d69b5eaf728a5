// SPDX-License-Identifier: MIT
// The rows of spectrum, frequency zero in the middle: see radio_power_job. A thread adds up bins of a row, transform by
// transform, so that the sum is the same wherever frames end.
// What spectrum declares, whose parameters are not this kernel's own:
// gpumap: params size:f64=1024,overlap:f64=0,average:f64=1,window:f64=1,db:f64=0,around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels={2,1};application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output application/x-spectrum,format=F32LE,bins={params.size},unit={params.db ? decibel : power},rate={rate}
#include <gpumap/spectrum.h>
#include <gpumap/sums.h>

// |X|^2 of what the window leaves of a bin, from three bins before it to three after it.
__device__ float windowed(const radio_power_job& job, const float2* at) {
  const float* w = job.window;
  const float x =
      w[0] * at[0].x - w[1] * (at[-1].x + at[1].x) + w[2] * (at[-2].x + at[2].x) - w[3] * (at[-3].x + at[3].x);
  const float y =
      w[0] * at[0].y - w[1] * (at[-1].y + at[1].y) + w[2] * (at[-2].y + at[2].y) - w[3] * (at[-3].y + at[3].y);
  return x * x + y * y;
}

// One bin a thread, for sums of many transforms: few rows, so that the threads have to come from the bins.
__device__ void bin_by_bin(const gpumap_frame& frame, const radio_power_job& job) {
  const gpumap_u32 last = job.size - 1;
  const gpumap_u32 shift = radio_log2(job.size);
  for (gpumap_u64 n = gpumap_thread(); n < 1ull * job.rows * job.size; n += gpumap_thread_count()) {
    const SpectrumRow row = spectrum_row(job, n >> shift);
    const gpumap_u32 bin = static_cast<gpumap_u32>(n) & last;
    const gpumap_u32 k = (bin + job.size / 2) & last;
    const float* const carried = reinterpret_cast<const float*>(frame.in.plane[1]) + bin;
    float some = row.resumed ? carried[0] : 0.0f;
    float sum = row.resumed ? carried[job.size] : 0.0f;
    float lost = row.resumed ? carried[2ull * job.size] : 0.0f;
    gpumap_u64 in_row = row.resumed ? job.carried : 0;
    for (gpumap_u64 t = row.begin; t < row.end;) {
      const gpumap_u64 end = min(row.end, t + GPUMAP_PLAIN_SUM - in_row % GPUMAP_PLAIN_SUM);
      in_row += end - t;
      for (; t < end; ++t) {
        const float2* in = radio_iq(frame.in.plane[0]) + t * job.size;
        float2 near[7];
#pragma unroll
        for (gpumap_u32 i = 0; i < 7; ++i) near[i] = in[(k + i - 3) & last];
        some += windowed(job, near + 3);
      }
      if (in_row % GPUMAP_PLAIN_SUM != 0) break;
      gpumap_add(sum, lost, some);
      some = 0.0f;
    }
    if (row.finished) {
      gpumap_add(sum, lost, some);
      reinterpret_cast<float*>(frame.out.plane[0])[n] = spectrum_power_of(job, sum);
    } else {
      float* const left = reinterpret_cast<float*>(frame.out.plane[1]) + bin;
      left[0] = some, left[job.size] = sum, left[2ull * job.size] = lost;
    }
  }
}

// Four neighbours a thread: 12 bins in six loads that wait for nothing.
__device__ void four_by_four(const gpumap_frame& frame, const radio_power_job& job) {
  const gpumap_u32 last = job.size - 1;
  const gpumap_u32 shift = radio_log2(job.size);
  for (gpumap_u64 n = 4 * gpumap_thread(); n < 1ull * job.rows * job.size; n += 4 * gpumap_thread_count()) {
    const SpectrumRow row = spectrum_row(job, n >> shift);
    const gpumap_u32 bin = static_cast<gpumap_u32>(n) & last;
    const gpumap_u32 k = (bin + job.size / 2) & last;
    float4 sum = row.resumed ? *reinterpret_cast<const float4*>(frame.in.plane[1] + 4ull * bin)
                             : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (gpumap_u64 t = row.begin; t < row.end; ++t) {
      const float2* in = radio_iq(frame.in.plane[0]) + t * job.size;
      float2 near[12];
#pragma unroll
      for (gpumap_u32 i = 0; i < 12; i += 2) {
        const float4 two = *reinterpret_cast<const float4*>(in + ((k + i - 4) & last));
        near[i] = make_float2(two.x, two.y);
        near[i + 1] = make_float2(two.z, two.w);
      }
      sum.x += windowed(job, near + 4);
      sum.y += windowed(job, near + 5);
      sum.z += windowed(job, near + 6);
      sum.w += windowed(job, near + 7);
    }
    if (row.finished) {
      *reinterpret_cast<float4*>(frame.out.plane[0] + 4 * n) =
          make_float4(spectrum_power_of(job, sum.x), spectrum_power_of(job, sum.y), spectrum_power_of(job, sum.z),
                      spectrum_power_of(job, sum.w));
    } else {
      *reinterpret_cast<float4*>(frame.out.plane[1] + 4ull * bin) = sum;
    }
  }
}

extern "C" __global__ void spectrum_power(gpumap_frame frame) {
  const auto& job = radio_job<radio_power_job>(frame);
  // What a stream's settings and memory say, not a frame's length: no rounding may show where frames end.
  if (job.average <= 4 && job.size >= 8 && (frame.out.plane[0] & 15) == 0) {
    four_by_four(frame, job);
  } else {
    bin_by_bin(frame, job);
  }
}
