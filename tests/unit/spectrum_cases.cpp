// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <numbers>

#include "radio_cases.hpp"

namespace gpumap {
namespace {

using std::numbers::pi;
using ::testing::HasSubstr;

/// By the definition.
std::vector<Complex> direct_transform(const std::vector<Complex>& values) {
  const std::size_t size = values.size();
  std::vector<Complex> made(size);
  for (std::size_t k = 0; k < size; ++k) {
    for (std::size_t i = 0; i < size; ++i) {
      made[k] += values[i] * std::polar(1.0, -2.0 * pi * static_cast<double>(k * i % size) / static_cast<double>(size));
    }
  }
  return made;
}

struct SpectrumCase {
  std::uint32_t format;
  std::size_t size, hop, average, window, samples;
};

std::string params_of(const SpectrumCase& test) {
  const double overlap = 1.0 - static_cast<double>(test.hop) / static_cast<double>(test.size);
  return "size=" + std::to_string(test.size) + ",overlap=" + std::to_string(overlap) +
         ",average=" + std::to_string(test.average) + ",window=" + std::to_string(test.window);
}

double window_at(std::size_t window, double turn) {
  const auto wave = [&](double times) { return std::cos(2.0 * pi * times * turn); };
  switch (window) {
    case 0:
      return 1.0;
    case 1:
      return std::pow(std::sin(pi * turn), 2);
    case 2:
      return 0.54 - 0.46 * wave(1);
    default:
      return 0.35875 - 0.48829 * wave(1) + 0.14128 * wave(2) - 0.01168 * wave(3);
  }
}

std::vector<double> reference_spectrum(const SpectrumCase& test, const Recording& in) {
  std::vector<double> all;
  std::vector<double> row(test.size);
  std::size_t summed = 0;
  for (std::size_t first = 0; first + test.size <= in.samples(); first += test.hop) {
    std::vector<Complex> values;
    double sum = 0.0;
    for (std::size_t i = 0; i < test.size; ++i) {
      const double weight = window_at(test.window, static_cast<double>(i) / static_cast<double>(test.size));
      values.push_back(weight * in.at(static_cast<std::int64_t>(first + i)));
      sum += weight;
    }
    if (test.size <= 64) {
      values = direct_transform(values);
    } else {
      reference::transform(values);
    }
    for (std::size_t bin = 0; bin < test.size; ++bin) {
      row[bin] +=
          std::norm(values[(bin + test.size / 2) % test.size]) / (sum * sum * static_cast<double>(test.average));
    }
    if (++summed < test.average) continue;
    all.insert(all.end(), row.begin(), row.end());
    row.assign(test.size, 0.0);
    summed = 0;
  }
  return all;
}

/// The largest difference in a row, in parts of its largest bin.
double worst_in_rows(const std::vector<float>& got, const std::vector<double>& expected, std::size_t size) {
  double worst = 0.0;
  for (std::size_t row = 0; row < expected.size(); row += size) {
    double largest = 0.0, difference = 0.0;
    for (std::size_t i = row; i < row + size; ++i) {
      largest = std::max(largest, expected[i]);
      if (!(std::abs(got[i] - expected[i]) <= difference)) difference = std::abs(got[i] - expected[i]);
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

}  // namespace

TEST_P(RadioTest, SpectrumIsRightToTheStatedError) {
  std::vector<SpectrumCase> cases{{GPUMAP_FORMAT_F32, 1024, 512, 7, 1, 50001},
                                  {GPUMAP_FORMAT_F32, 4096, 4095, 1, 2, 30000},
                                  {GPUMAP_FORMAT_F32, 512, 1, 30, 3, 640},
                                  {GPUMAP_FORMAT_F32, 32768, 16384, 2, 3, 99000},
                                  {GPUMAP_FORMAT_F32, 1048576, 524288, 1, 1, 1048579}};
  for (const auto& kind : reference::sample_kinds) cases.push_back({kind.format, 256, 192, 3, 3, 9999});
  if (bench_->backend() == Backend::cuda) {  // two passes: every shape of their matrix, and sums
    cases.insert(cases.end(), {{GPUMAP_FORMAT_U8, 8192, 8192, 1, 3, 50001},
                               {GPUMAP_FORMAT_S16, 16384, 12000, 2, 3, 77777},
                               {GPUMAP_FORMAT_F32, 65536, 65536, 1, 0, 140001},
                               {GPUMAP_FORMAT_F32, 131072, 30001, 16, 3, 650001},
                               {GPUMAP_FORMAT_S8, 262144, 262143, 1, 2, 530001},
                               {GPUMAP_FORMAT_F32, 524288, 100000, 3, 1, 1000001},
                               // More than are transformed at a time.
                               {GPUMAP_FORMAT_F32, 8192, 512, 1, 3, 300000},
                               {GPUMAP_FORMAT_S16, 1048576, 10000, 3, 3, 1100000},
                               // Too many a row.
                               {GPUMAP_FORMAT_F32, 8192, 4096, 3, 3, 50001}});
  }
  // Float32 without overlap goes into the FFT as it lies there.
  for (const std::size_t window : {0, 1, 3}) {
    for (std::size_t size = 2; size <= 64; size *= 2) cases.push_back({GPUMAP_FORMAT_F32, size, size, 1, window, 1001});
    for (const std::size_t average : {1, 4, 5})
      cases.push_back({GPUMAP_FORMAT_F32, 1024, 1024, average, window, 22222});
  }
  double worst = 0.0;
  for (const SpectrumCase& test : cases) {
    SCOPED_TRACE(::testing::Message() << "format " << test.format << ", " << params_of(test));
    const Recording in = noise(test.format, 1000000, test.samples, test.size + test.format);
    const auto program = load("spectrum", params_of(test));
    const auto expected = reference_spectrum(test, in);
    const auto got = play_from_begin(*program, in, {});
    ASSERT_EQ(got.size(), expected.size());
    ASSERT_FALSE(got.empty());
    const double error = worst_in_rows(got, expected, test.size);
    EXPECT_LE(error, 1e-5);
    worst = std::max(worst, error);
  }
  RecordProperty("worst_error", std::to_string(worst));
  std::printf("spectrum: worst error %.2g of a row's largest bin\n", worst);
}

TEST_P(RadioTest, SpectrumHasFrequencyZeroInTheMiddleAndFullScaleAtZeroDecibel) {
  for (const int window : {0, 1, 2, 3}) {
    for (const int bin : {-512, -100, 0, 1, 511}) {
      const Recording in = tone(1024000, 1024, bin * 1000.0);
      const auto program = load("spectrum", "size=1024,db=1,window=" + std::to_string(window));
      program->begin(in.view(), {});
      const auto row = play(*program, in, {});
      ASSERT_EQ(row.size(), 1024U);
      EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), 512 + bin) << "window " << window;
      EXPECT_NEAR(row[static_cast<std::size_t>(512 + bin)], 0.0, 1e-3);
      // The side lobes of each, away from the peak.
      const std::array floors{-90.0, -100.0, -100.0, -91.0};
      for (int i = 0; i < 1024; ++i) {
        const int distance = std::min(std::abs(i - 512 - bin), 1024 - std::abs(i - 512 - bin));
        if (distance <= 3) continue;
        ASSERT_LE(row[static_cast<std::size_t>(i)], floors[static_cast<std::size_t>(window)]) << i;
      }
    }
  }
}

// A tone between two bins fills a spectrum; the window, before the transform or after it, is to take that away.
TEST_P(RadioTest, SpectrumTakesAwayWhatLeaks) {
  for (const std::size_t size : {1024, 8192}) {
    const Recording in = tone(static_cast<std::uint32_t>(1000 * size), size, 100500.0);
    for (const std::size_t window : {0, 1, 2, 3}) {
      const SpectrumCase test{GPUMAP_FORMAT_F32, size, size, 1, window, in.samples()};
      const auto expected = reference_spectrum(test, in);
      const auto program = load("spectrum", params_of(test));
      program->begin(in.view(), {});
      const auto got = play(*program, in, {});
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t bin = 0; bin < expected.size(); ++bin) {
        // In amplitude, of full scale: 120 dB below.
        ASSERT_NEAR(std::sqrt(static_cast<double>(got[bin])), std::sqrt(expected[bin]), 1e-6)
            << size << " points, window " << window << ", bin " << bin;
      }
    }
  }
}

// More transforms in a row than a loop of lavapipe's has turns, and than a sum of float32 can be naive about.
TEST_P(RadioTest, SpectrumAveragesManyTransforms) {
  const auto check = [&](const SpectrumCase& test, const Recording& in) {
    SCOPED_TRACE(::testing::Message() << "format " << test.format << ", " << params_of(test));
    const auto program = load("spectrum", params_of(test));
    const auto got = play_from_begin(*program, in, {});
    const auto expected = reference_spectrum(test, in);
    ASSERT_EQ(got.size(), expected.size());
    ASSERT_FALSE(got.empty());
    EXPECT_LE(worst_in_rows(got, expected, test.size), 1e-6);
  };
  const auto noisy = [&](const SpectrumCase& test) { check(test, noise(test.format, 1000000, test.samples, 9)); };
  noisy({GPUMAP_FORMAT_U8, 128, 128, 30000, 3, std::size_t{30000} * 128});
  noisy({GPUMAP_FORMAT_S16, 16, 16, 10000, 1, std::size_t{20003} * 16});
  noisy({GPUMAP_FORMAT_F32, 256, 100, 17, 1, 20000});
  // What is added is always the same, and so is what rounding makes of it.
  check({GPUMAP_FORMAT_F32, 2, 2, 1U << 20U, 0, 2U << 20U}, tone(1000000, 2U << 20U, 0.0, 0.7));
  if (bench_->backend() == Backend::cuda) {  // two passes
    noisy({GPUMAP_FORMAT_F32, 262144, 50000, 20, 3, 262144 + 45 * 50000});
    noisy({GPUMAP_FORMAT_U8, 1048576, 10000, 70, 3, 1048576 + 75 * 10000});
  }
}

// Where only I and Q each are aligned.
TEST_P(RadioTest, SpectrumTakesSamplesThatLieAnyhow) {
  for (const auto& kind : reference::sample_kinds) {
    const std::uint32_t format = kind.format;
    if (format == GPUMAP_FORMAT_S12 || kind.bits == 64) continue;  // have no such place
    for (const std::size_t size : {256, 8192}) {
      const SpectrumCase test{format, size, size, 1, 3, 3 * size + 77};
      const Recording in = noise(format, 1000000, test.samples, size);
      const auto program = load("spectrum", params_of(test));
      off_alignment_ = in.sample_size() / 2;
      program->begin(in.view(), {});
      const auto got = play(*program, in, {{size + 1}});
      const auto expected = reference_spectrum(test, in);
      ASSERT_EQ(got.size(), expected.size());
      EXPECT_LE(worst_in_rows(got, expected, size), 1e-5) << "format " << format << ", " << size << " points";
    }
  }
}

// Real samples are I, and Q is 0; also float32, which the transforms of IQ read where it lies.
TEST_P(RadioTest, SpectrumTakesRealSamples) {
  for (const auto format :
       std::initializer_list<std::uint32_t>{GPUMAP_FORMAT_F32, GPUMAP_FORMAT_S16_BE, GPUMAP_FORMAT_F64}) {
    const SpectrumCase test{format, 256, 200, 3, 3, 9999};
    const Recording in = noise(format, 1000000, test.samples, format, 1);
    const auto program = load("spectrum", params_of(test));
    const auto got = play_from_begin(*program, in, {});
    const auto expected = reference_spectrum(test, in);
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_LE(worst_in_rows(got, expected, test.size), 1e-5) << "format " << format;
  }
}

// Another stream of the same program, whose samples are of another format.
TEST_P(RadioTest, SpectrumBeginsAnewWithOtherSamples) {
  const auto program = load("spectrum", "size=8192,window=3");
  for (const std::uint32_t format : {GPUMAP_FORMAT_U8, GPUMAP_FORMAT_F32, GPUMAP_FORMAT_S16, GPUMAP_FORMAT_U8}) {
    const SpectrumCase test{format, 8192, 8192, 1, 3, 20001};
    const Recording in = noise(format, 1000000, test.samples, format);
    const auto expected = reference_spectrum(test, in);
    const auto got = play_from_begin(*program, in, {});
    ASSERT_EQ(got.size(), expected.size()) << format;
    EXPECT_LE(worst_in_rows(got, expected, test.size), 1e-5) << format;
  }
}

// More values than are transformed at a time.
TEST_P(RadioTest, SpectrumGoesOnWithinAFrame) {
  const Recording in = noise(GPUMAP_FORMAT_F32, 1000000, 1200001, 5);
  const auto program = load("spectrum", "size=1024,overlap=0.75,average=3");
  EXPECT_EQ(play_from_begin(*program, in, {}).size(), ((1200001U - 1024U) / 256U + 1U) / 3U * 1024U);
}

TEST_P(RadioTest, SpectrumOfSilenceHasAFloor) {
  for (const std::size_t size : {64, 8192}) {
    const Recording in = tone(1000, size, 0.0, 0.0);
    const auto program = load("spectrum", "db=1,size=" + std::to_string(size));
    program->begin(in.view(), {});
    for (const float value : play(*program, in, {})) ASSERT_NEAR(value, -200.0, 1e-3);
  }
}

TEST_P(RadioTest, SpectrumKeepsItsParametersWhileItRuns) {
  const auto program = load("spectrum", "size=64");
  const Recording in = noise(GPUMAP_FORMAT_F32, 1000, 1000, 1);
  program->begin(in.view(), {});
  static_cast<void>(play(*program, in, {}));
  EXPECT_THROW(program->set_params("size=128"), std::exception);
  EXPECT_THROW(program->set_params("size=64,db=1"), std::exception);
  EXPECT_NO_THROW(program->set_params("size=64"));
}

TEST_P(RadioTest, SpectrumTellsWhatIsWrong) {
  EXPECT_EQ(refusal("spectrum", "size=1048576,overlap=0.99,average=10,window=3,db=1", 96000), "not refused");
  EXPECT_THAT(refusal("spectrum", "size=1000", 96000), HasSubstr("not a power of two"));
  EXPECT_THAT(refusal("spectrum", "size=2097152", 96000), HasSubstr("from 2 to 1048576"));
  EXPECT_THAT(refusal("spectrum", "size=1", 96000), HasSubstr("from 2 to 1048576"));
  EXPECT_THAT(refusal("spectrum", "overlap=1", 96000), HasSubstr("overlap=1"));
  EXPECT_THAT(refusal("spectrum", "average=0", 96000), HasSubstr("average=0"));
  EXPECT_THAT(refusal("spectrum", "window=4", 96000), HasSubstr("window=4"));
  EXPECT_THAT(refusal("spectrum", "db=2", 96000), HasSubstr("db=2"));
  EXPECT_THAT(refusal("spectrum", "", 0), HasSubstr("takes IQ samples"));
}

}  // namespace gpumap
