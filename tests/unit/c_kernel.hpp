// SPDX-License-Identifier: MIT
// What the tests of gpumap.h's kernels share.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "c_helpers.hpp"
#include "temporary_folder.hpp"

namespace gpumap::test {

class CKernel : public CInterface {
 protected:
  [[nodiscard]] gpumap_kernel open(const gpumap_kernel_options& options) const {
    gpumap_kernel made = nullptr;
    EXPECT_OK(gpumap_kernel_open(device_, &options, &made));
    return made;
  }
  [[nodiscard]] gpumap_kernel builtin(const char* name, const char* params = nullptr) const {
    auto options = GPUMAP_INIT(gpumap_kernel_options);
    options.builtin = name;
    options.params = params;
    return open(options);
  }
  /// A kernel that adds `params[0]` to each byte, as NAME.cu and NAME.comp. Named without the ending.
  [[nodiscard]] std::string adder(const std::string& more = "") const {
    std::string name = folder_.path() / "add";
    const std::string lines = "// gpumap: params add=1\n// gpumap: view bytes\n" + more;
    std::ofstream(name + ".cu") << "#include <gpumap/kernel.h>\n"
                                << lines
                                << "extern \"C\" __global__ void add(gpumap_frame frame) {\n"
                                   "  gpumap_u64 i = (gpumap_u64)blockIdx.x * blockDim.x + threadIdx.x;\n"
                                   "  if (i < frame.out.bytes) ((unsigned char*)frame.out.plane[0])[i] = (unsigned "
                                   "char)(((const unsigned char*)frame.in.plane[0])[i] + (int)frame.params[0]);\n}\n";
    std::ofstream(name + ".comp") << "#version 460\n#include <gpumap.glsl>\n"
                                  << lines
                                  << "void main() {\n  const uint64_t i = gpumap_thread();\n"
                                     "  if (i < frame.out_view.bytes) store_u8(frame.out_view.plane[0] + i, "
                                     "(load_u8(frame.in_view.plane[0] + i) + uint(frame.params[0])) & 255u);\n}\n";
    return name;
  }
  static std::vector<unsigned char> plus(std::vector<unsigned char> bytes, int add) {
    for (unsigned char& one : bytes) one = static_cast<unsigned char>(one + add);
    return bytes;
  }
  static std::vector<unsigned char> content_of_memory(gpumap_memory memory) {
    std::vector<unsigned char> got(gpumap_memory_bytes(memory));
    EXPECT_OK(gpumap_memory_read(memory, 0, got.data(), got.size()));
    return got;
  }

  const TemporaryFolder folder_;
};

}  // namespace gpumap::test
