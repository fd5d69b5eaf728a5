// SPDX-License-Identifier: MIT
// Two sides that spin make no system call: a filter in the kernel ends the process at the first one.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <new>

#include "ring/control_block.hpp"
#include "ring_helpers.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

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
