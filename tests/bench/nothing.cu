// SPDX-License-Identifier: MIT
// Does nothing. Its result block, which it leaves empty, is what the CPU waits for.
#include <gpumap/kernel.h>

extern "C" __global__ void nothing(gpumap_frame frame) {}
