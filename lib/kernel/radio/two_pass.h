/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/two_pass.h>: how the two passes of a large transform share it. See radio_columns_job. It is
 * a matrix as near to a square as it can be. SPECTRUM_LOG2_SIZE, from 13 to 20, is a define of the kernel.
 */
#ifndef GPUMAP_TWO_PASS_H
#define GPUMAP_TWO_PASS_H

#include <gpumap/block_fft.h>

static_assert(SPECTRUM_LOG2_SIZE >= 13 && SPECTRUM_LOG2_SIZE <= 20, "a block has 8192 values, a thread 32");

#define SPECTRUM_SIZE (1 << SPECTRUM_LOG2_SIZE)
#define SPECTRUM_COLUMN_RADIX (1 << (SPECTRUM_LOG2_SIZE - 9) / 2)
#define SPECTRUM_ROW_RADIX (1 << (SPECTRUM_LOG2_SIZE - 10) / 2)
#define SPECTRUM_COLUMN_POINTS (BLOCK_FFT_VALUES * SPECTRUM_COLUMN_RADIX)
#define SPECTRUM_ROW_POINTS (BLOCK_FFT_VALUES * SPECTRUM_ROW_RADIX)

#endif
