/* SPDX-License-Identifier: MIT
 * <gpumap/sample_format.h> in C, C++ and CUDA, <gpumap_sample_format.glsl> in GLSL, one text for all: what a
 * gpumap_view of interleaved samples has for its format beside U8, S8, S16 and F32 of enum gpumap_format. Values are
 * part of the contract: never renumber.
 */
#ifndef GPUMAP_SAMPLE_FORMAT_H
#define GPUMAP_SAMPLE_FORMAT_H

#define GPUMAP_FORMAT_S16_BE 133u /* _BE: the highest byte first */
#define GPUMAP_FORMAT_U16 134u    /* unsigned: 0 is the middle of its range */
#define GPUMAP_FORMAT_U16_BE 135u
#define GPUMAP_FORMAT_S24 136u /* 3 bytes */
#define GPUMAP_FORMAT_S24_BE 137u
#define GPUMAP_FORMAT_S24_32 138u /* the lower 3 of 4 bytes */
#define GPUMAP_FORMAT_S24_32_BE 139u
#define GPUMAP_FORMAT_S32 140u
#define GPUMAP_FORMAT_S32_BE 141u
#define GPUMAP_FORMAT_U32 142u
#define GPUMAP_FORMAT_U32_BE 143u
#define GPUMAP_FORMAT_F32_BE 144u
#define GPUMAP_FORMAT_F64 145u
#define GPUMAP_FORMAT_F64_BE 146u
#define GPUMAP_FORMAT_S12 147u /* two in 3 bytes, the first one in the lower bits */

#endif
