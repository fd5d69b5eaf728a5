// SPDX-License-Identifier: MIT
#include "device/vulkan_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/unique_fd.hpp"
#include "device/vulkan_span.hpp"
#include "gpumap/device.hpp"
#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"

namespace gpumap {
namespace {

constexpr const char* validation_layer = "VK_LAYER_KHRONOS_validation";
std::atomic<std::uint64_t> validation_messages{0};

bool validation_wanted() {
  const char* value = std::getenv("GPUMAP_VALIDATION");
  return value != nullptr && std::string_view(value) == "1";
}

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
  constexpr std::array ignored{
      // Exported memory under a buffer not declared external: the only way to NVIDIA's BAR memory, see
      // vulkan_allocation.cpp.
      std::string_view("VUID-vkBindBufferMemory-memory-02726"),
      // The layer (1.4.309) knows exported memory by the number of its descriptor, and not that this was closed: in a
      // process that is both sides of a link the memory that comes in next may have that number.
      std::string_view("VUID-VkMemoryAllocateInfo-allocationSize-01742"),
      std::string_view("VUID-VkMemoryDedicatedAllocateInfo-buffer-01879"),
  };
  if (data->pMessageIdName != nullptr &&
      std::ranges::find(ignored, std::string_view(data->pMessageIdName)) != ignored.end()) {
    return VK_FALSE;
  }
  validation_messages.fetch_add(1, std::memory_order_relaxed);
  // Not by fmt::print(), which throws where standard error is closed: through Vulkan's C.
  std::fprintf(stderr, "gpumap: Vulkan validation: %s\n", printable(data->pMessage, "\n\t").c_str());
  return VK_FALSE;
}

bool has_layer(const vk::raii::Context& context, const char* name) {
  for (const auto& layer : context.enumerateInstanceLayerProperties()) {
    if (std::strcmp(layer.layerName.data(), name) == 0) return true;
  }
  return false;
}

vk::raii::Context open_loader() {
  try {
    return vk::raii::Context();
  } catch (const std::exception&) {
    throw Error(ErrorCode::no_driver, "no Vulkan: libvulkan.so.1 was not found: install libvulkan1");
  }
}

}  // namespace

std::uint64_t validation_message_count() noexcept {
  return validation_messages.load(std::memory_order_relaxed);
}

VulkanInstance& VulkanInstance::get() {
  // Never destroyed: drivers do not like to be torn down by exit(), and what they hold stays reachable from here.
  static std::mutex mutex;
  static VulkanInstance* instance = nullptr;
  const std::lock_guard lock(mutex);
  if (instance != nullptr) return *instance;
  try {
    instance = new VulkanInstance;
  } catch (const Error&) {
    check_descriptors("Vulkan", "opening it");
    throw;
  }
  return *instance;
}

VulkanInstance::VulkanInstance() : context_(open_loader()) {
  const bool validate = validation_wanted();
  std::vector<const char*> layers;
  std::vector<const char*> extensions;
  try {
    if (validate) {
      if (!has_layer(context_, validation_layer)) {
        throw Error(ErrorCode::no_driver, fmt::format("GPUMAP_VALIDATION=1 but Vulkan has no {}: install "
                                                      "vulkan-validationlayers, or unset GPUMAP_VALIDATION",
                                                      validation_layer));
      }
      layers.push_back(validation_layer);
      extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    }
    const vk::ApplicationInfo application("gpumap", 1, "gpumap", 1, VK_API_VERSION_1_3);
    instance_ = vk::raii::Instance(context_, vk::InstanceCreateInfo({}, &application, layers, extensions));
    if (validate) {
      // Vulkan's own structure: Vulkan-Hpp's has had two types for the callback.
      VkDebugUtilsMessengerCreateInfoEXT messenger{};
      messenger.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
      messenger.messageSeverity =
          VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
      messenger.messageType =
          VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
      messenger.pfnUserCallback = &on_message;
      messenger_ = vk::raii::DebugUtilsMessengerEXT(instance_, vk::DebugUtilsMessengerCreateInfoEXT(messenger));
    }
    for (auto& device : vk::raii::PhysicalDevices(instance_)) devices_.push_back(std::move(device));
  } catch (const vk::IncompatibleDriverError&) {
    throw Error(ErrorCode::no_driver,
                "no Vulkan driver: the loader found no installable client driver: install the GPU's Vulkan driver, or "
                "mesa-vulkan-drivers for one in software (VK_DRIVER_FILES and VK_ICD_FILENAMES choose drivers too)");
  } catch (const vk::SystemError& error) {
    throw Error(ErrorCode::no_driver,
                fmt::format("no Vulkan driver works: {}: install the GPU's Vulkan driver, or mesa-vulkan-drivers for "
                            "one in software",
                            error.what()));
  }
}

std::string missing_features(const vk::raii::PhysicalDevice& device) {
  if (device.getProperties().apiVersion < VK_API_VERSION_1_2) return "Vulkan 1.2";
  const auto chain = device.getFeatures2<vk::PhysicalDeviceFeatures2, vk::PhysicalDeviceVulkan12Features>();
  const auto& core = chain.get<vk::PhysicalDeviceFeatures2>().features;
  const auto& v12 = chain.get<vk::PhysicalDeviceVulkan12Features>();
  std::string missing;
  const auto need = [&missing](vk::Bool32 has, const char* name) {
    if (has == VK_FALSE) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  need(v12.timelineSemaphore, "timelineSemaphore");
  need(v12.bufferDeviceAddress, "bufferDeviceAddress");
  need(v12.storageBuffer8BitAccess, "storageBuffer8BitAccess");
  need(v12.shaderInt8, "shaderInt8");
  need(v12.scalarBlockLayout, "scalarBlockLayout");
  need(core.shaderInt64, "shaderInt64");
  return missing;
}

bool has_extension(const vk::raii::PhysicalDevice& device, const char* name) {
  for (const auto& extension : device.enumerateDeviceExtensionProperties()) {
    if (std::strcmp(extension.extensionName.data(), name) == 0) return true;
  }
  return false;
}

std::uint32_t window_heaps(const vk::PhysicalDeviceMemoryProperties& memory) {
  constexpr auto wanted = vk::MemoryPropertyFlagBits::eDeviceLocal | vk::MemoryPropertyFlagBits::eHostVisible;
  std::uint32_t heaps = 0;
  for (std::uint32_t type = 0; type < memory.memoryTypeCount; ++type) {
    if ((memory.memoryTypes[type].propertyFlags & wanted) == wanted) heaps |= 1U << memory.memoryTypes[type].heapIndex;
  }
  return heaps;
}

std::vector<std::uint64_t> heap_budgets(const vk::raii::PhysicalDevice& device, bool has_budget) {
  std::vector<std::uint64_t> free;
  if (!has_budget) {
    const auto memory = device.getMemoryProperties();
    for (std::uint32_t heap = 0; heap < memory.memoryHeapCount; ++heap) free.push_back(memory.memoryHeaps[heap].size);
    return free;
  }
  const auto chain =
      device.getMemoryProperties2<vk::PhysicalDeviceMemoryProperties2, vk::PhysicalDeviceMemoryBudgetPropertiesEXT>();
  const auto& memory = chain.get<vk::PhysicalDeviceMemoryProperties2>().memoryProperties;
  const auto& budget = chain.get<vk::PhysicalDeviceMemoryBudgetPropertiesEXT>();
  for (std::uint32_t heap = 0; heap < memory.memoryHeapCount; ++heap) {
    free.push_back(budget.heapBudget[heap] > budget.heapUsage[heap] ? budget.heapBudget[heap] - budget.heapUsage[heap]
                                                                    : 0);
  }
  return free;
}

namespace {

/// What gpumap enables of a device: what it needs, and what shaders may use where the device has it.
class VulkanFeatures {
 public:
  explicit VulkanFeatures(const vk::raii::PhysicalDevice& physical);
  VulkanFeatures(const VulkanFeatures&) = delete;
  VulkanFeatures& operator=(const VulkanFeatures&) = delete;

  /// For vk::DeviceCreateInfo; lives as long as this.
  [[nodiscard]] const vk::PhysicalDeviceFeatures2& chain() const { return chain_.get<vk::PhysicalDeviceFeatures2>(); }
  [[nodiscard]] const std::vector<const char*>& extensions() const noexcept { return extensions_; }

  /// SpvCapability values that a shader may declare; what another one means on this device is undefined.
  [[nodiscard]] const std::vector<std::uint32_t>& capabilities() const noexcept { return capabilities_; }

 private:
  void allow_arithmetic(const vk::raii::PhysicalDevice& physical);
  void allow_float_atomics(const vk::raii::PhysicalDevice& physical);
  void allow_subgroups(const vk::PhysicalDeviceVulkan11Properties& properties);
  void allow_float_controls(const vk::PhysicalDeviceVulkan12Properties& properties);

  vk::StructureChain<vk::PhysicalDeviceFeatures2, vk::PhysicalDeviceVulkan11Features,
                     vk::PhysicalDeviceVulkan12Features, vk::PhysicalDeviceMaintenance4Features,
                     vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT>
      chain_;
  std::vector<const char*> extensions_;
  std::vector<std::uint32_t> capabilities_;
};

// Which feature or property allows which capability says the Vulkan specification, appendix "Vulkan Environment for
// SPIR-V". The numbers are those of the SPIR-V specification, section 3.31.

// Matrix, Shader, Int64, Int8, Sampled1D, Image1D, SampledBuffer, ImageBuffer, ImageQuery, DeviceGroup,
// StorageBuffer8BitAccess, PhysicalStorageBufferAddresses: Vulkan's own, and what gpumap requires of a device.
constexpr std::array<std::uint32_t, 12> always{0, 1, 11, 39, 43, 44, 46, 47, 50, 4437, 4448, 5347};

VulkanFeatures::VulkanFeatures(const vk::raii::PhysicalDevice& physical) : capabilities_(always.begin(), always.end()) {
  chain_.get<vk::PhysicalDeviceFeatures2>().features.shaderInt64 = VK_TRUE;
  auto& v12 = chain_.get<vk::PhysicalDeviceVulkan12Features>();
  v12.timelineSemaphore = VK_TRUE;
  v12.bufferDeviceAddress = VK_TRUE;
  v12.storageBuffer8BitAccess = VK_TRUE;
  v12.shaderInt8 = VK_TRUE;
  v12.scalarBlockLayout = VK_TRUE;
  if (physical.getProperties().apiVersion < VK_API_VERSION_1_3) {
    chain_.unlink<vk::PhysicalDeviceMaintenance4Features>();
  } else {
    chain_.get<vk::PhysicalDeviceMaintenance4Features>().maintenance4 = VK_TRUE;  // LocalSizeId
  }
  allow_arithmetic(physical);
  allow_float_atomics(physical);
  const auto properties = physical.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceVulkan11Properties,
                                                  vk::PhysicalDeviceVulkan12Properties>();
  allow_subgroups(properties.get<vk::PhysicalDeviceVulkan11Properties>());
  allow_float_controls(properties.get<vk::PhysicalDeviceVulkan12Properties>());
}

void VulkanFeatures::allow_arithmetic(const vk::raii::PhysicalDevice& physical) {
  const auto has = physical.getFeatures2<vk::PhysicalDeviceFeatures2, vk::PhysicalDeviceVulkan11Features,
                                         vk::PhysicalDeviceVulkan12Features>();
  const auto& has_core = has.get<vk::PhysicalDeviceFeatures2>().features;
  const auto& has_11 = has.get<vk::PhysicalDeviceVulkan11Features>();
  const auto& has_12 = has.get<vk::PhysicalDeviceVulkan12Features>();
  auto& core = chain_.get<vk::PhysicalDeviceFeatures2>().features;
  auto& v11 = chain_.get<vk::PhysicalDeviceVulkan11Features>();
  auto& v12 = chain_.get<vk::PhysicalDeviceVulkan12Features>();
  const auto enable = [this](vk::Bool32 has_it, std::initializer_list<vk::Bool32*> features,
                             std::initializer_list<std::uint32_t> capabilities) {
    if (has_it == VK_FALSE) return;
    for (vk::Bool32* feature : features) *feature = VK_TRUE;
    capabilities_.insert(capabilities_.end(), capabilities);
  };
  enable(has_core.shaderInt16 & has_11.storageBuffer16BitAccess, {&core.shaderInt16, &v11.storageBuffer16BitAccess},
         {22, 4433});                                           // Int16, StorageBuffer16BitAccess
  enable(has_12.shaderFloat16, {&v12.shaderFloat16}, {9});      // Float16
  enable(has_core.shaderFloat64, {&core.shaderFloat64}, {10});  // Float64
  // Of atomics a capability does not tell whether they are on buffers or on shared memory, which fewer devices have.
  enable(has_12.shaderBufferInt64Atomics, {&v12.shaderBufferInt64Atomics}, {12});  // Int64Atomics
  v12.shaderSharedInt64Atomics = has_12.shaderSharedInt64Atomics;
  enable(has_11.variablePointersStorageBuffer, {&v11.variablePointersStorageBuffer}, {4441});
  enable(has_11.variablePointersStorageBuffer & has_11.variablePointers, {&v11.variablePointers}, {4442});
  enable(has_12.vulkanMemoryModel & has_12.vulkanMemoryModelDeviceScope,
         {&v12.vulkanMemoryModel, &v12.vulkanMemoryModelDeviceScope},
         {5345, 5346});  // VulkanMemoryModel, VulkanMemoryModelDeviceScope
}

void VulkanFeatures::allow_float_atomics(const vk::raii::PhysicalDevice& physical) {
  using Atomics = vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT;
  if (!has_extension(physical, VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME)) {
    chain_.unlink<Atomics>();
    return;
  }
  extensions_.push_back(VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME);
  const auto has = physical.getFeatures2<vk::PhysicalDeviceFeatures2, Atomics>().get<Atomics>();
  auto& atomics = chain_.get<Atomics>();
  atomics.shaderBufferFloat32Atomics = has.shaderBufferFloat32Atomics;
  atomics.shaderSharedFloat32Atomics = has.shaderSharedFloat32Atomics;
  atomics.shaderBufferFloat64Atomics = has.shaderBufferFloat64Atomics;
  atomics.shaderSharedFloat64Atomics = has.shaderSharedFloat64Atomics;
  atomics.shaderBufferFloat32AtomicAdd = has.shaderBufferFloat32AtomicAdd;
  atomics.shaderSharedFloat32AtomicAdd = has.shaderSharedFloat32AtomicAdd;
  atomics.shaderBufferFloat64AtomicAdd = has.shaderBufferFloat64AtomicAdd;
  atomics.shaderSharedFloat64AtomicAdd = has.shaderSharedFloat64AtomicAdd;
  if (has.shaderBufferFloat32AtomicAdd != VK_FALSE) capabilities_.push_back(6033);  // AtomicFloat32AddEXT
  if (has.shaderBufferFloat64AtomicAdd != VK_FALSE) capabilities_.push_back(6034);  // AtomicFloat64AddEXT
}

void VulkanFeatures::allow_subgroups(const vk::PhysicalDeviceVulkan11Properties& properties) {
  if (!(properties.subgroupSupportedStages & vk::ShaderStageFlagBits::eCompute)) return;
  using Operation = vk::SubgroupFeatureFlagBits;
  // GroupNonUniform and what follows it.
  constexpr std::array<std::pair<Operation, std::uint32_t>, 8> operations{{{Operation::eBasic, 61},
                                                                           {Operation::eVote, 62},
                                                                           {Operation::eArithmetic, 63},
                                                                           {Operation::eBallot, 64},
                                                                           {Operation::eShuffle, 65},
                                                                           {Operation::eShuffleRelative, 66},
                                                                           {Operation::eClustered, 67},
                                                                           {Operation::eQuad, 68}}};
  for (const auto& [operation, capability] : operations) {
    if (properties.subgroupSupportedOperations & operation) capabilities_.push_back(capability);
  }
}

void VulkanFeatures::allow_float_controls(const vk::PhysicalDeviceVulkan12Properties& properties) {
  const vk::PhysicalDeviceVulkan12Properties& has = properties;
  // A shader may ask for each of them with any width of float.
  const std::array<std::array<vk::Bool32, 3>, 5> controls{{
      {has.shaderDenormPreserveFloat16, has.shaderDenormPreserveFloat32, has.shaderDenormPreserveFloat64},
      {has.shaderDenormFlushToZeroFloat16, has.shaderDenormFlushToZeroFloat32, has.shaderDenormFlushToZeroFloat64},
      {has.shaderSignedZeroInfNanPreserveFloat16, has.shaderSignedZeroInfNanPreserveFloat32,
       has.shaderSignedZeroInfNanPreserveFloat64},
      {has.shaderRoundingModeRTEFloat16, has.shaderRoundingModeRTEFloat32, has.shaderRoundingModeRTEFloat64},
      {has.shaderRoundingModeRTZFloat16, has.shaderRoundingModeRTZFloat32, has.shaderRoundingModeRTZFloat64},
  }};
  std::uint32_t capability = 4464;  // DenormPreserve, the first of five in this order
  for (const auto& widths : controls) {
    if ((widths[0] & widths[1] & widths[2]) != 0) capabilities_.push_back(capability);
    ++capability;
  }
}

/// A family that computes and does no graphics has its own hardware queues; any that computes will do.
std::uint32_t find_compute_family(const vk::raii::PhysicalDevice& physical) {
  const auto families = physical.getQueueFamilyProperties();
  constexpr auto none = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t found = none;
  for (std::uint32_t family = 0; family < families.size(); ++family) {
    const auto flags = families[family].queueFlags;
    if (!(flags & vk::QueueFlagBits::eCompute)) continue;
    if (!(flags & vk::QueueFlagBits::eGraphics)) return family;
    if (found == none) found = family;
  }
  if (found == none) {
    throw Error(ErrorCode::not_supported, "the Vulkan driver has no queue that computes: choose another device");
  }
  return found;
}

bool can_export(const vk::raii::PhysicalDevice& physical) {
  constexpr auto usage = vk::BufferUsageFlagBits::eStorageBuffer | vk::BufferUsageFlagBits::eTransferSrc |
                         vk::BufferUsageFlagBits::eTransferDst | vk::BufferUsageFlagBits::eShaderDeviceAddress;
  const auto properties =
      physical.getExternalBufferProperties({{}, usage, vk::ExternalMemoryHandleTypeFlagBits::eOpaqueFd});
  return static_cast<bool>(properties.externalMemoryProperties.externalMemoryFeatures &
                           vk::ExternalMemoryFeatureFlagBits::eExportable);
}

bool can_calibrate(const vk::raii::PhysicalDevice& physical) {
  const char* clock = std::getenv("GPUMAP_VULKAN_CLOCK");
  if (clock != nullptr && std::string_view(clock) == "bracket") return false;
  if (!has_extension(physical, VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME)) return false;
  const auto domains = physical.getCalibrateableTimeDomainsEXT();
  return std::find(domains.begin(), domains.end(), vk::TimeDomainEXT::eDevice) != domains.end() &&
         std::find(domains.begin(), domains.end(), vk::TimeDomainEXT::eClockMonotonic) != domains.end();
}

std::uint64_t find_max_allocation(const vk::raii::PhysicalDevice& physical) {
  if (physical.getProperties().apiVersion < VK_API_VERSION_1_3) {
    return physical.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceMaintenance3Properties>()
        .get<vk::PhysicalDeviceMaintenance3Properties>()
        .maxMemoryAllocationSize;
  }
  const auto chain = physical.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceMaintenance3Properties,
                                             vk::PhysicalDeviceMaintenance4Properties>();
  return std::min<std::uint64_t>(chain.get<vk::PhysicalDeviceMaintenance3Properties>().maxMemoryAllocationSize,
                                 chain.get<vk::PhysicalDeviceMaintenance4Properties>().maxBufferSize);
}

}  // namespace

VulkanContext::VulkanContext(VulkanInstance& instance, std::uint32_t index, std::shared_ptr<Health> health)
    : physical_(instance.devices().at(index)), health_(std::move(health)), memory_(physical_.getMemoryProperties()) {
  const auto properties = physical_.getProperties();
  name_ = properties.deviceName.data();
  const std::string missing = missing_features(physical_);
  if (!missing.empty()) {
    throw Error(ErrorCode::not_supported,
                fmt::format("the Vulkan driver of {} lacks {}: update the driver", name_, missing));
  }
  non_coherent_atom_ = std::max<std::uint64_t>(1, properties.limits.nonCoherentAtomSize);
  max_allocation_ = find_max_allocation(physical_);
  queue_family_ = find_compute_family(physical_);
  timestamp_bits_ = physical_.getQueueFamilyProperties().at(queue_family_).timestampValidBits;

  std::vector<const char*> extensions;
  optional_.memory_budget = has_extension(physical_, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (optional_.memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  optional_.export_fd = has_extension(physical_, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME) && can_export(physical_);
  if (optional_.export_fd) extensions.push_back(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
  optional_.calibrated_timestamps = can_calibrate(physical_);
  if (optional_.calibrated_timestamps) extensions.push_back(VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME);

  const VulkanFeatures features(physical_);
  extensions.insert(extensions.end(), features.extensions().begin(), features.extensions().end());
  capabilities_ = features.capabilities();

  constexpr float priority = 1.0F;
  const vk::DeviceQueueCreateInfo queue({}, queue_family_, 1, &priority);
  vk::DeviceCreateInfo info;
  info.setPNext(&features.chain());
  info.setQueueCreateInfos(queue);
  info.setPEnabledExtensionNames(extensions);
  try {
    device_ = vk::raii::Device(physical_, info);
    queue_ = vk::raii::Queue(device_, queue_family_, 0);
    clock_ = std::make_unique<VulkanClock>(*this);
  } catch (const vk::SystemError& error) {
    fail(error, "opening the device");
  }
}

VulkanContext::~VulkanContext() = default;

void VulkanContext::submit(const vk::SubmitInfo& info, vk::Fence fence) {
  health_->check();
  const std::lock_guard lock(queue_mutex_);
  queue_.submit(info, fence);
}

void VulkanContext::submit(const vk::SubmitInfo& info, VulkanTimeline& timeline, std::uint64_t value) {
  health_->check();
  const std::lock_guard lock(queue_mutex_);
  queue_.submit(info);
  const std::lock_guard order(submitted_mutex_);
  while (!submitted_.empty() && submitted_.front().timeline->completed() >= submitted_.front().value) {
    submitted_.pop_front();
  }
  try {
    submitted_.push_back({&timeline, value});
  } catch (const std::bad_alloc&) {
    // It runs. Who waits behind it counts its time.
  }
}

WorkAhead VulkanContext::ahead_of(const VulkanTimeline& timeline, std::uint64_t value) const {
  const std::lock_guard lock(submitted_mutex_);
  for (const Submitted& one : submitted_) {
    if (one.timeline == &timeline && one.value >= value) break;
    if (one.timeline->completed() >= one.value) continue;
    // The first that has not ended is what all others wait for.
    if (one.timeline == &timeline) break;
    return one.timeline->is_endless(one.value) ? WorkAhead::endless : WorkAhead::awaited;
  }
  return WorkAhead::none;
}

void VulkanContext::remove(const VulkanTimeline& timeline) const noexcept {
  const std::lock_guard lock(submitted_mutex_);
  std::erase_if(submitted_, [&](const Submitted& one) { return one.timeline == &timeline; });
}

void VulkanContext::retire(vk::raii::Semaphore semaphore) const noexcept {
  constexpr std::size_t most = 256;
  const std::lock_guard lock(retired_mutex_);
  try {
    retired_.push_back(std::move(semaphore));
  } catch (const std::bad_alloc&) {
    return;  // it goes now
  }
  if (retired_.size() > most) retired_.pop_front();
}

void VulkanContext::fail(const vk::SystemError& error, std::string_view what) const {
  const auto result = static_cast<vk::Result>(error.code().value());
  if (result != vk::Result::eErrorDeviceLost) check_descriptors(name_, what);
  switch (result) {
    case vk::Result::eErrorDeviceLost:
      health_->mark_lost(fmt::format(
          "the Vulkan device of {} was lost while {} (VK_ERROR_DEVICE_LOST): restart the process", name_, what));
      throw Error(ErrorCode::device_lost, health_->reason());
    case vk::Result::eErrorOutOfHostMemory:
    case vk::Result::eErrorOutOfDeviceMemory:
    case vk::Result::eErrorTooManyObjects:
    case vk::Result::eErrorMemoryMapFailed:
      throw Error(ErrorCode::no_memory,
                  fmt::format("{}: Vulkan reported {} while {}", name_, vk::to_string(result), what),
                  "free memory on the device");
    default:
      throw Error(ErrorCode::not_supported, fmt::format("{}: Vulkan reported {} while {}: update the driver", name_,
                                                        vk::to_string(result), what));
  }
}

std::uint64_t VulkanContext::heap_free_bytes(std::uint32_t heap) const {
  return heap_budgets(physical_, optional_.memory_budget).at(heap);
}

std::uint64_t VulkanContext::window_bytes() const {
  const std::uint32_t heaps = window_heaps(memory_);
  std::uint64_t total = 0;
  for (std::uint32_t heap = 0; heap < memory_.memoryHeapCount; ++heap) {
    if ((heaps >> heap & 1U) != 0) total += memory_.memoryHeaps[heap].size;
  }
  return total;
}

std::uint64_t VulkanContext::window_budget_bytes() const {
  const std::uint32_t heaps = window_heaps(memory_);
  const auto free = heap_budgets(physical_, optional_.memory_budget);
  std::uint64_t total = 0;
  for (std::uint32_t heap = 0; heap < free.size(); ++heap) {
    if ((heaps >> heap & 1U) != 0) total += free[heap];
  }
  return total;
}

std::uint64_t VulkanContext::window_free_bytes() const {
  return window_.free_bytes(window_bytes(), window_budget_bytes());
}

VulkanTimeline::VulkanTimeline(std::shared_ptr<GpuDevice> device)
    : device_(std::move(device)), context_(*device_->vulkan()) {
  try {
    const vk::SemaphoreTypeCreateInfo type(vk::SemaphoreType::eTimeline, 0);
    semaphore_ = vk::raii::Semaphore(context_.device(), vk::SemaphoreCreateInfo({}, &type));
  } catch (const vk::SystemError& error) {
    context_.fail(error, "creating a timeline");
  }
}

void VulkanTimeline::set_endless(std::uint64_t value) noexcept {
  std::uint64_t before = endless_;
  // Ends: what is there only grows.
  while (before < value && !endless_.compare_exchange_weak(before, value)) {
  }
}

void VulkanTimeline::give_up(const Fence& end, const std::string& work) {
  set_endless(end.value());
  context_.stuck_work().note(end, work);
}

std::uint64_t VulkanTimeline::completed() {
  // A lost device may answer anything, even that all is done: keep to what was seen while it was well.
  if (context_.health().lost()) return seen_.load(std::memory_order_acquire);
  try {
    const std::uint64_t value = semaphore_.getCounterValue();
    seen_.store(value, std::memory_order_release);
    return value;
  } catch (const vk::SystemError&) {
    return seen_.load(std::memory_order_acquire);  // check() asks again and says what happened
  }
}

void VulkanTimeline::check() {
  context_.health().check();
  try {
    static_cast<void>(semaphore_.getCounterValue());
  } catch (const vk::SystemError& error) {
    context_.fail(error, "running kernels");
  }
}

bool VulkanTimeline::drain(std::uint64_t value, std::chrono::nanoseconds longest) noexcept {
  constexpr std::chrono::nanoseconds look_again = std::chrono::milliseconds(100);
  const auto until = Clock::now() + longest;
  try {
    const vk::Semaphore semaphore = *semaphore_;
    const vk::SemaphoreWaitInfo info({}, semaphore, value);
    while (!context_.health().lost()) {
      const auto left = std::max(until - Clock::now(), Clock::duration::zero());
      const auto wait = static_cast<std::uint64_t>(std::min<std::chrono::nanoseconds>(left, look_again).count());
      if (context_.device().waitSemaphores(info, wait) == vk::Result::eSuccess) return true;
      if (left == Clock::duration::zero()) return false;
    }
  } catch (const std::exception&) {
    // The device is lost: nothing runs on it any more.
  }
  return true;
}

}  // namespace gpumap
