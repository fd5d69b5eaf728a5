// SPDX-License-Identifier: MIT
#include "figures.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
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

namespace {

/// What is written beside a regular file, and then put in its place: a reader sees the old one or the new one. A device
/// or a pipe is written as it is.
std::string part_of(const std::string& file) {
  std::error_code none;
  const auto status = std::filesystem::status(file, none);
  const bool regular = !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
  // What standard output is redirected to may be a regular file, and keeps its name.
  return regular && !file.starts_with("/dev/") && !file.starts_with("/proc/") ? file + ".part" : file;
}

}  // namespace

void check_writable(const std::vector<std::string>& files) {
  std::vector<std::string> regular;
  for (const std::string& file : files) {
    if (file.empty()) continue;
    const std::string part = part_of(file);
    if (part == file) {  // a device or a pipe, of which each result may have its turn; a reader would see it closed
      errno = std::filesystem::is_directory(file) ? EISDIR : 0;
      if (errno == 0 && ::access(file.c_str(), W_OK) == 0) continue;
      throw UsageError(fmt::format("cannot write {}: {}; nothing was measured", file, std::strerror(errno)));
    }
    for (const std::string& one : {file, part}) {
      const bool was_there = ::access(one.c_str(), F_OK) == 0;
      const int descriptor = ::open(one.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
      if (descriptor < 0) {
        throw UsageError(fmt::format("cannot write {}: {}; nothing was measured", one, std::strerror(errno)));
      }
      ::close(descriptor);
      if (!was_there) ::unlink(one.c_str());
    }
    for (const std::string& one : {file, part}) {
      std::error_code none;
      const std::string place = std::filesystem::weakly_canonical(std::filesystem::absolute(one), none).string();
      if (std::find(regular.begin(), regular.end(), place) != regular.end()) {
        throw UsageError(
            fmt::format("{} is asked for twice (each result is written to its name and .part first), and one result "
                        "would overwrite the other: give each a file of its own; nothing was measured",
                        one));
      }
      regular.push_back(place);
    }
  }
}

void write_file(const std::string& file, std::string_view text) {
  const std::string part = part_of(file);
  const int descriptor = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int trouble = descriptor < 0 ? errno : 0;
  while (trouble == 0 && !text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      trouble = errno;
    }
  }
  if (descriptor >= 0 && ::close(descriptor) != 0 && trouble == 0) trouble = errno;
  if (trouble == 0 && part != file && std::rename(part.c_str(), file.c_str()) != 0) trouble = errno;
  if (trouble == 0) return;
  if (part != file && descriptor >= 0) ::unlink(part.c_str());
  throw std::runtime_error(fmt::format("cannot write {}: {}", file, std::strerror(trouble)));
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
