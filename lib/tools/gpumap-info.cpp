// SPDX-License-Identifier: MIT
// gpumap-info: what this machine has, and what a user of it gets.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <exception>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <gpumap/printable.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view environment_help = R"(Environment:
  GPUMAP_VALIDATION=1          check every Vulkan call with the validation layer, print what it finds
  GPUMAP_WINDOW_LIMIT=<bytes>  pretend that the BAR window is smaller, to try out what happens when it is full
  GPUMAP_NVRTC_PATH=<folder>   look here first for libnvrtc.so
  GPUMAP_CUDA_TIMELINE=events  signal the end of CUDA work with events instead of stream memory operations
  GPUMAP_CUDA_DOORBELL=host    have the doorbell of kernels that stay in host memory, as where the GPU does not keep
                               the order of writes over PCIe
  GPUMAP_VULKAN_CLOCK=bracket  compare the clocks for GPU times without VK_EXT_calibrated_timestamps
  VK_DRIVER_FILES, VK_ICD_FILENAMES, CUDA_VISIBLE_DEVICES choose among drivers and GPUs as ever)";

std::string gib(std::uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
}

std::string or_none(const std::string& text) {
  return text.empty() ? "none" : text;
}

/// Why no hardware is used: the first GPU's reason, where there is one.
std::string why_software(const gpumap::Inventory& inventory) {
  for (const auto& device : inventory.devices) {
    if (!device.software) return fmt::format("{} cannot be used: {}", device.name, device.reason);
  }
  return "Vulkan finds no GPU here";
}

bool runs(const gpumap::Inventory& inventory) {
  try {
    static_cast<void>(gpumap::select_device(inventory, "auto"));
    return true;
  } catch (const gpumap::Error&) {
    return false;
  }
}

/// NVRTC compiles for CUDA's devices: without one it is there for nothing.
std::string nvrtc_of(const gpumap::Inventory& inventory) {
  const bool has_cuda = std::ranges::any_of(inventory.devices, [](const auto& one) { return one.cuda_index >= 0; });
  return has_cuda ? inventory.nvrtc : "not used: CUDA C++ kernels do not run here, for there is no CUDA device";
}

/// One sentence: which device `auto` takes, what that means for frames and kernels, and why.
std::string summarise(const gpumap::Inventory& inventory) {
  try {
    const auto& device = gpumap::select_device(inventory, "auto");
    if (device.software) {
      return fmt::format(
          "A pipeline here uses {}: frames stay in ordinary memory and kernels run on the CPU, because {}.",
          device.name, why_software(inventory));
    }
    return fmt::format(
        "A pipeline here uses {} with transport {}: frames are written straight into GPU memory and "
        "kernels run {}, because {}.",
        device.name, gpumap::to_string(device.access), device.cuda_index >= 0 ? "in CUDA" : "as Vulkan compute shaders",
        device.reason);
  } catch (const gpumap::Error& error) {
    return fmt::format("A pipeline here does not run: {}.", error.what());
  }
}

void print_device(std::size_t index, const gpumap::DeviceInfo& device) {
  const auto row = [](std::string_view name, const std::string& value) { fmt::print("    {:<16}{}\n", name, value); };
  fmt::print("\n[{}] {}\n", index, device.name);
  row("UUID", "GPU-" + gpumap::to_string(device.uuid));
  row("PCI address", or_none(device.pci_address));
  row("memory", gib(device.memory_bytes));
  row("BAR window", fmt::format("{}, {} free", gib(device.window_bytes), gib(device.window_free_bytes)));
  row("Vulkan", device.vulkan_index < 0 ? "does not see it"
                                        : fmt::format("device {}: {}", device.vulkan_index, device.vulkan_driver));
  row("CUDA", device.cuda_index < 0 ? "does not see it"
                                    : fmt::format("device {}: CUDA {}, compute capability {}", device.cuda_index,
                                                  device.cuda_driver, device.compute_capability));
  row("transport", fmt::format("{}: {}", gpumap::to_string(device.access), device.reason));
}

void print_table(const gpumap::Inventory& inventory) {
  fmt::print("gpumap {}\n\n", GPUMAP_VERSION);
  fmt::print("{:<8}{}\n{:<8}{}\n{:<8}{}\n", "Vulkan", inventory.vulkan, "CUDA", inventory.cuda, "NVRTC",
             nvrtc_of(inventory));
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) print_device(i, inventory.devices[i]);
  fmt::print("\n{}\n", summarise(inventory));
}

void print_json(const gpumap::Inventory& inventory) {
  auto devices = nlohmann::ordered_json::array();
  for (const auto& device : inventory.devices) {
    devices.push_back({{"name", device.name},
                       {"uuid", "GPU-" + gpumap::to_string(device.uuid)},
                       {"pci_address", device.pci_address},
                       {"vulkan_index", device.vulkan_index},
                       {"cuda_index", device.cuda_index},
                       {"software", device.software},
                       {"memory_bytes", device.memory_bytes},
                       {"window_bytes", device.window_bytes},
                       {"window_free_bytes", device.window_free_bytes},
                       {"vulkan_driver", device.vulkan_driver},
                       {"cuda_driver", device.cuda_driver},
                       {"compute_capability", device.compute_capability},
                       {"transport", gpumap::to_string(device.access)},
                       {"reason", device.reason}});
  }
  const nlohmann::ordered_json all{{"version", GPUMAP_VERSION},     {"vulkan", inventory.vulkan},
                                   {"cuda", inventory.cuda},        {"nvrtc", nvrtc_of(inventory)},
                                   {"devices", std::move(devices)}, {"summary", summarise(inventory)}};
  // Names come from drivers: what is not UTF-8 must not end the program.
  fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"List the GPUs of this machine and say what gpumap makes of them."};
  bool json = false;
  app.add_flag("--json", json, "print JSON");
  app.set_version_flag("--version", "gpumap-info " GPUMAP_VERSION);
  app.footer("Ends with 1 where no pipeline can run.\n\n" + std::string(environment_help));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    const auto inventory = gpumap::take_inventory();
    json ? print_json(inventory) : print_table(inventory);
    return runs(inventory) ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpumap-info: {}\n", gpumap::printable(error.what(), "\n\t"));
    return 1;
  }
}
