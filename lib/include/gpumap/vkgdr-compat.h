/* SPDX-License-Identifier: MIT
 *
 * vkgdr's interface on top of gpumap's: a program that includes this in place of vkgdr.h, and links gpumap in place of
 * vkgdr, does what it did. Calls have vkgdr's names, arguments and results. lib/c/README.md says what to call instead.
 *
 * Other than vkgdr: memory may be freed after vkgdr_close(); a handle that was freed is an error and no crash; offsets
 * and sizes of flushes need no alignment. CUDA contexts have to be primary ones, as the runtime's are.
 */
#ifndef GPUMAP_VKGDR_COMPAT_H
#define GPUMAP_VKGDR_COMPAT_H

#include <cuda.h>
#include <gpumap/gpumap.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NOLINTBEGIN(modernize-use-nullptr): in C it is NULL */
#ifdef __cplusplus
extern "C" {
#endif

typedef gpumap_device vkgdr_t;
typedef gpumap_memory vkgdr_memory_t;

typedef enum vkgdr_open_flags {
  VKGDR_OPEN_CURRENT_CONTEXT_BIT = 1,    /* the device of the current CUDA context */
  VKGDR_OPEN_FORCE_NON_COHERENT_BIT = 2, /* GPUMAP_DEVICE_TREAT_NON_COHERENT */
  VKGDR_OPEN_REQUIRE_COHERENT_BIT = 4    /* GPUMAP_DEVICE_REQUIRE_COHERENT */
} vkgdr_open_flags;

/* Whether this thread's last vkgdr_open() or vkgdr_memory_alloc() failed. One for each file that includes this. */
static inline bool* gpumap_vkgdr_failed(void) {
#ifdef __cplusplus
  static thread_local bool failed = false;
#else
  static _Thread_local bool failed = false;
#endif
  return &failed;
}

static inline char* vkgdr_last_error(void) {
  const char* text = gpumap_last_error();
  char* copy;
  if (!*gpumap_vkgdr_failed()) return NULL;
  copy = (char*)malloc(strlen(text) + 1);
  return copy != NULL ? strcpy(copy, text) : NULL;
}

static inline vkgdr_t vkgdr_open(CUdevice device, uint32_t flags) {
  uint32_t wanted = GPUMAP_DEVICE_REQUIRE_CUDA;
  const bool current = (flags & VKGDR_OPEN_CURRENT_CONTEXT_BIT) != 0;
  char selector[24];
  vkgdr_t opened = NULL;
  if ((flags & VKGDR_OPEN_FORCE_NON_COHERENT_BIT) != 0) wanted |= GPUMAP_DEVICE_TREAT_NON_COHERENT;
  if ((flags & VKGDR_OPEN_REQUIRE_COHERENT_BIT) != 0) wanted |= GPUMAP_DEVICE_REQUIRE_COHERENT;
  (void)snprintf(selector, sizeof selector, "cuda:%d", (int)device);
  *gpumap_vkgdr_failed() = gpumap_device_open(current ? "current" : selector, wanted, &opened) != GPUMAP_OK;
  return opened;
}

static inline void vkgdr_close(vkgdr_t g) {
  (void)gpumap_device_close(g);
}

static inline vkgdr_memory_t vkgdr_memory_alloc(vkgdr_t g, size_t size, uint32_t flags) {
  vkgdr_memory_t made = NULL;
  gpumap_memory_options options = GPUMAP_INIT(gpumap_memory_options);
  options.flags = flags == 0 ? 0U : UINT32_MAX; /* vkgdr has none: an error */
  *gpumap_vkgdr_failed() = gpumap_memory_alloc(g, size, &options, &made) != GPUMAP_OK;
  return made;
}

static inline void vkgdr_memory_free(vkgdr_memory_t mem) {
  (void)gpumap_memory_free(mem);
}

static inline void* vkgdr_memory_get_host_ptr(vkgdr_memory_t mem) {
  return gpumap_memory_host(mem);
}

static inline CUdeviceptr vkgdr_memory_get_device_ptr(vkgdr_memory_t mem) {
  return (CUdeviceptr)gpumap_memory_address(mem);
}

static inline size_t vkgdr_memory_get_size(vkgdr_memory_t mem) {
  return (size_t)gpumap_memory_bytes(mem);
}

static inline bool vkgdr_memory_is_coherent(vkgdr_memory_t mem) {
  gpumap_memory_info info = GPUMAP_INIT(gpumap_memory_info);
  return gpumap_memory_get_info(mem, &info) == GPUMAP_OK && info.coherent != 0;
}

/* gpumap rounds to what the driver asks for. */
static inline size_t vkgdr_memory_non_coherent_atom_size(vkgdr_memory_t mem) {
  (void)mem;
  return 1;
}

static inline void vkgdr_memory_flush(vkgdr_memory_t mem, size_t offset, size_t size) {
  (void)gpumap_memory_flush(mem, offset, size);
}

static inline void vkgdr_memory_invalidate(vkgdr_memory_t mem, size_t offset, size_t size) {
  (void)gpumap_memory_invalidate(mem, offset, size);
}

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-use-nullptr) */
#endif
