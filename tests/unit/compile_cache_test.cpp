// SPDX-License-Identifier: MIT
// What the compilers' results depend on, and so what their place in the cache must depend on. No GPU needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "gpumap/error.hpp"
#include "kernel/compile/compilers.hpp"
#include "temporary_folder.hpp"

namespace gpumap {
namespace {

namespace fs = std::filesystem;

constexpr std::array<OwnHeader, 2> own{{{"gpumap/kernel.h", "text"}, {"gpumap/grid.h", "more"}}};

TEST(CacheKeyTest, Sha256) {
  // FIPS 180-2, appendix B.1
  const Digest digest = sha256("abc");
  EXPECT_THAT(std::vector(digest.begin(), digest.begin() + 4), ::testing::ElementsAre(0xba, 0x78, 0x16, 0xbf));
}

TEST(CacheKeyTest, FieldsDoNotRunTogether) {
  std::vector<Digest> digests;
  for (const auto& fields : std::vector<std::vector<std::string>>{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {}}) {
    CacheKey key;
    for (const std::string& field : fields) key.add(field);
    EXPECT_TRUE(key.usable());
    digests.push_back(key.digest());
  }
  const auto source = [&](std::string_view name, std::string_view code, std::span<const OwnHeader> headers) {
    CacheKey key;
    key.add_source(name, code, headers);
    EXPECT_TRUE(key.usable());
    digests.push_back(key.digest());
  };
  source("a.cu", "x", own);
  source("b.cu", "x", own);
  source("a.cu", "y", own);
  source("a.cu", "x", std::span(own).first(1));
  const std::array<OwnHeader, 2> edited{own[0], {"gpumap/grid.h", "edited"}};
  source("a.cu", "x", edited);
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(std::unique(digests.begin(), digests.end()), digests.end());
}

TEST(CacheKeyTest, AnUnknownCompilerIsUnusable) {
  CacheKey key;
  key.add_compiler(identity_of_code(&own));
  EXPECT_TRUE(key.usable());
  key.add_compiler({});
  EXPECT_FALSE(key.usable());
}

TEST(CacheKeyTest, SourcesThatMayLookAtOtherFilesAreUnusable) {
  const auto usable = [](std::string_view code) {
    CacheKey key;
    key.add_source("x.cu", code, own);
    return key.usable();
  };
  for (const char* code : {
           "",
           "int x;",
           "#include <gpumap/kernel.h>",
           "\t#  include\t<gpumap/grid.h> // include\nint x;",
           "#\\\ninclude <gpumap/grid.h>\n",
           "// what to include: \"more.h\"\n",
           "int include = 1; int has_included;",
           "#include <gpumap/kernel.h>\r\n#include <gpumap/grid.h>\r\n",
           "int embedded(int included);",
       }) {
    EXPECT_TRUE(usable(code)) << code;
  }
  for (const char* code : {
           "#include \"mine.h\"",
           "#include <cuda_fp16.h>",
           "#include <gpumap/kernel.hpp>",
           "#include \"gpumap/grid.h\"",
           "#include <gpumap/grid.h.in>",
           "#include<stdint.h>",
           "# /* */ include <x.h>",
           "# /*\n*/include <x.h>",
           "%:include <x.h>",
           "#\\\ninclude <x.h>",
           "#inc\\\nlude <x.h>",
           "#inc\\\r\nlude <x.h>",
           "#define H <x.h>\n#include H",
           "#if __has_include(<x.h>)",
           "#include_next <gpumap/grid.h>",
           "#include",
           "#embed \"table\"",
           "#if __has_embed(\"x\")",
           "asm(\".include \\\"x.ptx\\\"\");",
           "const char* built = __DATE__;",
           "__TIME__",
           "__TIMESTAMP__",
           "#include <gpumap/kernel.h>\n#include <x.h>\n",
       }) {
    EXPECT_FALSE(usable(code)) << code;
  }
}

class CompileCacheTest : public ::testing::Test {
 protected:
  /// How often a new process would compile.
  template <typename Build>
  std::uint64_t compilations(Build&& build) {
    CodeCache cache{CacheFolder(home_.path() / "cache")};
    build(cache);
    return cache.counts().compiled;
  }

  TemporaryFolder home_;
};

class GlslCacheTest : public CompileCacheTest {
 protected:
  std::uint64_t compilations(const KernelSource& source) {
    return CompileCacheTest::compilations([&](CodeCache& cache) {
      CodeCache none(std::nullopt);
      EXPECT_EQ(build_glsl(source, cache), build_glsl(source, none));
    });
  }
};

TEST_F(GlslCacheTest, BuiltInsAndUsersSources) {
  for (const Builtin& builtin : builtins()) {
    if (!builtin.kernels.empty()) continue;  // may share kernels with another
    const KernelSource source = source_of(builtin, Backend::vulkan);
    EXPECT_EQ(compilations(source), 1U) << source.name;
    EXPECT_EQ(compilations(source), 0U) << source.name;
  }
  KernelSource user = load_kernel_file(fs::path(GPUMAP_EXAMPLES) / "kernels" / "invert.comp");
  EXPECT_EQ(compilations(user), 1U);
  EXPECT_EQ(compilations(user), 0U);
  user.code += "\n";
  EXPECT_EQ(compilations(user), 1U);
  user.name += "2";
  EXPECT_EQ(compilations(user), 1U);
}

TEST_F(GlslCacheTest, AnEditedIncludeIsSeen) {
  const KernelSource source{.language = Language::glsl,
                            .name = home_.path() / "x.comp",
                            .code =
                                "#version 460\n#include <gpumap.glsl>\n#include \"value.glsl\"\n"
                                "void main() { store_u8(frame.result, VALUE); }\n",
                            .function = {}};
  std::vector<std::string> built;
  for (const char* value : {"1u", "2u"}) {
    std::ofstream(home_.path() / "value.glsl") << "#define VALUE " << value << '\n';
    CodeCache cache{CacheFolder(home_.path() / "cache")};
    built.push_back(build_glsl(source, cache));
    EXPECT_EQ(cache.counts().compiled, 1U);
  }
  EXPECT_NE(built[0], built[1]);
}

TEST_F(GlslCacheTest, ErrorsComeEveryTime) {
  const KernelSource source{
      .language = Language::glsl, .name = "x.comp", .code = "#version 460\nerror", .function = {}};
  CodeCache cache{CacheFolder(home_.path() / "cache")};
  for (int i = 0; i < 2; ++i) EXPECT_THROW(static_cast<void>(build_glsl(source, cache)), Error);
  EXPECT_FALSE(fs::exists(home_.path() / "cache"));
}

class CudaCacheTest : public CompileCacheTest {
 protected:
  void SetUp() override {
    try {
      static_cast<void>(compile_cuda(source_of(*find_builtin("identity"), Backend::cuda), "sm_90"));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::no_driver) throw;
      GTEST_SKIP() << error.what();
    }
  }

  std::uint64_t compilations(const KernelSource& source, std::string_view architecture = "sm_90") {
    return CompileCacheTest::compilations([&](CodeCache& cache) {
      CodeCache none(std::nullopt);
      const CudaBinary kept = build_cuda(source, architecture, cache);
      const CudaBinary fresh = build_cuda(source, architecture, none);
      EXPECT_EQ(kept.code.size(), fresh.code.size());
      EXPECT_EQ(kept.function, fresh.function);
    });
  }
};

TEST_F(CudaCacheTest, SourceArchitectureAndName) {
  KernelSource source = source_of(*find_builtin("identity"), Backend::cuda);
  EXPECT_EQ(compilations(source), 1U);
  EXPECT_EQ(compilations(source), 0U);
  EXPECT_EQ(compilations(source, "sm_80"), 1U);
  EXPECT_EQ(compilations(source, "sm_999"), 1U);  // PTX for the newest that NVRTC knows
  EXPECT_EQ(compilations(source, "sm_999"), 0U);
  EXPECT_EQ(compilations(source), 0U);
  source.code += "\n";
  EXPECT_EQ(compilations(source), 1U);
  source.name = "other.cu";
  EXPECT_EQ(compilations(source), 1U);
}

TEST_F(CudaCacheTest, OptionsCount) {
  const KernelSource source = source_of(*find_builtin("identity"), Backend::cuda);
  EXPECT_EQ(compilations(source), 1U);
  const char* before = std::getenv("CUDA_PATH");
  const std::string kept = before == nullptr ? "" : before;
  setenv("CUDA_PATH", home_.path().c_str(), 1);
  EXPECT_EQ(compilations(source), 1U);
  before == nullptr ? unsetenv("CUDA_PATH") : setenv("CUDA_PATH", kept.c_str(), 1);
  EXPECT_EQ(compilations(source), 0U);
}

TEST_F(CudaCacheTest, OneCompilationServesAllFunctionsOfAFile) {
  KernelSource source{.language = Language::cuda,
                      .name = "two.cu",
                      .code =
                          "#include <gpumap/kernel.h>\n"
                          "extern \"C\" __global__ void one(gpumap_frame frame) {}\n"
                          "extern \"C\" __global__ void two(gpumap_frame frame) {}\n",
                      .function = "one"};
  EXPECT_EQ(compilations(source), 1U);
  source.function = "two";
  EXPECT_EQ(compilations(source), 0U);
  source.function = "three";
  EXPECT_THROW(compilations(source), Error);
}

TEST_F(CudaCacheTest, AnEditedIncludeIsSeen) {
  const fs::path file = home_.path() / "x.cu";
  std::ofstream(file) << "#include <gpumap/kernel.h>\n#include \"value.h\"\n"
                         "extern \"C\" __global__ void x(gpumap_frame frame) { *(int*)frame.result = VALUE; }\n";
  const KernelSource source = load_kernel_file(file);
  std::vector<std::string> built;
  for (const char* value : {"11", "22"}) {
    std::ofstream(home_.path() / "value.h") << "#define VALUE " << value << '\n';
    CodeCache cache{CacheFolder(home_.path() / "cache")};
    built.push_back(build_cuda(source, "sm_90", cache).code);
    EXPECT_EQ(cache.counts().compiled, 1U);
  }
  EXPECT_NE(built[0], built[1]);
}

// Were a file of that name on disk taken, what the key calls known text would not be.
TEST_F(CudaCacheTest, OwnHeadersComeFromMemory) {
  fs::create_directory(home_.path() / "gpumap");
  std::ofstream(home_.path() / "gpumap" / "kernel.h") << "#error from disk\n";
  const fs::path file = home_.path() / "x.cu";
  std::ofstream(file) << "#include <gpumap/kernel.h>\nextern \"C\" __global__ void x(gpumap_frame frame) {}\n";
  CodeCache cache(std::nullopt);
  EXPECT_EQ(build_cuda(load_kernel_file(file), "sm_90", cache).function, "x");
}

}  // namespace
}  // namespace gpumap
