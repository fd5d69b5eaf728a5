// SPDX-License-Identifier: MIT
#include "copy/helpers.hpp"

#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <exception>
#include <fstream>
#include <string>
#include <utility>

#include "gpumap/copy.hpp"

namespace gpumap::copy {
namespace {

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

/// Empty where the kernel knows none (-1) or the address names no device.
std::string cpu_list_of(std::string_view pci_address) {
  std::string address(pci_address);
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (address.empty() || address.find('/') != std::string::npos) return {};
  const std::string node = first_line("/sys/bus/pci/devices/" + address + "/numa_node");
  if (node.empty() || node.front() == '-') return {};
  return first_line("/sys/devices/system/node/node" + node + "/cpulist");
}

}  // namespace

CpuSet parse_cpu_list(std::string_view text) {
  CpuSet cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    unsigned first = 0;
    const auto begin = std::from_chars(at, end, first);
    if (begin.ec != std::errc()) {
      ++at;
      continue;
    }
    unsigned last = first;
    at = begin.ptr;
    if (at < end && *at == '-') {
      const auto range = std::from_chars(at + 1, end, last);
      at = range.ec == std::errc() ? range.ptr : at + 1;
    }
    for (unsigned cpu = first; cpu <= last && cpu < CpuSet::max_cpus; ++cpu) cpus.add(cpu);
  }
  return cpus;
}

CpuSet allowed_cpus(GetAffinity get) {
  // EINVAL: the system's own set is larger, and only trying tells by how much.
  for (unsigned room = CPU_SETSIZE; room <= CpuSet::max_cpus; room *= 2) {
    CpuSet allowed(room);
    if (get(0, allowed.bytes(), allowed.native()) == 0) return allowed;
    if (errno != EINVAL) break;
  }
  return CpuSet();
}

CpuSet helper_cpus(std::string_view pci_address) {
  CpuSet allowed = allowed_cpus();
  CpuSet both = allowed & parse_cpu_list(cpu_list_of(pci_address));
  return both.count() > 0 ? both : allowed;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t page_bytes = 4096;
// Small enough that the last chunk keeps no one waiting, large enough that taking it costs nothing beside it: 16 KiB
// are about 1 us of one thread's stores.
constexpr std::size_t min_chunk_bytes = std::size_t{16} * 1024;
constexpr std::size_t max_chunk_bytes = std::size_t{256} * 1024;
constexpr unsigned chunks_per_thread = 4;

void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

std::chrono::nanoseconds longest_gap(std::chrono::nanoseconds copy) noexcept {
  return std::min<std::chrono::nanoseconds>(4 * copy, std::chrono::microseconds(100));
}

void Job::cut(unsigned threads) {
  const std::size_t chunk = bytes / (std::size_t{threads} * chunks_per_thread);
  step = std::clamp(chunk, min_chunk_bytes, max_chunk_bytes) / page_bytes * page_bytes;
  first = std::min(step - reinterpret_cast<std::uintptr_t>(to) % page_bytes, bytes);
  chunks = 1 + static_cast<std::uint32_t>((bytes - first + step - 1) / step);
}

void Job::copy_chunk(std::uint32_t index) const {
  const std::size_t begin = index == 0 ? 0 : first + (index - 1) * step;
  const std::size_t end = std::min(bytes, first + index * step);
  copy(to + begin, from + begin, end - begin);
}

Helpers::Helpers(unsigned count, const ThreadSchedule& schedule) {
  // All that may throw comes before the first thread.
  for (unsigned i = 0; i < count; ++i) crew_.push_back(std::make_unique<Helper>());
  // The application's signals are for its own threads, but for those that a thread's own fault raises: the source of a
  // copy may be a file that is cut short, and a fault whose signal is blocked ends the process.
  sigset_t others;
  sigset_t before;
  sigfillset(&others);
  for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&others, own);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  unsigned started = 0;
  for (; started < count; ++started) {
    Helper& helper = *crew_[started];
    try {
      helper.thread = std::thread([this, &helper, schedule = ThreadSchedule(schedule)]() mutable {
        const Scheduled scheduled(std::move(schedule));
        help(helper);
      });
    } catch (const std::exception&) {
      break;  // no more threads, or memory, for this process: those that there are have to do
    }
    pthread_setname_np(helper.thread.native_handle(), "gpumap-copy");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  crew_.resize(started);
}

Helpers::~Helpers() {
  stop_.store(true, std::memory_order_release);
  for (const auto& helper : crew_) {
    helper->call.fetch_add(1, std::memory_order_release);
    helper->call.notify_one();
  }
  // Ends: a helper copies its part, and looks at stop_ when it is called.
  for (const auto& helper : crew_) helper->thread.join();
}

bool Helpers::awake(unsigned helpers) const noexcept {
  return std::none_of(crew_.begin(), crew_.begin() + std::min(helpers, count()),
                      [](const auto& helper) { return helper->asleep.load(std::memory_order_relaxed); });
}

bool Helpers::in_flow() const noexcept {
  return fixed_spin_ns_ < 0 && Clock::now() - last_end_ <= longest_gap(last_took_);
}

void Helpers::plan_spin(Clock::time_point now) noexcept {
  const std::chrono::nanoseconds gap = now - last_end_;
  const std::chrono::nanoseconds longest = longest_gap(last_took_);
  std::int64_t spin = gap <= longest ? std::min(2 * gap, longest).count() + 1000 : 0;
  if (fixed_spin_ns_ >= 0) spin = fixed_spin_ns_;
  spin_ns_.store(spin, std::memory_order_relaxed);
}

void Helpers::run(const Job& job, unsigned helpers) {
  const Clock::time_point began = Clock::now();
  plan_spin(began);
  job_ = job;
  done_.store(0, std::memory_order_relaxed);
  left_.store(job.chunks, std::memory_order_release);
  for (unsigned i = 0; i < std::min(helpers, count()); ++i) {
    crew_[i]->call.fetch_add(1, std::memory_order_release);
    crew_[i]->call.notify_one();
  }
  const std::uint32_t others = job.chunks - copy_chunks();
  for (unsigned turns = 0; done_.load(std::memory_order_acquire) != others; ++turns) {
    // A helper that lost its CPU in the middle of a chunk may need this one.
    if (turns < 4096) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
  note_end(began);
}

std::uint32_t Helpers::copy_chunks() {
  std::uint32_t mine = 0;
  std::uint32_t left = left_.load(std::memory_order_acquire);
  while (left > 0) {
    if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    job_.copy_chunk(job_.chunks - left);
    ++mine;
    left = left_.load(std::memory_order_acquire);
  }
  return mine;
}

void Helpers::await_call(Helper& self, std::uint32_t seen) const {
  const auto called = [&] { return self.call.load(std::memory_order_acquire) != seen; };
  const std::int64_t spin = spin_ns_.load(std::memory_order_relaxed);
  if (spin > 0) {
    const auto end = Clock::now() + std::chrono::nanoseconds(spin);
    do {
      for (int turn = 0; turn < 32; ++turn) {
        if (called()) return;
        relax();
      }
    } while (Clock::now() < end);
  }
  self.asleep.store(true, std::memory_order_relaxed);
  // Ends: the destructor calls as well.
  while (!called()) self.call.wait(seen, std::memory_order_acquire);
  self.asleep.store(false, std::memory_order_relaxed);
}

void Helpers::help(Helper& self) {
  for (std::uint32_t seen = 0;;) {
    await_call(self, seen);
    seen = self.call.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    const std::uint32_t taken = copy_chunks();
    if (taken == 0) continue;
    store_fence();
    done_.fetch_add(taken, std::memory_order_release);
  }
}

}  // namespace gpumap::copy
