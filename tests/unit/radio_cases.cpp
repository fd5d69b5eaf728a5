// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>

#include "gpumap/error.hpp"
#include "radio_cases.hpp"

namespace gpumap {

gpumap_view Recording::view() const {
  gpumap_view made{};
  made.format = format;
  made.channels = channels;
  made.rate = rate;
  return made;
}

Recording noise(std::uint32_t format, std::uint32_t rate, std::size_t samples, std::uint64_t seed,
                std::uint32_t channels) {
  Recording made{.format = format, .rate = rate, .bytes = {}, .channels = channels};
  made.bytes = reference::random_samples(format, samples * channels, seed);
  return made;
}

Recording tone(std::uint32_t rate, std::size_t samples, double frequency, double amplitude) {
  Recording made{.format = GPUMAP_FORMAT_F32, .rate = rate, .bytes = std::vector<std::byte>(8 * samples)};
  for (std::size_t i = 0; i < samples; ++i) {
    const double turns = std::fmod(frequency * static_cast<double>(i) / rate, 1.0);
    const Complex value = std::polar(amplitude, 2.0 * std::numbers::pi * turns);
    const std::array iq{static_cast<float>(value.real()), static_cast<float>(value.imag())};
    std::memcpy(&made.bytes[8 * i], iq.data(), sizeof iq);
  }
  return made;
}

Frames random_frames(std::size_t samples, std::size_t largest, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Frames made;
  // The shortest ones first: nothing else meets the same state so often.
  for (std::size_t i = 0; i < 5; ++i) made.sizes.push_back(1);
  for (std::size_t sum = 5; sum < samples; sum += made.sizes.back()) made.sizes.push_back(1 + random() % largest);
  return made;
}

std::unique_ptr<Program> RadioTest::load(const std::string& name, const std::string& params) const {
  auto program = Program::load(bench_->device(), *find_builtin(name), bench_->backend());
  program->set_params(params);
  return program;
}

std::vector<float> RadioTest::play(Program& program, const Recording& recording, const Frames& frames) const {
  std::vector<float> all;
  std::size_t turn = 0;
  for (std::size_t at = 0; at < recording.samples(); ++turn) {
    const std::size_t wanted =
        frames.sizes.empty() ? recording.samples() : frames.sizes[std::min(turn, frames.sizes.size() - 1)];
    const std::size_t samples = std::min(wanted, recording.samples() - at);
    const reference::Bytes bytes =
        reference::Bytes(recording.bytes).subspan(at * recording.sample_size(), samples * recording.sample_size());
    const auto expected = program.output_bytes(bytes.size());
    if (!expected || *expected + 64 > Bench::memory_bytes) {
      ADD_FAILURE() << "output_bytes";
      return all;
    }
    std::vector<std::byte> placed(off_alignment_);
    placed.insert(placed.end(), bytes.begin(), bytes.end());
    bench_->prepare(placed, *expected + 64);
    gpumap_frame frame{};
    frame.in = recording.view();
    frame.in.plane[0] = bench_->in() + off_alignment_;
    frame.in.bytes = bytes.size();
    frame.out.format = GPUMAP_FORMAT_F32;
    frame.out.plane[0] = *expected != 0 ? bench_->out() : 0;
    frame.out.bytes = *expected;
    frame.sequence = turn;
    bench_->run(program, frame);
    const std::size_t before = all.size();
    all.resize(before + *expected / sizeof(float));
    if (*expected != 0) std::memcpy(all.data() + before, bench_->output(), *expected);
    EXPECT_EQ(std::count(bench_->output() + *expected, bench_->output() + *expected + 64, poison), 64);
    at += samples;
  }
  return all;
}

std::vector<float> RadioTest::play_from_begin(Program& program, const Recording& recording,
                                              const gpumap_view& out) const {
  program.begin(recording.view(), out);
  std::vector<float> whole = play(program, recording, {});
  for (const std::size_t largest : {recording.samples() / 50 + 1, recording.samples() / 3 + 1}) {
    program.begin(recording.view(), out);
    const auto parts = play(program, recording, random_frames(recording.samples(), largest, largest));
    EXPECT_EQ(parts.size(), whole.size());
    const auto differs = std::mismatch(whole.begin(), whole.end(), parts.begin(), parts.end());
    EXPECT_EQ(differs.first - whole.begin(), static_cast<std::ptrdiff_t>(whole.size()))
        << "frames of up to " << largest << " samples show";
  }
  return whole;
}

std::string RadioTest::refusal(const std::string& name, const std::string& params, std::uint32_t in_rate,
                               const gpumap_view& out) const {
  try {
    const auto program = load(name, params);
    program->begin(Recording{.rate = in_rate, .bytes = {}}.view(), out);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid) << error.what();
    return error.what();
  }
  return "not refused";
}

std::vector<Complex> as_complex(const std::vector<float>& floats) {
  std::vector<Complex> made;
  for (std::size_t i = 0; i + 1 < floats.size(); i += 2) made.emplace_back(floats[i], floats[i + 1]);
  return made;
}

double worst_error(const std::vector<Complex>& got, const std::vector<Complex>& expected) {
  if (got.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    // Written so that a NaN counts.
    if (!(std::abs(got[i] - expected[i]) <= worst)) worst = std::abs(got[i] - expected[i]);
  }
  return worst;
}

}  // namespace gpumap

namespace gpumap {
namespace {

using std::numbers::pi;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct ChannelizerCase {
  std::uint32_t format;
  std::int64_t channels, taps, oversample;
  std::size_t samples;
};

std::string params_of(const ChannelizerCase& test) {
  return "channels=" + std::to_string(test.channels) + ",taps=" + std::to_string(test.taps) +
         ",oversample=" + std::to_string(test.oversample);
}

/// Each channel by itself: mixed to zero, filtered, one of each hop taken.
std::vector<Complex> reference_channels(const ChannelizerCase& test, const Recording& in) {
  const std::int64_t channels = test.channels, length = channels * test.taps, hop = channels / test.oversample;
  std::vector<double> filter;
  double sum = 0.0;
  for (std::int64_t i = 0; i < length; ++i) {
    const double t = static_cast<double>(i) - static_cast<double>(length - 1) / 2.0;
    const double edge = 2.0 * t / static_cast<double>(length - 1);
    const double x = pi * t / static_cast<double>(channels);
    filter.push_back((t == 0.0 ? 1.0 : std::sin(x) / x) *
                     std::cyl_bessel_i(0.0, 0.1102 * (80.0 - 8.7) * std::sqrt(std::max(0.0, 1.0 - edge * edge))));
    sum += filter.back();
  }
  std::vector<Complex> turns;
  for (std::int64_t i = 0; i < channels; ++i) {
    turns.push_back(std::polar(1.0, -2.0 * pi * static_cast<double>(i) / static_cast<double>(channels)));
  }
  std::vector<Complex> out;
  for (std::int64_t newest = hop - 1; newest < static_cast<std::int64_t>(in.samples()); newest += hop) {
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      Complex value = 0.0;
      for (std::int64_t i = 0; i < length && i <= newest; ++i) {
        value += filter[static_cast<std::size_t>(i)] * in.at(newest - i) *
                 turns[static_cast<std::size_t>(channel * (newest - i) % channels)];
      }
      out.push_back(value / sum);
    }
  }
  return out;
}

}  // namespace

// Real samples are I, and Q is 0.
TEST_P(RadioTest, ChannelizerTakesRealSamples) {
  const ChannelizerCase test{GPUMAP_FORMAT_U32_BE, 16, 12, 2, 3001};
  const Recording in = noise(test.format, 1000000, test.samples, 3, 1);
  const auto program = load("channelizer", params_of(test));
  EXPECT_LE(worst_error(as_complex(play_from_begin(*program, in, {})), reference_channels(test, in)), 1e-5);
}

TEST_P(RadioTest, ChannelizerIsRightToTheStatedError) {
  std::vector<ChannelizerCase> cases{{GPUMAP_FORMAT_F32, 2, 12, 1, 1001},  {GPUMAP_FORMAT_F32, 2, 5, 2, 1001},
                                     {GPUMAP_FORMAT_F32, 4, 16, 1, 2001},  {GPUMAP_FORMAT_F32, 32, 1, 1, 3001},
                                     {GPUMAP_FORMAT_F32, 64, 12, 2, 3001}, {GPUMAP_FORMAT_F32, 512, 8, 1, 6000}};
  // Any number will do: primes, odd ones, those that libraries know and those that they do not.
  for (const auto& [channels, taps] :
       {std::pair<std::int64_t, std::int64_t>{3, 12}, {5, 7}, {12, 12}, {17, 3}, {100, 4}, {127, 5}, {1009, 2}}) {
    cases.push_back({GPUMAP_FORMAT_F32, channels, taps, 1, static_cast<std::size_t>(5 * channels * taps + 11)});
  }
  for (const std::int64_t channels : {6, 30, 34, 254}) cases.push_back({GPUMAP_FORMAT_S16, channels, 6, 2, 4001});
  for (const auto& kind : reference::sample_kinds) cases.push_back({kind.format, 16, 12, 2, 3001});
  double worst = 0.0;
  for (const ChannelizerCase& test : cases) {
    SCOPED_TRACE(::testing::Message() << "format " << test.format << ", " << params_of(test));
    const Recording in = noise(test.format, 1000000, test.samples, test.samples + test.format);
    const auto program = load("channelizer", params_of(test));
    const auto got = as_complex(play_from_begin(*program, in, {}));
    ASSERT_FALSE(got.empty());
    const double error = worst_error(got, reference_channels(test, in));
    EXPECT_LE(error, 1e-5);
    worst = std::max(worst, error);
  }
  RecordProperty("worst_error", std::to_string(worst));
  std::printf("channelizer: worst error %.2g\n", worst);
}

TEST_P(RadioTest, ChannelizerPutsAToneIntoItsChannel) {
  constexpr std::size_t channels = 64;
  for (const int oversample : {1, 2}) {
    for (const int channel : {0, 1, 31, -1, -32}) {
      const Recording in = tone(6400000, 12800, channel * 100000.0);
      const auto program = load("channelizer", "channels=64,taps=16,oversample=" + std::to_string(oversample));
      program->begin(in.view(), {});
      const auto out = as_complex(play(*program, in, {}));
      ASSERT_EQ(out.size(), 12800U * static_cast<unsigned>(oversample));
      const auto expected = static_cast<std::size_t>((channel + 64) % 64);
      for (std::size_t i = out.size() / 2; i < out.size(); ++i) {
        ASSERT_NEAR(std::abs(out[i]), i % channels == expected ? 1.0 : 0.0, 2e-4) << "channel " << i % channels;
      }
      // In the middle of its channel it stands still.
      EXPECT_LE(std::abs(out[out.size() - channels + expected] - out[out.size() - 5 * channels + expected]), 1e-5);
    }
  }
}

TEST_P(RadioTest, ChannelizerTellsWhatIsWrong) {
  EXPECT_EQ(refusal("channelizer", "channels=65536,taps=4,oversample=2", 96000), "not refused");
  EXPECT_EQ(refusal("channelizer", "channels=65521,taps=1", 96000), "not refused");
  for (const char* wrong : {"channels=1", "channels=2.5", "channels=65537", "channels=-3"}) {
    EXPECT_THAT(refusal("channelizer", wrong, 96000),
                AllOf(HasSubstr(wrong), HasSubstr("not a whole number from 2 to 65536")));
  }
  EXPECT_THAT(refusal("channelizer", "channels=15,oversample=2", 96000),
              AllOf(HasSubstr("channels=15 is odd"), HasSubstr("take 16")));
  EXPECT_THAT(refusal("channelizer", "taps=0", 96000), HasSubstr("taps=0"));
  EXPECT_THAT(refusal("channelizer", "oversample=3", 96000), HasSubstr("oversample=3"));
  EXPECT_THAT(refusal("channelizer", "attenuation=10", 96000), HasSubstr("between 20 and 140"));
  EXPECT_THAT(refusal("channelizer", "", 0), HasSubstr("takes IQ samples"));
}

}  // namespace gpumap

// fm, am and ssb against their definitions in double: the filters are worked out here once more, tap by tap.

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
  EXPECT_THAT(refusal("fm", "rate=48000,deviation=1e-300", 240000),
              HasSubstr("deviation=1e-300 is less than 0.001 Hz"));
  EXPECT_THAT(refusal("fm", "rate=47999", 2400000), HasSubstr("put ddc before it"));
  EXPECT_THAT(refusal("am", "rate=12000,lowest=0", 48000), HasSubstr("lowest=0"));
  EXPECT_THAT(refusal("ssb", "rate=12000,lowest=3000", 48000), HasSubstr("is not above lowest"));
  EXPECT_THAT(refusal("am", "rate=0.5", 48000), HasSubstr("not a whole number"));
}

}  // namespace gpumap
