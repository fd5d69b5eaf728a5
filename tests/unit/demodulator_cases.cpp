// SPDX-License-Identifier: MIT
// fm, am and ssb against their definitions in double: the filters are worked out here once more, tap by tap.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numbers>
#include <numeric>

#include "radio_cases.hpp"

namespace gpumap {
namespace {

using std::numbers::pi;
using ::testing::HasSubstr;

struct SoundCase {
  const char* kernel;
  std::uint32_t in_rate, out_rate;
  double lowest, highest;
  double deviation = 0.0, deemphasis = 0.0;
  bool lsb = false;
};

std::string params_of(const SoundCase& test) {
  const std::string of_all = "rate=" + std::to_string(test.out_rate) + ",highest=" + std::to_string(test.highest);
  if (test.kernel == std::string("fm")) {
    return of_all + ",deviation=" + std::to_string(test.deviation) + ",deemphasis=" + std::to_string(test.deemphasis);
  }
  return of_all + ",lowest=" + std::to_string(test.lowest) + (test.lsb ? ",lsb=1" : "");
}

/// A Kaiser-windowed low-pass of unit sum, 70 dB.
std::vector<double> low_pass(std::size_t taps, double cutoff) {
  const double beta = 0.1102 * (70.0 - 8.7);
  std::vector<double> made;
  for (std::size_t i = 0; i < taps; ++i) {
    const double t = static_cast<double>(i) - static_cast<double>(taps - 1) / 2.0;
    const double edge = 2.0 * t / static_cast<double>(taps - 1);
    const double sinc = t == 0.0 ? 2.0 * cutoff : std::sin(2.0 * pi * cutoff * t) / (pi * t);
    made.push_back(sinc * std::cyl_bessel_i(0.0, beta * std::sqrt(std::max(0.0, 1.0 - edge * edge))));
  }
  const double sum = std::accumulate(made.begin(), made.end(), 0.0);
  for (double& tap : made) tap /= sum;
  return made;
}

/// Levels of the input, with zeros put in, filtered at the high rate, all but each down-th left out; the de-emphasis is
/// a recursion over the sound at the high rate.
std::vector<Complex> reference_sound(const SoundCase& test, const Recording& in) {
  const std::uint32_t common = std::gcd(test.in_rate, test.out_rate);
  const std::size_t up = test.out_rate / common, down = test.in_rate / common;
  const double rate = static_cast<double>(up) * test.in_rate;
  const double stop = std::min(1.25 * test.highest, test.out_rate - test.highest);
  const double cutoff = (test.highest + stop) / 2.0;
  const double edge = test.lowest != 0.0 ? std::min(stop - test.highest, test.lowest) : stop - test.highest;
  const double wanted = std::ceil((70.0 - 7.95) / (14.36 * edge / rate) + 1.0);
  const std::size_t taps = static_cast<std::size_t>(std::ceil(wanted / static_cast<double>(up))) * up;
  std::vector<Complex> filter(taps);
  if (test.kernel == std::string("ssb")) {
    const double low = test.lowest / 2.0;
    const auto half = low_pass(taps, (cutoff - low) / 2.0 / rate);
    for (std::size_t i = 0; i < taps; ++i) {
      filter[i] = half[i] * std::polar(1.0, (test.lsb ? -pi : pi) * (cutoff + low) / rate * static_cast<double>(i));
    }
  } else {
    const auto passes = low_pass(taps, cutoff / rate);
    for (std::size_t i = 0; i < taps; ++i) filter[i] = passes[i];
  }
  if (test.kernel == std::string("am")) {
    const auto below = low_pass(taps, test.lowest / 2.0 / rate);
    for (std::size_t i = 0; i < taps; ++i) filter[i] -= below[i];
  }
  std::vector<Complex> levels;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(in.samples()); ++i) {
    const Complex sample = in.at(i), turned = sample * std::conj(in.at(i - 1));
    levels.push_back(test.kernel == std::string("fm")   ? std::arg(turned) * test.in_rate / (2.0 * pi * test.deviation)
                     : test.kernel == std::string("am") ? Complex(std::abs(sample))
                                                        : sample);
  }
  const double keeps = test.deemphasis != 0.0 ? std::exp(-1.0 / (test.deemphasis * 1e-6 * rate)) : 0.0;
  std::vector<Complex> out;
  double emphasis = 0.0;
  for (std::size_t n = 0; n < in.samples() * up; ++n) {
    if (keeps == 0.0 && n % down != 0) continue;
    double value = 0.0;
    for (std::size_t i = n % up; i < taps && i <= n; i += up) value += (filter[i] * levels[(n - i) / up]).real();
    emphasis = keeps * emphasis + (1.0 - keeps) * value * static_cast<double>(up);
    if (n % down == 0) out.emplace_back(emphasis);
  }
  return out;
}

std::vector<Complex> real_part(const std::vector<float>& floats) {
  return {floats.begin(), floats.end()};
}

/// `at(t)` at each moment, as float32 I and Q.
Recording signal(std::uint32_t rate, std::size_t samples, const std::function<Complex(double)>& at) {
  Recording made{.format = GPUMAP_FORMAT_F32, .rate = rate, .bytes = std::vector<std::byte>(8 * samples)};
  for (std::size_t i = 0; i < samples; ++i) {
    const Complex value = at(static_cast<double>(i) / rate);
    const std::array iq{static_cast<float>(value.real()), static_cast<float>(value.imag())};
    std::memcpy(&made.bytes[8 * i], iq.data(), sizeof iq);
  }
  return made;
}

/// The amplitude of `frequency` in the second half of a sound, of whole periods.
double amplitude(const std::vector<float>& sound, double rate, double frequency) {
  Complex sum = 0.0;
  const std::size_t begin = sound.size() / 2;
  const auto periods = std::floor(static_cast<double>(sound.size() - begin) * frequency / rate);
  const auto count = static_cast<std::size_t>(std::round(periods * rate / frequency));
  for (std::size_t i = 0; i < count; ++i) {
    sum +=
        static_cast<double>(sound[begin + i]) * std::polar(1.0, -2.0 * pi * frequency / rate * static_cast<double>(i));
  }
  return 2.0 * std::abs(sum) / static_cast<double>(count);
}

}  // namespace

TEST_P(RadioTest, DemodulatorsAreRightToTheStatedError) {
  double worst = 0.0;
  for (const SoundCase& test :
       {SoundCase{"fm", 240000, 48000, 0.0, 15000.0, 75000.0, 50.0},
        SoundCase{"fm", 225000, 50000, 0.0, 15000.0, 75000.0, 75.0},
        SoundCase{"fm", 48000, 16000, 0.0, 3000.0, 5000.0, 0.0},
        SoundCase{"fm", 192000, 192000, 0.0, 15000.0, 75000.0, 0.0}, SoundCase{"am", 48000, 12000, 50.0, 5000.0},
        SoundCase{"am", 20000, 15000, 300.0, 4000.0}, SoundCase{"ssb", 48000, 8000, 300.0, 2700.0},
        SoundCase{"ssb", 24000, 9000, 200.0, 3000.0, 0.0, 0.0, true}}) {
    SCOPED_TRACE(test.kernel + (" " + params_of(test)));
    // A phase that wanders at random, but not by half a turn, and an amplitude that does.
    const Recording random = noise(GPUMAP_FORMAT_F32, test.in_rate, 5003, test.in_rate + test.out_rate);
    double phase = 0.0;
    const Recording in = signal(test.in_rate, 5003, [&](double t) {
      const Complex at = random.at(static_cast<std::int64_t>(std::llround(t * test.in_rate)));
      phase += 2.5 * at.real();
      return std::polar(0.6 + 0.3 * at.imag(), phase);
    });
    const auto program = load(test.kernel, params_of(test));
    const double error = worst_error(real_part(play_from_begin(*program, in, {})), reference_sound(test, in));
    EXPECT_LE(error, 1e-5);
    worst = std::max(worst, error);
  }
  RecordProperty("worst_error", std::to_string(worst));
  std::printf("fm, am, ssb: worst error %.2g\n", worst);
}

TEST_P(RadioTest, DemodulatorsTakeEveryFormat) {
  for (const auto& kind : reference::sample_kinds) {
    SCOPED_TRACE(kind.format);
    const Recording in = noise(kind.format, 48000, 1501, kind.format);
    for (const SoundCase& test :
         {SoundCase{"am", 48000, 12000, 200.0, 5000.0}, SoundCase{"ssb", 48000, 12000, 300.0, 3000.0}}) {
      const auto program = load(test.kernel, params_of(test));
      EXPECT_LE(worst_error(real_part(play_from_begin(*program, in, {})), reference_sound(test, in)), 1e-5)
          << test.kernel;
    }
  }
}

// Broadcast: a tone at half the deviation, and the pilot beside it.
TEST_P(RadioTest, FmGivesTheToneAndLeavesThePilotOut) {
  constexpr double rate = 240000.0;
  for (const double deemphasis : {0.0, 50.0, 75.0}) {
    for (const double tone_at : {1000.0, 10000.0}) {
      double phase = 0.0;
      const Recording in = signal(240000, 120000, [&](double t) {
        const double sound = 0.5 * std::sin(2.0 * pi * tone_at * t) + 0.1 * std::sin(2.0 * pi * 19000.0 * t);
        phase += 2.0 * pi * 75000.0 * sound / rate;
        return std::polar(0.3, phase);
      });
      const auto program = load("fm", "rate=48000,deemphasis=" + std::to_string(deemphasis));
      program->begin(in.view(), {});
      const auto sound = play(*program, in, {{4801}});
      ASSERT_EQ(sound.size(), 24000U);
      const double gain = 1.0 / std::hypot(1.0, 2.0 * pi * tone_at * deemphasis * 1e-6);
      EXPECT_NEAR(amplitude(sound, 48000.0, tone_at), 0.5 * gain, 0.5 * gain * 0.03) << deemphasis << " us";
      EXPECT_LE(amplitude(sound, 48000.0, 19000.0), 0.1 * 1e-3) << deemphasis << " us";
    }
  }
}

TEST_P(RadioTest, AmGivesTheToneWithoutTheCarrier) {
  const Recording in = signal(48000, 96000, [](double t) {
    return std::polar(0.5 * (1.0 + 0.4 * std::sin(2.0 * pi * 1000.0 * t)), 2.0 * pi * 777.0 * t);
  });
  const auto program = load("am", "rate=12000");
  program->begin(in.view(), {});
  const auto sound = play(*program, in, {{1001}});
  EXPECT_NEAR(amplitude(sound, 12000.0, 1000.0), 0.2, 0.001);
  const double mean = std::accumulate(sound.end() - 6000, sound.end(), 0.0) / 6000.0;
  EXPECT_NEAR(mean, 0.0, 1e-4);
}

TEST_P(RadioTest, SsbGivesItsSidebandAlone) {
  for (const bool lsb : {false, true}) {
    const auto at = [&](double frequency) {
      const Recording in = tone(48000, 96000, frequency, 0.7);
      const auto program = load("ssb", lsb ? "rate=8000,lsb=1" : "rate=8000");
      program->begin(in.view(), {});
      return amplitude(play(*program, in, {{1234}}), 8000.0, std::abs(frequency));
    };
    const double side = lsb ? -1.0 : 1.0;
    for (const double inside : {400.0, 1000.0, 2600.0}) EXPECT_NEAR(at(side * inside), 0.7, 0.01) << inside;
    for (const double other : {400.0, 1000.0, 2600.0}) EXPECT_LE(at(-side * other), 0.7 * 5e-4) << other;
  }
}

TEST_P(RadioTest, DemodulatorsTellWhatIsWrong) {
  gpumap_view downstream{};
  downstream.rate = 48000;
  EXPECT_EQ(refusal("fm", "", 240000, downstream), "not refused");
  EXPECT_THAT(refusal("fm", "", 240000), HasSubstr("set the parameter rate"));
  EXPECT_THAT(refusal("fm", "rate=44100", 240000, downstream), HasSubstr("caps after it say 48000"));
  EXPECT_THAT(refusal("fm", "rate=300000", 240000), HasSubstr("above the input's 240000"));
  EXPECT_THAT(refusal("fm", "rate=30000", 240000), HasSubstr("takes a rate above 30000"));
  EXPECT_THAT(refusal("fm", "rate=48000", 96000), HasSubstr("deviation=75000 does not fit"));
  EXPECT_THAT(refusal("fm", "rate=48000,deemphasis=-1", 240000), HasSubstr("deemphasis=-1"));
  EXPECT_THAT(refusal("fm", "rate=48000,deviation=0", 240000), HasSubstr("deviation=0"));
  EXPECT_THAT(refusal("fm", "rate=47999", 2400000), HasSubstr("put ddc before it"));
  EXPECT_THAT(refusal("am", "rate=12000,lowest=0", 48000), HasSubstr("lowest=0"));
  EXPECT_THAT(refusal("ssb", "rate=12000,lowest=3000", 48000), HasSubstr("is not above lowest"));
  EXPECT_THAT(refusal("am", "rate=0.5", 48000), HasSubstr("not a whole number"));
}

}  // namespace gpumap
