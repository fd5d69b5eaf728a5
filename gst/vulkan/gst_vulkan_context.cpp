// SPDX-License-Identifier: MIT
#include "gst/vulkan/gst_vulkan_context.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "gpumap/error.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/runtime_library.hpp"

namespace gpumap::gst {

namespace {

GstVulkanLibrary open_library() {
  GstVulkanLibrary made;
  RuntimeLibrary library("libgstvulkan-1.0.so.0");
#define GPUMAP_GST_VULKAN_LOAD(result, name, ...) library.find(#name, made.name);
  GPUMAP_GST_VULKAN(GPUMAP_GST_VULKAN_LOAD)
#undef GPUMAP_GST_VULKAN_LOAD
  void (*init_memory)() = nullptr;
  void (*init_buffers)() = nullptr;
  void (*init_images)() = nullptr;
  library.find("gst_vulkan_memory_init_once", init_memory);
  library.find("gst_vulkan_buffer_memory_init_once", init_buffers);
  library.find("gst_vulkan_image_memory_init_once", init_images);
  made.problem = library.problem("libgstreamer-plugins-bad1.0-0 and gstreamer1.0-plugins-bad", "1.22");
  if (!made.problem.empty()) return made;
  // It came together with the timelines.
  void (*with_timelines)() = nullptr;
  library.find("gst_vulkan_operation_new", with_timelines);
  made.has_semaphores = with_timelines != nullptr;
  init_memory();
  init_buffers();
  init_images();
  return made;
}

}  // namespace

const GstVulkanLibrary& GstVulkanLibrary::get() {
  static const auto* const library = new GstVulkanLibrary(open_library());
  return *library;
}

VulkanWork work_on(const GstVulkanImageMemory& memory) {
  if (!GstVulkanLibrary::get().has_semaphores) return {};
  const GstVulkanBarrier24& barrier = memory.barrier24.parent;
  return {barrier.semaphore, barrier.semaphore_value};
}

VulkanWork work_on(const GstVulkanBufferMemory& memory) {
  if (!GstVulkanLibrary::get().has_semaphores) return {};
  return {memory.barrier24.semaphore, memory.barrier24.semaphore_value};
}

VulkanImageState state_of(const GstVulkanImageMemory& memory) {
  if (GstVulkanLibrary::get().has_semaphores) {
    return {memory.barrier24.image_layout, memory.barrier24.subresource_range};
  }
  return {memory.barrier22.image_layout, memory.barrier22.subresource_range};
}

void set_transferred(GstVulkanImageMemory& memory, VkImageLayout layout, VkAccessFlags access) {
  const auto set = [&](auto& barrier) {
    barrier.parent.pipeline_stages = VK_PIPELINE_STAGE_TRANSFER_BIT;
    barrier.parent.access_flags = access;
    barrier.image_layout = layout;
  };
  if (GstVulkanLibrary::get().has_semaphores) {
    set(memory.barrier24);
  } else {
    set(memory.barrier22);
  }
}

namespace {

constexpr const char* import_extension = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;

bool is_on(const GstVulkanDevice& device, const Uuid& uuid) {
  const auto get = vulkan_function<PFN_vkGetPhysicalDeviceProperties2>(device, "vkGetPhysicalDeviceProperties2");
  if (get == nullptr) return false;
  VkPhysicalDeviceIDProperties id{};
  id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
  VkPhysicalDeviceProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = &id;
  auto* made = const_cast<GstVulkanDevice*>(&device);
  get(GstVulkanLibrary::get().gst_vulkan_device_get_physical_device(made), &properties);
  return std::equal(uuid.begin(), uuid.end(), std::begin(id.deviceUUID));
}

/// A queue that draws can copy, too, and is the one that GStreamer's elements choose. Null where there is none.
GstVulkanQueue* drawing_queue(GstVulkanDevice* device) {
  const auto get = vulkan_function<PFN_vkGetPhysicalDeviceQueueFamilyProperties>(
      *device, "vkGetPhysicalDeviceQueueFamilyProperties");
  if (get == nullptr) return nullptr;
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  VkPhysicalDevice physical = library.gst_vulkan_device_get_physical_device(device);
  guint32 count = 0;
  get(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  get(physical, &count, families.data());
  const auto draws = [](const VkQueueFamilyProperties& family) {
    return (family.queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0;
  };
  const auto found = std::find_if(families.begin(), families.end(), draws);
  if (found == families.end()) return nullptr;
  return library.gst_vulkan_device_get_queue(device, static_cast<guint32>(found - families.begin()), 0);
}

struct Shared {
  GstVulkanInstance* instance = nullptr;
  GstVulkanDevice* device = nullptr;  ///< null: none can be made
  GstVulkanQueue* queue = nullptr;
};

Shared make_shared_objects(const Device& device) {
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  if (!library.problem.empty()) return {};
  Shared made;
  made.instance = library.gst_vulkan_instance_new();
  if (!library.gst_vulkan_instance_open(made.instance, nullptr)) return {};
  for (guint i = 0; i < made.instance->n_physical_devices && made.queue == nullptr; ++i) {
    GstVulkanDevice* one = library.gst_vulkan_device_new_with_index(made.instance, i);
    if (is_on(*one, device.info().uuid)) {
      library.gst_vulkan_device_enable_extension(one, import_extension);
      if (library.gst_vulkan_device_open(one, nullptr)) made.queue = drawing_queue(one);
    }
    if (made.queue != nullptr) {
      made.device = one;
    } else {
      gst_object_unref(one);
    }
  }
  return made;
}

/// For the life of the process: elements may keep them for as long.
const Shared& shared_objects(const Device& device) {
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::map<Uuid, Shared>;
  const std::lock_guard lock(*mutex);
  const auto found = all->find(device.info().uuid);
  if (found != all->end()) return found->second;
  return all->emplace(device.info().uuid, make_shared_objects(device)).first->second;
}

/// What `context` (may be null) holds; null: nothing.
template <typename Held, typename Get>
Ptr<Held> held_by(const Ptr<GstContext>& context, Get get) {
  Held* held = nullptr;
  return Ptr<Held>(context && get(context.get(), &held) ? held : nullptr);
}

/// The context that is set on `element` names other objects than ours.
bool is_given_others(GstElement* element, const Shared& ours) {
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  const Ptr<GstContext> of_instance(gst_element_get_context(element, vulkan_instance_type));
  const Ptr<GstContext> of_device(gst_element_get_context(element, vulkan_device_type));
  const auto instance = held_by<GstVulkanInstance>(of_instance, library.gst_context_get_vulkan_instance);
  const auto device = held_by<GstVulkanDevice>(of_device, library.gst_context_get_vulkan_device);
  return (instance && instance.get() != ours.instance) || (device && device.get() != ours.device);
}

/// What the elements linked to `pad` say; null: nothing.
template <typename Held, typename Get>
Ptr<Held> asked_of_peer(GstPad* pad, const char* type, Get get) {
  const Ptr<GstQuery> query(gst_query_new_context(type));
  GstContext* context = nullptr;
  if (gst_pad_peer_query(pad, query.get()) != 0) gst_query_parse_context(query.get(), &context);
  return held_by<Held>(Ptr<GstContext>(context != nullptr ? gst_context_ref(context) : nullptr), get);
}

}  // namespace

bool answer_vulkan_context(GstElement* element, GstQuery* query, const Device& device) {
  const gchar* type = nullptr;
  gst_query_parse_context_type(query, &type);
  if (type == nullptr || !g_str_has_prefix(type, "gst.vulkan.")) return false;
  const Shared& shared = shared_objects(device);
  if (shared.device == nullptr || is_given_others(element, shared)) return false;
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  return library.gst_vulkan_instance_handle_context_query(element, query, shared.instance) != 0 ||
         library.gst_vulkan_device_handle_context_query(element, query, shared.device) != 0 ||
         library.gst_vulkan_queue_handle_context_query(element, query, shared.queue) != 0;
}

VulkanSite site_on(GstVulkanDevice* device, GstPad* pad) {
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  VulkanSite site;
  site.device.reset(static_cast<GstVulkanDevice*>(gst_object_ref(device)));
  site.queue = asked_of_peer<GstVulkanQueue>(pad, vulkan_queue_type, library.gst_context_get_vulkan_queue);
  if (!site.queue || site.queue->device != device) site.queue.reset(drawing_queue(device));
  if (!site.queue) {
    throw Error(ErrorCode::not_supported,
                "the Vulkan device that came with a frame has no queue for graphics: see what made that device");
  }
  return site;
}

VulkanSite site_of_peer(GstPad* pad, const Device& device) {
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  if (!library.problem.empty()) {
    throw Error(ErrorCode::not_supported, "memory:VulkanImage cannot be given or taken here: " + library.problem);
  }
  const auto theirs = asked_of_peer<GstVulkanDevice>(pad, vulkan_device_type, library.gst_context_get_vulkan_device);
  if (theirs) return site_on(theirs.get(), pad);
  const Shared& shared = shared_objects(device);
  if (shared.device == nullptr) {
    throw Error(ErrorCode::not_supported,
                "libgstvulkan makes no Vulkan device on " + name_of(device.info()) +
                    ": GST_DEBUG=vulkan*:4 tells why; or ask for system memory (video/x-raw)");
  }
  VulkanSite site;
  site.device.reset(static_cast<GstVulkanDevice*>(gst_object_ref(shared.device)));
  site.queue.reset(static_cast<GstVulkanQueue*>(gst_object_ref(shared.queue)));
  return site;
}

GstVulkanDevice* vulkan_device_of(GstBuffer* buffer) {
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  if (!library.problem.empty() || gst_buffer_n_memory(buffer) == 0) return nullptr;
  GstMemory* memory = gst_buffer_peek_memory(buffer, 0);
  if (library.gst_is_vulkan_image_memory(memory) != 0) return reinterpret_cast<GstVulkanImageMemory*>(memory)->device;
  if (library.gst_is_vulkan_buffer_memory(memory) != 0) return reinterpret_cast<GstVulkanBufferMemory*>(memory)->device;
  return nullptr;
}

bool shares_memory(const VulkanSite& site, const Device& device) {
  return GstVulkanLibrary::get().gst_vulkan_device_is_extension_enabled(site.device.get(), import_extension) != 0 &&
         is_on(*site.device, device.info().uuid);
}

namespace {

// libgstvulkan ends the process for formats that it does not know. Those here it has an image for from 1.22 on, and
// each GPU can copy. Buffers have no room between rows, whatever the caps say: so they are offered where none is to be.
constexpr const char* vulkan_caps =
    "video/x-raw(memory:VulkanImage), format={ RGBA, BGRA, RGBx, BGRx, NV12 }; "
    "video/x-raw(memory:VulkanBuffer), format={ RGBA, BGRA, RGBx, BGRx, NV12 }, width=[4,2147483644,4]";

}  // namespace

bool is_vulkan_caps(const GstCaps* caps) {
  return std::any_of(vulkan_feature_names.begin(), vulkan_feature_names.end(),
                     [caps](const char* name) { return begins_with_feature(caps, name); });
}

GstCaps* offer_vulkan(GstCaps* caps) {
  if (gst_caps_is_any(caps)) return caps;
  const Ptr<GstCaps> given(caps);
  // Before system memory, behind that of other GPU elements.
  GstCaps* offered = structures_if(caps, [](const GstCapsFeatures* features) { return !is_system_memory(features); });
  gst_caps_append(offered, gpu_caps_as(caps, {vulkan_feature_names[0], vulkan_feature_names[1]}, vulkan_caps));
  gst_caps_append(offered, structures_if(caps, is_system_memory));
  return offered;
}

}  // namespace gpumap::gst
