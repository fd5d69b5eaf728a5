/* SPDX-License-Identifier: MIT
 * Between this library and the plugin, whose allocator is the one class below GstGpumapAllocator. Not installed. */
#ifndef GST_GPUMAP_ALLOCATOR_PRIVATE_H
#define GST_GPUMAP_ALLOCATOR_PRIVATE_H

#include <gst/gpumap/gstgpumapmemory.h>

G_BEGIN_DECLS

typedef struct _GstGpumapAllocator GstGpumapAllocator;
typedef struct _GstGpumapAllocatorClass GstGpumapAllocatorClass;

struct _GstGpumapAllocator {
  GstAllocator parent;
};

/* Each is the function of that name in gstgpumapmemory.h, for memory of this allocator. New ones go to the end, and
 * take a reserved place. */
struct _GstGpumapAllocatorClass {
  GstAllocatorClass parent_class;
  guint64 (*get_cuda_address)(GstMemory* memory);
  gpointer (*get_cuda_context)(GstMemory* memory);
  gint (*get_cuda_device)(GstMemory* memory);
  gchar* (*get_device_uuid)(GstMemory* memory);
  gboolean (*wait_on_cuda_stream)(GstMemory* memory, gpointer stream, GError** error);
  gboolean (*add_cuda_reader)(GstMemory* memory, gpointer stream, GError** error);
  gboolean (*wait)(GstMemory* memory, GstClockTime timeout, GError** error);
  gboolean (*export_vulkan)(GstMemory* memory, GstGpumapVulkanExport* exported, GError** error);
  gpointer (*get_cpu_address)(GstMemory* memory);
  gpointer _reserved[15];
};

GST_GPUMAP_API GType gst_gpumap_allocator_get_type(void);

G_END_DECLS

#endif /* GST_GPUMAP_ALLOCATOR_PRIVATE_H */
