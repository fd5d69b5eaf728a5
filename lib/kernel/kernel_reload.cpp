// SPDX-License-Identifier: MIT
#include "gpumap/kernel_launcher.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/start_thread.hpp"

namespace gpumap {

using namespace std::chrono_literals;

KernelReload::KernelReload(std::shared_ptr<Device> device, KernelSettings settings, PlanCheck check)
    : device_(std::move(device)),
      settings_(std::move(settings)),
      check_(std::move(check)),
      compiled_(FileStamp::of(settings_.location)) {}

KernelReload::~KernelReload() = default;

KernelReload::News KernelReload::compile() const {
  News news;
  try {
    news.plan = plan_of(settings_, *device_);
    if (check_) check_(news.plan);
    auto program = Program::load(device_, news.plan, settings_.mode);
    news.tables = tables_of(news.plan, device_);
    news.program = std::move(program);  // last: without one the rest counts for nothing
  } catch (const std::exception& error) {
    news.problem = fmt::format("{}: keeping the previous kernel", error.what());
  }
  return news;
}

std::optional<KernelReload::News> KernelReload::poll() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return {};
  next_look_ = now + 100ms;
  if (compiling_.valid()) {
    if (compiling_.wait_for(0s) != std::future_status::ready) return {};
    // Ends: it is ready.
    return compiling_.get();
  }
  const std::optional<FileStamp> before = std::exchange(seen_, FileStamp::of(settings_.location));
  // A file that is being written changes from one look to the next; one that an editor replaces is missing for a while.
  if (!seen_ || seen_ == compiled_ || seen_ != before) return {};
  compiled_ = seen_;
  try {
    // Ends: the compiler does, and a load after 60 s behind work that does not end.
    compiling_ = std::async(std::launch::async, [this] { return compile(); });
  } catch (const std::system_error& error) {
    News news;
    news.problem = fmt::format("{}: keeping the previous kernel", no_thread("compiling", error.code()).what());
    return news;
  }
  return {};
}

}  // namespace gpumap
