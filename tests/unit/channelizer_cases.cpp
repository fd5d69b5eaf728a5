// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <numbers>

#include "radio_cases.hpp"

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
