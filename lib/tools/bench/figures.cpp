// SPDX-License-Identifier: MIT
#include "figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <stdexcept>

namespace bench {
namespace {

void refuse_negative(std::uint64_t negative, std::uint64_t all) {
  if (negative == 0) return;
  throw std::runtime_error(
      fmt::format("{} of {} times are below 0: what began and what ended them is not in that order, so no figure of "
                  "this run counts",
                  negative, all));
}

}  // namespace

Summary& Summary::operator/=(double parts) noexcept {
  for (double* figure : {&median_us, &p90_us, &p99_us, &min_us, &p999_us, &max_us}) *figure /= parts;
  return *this;
}

std::int64_t percentile(const std::vector<std::int64_t>& sorted_ns, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted_ns.size())));
  return sorted_ns[std::clamp<std::size_t>(rank, 1, sorted_ns.size()) - 1];
}

Summary summarise(std::vector<std::int64_t>& ns) {
  if (ns.empty()) return {};
  std::sort(ns.begin(), ns.end());
  refuse_negative(static_cast<std::uint64_t>(std::lower_bound(ns.begin(), ns.end(), 0) - ns.begin()), ns.size());
  const auto at = [&](double share) { return static_cast<double>(percentile(ns, share)) / 1000.0; };
  return {.median_us = at(0.5),
          .p90_us = at(0.9),
          .p99_us = at(0.99),
          .min_us = at(0),
          .p999_us = at(0.999),
          .max_us = at(1),
          .count = ns.size()};
}

Summary summarise(const gpumap::Histogram& times) {
  const gpumap::Percentiles ns = times.percentiles();
  refuse_negative(ns.negative, ns.count + ns.negative);
  const auto us = [](std::int64_t time) { return static_cast<double>(time) / 1000.0; };
  return {.median_us = us(ns.p50),
          .p90_us = us(ns.p90),
          .p99_us = us(ns.p99),
          .min_us = us(ns.min),
          .p999_us = us(ns.p999),
          .max_us = us(ns.max),
          .count = ns.count};
}

nlohmann::json to_json(const Summary& summary) {
  return {{"median_us", summary.median_us}, {"p90_us", summary.p90_us},   {"p99_us", summary.p99_us},
          {"min_us", summary.min_us},       {"p999_us", summary.p999_us}, {"max_us", summary.max_us}};
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
