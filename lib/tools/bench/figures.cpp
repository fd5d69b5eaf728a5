// SPDX-License-Identifier: MIT
#include "figures.hpp"

#include <algorithm>
#include <fstream>

namespace bench {

Summary summarise(std::vector<std::int64_t>& ns) {
  if (ns.empty()) return {};
  std::sort(ns.begin(), ns.end());
  const auto at = [&](double share) {
    return static_cast<double>(ns[static_cast<std::size_t>(share * static_cast<double>(ns.size() - 1))]) / 1000.0;
  };
  return {.median_us = at(0.5), .p90_us = at(0.9), .p99_us = at(0.99), .min_us = at(0)};
}

nlohmann::json to_json(const Summary& summary) {
  return {{"median_us", summary.median_us},
          {"p90_us", summary.p90_us},
          {"p99_us", summary.p99_us},
          {"min_us", summary.min_us}};
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

gpumap::KernelSource nothing_kernel(gpumap::Backend backend) {
  if (backend == gpumap::Backend::cuda) {
    return {.language = gpumap::Language::cuda,
            .name = "nothing.cu",
            .code = "#include <gpumap/kernel.h>\nextern \"C\" __global__ void nothing(gpumap_frame frame) {}\n"};
  }
  return {.language = gpumap::Language::glsl,
          .name = "nothing.comp",
          .code = "#version 460\n#include <gpumap.glsl>\nvoid main() {}\n"};
}

}  // namespace bench
