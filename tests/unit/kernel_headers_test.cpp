// SPDX-License-Identifier: MIT
// The headers that kernels read and write pixels and samples with: each compiles by itself, in its language.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <sstream>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap {
namespace {

std::vector<std::string> headers(std::string_view extension) {
  std::vector<std::string> found;
  std::istringstream names(GPUMAP_KERNEL_HEADERS);
  for (std::string name; std::getline(names, name, ',');) {
    if (name.ends_with(extension)) found.push_back(name);
  }
  return found;
}

TEST(KernelHeaders, OfGlslCompileAlone) {
  ASSERT_GE(headers(".glsl").size(), 9U);
  for (const std::string& name : headers(".glsl")) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(compile_glsl({.language = Language::glsl,
                               .name = name,
                               .code = "#version 460\n#include <" + name + ">\nvoid main() {}\n",
                               .function = {}})
                     .empty());
  }
}

TEST(KernelHeaders, OfCudaCompileAlone) {
  ASSERT_GE(headers(".h").size(), 9U);
  for (const std::string& name : headers(".h")) {
    for (const char* architecture : {"sm_75", "sm_90", "sm_120"}) {
      SCOPED_TRACE(name + " for " + architecture);
      try {
        EXPECT_FALSE(
            compile_cuda({.language = Language::cuda,
                          .name = name,
                          .code = "#include <gpumap/" + name +
                                  ">\n#include <gpumap/kernel.h>\nextern \"C\" __global__ void f(gpumap_frame) {}\n",
                          .function = {}},
                         architecture)
                .empty());
      } catch (const Error& error) {
        if (error.code() == ErrorCode::no_driver) GTEST_SKIP() << error.what();
        ADD_FAILURE() << error.what();
      }
    }
  }
}

// A kernel of both languages that uses them as lib/kernel/README.md says.
TEST(KernelHeaders, ReadAndWritePixels) {
  EXPECT_FALSE(compile_glsl({.language = Language::glsl,
                             .name = "pixels.comp",
                             .code = R"(#version 460
#include <gpumap_color.glsl>
#include <gpumap_components.glsl>
#include <gpumap_pixels.glsl>
#include <gpumap_tensors.glsl>
void main() {
  uint x = 4u * gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;
  if (x >= frame.in_view.width || y >= frame.in_view.height) return;
  uint count = min(4u, frame.in_view.width - x);
  vec4 pixel[4];
  gpumap_load_pixels(frame.in_view, frame.in_view.format, x, y, count, pixel);
  for (int i = 0; i < 4; ++i) pixel[i] = gpumap_in_rgb(frame.color, pixel[i]);
  gpumap_store_pixels(frame.out_view, frame.out_view.format, x, y, count, pixel, vec3(0.0), vec3(1.0));
  for (int i = 0; i < 4; ++i) pixel[i] = gpumap_of_rgb(frame.out_color, pixel[i]);
  gpumap_store_components(frame.out_view, frame.out_view.format, x, y, count, 1u, pixel, pixel);
})",
                             .function = {}})
                   .empty());
  try {
    EXPECT_FALSE(compile_cuda({.language = Language::cuda,
                               .name = "pixels.cu",
                               .code = R"(
#include <gpumap/color.h>
#include <gpumap/components.h>
#include <gpumap/pixels.h>
#include <gpumap/tensors.h>
extern "C" __global__ void rgb(gpumap_frame frame) {
  const gpumap_u32 x = 4 * (blockIdx.x * blockDim.x + threadIdx.x), y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= frame.in.width || y >= frame.in.height) return;
  const gpumap_u32 count = min(4u, frame.in.width - x);
  float4 pixel[4];
  gpumap_load_pixels(frame.in, frame.in.format, x, y, count, pixel);
  for (int i = 0; i < 4; ++i) pixel[i] = gpumap_in_rgb(frame.color, pixel[i]);
  const float plain[6] = {0, 0, 0, 1, 1, 1};
  gpumap_store_pixels(frame.out, frame.out.format, x, y, count, pixel, plain);
  for (int i = 0; i < 4; ++i) pixel[i] = gpumap_of_rgb(frame.out_color, pixel[i]);
  gpumap_store_components(frame.out, frame.out.format, x, y, count, 1, pixel, pixel);
})",
                               .function = {}},
                              "sm_90")
                     .empty());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::no_driver) GTEST_SKIP() << error.what();
    throw;
  }
}

}  // namespace
}  // namespace gpumap
