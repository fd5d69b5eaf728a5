// SPDX-License-Identifier: MIT
#include "gst/tools/latency/gate.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>
#include <gpumap/latency.hpp>
#include <system_error>
#include <thread>

namespace latency {
namespace {

/// Who else counts may die between its step and its call.
constexpr timespec second_look{.tv_sec = 0, .tv_nsec = 100'000'000};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "words that two processes share hold no lock");

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* time) noexcept {
  return ::syscall(SYS_futex, &word, operation, value, time, nullptr, 0);
}

}  // namespace

SharedArrivals::SharedArrivals() : fd_(::memfd_create("gpumap-latency", MFD_CLOEXEC)) {
  if (fd_ < 0 || ::ftruncate(fd_, sizeof(Arrivals)) != 0) {
    const int cause = errno;
    if (fd_ >= 0) ::close(fd_);
    throw std::system_error(cause, std::generic_category(), "no memory to share with the producer's process");
  }
  map();
}

SharedArrivals::SharedArrivals(int fd) : fd_(fd) {
  map();
}

void SharedArrivals::map() {
  void* const at = ::mmap(nullptr, sizeof(Arrivals), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (at == MAP_FAILED) {
    const int cause = errno;
    ::close(fd_);
    throw std::system_error(cause, std::generic_category(), "cannot map what both processes count in");
  }
  words_ = static_cast<Arrivals*>(at);
}

SharedArrivals::~SharedArrivals() {
  ::munmap(words_, sizeof(Arrivals));
  ::close(fd_);
}

void Gate::arrived() {
  arrivals_.count.fetch_add(1);
  wake();
}

void Gate::wake() {
  if (!spin_ && arrivals_.asleep.exchange(0) != 0) futex(arrivals_.asleep, FUTEX_WAKE, 1, nullptr);
}

void Gate::wait_for(std::uint64_t count) {
  const auto waits = [&] { return this->count() < count && !stopped(); };
  if (!spin_) {
    while (waits()) {
      arrivals_.asleep = 1;
      // A thread that comes from here on finds it asleep.
      if (waits()) futex(arrivals_.asleep, FUTEX_WAIT, 1, &second_look);
    }
    return;
  }
  constexpr unsigned looks_before_yield = 4096;
  for (unsigned look = 1; waits(); ++look) {
    if (look % looks_before_yield == 0) std::this_thread::yield();
  }
}

// A producer on time is what is asked for: with spin it does not depend on how soon the scheduler wakes it.
void Gate::wait_until(std::int64_t time_ns) {
  constexpr std::int64_t second = 1'000'000'000;
  constexpr std::int64_t spun_ns = 200'000;
  const std::int64_t sleep_until = spin_ ? time_ns - spun_ns : time_ns;
  const timespec until{.tv_sec = sleep_until / second, .tv_nsec = sleep_until % second};
  while (!stopped() && gpumap::monotonic_ns() < sleep_until) {
    // The bit set's variant takes a time on the clock, and not one from now on.
    ::syscall(SYS_futex, &stopped_, FUTEX_WAIT_BITSET, 0, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  }
  while (spin_ && !stopped() && gpumap::monotonic_ns() < time_ns) {
  }
}

void Gate::stop() {
  stopped_ = 1;
  futex(stopped_, FUTEX_WAKE, INT_MAX, nullptr);
  wake();
}

}  // namespace latency
