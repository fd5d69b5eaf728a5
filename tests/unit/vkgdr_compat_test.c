/* SPDX-License-Identifier: MIT
 *
 * vkgdr's interface on gpumap's: every name of vkgdr.h is there and compiles as a program of vkgdr's uses it. Without
 * CUDA each call fails as vkgdr's do; with it memory is written and read. What a kernel sees: c_interface_gpu_test. */
#include <gpumap/vkgdr-compat.h>

static int check(int holds, int line) {
  if (!holds) fprintf(stderr, "line %d: %s\n", line, gpumap_last_error());
  return holds;
}
#define CHECK(condition) \
  if (!check(condition, __LINE__)) return 1

static int use(vkgdr_t g) {
  unsigned char got[100];
  vkgdr_memory_t mem = vkgdr_memory_alloc(g, sizeof got, 0);
  unsigned char* host;
  size_t at;
  CHECK(mem != NULL && vkgdr_last_error() == NULL);
  host = (unsigned char*)vkgdr_memory_get_host_ptr(mem);
  CHECK(host != NULL && vkgdr_memory_get_device_ptr(mem) != 0 && vkgdr_memory_get_size(mem) == sizeof got);
  for (at = 0; at < sizeof got; ++at) host[at] = (unsigned char)(at * 7);
  vkgdr_memory_flush(mem, 0, sizeof got);
  vkgdr_memory_invalidate(mem, 0, sizeof got);
  CHECK(gpumap_memory_read(mem, 0, got, sizeof got) == GPUMAP_OK);
  for (at = 0; at < sizeof got; ++at) CHECK(got[at] == (unsigned char)(at * 7));
  CHECK(vkgdr_memory_non_coherent_atom_size(mem) >= 1);
  (void)vkgdr_memory_is_coherent(mem);
  CHECK(vkgdr_memory_alloc(g, sizeof got, 1) == NULL);
  vkgdr_memory_free(mem);
  vkgdr_close(g);
  return 0;
}

int main(void) {
  char* error;
  vkgdr_t g = vkgdr_open(0, VKGDR_OPEN_REQUIRE_COHERENT_BIT);
  if (g != NULL) return use(g);
  error = vkgdr_last_error();
  CHECK(error != NULL && error[0] != '\0');
  free(error);
  CHECK(vkgdr_open(0, VKGDR_OPEN_CURRENT_CONTEXT_BIT | VKGDR_OPEN_FORCE_NON_COHERENT_BIT) == NULL);
  CHECK(vkgdr_memory_alloc(NULL, 1, 0) == NULL);
  CHECK(vkgdr_memory_get_host_ptr(NULL) == NULL && vkgdr_memory_get_size(NULL) == 0);
  vkgdr_memory_free(NULL);
  vkgdr_close(NULL);
  return 0;
}
