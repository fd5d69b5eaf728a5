// SPDX-License-Identifier: MIT
// The copier: what arrives, by how many threads and callers, what it refuses, what it costs when idle.
#include "gpumap/copy.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "copy/calibration.hpp"
#include "copy/helpers.hpp"
#include "copy_helpers.hpp"
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

}  // namespace
}  // namespace gpumap
