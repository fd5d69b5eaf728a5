// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <numbers>
#include <numeric>

#include "radio_cases.hpp"
#include "test_helpers.hpp"

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
    for (std::int64_t i = n * down % up; i < taps && i <= n * down; i += up) {
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
                             {GPUMAP_FORMAT_F32, 1000, 500, 0.0, 400.0, 1},
                             // More phases than there is room for.
                             {GPUMAP_FORMAT_F32, 20000000, 44100, 1234567.0, 35280.0, 11400},
                             {GPUMAP_FORMAT_F32, 2400000, 239999, 250000.0, 200000.0, 18},
                             {GPUMAP_FORMAT_F32, 1000003, 1000002, 333.0, 900000.0, 5}};
  for (const auto& kind : reference::sample_kinds)
    cases.push_back({kind.format, 2048000, 192000, 98765.0, 150000.0, 77});
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

// The filter itself, tap by tap, and all of its stop band.
TEST_P(RadioTest, DdcsFilterLeavesNoMoreThanItWasAskedFor) {
  struct Rates {
    std::uint32_t in, out;
    double bandwidth;
  };
  const auto response = [&](const Rates& rates, double attenuation) {
    const std::int64_t common = std::gcd(rates.in, rates.out);
    const std::int64_t up = rates.out / common, down = rates.in / common;
    const auto program =
        load("ddc", "rate=" + std::to_string(rates.out) + ",bandwidth=" + std::to_string(rates.bandwidth) +
                        ",attenuation=" + std::to_string(attenuation));
    // Output n of an impulse at sample j is tap n * down - j * up.
    constexpr std::size_t samples = 4000;
    std::vector<Complex> taps(1U << 17U);
    for (std::int64_t j = 0; j < down; ++j) {
      Recording in{.format = GPUMAP_FORMAT_F32, .rate = rates.in, .bytes = std::vector<std::byte>(8 * samples)};
      const float one = 1.0F;
      std::memcpy(&in.bytes[8 * static_cast<std::size_t>(j)], &one, sizeof one);
      program->begin(in.view(), {});
      const auto out = as_complex(play(*program, in, {}));
      for (std::size_t n = 0; n < out.size(); ++n) {
        const std::int64_t tap = static_cast<std::int64_t>(n) * down - j * up;
        if (tap >= 0) taps.at(static_cast<std::size_t>(tap)) = out[n];
      }
    }
    EXPECT_EQ(taps.back(), 0.0);
    reference::transform(taps);
    const double filter_rate = static_cast<double>(up) * rates.in;
    double worst = 0.0;
    for (std::size_t k = 0; k < taps.size() / 2; ++k) {
      const double frequency = static_cast<double>(k) / static_cast<double>(taps.size()) * filter_rate;
      if (frequency >= rates.out - rates.bandwidth / 2) worst = std::max(worst, std::abs(taps[k] / taps[0]));
    }
    return -20.0 * std::log10(worst);
  };
  for (const Rates& rates : {Rates{48000, 12000, 9600}, {48000, 32000, 25600}, {60000, 20000, 19000}}) {
    for (const double attenuation : {20.0, 21.0, 35.0, 50.0, 60.0, 80.0, 110.0, 140.0}) {
      const double found = response(rates, attenuation);
      EXPECT_GE(found, attenuation - 0.01) << rates.in << " to " << rates.out;
      EXPECT_LE(found, attenuation + 12.0) << "a far longer filter than it takes";
    }
  }
}

TEST_P(RadioTest, DdcTakesAnyRatio) {
  struct Rates {
    std::uint32_t in, out;
  };
  for (const Rates& rates : {Rates{20000000, 44100}, {61440000, 44100}, {2400000, 239999}, {2000003, 1000003}}) {
    SCOPED_TRACE(::testing::Message() << rates.in << " to " << rates.out);
    const std::size_t samples = std::size_t{60} * rates.in / rates.out + 20000;
    const auto program = load("ddc", "frequency=10000,rate=" + std::to_string(rates.out));
    const auto level = [&](double frequency) {
      const Recording in = tone(rates.in, samples, frequency);
      program->begin(in.view(), {});
      const auto out = as_complex(play(*program, in, {{50001}}));
      double largest = 0.0;
      for (std::size_t i = out.size() / 2; i < out.size(); ++i) largest = std::max(largest, std::abs(out[i]));
      return 20.0 * std::log10(largest);
    };
    EXPECT_NEAR(level(10000.0 + 0.3 * rates.out), 0.0, 0.01);
    for (const double away : {0.601, 0.7, 1.0, 1.3, -0.61, -1.0}) {
      if (std::abs(10000.0 + away * rates.out) > 0.5 * rates.in) continue;
      EXPECT_LE(level(10000.0 + away * rates.out), -79.99) << away;
    }
  }
}

// More taps than a loop of lavapipe's has turns, for each thread that shares them.
TEST_P(RadioTest, DdcAddsUpAVeryLongFilter) {
  const Recording in = tone(20000000, 2900000, 0.0);
  const auto program = load("ddc", "rate=200");
  program->begin(in.view(), {});
  const auto out = as_complex(play(*program, in, {}));
  ASSERT_EQ(out.size(), 29U);
  EXPECT_LE(std::abs(out.back() - 1.0), 1e-5);
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

// Real samples are I, and Q is 0.
TEST_P(RadioTest, DdcTakesRealSamples) {
  for (const auto format :
       std::initializer_list<std::uint32_t>{GPUMAP_FORMAT_U8, GPUMAP_FORMAT_S24_BE, GPUMAP_FORMAT_F32}) {
    const DdcCase test{format, 2048000, 192000, 98765.0, 150000.0, 77};
    const Recording in = noise(format, test.in_rate, 20011, 5, 1);
    const auto program = load("ddc", params_of(test));
    EXPECT_LE(worst_error(as_complex(play_from_begin(*program, in, {})), reference_ddc(test, in)), 1e-5) << format;
  }
}

// Around 128 the samples are those of S8, to the bit; around 127.5 they are not.
TEST_P(RadioTest, U8MayBeAround128) {
  Recording in = noise(GPUMAP_FORMAT_U8, 48000, 30011, 7);
  Recording same = in;
  same.format = GPUMAP_FORMAT_S8;
  for (std::byte& value : same.bytes) value ^= std::byte{0x80};
  struct Case {
    const char *name, *params;
  };
  for (const Case& one : {Case{"ddc", "rate=20000,frequency=1234"}, Case{"spectrum", "size=64,overlap=0.5,average=3"},
                          Case{"spectrum", "size=8192"}, Case{"channelizer", "channels=8"}}) {
    const auto played = [&](const Recording& recording, const char* more) {
      const auto program = load(one.name, std::string(one.params) + more);
      program->begin(recording.view(), {});
      return play(*program, recording, random_frames(recording.samples(), 3001, 5));
    };
    const std::vector<float> expected = played(same, "");
    EXPECT_EQ(played(in, ",around128=1"), expected) << one.name;
    EXPECT_NE(played(in, ""), expected) << one.name;
    EXPECT_EQ(played(same, ",around128=1"), expected) << one.name << ": it is of U8 alone";
  }
}

// A filter of some 500,000 taps, whose design nobody can end: by its CPU time, so that others do not count.
TEST_P(RadioTest, DdcDesignsALongFilterWithinSeconds) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's own time would count";
  const std::clock_t before = std::clock();
  EXPECT_EQ(refusal("ddc", "rate=48000,bandwidth=47990,attenuation=140", 480000), "not refused");
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 5.0);
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
  EXPECT_EQ(refusal("ddc", "rate=1000003", 2000003), "not refused");
  EXPECT_THAT(refusal("ddc", "rate=1000003,bandwidth=1000000", 2000003), HasSubstr("smaller bandwidth or fewer taps"));
  EXPECT_THAT(refusal("ddc", "rate=0.5", 96000), HasSubstr("not a whole number"));
  EXPECT_THAT(refusal("ddc", "rate=100,taps=1.5", 96000), HasSubstr("taps=1.5"));
  EXPECT_THAT(refusal("ddc", "rate=100,attenuation=1", 96000), HasSubstr("between 20 and 140"));
  EXPECT_THAT(refusal("ddc", "rate=100", 0), HasSubstr("takes IQ samples"));
}

}  // namespace gpumap
