// SPDX-License-Identifier: MIT
#include "queue/resident_control.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "device/cuda_driver.hpp"
#include "gpumap/thread_schedule.hpp"

namespace gpumap {
namespace {

/// In one go. The limit is a second or more, and no call tells it.
constexpr std::chrono::milliseconds longest_with_time_limit{200};
constexpr std::chrono::hours nobody_there{1};

std::uint64_t product(const std::array<std::uint32_t, 3>& numbers) noexcept {
  return std::uint64_t{numbers[0]} * numbers[1] * numbers[2];
}

}  // namespace

Stay::Stay(const CudaContext& context, std::shared_ptr<CudaTimeline> timeline, Watcher& watcher,
           const ResidentOptions& options)
    : context_(context),
      timeline_(std::move(timeline)),
      watcher_(watcher),
      residents_(context.residents()),
      limited_(context.attribute(CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT) != 0),
      idle_(options.idle),
      longest_(limited_ ? std::min<std::chrono::nanoseconds>(options.stay, longest_with_time_limit) : options.stay),
      priority_(options.cuda.priority) {
  const bool shares = timeline_->multiprocessors() != 0;
  multiprocessors_ = shares ? timeline_->multiprocessors()
                            : static_cast<std::uint32_t>(context_.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  max_blocks_ = options.blocks != 0 ? options.blocks
                : shares            ? multiprocessors_
                                    : std::max((multiprocessors_ - 1) / 2, 1U);
}

std::string Stay::time_limit() const {
  if (!limited_) return {};
  return fmt::format("{} limits the time of kernels, as one with a display does: it leaves after {} ms",
                     context_.gpu_name(), std::chrono::duration_cast<std::chrono::milliseconds>(longest_).count());
}

std::uint32_t Stay::wanted(const Grid& grid) const noexcept {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(product(grid.blocks), max_blocks_));
}

bool Stay::serves(const ResidentKernel& kernel, const Grid& grid) const noexcept {
  return owner_ == kernel.owner() && threads_ == grid.threads && std::min(wanted(grid), room_) <= blocks_;
}

void Stay::prepare(const ResidentKernel& kernel, const Grid& grid, const std::function<bool()>& given_up) {
  threads_ = grid.threads;
  room_ = room_for(kernel);
  blocks_ = std::min(wanted(grid), room_);
  const auto found = residents_.come(*this, std::min(blocks_, multiprocessors_), timeline_->multiprocessors() != 0,
                                     given_up, priority_);
  if (!found) throw QueueCancelled();
  found_ = *found;
}

/// Blocks that can be there at a time: a turn waits for all of them.
std::uint32_t Stay::room_for(const ResidentKernel& kernel) const {
  const CudaContext::Scope scope(context_);
  int of_one = 0;
  context_.check(context_.driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
                     &of_one, kernel.resident_function(), static_cast<int>(product(threads_)), kernel.shared_bytes()),
                 fmt::format("asking how many blocks of kernel {} a multiprocessor takes", kernel.name()));
  return static_cast<std::uint32_t>(std::max(of_one, 1)) * multiprocessors_;
}

void Stay::launch(const ResidentKernel& kernel, gpumap_residence residence) {
  const CudaContext::Scope scope(context_);
  const auto& driver = context_.driver();
  const std::string what = fmt::format("launching kernel {} to stay, in {} blocks of {}x{}x{} threads", kernel.name(),
                                       blocks_, threads_[0], threads_[1], threads_[2]);
  for (const std::uint64_t word : {residence.parts, residence.go}) {
    context_.check(driver.cuMemsetD32Async(word, 0, 2, timeline_->stream()), what);
  }
  void* arguments[] = {&residence};
  // Cooperative: its blocks begin together, or none does. By an ordinary launch the last one may never find room,
  // though there is enough: the registers of warps that run elsewhere on the multiprocessor, or have run, lie between.
  context_.check(driver.cuLaunchCooperativeKernel(kernel.resident_function(), blocks_, 1, 1, threads_[0], threads_[1],
                                                  threads_[2], kernel.shared_bytes(), timeline_->stream(), arguments),
                 what);
  owner_ = kernel.owner();
  came_ = Clock::now();
  idle_look_ = came_ + idle_;
  watcher_.wake();
}

std::shared_ptr<const void> Stay::end() noexcept {
  gone_ = timeline_->due();
  residents_.leave(*this);
  asked_ = false;
  return std::exchange(owner_, nullptr);
}

void Stay::ask_to_leave() noexcept {
  {
    const std::lock_guard lock(waits_mutex_);
    asked_ = true;
  }
  watcher_.wake();
}

bool Stay::waits_until(std::uint64_t value) {
  const std::lock_guard lock(waits_mutex_);
  if (!asked_) waits_ = value;
  return !asked_;
}

Fence Stay::waits() const {
  const std::lock_guard lock(waits_mutex_);
  return {timeline_, waits_};
}

bool Stay::is_over(Clock::time_point now, std::uint64_t posted) {
  bool idle = false;
  if (is_there() && now >= idle_look_) {
    idle = !std::exchange(used_, false) && timeline_->completed() == posted;
    idle_look_ = now + idle_;
  }
  return asked_ || idle || now - came_ >= longest_;
}

Clock::time_point Stay::next_look(Clock::time_point now) const noexcept {
  return is_there() ? std::min(idle_look_, came_ + longest_) : now + nobody_there;
}

Watcher::Watcher(std::function<Clock::time_point()> look)
    : look_(std::move(look)),
      thread_(start_thread("gpumap-watcher", "what watches resident kernels", [this] { watch(); })) {}

void Watcher::wake() noexcept {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void Watcher::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  // Ends: the thread looks at ends_ after each look.
  thread_.join();
}

void Watcher::watch() noexcept try {
  for (Clock::time_point next = Clock::now() + nobody_there;; next = look_()) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, next, [this] { return ends_ || woken_; });
    if (ends_) return;
    woken_ = false;
  }
} catch (const std::exception&) {
  // The device is lost: there is nothing more to look at.
}

}  // namespace gpumap
