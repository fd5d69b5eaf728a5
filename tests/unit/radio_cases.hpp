// SPDX-License-Identifier: MIT
//
// The radio built-ins against plain C++ in double: one table of cases, instantiated for each backend that a test
// program is about.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <vector>

#include "backend_bench.hpp"
#include "gpumap/program.hpp"

namespace gpumap {

using Complex = std::complex<double>;

/// An IQ recording.
struct Recording {
  std::uint32_t format = GPUMAP_FORMAT_F32;
  std::uint32_t rate = 0;
  std::vector<std::byte> bytes;
  std::uint32_t channels = 2;  ///< 1: real samples

  [[nodiscard]] std::size_t samples() const { return bytes.size() / sample_size(); }
  [[nodiscard]] std::size_t sample_size() const { return channels * reference::sample_bits(format) / 8; }
  [[nodiscard]] Complex at(std::int64_t i) const {  ///< silence before its begin
    if (i < 0) return 0.0;
    const auto n = static_cast<std::size_t>(i);
    if (channels == 1) return reference::sample(format, bytes, n);
    return {reference::sample(format, bytes, 2 * n), reference::sample(format, bytes, 2 * n + 1)};
  }
  [[nodiscard]] gpumap_view view() const;
};

/// Samples at random over the whole range.
[[nodiscard]] Recording noise(std::uint32_t format, std::uint32_t rate, std::size_t samples, std::uint64_t seed,
                              std::uint32_t channels = 2);
/// exp(2 pi i frequency t) in float32.
[[nodiscard]] Recording tone(std::uint32_t rate, std::size_t samples, double frequency, double amplitude = 1.0);

/// What is played to a program in frames of these sizes, in samples; the last size holds for the rest.
struct Frames {
  std::vector<std::size_t> sizes;
};
[[nodiscard]] Frames random_frames(std::size_t samples, std::size_t largest, std::uint64_t seed);

class RadioTest : public BackendTest {
 protected:
  [[nodiscard]] std::unique_ptr<Program> load(const std::string& name, const std::string& params = {}) const;
  /// What comes out of a program that has begun. The frames' output has the size that output_bytes() tells, and nothing
  /// is written beside it.
  [[nodiscard]] std::vector<float> play(Program& program, const Recording& recording, const Frames& frames) const;
  /// Of a stream's begin: all in one frame, and the same in frames of random size, must be the same to the bit.
  [[nodiscard]] std::vector<float> play_from_begin(Program& program, const Recording& recording,
                                                   const gpumap_view& out) const;
  /// By so many bytes play() puts samples off the alignment that memory has.
  std::size_t off_alignment_ = 0;
  /// What set_params and begin say.
  [[nodiscard]] std::string refusal(const std::string& name, const std::string& params, std::uint32_t in_rate,
                                    const gpumap_view& out = {}) const;
};

[[nodiscard]] std::vector<Complex> as_complex(const std::vector<float>& floats);
/// The largest distance.
[[nodiscard]] double worst_error(const std::vector<Complex>& got, const std::vector<Complex>& expected);

}  // namespace gpumap
