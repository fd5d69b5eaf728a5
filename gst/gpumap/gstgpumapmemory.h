/* SPDX-License-Identifier: MIT */
#ifndef GST_GPUMAP_MEMORY_H
#define GST_GPUMAP_MEMORY_H

#include <gst/gst.h>

G_BEGIN_DECLS

#ifndef GST_GPUMAP_API
#define GST_GPUMAP_API __attribute__((visibility("default"))) extern
#endif

/**
 * SECTION:gstgpumapmemory
 * @title: GstGpumapMemory
 * @short_description: frames in GPU memory that gpumap's elements hand on
 *
 * Buffers under caps with the feature %GST_CAPS_FEATURE_MEMORY_GPUMAP hold one memory each: a slot that the CPU wrote,
 * or the output of a kernel. gst_memory_map() gives the CPU its bytes, by DMA where they lie behind the PCIe BAR. The
 * functions here give a GPU its bytes, where they are.
 *
 * A CUDA user takes four steps: gst_gpumap_memory_get_cuda_address(), in the context of
 * gst_gpumap_memory_get_cuda_context(); gst_gpumap_memory_wait_on_cuda_stream() before its work on a stream of that
 * context; the work; gst_gpumap_memory_add_cuda_reader() behind it. Then it may let go of the memory at once: nobody
 * writes there before the work has ended. The CPU waits nowhere.
 *
 * A Vulkan user imports the memory into a VkDevice of its own with gst_gpumap_memory_export_vulkan(), waits with
 * gst_gpumap_memory_wait(), and keeps a reference to the memory until its work has ended.
 *
 * Slots are shared: write to the memory only where gst_memory_is_writable() says that it may be written, which is so
 * for no slot and for no kernel output that somebody else holds too.
 *
 * Every function may be called from any thread, and with a part of a memory (gst_memory_share()), of which it then
 * speaks.
 */

/**
 * GST_CAPS_FEATURE_MEMORY_GPUMAP:
 *
 * The caps feature of frames in gpumap's memory.
 */
#define GST_CAPS_FEATURE_MEMORY_GPUMAP "memory:GPUMap"

/**
 * GST_GPUMAP_MEMORY_TYPE:
 *
 * What gst_memory_is_type() knows this memory by.
 */
#define GST_GPUMAP_MEMORY_TYPE "GPUMapMemory"

/**
 * gst_is_gpumap_memory:
 * @memory: (nullable): a #GstMemory
 *
 * Returns: whether @memory is gpumap's; %FALSE for %NULL.
 */
GST_GPUMAP_API gboolean gst_is_gpumap_memory(GstMemory* memory);

/**
 * gst_gpumap_memory_get_cuda_address:
 * @memory: gpumap's memory
 *
 * The address of the first byte for kernels and copies in the context of gst_gpumap_memory_get_cuda_context(). It is no
 * address for the CPU.
 *
 * Returns: a CUdeviceptr; 0 where the memory is not to be had in CUDA.
 */
GST_GPUMAP_API guint64 gst_gpumap_memory_get_cuda_address(GstMemory* memory);

/**
 * gst_gpumap_memory_get_cuda_context:
 * @memory: gpumap's memory
 *
 * Returns: (transfer none) (nullable): the CUcontext in which the address means something, the primary one of its GPU;
 *   it lives as long as the memory. %NULL where there is no CUDA.
 */
GST_GPUMAP_API gpointer gst_gpumap_memory_get_cuda_context(GstMemory* memory);

/**
 * gst_gpumap_memory_get_cuda_device:
 * @memory: gpumap's memory
 *
 * Returns: CUDA's ordinal of the GPU (cudaSetDevice()); -1 where CUDA does not see it.
 */
GST_GPUMAP_API gint gst_gpumap_memory_get_cuda_device(GstMemory* memory);

/**
 * gst_gpumap_memory_get_device_uuid:
 * @memory: gpumap's memory
 *
 * Returns: (transfer full) (nullable): the UUID of the device, in lower case and with dashes, as the elements' property
 *   "device" takes it; free it with g_free(). %NULL for memory that is on no device.
 */
GST_GPUMAP_API gchar* gst_gpumap_memory_get_device_uuid(GstMemory* memory);

/**
 * gst_gpumap_memory_wait_on_cuda_stream:
 * @memory: gpumap's memory
 * @stream: (nullable): a CUstream of the memory's context; %NULL: CUDA's default stream
 * @error: where an error is to be put
 *
 * Has @stream wait for what still fills the memory: the GPU waits for work of CUDA, the CPU for work of Vulkan, and for
 * 30 s at most.
 *
 * Returns: %FALSE with @error set (#GstResourceError) where there is no CUDA, where the stream is another context's,
 *   where the GPU is lost, and where the wait took too long.
 */
GST_GPUMAP_API gboolean gst_gpumap_memory_wait_on_cuda_stream(GstMemory* memory, gpointer stream, GError** error);

/**
 * gst_gpumap_memory_add_cuda_reader:
 * @memory: gpumap's memory
 * @stream: (nullable): a CUstream of the memory's context; %NULL: CUDA's default stream
 * @error: where an error is to be put
 *
 * Has the memory keep its bytes until all that @stream has been given so far is done, also where the last reference to
 * it goes before. Does not block.
 *
 * Returns: %FALSE with @error set (#GstResourceError) as gst_gpumap_memory_wait_on_cuda_stream().
 */
GST_GPUMAP_API gboolean gst_gpumap_memory_add_cuda_reader(GstMemory* memory, gpointer stream, GError** error);

/**
 * gst_gpumap_memory_wait:
 * @memory: gpumap's memory
 * @timeout: how long to wait at most, in nanoseconds
 * @error: where an error is to be put
 *
 * Has the CPU wait until the memory is filled.
 *
 * Returns: %FALSE where @timeout is over, and with @error set (#GstResourceError) where the GPU is lost.
 */
GST_GPUMAP_API gboolean gst_gpumap_memory_wait(GstMemory* memory, GstClockTime timeout, GError** error);

/**
 * gst_gpumap_memory_get_cpu_address:
 * @memory: gpumap's memory
 *
 * The address of the first byte for the CPU where the CPU is the device (lavapipe): the memory itself, of which
 * gst_memory_map() gives a copy. Read there once gst_gpumap_memory_wait() has returned %TRUE, and write nothing.
 *
 * Returns: (transfer none) (nullable): the address, which is good as long as the memory lives; %NULL on GPUs, and for
 *   memory that the CPU does not see.
 */
GST_GPUMAP_API gpointer gst_gpumap_memory_get_cpu_address(GstMemory* memory);

/**
 * GstGpumapVulkanExport:
 * @fd: a file descriptor (VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT), which an import takes over; close it otherwise
 * @allocation_size: bytes of the VkDeviceMemory
 * @buffer_size: bytes of the VkBuffer, which is bound at 0 and has storage and transfer usage
 * @offset: where in the buffer the memory's first byte is
 * @memory_type_index: the index of its memory type
 *
 * A dedicated VkDeviceMemory with one buffer on it, as another VkDevice of the same GPU and driver imports it.
 */
typedef struct _GstGpumapVulkanExport GstGpumapVulkanExport;
struct _GstGpumapVulkanExport {
  gint fd;
  guint64 allocation_size;
  guint64 buffer_size;
  guint64 offset;
  guint32 memory_type_index;

  /*< private >*/
  gpointer _gst_reserved[GST_PADDING];
};

/**
 * gst_gpumap_memory_export_vulkan:
 * @memory: gpumap's memory
 * @exported: (out caller-allocates): what to import
 * @error: where an error is to be put
 *
 * Slots of one ring share one VkDeviceMemory: import it once, and ask again where the ring has changed.
 *
 * Returns: %FALSE with @error set (#GstResourceError) for memory that Vulkan cannot export: host memory, and memory of
 *   another process on some drivers.
 */
GST_GPUMAP_API gboolean gst_gpumap_memory_export_vulkan(GstMemory* memory, GstGpumapVulkanExport* exported,
                                                        GError** error);

G_END_DECLS

#endif /* GST_GPUMAP_MEMORY_H */
