// SPDX-License-Identifier: MIT
// What the tests of a KernelLauncher begin with: kernels in the words of either language, frames in memory of gpumap's
// and of others.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend_bench.hpp"
#include "builtin_reference.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "temporary_folder.hpp"

namespace gpumap::test {

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
    // A folder for each: a file is read again when its kernel gets a mode.
    const auto folder = folder_.path() / std::to_string(files_++);
    std::filesystem::create_directory(folder);
    settings.location = folder / (is_cuda ? "test.cu" : "test.comp");
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
  std::size_t files_ = 0;
};

}  // namespace gpumap::test
