// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "radio_cases.hpp"

namespace gpumap {
namespace {

using std::numbers::pi;
using ::testing::HasSubstr;

struct DdcCase {
  std::uint32_t format, in_rate, out_rate;
  double frequency, bandwidth;
  std::size_t taps;  ///< of each phase
};

std::string params_of(const DdcCase& test) {
  return "frequency=" + std::to_string(test.frequency) + ",rate=" + std::to_string(test.out_rate) +
         ",bandwidth=" + std::to_string(test.bandwidth) + ",taps=" + std::to_string(test.taps);
}

/// By the definition: mixed, with zeros put in, filtered at the high rate, all but each down-th left out.
std::vector<Complex> reference_ddc(const DdcCase& test, const Recording& in) {
  const std::uint32_t common = std::gcd(test.in_rate, test.out_rate);
  const std::int64_t up = test.out_rate / common, down = test.in_rate / common;
  const auto taps = static_cast<std::int64_t>(test.taps) * up;
  const double cutoff = 0.5 * test.out_rate / (static_cast<double>(up) * test.in_rate), beta = 0.1102 * (80.0 - 8.7);
  std::vector<double> filter;
  for (std::int64_t i = 0; i < taps; ++i) {
    const double t = static_cast<double>(i) - static_cast<double>(taps - 1) / 2.0;
    const double edge = 2.0 * t / static_cast<double>(taps - 1);
    const double sinc = t == 0.0 ? 2.0 * cutoff : std::sin(2.0 * pi * cutoff * t) / (pi * t);
    filter.push_back(sinc * std::cyl_bessel_i(0.0, beta * std::sqrt(std::max(0.0, 1.0 - edge * edge))));
  }
  const double sum = std::accumulate(filter.begin(), filter.end(), 0.0);
  std::vector<Complex> mixed;
  for (std::size_t i = 0; i < in.samples(); ++i) {
    const double turns = std::fmod(test.frequency * static_cast<double>(i), test.in_rate) / test.in_rate;
    mixed.push_back(in.at(static_cast<std::int64_t>(i)) * std::polar(1.0, -2.0 * pi * turns));
  }
  std::vector<Complex> out;
  for (std::int64_t n = 0; n * down < static_cast<std::int64_t>(in.samples()) * up; ++n) {
    Complex value = 0.0;
    for (std::int64_t i = 0; i < taps && i <= n * down; ++i) {
      if ((n * down - i) % up != 0) continue;
      value += filter[static_cast<std::size_t>(i)] * mixed[static_cast<std::size_t>((n * down - i) / up)];
    }
    out.push_back(value * static_cast<double>(up) / sum);
  }
  return out;
}

}  // namespace

TEST_P(RadioTest, DdcIsRightToTheStatedError) {
  std::vector<DdcCase> cases{{GPUMAP_FORMAT_F32, 2400000, 240000, 250000.0, 200000.0, 181},
                             {GPUMAP_FORMAT_F32, 48000, 44100, -1234.5, 40000.0, 64},
                             {GPUMAP_FORMAT_F32, 1000, 999, 333.0, 900.0, 40},
                             {GPUMAP_FORMAT_F32, 96000, 96000, 20000.0, 90000.0, 33},
                             {GPUMAP_FORMAT_F32, 2400000, 4800, 1200000.0, 4000.0, 3001},
                             {GPUMAP_FORMAT_F32, 1000, 500, 0.0, 400.0, 1}};
  for (const auto format : iq_formats) cases.push_back({format, 2048000, 192000, 98765.0, 150000.0, 77});
  double worst = 0.0;
  for (const DdcCase& test : cases) {
    SCOPED_TRACE(::testing::Message() << "format " << test.format << ", " << params_of(test));
    const Recording in = noise(test.format, test.in_rate, 20011, test.out_rate);
    const auto program = load("ddc", params_of(test));
    const double error = worst_error(as_complex(play_from_begin(*program, in, {})), reference_ddc(test, in));
    EXPECT_LE(error, 1e-5);
    worst = std::max(worst, error);
  }
  RecordProperty("worst_error", std::to_string(worst));
  std::printf("ddc: worst error %.2g\n", worst);
}

// Also after parameters have changed: the samples that are kept were mixed with the frequency of their time.
TEST_P(RadioTest, DdcKeepsATonesPhaseForLong) {
  const Recording in = tone(1000000, 1000003, 123456.25);
  const auto program = load("ddc", "frequency=123456.25,rate=10000,bandwidth=5000");
  program->begin(in.view(), {});
  const auto out = as_complex(play(*program, in, {{77777}}));
  ASSERT_GT(out.size(), 9000U);
  for (std::size_t i = 1000; i < out.size(); ++i) ASSERT_LE(std::abs(out[i] - 1.0), 2e-4) << i;
}

TEST_P(RadioTest, DdcIsSelective) {
  const auto power = [&](double frequency) {
    const Recording in = tone(2400000, 200000, frequency);
    const auto program = load("ddc", "frequency=300000,rate=240000,bandwidth=180000");
    program->begin(in.view(), {});
    const auto out = as_complex(play(*program, in, {}));
    double sum = 0.0;
    for (std::size_t i = 100; i < out.size(); ++i) sum += std::norm(out[i]);
    return 10.0 * std::log10(sum / static_cast<double>(out.size() - 100));
  };
  for (const double inside : {300000.0, 215000.0, 389000.0}) EXPECT_NEAR(power(inside), 0.0, 0.01) << inside;
  for (const double outside : {140000.0, 455000.0, -300000.0, 540000.0}) EXPECT_LE(power(outside), -78.0) << outside;
}

TEST_P(RadioTest, DdcRetunesInTheStream) {
  const Recording in = tone(100000, 20000, 20000.0);
  const auto program = load("ddc", "frequency=20000,rate=10000");
  program->begin(in.view(), {});
  EXPECT_LE(std::abs(as_complex(play(*program, in, {})).back() - 1.0), 1e-3);
  program->set_params("frequency=35000,rate=10000,bandwidth=6000");
  EXPECT_LE(std::abs(as_complex(play(*program, in, {})).back()), 1e-3);
  EXPECT_THROW(program->set_params("frequency=20000,rate=5000"), std::exception);
  EXPECT_LE(std::abs(as_complex(play(*program, in, {})).back()), 1e-3) << "a refused set changed something";
  program->set_params("frequency=20000,rate=10000");
  EXPECT_NEAR(std::abs(as_complex(play(*program, in, {})).back()), 1.0, 1e-3);
}

// A filter of one tap shows the oscillator itself.
TEST_P(RadioTest, DdcRetunesWithoutAJumpInPhase) {
  constexpr std::uint32_t rate = 100000;
  constexpr std::size_t samples = 5001;
  const Recording in = tone(rate, samples, 0.0);
  const auto program = load("ddc", "frequency=777.25,rate=100000,taps=1,bandwidth=90000");
  program->begin(in.view(), {});
  double turns = 0.0;
  for (const double frequency : {777.25, -12345.5, -12345.5, 0.0, 0.0, 50000.0, 1e-3, 33.0}) {
    program->set_params("frequency=" + std::to_string(frequency) + ",rate=100000,taps=1,bandwidth=90000");
    const auto out = as_complex(play(*program, in, {{777}}));
    ASSERT_EQ(out.size(), samples);
    for (const Complex& value : out) {
      ASSERT_LE(std::abs(value - std::polar(1.0, -2.0 * pi * turns)), 1e-6) << frequency;
      turns = std::fmod(turns + frequency / rate, 1.0);
    }
  }
  // A stream that begins anew begins at 0, whatever was before.
  program->begin(in.view(), {});
  EXPECT_LE(std::abs(as_complex(play(*program, in, {})).front() - 1.0), 1e-6);
}

// Where float32 has no more room for a hertz.
TEST_P(RadioTest, DdcTakesEveryHertz) {
  gpumap_view downstream{};
  downstream.rate = 20000001;
  EXPECT_EQ(refusal("ddc", "rate=20000001", 60000003, downstream), "not refused");
  constexpr std::uint32_t rate = 100000000;
  const Recording in = tone(rate, 1000003, 33333333.0);
  const auto program = load("ddc", "frequency=33333333,rate=1000000");
  program->begin(in.view(), {});
  const auto out = as_complex(play(*program, in, {}));
  ASSERT_GT(out.size(), 9000U);
  for (std::size_t i = 1000; i < out.size(); ++i) ASSERT_LE(std::abs(out[i] - 1.0), 2e-4) << i;
}

TEST_P(RadioTest, DdcTellsWhatIsWrong) {
  gpumap_view downstream{};
  downstream.rate = 48000;
  EXPECT_EQ(refusal("ddc", "", 96000, downstream), "not refused");
  EXPECT_THAT(refusal("ddc", "", 96000), HasSubstr("set the parameter rate"));
  EXPECT_THAT(refusal("ddc", "rate=44100", 96000, downstream), HasSubstr("caps after it say 48000"));
  EXPECT_THAT(refusal("ddc", "rate=192000", 96000), HasSubstr("above the input's 96000"));
  EXPECT_THAT(refusal("ddc", "rate=48000,bandwidth=48000", 96000), HasSubstr("does not fit into rate=48000"));
  EXPECT_THAT(refusal("ddc", "rate=48000,frequency=48001", 96000), HasSubstr("outside the input's band"));
  EXPECT_THAT(refusal("ddc", "rate=1000003", 2000003), HasSubstr("larger common divisor"));
  EXPECT_THAT(refusal("ddc", "rate=0.5", 96000), HasSubstr("not a whole number"));
  EXPECT_THAT(refusal("ddc", "rate=100,taps=1.5", 96000), HasSubstr("taps=1.5"));
  EXPECT_THAT(refusal("ddc", "rate=100,attenuation=1", 96000), HasSubstr("between 20 and 140"));
  EXPECT_THAT(refusal("ddc", "rate=100", 0), HasSubstr("takes IQ samples"));
}

}  // namespace gpumap
