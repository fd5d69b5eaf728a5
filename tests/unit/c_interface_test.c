/* SPDX-License-Identifier: MIT
 *
 * gpumap.h as an application in C11 sees it, and in C++20 (c_interface_as_cpp_test.cpp): structures lie as they always
 * did, and a frame goes through memory, a pool and a ring.
 */
/* NOLINTBEGIN(modernize-use-nullptr): in C it is NULL */
#include <gpumap/gpumap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The binary interface: members are added at the end, and change neither place nor size. */
#ifdef __cplusplus
#define CHECK_AT_COMPILE_TIME(condition) static_assert(condition, #condition)
#else
#define CHECK_AT_COMPILE_TIME(condition) _Static_assert(condition, #condition)
#endif
#define SIZE(type, bytes) CHECK_AT_COMPILE_TIME(sizeof(type) == (bytes))
#define AT(type, member, bytes) CHECK_AT_COMPILE_TIME(offsetof(type, member) == (bytes))
SIZE(gpumap_device_info, 872);
AT(gpumap_device_info, struct_size, 0);
AT(gpumap_device_info, name, 8);
AT(gpumap_device_info, uuid, 264);
AT(gpumap_device_info, pci_address, 280);
AT(gpumap_device_info, index, 312);
AT(gpumap_device_info, cuda_ordinal, 316);
AT(gpumap_device_info, backend, 320);
AT(gpumap_device_info, software, 324);
AT(gpumap_device_info, memory_bytes, 328);
AT(gpumap_device_info, window_bytes, 336);
AT(gpumap_device_info, window_free_bytes, 344);
AT(gpumap_device_info, reason, 352);
AT(gpumap_device_info, cuda_context, 864);
SIZE(gpumap_fence, 64);
AT(gpumap_fence, struct_size, 0);
AT(gpumap_fence, kind, 8);
AT(gpumap_fence, reserved, 12);
AT(gpumap_fence, cuda_stream, 16);
AT(gpumap_fence, vulkan_device, 24);
AT(gpumap_fence, vulkan_semaphore, 32);
AT(gpumap_fence, vulkan_get_counter, 40);
AT(gpumap_fence, counter, 48);
AT(gpumap_fence, value, 56);
SIZE(gpumap_memory_options, 16);
AT(gpumap_memory_options, struct_size, 0);
AT(gpumap_memory_options, placement, 8);
AT(gpumap_memory_options, flags, 12);
SIZE(gpumap_memory_info, 56);
AT(gpumap_memory_info, struct_size, 0);
AT(gpumap_memory_info, host, 8);
AT(gpumap_memory_info, cuda_address, 16);
AT(gpumap_memory_info, vulkan_address, 24);
AT(gpumap_memory_info, bytes, 32);
AT(gpumap_memory_info, placement, 40);
AT(gpumap_memory_info, coherent, 44);
AT(gpumap_memory_info, cpu_readable, 48);
AT(gpumap_memory_info, software, 52);
SIZE(gpumap_vulkan_export, 40);
AT(gpumap_vulkan_export, struct_size, 0);
AT(gpumap_vulkan_export, allocation_bytes, 8);
AT(gpumap_vulkan_export, buffer_bytes, 16);
AT(gpumap_vulkan_export, base, 24);
AT(gpumap_vulkan_export, fd, 32);
AT(gpumap_vulkan_export, memory_type, 36);
SIZE(gpumap_pool_options, 32);
AT(gpumap_pool_options, struct_size, 0);
AT(gpumap_pool_options, block_bytes, 8);
AT(gpumap_pool_options, blocks, 16);
AT(gpumap_pool_options, max_blocks, 20);
AT(gpumap_pool_options, placement, 24);
AT(gpumap_pool_options, flags, 28);
SIZE(gpumap_frame_info, 80);
AT(gpumap_frame_info, struct_size, 0);
AT(gpumap_frame_info, bytes, 8);
AT(gpumap_frame_info, pts, 16);
AT(gpumap_frame_info, dts, 24);
AT(gpumap_frame_info, duration, 32);
AT(gpumap_frame_info, offset, 40);
AT(gpumap_frame_info, offset_end, 48);
AT(gpumap_frame_info, flags, 56);
AT(gpumap_frame_info, user, 60);
AT(gpumap_frame_info, sequence, 64);
AT(gpumap_frame_info, publish_ns, 72);
SIZE(gpumap_layout, 104);
AT(gpumap_layout, struct_size, 0);
AT(gpumap_layout, format, 8);
AT(gpumap_layout, width, 12);
AT(gpumap_layout, height, 16);
AT(gpumap_layout, channels, 20);
AT(gpumap_layout, rate, 24);
AT(gpumap_layout, planes, 28);
AT(gpumap_layout, offset, 32);
AT(gpumap_layout, stride, 64);
AT(gpumap_layout, bytes, 80);
AT(gpumap_layout, matrix, 88);
AT(gpumap_layout, range, 92);
AT(gpumap_layout, bits, 96);
AT(gpumap_layout, interlace, 100);
SIZE(gpumap_ring_options, 40);
AT(gpumap_ring_options, struct_size, 0);
AT(gpumap_ring_options, slot_bytes, 8);
AT(gpumap_ring_options, slots, 16);
AT(gpumap_ring_options, transport, 20);
AT(gpumap_ring_options, flags, 24);
AT(gpumap_ring_options, reserved, 28);
AT(gpumap_ring_options, spin_ns, 32);
SIZE(gpumap_connect_options, 48);
AT(gpumap_connect_options, struct_size, 0);
AT(gpumap_connect_options, name, 8);
AT(gpumap_connect_options, device, 16);
AT(gpumap_connect_options, leaky, 24);
AT(gpumap_connect_options, reserved, 28);
AT(gpumap_connect_options, timeout_ns, 32);
AT(gpumap_connect_options, spin_ns, 40);
SIZE(gpumap_ring_info, 576);
AT(gpumap_ring_info, struct_size, 0);
AT(gpumap_ring_info, slot_bytes, 8);
AT(gpumap_ring_info, published, 16);
AT(gpumap_ring_info, taken, 24);
AT(gpumap_ring_info, dropped, 32);
AT(gpumap_ring_info, slots, 40);
AT(gpumap_ring_info, transport, 44);
AT(gpumap_ring_info, queued, 48);
AT(gpumap_ring_info, connected, 52);
AT(gpumap_ring_info, served, 56);
AT(gpumap_ring_info, rings, 60);
AT(gpumap_ring_info, why, 64);
SIZE(gpumap_serve_options, 48);
AT(gpumap_serve_options, struct_size, 0);
AT(gpumap_serve_options, mode, 8);
AT(gpumap_serve_options, max_clients, 12);
AT(gpumap_serve_options, refuse_waiting, 16);
AT(gpumap_serve_options, reserve, 20);
AT(gpumap_serve_options, stall_limit_ns, 24);
AT(gpumap_serve_options, linger_ns, 32);
AT(gpumap_serve_options, base_time_ns, 40);
SIZE(gpumap_server_info, 40);
AT(gpumap_server_info, struct_size, 0);
AT(gpumap_server_info, connected, 8);
AT(gpumap_server_info, disconnected, 16);
AT(gpumap_server_info, refused, 24);
AT(gpumap_server_info, clients, 32);
AT(gpumap_server_info, reserved, 36);
SIZE(gpumap_kernel_options, 72);
AT(gpumap_kernel_options, struct_size, 0);
AT(gpumap_kernel_options, builtin, 8);
AT(gpumap_kernel_options, file, 16);
AT(gpumap_kernel_options, params, 24);
AT(gpumap_kernel_options, function, 32);
AT(gpumap_kernel_options, declare, 40);
AT(gpumap_kernel_options, defines, 48);
AT(gpumap_kernel_options, include_path, 56);
AT(gpumap_kernel_options, backend, 64);
AT(gpumap_kernel_options, flags, 68);
SIZE(gpumap_kernel_info, 280);
AT(gpumap_kernel_info, struct_size, 0);
AT(gpumap_kernel_info, name, 8);
AT(gpumap_kernel_info, backend, 264);
AT(gpumap_kernel_info, result_words, 268);
AT(gpumap_kernel_info, frames, 272);
SIZE(gpumap_run_options, 80);
AT(gpumap_run_options, struct_size, 0);
AT(gpumap_run_options, memory, 8);
AT(gpumap_run_options, slot, 16);
AT(gpumap_run_options, offset, 24);
AT(gpumap_run_options, bytes, 32);
AT(gpumap_run_options, layout, 40);
AT(gpumap_run_options, out, 48);
AT(gpumap_run_options, after, 56);
AT(gpumap_run_options, to_host, 64);
AT(gpumap_run_options, gap, 68);
AT(gpumap_run_options, timeout_ns, 72);
CHECK_AT_COMPILE_TIME(GPUMAP_END == 4 && GPUMAP_ERROR_UNEXPECTED == -12);
CHECK_AT_COMPILE_TIME(GPUMAP_PLACEMENT_MIRRORED == 3 && GPUMAP_TRANSPORT_PAGEABLE == 4 && GPUMAP_LEAKY_NO == 2);
CHECK_AT_COMPILE_TIME(GPUMAP_FENCE_COUNTER == 3 && GPUMAP_BACKEND_VULKAN == 2 && GPUMAP_WHEN_FULL_DROP_OLDEST == 1);
CHECK_AT_COMPILE_TIME(GPUMAP_DEVICE_REQUIRE_CUDA == 4 && GPUMAP_MEMORY_TREAT_NON_COHERENT == 2 &&
                      GPUMAP_KERNEL_RELOAD == 2);

static void check_line(int line, int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "line %d: %s: %s\n", line, what, gpumap_last_error());
  exit(1);
}
#define CHECK(condition) check_line(__LINE__, (condition) != 0, #condition)
#define CHECK_OK(call) check_line(__LINE__, (call) == GPUMAP_OK, #call)

enum { frame_bytes = 5003 };
static unsigned char sent[frame_bytes], got[frame_bytes];

static void fill(unsigned seed) {
  size_t at;
  srand(seed);
  for (at = 0; at < frame_bytes; ++at) sent[at] = (unsigned char)(rand() >> 3);
  memset(got, 0, sizeof got);
}

static void check_memory(gpumap_device device) {
  gpumap_memory memory = NULL;
  gpumap_memory_info info = GPUMAP_INIT(gpumap_memory_info);
  fill(1);
  CHECK_OK(gpumap_memory_alloc(device, frame_bytes, NULL, &memory));
  CHECK_OK(gpumap_memory_get_info(memory, &info));
  CHECK(info.bytes == frame_bytes && gpumap_memory_bytes(memory) == frame_bytes);
  CHECK(info.host != NULL && info.host == gpumap_memory_host(memory));
  CHECK(gpumap_memory_address(memory) == (info.cuda_address != 0 ? info.cuda_address : info.vulkan_address));
  memcpy(info.host, sent, frame_bytes);
  CHECK_OK(gpumap_memory_flush(memory, 0, frame_bytes));
  CHECK_OK(gpumap_memory_read(memory, 0, got, frame_bytes));
  CHECK(memcmp(sent, got, frame_bytes) == 0);
  CHECK_OK(gpumap_memory_free(memory));
  CHECK(gpumap_memory_free(memory) == GPUMAP_ERROR_INVALID);
  CHECK(gpumap_memory_host(memory) == NULL);
}

static void check_pool(gpumap_device device) {
  gpumap_pool pool = NULL;
  gpumap_memory block = NULL;
  gpumap_pool_options options = GPUMAP_INIT(gpumap_pool_options);
  options.block_bytes = 4096;
  CHECK_OK(gpumap_pool_create(device, &options, &pool));
  CHECK_OK(gpumap_pool_take(pool, &block));
  CHECK_OK(gpumap_pool_close(pool));
  fill(2);
  CHECK_OK(gpumap_memory_write(block, 0, sent, 4096));
  CHECK_OK(gpumap_memory_read(block, 0, got, 4096));
  CHECK(memcmp(sent, got, 4096) == 0);
  CHECK_OK(gpumap_memory_free(block));
}

static void check_ring(gpumap_device device) {
  gpumap_ring ring = NULL;
  gpumap_slot slot = NULL;
  gpumap_ring_options options = GPUMAP_INIT(gpumap_ring_options);
  gpumap_frame_info info = gpumap_frame_of(frame_bytes);
  gpumap_layout layout = GPUMAP_INIT(gpumap_layout);
  options.slot_bytes = frame_bytes;
  options.slots = 3;
  fill(3);
  CHECK_OK(gpumap_ring_create(device, &options, &ring));
  CHECK_OK(gpumap_ring_set_caps(ring, "video/x-raw,format=GRAY8,width=99,height=50"));
  CHECK(gpumap_ring_take(ring, 0, &slot) == GPUMAP_TIMEOUT);
  CHECK_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, GPUMAP_FOREVER, &slot));
  CHECK_OK(gpumap_slot_write(slot, 0, sent, frame_bytes));
  info.pts = 40;
  info.flags = 64;
  CHECK_OK(gpumap_slot_publish(slot, &info, NULL, 0));
  CHECK(gpumap_slot_release(slot, NULL) == GPUMAP_ERROR_INVALID);
  CHECK_OK(gpumap_ring_take(ring, GPUMAP_FOREVER, &slot));
  CHECK_OK(gpumap_slot_get_frame(slot, &info));
  CHECK(info.pts == 40 && info.duration == GPUMAP_NO_TIME && info.flags == 64 && info.bytes == frame_bytes);
  CHECK(strcmp(gpumap_slot_caps(slot), "video/x-raw, format=(string)GRAY8, width=(int)99, height=(int)50") == 0);
  CHECK_OK(gpumap_slot_get_layout(slot, &layout));
  CHECK(layout.width == 99 && layout.stride[0] == 100 && layout.bytes == 5000);
  CHECK_OK(gpumap_slot_wait(slot, NULL, 0));
  CHECK_OK(gpumap_slot_read(slot, 0, got, frame_bytes));
  CHECK(memcmp(sent, got, frame_bytes) == 0);
  CHECK_OK(gpumap_slot_release(slot, NULL));
  CHECK_OK(gpumap_ring_end(ring));
  CHECK(gpumap_ring_take(ring, GPUMAP_FOREVER, &slot) == GPUMAP_END);
  CHECK_OK(gpumap_ring_close(ring));
}

int main(void) {
  gpumap_device device = NULL;
  gpumap_device_info info = GPUMAP_INIT(gpumap_device_info);
  CHECK(gpumap_version() == (GPUMAP_C_VERSION_MAJOR << 16 | GPUMAP_C_VERSION_MINOR << 8 | GPUMAP_C_VERSION_MICRO));
  CHECK(strcmp(gpumap_last_error(), "") == 0);
  CHECK(strcmp(gpumap_status_name(GPUMAP_ERROR_NO_MEMORY), "GPUMAP_ERROR_NO_MEMORY") == 0);
  CHECK_OK(gpumap_device_open("auto", 0, &device));
  CHECK_OK(gpumap_device_get_info(device, &info));
  CHECK(info.name[0] != '\0' && info.backend != GPUMAP_BACKEND_DEFAULT);
  check_memory(device);
  check_pool(device);
  check_ring(device);
  CHECK_OK(gpumap_device_close(device));
  CHECK(gpumap_device_close(device) == GPUMAP_ERROR_INVALID);
  CHECK(strstr(gpumap_last_error(), "not open") != NULL);
  return 0;
}
/* NOLINTEND(modernize-use-nullptr) */
