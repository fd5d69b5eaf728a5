// SPDX-License-Identifier: MIT
#include "gpumap/error.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string>

#include "gpumap/printable.hpp"
#include "gpumap/thread_schedule.hpp"

namespace gpumap {

KernelFault::KernelFault(const std::string& kernel, const Error& cause)
    : Error(ErrorCode::device_lost, fmt::format("while running kernel {}: {}", kernel, cause.what()), cause.where()) {}

const char* to_string(ErrorCode code) noexcept {
  constexpr std::array names{"no_driver",  "no_device",    "no_memory", "not_supported", "invalid",
                             "compile",    "device_lost",  "io",        "not_found",     "open_read",
                             "open_write", "no_resources", "busy"};
  return names.at(static_cast<std::size_t>(code));
}

ErrorCode code_of_errno(int number) noexcept {
  constexpr std::array ran_out{EMFILE, ENFILE, ENOMEM, EAGAIN, ENOBUFS, ENOSPC};
  return std::find(ran_out.begin(), ran_out.end(), number) != ran_out.end() ? ErrorCode::no_resources : ErrorCode::io;
}

Error no_thread(const char* purpose, const std::error_code& cause) {
  std::error_code unknown;
  const auto threads = std::filesystem::directory_iterator("/proc/self/task", unknown);
  const auto count = unknown ? 0 : std::distance(begin(threads), end(threads));
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return {ErrorCode::no_resources,
          fmt::format("no thread for {}: {}; this process has {}, its user may have {} in all", purpose,
                      cause.message(), count, limited ? std::to_string(limit.rlim_cur) : "any number"),
          "end other programs, or raise ulimit -u, TasksMax= of the service or the container's limit on processes"};
}

std::string printable(std::string_view text, std::string_view kept, std::size_t most) {
  constexpr std::string_view more = "...";
  std::string made;
  while (!text.empty()) {
    const bool stays = kept.find(text.front()) != std::string_view::npos;
    const std::size_t bytes = stays ? 1 : printable_bytes(text);
    const std::string next = bytes > 0 ? std::string(text.substr(0, bytes))
                                       : fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    if (next.size() > most - made.size()) return made += more;
    made += next;
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return made;
}

// Out of line, so that the type information by which these are caught is in the library and nowhere else.
Error::~Error() = default;
KernelFault::~KernelFault() = default;

FiguredError::FiguredError(const Error& error, Figures figures)
    : Error(error), figures_(std::make_shared<const Figures>(std::move(figures))) {}
FiguredError::~FiguredError() = default;

Figures figures_of(const Error& error) {
  const auto* figured = dynamic_cast<const FiguredError*>(&error);
  return figured != nullptr ? figured->figures() : Figures();
}

std::string remedy_of(const Error& error) {
  const std::string text = error.what();
  return text.substr(std::min(error.cause().size() + 2, text.size()));  // ": "
}

FiguredError within(const std::string& what, const Error& error, const Figures& more) {
  const std::string remedy = remedy_of(error);
  const std::string cause = what + ": " + error.cause();
  Figures figures = figures_of(error);
  figures.insert(figures.end(), more.begin(), more.end());
  return {
      remedy.empty() ? Error(error.code(), cause, error.where()) : Error(error.code(), cause, remedy, error.where()),
      std::move(figures)};
}

}  // namespace gpumap
