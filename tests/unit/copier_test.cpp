// SPDX-License-Identifier: MIT
// The copier: what arrives, by how many threads and callers, what it refuses, what it costs when idle.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "copy/calibration.hpp"
#include "copy/helpers.hpp"
#include "copy/store_kernel.hpp"
#include "copy_helpers.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

using namespace std::chrono_literals;
using test::Aligned;
using test::all_guard;
using test::fill_guard;
using test::frame_bytes;
using test::guard;
using test::guard_bytes;
using test::random_bytes;
using test::same;

CopierOptions with_threads(unsigned threads) {
  CopierOptions options;
  options.threads = threads;
  return options;
}

class CopierThreads : public testing::TestWithParam<unsigned> {};

TEST_P(CopierThreads, Content) {
  Copier copier(with_threads(GetParam()));
  const auto data = random_bytes(2 * frame_bytes);
  Aligned to(2 * frame_bytes + 3 * guard_bytes);
  for (const bool calibrated : {false, true}) {
    if (calibrated) copier.calibrate({to.data(), to.bytes()});
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65},
                                    std::size_t{4096}, std::size_t{140'001}, frame_bytes, 2 * frame_bytes - 64}) {
      for (const std::size_t shift : {0U, 1U, 63U}) {
        std::byte* out = to.data() + guard_bytes + shift;
        fill_guard(to.data(), to.bytes());
        copier.copy(out, data.data() + 64 - shift, bytes);
        store_fence();
        ASSERT_TRUE(same(out, data.data() + 64 - shift, bytes)) << bytes << " to +" << shift;
        ASSERT_TRUE(all_guard(to.data(), out)) << bytes << " to +" << shift;
        ASSERT_TRUE(all_guard(out + bytes, to.data() + to.bytes())) << bytes << " to +" << shift;
      }
    }
  }
}

TEST_P(CopierThreads, SeveralCallersAtOnce) {
  Copier copier(with_threads(GetParam()));
  const auto data = random_bytes(frame_bytes + 64);
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      Aligned to(frame_bytes);
      for (std::size_t turn = 0; turn < 20; ++turn) {
        const std::size_t bytes = frame_bytes - turn * 1000 - caller;
        copier.copy(to.data(), data.data() + turn, bytes);
        store_fence();
        ASSERT_TRUE(same(to.data(), data.data() + turn, bytes)) << caller << ", " << turn;
      }
    });
  }
  Aligned scratch(1 << 20);
  copier.calibrate({scratch.data(), scratch.bytes()});  // in their midst
  for (std::thread& caller : callers) caller.join();
}

INSTANTIATE_TEST_SUITE_P(Copy, CopierThreads, testing::Values(0U, 1U, 2U, 3U, 4U));

std::chrono::nanoseconds process_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST(Copier, SleepsWhenIdle) {
  Copier copier(with_threads(4));
  const auto data = random_bytes(frame_bytes);
  Aligned to(frame_bytes);
  // The best of some: a helper that gets no CPU at the copy's end has its turn while nothing is copied.
  auto spent = std::chrono::nanoseconds::max();
  for (int turn = 0; turn < 10 && spent >= 60ms; ++turn) {
    for (int copies = 0; copies < 10; ++copies) copier.copy(to.data(), data.data(), frame_bytes);
    const auto before = process_cpu_time();
    std::this_thread::sleep_for(200ms);
    spent = process_cpu_time() - before;
  }
  EXPECT_LT(spent, 60ms);
  copier.copy(to.data(), data.data(), frame_bytes);
  store_fence();
  EXPECT_TRUE(same(to.data(), data.data(), frame_bytes));
}

TEST(Copier, RefusesWhatDoesNotFit) {
  Copier copier;
  std::vector<std::byte> slot(100, guard);
  const auto data = random_bytes(200);
  const auto refused = [&](std::size_t at, std::size_t bytes) -> std::string {
    try {
      copier.copy(slot, at, std::span(data).first(bytes));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid);
      return error.what();
    }
    return "";
  };
  for (const auto& [at, bytes] :
       {std::pair<std::size_t, std::size_t>{0, 101}, {1, 100}, {100, 1}, {101, 0}, {~std::size_t{0}, 2}, {50, 200}}) {
    const std::string text = refused(at, bytes);
    EXPECT_NE(text.find(std::to_string(at)), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(bytes) + " bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("100 bytes"), std::string::npos) << text;
  }
  EXPECT_TRUE(all_guard(slot.data(), slot.data() + slot.size()));
  EXPECT_EQ(refused(0, 100), "");
  EXPECT_EQ(refused(100, 0), "");
  EXPECT_EQ(refused(99, 1), "");
}

TEST(Copier, OptionThenEnvironmentNamesTheKernel) {
  Aligned scratch(1 << 20);
  const auto kernel_of = [&](const char* option) {
    CopierOptions options;
    options.kernel = option;
    Copier copier(options);
    std::string before(copier.plan_for(4096).kernel);
    copier.calibrate({scratch.data(), scratch.bytes()});
    EXPECT_EQ(copier.plan_for(4096).kernel, before);
    EXPECT_EQ(copier.plan_for(1 << 20).kernel, before);
    return before;
  };
  for (const std::string_view name : store_kernel_names()) {
    EXPECT_EQ(kernel_of(name.data()), name);
    setenv("GPUMAP_COPY", name.data(), 1);
    EXPECT_EQ(kernel_of(""), name);
    EXPECT_EQ(kernel_of("memcpy"), "memcpy");
    unsetenv("GPUMAP_COPY");
  }
  try {
    (void)kernel_of("mmx");
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid);
    EXPECT_NE(std::string(error.what()).find("mmx"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("memcpy"), std::string::npos) << error.what();
  }
}

// What goes through the cache of ordinary memory always looks fast there, and the next frame goes to another slot.
TEST(Copier, TakesWhatStreamsForOrdinaryMemory) {
  Aligned scratch(1 << 20);
  Copier copier(with_threads(1));
  copier.calibrate({scratch.data(), scratch.bytes()});
  for (std::size_t bytes = 64; bytes <= scratch.bytes(); bytes *= 4) {
    const std::string_view kernel = copier.plan_for(bytes).kernel;
    EXPECT_NE(kernel, "memcpy") << bytes;
    EXPECT_NE(kernel, "movsb") << bytes;
  }
}

TEST(Copier, BoundedByTheCpus) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const auto cpus = static_cast<unsigned>(CPU_COUNT(&before));
  EXPECT_EQ(Copier(with_threads(2)).plan_for(frame_bytes).threads, std::min(cpus, 2U));
  EXPECT_EQ(Copier(with_threads(64)).plan_for(frame_bytes).threads, std::min(cpus, 64U));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(Copier(with_threads(64)).plan_for(frame_bytes).threads, 1U);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Copier, MeasuresOnceForAKey) {
  Aligned scratch(1 << 20);
  const auto measures = [&](unsigned threads, const char* key, std::size_t bytes) {
    fill_guard(scratch.data(), scratch.bytes());
    Copier copier(with_threads(threads));
    copier.calibrate({scratch.data(), bytes}, key);
    return !all_guard(scratch.data(), scratch.data() + scratch.bytes());
  };
  EXPECT_TRUE(measures(1, "one", 1 << 20));
  EXPECT_FALSE(measures(1, "one", 1 << 20));
  EXPECT_TRUE(measures(1, "two", 1 << 20));
  EXPECT_TRUE(measures(1, "one", 1 << 16)) << "smaller slots are another case";
  EXPECT_TRUE(measures(1, "", 1 << 20));
  EXPECT_TRUE(measures(1, "", 1 << 20)) << "no key";
  for (const std::size_t bytes : {0U, 1U, 1023U}) EXPECT_FALSE(measures(2, "tiny", bytes));
}

/// How many threads a machine gets that takes so many us with 1, 2, 3, 4, 6 and 8; with how many it was timed.
struct Chosen {
  unsigned threads;
  std::vector<unsigned> timed;
};
Chosen chosen(const std::vector<double>& us, unsigned most = 8, double first_four = 0) {
  Chosen made{};
  made.threads = copy::threads_that_pay(most, [&](unsigned threads) {
    const unsigned at = threads < 5 ? threads - 1 : threads / 2 + 1;
    const bool disturbed = threads == 4 && first_four != 0 && std::ranges::count(made.timed, 4U) == 0;
    made.timed.push_back(threads);
    return std::chrono::nanoseconds(std::llround((disturbed ? first_four : us.at(at)) * 1000));
  });
  return made;
}

// 1, 2, 4 and 8 as measured on an H100's host (1080p), 3 and 6 between them: beyond four threads only the CPU's time
// grows.
TEST(CopyThreads, AsManyAsPay) {
  const std::vector<double> h100{297, 159, 118, 107, 104, 103};
  EXPECT_EQ(chosen(h100).threads, 4U);
  EXPECT_EQ(chosen(h100).timed, (std::vector<unsigned>{1, 2, 3, 4, 6, 8}));
  EXPECT_EQ(chosen(h100, 3).threads, 3U);
  EXPECT_EQ(chosen(h100, 1).threads, 1U);
  // Four threads were disturbed the first time, and are timed again before six take their place.
  EXPECT_EQ(chosen({297, 159, 138, 96, 92, 91}, 8, 120).threads, 4U);
  EXPECT_EQ(chosen({297, 159, 138, 96, 92, 91}, 8, 120).timed, (std::vector<unsigned>{1, 2, 3, 4, 6, 4, 8}));
  // Where a CPU's stores are half as fast, all of them pay; where the rest brings a sixth for twice the CPU's time,
  // not.
  EXPECT_EQ(chosen({600, 300, 200, 150, 103, 80}).threads, 8U);
  EXPECT_EQ(chosen({600, 300, 200, 150, 103, 95}).threads, 6U);
  EXPECT_EQ(chosen({600, 300, 200, 150, 135, 128}).threads, 4U);
  // Noise, and a second processor that is none.
  EXPECT_EQ(chosen({100, 97, 95, 94, 93, 92}).threads, 1U);
  EXPECT_EQ(chosen({100, 104, 110, 120, 130, 150}).threads, 1U);
  EXPECT_EQ(chosen({100, 60, 58, 57, 56, 55}).threads, 2U);
}

TEST(CopySizes, EachStandsForTheNearest) {
  EXPECT_EQ(copy::class_of(0), 0U);
  EXPECT_EQ(copy::class_of(2048), 0U);
  EXPECT_EQ(copy::class_of(2049), 1U);
  EXPECT_EQ(copy::class_of(8192), 1U);
  EXPECT_EQ(copy::class_of(8193), 2U);
  for (std::size_t i = 0; i < copy::size_classes; ++i) EXPECT_EQ(copy::class_of(copy::class_bytes(i)), i);
  EXPECT_EQ(copy::class_of(~std::size_t{0}), copy::size_classes - 1);
}

TEST(CopyCpus, ListsAsSysfsWritesThem) {
  const auto listed = [](std::string_view text) {
    const copy::CpuSet cpus = copy::parse_cpu_list(text);
    std::vector<int> all;
    for (unsigned cpu = 0; cpu < 2 * copy::CpuSet::max_cpus; ++cpu) {
      if (cpus.has(cpu)) all.push_back(static_cast<int>(cpu));
    }
    EXPECT_EQ(cpus.count(), all.size());
    return all;
  };
  EXPECT_EQ(listed(""), std::vector<int>());
  EXPECT_EQ(listed("3"), std::vector<int>({3}));
  EXPECT_EQ(listed("0-2,8,10-11\n"), std::vector<int>({0, 1, 2, 8, 10, 11}));
  EXPECT_EQ(listed("x,5-,-,7"), std::vector<int>({5, 7}));
  EXPECT_EQ(listed("1000000-4294967295,1"), std::vector<int>({1}));
  EXPECT_EQ(listed("1022-1025,7000,65535-65537"), std::vector<int>({1022, 1023, 1024, 1025, 7000, 65535}));
}

TEST(CopyCpus, NeverNone) {
  for (const char* address : {"", "0000:00:00.0", "ffff:ff:1f.7", "../..", "0000:3B:00.0"}) {
    EXPECT_GT(copy::helper_cpus(address).count(), 0U) << address;
  }
}

/// A system that knows as many CPUs as a set of so many bytes holds, of which the thread may use three.
template <std::size_t system_bytes>
int affinity_of(pid_t /*thread*/, std::size_t bytes, cpu_set_t* cpus) {
  if (bytes < system_bytes) {
    errno = EINVAL;
    return -1;
  }
  for (const std::size_t cpu : {std::size_t{5}, 4 * system_bytes, 8 * system_bytes - 1}) CPU_SET_S(cpu, bytes, cpus);
  return 0;
}

TEST(CopyCpus, AsManyAsTheSystemHas) {
  const auto check = [](copy::GetAffinity get, unsigned system_cpus) {
    const copy::CpuSet cpus = copy::allowed_cpus(get);
    EXPECT_EQ(cpus.count(), 3U) << system_cpus;
    EXPECT_TRUE(cpus.has(5) && cpus.has(system_cpus / 2) && cpus.has(system_cpus - 1)) << system_cpus;
    // Those of a node that has CPUs on both sides of a cpu_set_t's end.
    const copy::CpuSet node = copy::parse_cpu_list("6-" + std::to_string(system_cpus - 1));
    EXPECT_EQ((cpus & node).count(), 2U) << system_cpus;
    EXPECT_EQ((node & cpus).count(), 2U) << system_cpus;
  };
  check(&affinity_of<128>, 1024);
  check(&affinity_of<136>, 1088);
  check(&affinity_of<1024>, 8192);
  check(&affinity_of<8192>, 65536);
  EXPECT_EQ(copy::allowed_cpus(&affinity_of<8200>).count(), 0U) << "asked for ever larger sets";
  static int asked;
  asked = 0;
  const copy::CpuSet none = copy::allowed_cpus([](pid_t, std::size_t, cpu_set_t*) {
    ++asked;
    errno = EPERM;
    return -1;
  });
  EXPECT_EQ(none.count(), 0U);
  EXPECT_EQ(asked, 1);
}

// Every store kernel of this CPU: content, guard bytes, every misalignment.

using test::Aligned;
using test::all_guard;
using test::fill_guard;
using test::frame_bytes;
using test::guard_bytes;
using test::Pages;
using test::random_bytes;

class EveryKernel : public testing::TestWithParam<copy::StoreKernel> {
 protected:
  void SetUp() override {
    if (!GetParam().available()) GTEST_SKIP() << "this CPU has no " << GetParam().name;
  }
  static void expect_copy(Aligned& to, std::size_t to_shift, const std::vector<std::byte>& data, std::size_t from_shift,
                          std::size_t bytes) {
    std::byte* out = to.data() + guard_bytes + to_shift;
    ASSERT_LE(guard_bytes + to_shift + bytes + guard_bytes, to.bytes());
    fill_guard(out - guard_bytes, bytes + 2 * guard_bytes);
    GetParam().copy(out, data.data() + from_shift, bytes);
    store_fence();
    const bool same = test::same(out, data.data() + from_shift, bytes);
    const bool before = all_guard(out - guard_bytes, out);
    const bool after = all_guard(out + bytes, out + bytes + guard_bytes);
    ASSERT_TRUE(same && before && after) << bytes << " bytes, from +" << from_shift << " to +" << to_shift << ": "
                                         << (same ? "" : "content ") << (before ? "" : "before ")
                                         << (after ? "" : "after");
  }
};

TEST_P(EveryKernel, Lengths) {
  const auto data = random_bytes(frame_bytes + 64);
  Aligned to(frame_bytes + 4 * guard_bytes);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{17}, std::size_t{63},
        std::size_t{64}, std::size_t{65}, std::size_t{127}, std::size_t{128}, std::size_t{129}, std::size_t{191},
        std::size_t{192}, std::size_t{4095}, std::size_t{4096}, std::size_t{4097}, frame_bytes - 1, frame_bytes,
        frame_bytes + 1}) {
    for (const std::size_t shift : {0U, 1U, 16U, 63U}) expect_copy(to, shift, data, (shift * 7) % 64, bytes);
  }
}

TEST_P(EveryKernel, EveryShortLength) {
  const auto data = random_bytes(1024);
  Aligned to(1024 + 4 * guard_bytes);
  for (std::size_t bytes = 0; bytes <= 520; ++bytes) {
    for (const std::size_t shift : {0U, 5U, 32U}) expect_copy(to, shift, data, 3, bytes);
  }
}

TEST_P(EveryKernel, EveryMisalignment) {
  const auto data = random_bytes(8192);
  Aligned to(8192 + 4 * guard_bytes);
  for (const std::size_t bytes : {0U, 1U, 47U, 63U, 64U, 65U, 130U, 1001U}) {
    for (std::size_t from = 0; from < 64; ++from) {
      for (std::size_t shift = 0; shift < 64; ++shift) expect_copy(to, shift, data, from, bytes);
    }
  }
}

// Up to the last byte of a page on both sides, with nothing behind it; and a destination that may not be read at all
// cannot be made on x86 (a writable page is readable), so reads of it are left to the benchmark on a real BAR.
TEST_P(EveryKernel, StopsAtTheLastByte) {
  const Pages from(Pages::page);
  const Pages to(Pages::page);
  const auto data = random_bytes(Pages::page);
  std::copy_n(data.data(), Pages::page, from.first());
  for (const std::size_t bytes : {1U, 15U, 16U, 63U, 64U, 65U, 127U, 128U, 200U, 4095U, 4096U}) {
    GetParam().copy(to.end() - bytes, from.end() - bytes, bytes);
    store_fence();
    ASSERT_EQ(std::memcmp(to.end() - bytes, from.end() - bytes, bytes), 0) << bytes;
    GetParam().copy(to.first(), from.first(), bytes);
    store_fence();
    ASSERT_EQ(std::memcmp(to.first(), from.first(), bytes), 0) << bytes;
  }
}

std::string kernel_name(const testing::TestParamInfo<copy::StoreKernel>& kernel) {
  return std::string(kernel.param.name);
}

INSTANTIATE_TEST_SUITE_P(Copy, EveryKernel,
                         testing::ValuesIn(copy::store_kernels().begin(), copy::store_kernels().end()), kernel_name);

TEST(CopyChoice, NamedKernelIsTaken) {
  for (const copy::StoreKernel& kernel : copy::usable_kernels()) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(copy::choose(std::string(kernel.name).c_str()).name, kernel.name);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
}

TEST(CopyChoice, NothingAskedGivesTheBestSilently) {
  const std::string_view best = copy::usable_kernels().back().name;
  testing::internal::CaptureStderr();
  EXPECT_EQ(copy::choose(nullptr).name, best);
  EXPECT_EQ(copy::choose("").name, best);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(CopyChoice, UnknownNameWarnsAndGivesTheBest) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(copy::choose("mmx").name, copy::choose(nullptr).name);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("GPUMAP_COPY=mmx"), std::string::npos) << text;
  EXPECT_NE(text.find("memcpy"), std::string::npos) << text;
}

TEST(CopySelfTest, WhatThisCpuHasPasses) {
  std::vector<std::string_view> expected;
  for (const copy::StoreKernel& kernel : copy::store_kernels()) {
    if (kernel.available()) expected.push_back(kernel.name);
  }
  EXPECT_EQ(store_kernel_names(), expected);
  EXPECT_EQ(expected.front(), "memcpy");
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_GT(expected.size(), 1U);
#endif
}

#if defined(__x86_64__)
constexpr std::uint32_t avx = 1U << 28U;
constexpr std::uint32_t avx2 = 1U << 5U;
constexpr std::uint32_t avx512f = 1U << 16U;
constexpr std::uint32_t movdir64b = 1U << 28U;

// Each instruction set needs the CPU's word for it and, where it has registers of its own, the system's for those.
TEST(CopyCpu, BothTheCpuAndTheSystemMustHaveIt) {
  const copy::CpuWords all{.leaf1_ecx = avx, .leaf7_ebx = avx2 | avx512f, .leaf7_ecx = movdir64b, .xcr0 = 0xe7};
  EXPECT_TRUE(all.has_avx2());
  EXPECT_TRUE(all.has_avx512());
  EXPECT_TRUE(all.has_movdir64b());
  EXPECT_FALSE(all.has_fast_movsb());
  EXPECT_TRUE((copy::CpuWords{.leaf7_ebx = 1U << 9U}.has_fast_movsb()));
  EXPECT_FALSE(all.has_clflushopt());

  copy::CpuWords cpu = all;
  cpu.leaf7_ebx = avx2;
  EXPECT_TRUE(cpu.has_avx2());
  EXPECT_FALSE(cpu.has_avx512());
  cpu.leaf7_ebx = avx512f;
  EXPECT_FALSE(cpu.has_avx2());
  EXPECT_TRUE(cpu.has_avx512());
  cpu = all;
  cpu.leaf1_ecx = 0;
  EXPECT_FALSE(cpu.has_avx2());
  EXPECT_FALSE(cpu.has_avx512());
  EXPECT_TRUE(cpu.has_movdir64b());
  cpu = all;
  cpu.leaf7_ecx = ~movdir64b;
  EXPECT_FALSE(cpu.has_movdir64b());

  // Nothing, x87 alone, SSE alone, YMM's upper halves alone: no AVX.
  for (const std::uint64_t xcr0 : {0x0U, 0x1U, 0x3U, 0x5U, 0xe1U}) {
    cpu = all;
    cpu.xcr0 = xcr0;
    EXPECT_FALSE(cpu.has_avx2()) << xcr0;
    EXPECT_FALSE(cpu.has_avx512()) << xcr0;
    EXPECT_TRUE(cpu.has_movdir64b()) << xcr0;
  }
  // Each part of AVX-512's registers is needed.
  for (const std::uint64_t xcr0 : {0x07U, 0x27U, 0x47U, 0x87U, 0x67U, 0xa7U, 0xc7U}) {
    cpu.xcr0 = xcr0;
    EXPECT_TRUE(cpu.has_avx2()) << xcr0;
    EXPECT_FALSE(cpu.has_avx512()) << xcr0;
  }
  const copy::CpuWords none;
  EXPECT_FALSE(none.has_avx2() || none.has_avx512() || none.has_movdir64b() || none.has_clflushopt());
}

// The compiler's builtins read the same, for those that they know.
TEST(CopyCpu, ThisOneIsReadRight) {
  EXPECT_EQ(copy::cpu_words().has_avx2(), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(copy::cpu_words().has_avx512(), __builtin_cpu_supports("avx512f") != 0);
}
#endif

bool yes() noexcept {
  return true;
}
bool no() noexcept {
  return false;
}
void copy_nothing(std::byte* /*to*/, const std::byte* /*from*/, std::size_t /*bytes*/) noexcept {}
void copy_whole_lines(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  copy::copy_memcpy(to, from, bytes / 64 * 64);
}
void copy_too_much(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  copy::copy_memcpy(to, from, bytes);
  to[bytes] = std::byte{0};
}
void copy_too_early(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  copy::copy_memcpy(to, from, bytes);
  to[-1] = std::byte{0};
}
// A CPU that says it has an instruction, which then copies wrongly.
TEST(CopySelfTest, LiarsAreLeftOut) {
  const std::array kernels{
      copy::StoreKernel{"good", copy::copy_memcpy, yes}, copy::StoreKernel{"absent", copy::copy_memcpy, no},
      copy::StoreKernel{"idle", copy_nothing, yes},      copy::StoreKernel{"short", copy_whole_lines, yes},
      copy::StoreKernel{"long", copy_too_much, yes},     copy::StoreKernel{"early", copy_too_early, yes},
      copy::StoreKernel{"best", copy::copy_memcpy, yes},
  };
  testing::internal::CaptureStderr();
  const std::vector<copy::StoreKernel> usable = copy::try_kernels(kernels);
  const std::string text = testing::internal::GetCapturedStderr();
  ASSERT_EQ(usable.size(), 2U) << text;
  EXPECT_EQ(usable.front().name, "good");
  EXPECT_EQ(usable.back().name, "best");
  for (const char* liar : {"idle", "short", "long", "early"}) {
    EXPECT_NE(text.find(liar), std::string::npos) << text;
  }
  EXPECT_EQ(text.find("absent"), std::string::npos) << text;
}

bool application_keeps_its_handler = false;
void look_at_the_handler(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  struct sigaction now {};
  sigaction(SIGILL, nullptr, &now);
  application_keeps_its_handler = now.sa_handler == SIG_IGN;
  copy::copy_memcpy(to, from, bytes);
}

// Signals are the application's, while kernels are tried too.
TEST(CopySelfTest, LeavesSignalsAlone) {
  struct sigaction ours {};
  struct sigaction before {};
  ours.sa_handler = SIG_IGN;
  sigaction(SIGILL, &ours, &before);
  EXPECT_EQ(copy::try_kernels(std::array{copy::StoreKernel{"looks", look_at_the_handler, yes}}).size(), 1U);
  EXPECT_TRUE(application_keeps_its_handler);
  sigaction(SIGILL, &before, nullptr);
}

// The public functions read the environment once in a process, so each choice gets a process.
void copy_in_fresh_process(const char* wanted, const char* expected) {
  setenv("GPUMAP_COPY", wanted, 1);
  const auto data = random_bytes(4097);
  std::vector<std::byte> to(4097);
  for (int turn = 0; turn < 3; ++turn) stream_copy(to.data(), data.data(), to.size());
  store_fence();
  const bool same = std::equal(to.begin(), to.end(), data.begin());
  std::exit(same && stream_copy_name() == expected ? 0 : 1);
}

TEST(CopyChoiceDeathTest, EnvironmentChooses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(copy_in_fresh_process("memcpy", "memcpy"), testing::ExitedWithCode(0), "");
#if defined(__x86_64__)
  EXPECT_EXIT(copy_in_fresh_process("sse2", "sse2"), testing::ExitedWithCode(0), "");
#endif
  // Once: the text has one line, whatever the number of copies. (POSIX regex: no newline before the end.)
  EXPECT_EXIT(copy_in_fresh_process("nonsense", std::string(copy::choose(nullptr).name).c_str()),
              testing::ExitedWithCode(0), "^gpumap: GPUMAP_COPY=nonsense [^\n]*\n$");
}

// Threads may copy while main() has returned: nothing of the library's is destroyed before the process ends.
void copy_while_the_process_exits() {
  const auto copies = [] {
    const auto data = random_bytes(100'000);
    std::vector<std::byte> to(100'000);
    Copier copier;
    copier.calibrate(to, "a key");
    copier.copy(to.data(), data.data(), to.size());
    store_fence();
    return std::equal(to.begin(), to.end(), data.begin());
  };
  // Before the first use, so it is called after whatever that registers.
  std::atexit([] {
    // What was freed is overwritten.
    std::vector<std::vector<char>> taken;
    for (std::size_t bytes = 16; bytes < 1024; bytes += 16) {
      for (int turn = 0; turn < 8; ++turn) taken.emplace_back(bytes, 'x');
    }
    std::_Exit(decltype(copies)()() ? 0 : 1);
  });
  std::exit(copies() ? 2 : 1);
}

TEST(CopyChoiceDeathTest, GoesOnWhileTheProcessExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(copy_while_the_process_exits(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpumap
