// SPDX-License-Identifier: MIT
// Frames that lie in memory of others, or are to go there, through a KernelLauncher.
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "launcher_bench.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words
using ::testing::ElementsAreArray;

// Pictures in memory of others, with rows that have padding: the kernel that sees bytes is shown none of the padding,
// and its output is brought to where others want it, whose padding stays as it was.
TEST_P(KernelLauncherTest, TakesAndGivesMemoryOfOthers) {
  const auto kernel = adder("// gpumap: view bytes\n", 9);
  const FrameLayout layout{.view = picture(0, width), .bytes_per_sample = 0};
  kernel->set_stream(layout, layout);
  const auto sent = reference::random_bytes(bytes, 11);
  const auto theirs = memory_with(sent);
  const auto target = memory_with(std::vector<std::byte>(bytes, std::byte{0x5A}));
  const FrameInput in = of_others(*theirs);
  const gpumap_view there = picture(target->address(GetParam()), stride);

  FrameOutput out = kernel->launch(in, {.place = Place::host});
  ASSERT_EQ(out.outcome, Outcome::given);
  EXPECT_TRUE(out.packed);
  ASSERT_EQ(out.bytes, packed_bytes);
  const auto packed = content(out.host, packed_bytes);
  out = kernel->launch(in, {.place = Place::others, .view = there, .copy = copier()});
  ASSERT_EQ(out.outcome, Outcome::given);
  EXPECT_FALSE(out.block);
  target->invalidate(0, bytes);
  for (std::size_t row = 0; row < height; ++row) {
    for (std::size_t x = 0; x < stride; ++x) {
      const auto was = static_cast<std::byte>(std::to_integer<unsigned>(sent[row * stride + x]) + 9U);
      if (x < width) {
        ASSERT_EQ(packed[row * width + x], was);
      }
      ASSERT_EQ(target->host()[row * stride + x], x < width ? was : std::byte{0x5A}) << "row " << row << ", " << x;
    }
  }
}

// A kernel that only looks: what is of others goes on as it is to others, and packed to gpumap's own memory.
TEST_P(KernelLauncherTest, HandsMemoryOfOthersOn) {
  const auto kernel = launcher("// gpumap: output unchanged\n", "", "");
  const FrameLayout layout{.view = picture(0, width), .bytes_per_sample = 0};
  kernel->set_stream(layout, layout);
  const auto sent = reference::random_bytes(bytes, 12);
  const auto theirs = memory_with(sent);
  FrameOutput out = kernel->launch(of_others(*theirs), {.place = Place::others});
  ASSERT_EQ(out.outcome, Outcome::given);
  EXPECT_TRUE(out.in_place);
  out = kernel->launch(of_others(*theirs), {});
  ASSERT_EQ(out.outcome, Outcome::given);
  EXPECT_FALSE(out.in_place);
  std::vector<std::byte> got(packed_bytes);
  ASSERT_TRUE(out.block);
  out.block.mapping().download(0, got);
  for (std::size_t at = 0; at < packed_bytes; ++at) ASSERT_EQ(got[at], sent[at / width * stride + at % width]) << at;
}

// A kernel whose output is not as its input writes to others' memory itself, rows where they want them.
TEST_P(KernelLauncherTest, WritesStraightIntoMemoryOfOthers) {
  const auto kernel = launcher("// gpumap: output video/x-raw,format=GRAY8\n// gpumap: block 64\n// gpumap: grid 1\n",
                               "  if (i < frame.out.width) for (unsigned y = 0; y < frame.out.height; ++y) "
                               "((unsigned char*)frame.out.plane[0])[y * frame.out.stride[0] + i] = "
                               "(unsigned char)(10 * y + i);",
                               "  if (i < frame.out_view.width) for (uint y = 0u; y < frame.out_view.height; ++y) "
                               "store_u8(frame.out_view.plane[0] + y * frame.out_view.stride[0] + i, "
                               "(10u * y + uint(i)) & 255u);");
  const FrameLayout layout{.view = picture(0, width), .bytes_per_sample = 0};
  kernel->set_stream(layout, layout);
  const auto from = memory_with(reference::random_bytes(packed_bytes, 2));
  const auto target = memory_with(std::vector<std::byte>(bytes, std::byte{0x5A}));
  FrameInput in = input(*from, packed_bytes);
  in.view = picture(in.address, width);
  const FrameTarget others{.place = Place::others,
                           .view = picture(target->address(GetParam()), stride),
                           .copy = [](Queue&, const gpumap_view&, const gpumap_view&) { FAIL() << "nothing to copy"; }};
  ASSERT_EQ(kernel->launch(in, others).outcome, Outcome::given);
  target->invalidate(0, bytes);
  for (std::size_t at = 0; at < bytes; ++at) {
    const std::size_t x = at % stride;
    ASSERT_EQ(target->host()[at], x < width ? static_cast<std::byte>(10 * (at / stride) + x) : std::byte{0x5A}) << at;
  }
}

TEST_P(KernelLauncherTest, RemembersFramesOfEitherKind) {
  const auto kernel = launcher("// gpumap: history 2\n// gpumap: block 64\n// gpumap: grid 1\n",
                               "  if (i < 61) ((unsigned char*)frame.out.plane[0])[i] = frame.past_count < 2 ? 0 : "
                               "((const unsigned char*)frame.past[1].plane[0])[2 * frame.past[1].stride[0] + i];",
                               "  if (i < 61ul) store_u8(frame.out_view.plane[0] + i, frame.past_count < 2u ? 0u : "
                               "load_u8(frame.past[1].plane[0] + 2ul * frame.past[1].stride[0] + i));");
  const FrameLayout layout{.view = picture(0, width), .bytes_per_sample = 0};
  kernel->set_stream(layout, layout);
  for (const bool others : {false, true}) {
    kernel->begin();
    std::vector<std::vector<std::byte>> sent;
    for (std::uint64_t frame = 0; frame < 5; ++frame) {
      sent.push_back(reference::random_bytes(bytes, frame));
      const auto from = memory_with(sent.back());
      FrameInput in = of_others(*from);
      if (!others) in.mapping = from.get();
      const FrameOutput out = kernel->launch(in, {.place = Place::host});
      ASSERT_EQ(out.outcome, Outcome::given);
      if (frame < 2) continue;
      const std::byte* row = sent[frame - 2].data() + 2 * stride;
      ASSERT_THAT(content(out.host, width), ElementsAreArray(row, width)) << frame << others;
    }
  }
}

/// As CUDA's copies of bytes, of which there are as many as in `to`.
CopyPicture byte_copier(const std::shared_ptr<Device>& device, Backend backend) {
  KernelSource source;
  source.name = "bytes";
  if (backend == Backend::cuda) {
    source.code =
        "#include <gpumap/kernel.h>\nextern \"C\" __global__ void bytes(gpumap_frame frame) {\n"
        "  for (gpumap_u64 i = threadIdx.x; i < frame.out.bytes; i += blockDim.x)\n"
        "    ((unsigned char*)frame.out.plane[0])[i] = ((const unsigned char*)frame.in.plane[0])[i];\n}\n";
  } else {
    source.language = Language::glsl;
    source.code =
        "#version 460\n#include <gpumap.glsl>\nvoid main() {\n"
        "  for (uint64_t i = gl_LocalInvocationID.x; i < frame.out_view.bytes; i += 256ul)\n"
        "    store_u8(frame.out_view.plane[0] + i, load_u8(frame.in_view.plane[0] + i));\n}\n";
  }
  return [kernel = Kernel::load(device, source)](Queue& queue, const gpumap_view& from, const gpumap_view& to) {
    gpumap_frame frame{};
    frame.in = from;
    frame.out = to;
    queue.launch(*kernel, {.blocks = {1, 1, 1}, .threads = {256, 1, 1}}, frame);
  };
}

// Bytes whose number no layout tells, a tensor's: all of them come to a kernel that is shown a copy, to one that only
// looks, and to one that looks back.
TEST_P(KernelLauncherTest, TakesAsManyBytesOfOthersAsCome) {
  const auto shown = adder("// gpumap: view bytes\n", 9);
  const auto looks = launcher("// gpumap: output unchanged\n", "", "");
  const auto looks_back =
      launcher("// gpumap: history 1\n// gpumap: block 64\n// gpumap: grid 16\n",
               "  if (i < frame.out.bytes) ((unsigned char*)frame.out.plane[0])[i] = frame.past_count == 0 ? 7 : "
               "i < frame.past[0].bytes ? ((const unsigned char*)frame.past[0].plane[0])[i] : 3;",
               "  if (i < frame.out_view.bytes) store_u8(frame.out_view.plane[0] + i, frame.past_count == 0u ? 7u : "
               "i < frame.past[0].bytes ? load_u8(frame.past[0].plane[0] + i) : 3u);");
  for (const auto& kernel : {shown.get(), looks.get(), looks_back.get()}) kernel->set_stream(any_bytes(), any_bytes());
  const CopyPicture copy = byte_copier(bench_->device(), GetParam());
  std::vector<std::byte> previous;
  for (const std::size_t size : {std::size_t{333}, std::size_t{1}, std::size_t{1000}, std::size_t{998}}) {
    SCOPED_TRACE(size);
    const auto sent = reference::random_bytes(size, size);
    const auto theirs = memory_with(sent);
    FrameInput in = input(*theirs, size);
    in.mapping = nullptr;
    in.copy = copy;
    FrameOutput out = shown->launch(in, {.place = Place::host});
    ASSERT_EQ(out.outcome, Outcome::given);
    ASSERT_EQ(out.bytes, size);
    auto expected = sent;
    for (std::byte& byte : expected) byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) + 9U);
    EXPECT_EQ(content(out.host, size), expected);

    out = looks->launch(in, {});
    ASSERT_EQ(out.outcome, Outcome::given);
    ASSERT_TRUE(out.block);
    ASSERT_EQ(out.bytes, size);
    std::vector<std::byte> got(size);
    out.block.mapping().download(0, got);
    EXPECT_EQ(got, sent);

    out = looks_back->launch(in, {.place = Place::host});
    ASSERT_EQ(out.outcome, Outcome::given);
    const bool first = previous.empty();
    previous.resize(size, std::byte{3});
    if (first) std::fill(previous.begin(), previous.end(), std::byte{7});
    EXPECT_EQ(content(out.host, size), previous);
    previous = sent;
  }
}

#ifdef GPUMAP_TEST_GPU
const bool needs_gpu = (BackendTest::accept_software = false, true);
INSTANTIATE_TEST_SUITE_P(Gpu, KernelLauncherTest, ::testing::Values(Backend::cuda, Backend::vulkan));
#else
INSTANTIATE_TEST_SUITE_P(Vulkan, KernelLauncherTest, ::testing::Values(Backend::vulkan));
#endif

}  // namespace
}  // namespace gpumap
