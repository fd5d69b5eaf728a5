// SPDX-License-Identifier: MIT
#include "ring/control_block.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>

#include "gpumap/error.hpp"
#include "gpumap/file.hpp"
#include "ring/slot_queue.hpp"

namespace gpumap::ring {
namespace {

[[noreturn]] void refuse(const char* what) {
  const int cause = errno;
  throw Error(code_of_errno(cause),
              fmt::format("{} refused {} bytes for a ring's control block: {}", what, sizeof(ControlBlock),
                          std::strerror(cause)),
              "raise the limits on open files, on their size and on locked or shared memory (ulimit -n, -f, -l)");
}

}  // namespace

ControlMemory::ControlMemory(std::uint32_t slots, std::uint64_t slot_bytes, std::uint64_t slot_stride) {
  const FileSizeErrors instead_of_a_signal;
  fd_ = memfd_create("gpumap-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) refuse("memfd_create");
  void* memory = MAP_FAILED;
  if (ftruncate(fd_, sizeof(ControlBlock)) == 0) {
    memory = mmap(nullptr, sizeof(ControlBlock), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, 0);
  }
  if (memory == MAP_FAILED || fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int cause = errno;
    if (memory != MAP_FAILED) munmap(memory, sizeof(ControlBlock));
    close(fd_);
    errno = cause;
    refuse("mapping a memfd");
  }
  block_ = new (memory) ControlBlock{};
  block_->magic = control_magic;
  block_->version = control_version;
  block_->slots = slots;
  block_->slot_bytes = slot_bytes;
  block_->slot_stride = slot_stride;
  block_->block_bytes = sizeof(ControlBlock);
  block_->producer_side = static_cast<std::uint32_t>(Side::open);
  block_->consumer_side = static_cast<std::uint32_t>(Side::open);
  const Limits limits = Limits::of(slots, slot_bytes);
  for (std::uint32_t slot = 0; slot < slots; ++slot) push(FreedQueue{*block_}, limits, slot);
}

ControlMemory::~ControlMemory() {
  munmap(block_, sizeof(ControlBlock));
  close(fd_);
}

namespace {

std::atomic<std::uint64_t> calls{0};

}  // namespace

std::uint64_t futex_calls() noexcept {
  return calls.load(std::memory_order_relaxed);
}

void wake_sleepers(Bell& bell) noexcept {
  if (bell.sleepers.exchange(static_cast<std::uint32_t>(Sleepers::none)) ==
      static_cast<std::uint32_t>(Sleepers::none)) {
    return;
  }
  wake_all(bell);
}

void wake_all(Bell& bell) noexcept {
  bell.rung.fetch_add(1);
  calls.fetch_add(1, std::memory_order_relaxed);
  syscall(SYS_futex, &bell.rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void sleep_on(Bell& bell, std::uint32_t seen, Deadline deadline) noexcept {
  const auto ns = std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count());
  const timespec until{.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                       .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  calls.fetch_add(1, std::memory_order_relaxed);
  // WAIT_BITSET takes an absolute CLOCK_MONOTONIC time: nothing to recompute after an early return, so no drift.
  // Every failure (EAGAIN, EINTR, ETIMEDOUT) is a reason to look again, which the caller does.
  syscall(SYS_futex, &bell.rung, FUTEX_WAIT_BITSET, seen, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace gpumap::ring
