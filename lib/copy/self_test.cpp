// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <mutex>

#include "copy/store_kernel.hpp"
#include "gpumap/copy.hpp"

namespace gpumap::copy {
namespace {

// A CPU may name an instruction that its hypervisor does not let through, which ends in SIGILL.
thread_local sigjmp_buf* way_back = nullptr;
struct sigaction before_trial;

void on_illegal_instruction(int signal, siginfo_t* info, void* context) {
  if (way_back != nullptr) siglongjmp(*way_back, 1);
  // Another thread's, which is the application's business: a handler is the whole process's.
  if ((before_trial.sa_flags & SA_SIGINFO) != 0) {
    before_trial.sa_sigaction(signal, info, context);
  } else if (before_trial.sa_handler != SIG_DFL && before_trial.sa_handler != SIG_IGN) {
    before_trial.sa_handler(signal);
  } else {
    // Ends the process when the thread repeats the instruction.
    sigaction(SIGILL, &before_trial, nullptr);
  }
}

/// While it lives, illegal instructions of this thread are the trial's.
class TrialHandler {
 public:
  TrialHandler() {
    sigaction(SIGILL, nullptr, &before_trial);
    struct sigaction ours {};
    ours.sa_sigaction = on_illegal_instruction;
    ours.sa_mask = before_trial.sa_mask;
    ours.sa_flags = SA_SIGINFO | (before_trial.sa_flags & (SA_ONSTACK | SA_NODEFER));
    sigaction(SIGILL, &ours, nullptr);
  }
  ~TrialHandler() {
    struct sigaction now {};
    sigaction(SIGILL, nullptr, &now);
    // Not where the application has set one meanwhile.
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_illegal_instruction) {
      sigaction(SIGILL, &before_trial, nullptr);
    }
  }
  TrialHandler(const TrialHandler&) = delete;
  TrialHandler& operator=(const TrialHandler&) = delete;
};

bool copies_well(const StoreKernel& kernel) {
  constexpr std::size_t guard_bytes = 64;
  constexpr std::size_t most_bytes = 193;  // past two lines at once, the lines that remain, and a tail
  constexpr std::byte guard{0x5a};
  std::array<std::byte, 64 + most_bytes> from{};
  alignas(64) std::array<std::byte, guard_bytes + 64 + most_bytes + guard_bytes> to{};
  unsigned value = 1;
  for (std::byte& byte : from) byte = static_cast<std::byte>((value = value * 1103515245U + 12345U) >> 16U);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65},
                                  std::size_t{130}, most_bytes}) {
    for (const std::size_t shift : {0U, 1U, 16U, 63U}) {
      std::byte* out = to.data() + guard_bytes + shift;
      const std::byte* in = from.data() + (shift * 5 + 3) % 64;
      to.fill(guard);
      kernel.copy(out, in, bytes);
      store_fence();
      const auto is_guard = [](std::byte byte) { return byte == guard; };
      if (!std::equal(out, out + bytes, in) || !std::all_of(to.data(), out, is_guard) ||
          !std::all_of(out + bytes, to.data() + to.size(), is_guard)) {
        return false;
      }
    }
  }
  return true;
}

/// Null when it passes, else what it did.
const char* fault_of(const StoreKernel& kernel) {
  sigjmp_buf here;
  if (sigsetjmp(here, 1) != 0) {
    way_back = nullptr;
    return "is an illegal instruction here";
  }
  way_back = &here;
  const bool good = copies_well(kernel);
  way_back = nullptr;
  return good ? nullptr : "copied wrongly";
}

}  // namespace

std::vector<StoreKernel> try_kernels(std::span<const StoreKernel> kernels) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const TrialHandler handler;
  std::vector<StoreKernel> usable;
  for (const StoreKernel& kernel : kernels) {
    if (!kernel.available()) continue;
    if (const char* fault = fault_of(kernel)) {
      std::fprintf(stderr, "gpumap: the store kernel %s %s, doing without\n", kernel.name.data(), fault);
    } else {
      usable.push_back(kernel);
    }
  }
  return usable;
}

}  // namespace gpumap::copy
