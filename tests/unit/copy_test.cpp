// SPDX-License-Identifier: MIT
// Every store kernel of this CPU: content, guard bytes, every misalignment.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "copy/store_kernel.hpp"
#include "copy_helpers.hpp"
#include "gpumap/copy.hpp"

namespace gpumap {
namespace {

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
