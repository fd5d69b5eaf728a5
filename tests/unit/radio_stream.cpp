// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

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
