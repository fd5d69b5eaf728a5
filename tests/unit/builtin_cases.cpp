// SPDX-License-Identifier: MIT
#include "builtin_cases.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "gpumap/checksum.hpp"
#include "gpumap/color.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

using namespace reference;

constexpr std::array input_formats{GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_I420, GPUMAP_FORMAT_YUY2, GPUMAP_FORMAT_UYVY,
                                   GPUMAP_FORMAT_RGB,  GPUMAP_FORMAT_BGR,  GPUMAP_FORMAT_RGBA, GPUMAP_FORMAT_BGRA};
constexpr std::array output_formats{GPUMAP_FORMAT_RGBA, GPUMAP_FORMAT_RGB_F32_PLANAR};
constexpr std::array sample_formats{GPUMAP_FORMAT_U8, GPUMAP_FORMAT_S8, GPUMAP_FORMAT_S16, GPUMAP_FORMAT_F32};

/// The first byte outside the image's rows that is no longer poison; empty when there is none.
std::string written_outside(const Layout& out, const std::byte* bytes) {
  std::vector<std::byte> expected(bytes, bytes + out.bytes + 64);
  for (const Plane& plane : out.planes) {
    for (std::size_t y = 0; y < plane.rows; ++y) {
      std::memset(expected.data() + plane.offset + y * plane.stride, static_cast<int>(poison), plane.row_bytes);
    }
  }
  const auto bad = std::find_if(expected.begin(), expected.end(), [](std::byte b) { return b != poison; });
  return bad == expected.end() ? std::string() : "byte " + std::to_string(bad - expected.begin());
}

/// The largest difference to the reference, in counts of 255.
double worst_difference(const Layout& in, Bytes input, const Layout& out, const std::byte* output,
                        const gpumap_frame& frame) {
  double worst = 0.0;
  for (std::size_t y = 0; y < in.height; ++y) {
    for (std::size_t x = 0; x < in.width; ++x) {
      const auto component = components(in, input, x, y);
      const auto expected = rgb(frame.color, component);
      if (out.format == GPUMAP_FORMAT_RGBA) {
        const std::byte* pixel = output + out.planes[0].offset + y * out.planes[0].stride + 4 * x;
        for (std::size_t c = 0; c < 3; ++c) {
          worst = std::max(worst, std::abs(std::to_integer<int>(pixel[c]) - std::round(expected[c])));
        }
        if (std::to_integer<int>(pixel[3]) != component[3]) return std::numeric_limits<double>::infinity();
        continue;
      }
      for (std::size_t c = 0; c < 3; ++c) {
        float value = 0.0F;
        std::memcpy(&value, output + out.planes[c].offset + y * out.planes[c].stride + 4 * x, sizeof value);
        const auto scale = double{frame.params[3 + c]};
        const double difference = value - (expected[c] / 255.0 - double{frame.params[c]}) * scale;
        // Written so that a NaN counts as a difference.
        if (!(std::abs(difference / scale) * 255.0 <= worst)) worst = std::abs(difference / scale) * 255.0;
      }
    }
  }
  return worst;
}

void check_convert(Bench& bench, const Layout& in, const Layout& out, const gpumap_color& color) {
  const std::vector<std::byte> input = random_bytes(in.bytes, in.width * 31 + in.height + in.format);
  bench.prepare(input, out.bytes + 64);
  gpumap_frame frame{};
  frame.in = in.view(bench.in());
  frame.out = out.view(bench.out());
  frame.color = color;
  apply_parameters(*find_builtin("convert"), "mean=[0.485,0.456,0.406],scale=[4.36,4.46,4.44]", frame.params);
  bench.run(bench.builtin("convert"), frame);

  SCOPED_TRACE(::testing::Message() << "format " << in.format << " to " << out.format << ", " << in.width << " x "
                                    << in.height << ", strides " << in.planes[0].stride << " and "
                                    << out.planes[0].stride);
  const double tolerance = out.format == GPUMAP_FORMAT_RGBA ? 1.0 : 255.0 * 1e-5;
  EXPECT_LE(worst_difference(in, input, out, bench.output(), frame), tolerance);
  EXPECT_EQ(written_outside(out, bench.output()), "");
}

}  // namespace

TEST_P(BuiltinTest, IdentityCopiesAnySizeAtAnyAlignment) {
  const auto input = random_bytes(70000, 1);
  for (const std::size_t bytes : {1, 7, 15, 16, 17, 63, 64, 65, 4097, 65536}) {
    for (const std::size_t from : {0, 1, 4, 8}) {
      for (const std::size_t to : {0, 1, 3, 4, 9, 12}) {
        bench_->prepare(input, bytes + 64);
        gpumap_frame frame{};
        frame.in.plane[0] = bench_->in() + from;
        frame.in.bytes = frame.out.bytes = bytes;
        frame.out.plane[0] = bench_->out() + to;
        bench_->run(bench_->builtin("identity"), frame);
        std::vector<std::byte> expected(bytes + 64, poison);
        std::memcpy(expected.data() + to, input.data() + from, bytes);
        ASSERT_EQ(std::memcmp(bench_->output(), expected.data(), expected.size()), 0)
            << bytes << " bytes, from offset " << from << " to " << to;
      }
    }
  }
}

TEST_P(BuiltinTest, ChecksumIsExact) {
  const auto input = random_bytes(3110400 + 3 + 16, 2);
  for (const std::size_t bytes : {0, 1, 7, 8, 9, 63, 64, 65, 4097, 3110400 + 3}) {
    for (const std::size_t from : {0, 1, 4, 8}) {
      bench_->prepare(input, 64);
      gpumap_frame frame{};
      frame.in.plane[0] = bench_->in() + from;
      frame.in.bytes = bytes;
      frame.result = bench_->result();
      bench_->run(bench_->builtin("checksum"), frame);
      const Bytes range = Bytes(input).subspan(from, bytes);
      EXPECT_EQ(bench_->result_word(0), reference::checksum(range)) << bytes << " bytes from offset " << from;
      EXPECT_EQ(bench_->result_word(0), gpumap::checksum(range));
      EXPECT_EQ(bench_->result_word(1), 0U);
    }
  }
}

TEST_P(BuiltinTest, ConvertKnowsEveryFormatAndColour) {
  for (const auto& [width, height] : {std::pair{1U, 1U}, {2U, 1U}, {3U, 2U}, {33U, 7U}, {64U, 16U}}) {
    for (const auto format : input_formats) {
      for (const auto output : output_formats) {
        for (const auto matrix : {ColorMatrix::bt601, ColorMatrix::bt709, ColorMatrix::bt2020, ColorMatrix::rgb}) {
          for (const auto range : {ColorRange::limited, ColorRange::full}) {
            for (const bool aligned : {true, false}) {
              check_convert(*bench_, layout(format, width, height, aligned), layout(output, width, height, aligned),
                            color_matrix(matrix, range));
            }
          }
        }
      }
    }
  }
}

TEST_P(BuiltinTest, ConvertFullSizeFrames) {
  std::size_t turn = 0;
  for (const auto& [width, height] : {std::pair{1920U, 1080U}, {1917U, 1081U}}) {
    for (const auto format : input_formats) {
      for (const auto output : output_formats) {
        const auto color = color_matrix(turn % 2 == 0 ? ColorMatrix::bt601 : ColorMatrix::bt709,
                                        turn % 4 < 2 ? ColorRange::limited : ColorRange::full);
        // Odd strides need unaligned input, and the other way round, somewhere.
        check_convert(*bench_, layout(format, width, height, turn % 3 != 0),
                      layout(output, width, height, turn % 5 != 0), color);
        ++turn;
      }
    }
  }
}

TEST_P(BuiltinTest, SamplesBecomeFloats) {
  for (const auto format : sample_formats) {
    for (const std::size_t samples : {1, 2, 6, 255, 4098, 1000002}) {
      auto input = random_bytes(samples * sample_bytes(format), samples);
      if (format == GPUMAP_FORMAT_F32) {
        for (std::size_t i = 0; i < samples; ++i) {
          const auto value = static_cast<float>(static_cast<double>(i * 7919 % 20011) / 10000.0 - 1.0);
          std::memcpy(input.data() + 4 * i, &value, sizeof value);
        }
      }
      bench_->prepare(input, 4 * samples + 64);
      gpumap_frame frame{};
      frame.in.plane[0] = bench_->in();
      frame.in.bytes = input.size();
      frame.in.format = format;
      frame.in.channels = 2;
      frame.out.plane[0] = bench_->out();
      frame.out.bytes = 4 * samples;
      frame.out.format = GPUMAP_FORMAT_F32;
      frame.out.channels = 2;
      bench_->run(bench_->builtin("iq-to-f32"), frame);
      const auto got = [this](std::size_t index) {
        return sample(GPUMAP_FORMAT_F32, {bench_->output(), Bench::memory_bytes}, index);
      };
      for (std::size_t i = 0; i < samples; ++i) {
        const double expected = sample(format, input, i);
        const double rounding = format == GPUMAP_FORMAT_U8 ? 2e-7 : 0.0;
        ASSERT_NEAR(got(i), expected, rounding) << "format " << format << ", sample " << i;
      }
      EXPECT_EQ(bench_->output()[4 * samples], poison);

      if (samples % 2 != 0) continue;
      bench_->prepare(input, 4 * samples + 64);
      frame.out.bytes = 2 * samples;
      frame.out.channels = 1;
      bench_->run(bench_->builtin("iq-power"), frame);
      for (std::size_t i = 0; i < samples / 2; ++i) {
        const double in_phase = sample(format, input, 2 * i), quadrature = sample(format, input, 2 * i + 1);
        ASSERT_NEAR(got(i), in_phase * in_phase + quadrature * quadrature, 1e-6)
            << "format " << format << ", pair " << i;
      }
      EXPECT_EQ(bench_->output()[2 * samples], poison);

      // Less room than the input needs: what is beyond it stays as it was.
      for (const char* kernel : {"iq-to-f32", "iq-power"}) {
        bench_->prepare(input, 4 * samples + 64);
        frame.out.bytes = 4;
        bench_->run(bench_->builtin(kernel), frame);
        EXPECT_EQ(std::count(bench_->output(), bench_->output() + 4 * samples, poison), 4 * samples - 4) << kernel;
      }
    }
  }
}

}  // namespace gpumap
