// SPDX-License-Identifier: MIT
// Frames through a kernel by the library alone: views of memory in, a fence and a block of memory out.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "backend_bench.hpp"
#include "builtin_reference.hpp"
#include "error_of.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "temporary_folder.hpp"

namespace gpumap {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Outcome = FrameOutput::Outcome;
using Place = FrameTarget::Place;

/// Notes what it is told.
class Holder : public FrameHolder {
 public:
  void add_read_fence(const Fence& fence) override { fences.push_back(fence); }
  void stamp(Stamp stamp, std::int64_t /*at_ns*/) const noexcept override { stamps.insert(stamp); }
  std::vector<Fence> fences;
  mutable std::set<Stamp> stamps;
};

/// Never gets there.
class Stuck : public Timeline {
 public:
  std::uint64_t completed() override { return 0; }
  void check() override {}
};

/// Never gets there: what was to raise it is lost.
class Lost : public Timeline {
 public:
  std::uint64_t completed() override { return 0; }
  void check() override { throw Error(ErrorCode::device_lost, "a test took it"); }
};

class KernelLauncherTest : public BackendTest {
 protected:
  [[nodiscard]] static bool tests_resident() { return std::getenv("GPUMAP_TEST_RESIDENT") != nullptr; }
  static constexpr std::uint32_t width = 61, height = 7;
  static constexpr std::size_t stride = 64, bytes = stride * height, packed_bytes = std::size_t{width} * height;

  /// A kernel's file: lines of declaration, and what each thread `i` of as many as the output has bytes does, in words
  /// that both languages have.
  std::unique_ptr<KernelLauncher> launcher(const std::string& lines, const std::string& cuda, const std::string& glsl,
                                           KernelSettings settings = {}) {
    const bool is_cuda = GetParam() == Backend::cuda;
    settings.location = folder_.path() / (is_cuda ? "test.cu" : "test.comp");
    settings.backend = GetParam();
    std::ofstream file(settings.location);
    if (is_cuda) {
      file << "#include <gpumap/kernel.h>\n#include <gpumap/grid.h>\n"
           << lines << "extern \"C\" __global__ void test(gpumap_frame frame) {\n"
           << "  const gpumap_u64 i = (gpumap_u64)blockIdx.x * blockDim.x + threadIdx.x;\n"
           << "  if (blockIdx.y != 0 || threadIdx.y != 0) return;\n"
           << cuda << "\n}\n";
    } else {
      file << "#version 460\n#include <gpumap.glsl>\n"
           << lines << "void main() {\n  const uint64_t i = uint64_t(gl_GlobalInvocationID.x);\n"
           << "  if (gl_GlobalInvocationID.y != 0u) return;\n"
           << glsl << "\n}\n";
    }
    file.close();
    // Once more with kernels that stay on the GPU, where they can: the frames are the same.
    if (tests_resident()) settings.mode = KernelMode::automatic;
    return std::make_unique<KernelLauncher>(settings, bench_->device());
  }
  /// Bytes as they are, plus `add`.
  std::unique_ptr<KernelLauncher> adder(const std::string& lines, int add, KernelSettings settings = {}) {
    const std::string number = std::to_string(add);
    return launcher("// gpumap: block 64\n// gpumap: grid 16\n" + lines,
                    "  if (i < frame.out.bytes) ((unsigned char*)frame.out.plane[0])[i] = "
                    "(unsigned char)(((const unsigned char*)frame.in.plane[0])[i] + " +
                        number + ");",
                    "  if (i < frame.out_view.bytes) store_u8(frame.out_view.plane[0] + i, "
                    "(load_u8(frame.in_view.plane[0] + i) + " +
                        number + "u) & 255u);",
                    std::move(settings));
  }

  static gpumap_view picture(std::uint64_t address, std::size_t row) {
    gpumap_view view{};
    view.format = GPUMAP_FORMAT_GRAY8;
    view.width = width;
    view.height = height;
    view.plane[0] = address;
    view.stride[0] = static_cast<std::uint32_t>(row);
    view.bytes = row * height;
    return view;
  }
  static FrameLayout any_bytes() {
    FrameLayout layout;
    layout.view.format = GPUMAP_FORMAT_BYTES;
    return layout;
  }

  std::shared_ptr<Mapping> memory(std::size_t size) {
    return bench_->device()->allocate({.placement = Placement::host, .bytes = size}, GetParam());
  }
  std::shared_ptr<Mapping> memory_with(const std::vector<std::byte>& content) {
    auto made = memory(content.size());
    std::memcpy(made->host(), content.data(), content.size());
    made->flush(0, content.size());
    return made;
  }
  FrameInput input(const Mapping& mapping, std::size_t size) {
    const std::uint64_t address = mapping.address(GetParam());
    FrameInput made;
    made.view.format = GPUMAP_FORMAT_BYTES;
    made.view.plane[0] = made.address = address;
    made.view.bytes = made.bytes = size;
    made.mapping = &mapping;
    return made;
  }
  /// The same picture, `stride` bytes a row, as memory that is no Mapping.
  FrameInput of_others(const Mapping& memory) {
    FrameInput made;
    made.address = memory.address(GetParam());
    made.view = picture(made.address, stride);
    made.bytes = made.picture_bytes = bytes;
    made.copy = copier();
    return made;
  }
  /// As CUDA's copies of rows: it knows addresses alone.
  CopyPicture copier() {
    KernelSource source;
    source.name = "rows";
    if (GetParam() == Backend::cuda) {
      source.code =
          "#include <gpumap/kernel.h>\nextern \"C\" __global__ void rows(gpumap_frame frame) {\n"
          "  if (threadIdx.x >= frame.in.width) return;\n"
          "  for (unsigned y = 0; y < frame.in.height; ++y) ((unsigned char*)frame.out.plane[0])[y * "
          "frame.out.stride[0] + threadIdx.x] = ((const unsigned char*)frame.in.plane[0])[y * frame.in.stride[0] + "
          "threadIdx.x];\n}\n";
    } else {
      source.language = Language::glsl;
      source.code =
          "#version 460\n#include <gpumap.glsl>\nvoid main() {\n  const uint64_t x = gl_GlobalInvocationID.x;\n"
          "  if (x >= frame.in_view.width) return;\n"
          "  for (uint y = 0u; y < frame.in_view.height; ++y) store_u8(frame.out_view.plane[0] + y * "
          "frame.out_view.stride[0] + x, load_u8(frame.in_view.plane[0] + y * frame.in_view.stride[0] + x));\n}\n";
    }
    return [kernel = Kernel::load(bench_->device(), source)](Queue& queue, const gpumap_view& from,
                                                             const gpumap_view& to) {
      gpumap_frame frame{};
      frame.in = from;
      frame.out = to;
      queue.launch(*kernel, {.blocks = {1, 1, 1}, .threads = {256, 1, 1}}, frame);
    };
  }
  static std::vector<std::byte> content(const LentBlock& block, std::size_t size) {
    const std::byte* from = block.mapping().host();
    return {from, from + size};
  }
  static std::vector<std::byte> plus(std::vector<std::byte> from, unsigned add) {
    for (std::byte& byte : from) byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) + add);
    return from;
  }
  TemporaryFolder folder_;
};

TEST_P(KernelLauncherTest, BringsTheOutputToTheHost) {
  const auto kernel = adder("", 3);
  kernel->set_stream(any_bytes(), any_bytes());
  for (const std::size_t size : {std::size_t{1}, std::size_t{63}, std::size_t{997}}) {
    const auto sent = reference::random_bytes(size, size);
    const auto from = memory_with(sent);
    Holder holder;
    FrameInput in = input(*from, size);
    in.holder = &holder;
    const FrameOutput out = kernel->launch(in, {.place = Place::host});
    ASSERT_EQ(out.outcome, Outcome::given);
    EXPECT_EQ(out.bytes, size);
    EXPECT_TRUE(out.done.signalled());
    EXPECT_THAT(content(out.host, size), ElementsAreArray(plus(sent, 3)));
    ASSERT_EQ(holder.fences.size(), 1U) << "whoever holds the input knows until when it is read";
    EXPECT_TRUE(holder.fences[0].signalled());
  }
  EXPECT_EQ(kernel->frames(), 3U);
}

// What lies around the kernel (frames kept for later, guards, the way to the host) goes with it.
TEST_P(KernelLauncherTest, AFrameIsOneSubmission) {
  if (tests_resident())
    GTEST_SKIP() << "a kernel that stays on the GPU is asked in turns, of which a frame takes several";
  KernelSettings settings;
  settings.check_bounds = true;
  const std::shared_ptr<KernelLauncher> kernels[] = {adder("", 1), adder("// gpumap: history 2\n", 1),
                                                     adder("", 1, settings)};
  const auto from = memory_with(reference::random_bytes(100, 6));
  for (const auto& kernel : kernels) {
    kernel->set_stream(any_bytes(), any_bytes());
    std::uint64_t before = 0;
    for (const Place place : {Place::device, Place::host, Place::device}) {
      const FrameOutput out = kernel->launch(input(*from, 100), {.place = place});
      ASSERT_EQ(out.outcome, Outcome::given);
      EXPECT_EQ(out.done.value(), before + 1);
      before = out.done.value();
    }
  }
}

TEST_P(KernelLauncherTest, LendsBlocksOfDeviceMemory) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto sent = reference::random_bytes(997, 5);
  const auto from = memory_with(sent);
  std::set<const Mapping*> blocks;
  for (int frame = 0; frame < 20; ++frame) {
    FrameOutput first = kernel->launch(input(*from, 997), {});
    const FrameOutput second = kernel->launch(input(*from, 997), {});
    ASSERT_EQ(second.outcome, Outcome::given);
    ASSERT_NE(&first.block.mapping(), &second.block.mapping()) << "both are out";
    blocks.insert({&first.block.mapping(), &second.block.mapping()});
    kernel->drain();
    std::vector<std::byte> got(997);
    second.block.mapping().download(0, got);
    ASSERT_THAT(got, ElementsAreArray(plus(sent, 1)));
  }
  EXPECT_EQ(blocks.size(), 2U) << "a block that was let go is used again";
}

TEST_P(KernelLauncherTest, TellsResultsInTheOrderOfFrames) {
  for (const bool late : {false, true}) {
    const auto kernel = launcher("// gpumap: output unchanged\n// gpumap: results size=u64,number=u64\n",
                                 "  if (i == 0) { ((gpumap_u64*)frame.result)[0] = frame.in.bytes; "
                                 "((gpumap_u64*)frame.result)[1] = frame.sequence; }",
                                 "  if (i == 0ul) { store_u64(frame.result, frame.in_view.bytes); "
                                 "store_u64(frame.result + 8ul, frame.sequence); }",
                                 {.late_results = late});
    kernel->set_stream(any_bytes(), any_bytes());
    ASSERT_TRUE(kernel->has_result());
    const auto from = memory_with(reference::random_bytes(4000, 1));
    for (std::uint64_t number = 0; number < 100; ++number) {  // more than may be under way
      FrameInput in = input(*from, 1000 + number);
      in.sequence = number;
      const FrameOutput out = kernel->launch(in, {});
      ASSERT_EQ(out.outcome, Outcome::given);
      EXPECT_TRUE(out.in_place) << "no output: the input goes on";
      EXPECT_FALSE(out.block);
    }
    kernel->drain();
    for (std::uint64_t number = 0; number < 100; ++number) {
      const auto words = kernel->next_result();
      ASSERT_TRUE(words.has_value()) << number;
      EXPECT_EQ((*words)[0], 1000 + number);
      EXPECT_EQ((*words)[1], number);
    }
    EXPECT_FALSE(kernel->next_result().has_value());
  }
}

TEST_P(KernelLauncherTest, DropsAndShortensAsTheKernelSays) {
  const auto kernel = launcher("// gpumap: output-may drop,shorten\n// gpumap: block 64\n// gpumap: grid 16\n",
                               "  if (i == 0) *(gpumap_u64*)frame.given = ((const unsigned char*)frame.in.plane[0])[0];"
                               "  if (i < frame.out.bytes) ((unsigned char*)frame.out.plane[0])[i] = 7;",
                               "  if (i == 0ul) store_u64(frame.given, uint64_t(load_u8(frame.in_view.plane[0])));"
                               "  if (i < frame.out_view.bytes) store_u8(frame.out_view.plane[0] + i, 7u);");
  kernel->set_stream(any_bytes(), any_bytes());
  auto sent = reference::random_bytes(200, 3);
  for (const int wanted : {0, 1, 199, 200}) {
    sent[0] = static_cast<std::byte>(wanted);
    const auto from = memory_with(sent);
    const FrameOutput out = kernel->launch(input(*from, 200), {.place = Place::host});
    if (wanted == 0) {
      EXPECT_EQ(out.outcome, Outcome::dropped);
      EXPECT_FALSE(out.host);
      continue;
    }
    ASSERT_EQ(out.outcome, Outcome::given);
    EXPECT_EQ(out.bytes, static_cast<std::size_t>(wanted));
    EXPECT_EQ(out.shortened, wanted != 200);
    EXPECT_THAT(content(out.host, out.bytes), testing::Each(std::byte{7}));
  }
  sent[0] = std::byte{201};
  const auto from = memory_with(sent);
  EXPECT_THAT(error_of([&] { return kernel->launch(input(*from, 200), {}).bytes; }), HasSubstr("201"));
}

// In memory that the GPU reaches, and in ordinary memory; each output anew from zeros.
TEST_P(KernelLauncherTest, TensorsComeAndGoWithTheFrame) {
  const auto kernel = launcher(
      "// gpumap: output unchanged\n// gpumap: block 64\n// gpumap: grid 16\n// gpumap: input-tensor one u16 ?x3\n"
      "// gpumap: input-tensor two u16 2x3\n// gpumap: output-tensor sum u32 5x3\n// gpumap: output-tensor size u32 "
      "2\n",
      "  unsigned short* one = (unsigned short*)frame.in_tensors[0].address;"
      "  unsigned short* two = (unsigned short*)frame.in_tensors[1].address;"
      "  if (i < frame.in_tensors[0].count) atomicAdd((unsigned*)frame.out_tensors[0].address + i, one[i] + two[i % "
      "6]);"
      "  if (i == 0) { unsigned* size = (unsigned*)frame.out_tensors[1].address; size[0] = frame.in_tensors[0].dims[0];"
      "  size[1] = frame.out_tensors[0].rank; }",
      "  uint64_t one = frame.in_tensors[0].address, two = frame.in_tensors[1].address;"
      "  if (i < frame.in_tensors[0].count) atomic_add_u32(frame.out_tensors[0].address + 4ul * i, load_u16(one + 2ul "
      "* i)"
      " + load_u16(two + 2ul * (i % 6ul)));"
      "  if (i == 0ul) { store_u32(frame.out_tensors[1].address, frame.in_tensors[0].dims[0]);"
      "  store_u32(frame.out_tensors[1].address + 4ul, frame.out_tensors[0].rank); }");
  kernel->set_stream(any_bytes(), any_bytes());
  ASSERT_EQ(kernel->tensors().size(), 2U);
  EXPECT_EQ(kernel->tensors()[0].bytes, 60U);
  EXPECT_EQ(kernel->tensors()[1].offset % 256, 0U);
  const auto from = memory_with(reference::random_bytes(1000, 1));
  for (std::uint64_t rows = 5; rows > 2; --rows) {
    const auto one = reference::random_bytes(10 + rows * 6, rows);
    const auto two = reference::random_bytes(12, 9 + rows);
    const auto memory = memory_with(one);
    Holder holder;
    FrameInput in = input(*from, 1000);
    in.tensors.push_back({.type = NumberType::u16,
                          .dims = {rows, 3},
                          .mapping = memory.get(),
                          .offset = 10,
                          .bytes = one.size() - 10,
                          .holder = &holder});
    in.tensors.push_back({.type = NumberType::u16, .dims = {2, 3}, .host = two});
    const FrameOutput out = kernel->launch(in, {});
    ASSERT_EQ(out.outcome, Outcome::given);
    EXPECT_TRUE(out.in_place);
    ASSERT_TRUE(out.tensors);
    EXPECT_EQ(holder.fences.size(), 1U) << "whoever holds a tensor knows until when it is read";
    kernel->drain();
    const auto word = [](const std::vector<std::byte>& words, std::size_t at) {
      return std::to_integer<std::uint32_t>(words[at]) + 256 * std::to_integer<std::uint32_t>(words[at + 1]);
    };
    std::vector<std::uint32_t> expected(15);
    for (std::size_t i = 0; i < rows * 3; ++i) expected[i] = word(one, 10 + 2 * i) + word(two, 2 * (i % 6));
    std::vector<std::byte> got(60), size(8);
    out.tensors.mapping().download(0, got);
    out.tensors.mapping().download(kernel->tensors()[1].offset, size);
    std::vector<std::uint32_t> sums(15);
    std::memcpy(sums.data(), got.data(), got.size());
    EXPECT_EQ(sums, expected);
    EXPECT_EQ(word(size, 0), rows);
    EXPECT_EQ(word(size, 4), 2U);
  }
  FrameInput in = input(*from, 1000);
  EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }),
              HasSubstr("0 tensors came with a frame, and it declares 2"));
  const auto few = reference::random_bytes(11, 1);
  in.tensors = {{.type = NumberType::u16, .dims = {2, 3}, .host = few},
                {.type = NumberType::u16, .dims = {2, 3}, .host = few}};
  EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }),
              HasSubstr("tensor \"one\" has 11 bytes, and u16 of 2x3 take 12"));
  // Sizes whose product is 1 in 64 bits, and one that a kernel is not told.
  for (const std::uint64_t rows : {std::uint64_t{0xAAAAAAAAAAAAAAAB}, std::uint64_t{1} << 32U}) {
    in.tensors = {{.type = NumberType::u16, .dims = {rows, 3}, .host = few},
                  {.type = NumberType::u16, .dims = {2, 3}, .host = few}};
    EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }), HasSubstr("is larger than any memory"));
  }
  // A detector that found nothing has no memory for it.
  const auto two = reference::random_bytes(12, 9);
  in.tensors = {{.type = NumberType::u16, .dims = {0, 3}}, {.type = NumberType::u16, .dims = {2, 3}, .host = two}};
  const FrameOutput out = kernel->launch(in, {});
  ASSERT_EQ(out.outcome, Outcome::given);
  kernel->drain();
  std::vector<std::byte> sums(60);
  out.tensors.mapping().download(0, sums);
  EXPECT_THAT(sums, testing::Each(std::byte{0}));
}

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

// What was recorded before something went wrong runs all the same: its input is kept until then, and the next frame is
// what it should be.
TEST_P(KernelLauncherTest, WhatFailsHalfWayLeavesNothingUnordered) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto sent = reference::random_bytes(997, 21);
  const auto from = memory_with(sent);
  const auto target = memory(997);
  for (int turn = 0; turn < 5; ++turn) {
    Holder holder;
    FrameInput in = input(*from, 997);
    in.holder = &holder;
    FrameTarget others{.place = Place::others, .view = in.view, .copy = {}};
    others.view.plane[0] = target->address(GetParam());
    EXPECT_THAT(error_of([&] { return kernel->launch(in, others).bytes; }), HasSubstr("FrameTarget::copy"));
    others.copy = [](Queue&, const gpumap_view&, const gpumap_view&) { throw Error(ErrorCode::invalid, "no copy"); };
    EXPECT_THAT(error_of([&] { return kernel->launch(in, others).bytes; }), HasSubstr("no copy"));
    ASSERT_EQ(holder.fences.size(), 1U);
    EXPECT_EQ(holder.fences[0].wait(Clock::now() + std::chrono::seconds(60)), WaitResult::ready);
    const FrameOutput out = kernel->launch(in, {.place = Place::host});
    ASSERT_EQ(out.outcome, Outcome::given);
    ASSERT_THAT(content(out.host, 997), ElementsAreArray(plus(sent, 1)));
  }
}

// A block that is let go at once is not freed under the kernel that writes it, though the next one has to be larger.
TEST_P(KernelLauncherTest, ABlockMayBeLetGoBeforeItIsWritten) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto sent = reference::random_bytes(4000, 22);
  const auto from = memory_with(sent);
  for (const std::size_t size : {1000, 2000, 3000, 4000}) {
    FrameOutput out = kernel->launch(input(*from, size), {});
    ASSERT_EQ(out.outcome, Outcome::given);
    MemoryBlock block = out.block.release();
    ASSERT_EQ(block.readers.size(), 1U) << "who writes it uses it";
    out.block.pool()->give_back(std::move(block));
  }
  kernel->drain();
}

TEST_P(KernelLauncherTest, RefusesAFrameOutsideOfItsMapping) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto from = memory_with(reference::random_bytes(64, 1));
  FrameInput in = input(*from, from->bytes() + 1);
  EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }), HasSubstr("behind its mapping of 64"));
  in = input(*from, 1);
  in.offset = from->bytes();
  EXPECT_THAT(error_of([&] { return kernel->launch(in, {}).bytes; }), HasSubstr("behind its mapping of 64"));
}

TEST_P(KernelLauncherTest, RefusesAFrameBeforeItsLayout) {
  const auto kernel = adder("", 1);
  const auto from = memory_with(reference::random_bytes(64, 1));
  EXPECT_THAT(error_of([&] { return kernel->launch(input(*from, 64), {}).bytes; }), HasSubstr("layout"));
}

// The frame waits for GPU work that fills it; a call to stop ends the wait, and nothing was launched.
TEST_P(KernelLauncherTest, ACancelledWaitLaunchesNothing) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto from = memory_with(reference::random_bytes(64, 1));
  Holder holder;
  FrameInput in = input(*from, 64);
  in.holder = &holder;
  in.written = Fence(std::make_shared<Stuck>(), 1);
  kernel->cancel(true);
  EXPECT_EQ(kernel->launch(in, {}).outcome, Outcome::cancelled);
  EXPECT_TRUE(holder.fences.empty());
  EXPECT_EQ(kernel->frames(), 0U);
  kernel->cancel(false);
  in.written = {};
  EXPECT_EQ(kernel->launch(in, {}).outcome, Outcome::given);
  kernel->drain();  // its input goes
}

/// What `call` throws, a KernelFault.
template <typename Call>
std::string fault_of(Call call) {
  try {
    static_cast<void>(call());
  } catch (const KernelFault& fault) {
    EXPECT_EQ(fault.code(), ErrorCode::device_lost);
    return fault.what();
  }
  return "no fault";
}

TEST_P(KernelLauncherTest, AFaultNamesItsKernelOnce) {
  const auto kernel = adder("", 1);
  kernel->set_stream(any_bytes(), any_bytes());
  const auto from = memory(99);
  FrameInput in = input(*from, 99);
  in.written = Fence(std::make_shared<Lost>(), 1);
  const auto launch = [&] { return kernel->launch(in, {}).outcome; };
  const auto wait = [&] { return kernel->wait(in.written); };
  const std::string named = fault_of(launch);
  EXPECT_EQ(named, "while running kernel " + kernel->name() + ": a test took it");
  EXPECT_EQ(fault_of([&] { return kernel->naming(launch); }), named);
  EXPECT_EQ(error_of(ErrorCode::device_lost, wait), "a test took it");
  EXPECT_EQ(fault_of([&] { return kernel->naming(wait); }), named);
  const auto refuse = []() -> int { throw Error(ErrorCode::invalid, "a test refused it"); };
  EXPECT_EQ(error_of([&] { return kernel->naming(refuse); }), "a test refused it");
}

#ifdef GPUMAP_TEST_GPU
const bool needs_gpu = (BackendTest::accept_software = false, true);
INSTANTIATE_TEST_SUITE_P(Gpu, KernelLauncherTest, ::testing::Values(Backend::cuda, Backend::vulkan));
#else
INSTANTIATE_TEST_SUITE_P(Vulkan, KernelLauncherTest, ::testing::Values(Backend::vulkan));
#endif

}  // namespace
}  // namespace gpumap
