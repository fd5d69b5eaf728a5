// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string_view>

#include "copy/cpu_set.hpp"

namespace gpumap::copy {

/// "0-3,8,10-11", as sysfs writes it; what is not a CPU number is passed over.
[[nodiscard]] CpuSet parse_cpu_list(std::string_view text);
/// sched_getaffinity(), or what tests put in its place.
using GetAffinity = int (*)(pid_t thread, std::size_t bytes, cpu_set_t* cpus);
/// The CPUs that this thread may use; none where the system does not tell.
[[nodiscard]] CpuSet allowed_cpus(GetAffinity get = &sched_getaffinity);
/// The CPUs on which helpers should run: those of the NUMA node of the PCI device that this thread may use, or all that
/// it may use where the device has no node, or none of its CPUs is allowed.
[[nodiscard]] CpuSet helper_cpus(std::string_view pci_address);

}  // namespace gpumap::copy
