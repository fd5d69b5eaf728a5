// SPDX-License-Identifier: MIT
#include "c/c_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "device/cuda_driver.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"

namespace gpumap::c {
namespace {

/// The selector of the C++ library for a device of CUDA's.
std::string selector_of_ordinal(const Inventory& inventory, int ordinal) {
  const auto found = std::find_if(inventory.devices.begin(), inventory.devices.end(),
                                  [&](const DeviceInfo& one) { return one.cuda_index == ordinal; });
  if (found != inventory.devices.end()) return to_string(found->uuid);
  throw Error(
      ErrorCode::no_device,
      fmt::format("no device with the CUDA ordinal {} ({}): gpumap-info lists what there is", ordinal, inventory.cuda));
}

int ordinal_of(std::string_view text) {
  int ordinal = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ordinal);
  if (error == std::errc() && end == text.data() + text.size() && ordinal >= 0) return ordinal;
  throw Error(ErrorCode::invalid, fmt::format("\"cuda:{}\" is no CUDA ordinal: write \"cuda:0\"", text));
}

/// The device of the CUDA context that is current, which has to be the one that gpumap's memory is in.
std::shared_ptr<Device> device_of_current_context() {
  const cuda::Driver& driver = cuda::Driver::get();
  CUcontext context = nullptr;
  CUdevice ordinal = 0;
  if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr ||
      driver.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS) {
    throw Error(ErrorCode::invalid,
                "no CUDA context is current in this thread: call cudaSetDevice(), or name a device as \"cuda:0\"");
  }
  auto device = Device::open(selector_of_ordinal(take_inventory(), ordinal));
  if (cuda_handles(*device).context == context) return device;
  throw Error(ErrorCode::not_supported,
              "the CUDA context that is current is not the primary one of its device, and gpumap's memory would mean "
              "nothing in it: use the runtime's (cudaSetDevice(), cuDevicePrimaryCtxRetain())");
}

std::shared_ptr<Device> open(std::string_view selector, std::uint32_t flags) {
  constexpr std::string_view cuda = "cuda:";
  if (selector == "current") return device_of_current_context();
  if (selector.substr(0, cuda.size()) == cuda) {
    return Device::open(selector_of_ordinal(take_inventory(), ordinal_of(selector.substr(cuda.size()))));
  }
  if (selector == "auto" && (flags & GPUMAP_DEVICE_REQUIRE_CUDA) != 0) {
    const Inventory inventory = take_inventory();
    const auto usable = std::find_if(inventory.devices.begin(), inventory.devices.end(), [](const DeviceInfo& one) {
      return one.cuda_index >= 0 && one.access != DeviceAccess::none;
    });
    if (usable != inventory.devices.end()) return Device::open(to_string(usable->uuid));
    throw Error(ErrorCode::no_device,
                fmt::format("no GPU with CUDA that can be used ({}): see gpumap-info", inventory.cuda));
  }
  return Device::open(selector);
}

/// Throws unless memory of this device does without flushes.
void check_coherent(Device& device) {
  constexpr std::size_t a_page = 4096;
  static_cast<void>(device.allocate({.placement = Placement::bar, .bytes = a_page, .require_coherent = true}));
}

gpumap_device_info info_of(const DeviceInfo& from) {
  gpumap_device_info made{};
  put_text(made.name, from.name);
  std::copy(from.uuid.begin(), from.uuid.end(), made.uuid);
  put_text(made.pci_address, from.pci_address);
  made.cuda_ordinal = from.cuda_index;
  made.software = from.software ? 1 : 0;
  made.memory_bytes = from.memory_bytes;
  made.window_bytes = from.window_bytes;
  made.window_free_bytes = from.window_free_bytes;
  put_text(made.reason, from.reason);
  if (from.access != DeviceAccess::none) {
    made.backend = number_of(from.cuda_index >= 0 ? Backend::cuda : Backend::vulkan);
  }
  return made;
}

}  // namespace

void require(MappingOptions& options, const DeviceObject& device, std::uint32_t memory_flags) {
  constexpr std::uint32_t known = GPUMAP_MEMORY_REQUIRE_COHERENT | GPUMAP_MEMORY_TREAT_NON_COHERENT;
  if ((memory_flags & ~known) != 0) {
    throw Error(ErrorCode::invalid, fmt::format("memory flags {:#x}: only {:#x} are known", memory_flags, known));
  }
  options.require_coherent =
      (device.flags & GPUMAP_DEVICE_REQUIRE_COHERENT) != 0 || (memory_flags & GPUMAP_MEMORY_REQUIRE_COHERENT) != 0;
  options.treat_as_non_coherent =
      (device.flags & GPUMAP_DEVICE_TREAT_NON_COHERENT) != 0 || (memory_flags & GPUMAP_MEMORY_TREAT_NON_COHERENT) != 0;
}

}  // namespace gpumap::c

using namespace gpumap;     // NOLINT: definitions of the C interface
using namespace gpumap::c;  // NOLINT

gpumap_status gpumap_device_open(const char* selector, uint32_t flags, gpumap_device* device) {
  return guarded([&] {
    need(device, "where the device is to go");
    HandleTable::get().check_process();
    constexpr std::uint32_t known =
        GPUMAP_DEVICE_REQUIRE_COHERENT | GPUMAP_DEVICE_TREAT_NON_COHERENT | GPUMAP_DEVICE_REQUIRE_CUDA;
    if ((flags & ~known) != 0) {
      throw Error(ErrorCode::invalid, fmt::format("device flags {:#x}: only {:#x} are known", flags, known));
    }
    auto opened = open(text_or(selector, "auto"), flags);
    if ((flags & GPUMAP_DEVICE_REQUIRE_CUDA) != 0 && !opened->has(Backend::cuda)) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("{} has no CUDA here: leave GPUMAP_DEVICE_REQUIRE_CUDA out", opened->info().name));
    }
    if ((flags & GPUMAP_DEVICE_REQUIRE_COHERENT) != 0) check_coherent(*opened);
    hand_out(std::make_unique<DeviceObject>(std::move(opened), flags), device);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_device_close(gpumap_device device) {
  return guarded([&] {
    if (device != nullptr) static_cast<void>(close<DeviceObject>(device));
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_device_get_info(gpumap_device device, gpumap_device_info* info) {
  return guarded([&] {
    const auto object = use<DeviceObject>(device);
    gpumap_device_info made = info_of(object->device->info());
    made.backend = number_of(object->device->default_backend());
    made.window_free_bytes = object->device->window_free_bytes();
    made.cuda_context = cuda_handles(*object->device).context;
    made.index = -1;
    const Inventory inventory = take_inventory();
    for (std::size_t at = 0; at < inventory.devices.size(); ++at) {
      if (inventory.devices[at].uuid == object->device->info().uuid) made.index = static_cast<std::int32_t>(at);
    }
    tell(made, info, "gpumap_device_info");
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_device_describe(uint32_t index, gpumap_device_info* info) {
  return guarded([&]() -> gpumap_status {
    HandleTable::get().check_process();
    const Inventory inventory = take_inventory();
    if (index >= inventory.devices.size()) {
      throw Error(ErrorCode::no_device, fmt::format("no device {}, there are {} ({}; {})", index,
                                                    inventory.devices.size(), inventory.vulkan, inventory.cuda));
    }
    gpumap_device_info made = info_of(inventory.devices[index]);
    made.index = static_cast<std::int32_t>(index);
    tell(made, info, "gpumap_device_info");
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_device_check(gpumap_device device) {
  return guarded([&] {
    const std::string reason = use<DeviceObject>(device)->device->lost();
    if (!reason.empty()) throw Error(ErrorCode::device_lost, reason);
    return GPUMAP_OK;
  });
}
