// SPDX-License-Identifier: MIT
// Compute shaders as they run: what they see of a frame, how many threads they get, loads, stores and atomics.
#include "gpumap/kernel.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <span>

#include "backend_bench.hpp"
#include "gpumap/error.hpp"

namespace gpumap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class KernelTest : public BackendTest {
 protected:
  std::shared_ptr<Kernel> load(const KernelSource& source) { return Kernel::load(bench_->device(), source); }
};

INSTANTIATE_TEST_SUITE_P(Vulkan, KernelTest, ::testing::Values(Backend::vulkan));

// Every member, in the order of kernel.h, as words: the shader's idea of where it lies against the compiler's.
TEST_P(KernelTest, ShadersSeeTheSameLayout) {
  const auto kernel = load(glsl(R"(#version 460
#include <gpumap.glsl>
uint64_t at;
void put(uint64_t value) { store_u64(at, value); at += 8ul; }
void put_view(gpumap_view view) {
  for (uint i = 0u; i < GPUMAP_MAX_PLANES; ++i) put(view.plane[i]);
  for (uint i = 0u; i < GPUMAP_MAX_PLANES; ++i) put(uint64_t(view.stride[i]));
  put(uint64_t(view.width));
  put(uint64_t(view.height));
  put(uint64_t(view.format));
  put(uint64_t(view.channels));
  put(uint64_t(view.rate));
  put(uint64_t(view.reserved));
  put(view.bytes);
}
void put_tensor(gpumap_tensor tensor) {
  put(tensor.address);
  put(tensor.count);
  for (uint i = 0u; i < GPUMAP_MAX_TENSOR_DIMS; ++i) put(uint64_t(tensor.dims[i]));
  put(uint64_t(tensor.rank));
  put(uint64_t(tensor.reserved));
}

void main() {
  if (gl_GlobalInvocationID.x != 0u || gl_GlobalInvocationID.y != 0u) return;
  at = frame.out_view.plane[0];
  put_view(frame.in_view);
  put_view(frame.out_view);
  put(frame.sequence);
  put(uint64_t(frame.pts));
  put(uint64_t(frame.duration));
  put(frame.result);
  put(frame.state);
  put(frame.state_bytes);
  put(uint64_t(frame.flags));
  put(uint64_t(frame.frame_rate));
  put(uint64_t(frame.frame_rate_scale));
  put(uint64_t(frame.reserved));
  for (uint i = 0u; i < 9u; ++i) put(uint64_t(floatBitsToUint(frame.color.matrix[i])));
  for (uint i = 0u; i < 3u; ++i) put(uint64_t(floatBitsToUint(frame.color.offset[i])));
  for (uint i = 0u; i < GPUMAP_MAX_PARAMS; ++i) put(uint64_t(floatBitsToUint(frame.params[i])));
  for (uint i = 0u; i < GPUMAP_MAX_PARAMS; ++i) put(frame.numbers[i]);
  for (uint i = 0u; i < GPUMAP_MAX_TABLES; ++i) {
    put(frame.tables[i].address);
    put(frame.tables[i].count);
  }
  put(uint64_t(frame.past_count));
  for (uint i = 0u; i < GPUMAP_MAX_HISTORY; ++i) put_view(frame.past[i]);
  put(frame.given);
  put(uint64_t(frame.result_words));
  put(uint64_t(frame.reserved_given));
  for (uint i = 0u; i < GPUMAP_MAX_TENSORS; ++i) put_tensor(frame.in_tensors[i]);
  for (uint i = 0u; i < GPUMAP_MAX_TENSORS; ++i) put_tensor(frame.out_tensors[i]);
}
)"));
  gpumap_frame frame{};
  // No random floats: a driver may quieten a NaN on the way.
  const auto bytes = reference::random_bytes(offsetof(gpumap_frame, color), 5);
  std::memcpy(static_cast<void*>(&frame), bytes.data(), bytes.size());
  const auto more = reference::random_bytes(sizeof frame - offsetof(gpumap_frame, numbers), 6);
  std::memcpy(static_cast<void*>(frame.numbers), more.data(), more.size());
  for (int i = 0; i < 9; ++i) frame.color.matrix[i] = static_cast<float>(i) + 0.25F;
  for (int i = 0; i < 3; ++i) frame.color.offset[i] = static_cast<float>(i) + 100.5F;
  for (int i = 0; i < GPUMAP_MAX_PARAMS; ++i) frame.params[i] = static_cast<float>(i) - 7.75F;
  frame.given = 0x0123456789abcdef;
  frame.result_words = 4095;
  frame.reserved_given = 77;
  bench_->prepare({}, 8192);
  frame.out.plane[0] = bench_->out();
  frame.out.width = frame.out.height = 1;
  bench_->run(*kernel, frame);

  std::vector<std::uint64_t> expected;
  const auto put_view = [&expected](const gpumap_view& view) {
    expected.insert(expected.end(), std::begin(view.plane), std::end(view.plane));
    expected.insert(expected.end(), std::begin(view.stride), std::end(view.stride));
    expected.insert(expected.end(),
                    {view.width, view.height, view.format, view.channels, view.rate, view.reserved, view.bytes});
  };
  put_view(frame.in);
  put_view(frame.out);
  expected.insert(
      expected.end(),
      {frame.sequence, static_cast<std::uint64_t>(frame.pts), static_cast<std::uint64_t>(frame.duration), frame.result,
       frame.state, frame.state_bytes, frame.flags, frame.frame_rate, frame.frame_rate_scale, frame.reserved});
  for (const float value : frame.color.matrix) expected.push_back(std::bit_cast<std::uint32_t>(value));
  for (const float value : frame.color.offset) expected.push_back(std::bit_cast<std::uint32_t>(value));
  for (const float value : frame.params) expected.push_back(std::bit_cast<std::uint32_t>(value));
  expected.insert(expected.end(), std::begin(frame.numbers), std::end(frame.numbers));
  for (const gpumap_table& table : frame.tables) expected.insert(expected.end(), {table.address, table.count});
  expected.push_back(frame.past_count);
  for (const gpumap_view& view : frame.past) put_view(view);
  expected.insert(expected.end(), {frame.given, frame.result_words, frame.reserved_given});
  for (const auto* tensors : {&frame.in_tensors, &frame.out_tensors}) {
    for (const gpumap_tensor& tensor : *tensors) {
      expected.insert(expected.end(), {tensor.address, tensor.count});
      expected.insert(expected.end(), std::begin(tensor.dims), std::end(tensor.dims));
      expected.insert(expected.end(), {tensor.rank, tensor.reserved});
    }
  }
  std::vector<std::uint64_t> got(expected.size());
  std::memcpy(got.data(), bench_->output(), got.size() * sizeof got[0]);
  EXPECT_EQ(got, expected);
}

TEST_P(KernelTest, UserKernelInvertsImagesAndBytes) {
  const auto kernel = load(load_kernel_file(fs::path(GPUMAP_EXAMPLES) / "kernels" / "invert.comp"));
  EXPECT_THAT(kernel->name(), HasSubstr("invert.comp"));

  const auto image = reference::layout(GPUMAP_FORMAT_RGBA, 33, 7, true);
  const auto input = reference::random_bytes(70000, 6);
  bench_->prepare(input, image.bytes);
  gpumap_frame frame{};
  frame.in = image.view(bench_->in());
  frame.out = image.view(bench_->out());
  bench_->run(*kernel, frame);
  for (std::size_t y = 0; y < 7; ++y) {
    for (std::size_t x = 0; x < 33; ++x) {
      auto expected = reference::components(image, input, x, y);
      for (std::size_t c = 0; c < 3; ++c) expected[c] = 255 - expected[c];
      ASSERT_EQ(reference::components(image, {bench_->output(), image.bytes}, x, y), expected) << x << ", " << y;
    }
  }

  bench_->prepare(input, 70000);
  frame = {};
  frame.in.plane[0] = bench_->in();
  frame.out.plane[0] = bench_->out();
  frame.in.bytes = frame.out.bytes = 69999;
  bench_->run(*kernel, frame);
  for (std::size_t i = 0; i < 69999; ++i) ASSERT_EQ(bench_->output()[i], ~input[i]) << i;
  EXPECT_EQ(bench_->output()[69999], poison);

  // Less room than input.
  bench_->prepare(input, 70000);
  frame.out.bytes = 100;
  bench_->run(*kernel, frame);
  EXPECT_EQ(bench_->output()[99], ~input[99]);
  EXPECT_EQ(bench_->output()[100], poison);

  // Video that it does not know: the grid covers pixels, and there are more bytes than pixels.
  bench_->prepare(input, 3000);
  frame.in.width = frame.out.width = 40;
  frame.in.height = frame.out.height = 50;
  frame.in.format = frame.out.format = GPUMAP_FORMAT_I420;
  frame.in.bytes = frame.out.bytes = 3000;
  bench_->run(*kernel, frame);
  for (std::size_t i = 0; i < 3000; ++i) ASSERT_EQ(bench_->output()[i], ~input[i]) << i;
}

TEST_P(KernelTest, GridCoversEveryItem) {
  const auto kernel = load(load_kernel_file(fs::path(GPUMAP_EXAMPLES) / "kernels" / "invert.comp"));
  const auto threads = [](const Grid& grid, std::size_t axis) {
    return std::uint64_t{grid.blocks[axis]} * grid.threads[axis];
  };
  gpumap_frame frame{};
  const Grid empty = kernel->grid_for(frame);
  EXPECT_THAT(empty.blocks, ElementsAre(1, 1, 1));
  frame.in.width = 1917;
  frame.in.height = 1081;
  const Grid video = kernel->grid_for(frame);
  EXPECT_GE(threads(video, 0), 1917U);
  EXPECT_GE(threads(video, 1), 1081U);
  frame = {};
  frame.in.bytes = std::uint64_t{3} << 30;
  const Grid bytes = kernel->grid_for(frame);
  EXPECT_GE(threads(bytes, 0) * threads(bytes, 1), std::uint64_t{3} << 30);
}

TEST_P(KernelTest, OwnWorkgroupSizeIsKept) {
  const auto own =
      load(glsl("#version 460\n#define GPUMAP_OWN_WORKGROUP_SIZE\n#include <gpumap.glsl>\n"
                "layout(local_size_x = 16, local_size_y = 4) in;\nvoid main() { store_u8(frame.result, 1u); }\n"));
  gpumap_frame frame{};
  frame.in.width = 17;
  frame.in.height = 4;
  EXPECT_THAT(own->grid_for(frame).threads, ElementsAre(16, 4, 1));
  EXPECT_THAT(own->grid_for(frame).blocks, ElementsAre(2, 1, 1));
}

// Also where the shader says its size after the include: each number once, and as many as there are.
TEST_P(KernelTest, ThreadsAreNumbered) {
  for (const char* size : {"", "layout(local_size_x = 16, local_size_y = 4) in;\n"}) {
    const auto kernel =
        load(glsl(std::string("#version 460\n") + (*size != 0 ? "#define GPUMAP_OWN_WORKGROUP_SIZE\n" : "") +
                  "#include <gpumap.glsl>\n" + size +
                  "void main() {\n  atomicAdd(gpumap_u32_at(frame.result).value, uint(gpumap_thread()));\n"
                  "  store_u32(frame.out_view.plane[0] + 4ul * gpumap_thread(), "
                  "uint(gpumap_thread_count()));\n}\n"));
    gpumap_frame frame{};
    frame.in.width = 50;
    frame.in.height = 11;
    const Grid grid = kernel->grid_for(frame);
    std::uint32_t threads = 1;
    for (const auto& dimensions : {grid.blocks, grid.threads}) {
      for (const std::uint32_t count : dimensions) threads *= count;
    }
    bench_->prepare({}, threads * sizeof(std::uint32_t));
    frame.out.plane[0] = bench_->out();
    frame.result = bench_->result();
    bench_->run(*kernel, frame);
    EXPECT_EQ(bench_->result_word(0), std::uint64_t{threads} * (threads - 1) / 2) << size;
    std::vector<std::uint32_t> counts(threads);
    std::memcpy(counts.data(), bench_->output(), threads * sizeof(std::uint32_t));
    EXPECT_EQ(counts, std::vector<std::uint32_t>(threads, threads)) << size;
  }
}

TEST_P(KernelTest, DoublesAndSubgroupsWhereTheDeviceHasThem) {
  const auto kernel =
      load(glsl("#version 460\n#extension GL_KHR_shader_subgroup_arithmetic : require\n#include <gpumap.glsl>\n"
                "layout(buffer_reference, scalar) buffer Real { double value; };\n"
                "void main() { uint lanes = subgroupAdd(1u);\n"
                "  if (gpumap_thread() == 0ul) { Real(frame.result).value = 1.0LF / 3.0LF;\n"
                "    store_u64(frame.result + 8, uint64_t(lanes)); } }\n"));
  bench_->prepare({}, 64);
  gpumap_frame frame{};
  frame.out.plane[0] = bench_->out();
  frame.out.bytes = 64;
  frame.result = bench_->result();
  bench_->run(*kernel, frame);
  EXPECT_EQ(std::bit_cast<double>(bench_->result_word(0)), 1.0 / 3.0);
  EXPECT_GT(bench_->result_word(1), 0U);
}

TEST_P(KernelTest, LoadsStoresAndAtomics) {
  const auto kernel = load(glsl(
      "#version 460\n#include <gpumap.glsl>\nvoid main() {\n"
      "  uint64_t i = frame.in_view.plane[0], o = frame.out_view.plane[0], r = frame.result;\n"
      "  if (gpumap_thread() == 0ul) {\n"
      "    store_i8(o, load_i8(i) - 1); store_i16(o + 2, load_i16(i + 2) - 1); store_i32(o + 4, load_i32(i + 4) - 1);\n"
      "    store_i64(o + 8, load_i64(i + 8) - 1l); store_f64(o + 16, load_f64(i + 16) / 3.0LF);\n"
      "    store_u32x2(o + 24, load_u32x2(i + 24).yx); store_f32x2(o + 32, load_f32x2(i + 32).yx);\n"
      "    store_f16(o + 40, load_f16(i + 40) * 2.0);\n"
      "  }\n"
      "  uint t = uint(gpumap_thread());\n"
      "  float f = float(t) - 100.0;\n"
      "  atomic_add_u32(r, 1u); atomic_min_f32(r + 8, f); atomic_max_f32(r + 16, f);\n"
      "  atomic_min_f32(r + 24, f + 200.0); atomic_max_f32(r + 32, f - 1000.0);\n"
      "  atomic_min_i32(r + 40, int(t) - 7); atomic_max_u32(r + 48, t + 0x80000000u);\n"
      "}\n"));
  struct Numbers {
    std::int8_t i8 = -128 + 1;
    std::int16_t i16 = -300;
    std::int32_t i32 = -70000;
    std::int64_t i64 = -5000000000;
    double f64 = 1.0;
    std::uint32_t u32x2[2] = {1, 0xFFFFFFFF};
    float f32x2[2] = {1.5F, -2.5F};
    std::uint16_t f16 = 0x3E00;  // 1.5
  } in, out;
  bench_->prepare(std::as_bytes(std::span(&in, 1)), sizeof in);
  gpumap_frame frame{};
  frame.in.plane[0] = bench_->in();
  frame.out.plane[0] = bench_->out();
  frame.in.bytes = frame.out.bytes = 1000;
  frame.result = bench_->result();
  const Grid grid = kernel->grid_for(frame);
  const std::uint32_t threads = grid.blocks[0] * grid.threads[0];
  bench_->run(*kernel, frame);
  std::memcpy(&out, bench_->output(), sizeof out);
  EXPECT_EQ(out.i8, -128);
  EXPECT_EQ(out.i16, -301);
  EXPECT_EQ(out.i32, -70001);
  EXPECT_EQ(out.i64, -5000000001);
  EXPECT_EQ(out.f64, 1.0 / 3.0);
  EXPECT_THAT(out.u32x2, ElementsAre(0xFFFFFFFF, 1));
  EXPECT_THAT(out.f32x2, ElementsAre(-2.5F, 1.5F));
  EXPECT_EQ(out.f16, 0x4200);
  const auto real = [this](int word) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bench_->result_word(word)));
  };
  EXPECT_EQ(bench_->result_word(0), threads);
  EXPECT_EQ(real(1), -100.0F);
  EXPECT_EQ(real(2), static_cast<float>(threads) - 101.0F);
  EXPECT_EQ(real(3), 0.0F) << "what was there is less";
  EXPECT_EQ(real(4), 0.0F) << "what was there is more";
  EXPECT_EQ(static_cast<std::int32_t>(bench_->result_word(5)), -7);
  EXPECT_EQ(bench_->result_word(6), threads - 1 + 0x80000000U);
}

// Sums of floats, where the device has them as atomics; else that is what is said.
TEST_P(KernelTest, AtomicSumsOfFloats) {
  const auto source = glsl(
      "#version 460\n#include <gpumap.glsl>\nvoid main() { atomic_add_f32(frame.result, 0.5); "
      "atomic_add_u64(frame.result + 8, 1ul << 32); }\n");
  std::shared_ptr<Kernel> kernel;
  try {
    kernel = load(source);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("as atomics"));
    GTEST_SKIP() << error.what();
  }
  gpumap_frame frame{};
  frame.in.bytes = 1000;
  bench_->prepare({}, 64);
  frame.result = bench_->result();
  const Grid grid = kernel->grid_for(frame);
  const std::uint32_t threads = grid.blocks[0] * grid.threads[0];
  bench_->run(*kernel, frame);
  EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(bench_->result_word(0))),
            0.5F * static_cast<float>(threads));
  EXPECT_EQ(bench_->result_word(1), std::uint64_t{threads} << 32U);
}

}  // namespace
}  // namespace gpumap
