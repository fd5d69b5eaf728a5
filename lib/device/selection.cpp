// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "gpumap/device.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

const DeviceInfo& select_auto(const Inventory& inventory) {
  for (const DeviceAccess wanted : {DeviceAccess::bar, DeviceAccess::software}) {
    for (const auto& device : inventory.devices) {
      if (device.access == wanted) return device;
    }
  }
  std::string reasons;
  for (const auto& device : inventory.devices) reasons += fmt::format("; {}: {}", device.name, device.reason);
  throw Error(ErrorCode::not_supported, "no device here lets the CPU write into its memory" + reasons);
}

std::string list_of(const Inventory& inventory) {
  std::string list;
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) {
    const auto& device = inventory.devices[i];
    list += fmt::format("{}{} = {} (GPU-{}{}{})", i == 0 ? "" : ", ", i, device.name, to_string(device.uuid),
                        device.pci_address.empty() ? "" : ", ", device.pci_address);
  }
  return list;
}

}  // namespace

std::string_view to_string(DeviceAccess access) noexcept {
  constexpr std::array<std::string_view, 3> names{"none", "bar", "software"};
  return names[static_cast<std::size_t>(access)];
}

std::string name_of(const DeviceInfo& device) {
  return device.pci_address.empty() ? device.name : fmt::format("{} at {}", device.name, device.pci_address);
}

std::string to_string(const Uuid& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

const DeviceInfo& select_device(const Inventory& inventory, std::string_view selector) {
  if (inventory.devices.empty()) {
    throw Error(ErrorCode::no_driver, fmt::format("no GPU: Vulkan: {}. CUDA: {}", inventory.vulkan, inventory.cuda));
  }
  const std::string wanted = lower(selector);
  if (wanted == "auto") return select_auto(inventory);

  const char* const end = wanted.data() + wanted.size();
  std::size_t index = 0;
  if (const auto [stop, error] = std::from_chars(wanted.data(), end, index); stop == end && !wanted.empty()) {
    if (error == std::errc() && index < inventory.devices.size()) return inventory.devices[index];
    throw Error(ErrorCode::no_device, fmt::format("no device {}: this machine has {}: choose by number, UUID or PCI "
                                                  "address",
                                                  wanted, list_of(inventory)));
  }

  const std::string uuid = wanted.starts_with("gpu-") ? wanted.substr(4) : wanted;
  for (const auto& device : inventory.devices) {
    if (uuid == to_string(device.uuid)) return device;
    // "3b:00.0" means the same as "0000:3b:00.0", as in lspci.
    if (!device.pci_address.empty() && (wanted == device.pci_address || "0000:" + wanted == device.pci_address)) {
      return device;
    }
  }
  const bool looks_right = wanted.starts_with("gpu-") || uuid.size() == 36 || wanted.find(':') != std::string::npos;
  if (looks_right) {
    throw Error(ErrorCode::no_device, fmt::format("no device {}: this machine has {}: choose one of these, or auto",
                                                  selector, list_of(inventory)));
  }
  throw Error(ErrorCode::invalid, fmt::format("device \"{}\" is not auto, a number, a UUID or a PCI address: this "
                                              "machine has {}",
                                              selector, list_of(inventory)));
}

}  // namespace gpumap
