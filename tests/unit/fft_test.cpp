// SPDX-License-Identifier: MIT
// The transforms under the radio built-ins, against one in double.
#include "kernel/radio/fft/fft.hpp"

#include <cmath>
#include <complex>
#include <cstring>
#include <numbers>
#include <thread>

#include "backend_bench.hpp"

namespace gpumap {
namespace {

using Complex = std::complex<double>;

class FftTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (bench_ != nullptr) queue_ = bench_->device()->create_queue(GetParam());
  }

  [[nodiscard]] std::unique_ptr<Fft> make(std::uint32_t size) const {
    return make_fft(bench_->device(), GetParam(), *find_builtin("channelizer"), size);
  }

  /// Random values from -1 to 1 in memory that kernels read.
  [[nodiscard]] std::shared_ptr<Mapping> random_values(std::size_t count, std::uint64_t seed) const {
    auto memory = bench_->device()->allocate({.placement = Placement::host, .bytes = count * 8}, GetParam());
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    std::uniform_real_distribution<float> values(-1.0F, 1.0F);
    auto* floats = reinterpret_cast<float*>(memory->host());
    for (std::size_t i = 0; i < 2 * count; ++i) floats[i] = values(random);
    memory->flush(0, count * 8);
    return memory;
  }
  [[nodiscard]] std::shared_ptr<Mapping> poisoned(std::size_t count) const {
    auto memory = bench_->device()->allocate({.placement = Placement::host, .bytes = count * 8}, GetParam());
    std::memset(memory->host(), static_cast<int>(poison), count * 8);
    memory->flush(0, count * 8);
    return memory;
  }
  [[nodiscard]] static std::uint64_t address(const Mapping& memory) { return memory.address(GetParam()); }

  void finish() { ASSERT_EQ(queue_->submit().wait_for(std::chrono::seconds(60)), WaitResult::ready); }

  /// The largest error of all transforms in `got` of what lies in `from`, beside a row's largest value.
  static double worst_error(const Mapping& from, const Mapping& got, std::size_t size, std::size_t transforms) {
    got.invalidate(0, got.bytes());
    const auto* in = reinterpret_cast<const float*>(from.host());
    const auto* out = reinterpret_cast<const float*>(got.host());
    double worst = 0.0;
    // Of very many, those about the first and the last, and one in a thousand.
    for (std::size_t row = 0; row < transforms; ++row) {
      if (transforms > 100'000 && row > 100 && row + 100 < transforms && row % 1000 != 0) continue;
      std::vector<Complex> expected;
      for (std::size_t i = row * size; i < (row + 1) * size; ++i) expected.emplace_back(in[2 * i], in[2 * i + 1]);
      reference::transform(expected);
      double largest = 0.0, error = 0.0;
      for (std::size_t i = 0; i < size; ++i) {
        const std::size_t at = 2 * (row * size + i);
        const double off = std::abs(Complex(out[at], out[at + 1]) - expected[i]);
        if (!(off <= error)) error = off;  // a NaN counts
        largest = std::max(largest, std::abs(expected[i]));
      }
      if (!(error / largest <= worst)) worst = error / largest;
    }
    return worst;
  }

  std::unique_ptr<Queue> queue_;
};

TEST_P(FftTest, IsRightInEverySize) {
  for (const auto& [size, transforms] : std::initializer_list<std::pair<std::uint32_t, std::size_t>>{
           {2, 70001}, {4, 1}, {32, 33}, {64, 1}, {1024, 5}, {4096, 3}, {16384, 2}, {65536, 1}, {1U << 20U, 1}}) {
    const auto from = random_values(size * transforms, size);
    const auto to = poisoned(size * transforms + 1);
    const auto fft = make(size);
    fft->forward(*queue_, address(*from), address(*to), transforms);
    finish();
    EXPECT_LT(worst_error(*from, *to, size, transforms), 1e-6) << transforms << " x " << size << " points";
    EXPECT_EQ(to->host()[size * transforms * 8], poison) << "written behind the end";
    from->invalidate(0, from->bytes());
    EXPECT_EQ(std::memcmp(from->host(), random_values(size * transforms, size)->host(), from->bytes()), 0);
  }
}

/// As worst_error(), by the definition of the transform, so of any size; of large ones some values only.
double worst_error_by_definition(const Mapping& from, const Mapping& got, std::size_t size, std::size_t transforms) {
  got.invalidate(0, got.bytes());
  const auto* in = reinterpret_cast<const float*>(from.host());
  const auto* out = reinterpret_cast<const float*>(got.host());
  std::vector<Complex> turns;
  for (std::size_t i = 0; i < size; ++i) {
    turns.push_back(std::polar(1.0, -2.0 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(size)));
  }
  double worst = 0.0;
  for (std::size_t row = 0; row<transforms; row += transforms> 1000 ? 97 : 1) {
    double largest = 0.0, error = 0.0;
    for (std::size_t k = 0; k<size; k += size> 5000 ? 331 : 1) {
      Complex expected = 0.0;
      for (std::size_t i = 0; i < size; ++i) {
        const std::size_t at = 2 * (row * size + i);
        expected += Complex(in[at], in[at + 1]) * turns[i * k % size];
      }
      const std::size_t at = 2 * (row * size + k);
      const double off = std::abs(Complex(out[at], out[at + 1]) - expected);
      if (!(off <= error)) error = off;  // a NaN counts
      largest = std::max(largest, std::abs(expected));
    }
    if (!(error / largest <= worst)) worst = error / largest;
  }
  return worst;
}

// Primes, products of small and of large ones, and those beside powers of two.
TEST_P(FftTest, IsRightInSizesThatAreNoPowerOfTwo) {
  for (const auto& [size, transforms] : std::initializer_list<std::pair<std::uint32_t, std::size_t>>{
           {3, 70001}, {5, 1},    {6, 33},   {7, 2},    {12, 5},    {13, 1001}, {15, 4},
           {17, 3},    {31, 3},   {100, 7},  {127, 2},  {169, 3},   {1000, 3},  {1023, 2},
           {1025, 2},  {2187, 1}, {4093, 2}, {4095, 1}, {65521, 1}, {65535, 1}}) {
    const auto from = random_values(size * transforms, size);
    const auto to = poisoned(size * transforms + 1);
    const auto fft = make(size);
    fft->forward(*queue_, address(*from), address(*to), transforms);
    finish();
    EXPECT_LT(worst_error_by_definition(*from, *to, size, transforms), 1e-6)
        << transforms << " x " << size << " points";
    EXPECT_EQ(to->host()[size * transforms * 8], poison) << "written behind the end";
    from->invalidate(0, from->bytes());
    EXPECT_EQ(std::memcmp(from->host(), random_values(size * transforms, size)->host(), from->bytes()), 0);
  }
}

// More than it makes at once.
TEST_P(FftTest, MakesManyTransformsOfAPrimeInParts) {
  constexpr std::uint32_t size = 67;
  constexpr std::size_t transforms = 40'001;
  const auto from = random_values(size * transforms, 1);
  const auto to = poisoned(size * transforms);
  const auto fft = make(size);
  fft->forward(*queue_, address(*from), address(*to), transforms);
  fft->forward(*queue_, address(*from), address(*to), transforms);
  finish();
  EXPECT_LT(worst_error_by_definition(*from, *to, size, transforms), 1e-6);
}

TEST_P(FftTest, TakesAnyNumberOfTransformsOneBehindTheOther) {
  constexpr std::uint32_t size = 128;
  const auto fft = make(size);
  std::vector<std::pair<std::shared_ptr<Mapping>, std::shared_ptr<Mapping>>> all;
  const std::vector<std::size_t> numbers{3, 1, 64, 65, 50, 333, 2, 64, 300};
  for (const std::size_t transforms : numbers) {
    const auto& [from, to] =
        all.emplace_back(random_values(size * transforms, all.size()), poisoned(size * transforms));
    fft->forward(*queue_, address(*from), address(*to), transforms);
  }
  finish();
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_LT(worst_error(*all[i].first, *all[i].second, size, numbers[i]), 1e-6) << i << ": " << numbers[i];
  }
}

TEST_P(FftTest, TakesMoreThanOneStorageBufferHolds) {
  // 138 MB: a software driver's storage buffers end at 128 MiB.
  constexpr std::uint32_t size = 64;
  constexpr std::size_t transforms = 270'001;
  const auto from = random_values(size * transforms, 1);
  const auto to = poisoned(size * transforms);
  const auto fft = make(size);
  fft->forward(*queue_, address(*from), address(*to), transforms);
  finish();
  EXPECT_LT(worst_error(*from, *to, size, transforms), 1e-6);
}

TEST_P(FftTest, IsMadeByManyThreads) {
  std::vector<std::thread> threads;
  std::vector<double> errors(4, 1.0);
  for (std::size_t n = 0; n < errors.size(); ++n) {
    threads.emplace_back([&, n] {
      const std::uint32_t size = 64U << n;
      const auto queue = bench_->device()->create_queue(GetParam());
      const auto from = random_values(size, n);
      const auto to = poisoned(size);
      const auto fft = make(size);
      fft->forward(*queue, address(*from), address(*to), 1);
      if (queue->submit().wait_for(std::chrono::seconds(60)) != WaitResult::ready) return;
      errors[n] = worst_error(*from, *to, size, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const double error : errors) EXPECT_LT(error, 1e-6);
}

GPUMAP_ON_BACKENDS(FftTest);

}  // namespace
}  // namespace gpumap
