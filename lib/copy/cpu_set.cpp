// SPDX-License-Identifier: MIT
#include "copy/cpu_set.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>

namespace gpumap::copy {
namespace {

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

/// Empty where the kernel knows none (-1) or the address names no device.
std::string cpu_list_of(std::string_view pci_address) {
  std::string address(pci_address);
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (address.empty() || address.find('/') != std::string::npos) return {};
  const std::string node = first_line("/sys/bus/pci/devices/" + address + "/numa_node");
  if (node.empty() || node.front() == '-') return {};
  return first_line("/sys/devices/system/node/node" + node + "/cpulist");
}

}  // namespace

CpuSet parse_cpu_list(std::string_view text) {
  CpuSet cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    unsigned first = 0;
    const auto begin = std::from_chars(at, end, first);
    if (begin.ec != std::errc()) {
      ++at;
      continue;
    }
    unsigned last = first;
    at = begin.ptr;
    if (at < end && *at == '-') {
      const auto range = std::from_chars(at + 1, end, last);
      at = range.ec == std::errc() ? range.ptr : at + 1;
    }
    for (unsigned cpu = first; cpu <= last && cpu < CpuSet::max_cpus; ++cpu) cpus.add(cpu);
  }
  return cpus;
}

CpuSet allowed_cpus(GetAffinity get) {
  // EINVAL: the system's own set is larger, and only trying tells by how much.
  for (unsigned room = CPU_SETSIZE; room <= CpuSet::max_cpus; room *= 2) {
    CpuSet allowed(room);
    if (get(0, allowed.bytes(), allowed.native()) == 0) return allowed;
    if (errno != EINVAL) break;
  }
  return CpuSet();
}

CpuSet helper_cpus(std::string_view pci_address) {
  CpuSet allowed = allowed_cpus();
  CpuSet both = allowed & parse_cpu_list(cpu_list_of(pci_address));
  return both.count() > 0 ? both : allowed;
}

}  // namespace gpumap::copy
