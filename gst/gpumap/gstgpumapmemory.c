/* SPDX-License-Identifier: MIT
 * Plain C: what is known of a memory, the plugin's allocator knows. */
#include "gst/gpumap/gstgpumapallocator-private.h"

#define MEMORY_CLASS(memory) ((GstGpumapAllocatorClass*)G_OBJECT_GET_CLASS((memory)->allocator))

G_DEFINE_ABSTRACT_TYPE(GstGpumapAllocator, gst_gpumap_allocator, GST_TYPE_ALLOCATOR)

static void gst_gpumap_allocator_class_init(GstGpumapAllocatorClass* klass) {
  (void)klass;
}

static void gst_gpumap_allocator_init(GstGpumapAllocator* self) {
  GST_ALLOCATOR_CAST(self)->mem_type = GST_GPUMAP_MEMORY_TYPE;
}

gboolean gst_is_gpumap_memory(GstMemory* memory) {
  return memory != NULL && memory->allocator != NULL &&
         G_TYPE_CHECK_INSTANCE_TYPE(memory->allocator, gst_gpumap_allocator_get_type());
}

guint64 gst_gpumap_memory_get_cuda_address(GstMemory* memory) {
  g_return_val_if_fail(gst_is_gpumap_memory(memory), 0);
  return MEMORY_CLASS(memory)->get_cuda_address(memory);
}

gpointer gst_gpumap_memory_get_cuda_context(GstMemory* memory) {
  g_return_val_if_fail(gst_is_gpumap_memory(memory), NULL);
  return MEMORY_CLASS(memory)->get_cuda_context(memory);
}

gint gst_gpumap_memory_get_cuda_device(GstMemory* memory) {
  g_return_val_if_fail(gst_is_gpumap_memory(memory), -1);
  return MEMORY_CLASS(memory)->get_cuda_device(memory);
}

gchar* gst_gpumap_memory_get_device_uuid(GstMemory* memory) {
  g_return_val_if_fail(gst_is_gpumap_memory(memory), NULL);
  return MEMORY_CLASS(memory)->get_device_uuid(memory);
}

gboolean gst_gpumap_memory_wait_on_cuda_stream(GstMemory* memory, gpointer stream, GError** error) {
  g_return_val_if_fail(gst_is_gpumap_memory(memory), FALSE);
  g_return_val_if_fail(error == NULL || *error == NULL, FALSE);
  return MEMORY_CLASS(memory)->wait_on_cuda_stream(memory, stream, error);
}

gboolean gst_gpumap_memory_add_cuda_reader(GstMemory* memory, gpointer stream, GError** error) {
  g_return_val_if_fail(gst_is_gpumap_memory(memory), FALSE);
  g_return_val_if_fail(error == NULL || *error == NULL, FALSE);
  return MEMORY_CLASS(memory)->add_cuda_reader(memory, stream, error);
}

gboolean gst_gpumap_memory_wait(GstMemory* memory, GstClockTime timeout, GError** error) {
  g_return_val_if_fail(gst_is_gpumap_memory(memory), FALSE);
  g_return_val_if_fail(error == NULL || *error == NULL, FALSE);
  return MEMORY_CLASS(memory)->wait(memory, timeout, error);
}

gpointer gst_gpumap_memory_get_cpu_address(GstMemory* memory) {
  g_return_val_if_fail(gst_is_gpumap_memory(memory), NULL);
  /* An older plugin has none. */
  return MEMORY_CLASS(memory)->get_cpu_address != NULL ? MEMORY_CLASS(memory)->get_cpu_address(memory) : NULL;
}

gboolean gst_gpumap_memory_export_vulkan(GstMemory* memory, GstGpumapVulkanExport* exported, GError** error) {
  g_return_val_if_fail(gst_is_gpumap_memory(memory), FALSE);
  g_return_val_if_fail(exported != NULL, FALSE);
  g_return_val_if_fail(error == NULL || *error == NULL, FALSE);
  return MEMORY_CLASS(memory)->export_vulkan(memory, exported, error);
}
