// SPDX-License-Identifier: MIT
#pragma once

#include <sched.h>

#include <string_view>

namespace gpumap::copy {

/// "0-3,8,10-11", as sysfs writes it; what is not a CPU number is passed over.
[[nodiscard]] cpu_set_t parse_cpu_list(std::string_view text);
/// The CPUs on which helpers should run: those of the NUMA node of the PCI device that this thread may use, or all that
/// it may use where the device has no node, or none of its CPUs is allowed.
[[nodiscard]] cpu_set_t helper_cpus(std::string_view pci_address);

}  // namespace gpumap::copy
