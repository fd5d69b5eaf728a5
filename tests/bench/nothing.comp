// SPDX-License-Identifier: MIT
// Does nothing. Its result block, which it leaves empty, is what the CPU waits for.
#version 460
#include <gpumap.glsl>

void main() {}
