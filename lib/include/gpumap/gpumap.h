/* SPDX-License-Identifier: MIT
 *
 * gpumap in C: memory that the CPU writes and the GPU reads, rings of it, rings between processes, kernels.
 * Compiles as C11 and as C++20, and includes neither CUDA nor Vulkan. lib/c/README.md has an example.
 *
 * Handles     Opaque. Each comes from one function and is given back by one: gpumap_device_close(),
 * gpumap_memory_free() and so on, which take a null handle, too. An object keeps what it is made of: a device may be
 * closed before its memory, a ring before its slots. A handle that was given back, or is of another kind, gives
 *             GPUMAP_ERROR_INVALID; so does giving it back twice.
 * Threads     Each function may be called from any thread, and from several at once with one handle. A call that is
 *             under way ends before the object goes. gpumap_ring_close() ends calls that wait.
 * fork()      In a child each call with a handle of the parent's gives GPUMAP_ERROR_FORKED, and frees nothing.
 * Errors      Functions return a gpumap_status: 0, a positive one for what may happen (a time limit), a negative one
 *             for an error. gpumap_last_error() has the cause, the figure and the remedy. No C++ exception comes out.
 * Times       Nanoseconds. A timeout of 0 does not wait, GPUMAP_FOREVER has no limit. Points in time are those of
 *             CLOCK_MONOTONIC.
 * Structures  Begin with their size, which GPUMAP_INIT() fills in: later versions add members at the end, and a 0 there
 *             is the default. Where a function takes a pointer to options, null stands for all defaults.
 * Stability   Functions stay, with the version of their symbols; so do numbers and the order of members.
 */
#ifndef GPUMAP_C_H
#define GPUMAP_C_H

#include <gpumap/kernel.h> /* enum gpumap_format */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUMAP_C_API __attribute__((visibility("default")))

/* The version of this header; gpumap_version() is that of the library. */
#define GPUMAP_C_VERSION_MAJOR 0
#define GPUMAP_C_VERSION_MINOR 1
#define GPUMAP_C_VERSION_MICRO 0

/* A structure of that type with its size, and all else 0: gpumap_ring_options options =
 * GPUMAP_INIT(gpumap_ring_options); */
#ifdef __cplusplus
#define GPUMAP_INIT(type) (gpumap_initialised<type>())
#else
#define GPUMAP_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

#define GPUMAP_FOREVER INT64_C(-1)  /* a timeout without limit */
#define GPUMAP_NO_TIME INT64_C(-1)  /* a pts, dts or duration that is not known */
#define GPUMAP_NO_OFFSET UINT64_MAX /* an offset that is not known */

typedef struct gpumap_device_object* gpumap_device;
typedef struct gpumap_memory_object* gpumap_memory;
typedef struct gpumap_pool_object* gpumap_pool;
typedef struct gpumap_ring_object* gpumap_ring;
typedef struct gpumap_slot_object* gpumap_slot;
typedef struct gpumap_server_object* gpumap_server;
typedef struct gpumap_kernel_object* gpumap_kernel;

/* ---- Errors ---- */

typedef int32_t gpumap_status;
enum {
  GPUMAP_OK = 0,
  GPUMAP_TIMEOUT = 1, /* the timeout is over */
  GPUMAP_STOPPED = 2, /* gpumap_ring_stop() */
  GPUMAP_FULL = 3,    /* no slot is free, and the caller does not wait */
  GPUMAP_END = 4,     /* the stream has ended; over a socket another one may follow: take again */

  GPUMAP_ERROR_INVALID = -1,       /* a bad argument, or a handle that was given back */
  GPUMAP_ERROR_NO_DRIVER = -2,     /* no Vulkan driver, or no CUDA where it is needed */
  GPUMAP_ERROR_NO_DEVICE = -3,     /* the selector names no GPU of this machine */
  GPUMAP_ERROR_NO_MEMORY = -4,     /* of the BAR window, of the device, page-locked or ordinary */
  GPUMAP_ERROR_NOT_SUPPORTED = -5, /* the device or the driver cannot */
  GPUMAP_ERROR_COMPILE = -6,       /* a kernel does not compile or load; the text has the compiler's log */
  GPUMAP_ERROR_DEVICE_LOST = -7,   /* a kernel faulted: the GPU's context of this process is of no use any more */
  GPUMAP_ERROR_IO = -8,            /* the operating system refused */
  GPUMAP_ERROR_CLOSED = -9,        /* the other side of the ring is gone, and nothing is left to take */
  GPUMAP_ERROR_FORKED = -10,       /* the handle belongs to the parent process */
  GPUMAP_ERROR_REVOKED = -11,      /* the producer, in another process, writes this slot again */
  GPUMAP_ERROR_UNEXPECTED = -12,   /* a fault of gpumap's: please report it with the text */
  GPUMAP_ERROR_NO_RESOURCES = -13, /* no descriptor, thread, mapping or memory of the CPU is left for this process */
  GPUMAP_ERROR_BUSY = -14          /* the producer has no place left for another client, or does not answer */
};

/* What a status is called: "GPUMAP_ERROR_NO_MEMORY". Static, never null. */
GPUMAP_C_API const char* gpumap_status_name(gpumap_status status);
/* What was wrong with the last call of this thread that failed: "cause, figure: remedy". Never null; "" before the
 * first. Valid until the next call of this thread that fails. */
GPUMAP_C_API const char* gpumap_last_error(void);
/* The library's version: major << 16 | minor << 8 | micro. */
GPUMAP_C_API uint32_t gpumap_version(void);

/* ---- Devices ---- */

enum gpumap_device_flags {
  GPUMAP_DEVICE_REQUIRE_COHERENT = 1,   /* fail where memory needs gpumap_memory_flush(); holds for what is allocated */
  GPUMAP_DEVICE_TREAT_NON_COHERENT = 2, /* for tests: memory says that it needs flushes, and they reach the driver */
  GPUMAP_DEVICE_REQUIRE_CUDA = 4        /* fail where there is no CUDA: "auto" then takes no software device */
};

enum gpumap_backend {
  GPUMAP_BACKEND_DEFAULT = 0, /* CUDA where the GPU has it, else Vulkan */
  GPUMAP_BACKEND_CUDA = 1,    /* kernels in CUDA C++ */
  GPUMAP_BACKEND_VULKAN = 2   /* kernels in GLSL */
};

typedef struct gpumap_device_info {
  size_t struct_size;
  char name[256]; /* "NVIDIA H100 80GB HBM3" */
  uint8_t uuid[16];
  char pci_address[32];  /* "0000:3b:00.0"; "" for software */
  int32_t index;         /* as gpumap-info lists it */
  int32_t cuda_ordinal;  /* -1: no CUDA */
  uint32_t backend;      /* enum gpumap_backend: what runs kernels by default; 0: the device cannot be used */
  uint32_t software;     /* 1: no GPU but Vulkan on the CPU (lavapipe): "device" memory is host memory */
  uint64_t memory_bytes; /* of the device */
  uint64_t window_bytes; /* of it the CPU can map: the BAR window */
  uint64_t window_free_bytes;
  char reason[512];   /* how the CPU reaches its memory, or why not, in a sentence */
  void* cuda_context; /* CUcontext, the device's primary one; null without CUDA, and from gpumap_device_describe() */
} gpumap_device_info;

/* Opens a device. `selector`:
 *   "auto" (or null)   a GPU whose memory the CPU can map before a software device
 *   "2"                the index that gpumap-info lists
 *   "cuda:1"           the CUDA ordinal, as cudaSetDevice() takes it
 *   "current"          the device of the CUDA context that is current in this thread. It has to be the primary context
 *                      (the CUDA runtime's, cuDevicePrimaryCtxRetain()): memory of one context means nothing in another
 *   "GPU-f7a4…"        the UUID, with or without "GPU-"
 *   "0000:3b:00.0"     the PCI address
 * `flags`: enum gpumap_device_flags. One context serves a process, however often it is opened, and stays to its end:
 * the first open takes about 0.3 s, others microseconds. Each open is closed once. Errors: NO_DRIVER, NO_DEVICE,
 * NOT_SUPPORTED, DEVICE_LOST, INVALID. */
GPUMAP_C_API gpumap_status gpumap_device_open(const char* selector, uint32_t flags, gpumap_device* device);
GPUMAP_C_API gpumap_status gpumap_device_close(gpumap_device device);
GPUMAP_C_API gpumap_status gpumap_device_get_info(gpumap_device device, gpumap_device_info* info);
/* The same of the device with that index, from 0, without opening it. NO_DEVICE: there are no more. */
GPUMAP_C_API gpumap_status gpumap_device_describe(uint32_t index, gpumap_device_info* info);
/* OK, or DEVICE_LOST with the reason: then everything on it fails, until the process ends. */
GPUMAP_C_API gpumap_status gpumap_device_check(gpumap_device device);

/* ---- Order with GPU work and with others ---- */

enum gpumap_fence_kind {
  GPUMAP_FENCE_HOST = 0,   /* the calling thread itself */
  GPUMAP_FENCE_CUDA = 1,   /* all that a CUDA stream has now; it is made to wait on the GPU where that can be */
  GPUMAP_FENCE_VULKAN = 2, /* a timeline semaphore of a VkDevice of the caller's: `value` is reached */
  GPUMAP_FENCE_COUNTER = 3 /* a 64-bit number in host memory that only grows: `value` is reached */
};

/* Who uses memory. Made by the functions below; a null pointer stands for GPUMAP_FENCE_HOST.
 * Where something waits for it, a semaphore or counter has to live until it has come to `value`; so has its VkDevice.
 * Where it is to be made to wait, a CUDA stream waits on the GPU for CUDA work; for all others, and for work of Vulkan,
 * the calling thread waits. */
typedef struct gpumap_fence {
  size_t struct_size;
  uint32_t kind; /* enum gpumap_fence_kind */
  uint32_t reserved;
  void* cuda_stream;                /* CUstream or cudaStream_t of the primary context; null: the default one */
  void* vulkan_device;              /* VkDevice */
  uint64_t vulkan_semaphore;        /* VkSemaphore */
  void (*vulkan_get_counter)(void); /* vkGetSemaphoreCounterValue, cast to this type */
  const volatile uint64_t* counter; /* 8-aligned */
  uint64_t value;
} gpumap_fence;

/* ---- Memory ---- */

enum gpumap_placement {
  GPUMAP_PLACEMENT_BAR = 0,     /* device memory that the CPU writes through the PCIe BAR. Reading it by the CPU is a
                                   thousand times slower than writing: gpumap_memory_read() */
  GPUMAP_PLACEMENT_DEVICE = 1,  /* device memory that only the GPU reaches: no host pointer */
  GPUMAP_PLACEMENT_HOST = 2,    /* page-locked host memory that the GPU reaches: for results that the CPU reads */
  GPUMAP_PLACEMENT_MIRRORED = 3 /* reported only, of slots whose transport is not "bar": host memory and its copy */
};

enum gpumap_memory_flags {
  GPUMAP_MEMORY_REQUIRE_COHERENT = 1, /* as GPUMAP_DEVICE_REQUIRE_COHERENT, for this memory */
  GPUMAP_MEMORY_TREAT_NON_COHERENT = 2
};

typedef struct gpumap_memory_options {
  size_t struct_size;
  uint32_t placement; /* enum gpumap_placement */
  uint32_t flags;     /* enum gpumap_memory_flags */
} gpumap_memory_options;

typedef struct gpumap_memory_info {
  size_t struct_size;
  void* host;              /* at least 64-aligned, of a whole allocation and a slot 4096-aligned; null: none */
  uint64_t cuda_address;   /* CUdeviceptr in the device's primary context; 0: none */
  uint64_t vulkan_address; /* buffer device address on gpumap's own VkDevice: for its kernels; 0: none */
  uint64_t bytes;          /* that were asked for; of a slot all that it has room for */
  uint32_t placement;      /* enum gpumap_placement */
  uint32_t coherent;       /* 1: flush and invalidate do nothing */
  uint32_t cpu_readable;   /* 1: the CPU reads `host` at the speed of ordinary memory (lavapipe, host memory) */
  uint32_t software;       /* 1: as gpumap_device_info */
} gpumap_memory_info;

/* What another VkDevice of the same GPU and driver imports, as a dedicated allocation with one buffer. What the GPU
 * does on one side has to end before the other side touches the memory. */
typedef struct gpumap_vulkan_export {
  size_t struct_size;
  uint64_t allocation_bytes; /* of the memory */
  uint64_t buffer_bytes;     /* of the buffer, which is bound at 0 */
  uint64_t base;             /* where in the buffer the memory or slot starts */
  int32_t fd;                /* VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT; the caller's to close, or an import's */
  uint32_t memory_type;      /* its index */
} gpumap_vulkan_export;

/* Allocates `bytes` (1 or more). `options` may be null. Takes 0.1 ms or more, and each allocation at least 64 KiB of a
 * GPU: for many small ones see gpumap_pool. Errors: NO_MEMORY with window, use and request; NOT_SUPPORTED, INVALID. */
GPUMAP_C_API gpumap_status gpumap_memory_alloc(gpumap_device device, uint64_t bytes,
                                               const gpumap_memory_options* options, gpumap_memory* memory);
/* Gives memory back, also that of a pool or of gpumap_kernel_run(). It is freed when the work that
 * gpumap_memory_used_by() named, and kernels of gpumap's on it, are done: for a pool later, else within this call,
 * which waits for 5 s at most and then keeps the memory for good, with a line on standard error. CUDA itself frees no
 * memory before all kernels of the context have ended. The host pointer is invalid at once. */
GPUMAP_C_API gpumap_status gpumap_memory_free(gpumap_memory memory);
GPUMAP_C_API gpumap_status gpumap_memory_get_info(gpumap_memory memory, gpumap_memory_info* info);
/* As gpumap_memory_info has them; null and 0, with gpumap_last_error(), for a bad handle. The address is that for the
 * device's default back end. */
GPUMAP_C_API void* gpumap_memory_host(gpumap_memory memory);
GPUMAP_C_API uint64_t gpumap_memory_address(gpumap_memory memory);
GPUMAP_C_API uint64_t gpumap_memory_bytes(gpumap_memory memory);

/* Makes CPU stores in the range visible to GPU work that is submitted afterwards; a store fence is part of it. On
 * coherent memory that fence is all. Any offset and size do: gpumap rounds to what the driver asks for. Leaving the
 * memory: INVALID. */
GPUMAP_C_API gpumap_status gpumap_memory_flush(gpumap_memory memory, uint64_t offset, uint64_t bytes);
/* Makes what the GPU wrote in the range visible to the CPU; the GPU work has ended before. */
GPUMAP_C_API gpumap_status gpumap_memory_invalidate(gpumap_memory memory, uint64_t offset, uint64_t bytes);
/* Copies into the memory, with streaming stores by as many threads as pay, and flushes. The first large copy of a
 * process measures for some ms how to. NOT_SUPPORTED where there is no host pointer. */
GPUMAP_C_API gpumap_status gpumap_memory_write(gpumap_memory memory, uint64_t offset, const void* from, uint64_t bytes);
/* Copies out of the memory, by DMA where the CPU would read slowly. Waits for the kernels of gpumap's that write it,
 * for a minute at most (TIMEOUT); other work has ended before. */
GPUMAP_C_API gpumap_status gpumap_memory_read(gpumap_memory memory, uint64_t offset, void* to, uint64_t bytes);

/* `who` uses the memory after the kernels of gpumap's that write it: the calling thread (null) returns when they are
 * done, a CUDA stream is made to wait, without that the CPU waits. TIMEOUT, DEVICE_LOST, INVALID. */
GPUMAP_C_API gpumap_status gpumap_memory_wait(gpumap_memory memory, const gpumap_fence* who, int64_t timeout_ns);
/* `who` uses the memory: it is neither freed nor, in a pool, taken again before that is done. May be called often; then
 * it holds until all are done. */
GPUMAP_C_API gpumap_status gpumap_memory_used_by(gpumap_memory memory, const gpumap_fence* who);
/* NOT_SUPPORTED for host memory, and where the driver cannot. */
GPUMAP_C_API gpumap_status gpumap_memory_export_vulkan(gpumap_memory memory, gpumap_vulkan_export* exported);

/* A pool of blocks of one size, which lie side by side in few allocations: to take one and give it back takes less than
 * 1 us. Blocks are 256-aligned for the GPU; they keep the pool's memory when it is closed before them. */
typedef struct gpumap_pool_options {
  size_t struct_size;
  uint64_t block_bytes; /* of each; 1 or more */
  uint32_t blocks;      /* in one allocation; 0: as many as 1 MiB has room for, at least 1 */
  uint32_t max_blocks;  /* in all; 0: no limit */
  uint32_t placement;   /* enum gpumap_placement */
  uint32_t flags;       /* enum gpumap_memory_flags */
} gpumap_pool_options;
GPUMAP_C_API gpumap_status gpumap_pool_create(gpumap_device device, const gpumap_pool_options* options,
                                              gpumap_pool* pool);
GPUMAP_C_API gpumap_status gpumap_pool_close(gpumap_pool pool);
/* A block that nobody uses any more; its content is what was there. Given back by gpumap_memory_free(). FULL:
 * `max_blocks` are out or still used. NO_MEMORY as gpumap_memory_alloc(). */
GPUMAP_C_API gpumap_status gpumap_pool_take(gpumap_pool pool, gpumap_memory* memory);

/* ---- Frames ---- */

typedef struct gpumap_frame_info {
  size_t struct_size;
  uint64_t bytes; /* in use, from the slot's start */
  int64_t pts;    /* ns from the stream's begin; GPUMAP_NO_TIME: not known, as the next two */
  int64_t dts;
  int64_t duration;
  uint64_t offset; /* of the stream, in its own units; GPUMAP_NO_OFFSET: not known, as the next */
  uint64_t offset_end;
  uint32_t flags;     /* GstBufferFlags, as 64 for a gap before the frame; others are the application's own */
  uint32_t user;      /* the application's own */
  uint64_t sequence;  /* set by publish: frames published on this ring before this one */
  int64_t publish_ns; /* set by publish: CLOCK_MONOTONIC */
} gpumap_frame_info;

/* How a frame lies in memory. Of a picture: `format`, `width`, `height`, and where each plane begins and its rows are.
 * Of audio or IQ samples: `format`, `channels`, `rate`. All 0: bytes. */
typedef struct gpumap_layout {
  size_t struct_size;
  uint32_t format;    /* enum gpumap_format, in gpumap/kernel.h */
  uint32_t width;     /* pixels */
  uint32_t height;    /* pixels */
  uint32_t channels;  /* interleaved; IQ has 2 */
  uint32_t rate;      /* sample frames a second */
  uint32_t planes;    /* 1 to 4 of a picture */
  uint64_t offset[4]; /* bytes from the slot's start */
  int32_t stride[4];  /* bytes from a row to the next */
  uint64_t bytes;     /* of a picture in all; 0 where frames differ */
  uint32_t matrix;    /* GstVideoColorMatrix, as 3 for BT.709, 4 for BT.601; 0: as usual for the format and height */
  uint32_t range;     /* GstVideoColorRange: 1 full, 2 limited; 0: as usual for the format */
  uint32_t bits;      /* that a Bayer value of 16 bits has: 10, 12 or 14; 0: all */
  uint32_t interlace; /* GstVideoInterlaceMode: 0 progressive, 1 interleaved, 2 mixed, of which frames tell by 2^20 */
} gpumap_layout;

/* The usual layout of such a picture, as GStreamer has it: rows of whole 4 bytes, tensors without padding. INVALID for
 * a format that is no picture, or a size beyond 65,536. */
GPUMAP_C_API gpumap_status gpumap_layout_of_picture(uint32_t format, uint32_t width, uint32_t height,
                                                    gpumap_layout* layout);
/* The usual layout of frames with such caps. NOT_SUPPORTED: of caps that gpumap does not know. */
GPUMAP_C_API gpumap_status gpumap_layout_of_caps(const char* caps, gpumap_layout* layout);

/* ---- Rings ---- */

/* A ring is a fixed set of slots and the queue of published ones: a producer acquires, writes and publishes; a consumer
 * takes, reads and releases. A slot is acquired anew when it was released and the GPU is done with it. */

enum gpumap_transport {
  GPUMAP_TRANSPORT_AUTO = 0,      /* bar, or pinned where the BAR window has no room */
  GPUMAP_TRANSPORT_BAR = 1,       /* CPU stores into device memory: alone can be served to other processes */
  GPUMAP_TRANSPORT_PINNED = 2,    /* page-locked host memory, moved by DMA at publish */
  GPUMAP_TRANSPORT_ZERO_COPY = 3, /* page-locked host memory that kernels read over PCIe */
  GPUMAP_TRANSPORT_PAGEABLE = 4   /* ordinary memory, and a blocking copy at publish */
};

typedef struct gpumap_ring_options {
  size_t struct_size;
  uint64_t slot_bytes; /* 1 or more; a slot starts at a multiple of 4096 */
  uint32_t slots;      /* 2 to 256; 0: 8 */
  uint32_t transport;  /* enum gpumap_transport */
  uint32_t flags;      /* enum gpumap_memory_flags */
  uint32_t reserved;
  int64_t spin_ns; /* busy-poll for this long before a wait sleeps; 0: sleep at once */
} gpumap_ring_options;

/* What a client of another process misses that is slower than the producer. */
enum gpumap_leaky {
  GPUMAP_LEAKY_OLDEST = 0, /* the oldest frames that it has not taken */
  GPUMAP_LEAKY_NEWEST = 1, /* frames that come while it has its share of the slots */
  GPUMAP_LEAKY_NO = 2      /* nothing: it holds the producer up */
};

typedef struct gpumap_connect_options {
  size_t struct_size;
  const char* name;     /* of this client, for the producer's lists; null: "gpumap" */
  gpumap_device device; /* null: the GPU that the producer's memory is on */
  uint32_t leaky;       /* enum gpumap_leaky */
  uint32_t reserved;
  int64_t timeout_ns; /* try for this long to reach a producer */
  int64_t spin_ns;    /* as gpumap_ring_options; 50 ms at most */
} gpumap_connect_options;

typedef struct gpumap_ring_info {
  size_t struct_size;
  uint64_t slot_bytes;
  uint64_t published; /* frames, ever */
  uint64_t taken;
  uint64_t dropped; /* published, never taken */
  uint32_t slots;
  uint32_t transport; /* enum gpumap_transport, never AUTO */
  uint32_t queued;    /* published, not taken */
  uint32_t connected; /* 1: from gpumap_ring_connect() */
  uint32_t served;    /* 1: a gpumap_server has it */
  uint32_t rings;     /* of a connected one: how many rings of its producer it had, one after the other */
  char why[512];      /* of AUTO that is not bar: why; of a connected ring that is closed: why; else "" */
} gpumap_ring_info;

/* A ring in this process. Errors: NO_MEMORY, NOT_SUPPORTED, INVALID. */
GPUMAP_C_API gpumap_status gpumap_ring_create(gpumap_device device, const gpumap_ring_options* options,
                                              gpumap_ring* ring);
/* The ring of another process that serves it at the socket `path`: by gpumap_ring_serve() or by
 * `gpumapsink socket-path=…`. Of this side it is a consumer's: its slots are the producer's, without a copy. When the
 * producer goes on with another ring (its frames grow), this ring follows within gpumap_ring_take(); slots that are
 * held stay as they are. Errors: IO (nobody serves there within the timeout), BUSY (no place, or no answer), INVALID
 * (refused), NO_RESOURCES (of this process: it does not try again), NOT_SUPPORTED (memory of another GPU), NO_DEVICE.
 */
GPUMAP_C_API gpumap_status gpumap_ring_connect(const char* path, const gpumap_connect_options* options,
                                               gpumap_ring* ring);
/* Ends calls that wait. Slots that are out stay valid, and so does the memory, also when the producer has died. */
GPUMAP_C_API gpumap_status gpumap_ring_close(gpumap_ring ring);
GPUMAP_C_API gpumap_status gpumap_ring_get_info(gpumap_ring ring, gpumap_ring_info* info);
/* The device that it is on, as a handle of its own: gpumap_device_close(). */
GPUMAP_C_API gpumap_status gpumap_ring_get_device(gpumap_ring ring, gpumap_device* device);

enum gpumap_when_full {
  GPUMAP_WHEN_FULL_WAIT = 0,       /* for the timeout */
  GPUMAP_WHEN_FULL_DROP_OLDEST = 1 /* take back the oldest frame that nobody has taken; FULL where there is none */
};
/* A slot to write. A timeout of 0 gives FULL where none is free; else OK, TIMEOUT, STOPPED, FULL. Errors: CLOSED,
 * DEVICE_LOST, INVALID (a connected ring). The slot is the caller's until it is published or released. */
GPUMAP_C_API gpumap_status gpumap_ring_acquire(gpumap_ring ring, uint32_t when_full, int64_t timeout_ns,
                                               gpumap_slot* slot);
/* Hands the slot to the consumers and gives the handle back, unless it fails. `info`: null: all bytes, no times.
 * `after`: who writes it; null: the caller, with ordinary stores, which are done. For GPU work that writes the slot the
 * calling thread waits, for `timeout_ns`: other processes cannot wait for a stream of this one. Another thread's call
 * that publishes or releases the slot is waited for within that time, too. TIMEOUT, STOPPED: the slot is still the
 * caller's. With GPUMAP_TRANSPORT_PAGEABLE the thread also copies: behind a kernel for a minute at most. Errors:
 * INVALID (more bytes than the slot has, a slot that was taken), DEVICE_LOST, IO (that minute is over). */
GPUMAP_C_API gpumap_status gpumap_slot_publish(gpumap_slot slot, const gpumap_frame_info* info,
                                               const gpumap_fence* after, int64_t timeout_ns);
/* The oldest published frame. OK, TIMEOUT, STOPPED, END. Errors: CLOSED (the producer is gone, all was taken; the text
 * has the reason), INVALID (a ring that is served: its clients take), DEVICE_LOST. */
GPUMAP_C_API gpumap_status gpumap_ring_take(gpumap_ring ring, int64_t timeout_ns, gpumap_slot* slot);
/* Gives a slot back. One that was taken is free when `until` (null: the caller is done) is done with it, and so are
 * kernels of gpumap's: this does not wait. One that was acquired is free at once, and nothing is published; for
 * `until`, which still writes it, and for a publish in another thread the call waits, a minute at most (TIMEOUT). When
 * it fails (a CUDA stream of another context) the slot is still the caller's. */
GPUMAP_C_API gpumap_status gpumap_slot_release(gpumap_slot slot, const gpumap_fence* until);

/* `who` reads the slot after it was filled: as gpumap_memory_wait(). In the transports bar and zero-copy it is filled
 * when it is taken. */
GPUMAP_C_API gpumap_status gpumap_slot_wait(gpumap_slot slot, const gpumap_fence* who, int64_t timeout_ns);
/* Where it lies. Memory of a slot that was taken is only to be read. */
GPUMAP_C_API gpumap_status gpumap_slot_get_memory(gpumap_slot slot, gpumap_memory_info* info);
/* Of a slot that was taken. */
GPUMAP_C_API gpumap_status gpumap_slot_get_frame(gpumap_slot slot, gpumap_frame_info* info);
/* The caps of the frame, as GStreamer writes them: "video/x-raw, format=(string)NV12, width=(int)1920, …". "" where the
 * producer says none. Null, with gpumap_last_error(), for a bad handle. Valid until the slot is released. */
GPUMAP_C_API const char* gpumap_slot_caps(gpumap_slot slot);
/* As the producer says, else as its caps say. NOT_SUPPORTED: neither does, or in a way that gpumap does not know. */
GPUMAP_C_API gpumap_status gpumap_slot_get_layout(gpumap_slot slot, gpumap_layout* layout);
/* As gpumap_memory_write(), into a slot that was acquired, and gpumap_memory_read(). */
GPUMAP_C_API gpumap_status gpumap_slot_write(gpumap_slot slot, uint64_t offset, const void* from, uint64_t bytes);
GPUMAP_C_API gpumap_status gpumap_slot_read(gpumap_slot slot, uint64_t offset, void* to, uint64_t bytes);
/* OK, or REVOKED: the producer, in another process, took the slot back, as this client kept it waiting for longer than
 * its limit, and what was read may be of a later frame. Ask after reading. */
GPUMAP_C_API gpumap_status gpumap_slot_check(gpumap_slot slot);
GPUMAP_C_API gpumap_status gpumap_slot_export_vulkan(gpumap_slot slot, gpumap_vulkan_export* exported);

/* Calls that wait, on either side, and those to come return STOPPED, until gpumap_ring_resume(). */
GPUMAP_C_API gpumap_status gpumap_ring_stop(gpumap_ring ring);
GPUMAP_C_API gpumap_status gpumap_ring_resume(gpumap_ring ring);
/* Drops what was published and not taken. */
GPUMAP_C_API gpumap_status gpumap_ring_drop_queued(gpumap_ring ring);
/* Caps of the frames that are published from now on: media type and fields, each fixed, as "video/x-raw,format=NV12,
 * width=640,height=480,framerate=30/1"; types as (int) may be left out. Null or "": none. INVALID for a text that
 * cannot be read, with the place. A `gpumapsrc` needs caps: set them before the ring is served, or before its first
 * frame. Those of a ring that is served can be replaced, not taken away. */
GPUMAP_C_API gpumap_status gpumap_ring_set_caps(gpumap_ring ring, const char* caps);
/* How the frames from now on lie; null: as their caps say. NOT_SUPPORTED, also of gpumap_ring_serve(): clients of a
 * served ring know Bayer pictures and tensors from their caps alone, without gaps between rows. */
GPUMAP_C_API gpumap_status gpumap_ring_set_layout(gpumap_ring ring, const gpumap_layout* layout);
/* The stream ends: consumers take what is left, then END. Afterwards acquire gives CLOSED. */
GPUMAP_C_API gpumap_status gpumap_ring_end(gpumap_ring ring);

/* ---- Serving a ring to other processes ---- */

typedef struct gpumap_serve_options {
  size_t struct_size;
  uint32_t mode;           /* of the socket's file; 0: 0600 */
  uint32_t max_clients;    /* 0: 16, which is the most */
  uint32_t refuse_waiting; /* 1: who asks for GPUMAP_LEAKY_NO is refused */
  uint32_t reserve;        /* slots that other clients never get; 0: 2 */
  int64_t stall_limit_ns;  /* disconnects the client with the oldest frame when no slot was free for so much time; 0:
                              never */
  int64_t linger_ns;       /* how long gpumap_server_close() waits for clients to be done, a day at most; 0: 1 s */
  int64_t base_time_ns;    /* CLOCK_MONOTONIC at which pts 0 is due, for a `gpumapsrc`; 0: the moment of serving */
} gpumap_serve_options;

typedef struct gpumap_server_info {
  size_t struct_size;
  uint64_t connected; /* clients since the start */
  uint64_t disconnected;
  uint64_t refused;
  uint32_t clients; /* now */
  uint32_t reserved;
} gpumap_server_info;

/* Serves the ring at the Unix socket `path` (107 bytes at most) to gpumap_ring_connect() and `gpumapsrc socket-path=…`
 * of other processes, or of this one. From here on its clients take the frames: gpumap_ring_take() gives INVALID.
 * Frames without a client are dropped. The ring's transport has to be bar (on lavapipe its memory is shared, too), and
 * nothing may be queued. Errors: INVALID (the path is taken, or no socket, or the ring is served or connected), IO,
 * NOT_SUPPORTED. */
GPUMAP_C_API gpumap_status gpumap_ring_serve(gpumap_ring ring, const char* path, const gpumap_serve_options* options,
                                             gpumap_server* server);
/* Clients get what was published, then END or CLOSED. Waits for `linger_ns`. A ring is served once. */
GPUMAP_C_API gpumap_status gpumap_server_close(gpumap_server server);
GPUMAP_C_API gpumap_status gpumap_server_get_info(gpumap_server server, gpumap_server_info* info);
/* Until there is a client. OK, TIMEOUT. */
GPUMAP_C_API gpumap_status gpumap_server_wait_for_client(gpumap_server server, int64_t timeout_ns);

/* ---- Kernels ---- */

enum gpumap_kernel_flags {
  GPUMAP_KERNEL_CHECK_BOUNDS = 1, /* fail where the kernel writes behind its memory: for development, slow */
  GPUMAP_KERNEL_RELOAD = 2        /* go on with what its file becomes when it is changed and compiles */
};

/* Texts may be null. Either `builtin` or `file` is given. */
typedef struct gpumap_kernel_options {
  size_t struct_size;
  const char* builtin;      /* "identity", "convert", "checksum", …: gpumap-info lists them */
  const char* file;         /* .cu, .ptx, .cubin, .comp or .spv; lib/kernel/README.md says what such a file declares. A
                               name without ending: .cu on CUDA, .comp on Vulkan */
  const char* params;       /* "gain=2.5,taps=[1,2,3]" */
  const char* function;     /* "one", or "one,other" in sequence */
  const char* declare;      /* lines before those of the file */
  const char* defines;      /* "NAME,OTHER=2" */
  const char* include_path; /* folders, separated by ':' */
  uint32_t backend;         /* enum gpumap_backend; by default that of the file's language, else of the device */
  uint32_t flags;           /* enum gpumap_kernel_flags */
} gpumap_kernel_options;

typedef struct gpumap_kernel_info {
  size_t struct_size;
  char name[256];
  uint32_t backend;      /* enum gpumap_backend */
  uint32_t result_words; /* of gpumap_kernel_result(); 0: it tells no results */
  uint64_t frames;       /* launched on */
} gpumap_kernel_info;

typedef struct gpumap_run_options {
  size_t struct_size;
  gpumap_memory memory;        /* the input: this, or */
  gpumap_slot slot;            /* this, which was taken: it is free, once released, when the kernel is done */
  uint64_t offset;             /* of the input in `memory` or `slot` */
  uint64_t bytes;              /* 0: all of it; of a slot those in use */
  const gpumap_layout* layout; /* of the input; null: the slot's, else bytes */
  const gpumap_layout* out;    /* of the output; null: as the kernel declares it. What its line leaves open is the
                                  input's; where that does not say it either, the output is as the input */
  const gpumap_fence* after;   /* who fills the input; null: it is filled */
  uint32_t to_host;            /* 1: the output lies in host memory, and the call waits for it */
  uint32_t gap;                /* 1: the frame does not follow on the one before: history and state begin anew, and
                                  the beginning of a sample in which that one ended is left out. The same holds of a
                                  slot whose frame has the flag 64. The first frame, the first of another layout and
                                  the first after the file was loaded again begin anew by themselves */
  int64_t timeout_ns;          /* for `after`, and for a kernel that the CPU has to wait for; 0: a minute. In Vulkan,
                                  where kernels take turns, a gpumapkernel behind a launch that has not ended by then,
                                  and within a second at least, no longer waits for it without a time of its own */
} gpumap_run_options;

/* Compiles (or takes from the cache) and loads. Errors: COMPILE, NO_DRIVER, NOT_SUPPORTED, INVALID, IO, DEVICE_LOST. */
GPUMAP_C_API gpumap_status gpumap_kernel_open(gpumap_device device, const gpumap_kernel_options* options,
                                              gpumap_kernel* kernel);
/* Waits for its launches, 5 s at most. */
GPUMAP_C_API gpumap_status gpumap_kernel_close(gpumap_kernel kernel);
GPUMAP_C_API gpumap_status gpumap_kernel_get_info(gpumap_kernel kernel, gpumap_kernel_info* info);
/* For the frames from here on. Those that are not named take their defaults. INVALID, and all stay as they were; BUSY
 * where other calls take a minute. With the built-in `convert` a crop is to lie within the last frame, too: for one
 * that needs larger frames open another kernel. */
GPUMAP_C_API gpumap_status gpumap_kernel_set_params(gpumap_kernel kernel, const char* params);
/* Launches on one frame; calls on one kernel go one after the other, within the call's timeout. `output` is memory with
 * what the kernel wrote: gpumap_memory_wait() or gpumap_memory_read() before it is used, gpumap_memory_free() after
 * that. Null: the kernel gives nothing of this frame, or leaves it unchanged. TIMEOUT: the frame is lost, and what was
 * launched runs on. INVALID: the kernel does not take a `params`, layout or size, or declares an output by an
 * expression without a value or by caps that gpumap does not know. A kernel that faults: DEVICE_LOST, here or later.
 * Files of its tables are loaded again when they have changed, and with GPUMAP_KERNEL_RELOAD its own. For one that
 * cannot be used one call fails, INVALID or COMPILE, without a launch; then what was there before goes on. */
GPUMAP_C_API gpumap_status gpumap_kernel_run(gpumap_kernel kernel, const gpumap_run_options* options,
                                             gpumap_memory* output);
/* The layout of what gpumap_kernel_run() gives of an input like this one, where `out` is null. INVALID as there; BUSY
 * where other calls take a minute. */
GPUMAP_C_API gpumap_status gpumap_kernel_output(gpumap_kernel kernel, const gpumap_layout* in, gpumap_layout* out);
/* The result words of the oldest launch whose result was not asked for; of those that have ended the last 1024 are
 * kept. `words` has room for `count`, of which gpumap_kernel_info has the number. TIMEOUT: it has not ended. INVALID:
 * the kernel tells none, or nothing was launched. */
GPUMAP_C_API gpumap_status gpumap_kernel_result(gpumap_kernel kernel, uint64_t* words, uint32_t count,
                                                int64_t timeout_ns);

#ifdef __cplusplus
}

template <typename Structure>
inline Structure gpumap_initialised() {
  Structure made{};
  made.struct_size = sizeof made;
  return made;
}
#endif

/* A frame of so many bytes, without times. */
static inline gpumap_frame_info gpumap_frame_of(uint64_t bytes) {
  gpumap_frame_info info = GPUMAP_INIT(gpumap_frame_info);
  info.bytes = bytes;
  info.pts = info.dts = info.duration = GPUMAP_NO_TIME;
  info.offset = info.offset_end = GPUMAP_NO_OFFSET;
  return info;
}

/* Fences: see gpumap_fence. */
static inline gpumap_fence gpumap_cuda_fence(void* stream) {
  gpumap_fence fence = GPUMAP_INIT(gpumap_fence);
  fence.kind = GPUMAP_FENCE_CUDA;
  fence.cuda_stream = stream;
  return fence;
}
static inline gpumap_fence gpumap_counter_fence(const volatile uint64_t* counter, uint64_t value) {
  gpumap_fence fence = GPUMAP_INIT(gpumap_fence);
  fence.kind = GPUMAP_FENCE_COUNTER;
  fence.counter = counter;
  fence.value = value;
  return fence;
}
/* `get_counter`: vkGetSemaphoreCounterValue of that device, cast. */
static inline gpumap_fence gpumap_vulkan_fence(void* device, uint64_t semaphore, void (*get_counter)(void),
                                               uint64_t value) {
  gpumap_fence fence = GPUMAP_INIT(gpumap_fence);
  fence.kind = GPUMAP_FENCE_VULKAN;
  fence.vulkan_device = device;
  fence.vulkan_semaphore = semaphore;
  fence.vulkan_get_counter = get_counter;
  fence.value = value;
  return fence;
}

#endif
