// SPDX-License-Identifier: MIT
#include "backend_bench.hpp"

#include <cstring>

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
