// SPDX-License-Identifier: MIT
// Which GPU a selector means, what the inventory says of each, that a device is opened once; what gpumap-info prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <gpumap/device.hpp>
#include <gpumap/error.hpp>
#include <memory>
#include <string>

namespace gpumap {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

DeviceInfo device(std::string name, DeviceAccess access, std::uint8_t first_uuid_byte, std::string pci = {}) {
  DeviceInfo info;
  info.name = std::move(name);
  info.access = access;
  info.reason = "for the test";
  info.uuid = {
      first_uuid_byte, 0x7a, 0x40, 0xae, 0x31, 0x01, 0x22, 0x13, 0x94, 0x05, 0xd6, 0x07, 0x58, 0x99, 0x00, 0xab};
  info.pci_address = std::move(pci);
  info.software = access == DeviceAccess::software;
  return info;
}

Inventory two_gpus_and_software() {
  Inventory inventory;
  inventory.devices = {device("small", DeviceAccess::none, 0xf1, "0000:01:00.0"),
                       device("big", DeviceAccess::bar, 0xf2, "0000:3b:00.0"),
                       device("soft", DeviceAccess::software, 0xf3)};
  return inventory;
}

ErrorCode code_of(const Inventory& inventory, std::string_view selector) {
  try {
    static_cast<void>(select_device(inventory, selector));
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << selector << " selected a device";
  return ErrorCode::io;
}

TEST(Selection, AccessHasNames) {
  EXPECT_EQ(to_string(DeviceAccess::none), "none");
  EXPECT_EQ(to_string(DeviceAccess::bar), "bar");
  EXPECT_EQ(to_string(DeviceAccess::software), "software");
}

TEST(Selection, AutoPrefersHardwareThatMaps) {
  auto inventory = two_gpus_and_software();
  EXPECT_EQ(select_device(inventory, "auto").name, "big");
  inventory.devices[1].access = DeviceAccess::none;
  EXPECT_EQ(select_device(inventory, "auto").name, "soft");
  inventory.devices[2].access = DeviceAccess::none;
  EXPECT_EQ(code_of(inventory, "auto"), ErrorCode::not_supported);
}

TEST(Selection, ByIndexUuidAndPciAddress) {
  const auto inventory = two_gpus_and_software();
  EXPECT_EQ(select_device(inventory, "0").name, "small");
  EXPECT_EQ(select_device(inventory, "2").name, "soft");
  EXPECT_EQ(select_device(inventory, "f27a40ae-3101-2213-9405-d607589900ab").name, "big");
  EXPECT_EQ(select_device(inventory, "GPU-F27A40AE-3101-2213-9405-D607589900AB").name, "big");
  EXPECT_EQ(select_device(inventory, "0000:3B:00.0").name, "big");
  EXPECT_EQ(select_device(inventory, "01:00.0").name, "small");
}

TEST(Selection, BadSelectorsSayWhatThereIs) {
  const auto inventory = two_gpus_and_software();
  for (const char* missing :
       {"3", "99999999999999999999999", "0000:99:00.0", "GPU-007a40ae-3101-2213-9405-d607589900ab", "gpu-nonsense"}) {
    EXPECT_EQ(code_of(inventory, missing), ErrorCode::no_device) << missing;
  }
  for (const char* nonsense : {"", "nvidia", "-1", "1 ", "0x1"}) {
    EXPECT_EQ(code_of(inventory, nonsense), ErrorCode::invalid) << nonsense;
  }
  try {
    static_cast<void>(select_device(inventory, "7"));
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("1 = big (GPU-f27a40ae-3101-2213-9405-d607589900ab, 0000:3b:00.0)"));
  }
}

TEST(Selection, NothingThereRepeatsTheStatuses) {
  Inventory inventory;
  inventory.vulkan = "install libvulkan1";
  inventory.cuda = "install the NVIDIA driver";
  EXPECT_EQ(code_of(inventory, "auto"), ErrorCode::no_driver);
  try {
    static_cast<void>(select_device(inventory, "0"));
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(inventory.vulkan));
    EXPECT_THAT(error.what(), HasSubstr(inventory.cuda));
  }
}

// The loader then finds no library, and says of all that they are not there.
TEST(Selection, SaysThatNoDescriptorIsLeft) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto open = [] {
    // UBSan looks through a pipe at the first call of each function of an error: none of them may come later.
    if (code_of({}, "auto") != ErrorCode::no_driver || Error(ErrorCode::io, "").what() == nullptr) _exit(5);
    const int next = dup(0);
    const rlimit limit{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
    if (next < 0 || close(next) != 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
    const Inventory inventory = take_inventory();
    for (const std::string& told : {inventory.vulkan, inventory.cuda}) {
      if (told.find("raise ulimit -n") == told.npos) _exit(3);
    }
    _exit(code_of(inventory, "auto") == ErrorCode::no_resources ? 0 : 4);
  };
  EXPECT_EXIT(open(), testing::ExitedWithCode(0), "");
}

TEST(Inventory, DescribesEveryDevice) {
  const auto inventory = take_inventory();
  EXPECT_FALSE(inventory.vulkan.empty());
  EXPECT_FALSE(inventory.cuda.empty());
  EXPECT_FALSE(inventory.nvrtc.empty());
  ASSERT_FALSE(inventory.devices.empty()) << inventory.vulkan;
  bool software_seen = false;
  for (const auto& info : inventory.devices) {
    EXPECT_FALSE(info.name.empty());
    EXPECT_FALSE(info.reason.empty());
    EXPECT_GT(info.memory_bytes, 0U);
    EXPECT_LE(info.window_free_bytes, info.window_bytes);
    EXPECT_EQ(info.access == DeviceAccess::software, info.software && info.access != DeviceAccess::none);
    if (info.vulkan_index >= 0) {
      EXPECT_THAT(info.vulkan_driver, HasSubstr("Vulkan 1."));
    }
    EXPECT_FALSE(software_seen && !info.software) << "hardware comes first";
    software_seen |= info.software;
  }
}

TEST(Device, OpensOnceForEverySelector) {
  const auto device = Device::open();
  EXPECT_EQ(Device::open("auto"), device);
  EXPECT_EQ(Device::open(to_string(device->info().uuid)), device);
  EXPECT_EQ(Device::open("GPU-" + to_string(device->info().uuid)), device);
  EXPECT_EQ(device->lost(), "");
  EXPECT_TRUE(device->has(device->default_backend()));
  EXPECT_TRUE(device->has(Backend::vulkan));
  EXPECT_GT(device->window_free_bytes(), 0U);
}

TEST(Device, RefusesABackendThatItLacks) {
  const auto device = Device::open();
  if (device->has(Backend::cuda)) GTEST_SKIP() << "this device has both backends";
  EXPECT_THROW(static_cast<void>(device->create_queue(Backend::cuda)), Error);
  EXPECT_THROW(static_cast<void>(device->allocate({Placement::host, 4096}, Backend::cuda)), Error);
}

/// What a command prints.
std::string output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  std::array<char, 4096> part{};
  while (pipe != nullptr) {
    const std::size_t read = std::fread(part.data(), 1, part.size(), pipe.get());
    if (read == 0) break;
    output.append(part.data(), read);
  }
  return output;
}

TEST(Info, SaysWhatToInstallWhereThereIsNoDriver) {
  const char* program = std::getenv("GPUMAP_INFO");
  if (program == nullptr) GTEST_SKIP() << "GPUMAP_INFO does not name the program";
  const std::string none = "VK_DRIVER_FILES=/nonexistent VK_ICD_FILENAMES=/nonexistent CUDA_VISIBLE_DEVICES= ";
  const auto text = output_of(none + program + " 2>&1");
  EXPECT_THAT(text, HasSubstr("no Vulkan driver"));
  EXPECT_THAT(text, HasSubstr("mesa-vulkan-drivers"));
  EXPECT_THAT(text, HasSubstr("A pipeline here does not run"));
  const auto json = output_of(none + program + " --json 2>&1");
  EXPECT_THAT(json, HasSubstr("\"devices\": []"));
  for (const char* option : {"", "--json"}) {
    EXPECT_THAT(output_of(none + program + " " + option + " >/dev/null 2>&1; echo $?"), "1\n") << "no pipeline runs";
  }
  // What compiles kernels that nothing runs is not praised.
  EXPECT_THAT(text, AllOf(HasSubstr("CUDA C++ kernels do not run here"), Not(HasSubstr("compile at run time"))));
}

TEST(Info, EndsWithWhatAUserGets) {
  const char* program = std::getenv("GPUMAP_INFO");
  if (program == nullptr) GTEST_SKIP() << "GPUMAP_INFO does not name the program";
  const auto inventory = take_inventory();
  const auto text = output_of(std::string(program) + " 2>&1");
  EXPECT_THAT(text, HasSubstr("A pipeline here uses " + select_device(inventory, "auto").name));
  const auto json = output_of(std::string(program) + " --json 2>&1");
  for (const auto& info : inventory.devices) {
    const std::string access(to_string(info.access));
    EXPECT_THAT(text, HasSubstr(to_string(info.uuid)));
    EXPECT_THAT(text, HasSubstr(access + ": " + info.reason));
    EXPECT_THAT(json, HasSubstr("\"transport\": \"" + access + '"'));
  }
  EXPECT_THAT(output_of(std::string(program) + " --help"), HasSubstr("GPUMAP_WINDOW_LIMIT"));
  EXPECT_THAT(output_of(std::string(program) + " >/dev/null; echo $?"), "0\n");
  EXPECT_THAT(output_of(std::string(program) + " --version"), "gpumap-info " GPUMAP_VERSION "\n");
}

}  // namespace
}  // namespace gpumap
