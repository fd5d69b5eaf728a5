// SPDX-License-Identifier: MIT
// Every store kernel of this CPU: content, guard bytes, every misalignment.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "copy/store_kernel.hpp"
#include "gpumap/copy.hpp"

namespace gpumap {
namespace {

constexpr std::size_t frame_bytes = 3'110'400;  // 1080p NV12
constexpr std::byte guard{0xa5};
constexpr std::size_t guard_bytes = 256;

std::vector<std::byte> random_bytes(std::size_t bytes) {
  std::mt19937_64 random(20240607);
  std::vector<std::byte> data(bytes + 8);
  for (std::size_t at = 0; at + 8 <= data.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(data.data() + at, &word, 8);
  }
  return data;
}

/// A 64-byte-aligned piece of memory.
class Aligned {
 public:
  explicit Aligned(std::size_t bytes) : bytes_((bytes + 63) / 64 * 64) {
    data_ = static_cast<std::byte*>(std::aligned_alloc(64, bytes_));
  }
  ~Aligned() { std::free(data_); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

/// Page-aligned pages with an inaccessible page at the end.
class Fenced {
 public:
  explicit Fenced(int protection) {
    base_ = static_cast<std::byte*>(mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + page, page, protection);
  }
  ~Fenced() { munmap(base_, 3 * page); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  [[nodiscard]] std::byte* first() const { return base_ + page; }
  [[nodiscard]] std::byte* end() const { return base_ + 2 * page; }
  static constexpr std::size_t page = 4096;

 private:
  std::byte* base_;
};

class EveryKernel : public testing::TestWithParam<copy::StoreKernel> {
 protected:
  void SetUp() override {
    if (!GetParam().available()) GTEST_SKIP() << "this CPU has no " << GetParam().name;
  }
  static void expect_copy(Aligned& to, std::size_t to_shift, const std::vector<std::byte>& data, std::size_t from_shift,
                          std::size_t bytes) {
    std::byte* out = to.data() + guard_bytes + to_shift;
    ASSERT_LE(guard_bytes + to_shift + bytes + guard_bytes, to.bytes());
    std::fill(out - guard_bytes, out + bytes + guard_bytes, guard);
    GetParam().copy(out, data.data() + from_shift, bytes);
    store_fence();
    const bool same = bytes == 0 || std::memcmp(out, data.data() + from_shift, bytes) == 0;
    const bool before = std::all_of(out - guard_bytes, out, [](std::byte b) { return b == guard; });
    const bool after = std::all_of(out + bytes, out + bytes + guard_bytes, [](std::byte b) { return b == guard; });
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
  for (const std::size_t bytes : {1U, 47U, 64U, 130U, 1001U}) {
    for (std::size_t from = 0; from < 64; ++from) {
      for (std::size_t shift = 0; shift < 64; ++shift) expect_copy(to, shift, data, from, bytes);
    }
  }
}

// Up to the last byte of a page on both sides, with nothing behind it; and a destination that may not be read at all
// cannot be made on x86 (a writable page is readable), so reads of it are left to the benchmark on a real BAR.
TEST_P(EveryKernel, StopsAtTheLastByte) {
  const Fenced from(PROT_READ | PROT_WRITE);
  const Fenced to(PROT_READ | PROT_WRITE);
  const auto data = random_bytes(Fenced::page);
  std::copy_n(data.data(), Fenced::page, from.first());
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
  for (const copy::StoreKernel& kernel : copy::store_kernels()) {
    if (!kernel.available()) continue;
    testing::internal::CaptureStderr();
    EXPECT_EQ(copy::choose(std::string(kernel.name).c_str()).name, kernel.name);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
}

TEST(CopyChoice, NothingAskedGivesTheBestSilently) {
  const auto all = copy::store_kernels();
  const auto best = std::find_if(all.rbegin(), all.rend(), [](const auto& kernel) { return kernel.available(); });
  testing::internal::CaptureStderr();
  EXPECT_EQ(copy::choose(nullptr).name, best->name);
  EXPECT_EQ(copy::choose("").name, best->name);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(CopyChoice, UnknownNameWarnsAndGivesTheBest) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(copy::choose("mmx").name, copy::choose(nullptr).name);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("GPUMAP_COPY=mmx"), std::string::npos) << text;
  EXPECT_NE(text.find("memcpy"), std::string::npos) << text;
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

}  // namespace
}  // namespace gpumap
