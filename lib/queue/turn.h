/* SPDX-License-Identifier: MIT
 *
 * What the CPU asks of a kernel that stays on the GPU, seen by the host compiler and by NVRTC as <gpumap/turn.h>.
 *
 *   CPU                                          each resident block
 *   turn n into slot n % slots, but for `number`
 *   store fence
 *   number = n + 1 (the doorbell)      ------->  sees it, waits until all blocks are done with turn n - 1,
 *                                                and for `after`
 *                                                does its part
 *   completed >= n + 1                 <-------  the last block writes n + 1 to `done`
 *
 * What `after` names may lie in host memory, where a look takes a microsecond and those of many blocks stand in line:
 * one block looks, and tells the others by `go`, which costs little where the slots lie in GPU memory.
 *
 * Slots lie in GPU memory that the CPU maps, where the GPU keeps the order of PCIe writes, else in host memory. Turn n
 * is written once turn n - slots is done.
 */
#ifndef GPUMAP_TURN_H
#define GPUMAP_TURN_H

#include "gpumap/kernel.h"

enum gpumap_turn_kind {
  GPUMAP_TURN_RUN = 0,   /* `function` on `frame` */
  GPUMAP_TURN_COPY = 1,  /* `bytes` bytes */
  GPUMAP_TURN_CLEAR = 2, /* `bytes` bytes, a multiple of 4 */
  GPUMAP_TURN_LEAVE = 3  /* the GPU is for others now */
};

typedef struct alignas(64) gpumap_turn {
  gpumap_u64 number; /* that of the turn, and 1 more. Alone in a cache line: what is beside it is written before it */
  gpumap_u64 reserved[7];
  gpumap_u32 kind;     /* enum gpumap_turn_kind */
  gpumap_u32 function; /* of the resident kernel's, in their order */
  gpumap_u32 blocks[3];
  gpumap_u32 reserved_blocks;
  gpumap_u64 after; /* address of a word of 64 bits that is to be at least `until` first; 0: none */
  gpumap_u64 until;
  gpumap_u64 to, from, bytes; /* of a copy, or a fill with zeros */
  gpumap_frame frame;         /* or its beginning: GPUMAP_SHORT_FRAME */
} gpumap_turn;

/* A resident kernel's argument. Addresses are the GPU's. */
typedef struct gpumap_residence {
  gpumap_u64 turns;  /* of the slots */
  gpumap_u64 slots;  /* a power of two */
  gpumap_u64 stride; /* bytes from slot to slot */
  gpumap_u64 first;  /* turn that it begins with */
  gpumap_u64 parts;  /* word behind the slots: parts of turns done, blocks times those of turns; 0 when it begins */
  gpumap_u64 go;     /* the next word: n + 1 once what turn n waits for is there; 0 when it begins */
  gpumap_u64 done;   /* word in host memory: turns that are done */
} gpumap_residence;

#endif
