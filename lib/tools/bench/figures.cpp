// SPDX-License-Identifier: MIT
#include "figures.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace bench {

Summary& Summary::operator/=(double parts) noexcept {
  for (double* figure : {&median_us, &p90_us, &p99_us, &min_us, &p999_us, &max_us}) *figure /= parts;
  return *this;
}

Summary summarise(std::vector<std::int64_t>& ns) {
  if (ns.empty()) return {};
  std::sort(ns.begin(), ns.end());
  if (const auto negative = std::lower_bound(ns.begin(), ns.end(), 0) - ns.begin(); negative != 0) {
    throw std::runtime_error(
        fmt::format("{} of {} times are below 0: what began and what ended them is not in that order, so no figure of "
                    "this run counts",
                    negative, ns.size()));
  }
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(ns.size())));
    return static_cast<double>(ns[std::max<std::size_t>(rank, 1) - 1]) / 1000.0;
  };
  return {.median_us = at(0.5),
          .p90_us = at(0.9),
          .p99_us = at(0.99),
          .min_us = at(0),
          .p999_us = at(0.999),
          .max_us = at(1),
          .count = ns.size()};
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

void* map_shared(int& descriptor, std::size_t bytes) {
  if (descriptor < 0) {
    descriptor = memfd_create("gpumap-bench", 0);  // the others inherit it
    if (descriptor < 0 || ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
      throw std::system_error(errno, std::generic_category(), "no shared memory");
    }
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "no shared memory");
  return memory;
}

Child::Child(std::vector<std::string> words) : words_(std::move(words)) {
  start();
}

Child::~Child() {
  send(SIGKILL);
}

void Child::send(int signal) {
  if (pid_ < 0) return;  // kill() would take that for every process
  kill(pid_, signal);
  if (signal == SIGKILL) wait();
}

void Child::start() {
  std::string name = program_invocation_short_name;
  std::vector<char*> argv{name.data()};
  for (std::string& word : words_) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
  if (error != 0) throw std::system_error(error, std::generic_category(), "a process cannot be started");
}

bool Child::has_ended() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

int Child::wait() {
  int status = 0;
  if (pid_ > 0) waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
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
