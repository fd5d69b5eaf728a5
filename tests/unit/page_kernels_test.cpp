// SPDX-License-Identifier: MIT
// The kernels that the pages print, with the frames that are worst for them: what a reader copies stays within what it
// may write to.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "backend_bench.hpp"
#include "builtin_reference.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/kernel_launcher.hpp"
#include "temporary_folder.hpp"

namespace gpumap {
namespace {

/// Where the pages are: a machine with a GPU may have the programs alone, and names the folder.
std::filesystem::path pages() {
  const char* const named = std::getenv("GPUMAP_PAGES");
  return named != nullptr ? std::filesystem::path(named) : std::filesystem::path(GPUMAP_EXAMPLES).parent_path();
}

/// Each block of a page that is a whole kernel, in GLSL or in CUDA C++.
std::vector<std::string> kernels_of(const std::filesystem::path& page, Backend backend) {
  std::ifstream file(page);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string opening = backend == Backend::cuda ? "```c++\n" : "```glsl\n";
  std::vector<std::string> made;
  for (std::size_t at = text.find(opening); at != text.npos; at = text.find(opening, at)) {
    at += opening.size();
    const std::size_t end = text.find("```", at);
    std::string code = text.substr(at, end - at);
    if (backend != Backend::cuda || code.find("__global__") != code.npos) made.push_back(std::move(code));
    at = end;
  }
  return made;
}

FrameLayout picture(std::uint32_t format, std::uint32_t width, std::uint32_t height, std::uint32_t pixel_bytes) {
  FrameLayout made;
  made.bytes_per_sample = 0;
  made.view.format = format;
  made.view.width = width;
  made.view.height = height;
  made.view.stride[0] = (width * pixel_bytes + 3) / 4 * 4;
  made.view.bytes = std::uint64_t{made.view.stride[0]} * height;
  return made;
}

/// For a picture of GRAY8, as far as the pages' kernels go.
FrameLayout output_of(const std::string& declared, const FrameLayout& in) {
  const std::uint32_t width = in.view.width, height = in.view.height;
  if (declared.empty()) return in;
  if (declared == "video/x-raw,format=GRAY8,width={width/2},height={height/2}") {
    return picture(GPUMAP_FORMAT_GRAY8, width / 2, height / 2, 1);
  }
  if (declared == "video/x-raw,format=RGBA") return picture(GPUMAP_FORMAT_RGBA, width, height, 4);
  EXPECT_EQ(declared, "application/octet-stream") << "say here what pictures this gives";
  FrameLayout bytes;
  bytes.view.format = GPUMAP_FORMAT_BYTES;
  return bytes;
}

class PageKernels : public BackendTest {};
GPUMAP_ON_BACKENDS(PageKernels);

TEST_P(PageKernels, StayWithinTheirBounds) {
  const TemporaryFolder folder;
  const std::filesystem::path root = pages();
  if (!std::filesystem::exists(root / "lib/kernel")) GTEST_SKIP() << "no pages here: GPUMAP_PAGES names none";
  std::ofstream(folder.path() / "curve.u8") << std::string(256, 'c');
  std::size_t kernels = 0;
  std::vector<std::filesystem::path> files{root / "README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(root / "lib/kernel")) {
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  }
  for (const std::filesystem::path& page : files) {
    for (const std::string& code : kernels_of(page, GetParam())) {
      SCOPED_TRACE(code);
      ++kernels;
      KernelSettings settings;
      settings.location = folder.path() / (GetParam() == Backend::cuda ? "page.cu" : "page.comp");
      settings.backend = GetParam();
      settings.check_bounds = true;
      std::ofstream(settings.location) << code;
      const Declaration declaration = parse_declaration(code);
      if (!declaration.tables.empty()) settings.declare = "table curve=" + (folder.path() / "curve.u8").string();
      KernelLauncher launcher(settings, bench_->device());
      for (const auto& [width, height] : {std::pair{2U, 2U}, {7U, 4099U}, {639U, 481U}}) {
        const FrameLayout layout = picture(GPUMAP_FORMAT_GRAY8, width, height, 1);
        launcher.set_stream(layout, output_of(declaration.output, layout));
        for (const int content : {255, 0, -1}) {
          const std::size_t bytes = layout.view.bytes;
          const auto memory = bench_->device()->allocate({.placement = Placement::host, .bytes = bytes}, GetParam());
          const auto random = reference::random_bytes(bytes, width);
          for (std::size_t i = 0; i < bytes; ++i) {
            memory->host()[i] = content < 0 ? random[i] : static_cast<std::byte>(content);
          }
          memory->flush(0, bytes);
          FrameInput in;
          in.mapping = memory.get();
          in.address = memory->address(GetParam());
          in.view = layout.view;
          in.view.plane[0] = in.address;
          in.bytes = in.picture_bytes = bytes;
          EXPECT_NO_THROW({
            const FrameOutput out = launcher.launch(in, {});
            EXPECT_NE(out.outcome, FrameOutput::Outcome::cancelled);
          }) << width
             << " x " << height << " of " << content;
          launcher.drain();
        }
      }
    }
  }
  EXPECT_GE(kernels, GetParam() == Backend::cuda ? 1U : 7U);
}

}  // namespace
}  // namespace gpumap
