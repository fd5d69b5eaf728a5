// SPDX-License-Identifier: MIT
// The helpers themselves, more of them than this machine may have CPUs: awake, asleep, late, and memory taken away; and
// how they and other threads are scheduled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "copy/helpers.hpp"
#include "copy_helpers.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/thread_schedule.hpp"
#include "test_helpers.hpp"
#include "thread_names.hpp"

namespace gpumap {
namespace {

using namespace std::chrono_literals;
using test::Aligned;
using test::all_guard;
using test::fill_guard;
using test::guard_bytes;
using test::Pages;
using test::random_bytes;
using test::same;

/// Of this thread, before one fails; negative: none does.
thread_local int allocations_to_come = -1;

ThreadSchedule anywhere() {
  return {};
}

copy::Job job_of(std::byte* to, const std::byte* from, std::size_t bytes, unsigned threads) {
  copy::Job job;
  job.copy = copy::usable_kernels().back().copy;
  job.to = to;
  job.from = from;
  job.bytes = bytes;
  job.cut(threads);
  return job;
}

TEST(CopyJob, ChunksCoverEveryByteOnce) {
  Aligned to(8 << 20);
  std::mt19937 random(1);
  for (unsigned turn = 0; turn < 2000; ++turn) {
    const std::size_t bytes = random() % (turn % 2 == 0 ? 5000 : 4 << 20);
    const std::size_t shift = random() % 5000;
    copy::Job job = job_of(to.data() + shift, nullptr, bytes, 1 + turn % 8);
    std::size_t covered = std::min(job.first, bytes);
    for (std::uint32_t i = 1; i < job.chunks; ++i) {
      ASSERT_EQ((reinterpret_cast<std::uintptr_t>(job.to) + covered) % 4096, 0U) << "a chunk begins at a page";
      ASSERT_LT(covered, bytes) << "no chunk is empty";
      covered = std::min(job.first + i * job.step, bytes);
    }
    ASSERT_EQ(covered, bytes);
  }
}

class CopyHelpers : public testing::TestWithParam<unsigned> {};

TEST_P(CopyHelpers, ContentAwakeAndAsleep) {
  copy::Helpers helpers(GetParam(), anywhere());
  ASSERT_EQ(helpers.count(), GetParam());
  constexpr std::size_t most = 1 << 20;
  const auto data = random_bytes(most);
  Aligned to(most + 2 * guard_bytes + 4096);
  std::mt19937 random(GetParam());
  std::uniform_int_distribution<unsigned> some(0, GetParam());
  for (int turn = 0; turn < 300; ++turn) {
    const std::size_t bytes = random() % most;
    const std::size_t shift = guard_bytes + random() % 4096;
    fill_guard(to.data(), to.bytes());
    if (turn % 8 == 0) std::this_thread::sleep_for(1ms);
    helpers.run(job_of(to.data() + shift, data.data(), bytes, GetParam() + 1), some(random));
    store_fence();
    ASSERT_TRUE(all_guard(to.data(), to.data() + shift)) << bytes;
    ASSERT_TRUE(same(data.data(), to.data() + shift, bytes)) << bytes;
    ASSERT_TRUE(all_guard(to.data() + shift + bytes, to.data() + to.bytes())) << bytes;
  }
}

// Packets of 64 KiB every 80 us cost three threads that spin all the time, to save 2 us of each.
TEST(CopyFlow, EndsSoonBehindAShortCopy) {
  EXPECT_EQ(copy::longest_gap(3us), 12us);
  EXPECT_EQ(copy::longest_gap(1ms), 100us);
  EXPECT_EQ(copy::longest_gap(0ns), 0ns);
}

TEST_P(CopyHelpers, SpinOnlyInAFlow) {
  copy::Helpers helpers(GetParam(), anywhere());
  const auto data = random_bytes(1 << 18);
  Aligned to(1 << 18);
  const auto copy_once = [&] { helpers.run(job_of(to.data(), data.data(), 1 << 18, GetParam() + 1), GetParam()); };
  // Long before the spin below ends by itself.
  const auto comes_to_be = [&](bool awake) {
    const auto end = std::chrono::steady_clock::now() + 1min;
    while (helpers.awake(GetParam()) != awake) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  };
  copy_once();
  EXPECT_TRUE(comes_to_be(false));
  for (int turn = 0; turn < 50; ++turn) copy_once();
  EXPECT_TRUE(comes_to_be(false));
  helpers.set_spin(1h);
  // At least one: a helper that wakes late for an earlier copy is up as well, and does not know of the spin. Up to the
  // last: one that came too late for a copy takes part in the next.
  do {
    copy_once();
  } while (!helpers.awake(GetParam()));
  std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(comes_to_be(true)) << "who sleeps stays asleep, as nobody calls";
  helpers.set_spin(0s);
  copy_once();
  EXPECT_TRUE(comes_to_be(false));
}

// Once run() is back, the slot may be flushed away and be another's: no helper may touch it, nor the source.
TEST_P(CopyHelpers, TouchNothingAfterwards) {
  copy::Helpers helpers(GetParam(), anywhere());
  constexpr std::size_t bytes = 200'000;
  const Pages from(bytes);
  const Pages to(bytes);
  const auto data = random_bytes(bytes);
  std::copy_n(data.data(), bytes, from.first());
  for (int turn = 0; turn < 1000; ++turn) {
    from.allow(true);
    to.allow(true);
    helpers.run(job_of(to.first(), from.first(), bytes, GetParam() + 1), GetParam());
    from.allow(false);
    to.allow(false);
    if (turn % 64 == 0) std::this_thread::sleep_for(1ms);
  }
  to.allow(true);
  EXPECT_TRUE(same(data.data(), to.first(), bytes));
}

TEST_P(CopyHelpers, ComeAndGo) {
  const auto data = random_bytes(100'000);
  Aligned to(100'000);
  for (int turn = 0; turn < 50; ++turn) {
    copy::Helpers helpers(GetParam(), anywhere());
    if (turn % 2 == 0) continue;
    helpers.run(job_of(to.data(), data.data(), 100'000, GetParam() + 1), GetParam());
  }
}

TEST(CopyHelpersAsThreads, HaveNames) {
  const copy::Helpers helpers(2, anywhere());
  EXPECT_TRUE(test::thread_names().contains("gpumap-copy")) << testing::PrintToString(test::thread_names());
}

TEST(CopyHelpersWithoutThreads, LeaveTheCopyToTheCaller) {
  const auto data = random_bytes(100'003);
  Aligned to(data.size());
  std::unique_ptr<copy::Helpers> helpers;
  {
    const test::NoThreads none;
    ASSERT_NO_THROW(helpers = std::make_unique<copy::Helpers>(3U, anywhere()));
  }
  EXPECT_EQ(helpers->count(), 0U);
  helpers->run(job_of(to.data(), data.data(), data.size(), 4), 3);
  EXPECT_TRUE(same(data.data(), to.data(), data.size()));
}

/// Faults in a helper only, while the caller waits with its own chunk.
std::atomic<bool> helper_has_a_chunk{false};
void read_in_a_helper(std::byte* /*to*/, const std::byte* from, std::size_t /*bytes*/) noexcept {
  if (gettid() == getpid()) {
    while (!helper_has_a_chunk) std::this_thread::yield();
    return;
  }
  helper_has_a_chunk = true;
  static_cast<void>(*const_cast<const volatile std::byte*>(from));
}

/// Ends with 0 where the application's handler is called for the fault that reading `from` is.
[[noreturn]] void fault_in_a_helper(int signal, const std::byte* from) {
  struct sigaction action {};
  action.sa_handler = [](int) { std::_Exit(0); };
  sigaction(signal, &action, nullptr);
  copy::Helpers helpers(1, anywhere());
  std::vector<std::byte> to(std::size_t{1} << 20U);
  copy::Job job = job_of(to.data(), from, to.size(), 2);
  job.copy = read_in_a_helper;
  helpers.run(job, 1);
  std::_Exit(1);
}

// Frames may come from mapped files. The kernel ends a process whose thread blocks the signal of its own fault.
TEST(CopyHelpersDeathTest, FaultsReachTheApplicationsHandler) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Pages none(std::size_t{1} << 20U);
  none.allow(false);
  EXPECT_EXIT(fault_in_a_helper(SIGSEGV, none.first()), testing::ExitedWithCode(0), "");
  const int empty = memfd_create("empty", 0);
  const void* behind_its_end = mmap(nullptr, std::size_t{1} << 20U, PROT_READ, MAP_SHARED, empty, 0);
  ASSERT_NE(behind_its_end, MAP_FAILED);
  EXPECT_EXIT(fault_in_a_helper(SIGBUS, static_cast<const std::byte*>(behind_its_end)), testing::ExitedWithCode(0), "");
}

TEST(CopyHelpersWithoutMemory, LeaveNeitherAThreadNorASignalMask) {
  if (sanitized) GTEST_SKIP() << "operator new is the sanitizer's";
  const auto blocked = [] {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return sigismember(&now, SIGTERM) == 1;
  };
  bool made = false;
  for (int allocations = 0; !made; ++allocations) {
    ASSERT_LT(allocations, 100);
    try {
      allocations_to_come = allocations;
      const copy::Helpers helpers(3, anywhere());
      allocations_to_come = -1;
      made = helpers.count() == 3;
    } catch (const std::bad_alloc&) {
      allocations_to_come = -1;
    }
    EXPECT_FALSE(blocked()) << allocations;
  }
}

INSTANTIATE_TEST_SUITE_P(Copy, CopyHelpers, testing::Values(1U, 3U, 7U));

// ---- How threads are scheduled ----

/// The CPUs that this thread may use, as numbers.
std::vector<unsigned> own_cpus() {
  return copy::allowed_cpus().numbers();
}

bool may_be_real_time() {
  return refused_to_threads({.priority = 1}).empty();
}

TEST(ThreadSchedule, ListsOfCpus) {
  using Cpus = std::vector<unsigned>;
  EXPECT_EQ(cpus_of(""), Cpus());
  EXPECT_EQ(cpus_of("  "), Cpus());
  EXPECT_EQ(cpus_of("7"), Cpus{7});
  EXPECT_EQ(cpus_of("9,2-4 , 3-5,1500"), (Cpus{2, 3, 4, 5, 9, 1500}));
  for (const char* wrong :
       {"x", "1,", ",1", "3-2", "1-", "-1", "1--2", "1 2", "1;2", "65536", "0-65536", "99999999999", "0x1", "1-2-3"}) {
    EXPECT_THAT(error_of([&] { return cpus_of(wrong); }),
                testing::HasSubstr(std::string("\"") + wrong + "\" is no list of CPUs: give numbers and ranges"));
  }
}

TEST(ThreadSchedule, HoldsWhileItLivesAndNotForOthers) {
  const std::vector<unsigned> before = own_cpus();
  const int policy = sched_getscheduler(0);
  const ThreadSchedule wanted{.priority = may_be_real_time() ? 7U : 0U, .cpus = {before.back()}};
  {
    const Scheduled scheduled(wanted);
    EXPECT_EQ(own_cpus(), wanted.cpus);
    if (wanted.priority != 0) {
      sched_param param{};
      EXPECT_EQ(sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, SCHED_FIFO);
      EXPECT_EQ(sched_getparam(0, &param), 0);
      EXPECT_EQ(param.sched_priority, 7);
      std::thread([] { EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER) << "a driver's thread, for example"; }).join();
      start_thread("test", "a test", [] {
        EXPECT_EQ(sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, SCHED_FIFO) << "one of gpumap's";
      }).join();
      start_thread(
          "test", "a test", [] { EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER); }, ThreadSchedule())
          .join();
    }
  }
  EXPECT_EQ(own_cpus(), before);
  EXPECT_EQ(sched_getscheduler(0), policy);
}

TEST(ThreadSchedule, WhatIsRefusedSaysWhyAndIsLeftAsItIs) {
  EXPECT_TRUE(refused_to_threads({.cpus = own_cpus()}).empty());
  const std::vector<unsigned> before = own_cpus();
  const std::string own = std::to_string(before.back());
  const auto absent = refused_to_threads({.cpus = {before.back(), 60000, 60001}});
  ASSERT_EQ(absent.size(), 1U);
  EXPECT_EQ(absent[0].code(), ErrorCode::invalid);
  EXPECT_THAT(absent[0].what(), testing::HasSubstr("CPU 60000-60001 is not in this machine"));
  EXPECT_THAT(absent[0].what(), testing::HasSubstr("until then threads run on " + own));
  {
    const Scheduled some({.cpus = {before.back(), 60000}});
    EXPECT_EQ(own_cpus(), std::vector<unsigned>{before.back()});
  }
  {
    const Scheduled none({.cpus = {60000}});
    EXPECT_EQ(own_cpus(), before);
  }
  const test::NoRealTime none;
  if (may_be_real_time()) GTEST_SKIP() << "a capability that cannot be given up allows it";
  const auto refused = refused_to_threads({.priority = 50});
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].code(), ErrorCode::io);
  for (const char* part : {"priority 50 (SCHED_FIFO)", "ulimit -r allows 0", "rtprio 50", "/etc/security/limits.d"}) {
    EXPECT_THAT(refused[0].what(), testing::HasSubstr(part));
  }
  const int policy = sched_getscheduler(0);
  const Scheduled scheduled({.priority = 50});
  EXPECT_EQ(sched_getscheduler(0), policy);
}

TEST(ThreadSchedule, OfHelpersThatCopy) {
  const std::string cpu = std::to_string(own_cpus().back());
  const bool real_time = may_be_real_time();
  CopierOptions options;
  options.threads = 3;
  const ThreadSchedule schedule{.priority = real_time ? 3U : 0U, .cpus = {own_cpus().back()}};
  const StartedWith started(schedule);
  const Copier copier(options);
  // One CPU is named, and the caller has its own.
  const auto is_scheduled = [&] {
    const auto helpers = test::thread_states("gpumap-copy");
    return helpers.size() == 1 && helpers[0].cpus == cpu &&
           helpers[0].policy == (real_time ? SCHED_FIFO : SCHED_OTHER) && helpers[0].priority == (real_time ? 3 : 0);
  };
  const auto end = std::chrono::steady_clock::now() + 1min;
  while (!is_scheduled() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(is_scheduled());
}

}  // namespace
}  // namespace gpumap

#ifndef GPUMAP_SANITIZED  // whose operator new it is
// Not inlined: GCC takes free() there for the wrong end of a `new`.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (gpumap::allocations_to_come >= 0 && gpumap::allocations_to_come-- == 0) throw std::bad_alloc();
  void* memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif
