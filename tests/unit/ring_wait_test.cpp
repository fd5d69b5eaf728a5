// SPDX-License-Identifier: MIT
// Everything that ends a wait: frames, slots, flush, close, nudge, deadlines.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <new>
#include <utility>
#include <vector>

#include "ring/control_block.hpp"
#include "ring_helpers.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

TEST(RingWait, FrameWakesTheConsumer) {
  const auto ring = make_ring(2);
  auto result = asleep(*ring, receiving(ring));
  send(*ring);
  expect_soon(result, RingStatus::ok);
}

TEST(RingWait, ReleaseWakesTheProducer) {
  const auto ring = full_ring();
  ReadLease lease = must_receive(*ring);
  auto result = asleep(*ring, acquiring(ring));
  lease = ReadLease();
  expect_soon(result, RingStatus::ok);
}

TEST(RingWait, DroppedWriteLeaseWakesTheProducer) {
  const auto ring = make_ring(2);
  WriteLease kept = must_acquire(*ring);
  const WriteLease other = must_acquire(*ring);
  auto result = asleep(*ring, acquiring(ring));
  kept = WriteLease();
  expect_soon(result, RingStatus::ok);
}

TEST(RingWait, EveryFrameWakesOneOfManySleepers) {
  const auto ring = make_ring(8);
  std::vector<std::future<RingStatus>> results;
  for (int n = 0; n < 6; ++n) results.push_back(asleep(*ring, receiving(ring)));
  for (int n = 0; n < 6; ++n) send(*ring);
  for (auto& result : results) expect_soon(result, RingStatus::ok);
}

TEST(RingWait, FlushEndsBothSides) {
  const auto ring = full_ring();
  auto producer = asleep(*ring, acquiring(ring));
  ring->set_consumer_flushing(true);  // the other side's flush does not concern it
  EXPECT_EQ(producer.wait_for(20ms), std::future_status::timeout);
  ring->set_producer_flushing(true);
  expect_soon(producer, RingStatus::flushing);
  WriteLease write;
  EXPECT_EQ(ring->acquire(write, WhenFull::drop_newest), RingStatus::flushing);
  ReadLease read;
  EXPECT_EQ(ring->receive(read), RingStatus::flushing);
  ring->set_consumer_flushing(false);
  EXPECT_EQ(ring->receive(read), RingStatus::ok);
  read = ReadLease();
  EXPECT_EQ(ring->acquire(write), RingStatus::flushing);
  ring->set_producer_flushing(false);
  EXPECT_EQ(ring->acquire(write), RingStatus::ok);
  ring->drop_queued();
  auto consumer = asleep(*ring, receiving(ring));
  ring->set_consumer_flushing(true);
  expect_soon(consumer, RingStatus::flushing);
}

TEST(RingWait, FlushEndsSpinning) {
  const auto ring = make_ring(2, 1000, std::chrono::minutes(1));
  auto consumer = std::async(std::launch::async, receiving(ring));
  std::this_thread::sleep_for(5ms);
  ring->set_consumer_flushing(true);
  expect_soon(consumer, RingStatus::flushing);
}

TEST(RingWait, CloseProducerLetsTheQueueRunDry) {
  const auto ring = full_ring();
  WriteLease lease;
  auto producer = asleep(*ring, acquiring(ring));
  ring->close_producer();
  expect_soon(producer, RingStatus::closed);
  EXPECT_EQ(must_receive(*ring).info().sequence, 0U);
  EXPECT_EQ(must_receive(*ring).info().sequence, 1U);
  ReadLease read;
  EXPECT_EQ(ring->receive(read), RingStatus::closed);
  EXPECT_EQ(ring->acquire(lease), RingStatus::closed);
}

TEST(RingWait, CloseProducerWakesTheConsumer) {
  const auto ring = make_ring(2);
  auto result = asleep(*ring, receiving(ring));
  ring->close_producer();
  expect_soon(result, RingStatus::closed);
}

TEST(RingWait, CloseConsumerDropsAndEndsBothSides) {
  const auto ring = full_ring();
  auto producer = asleep(*ring, acquiring(ring));
  ring->close_consumer();
  expect_soon(producer, RingStatus::closed);
  EXPECT_EQ(ring->queued(), 0U);
  EXPECT_EQ(ring->counters().dropped, 2U);
  ReadLease read;
  EXPECT_EQ(ring->receive(read), RingStatus::closed);
  for (const WhenFull when : {WhenFull::block, WhenFull::drop_newest, WhenFull::drop_oldest}) {
    WriteLease write;
    EXPECT_EQ(ring->acquire(write, when), RingStatus::closed);
  }
  const auto idle = make_ring(2);
  auto consumer = asleep(*idle, receiving(idle));
  idle->close_consumer();
  expect_soon(consumer, RingStatus::closed);
}

TEST(RingWait, PublishAfterCloseConsumerLeavesNothingQueued) {
  const auto ring = make_ring(2);
  WriteLease lease = must_acquire(*ring);
  ring->close_consumer();
  ring->publish(lease, {});
  EXPECT_TRUE(lease.published());
  EXPECT_EQ(ring->queued(), 0U);
  EXPECT_EQ(ring->counters().dropped, 1U);
}

TEST(RingWait, NudgeGivesOneTimeout) {
  const auto ring = make_ring(2);
  auto result = asleep(*ring, receiving(ring));
  ring->nudge_consumer();
  expect_soon(result, RingStatus::timeout);
  auto again = asleep(*ring, receiving(ring));
  EXPECT_EQ(again.wait_for(20ms), std::future_status::timeout) << "once is once";
  send(*ring);
  expect_soon(again, RingStatus::ok);
}

TEST(RingWait, NudgeBeforeTheSleepIsNotLost) {
  const auto ring = make_ring(2);
  send(*ring);
  ring->nudge_consumer();
  ReadLease lease;
  EXPECT_EQ(ring->receive(lease, in(10min)), RingStatus::ok) << "a frame comes first";
  const Deadline start = Clock::now();
  EXPECT_EQ(ring->receive(lease, in(10min)), RingStatus::timeout);
  EXPECT_LT(Clock::now() - start, long_enough);
}

/// From `wake` until the call of a sleeper whom `sleep` makes has ended. The shortest of some: others use this machine,
/// too.
template <typename Sleep, typename Wake>
Clock::duration shortest_wake(Sleep sleep, Wake wake) {
  auto shortest = Clock::duration::max();
  for (int turn = 0; turn < 100 && shortest >= 50ms; ++turn) {
    auto [ring, result] = sleep();
    const Deadline start = Clock::now();
    wake(*ring);
    if (result.wait_for(long_enough) != std::future_status::ready) ADD_FAILURE() << "it sleeps on";
    shortest = std::min(shortest, Clock::now() - start);
    ring->set_producer_flushing(true);
    ring->set_consumer_flushing(true);
  }
  return shortest;
}

// A sleeper looks by itself after 100 ms at the latest. Who is woken does not wait for that.
TEST(RingWait, WakesComeAtOnce) {
  const auto consumer = [] {
    auto ring = make_ring(2);
    auto result = asleep(*ring, receiving(ring));
    return std::pair(std::move(ring), std::move(result));
  };
  const auto producer = [] {
    auto ring = full_ring();
    auto result = asleep(*ring, acquiring(ring));
    return std::pair(std::move(ring), std::move(result));
  };
  EXPECT_LT(shortest_wake(consumer, [](Ring& ring) { send(ring); }), 50ms);
  EXPECT_LT(shortest_wake(consumer, [](Ring& ring) { ring.nudge_consumer(); }), 50ms);
  EXPECT_LT(shortest_wake(consumer, [](Ring& ring) { ring.set_consumer_flushing(true); }), 50ms);
  EXPECT_LT(shortest_wake(consumer, [](Ring& ring) { ring.close_producer(); }), 50ms);
  EXPECT_LT(shortest_wake(producer, [](Ring& ring) { must_receive(ring); }), 50ms);
  EXPECT_LT(shortest_wake(producer, [](Ring& ring) { ring.drop_queued(); }), 50ms);
  EXPECT_LT(shortest_wake(producer, [](Ring& ring) { ring.set_producer_flushing(true); }), 50ms);
  EXPECT_LT(shortest_wake(producer, [](Ring& ring) { ring.close_consumer(); }), 50ms);
}

TEST(RingWait, TimeoutsAreAccurate) {
  const auto ring = full_ring();
  const auto idle = make_ring(2);
  for (const std::chrono::nanoseconds spin : {0ns, std::chrono::nanoseconds(100us), std::chrono::nanoseconds(1s)}) {
    ring->set_spin(spin);
    idle->set_spin(spin);
    for (const auto span : {1ms, 20ms}) {
      // The best of some: others use this machine, too. Never early is meant for all of them.
      auto late = Clock::duration::max();
      for (int turn = 0; turn < 5 || (turn < 100 && late >= 2ms); ++turn) {
        const Deadline write_end = in(span);
        WriteLease write;
        ASSERT_EQ(ring->acquire(write, WhenFull::block, write_end), RingStatus::timeout);
        const Deadline read_end = in(span);
        ASSERT_GE(read_end - span, write_end);
        ReadLease read;
        ASSERT_EQ(idle->receive(read, read_end), RingStatus::timeout);
        ASSERT_GE(Clock::now(), read_end);
        late = std::min(late, Clock::now() - read_end);
      }
      EXPECT_LT(late, 2ms);
    }
  }
}

TEST(RingWait, PastDeadlinesTakeWhatIsThere) {
  const auto ring = make_ring(2);
  WriteLease write;
  ReadLease read;
  for (const Deadline deadline : {Deadline::min(), Deadline{}, Deadline{} - 1h, at_once()}) {
    EXPECT_EQ(ring->receive(read, deadline), RingStatus::timeout);
    ASSERT_EQ(ring->acquire(write, WhenFull::block, deadline), RingStatus::ok);
    ring->publish(write, {});
    EXPECT_EQ(ring->receive(read, deadline), RingStatus::ok);
  }
  EXPECT_EQ(ring->counters().consumer_waits, 0U);
}

// What a full ring does, and what the counters say of it.

TEST(RingDrop, NewestGivesUpAtOnce) {
  const auto ring = make_ring(2);
  send(*ring, 1);
  send(*ring, 2);
  WriteLease lease;
  EXPECT_EQ(ring->acquire(lease, WhenFull::drop_newest), RingStatus::full);
  EXPECT_FALSE(lease);
  EXPECT_EQ(ring->counters().refused, 1U);
  EXPECT_EQ(ring->counters().dropped, 0U);
  EXPECT_EQ(must_receive(*ring).info().offset, 1U);
  EXPECT_EQ(ring->acquire(lease, WhenFull::drop_newest), RingStatus::ok);
  EXPECT_EQ(must_receive(*ring).info().offset, 2U);
}

TEST(RingDrop, OldestTakesBackTheOldest) {
  const auto ring = make_ring(3);
  send(*ring, 1);
  const ReadLease held = must_receive(*ring);
  for (std::uint64_t n = 2; n < 10; ++n) {
    WriteLease lease;
    ASSERT_EQ(ring->acquire(lease, WhenFull::drop_oldest), RingStatus::ok);
    EXPECT_NE(lease.slot(), held.slot());
    FrameInfo info;
    info.offset = n;
    ring->publish(lease, info);
  }
  EXPECT_EQ(ring->counters().dropped, 6U);
  EXPECT_EQ(ring->counters().overtaken, 6U);
  const ReadLease eight = must_receive(*ring);
  EXPECT_EQ(eight.info().offset, 8U);
  EXPECT_EQ(eight.info().sequence, 7U);
  const ReadLease nine = must_receive(*ring);
  EXPECT_EQ(nine.info().offset, 9U);
  WriteLease lease;
  EXPECT_EQ(ring->acquire(lease, WhenFull::drop_oldest), RingStatus::full) << "the consumer holds them all";
  EXPECT_EQ(ring->counters().dropped, 6U);
  EXPECT_EQ(ring->counters().refused, 1U);
  EXPECT_EQ(ring->counters().received, 3U);
}

TEST(RingDrop, OldestPassesOverSlotsWhoseWriterLives) {
  const auto ring = make_ring(2);
  WriteLease kept = must_acquire(*ring);
  ring->publish(kept, {});
  send(*ring, 5);
  WriteLease lease;
  ASSERT_EQ(ring->acquire(lease, WhenFull::drop_oldest), RingStatus::ok);
  EXPECT_NE(lease.slot(), kept.slot());
  EXPECT_EQ(ring->counters().dropped, 2U);
  WriteLease none;
  EXPECT_EQ(ring->acquire(none, WhenFull::drop_oldest), RingStatus::full);
}

TEST(RingDrop, QueuedEmptiesAndFrees) {
  const auto ring = make_ring(4);
  for (std::uint64_t n = 0; n < 4; ++n) send(*ring, n);
  auto blocked = asleep(*ring, acquiring(ring));
  ring->drop_queued();
  expect_soon(blocked, RingStatus::ok);
  EXPECT_EQ(ring->queued(), 0U);
  EXPECT_EQ(ring->counters().dropped, 4U);
  EXPECT_EQ(ring->counters().overtaken, 0U);
  EXPECT_EQ(ring->counters().received, 0U);
  ReadLease lease;
  EXPECT_EQ(ring->receive(lease, at_once()), RingStatus::timeout);
  send(*ring, 9);
  EXPECT_EQ(must_receive(*ring).info().sequence, 4U);
}

// Two sides that spin make no system call: a filter in the kernel ends the process at the first one.

using namespace test;  // NOLINT: the tests' own words

constexpr std::uint64_t frames = 100'000;

#if defined(__x86_64__)
constexpr std::uint32_t native = AUDIT_ARCH_X86_64;
#else
constexpr std::uint32_t native = AUDIT_ARCH_AARCH64;
#endif

enum Exit : int { clean = 0, trapped = 1, no_filter = 2, wrong_frames = 3 };

[[noreturn]] void leave(Exit code) {
  syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

/// What the child tells its parent beside its exit status.
std::atomic<int>* offender = nullptr;

void on_trap(int, siginfo_t* info, void*) {
  offender->store(info->si_syscall);
  leave(trapped);
}

/// From here on this thread may end itself or the process, and nothing else; with `clock`, also ask the time.
void forbid_system_calls(bool clock) {
  const auto after = [](int call, std::uint8_t skip_unless) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), skip_unless, 0);
  };
  std::array<sock_filter, 8> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, native, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      after(SYS_exit, 3),
      after(SYS_exit_group, 2),
      after(clock ? SYS_clock_gettime : SYS_exit, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{program.size(), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    leave(no_filter);
}

/// Runs `body` in a child and gives its exit status; `call`: the system call that ended it.
template <typename Body>
int in_child(int& call, Body body) {
  void* page = mmap(nullptr, sizeof *offender, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return -1;
  offender = new (page) std::atomic<int>(-1);
  const pid_t child = fork();
  if (child == 0) {
    struct sigaction action {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSYS, &action, nullptr);
    body();
    leave(clean);
  }
  int status = -1;
  waitpid(child, &status, 0);
  call = offender->load();
  munmap(page, sizeof *offender);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Waits for the other side without asking the kernel for anything.
void meet(std::atomic<int>& arrived) {
  for (++arrived; arrived.load() < 2;) ring::relax_cpu();
}

void spin_frames_under_the_filter(bool clock) {
  const auto ring = make_ring(256, 64, 1h);
  std::atomic<int> filtered{0};
  std::atomic<int> done{0};
  const auto write = [&](std::uint64_t count) {
    for (std::uint64_t n = 0; n < count; ++n) {
      WriteLease lease;
      if (ring->acquire(lease) != RingStatus::ok) leave(wrong_frames);
      ring->publish(lease, {.offset = n});
    }
  };
  const auto read = [&](std::uint64_t count) {
    for (std::uint64_t n = 0; n < count; ++n) {
      ReadLease lease;
      if (ring->receive(lease) != RingStatus::ok || lease.info().offset != n) leave(wrong_frames);
    }
  };
  // Threads under the filter end without their C library, which would unmap a stack.
  const std::thread producer([&] {
    write(1000);
    forbid_system_calls(clock);
    meet(filtered);
    write(frames);
    meet(done);
    for (;;) ring::relax_cpu();
  });
  read(1000);
  forbid_system_calls(clock);
  meet(filtered);
  read(frames);
  meet(done);
  leave(clean);
}

TEST(RingSteadyState, NoSystemCallPassesTheFilter) {
  if (sanitized) GTEST_SKIP() << "a sanitizer makes system calls of its own";
  int call = -1;
  const int control = in_child(call, [] {
    forbid_system_calls(true);
    syscall(SYS_getppid);
  });
  if (control == no_filter) GTEST_SKIP() << "seccomp filters are not allowed here";
  ASSERT_EQ(control, trapped);
  ASSERT_EQ(call, SYS_getppid) << "the filter itself";

  const bool clock = in_child(call, [] {
                       forbid_system_calls(false);
                       (void)Clock::now();
                     }) != clean;
  if (clock) std::cout << "reading the clock is a system call here (no vDSO for this clocksource): allowed\n";

  EXPECT_EQ(in_child(call, [clock] { spin_frames_under_the_filter(clock); }), clean) << "system call " << call;
}

}  // namespace
}  // namespace gpumap
