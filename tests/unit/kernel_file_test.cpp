// SPDX-License-Identifier: MIT
// Kernels before they are loaded: files and built-ins, what they include, and what the compiler of GLSL says of them.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "builtin_sources.hpp"
#include "error_of.hpp"
#include "glsl_source.hpp"
#include "temporary_folder.hpp"

namespace gpumap {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// Files in a folder of the test's own: others may run at the same time.
class KernelFile : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path path_of(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] fs::path write_file(const std::string& name, const std::string& text) const {
    std::ofstream(path_of(name)) << text;
    return path_of(name);
  }

 private:
  const TemporaryFolder folder_;
};
class GlslFile : public KernelFile {};

TEST_F(KernelFile, ExtensionTellsTheLanguage) {
  for (const auto& [name, language] : {std::pair{"k.cu", Language::cuda},
                                       {"k.ptx", Language::ptx},
                                       {"k.cubin", Language::cubin},
                                       {"k.comp", Language::glsl},
                                       {"k.spv", Language::spirv}}) {
    const KernelSource source = load_kernel_file(write_file(name, "text"), "function");
    EXPECT_EQ(source.language, language);
    EXPECT_EQ(source.code, "text");
    EXPECT_EQ(source.function, "function");
    EXPECT_THAT(source.name, HasSubstr(name));
  }
}

TEST_F(KernelFile, Errors) {
  EXPECT_THAT(error_of(ErrorCode::invalid, [] { return load_kernel_file("kernel.txt"); }), HasSubstr("'.txt'"));
  EXPECT_THAT(error_of(ErrorCode::not_found, [] { return load_kernel_file("/missing/k.cu"); }),
              HasSubstr("No such file"));
  const fs::path empty = write_file("empty.cu", "");
  EXPECT_THAT(error_of(ErrorCode::invalid, [&] { return load_kernel_file(empty); }), HasSubstr("is empty"));
  const fs::path folder = path_of("folder.cu");
  fs::create_directories(folder);
  EXPECT_THAT(error_of(ErrorCode::open_read, [&] { return load_kernel_file(folder); }), HasSubstr("is a directory"));
}

// To open a pipe waits for who writes into it, and a device has no end.
TEST_F(KernelFile, PipesAndDevicesAreNone) {
  const fs::path pipe = path_of("pipe.cu");
  const fs::path device = path_of("device.comp");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", device);
  for (const fs::path& path : {pipe, device}) {
    EXPECT_THAT(error_of(ErrorCode::open_read, [&] { return load_kernel_file(path); }),
                HasSubstr("is a pipe or a device"));
  }
  const auto including = glsl("#version 460\n#include \"" + pipe.string() + "\"\n");
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return compile_glsl(including); }), HasSubstr("pipe.cu"));
}

TEST(Builtins, AreFoundByName) {
  // What users write stays.
  for (const char* name : {"identity", "checksum", "convert", "iq-to-f32", "iq-power", "magnitude", "ddc", "fm", "am",
                           "ssb", "spectrum", "channelizer"}) {
    EXPECT_NE(find_builtin(name), nullptr) << name;
  }
  EXPECT_EQ(find_builtin("nothing"), nullptr);
  for (const Builtin& builtin : builtins()) {
    EXPECT_EQ(find_builtin(builtin.name), &builtin);
    EXPECT_FALSE(sources_of(builtin, Backend::cuda).empty()) << builtin.name;
    for (const KernelSource& source : sources_of(builtin, Backend::cuda)) {
      EXPECT_THAT(source.code, HasSubstr("__global__"));
    }
    for (const KernelSource& source : sources_of(builtin, Backend::vulkan)) {
      EXPECT_THAT(source.code, HasSubstr("#version 460"));
    }
  }
}

TEST(Glsl, ErrorsNameFileAndLine) {
  const auto error = error_of(ErrorCode::compile, [] {
    return compile_glsl(glsl("#version 460\n#include <gpumap.glsl>\nvoid main() {\n  broken();\n}\n"));
  });
  EXPECT_THAT(error, HasSubstr("test.comp:4: error"));
  EXPECT_THAT(error, HasSubstr("broken"));
}

TEST_F(GlslFile, Includes) {
  static_cast<void>(write_file("mine.glsl", "const uint answer = 42;\n"));
  const fs::path path = write_file("includes.comp",
                                   "#version 460\n#include <gpumap.glsl>\n#include \"mine.glsl\"\nvoid main() { "
                                   "store_u32(frame.result, answer); }\n");
  EXPECT_FALSE(compile_glsl(load_kernel_file(path)).empty());
  EXPECT_THAT(error_of(ErrorCode::compile, [] { return compile_glsl(glsl("#version 460\n#include <mine.glsl>\n")); }),
              HasSubstr("neither comes with gpumap"));
  EXPECT_THAT(error_of(ErrorCode::compile, [] { return compile_glsl(glsl("#version 460\n#include \"no.glsl\"\n")); }),
              HasSubstr("no.glsl"));
}

TEST_F(GlslFile, FilesThatIncludeThemselvesEnd) {
  const fs::path once = write_file("once.comp", "#version 460\n#include \"once.comp\"\nvoid main() {}\n");
  const fs::path twice = write_file("twice.comp", "#version 460\n#include \"twice.comp\"\n#include \"twice.comp\"\n");
  for (const fs::path& path : {once, twice}) {
    const auto error = error_of(ErrorCode::compile, [&] { return compile_glsl(load_kernel_file(path)); });
    EXPECT_THAT(error, HasSubstr("include one another more than 64 deep")) << path;
  }
}

TEST(Glsl, WithoutAVersionThatIsWhatIsSaid) {
  const auto error =
      error_of(ErrorCode::compile, [] { return compile_glsl(glsl("#include <gpumap.glsl>\nvoid main() {}\n")); });
  EXPECT_THAT(error, HasSubstr("begin it with the line #version 460"));
  EXPECT_LT(error.size(), 200U);
  EXPECT_FALSE(compile_glsl(glsl("// Mine.\n  #  version 460\n#include <gpumap.glsl>\nvoid main() {}\n")).empty());
}

TEST(Glsl, LongLogsAreShortened) {
  std::string code = "#version 460\nvoid main() {\n";
  for (int i = 0; i < 500; ++i) code += "  unknown" + std::to_string(i) + "();\n";
  const auto error = error_of(ErrorCode::compile, [&] { return compile_glsl(glsl(code + "}\n")); });
  EXPECT_THAT(error, AllOf(HasSubstr("unknown0"), HasSubstr("unknown19"), HasSubstr("more lines)")));
  EXPECT_LT(std::count(error.begin(), error.end(), '\n'), 50);
}

TEST(Glsl, WhatAShaderDoesNotUseItDoesNotNeed) {
  const std::string code = compile_glsl(glsl("#version 460\n#include <gpumap.glsl>\nvoid main() {}\n"));
  std::vector<std::uint32_t> words(code.size() / sizeof(std::uint32_t));
  std::memcpy(words.data(), code.data(), code.size());
  for (std::size_t at = 5; at < words.size(); at += words[at] >> 16U) {
    ASSERT_NE(words[at] >> 16U, 0U);
    constexpr std::uint32_t declares_capability = 17;
    if ((words[at] & 0xFFFFU) != declares_capability) continue;
    EXPECT_NE(words[at + 1], 10U) << "Float64";
    EXPECT_NE(words[at + 1], 12U) << "Int64Atomics";
    EXPECT_NE(words[at + 1], 6033U) << "AtomicFloat32AddEXT";
  }
}

}  // namespace
}  // namespace gpumap
