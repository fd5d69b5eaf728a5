// SPDX-License-Identifier: MIT
#include <cstring>
#include <optional>
#include <sstream>

#include "backend_bench.hpp"
#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/program.hpp"

namespace gpumap {

using namespace reference;

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
  // Keeps state, which has to be as new for each next frame.
  const auto program = Program::load(bench_->device(), *find_builtin("checksum"), GetParam());
  program->begin({}, {});
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
      bench_->prepare(input, 64);
      bench_->run(*program, frame);
      EXPECT_EQ(bench_->result_word(0), gpumap::checksum(range)) << bytes << " bytes, with state";
    }
  }
}

// A sum that lies there and no result of its own yet: only the way over the state brings it along, once.
TEST_P(BuiltinTest, ChecksumAddsUpInTheState) {
  constexpr std::size_t bytes = 50000;
  EXPECT_EQ(declaration_of(*find_builtin("checksum")).state_bytes, 16U);
  auto input = random_bytes(bytes + 16, 3);
  const std::array<std::uint64_t, 2> state{5, 0};
  std::memcpy(&input[bytes], state.data(), sizeof state);
  bench_->prepare(input, 64);
  gpumap_frame frame{};
  frame.in.plane[0] = bench_->in();
  frame.in.bytes = bytes;
  frame.result = bench_->result();
  frame.state = bench_->in() + bytes;
  frame.state_bytes = sizeof state;
  const std::uint64_t sum = gpumap::checksum(Bytes(input).subspan(0, bytes));
  bench_->run(bench_->builtin("checksum"), frame);
  EXPECT_EQ(bench_->result_word(0), sum + 5);
  bench_->run(bench_->builtin("checksum"), frame);
  EXPECT_EQ(bench_->result_word(0), 2 * sum + 5) << "the state is as new after a launch";
}

TEST_P(BuiltinTest, SamplesBecomeFloats) {
  for (const auto& kind : sample_kinds) {
    const std::uint32_t format = kind.format;
    for (const std::size_t samples : {1, 2, 6, 255, 4098, 300002}) {
      if (format == GPUMAP_FORMAT_S12 && samples % 2 != 0) continue;
      const auto input = random_samples(format, samples, samples);
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
        const double rounding = format == GPUMAP_FORMAT_U8                      ? 2e-7
                                : kind.bits > 24 && format != GPUMAP_FORMAT_F32 ? 6e-8
                                                                                : 0.0;
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

      bench_->prepare(input, 4 * samples + 64);
      bench_->run(bench_->builtin("magnitude"), frame);
      for (std::size_t i = 0; i < samples / 2; ++i) {
        const double in_phase = sample(format, input, 2 * i), quadrature = sample(format, input, 2 * i + 1);
        ASSERT_NEAR(got(i), std::hypot(in_phase, quadrature), 1e-6) << "format " << format << ", pair " << i;
      }
      EXPECT_EQ(bench_->output()[2 * samples], poison);

      // Less room than the input needs: what is beyond it stays as it was.
      for (const char* kernel : {"iq-to-f32", "iq-power", "magnitude"}) {
        bench_->prepare(input, 4 * samples + 64);
        frame.out.bytes = 4;
        bench_->run(bench_->builtin(kernel), frame);
        EXPECT_EQ(std::count(bench_->output() + 4, bench_->output() + 4 * samples, poison), 4 * samples - 4) << kernel;
      }
    }
  }
}

}  // namespace gpumap

// `convert` against plain C++ in double.

namespace gpumap {
namespace {

using namespace reference;

constexpr std::array input_formats{
    GPUMAP_FORMAT_NV12,         GPUMAP_FORMAT_I420,         GPUMAP_FORMAT_YUY2,         GPUMAP_FORMAT_UYVY,
    GPUMAP_FORMAT_RGB,          GPUMAP_FORMAT_BGR,          GPUMAP_FORMAT_RGBA,         GPUMAP_FORMAT_BGRA,
    GPUMAP_FORMAT_P010,         GPUMAP_FORMAT_V210,         GPUMAP_FORMAT_Y210,         GPUMAP_FORMAT_GRAY8,
    GPUMAP_FORMAT_GRAY16,       GPUMAP_FORMAT_BAYER8_BGGR,  GPUMAP_FORMAT_BAYER8_GBRG,  GPUMAP_FORMAT_BAYER8_GRBG,
    GPUMAP_FORMAT_BAYER8_RGGB,  GPUMAP_FORMAT_BAYER16_BGGR, GPUMAP_FORMAT_BAYER16_GBRG, GPUMAP_FORMAT_BAYER16_GRBG,
    GPUMAP_FORMAT_BAYER16_RGGB, GPUMAP_FORMAT_Y42B,         GPUMAP_FORMAT_Y444,         GPUMAP_FORMAT_I420_10,
    GPUMAP_FORMAT_Y444_10,      GPUMAP_FORMAT_P016,
};
constexpr std::array output_formats{
    GPUMAP_FORMAT_RGBA,           GPUMAP_FORMAT_BGRA,           GPUMAP_FORMAT_RGB,           GPUMAP_FORMAT_GRAY8,
    GPUMAP_FORMAT_RGB_F32_PLANAR, GPUMAP_FORMAT_RGB_F16_PLANAR, GPUMAP_FORMAT_RGB_U8_PLANAR, GPUMAP_FORMAT_RGB_F32,
    GPUMAP_FORMAT_RGB_F16,        GPUMAP_FORMAT_RGB_U8,         GPUMAP_FORMAT_NV12,          GPUMAP_FORMAT_I420,
    GPUMAP_FORMAT_P010,           GPUMAP_FORMAT_YUY2,           GPUMAP_FORMAT_Y444,
};

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

unsigned bits_of(std::uint32_t format) {
  switch (format) {
    case GPUMAP_FORMAT_P010:
    case GPUMAP_FORMAT_V210:
    case GPUMAP_FORMAT_Y210:
    case GPUMAP_FORMAT_I420_10:
    case GPUMAP_FORMAT_Y444_10:
      return 10;
    case GPUMAP_FORMAT_GRAY16:
    case GPUMAP_FORMAT_P016:
    case GPUMAP_FORMAT_BAYER16_BGGR:
    case GPUMAP_FORMAT_BAYER16_GBRG:
    case GPUMAP_FORMAT_BAYER16_GRBG:
    case GPUMAP_FORMAT_BAYER16_RGGB:
      return 16;
    default:
      return 8;
  }
}

/// Of an output, another one with each `turn`; empty: it is of red, green and blue.
std::optional<Coding> coding_of(std::uint32_t format, std::size_t turn) {
  const Coding coding{std::array{ColorMatrix::bt601, ColorMatrix::bt709, ColorMatrix::bt2020}[turn / 2 % 3],
                      turn % 2 == 0 ? ColorRange::limited : ColorRange::full, bits_of(format)};
  const auto shared = [&](std::size_t across, std::size_t down) {
    return Coding{coding.matrix, coding.range, coding.bits, across, down};
  };
  switch (format) {
    case GPUMAP_FORMAT_NV12:
    case GPUMAP_FORMAT_I420:
    case GPUMAP_FORMAT_P010:
      return shared(2, 2);
    case GPUMAP_FORMAT_YUY2:
      return shared(2, 1);
    case GPUMAP_FORMAT_Y444:
    case GPUMAP_FORMAT_GRAY8:
      return coding;
    default:
      return {};
  }
}

std::array<double, 4> with_alpha(const std::array<double, 3>& rgb, double alpha) {
  return {rgb[0], rgb[1], rgb[2], alpha};
}

/// The largest difference to the reference beyond what rounding to the output's format makes, in counts of 255.
double worst_difference(const Layout& in, Bytes input, const Crop& crop, const Layout& out, const std::byte* output,
                        const gpumap_frame& frame, const std::optional<Coding>& coding = {}) {
  const bool same = out.width == crop.width && out.height == crop.height;
  const auto component_at = [&](std::size_t x, std::size_t y) {
    return same ? components(in, input, crop.x + x, crop.y + y)
                : resampled(in, input, crop, x, y, out.width, out.height);
  };
  // Of a large picture every fifth row and the last ones; of smaller pictures every row. Five is odd, so that both rows
  // that share their chroma come up.
  constexpr std::size_t large = 1000, last = 8;
  double worst = 0.0;
  for (std::size_t y = 0; y<out.height; y += out.height> large && y + last < out.height ? 5 : 1) {
    for (std::size_t x = 0; x < out.width; ++x) {
      if (coding) {
        const auto rgb_at = [&](std::size_t column, std::size_t row) {
          return wide_rgb(frame.color, component_at(column, row));
        };
        const double found = luma_difference(out, Bytes(output, out.bytes), *coding, x, y, rgb_at);
        if (!(found <= worst)) worst = found;
        continue;
      }
      const auto component = component_at(x, y);
      const auto expected = with_alpha(rgb(frame.color, component), component[3]);
      for (std::size_t c = 0; c < 4; ++c) {
        const double found = difference(out, output, x, y, c, expected, frame.params);
        // Written so that a NaN counts as a difference.
        if (!(found <= worst)) worst = found;
      }
    }
  }
  return worst;
}

constexpr const char* mean_and_scale = "mean=[0.485,0.456,0.406],scale=[4.36,4.46,4.44]";
/// Beyond rounding, in counts of 255: what lib/kernel/BUILTINS.md states.
constexpr double stated_error = 0.0005;

std::string described(const Layout& in, const Layout& out) {
  std::ostringstream text;
  text << "format " << in.format << " to " << out.format << ", " << in.width << " x " << in.height << " to "
       << out.width << " x " << out.height << ", strides " << in.planes[0].stride << " and " << out.planes[0].stride;
  return text.str();
}

/// As the kernel itself takes it: one matrix for both colours, and what is added then in the params from 14 on.
gpumap_frame recolored(const gpumap_frame& frame) {
  gpumap_frame made = frame;
  for (int row = 0; row < 3; ++row) {
    made.params[14 + row] = frame.out_color.offset[row];
    const float* out = &frame.out_color.matrix[static_cast<std::size_t>(row) * 3];
    for (int column = 0; column < 3; ++column) {
      const float* in = frame.color.matrix + column;
      made.color.matrix[3 * row + column] = out[0] * in[0] + out[1] * in[3] + out[2] * in[6];
    }
  }
  return made;
}

/// `program`: null for the kernel that knows every format.
void check_convert(Bench& bench, const Layout& in, const Layout& out, const gpumap_color& color,
                   Program* program = nullptr, const Crop* crop = nullptr) {
  const std::vector<std::byte> input = random_bytes(in.bytes, in.width * 31 + in.height + in.format);
  bench.prepare(input, out.bytes + 64);
  gpumap_frame frame{};
  frame.in = in.view(bench.in());
  frame.out = out.view(bench.out());
  frame.color = color;
  const std::optional<Coding> coding = coding_of(out.format, in.width + out.height + in.format);
  frame.out_color = coding ? color_from_rgb(coding->matrix, coding->range, coding->bits)
                           : color_from_rgb(ColorMatrix::rgb, ColorRange::full);
  std::string params = mean_and_scale;
  if (crop != nullptr) {
    std::ostringstream text;
    text << ",crop=[" << crop->x << ',' << crop->y << ',' << crop->width << ',' << crop->height << ']';
    params += text.str();
  }
  apply_parameters(*find_builtin("convert"), params, frame.params);
  if (program != nullptr) {
    program->set_params(params);
    program->begin(in.view(0), out.view(0));
    bench.run(*program, frame);
  } else {
    bench.run(bench.builtin("convert"), recolored(frame));
  }

  SCOPED_TRACE(described(in, out));
  Crop shown{0, 0, in.width, in.height};
  if (crop != nullptr) {
    shown = *crop;
    if (shown.width == 0) shown.width = in.width - shown.x;
    if (shown.height == 0) shown.height = in.height - shown.y;
  }
  EXPECT_LE(worst_difference(in, input, shown, out, bench.output(), frame, coding), stated_error);
  EXPECT_EQ(written_outside(out, bench.output()), "");
}

}  // namespace

TEST_P(BuiltinTest, ConvertKnowsEveryFormatAndColour) {
  for (const auto& [width, height] : {std::pair{1U, 1U}, {2U, 1U}, {3U, 5U}, {33U, 7U}, {64U, 16U}}) {
    for (const auto format : input_formats) {
      for (const auto output : output_formats) {
        std::size_t turn = format + output;
        for (const auto matrix : {ColorMatrix::bt601, ColorMatrix::bt709, ColorMatrix::bt2020, ColorMatrix::rgb}) {
          for (const auto range : {ColorRange::limited, ColorRange::full}) {
            // Aligned or not, each of the two: all four ways come up for each pair of formats.
            ++turn;
            check_convert(*bench_, layout(format, width, height, turn % 2 == 0),
                          layout(output, width, height, turn / 2 % 2 == 0),
                          color_matrix(matrix, range, bits_of(format)));
          }
        }
      }
    }
  }
}

// What a stream runs: kernels that know their formats.
TEST_P(BuiltinTest, ConvertIsTheSameWhereFormatsAreFixed) {
  const auto program = Program::load(bench_->device(), *find_builtin("convert"), GetParam());
  const auto check = [&](std::uint32_t from, std::uint32_t to) {
    for (const bool aligned : {true, false}) {
      const auto color = color_matrix(ColorMatrix::bt709, ColorRange::limited, bits_of(from));
      check_convert(*bench_, layout(from, 37, 9, aligned), layout(to, 37, 9, aligned), color, program.get());
      check_convert(*bench_, layout(from, 37, 9, aligned), layout(to, 19, 14, aligned), color, program.get());
    }
  };
  for (const auto format : input_formats) check(format, GPUMAP_FORMAT_RGB_F32_PLANAR);
  for (const auto output : output_formats) check(GPUMAP_FORMAT_NV12, output);
  for (const auto output : {GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_P010, GPUMAP_FORMAT_YUY2}) {
    check(GPUMAP_FORMAT_RGBA, output);
  }
}

TEST_P(BuiltinTest, ConvertFullSizeFrames) {
  std::size_t turn = 0;
  const auto check = [&](std::uint32_t from, std::uint32_t to, std::uint32_t width, std::uint32_t height) {
    const auto color = color_matrix(turn % 2 == 0 ? ColorMatrix::bt601 : ColorMatrix::bt709,
                                    turn % 4 < 2 ? ColorRange::limited : ColorRange::full, bits_of(from));
    // Odd strides need unaligned input, and the other way round, somewhere.
    check_convert(*bench_, layout(from, width, height, turn % 3 != 0), layout(to, width, height, turn % 5 != 0), color);
    ++turn;
  };
  for (const auto format : input_formats) check(format, GPUMAP_FORMAT_RGB_F32_PLANAR, 1917, 1081);
  for (const auto output : output_formats) check(GPUMAP_FORMAT_NV12, output, 1920, 1080);
}

TEST_P(BuiltinTest, ConvertResizesAndCrops) {
  struct Size {
    std::uint32_t width, height;
  };
  struct Case {
    Size in, out;
    Crop crop;
  };
  // Larger, smaller, one axis each way, by odd factors, to and from single pixels, parts with odd corners.
  const std::array cases{
      Case{{1, 1}, {5, 3}, {}},
      Case{{5, 3}, {1, 1}, {}},
      Case{{33, 17}, {66, 34}, {}},
      Case{{33, 17}, {35, 50}, {}},
      Case{{64, 48}, {32, 24}, {}},
      Case{{61, 47}, {13, 5}, {}},
      Case{{40, 30}, {17, 71}, {}},
      Case{{40, 30}, {40, 30}, {1, 1}},
      Case{{40, 30}, {7, 5}, {3, 5, 7, 5}},
      Case{{40, 30}, {20, 20}, {39, 29, 1, 1}},
      Case{{41, 31}, {23, 9}, {5, 2, 30, 27}},
  };
  for (const Case& chosen : cases) {
    std::size_t turn = 0;
    for (const auto format : input_formats) {
      for (const auto output : {GPUMAP_FORMAT_RGB_F32_PLANAR, output_formats[turn % output_formats.size()]}) {
        check_convert(
            *bench_, layout(format, chosen.in.width, chosen.in.height, turn % 3 != 0),
            layout(output, chosen.out.width, chosen.out.height, turn % 2 != 0),
            color_matrix(ColorMatrix::bt709, turn % 4 < 2 ? ColorRange::limited : ColorRange::full, bits_of(format)),
            nullptr, &chosen.crop);
        ++turn;
      }
    }
  }
}

TEST_P(BuiltinTest, ConvertResizesFullSizeFrames) {
  const auto program = Program::load(bench_->device(), *find_builtin("convert"), GetParam());
  const Crop part{101, 57, 1281, 1003};
  const auto color = color_matrix(ColorMatrix::bt709, ColorRange::limited);
  check_convert(*bench_, layout(GPUMAP_FORMAT_NV12, 1917, 1081, true),
                layout(GPUMAP_FORMAT_RGB_F16_PLANAR, 640, 640, true), color, program.get());
  check_convert(*bench_, layout(GPUMAP_FORMAT_NV12, 1917, 1081, false), layout(GPUMAP_FORMAT_RGBA, 501, 333, true),
                color, program.get(), &part);
}

// Many pixels in, few out: more than a loop of lavapipe's has turns, and more than a sum of float32 can be naive about.
TEST_P(BuiltinTest, ConvertMakesSmallPicturesOfLargeOnes) {
  struct Case {
    std::uint32_t from, to;
    std::uint32_t width, height, out_width, out_height;
    bool aligned;
    Crop crop;
  };
  const std::array cases{
      Case{GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_RGBA, 1920, 1080, 16, 16, true, {}},
      Case{GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_RGBA, 1280, 720, 9, 8, false, {}},
      Case{GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_RGB_F32_PLANAR, 3840, 2160, 32, 32, true, {}},
      Case{GPUMAP_FORMAT_I420, GPUMAP_FORMAT_RGB_F32, 1917, 1081, 224, 224, false, {}},
      Case{GPUMAP_FORMAT_V210, GPUMAP_FORMAT_RGB_F32_PLANAR, 1920, 1080, 1, 1, true, {}},
      Case{GPUMAP_FORMAT_GRAY8, GPUMAP_FORMAT_RGB_F32_PLANAR, 32767, 5, 2, 1, true, {}},
      Case{GPUMAP_FORMAT_GRAY16, GPUMAP_FORMAT_RGB_F32_PLANAR, 5, 32767, 1, 2, false, {}},
      Case{GPUMAP_FORMAT_BAYER16_RGGB, GPUMAP_FORMAT_RGB_F32_PLANAR, 9, 5000, 3, 2, false, {}},
      Case{GPUMAP_FORMAT_BGRA, GPUMAP_FORMAT_RGBA, 800, 600, 7, 3, true, {101, 33, 600, 500}},
      Case{GPUMAP_FORMAT_RGB, GPUMAP_FORMAT_GRAY8, 640, 480, 7, 1000, false, {3, 1, 637, 0}},
      Case{GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_NV12, 1917, 1081, 15, 17, true, {}},
      Case{GPUMAP_FORMAT_RGBA, GPUMAP_FORMAT_I420, 1917, 1081, 33, 21, false, {}},
      Case{GPUMAP_FORMAT_Y444, GPUMAP_FORMAT_P010, 32767, 9, 2, 2, true, {}},
      Case{GPUMAP_FORMAT_GRAY8, GPUMAP_FORMAT_YUY2, 32767, 5, 2, 1, true, {}},
      Case{GPUMAP_FORMAT_Y42B, GPUMAP_FORMAT_Y444, 5, 32767, 1, 3, false, {}},
      Case{GPUMAP_FORMAT_BGR, GPUMAP_FORMAT_NV12, 32761, 3, 32761, 1, true, {}},
  };
  for (const Case& test : cases) {
    const auto program = Program::load(bench_->device(), *find_builtin("convert"), GetParam());
    check_convert(*bench_, layout(test.from, test.width, test.height, test.aligned),
                  layout(test.to, test.out_width, test.out_height, test.aligned),
                  color_matrix(ColorMatrix::bt709, ColorRange::limited, bits_of(test.from)), program.get(), &test.crop);
  }
}

// What cannot be seen does not colour what can.
TEST_P(BuiltinTest, ConvertResizesColoursByWhatTheyCover) {
  for (const std::uint32_t size : {2U, 96U}) {  // of which one pixel is made: at once, and in two passes
    const Layout in = layout(GPUMAP_FORMAT_RGBA, size, size, true), out = layout(GPUMAP_FORMAT_RGBA, 1, 1, true);
    std::vector<std::byte> input(in.bytes);
    for (std::size_t y = 0; y < size; ++y) {
      for (std::size_t x = 0; x < size; ++x) {
        std::byte* const pixel = &input[in.planes[0].offset + y * in.planes[0].stride + 4 * x];
        const bool left = x < size / 2;  // transparent red beside opaque blue
        pixel[0] = std::byte(left ? 255 : 0), pixel[2] = pixel[3] = std::byte(left ? 0 : 255);
      }
    }
    const auto program = Program::load(bench_->device(), *find_builtin("convert"), GetParam());
    const auto pixel_of = [&](const std::vector<std::byte>& bytes) {
      bench_->prepare(bytes, out.bytes + 64);
      gpumap_frame frame{};
      frame.in = in.view(bench_->in());
      frame.out = out.view(bench_->out());
      frame.color = color_matrix(ColorMatrix::rgb, ColorRange::full);
      frame.out_color = color_from_rgb(ColorMatrix::rgb, ColorRange::full);
      program->begin(in.view(0), out.view(0));
      bench_->run(*program, frame);
      std::array<int, 4> pixel{};
      for (std::size_t i = 0; i < 4; ++i) {
        pixel[i] = std::to_integer<int>(bench_->output()[out.planes[0].offset + i]);
      }
      return pixel;
    };
    EXPECT_EQ(pixel_of(input), (std::array{0, 0, 255, 128})) << size;
    for (std::size_t at = 3; at < input.size(); at += 4) input[at] = std::byte{0};
    EXPECT_EQ(pixel_of(input), (std::array{0, 0, 0, 0})) << size;
  }
}

// A part in its size is of the input's own pixels: also of those that cover nothing.
TEST_P(BuiltinTest, ConvertCropsPixelsAsTheyAre) {
  struct Case {
    std::uint32_t width, height;
    Crop crop;
  };
  for (const auto& [width, height, crop] : {Case{1, 1, {0, 0, 1, 1}}, Case{2, 1, {1, 0, 1, 1}},
                                            Case{61, 47, {1, 2, 59, 43}}, Case{40, 30, {7, 0, 33, 30}}}) {
    for (const auto format : {GPUMAP_FORMAT_RGBA, GPUMAP_FORMAT_BGRA}) {
      SCOPED_TRACE(std::to_string(width) + " x " + std::to_string(height) + ", format " + std::to_string(format));
      const Layout in = layout(format, width, height, width % 2 == 0);
      const Layout out = layout(format, static_cast<std::uint32_t>(crop.width), static_cast<std::uint32_t>(crop.height),
                                width % 4 != 0);
      std::vector<std::byte> input = random_bytes(in.bytes, width + format);
      for (std::size_t y = 0; y < height; ++y) {
        for (std::size_t x = y % 2; x < width; x += 2) {
          input[in.planes[0].offset + y * in.planes[0].stride + 4 * x + 3] = std::byte{0};
        }
      }
      bench_->prepare(input, out.bytes + 64);
      gpumap_frame frame{};
      frame.in = in.view(bench_->in());
      frame.out = out.view(bench_->out());
      frame.color = color_matrix(ColorMatrix::rgb, ColorRange::full);
      frame.out_color = color_from_rgb(ColorMatrix::rgb, ColorRange::full);
      std::ostringstream params;
      params << "crop=[" << crop.x << ',' << crop.y << ',' << crop.width << ',' << crop.height << ']';
      const auto program = Program::load(bench_->device(), *find_builtin("convert"), GetParam());
      program->begin_with(params.str(), in.view(0), out.view(0));
      bench_->run(*program, frame);
      for (std::size_t y = 0; y < crop.height; ++y) {
        const std::byte* const row = &input[in.planes[0].offset + (crop.y + y) * in.planes[0].stride + 4 * crop.x];
        EXPECT_EQ(std::memcmp(bench_->output() + out.planes[0].offset + y * out.planes[0].stride, row, 4 * crop.width),
                  0)
            << "row " << y;
      }
    }
  }
}

// A picture of one value stays that, whatever it is resized to: the weights add up.
TEST_P(BuiltinTest, ConvertKeepsAFlatPicture) {
  const Layout in = layout(GPUMAP_FORMAT_GRAY8, 1920, 30, true);
  const std::vector<std::byte> input(in.bytes, std::byte{200});
  const auto program = Program::load(bench_->device(), *find_builtin("convert"), GetParam());
  for (const std::uint32_t width : {1U, 3U, 640U, 1919U, 1921U, 4001U}) {
    const Layout out = layout(GPUMAP_FORMAT_RGB_F32_PLANAR, width, 30, true);
    bench_->prepare(input, out.bytes + 64);
    gpumap_frame frame{};
    frame.in = in.view(bench_->in());
    frame.out = out.view(bench_->out());
    frame.color = color_matrix(ColorMatrix::rgb, ColorRange::full);
    frame.out_color = color_from_rgb(ColorMatrix::rgb, ColorRange::full);
    apply_parameters(*find_builtin("convert"), "", frame.params);
    program->begin(in.view(0), out.view(0));
    bench_->run(*program, frame);
    EXPECT_LE(worst_difference(in, input, {0, 0, 1920, 30}, out, bench_->output(), frame), stated_error) << width;
  }
}

TEST_P(BuiltinTest, ConvertRefusesACropOutsideThePicture) {
  const auto program = Program::load(bench_->device(), *find_builtin("convert"), GetParam());
  const gpumap_view in = layout(GPUMAP_FORMAT_NV12, 64, 48, true).view(0);
  const gpumap_view out = layout(GPUMAP_FORMAT_RGBA, 64, 48, true).view(0);
  const auto error_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid);
      return error.what();
    }
    return "no error";
  };
  const auto begin_with = [&](const char* params) {
    program->set_params(params);
    return error_of([&] { program->begin(in, out); });
  };
  EXPECT_EQ(begin_with("crop=[0,0,64,48]"), "no error");
  EXPECT_EQ(begin_with("crop=[63,47,1,1]"), "no error");
  // Of a stream that runs: refused at once, and the old one stays.
  for (const char* params : {"crop=[64,0,0,0]", "crop=[0,48,0,0]", "crop=[1,0,64,0]", "crop=[0,20,0,29]"}) {
    const std::string error = error_of([&] { program->set_params(params); });
    EXPECT_NE(error.find("outside the picture of "), std::string::npos) << params << ": " << error;
  }
  for (const char* params : {"crop=[-1,0,0,0]", "crop=[0,0.5,0,0]", "crop=[0,0,1e9,0]"}) {
    const std::string error = error_of([&] { program->set_params(params); });
    EXPECT_NE(error.find("not whole numbers"), std::string::npos) << params << ": " << error;
  }
  // Of one that begins.
  const auto fresh = Program::load(bench_->device(), *find_builtin("convert"), GetParam());
  fresh->set_params("crop=[0,0,65,0]");
  EXPECT_NE(error_of([&] { fresh->begin(in, out); }).find("from 0 on, 65 pixels across: outside the picture of 64"),
            std::string::npos);
}

}  // namespace gpumap
