// SPDX-License-Identifier: MIT
// Kernels that cannot be loaded: what a launch does not give, what the device lacks, what is no kernel. What is read of
// SPIR-V, by the errors that name it.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <random>
#include <spirv-tools/libspirv.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "backend_bench.hpp"
#include "gpumap/declaration.hpp"
#include "temporary_folder.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

KernelSource spirv(std::string code) {
  return {.language = Language::spirv, .name = "strange.spv", .code = std::move(code), .function = {}};
}

/// A module of two empty functions, %main and %other, with these entry points, modes and decorations, then constants.
KernelSource assembled(const std::string& entry_points, const std::string& constants = {}) {
  std::vector<std::uint32_t> words;
  spvtools::SpirvTools tools(SPV_ENV_UNIVERSAL_1_5);
  EXPECT_TRUE(tools.Assemble("OpCapability Shader\nOpMemoryModel Logical GLSL450\n" + entry_points +
                                 "\n%void = OpTypeVoid\n%type = OpTypeFunction %void\n%u32 = OpTypeInt 32 0\n"
                                 "%uvec3 = OpTypeVector %u32 3\n" +
                                 constants +
                                 "\n%main = OpFunction %void None %type\n%first = OpLabel\nOpReturn\nOpFunctionEnd\n"
                                 "%other = OpFunction %void None %type\n%second = OpLabel\nOpReturn\nOpFunctionEnd\n",
                             &words));
  return spirv({reinterpret_cast<const char*>(words.data()), words.size() * sizeof(words[0])});
}
constexpr const char* compute_main = "OpEntryPoint GLCompute %main \"main\"\nOpExecutionMode %main LocalSize 8 4 2\n";

class KernelRefusals : public BackendTest {
 protected:
  std::shared_ptr<Kernel> load(const KernelSource& source) { return Kernel::load(bench_->device(), source); }
  /// Each error of SPIR-V names the file and the version of SPIRV-Tools.
  std::string invalid_spirv(const KernelSource& source) {
    std::string error = error_of(ErrorCode::compile, [&] { return load(source); });
    EXPECT_THAT(error,
                AllOf(HasSubstr("kernel strange.spv: not valid SPIR-V (SPIRV-Tools v20"), HasSubstr("spirv-val")));
    return error;
  }
};

INSTANTIATE_TEST_SUITE_P(Vulkan, KernelRefusals, ::testing::Values(Backend::vulkan));

// What a long line of anything does to the search for the #version.
TEST_P(KernelRefusals, LongLinesAreOnlyLong) {
  const std::string blanks(300'000, ' '), tabs(300'000, '\t');
  const std::string main = "\nvoid main() {}\n";
  const auto joined = [](std::initializer_list<std::string_view> parts) {
    std::string all;
    for (const std::string_view part : parts) all += part;
    return all;
  };
  for (const std::string& code :
       {joined({"#version 460", main, blanks}), joined({"// ", blanks, "\n", tabs, "#", tabs, "version 460", main})}) {
    EXPECT_NE(load(glsl(code)), nullptr);
  }
  for (const std::string& code :
       {blanks, joined({"#", blanks, "versions 460", main}), joined({"# ", tabs, main}),
        joined({blanks, "version 460", main}), joined({"#version_460"}), joined({"x #version 460", main})}) {
    EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(glsl(code)); }), HasSubstr("no #version in it"));
  }
}

// The search for what the file has instead: once over the text, however long what it is made of.
TEST_P(KernelRefusals, TellsWhichFunctionsThereAre) {
  const std::string blanks(300'000, ' '), name(300'000, 'n');
  const auto told = [this](const std::string& code) {
    KernelSource source = glsl("#version 460\n" + code);
    source.function = "other";
    return error_of(ErrorCode::compile, [&] { return load(source); });
  };
  EXPECT_THAT(told("void" + blanks + "near(" + blanks + ")" + blanks + "{}\nvoid far(" + blanks + "void) {}"),
              EndsWith("no function 'other' in it: it has far, near"));
  EXPECT_THAT(told("void " + name + "() {}"), EndsWith("it has " + name));
  EXPECT_THAT(told("void main( void ){}void b\n(\n)\n{ c(); } avoid d() int e() void f(int) void g(void h) void ()"),
              EndsWith("it has b, main"));
  for (const char* none : {"", ")", "void)", "(void)", "void()", "void(void)", "int x;"}) {
    EXPECT_THAT(told(none), EndsWith("it has no void function without parameters"));
  }
}

TEST_P(KernelRefusals, LoadErrors) {
  const auto with_size = [](const char* size) {
    return glsl(std::string("#version 460\nlayout(local_size_x = ") + size + ") in;\nvoid main() {}\n");
  };
  KernelSource other = with_size("1");
  other.function = "other";
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(other); }), HasSubstr("no function 'other' in it"));
  // In the text, and no function: main is not what was asked for. A macro may make one of it.
  KernelSource named = glsl("#version 460\n// other: as main\nvoid main() {}\n");
  named.function = "other";
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(named); }),
              HasSubstr("no function 'other' in it: it has main"));
  for (const char* hidden : {"// void other() {}", "/* void\nother(void) {} */", "#if 0\nvoid other() {}\n#endif",
                             "#define KERNEL void other() {}"}) {
    named.code = std::string("#version 460\n") + hidden + "\nvoid main() {}\n";
    EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(named); }),
                HasSubstr("no function 'other' in it: it has main"))
        << hidden;
  }
  named.code = "#version 460\n#define KERNEL(name) void name() {}\nKERNEL(other)\n";
  EXPECT_EQ(load(named)->name(), named.name);
  EXPECT_THAT(error_of(ErrorCode::not_supported, [&] { return load(with_size("1024, local_size_y = 64")); }),
              HasSubstr("workgroup of 1024 x 64 x 1 threads"));
  const KernelSource junk{.language = Language::spirv, .name = "junk.spv", .code = "junk", .function = {}};
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(junk); }),
              AllOf(HasSubstr("junk.spv"), HasSubstr("SPIR-V")));
  EXPECT_THAT(error_of(ErrorCode::invalid, [&] { return Kernel::load(nullptr, junk); }), HasSubstr("no device"));
  if (!bench_->device()->has(Backend::cuda)) {
    const auto cuda = source_of(*find_builtin("identity"), Backend::cuda);
    EXPECT_THAT(error_of(ErrorCode::not_supported, [&] { return load(cuda); }),
                HasSubstr("has no CUDA: use a .comp or .spv kernel"));
  }
}

// A driver may crash, or have the shaders write elsewhere.
TEST_P(KernelRefusals, RefusesMoreSharedMemoryThanThereIs) {
  const auto with = [](const std::string& shared, const std::string& use) {
    return glsl("#version 460\n#include <gpumap.glsl>\n" + shared +
                "\nvoid main() {\n  const uint i = gl_LocalInvocationIndex;\n  " + use +
                "\n  barrier();\n  store_u32(frame.out_view.plane[0], uint(from[i * 3u]));\n}\n");
  };
  for (const auto& [bytes, shared, use] : std::initializer_list<std::array<const char*, 3>>{
           {"4294967296", "shared uint from[1 << 30];", "from[i] = i;"},
           {"4000000", "shared bool from[1000000];", "from[i] = i == frame.in_view.width;"},
           {"52000000", "struct One { mat3 m; bool b; vec3 v; };\nshared One ones[1000000];\nuint from[4];",
            "ones[i].m[i % 3u][0] = 1.0; ones[i].b = i == 3u; ones[i].v = vec3(i); barrier();\n"
            "  from[i % 4u] = ones[i + 1u].b ? uint(ones[i + 1u].v.x + ones[i + 1u].m[0][i % 3u]) : i;"},
           {"2400000", "shared uint from[500000];\nshared uint16_t more[200000];",
            "more[i] = uint16_t(i); barrier(); from[i] = more[i * 2u];"}}) {
    EXPECT_THAT(error_of(ErrorCode::not_supported, [&, s = shared, u = use] { return load(with(s, u)); }),
                HasSubstr(std::string("its shared variables take ") + bytes + " bytes, and this device has "))
        << shared;
  }
  for (const char* fits : {"shared uint from[2000];", "shared uint from[gl_WorkGroupSize.x * 4];",
                           "layout(constant_id = 9) const uint count = 1000;\nshared uint from[count];"}) {
    EXPECT_NE(load(with(fits, "from[i] = i;")), nullptr) << fits;
  }
  // Where each shader of a module has its own, what others have does not count.
  KernelSource module = assembled(
      "OpEntryPoint GLCompute %main \"main\" %few\nOpEntryPoint GLCompute %other \"other\" %many\n"
      "OpExecutionMode %main LocalSize 8 4 2\nOpExecutionMode %other LocalSize 8 4 2\n",
      "%million = OpConstant %u32 1000000\n%lots = OpConstant %u32 4000000000\n"
      "%short = OpTypeArray %u32 %million\n%long = OpTypeArray %u32 %lots\n"
      "%to_short = OpTypePointer Workgroup %short\n%to_long = OpTypePointer Workgroup %long\n"
      "%few = OpVariable %to_short Workgroup\n%many = OpVariable %to_long Workgroup\n");
  EXPECT_THAT(error_of(ErrorCode::not_supported, [&] { return load(module); }), HasSubstr("take 4000000 bytes"));
  module.function = "other";
  EXPECT_THAT(error_of(ErrorCode::not_supported, [&] { return load(module); }), HasSubstr("take 16000000000 bytes"));
}

// What a driver makes of what was not enabled is undefined; what the device has is enabled.
TEST_P(KernelRefusals, RefusesCapabilitiesThatAreNotEnabled) {
  const auto with = [](const std::string& extension, const std::string& body) {
    return glsl("#version 460\n#extension " + extension +
                " : require\n#include <gpumap.glsl>\n"
                "void main() { " +
                body + " }\n");
  };
  const std::pair<KernelSource, const char*> cases[] = {
      {with("GL_EXT_shader_atomic_float2", "atomicMax(gpumap_f32_at(frame.result).value, 1.0);"),
       "needs least and most of 32-bit floats as atomics"},
      {with("GL_ARB_shader_clock", "store_u64(frame.result, clockARB());"), "needs the shader's clock"},
      {with("GL_EXT_shader_realtime_clock", "store_u64(frame.result, clockRealtimeEXT());"), "the shader's clock"},
  };
  for (const auto& [source, message] : cases) {
    EXPECT_THAT(error_of(ErrorCode::not_supported, [&, &asked = source] { return load(asked); }), HasSubstr(message))
        << source.code;
  }
  const auto declares = [](std::uint32_t capability) {
    KernelSource source = assembled(compute_main);
    const std::uint32_t instruction[] = {2U << 16U | 17U, capability};
    source.code.insert(20, reinterpret_cast<const char*>(instruction), sizeof instruction);
    return source;
  };
  EXPECT_THAT(error_of(ErrorCode::not_supported, [&] { return load(declares(41)); }),
              AllOf(HasSubstr("strange.spv"), HasSubstr("needs the SPIR-V capability 41")));
  // SPIRV-Tools may be too old to know it.
  EXPECT_THAT(invalid_spirv(declares(31337)), HasSubstr("31337"));
}

// Of strangers' modules the rules are checked: a driver may crash on one that breaks them.
TEST_P(KernelRefusals, RefusesModulesThatBreakTheRules) {
  const KernelSource whole =
      spirv(compile_glsl(glsl("#version 460\n#include <gpumap.glsl>\nvoid main() {\n"
                              "  for (uint64_t i = gpumap_thread(); i < frame.in_view.bytes; i += 7ul) {\n"
                              "    store_u8(frame.out_view.plane[0] + i, load_u8(frame.in_view.plane[0] + i));\n"
                              "  }\n}\n")));
  EXPECT_NE(load(whole), nullptr);
  // A function without an end, and one whose blocks end as no block of a compute shader may.
  const auto with_word = [&](std::uint32_t from, std::uint32_t to) {
    KernelSource made = whole;
    for (std::size_t at = 20; at < made.code.size(); at += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, made.code.data() + at, sizeof word);
      if (word == from) std::memcpy(made.code.data() + at, &to, sizeof to);
    }
    return made;
  };
  constexpr std::uint32_t function_end = 1U << 16U | 56U, branch = 2U << 16U | 249U, nop = 1U << 16U,
                          kill = 2U << 16U | 252U;
  invalid_spirv(with_word(function_end, nop));
  invalid_spirv(with_word(branch, kill));
}

TEST_P(KernelRefusals, RefusesWhatIsNoModule) {
  // Without its second function it is no module either.
  const std::string second = "OpEntryPoint GLCompute %other \"other\"\n";
  const std::string whole = assembled(second + compute_main + "OpExecutionMode %other LocalSize 1 1 1\n").code;
  const auto with = [&](std::size_t word, std::uint32_t value) {
    std::string made = whole;
    std::memcpy(made.data() + word * sizeof value, &value, sizeof value);
    return spirv(made);
  };
  ASSERT_NE(load(spirv(whole)), nullptr);
  EXPECT_THAT(invalid_spirv(spirv("")), HasSubstr("does not start with a header"));
  EXPECT_THAT(invalid_spirv(spirv("#version 460\nvoid main() {\n}\n")), HasSubstr("not a multiple of 4"));
  EXPECT_THAT(invalid_spirv(spirv("#version 460\nvoid main() {}\n")), HasSubstr("does not start with a header"));
  EXPECT_THAT(invalid_spirv(with(1, 99U << 16U)), HasSubstr("is of SPIR-V 99.0"));
  EXPECT_THAT(invalid_spirv(with(1, 0x10700)), HasSubstr("is of SPIR-V 1.7"));
  invalid_spirv(with(3, 0));           // no ids
  invalid_spirv(with(5, 0xFFFF0011));  // an instruction longer than the module
  // SPIRV-Tools reads the other byte order, a driver does not.
  std::string swapped = whole;
  for (std::size_t at = 0; at < swapped.size(); at += 4) std::reverse(swapped.data() + at, swapped.data() + at + 4);
  EXPECT_THAT(invalid_spirv(spirv(swapped)), HasSubstr("byte order"));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) invalid_spirv(spirv(whole.substr(0, bytes)));
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string noise = whole.substr(0, 20);
    noise.resize(20 + random() % 64 * 4);
    std::generate(noise.begin() + 20, noise.end(), [&] { return static_cast<char>(random()); });
    invalid_spirv(spirv(noise));
  }
}

TEST_P(KernelRefusals, FindsTheEntryPoint) {
  const std::string fragment = "OpEntryPoint Fragment %other \"other\"\n";
  const std::string origin = "OpExecutionMode %other OriginUpperLeft\n";
  EXPECT_THAT(invalid_spirv(assembled("")), HasSubstr("OpEntryPoint"));
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(assembled(fragment + origin)); }),
              HasSubstr("no compute entry point 'main' in it, and no other"));
  EXPECT_NE(load(assembled(fragment + compute_main + origin)), nullptr);

  KernelSource several = assembled(
      "OpEntryPoint GLCompute %main \"small\"\nOpEntryPoint GLCompute %other \"large\"\n"
      "OpExecutionMode %main LocalSize 2 1 1\nOpExecutionMode %other LocalSize 64 1 1\n");
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(several); }),
              HasSubstr("no compute entry point 'main' in it, only small, large"));
  several.block = {1, 1, 1};
  for (const auto& [function, size] : {std::pair{"small", "2x1x1"}, {"large", "64x1x1"}}) {
    several.function = function;
    EXPECT_THAT(error_of([&] { return load(several); }), HasSubstr(std::string("its own workgroup of ") + size));
  }
}

TEST_P(KernelRefusals, FindsTheSizeOfAWorkgroup) {
  const std::string entry_point = "OpEntryPoint GLCompute %main \"main\"\n";
  const std::string constants = "%x = OpSpecConstant %u32 16\n%y = OpSpecConstant %u32 4\n%z = OpSpecConstant %u32 1\n";
  const std::string built_in = constants + "%size = OpSpecConstantComposite %uvec3 %x %y %z\n";
  const std::string modes[] = {"OpExecutionMode %main LocalSize 1 1 1\nOpDecorate %size BuiltIn WorkgroupSize\n",
                               "OpExecutionModeId %main LocalSizeId %x %y %z\n"};
  const auto spec_ids = [](const char* x, const char* y, const char* z) {
    return std::string("OpDecorate %x SpecId ") + x + "\nOpDecorate %y SpecId " + y + "\nOpDecorate %z SpecId " + z +
           "\n";
  };
  const auto load_with_block = [&](KernelSource source) {
    source.block = {32, 2, 1};
    return load(source);
  };
  EXPECT_THAT(error_of([&] { return load_with_block(assembled(compute_main)); }), HasSubstr("workgroup of 8x4x2"));
  for (const std::string& mode : modes) {
    EXPECT_NE(load_with_block(assembled(entry_point + mode + spec_ids("0", "1", "2"), built_in)), nullptr);
    // Other specialisation constants than 0, 1, 2 are the user's own.
    EXPECT_THAT(
        error_of([&] { return load_with_block(assembled(entry_point + mode + spec_ids("7", "1", "2"), built_in)); }),
        HasSubstr("workgroup of 16x4x1"));
  }
  invalid_spirv(assembled(entry_point));
  EXPECT_THAT(error_of(ErrorCode::compile,
                       [&] {
                         return load(assembled(entry_point + modes[0],
                                               "%x = OpConstant %u32 2\n%y = OpSpecConstantOp %u32 IAdd %x %x\n"
                                               "%size = OpSpecConstantComposite %uvec3 %x %y %x\n"));
                       }),
              AllOf(HasSubstr("strange.spv"), HasSubstr("is not three constants of 32 bits")));
  EXPECT_THAT(error_of(ErrorCode::compile,
                       [&] { return load(assembled(entry_point + "OpExecutionMode %main LocalSize 8 0 1\n")); }),
              HasSubstr("strange.spv"));
}

// A driver takes such modules and crashes at the launch.
TEST_P(KernelRefusals, RefusesWhatALaunchDoesNotGive) {
  const auto with = [](const std::string& declaration, const std::string& use) {
    return glsl(
        "#version 460\n#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n"
        "#extension GL_EXT_buffer_reference : require\nlayout(local_size_x = 1) in;\n"
        "layout(buffer_reference) buffer At { uint x; };\n" +
        declaration + "\nvoid main() { At at = At(uint64_t(4096)); at.x = " + use + "; }\n");
  };
  for (const char* descriptors :
       {"layout(binding = 0) buffer B { uint x; } b;", "layout(binding = 3) uniform B { uint x; } b;"}) {
    const auto source = with(descriptors, "b.x");
    EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(source); }),
                AllOf(HasSubstr("test.comp"), HasSubstr("binding"), HasSubstr("gpumap.glsl")));
  }
  const auto image = with("layout(binding = 0, r32ui) uniform uimage2D i;", "imageLoad(i, ivec2(0)).x");
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(image); }), HasSubstr("binding"));

  const auto pushes = [&](const char* members, const char* value) {
    return with(std::string("layout(push_constant) uniform P { ") + members + " } p;", value);
  };
  for (const auto& [members, value] : {std::pair{"uint x[64];", "p.x[63]"},
                                       {"uint64_t frame; uint x;", "p.x"},
                                       {"layout(offset = 8) uint x;", "p.x"},
                                       {"mat4 m;", "uint(p.m[0][0])"}}) {
    const auto source = pushes(members, value);
    EXPECT_THAT(error_of(ErrorCode::compile, [&] { return load(source); }),
                AllOf(HasSubstr("push constants"), HasSubstr("8 bytes"), HasSubstr("gpumap.glsl")))
        << members;
  }
  for (const auto& [members, value] : {std::pair{"uint64_t frame;", "uint(p.frame)"},
                                       {"uvec2 x;", "p.x.y"},
                                       {"uint x; uint z;", "p.z"},
                                       {"uint x[2];", "p.x[1]"}}) {
    EXPECT_NE(load(pushes(members, value)), nullptr) << members;
  }
}

// Kernels before they are loaded: files and built-ins, what they include, and what the compiler of GLSL says of them.

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

// A compiler would read it up to there alone.
TEST_F(KernelFile, TextHasNoZeros) {
  const std::string cut("a\0b", 3), utf16("\xff\xfe#\0v\0\n\0", 8), ended("text\0", 5);
  for (const char* name : {"zero.cu", "zero.ptx", "zero.comp"}) {
    EXPECT_THAT(error_of(ErrorCode::invalid, [&] { return load_kernel_file(write_file(name, cut)); }),
                AllOf(HasSubstr(name), HasSubstr("byte 1 of its text is 0"), HasSubstr("UTF-8")));
    EXPECT_THAT(error_of(ErrorCode::invalid, [&] { return load_kernel_file(write_file(name, utf16)); }),
                HasSubstr("byte 3 of its text is 0"));
    EXPECT_EQ(load_kernel_file(write_file(name, ended)).code, "text");
  }
  for (const char* name : {"zero.cubin", "zero.spv"}) {
    EXPECT_EQ(load_kernel_file(write_file(name, cut)).code, cut) << "these are no text";
  }
}

// What the first line declares would be silently ignored behind it.
TEST_F(KernelFile, AByteOrderMarkIsNoneOfTheText) {
  for (const char* name : {"marked.cu", "marked.comp"}) {
    const KernelSource source = load_kernel_file(write_file(name, "\xef\xbb\xbf// gpumap: state 32\n"));
    EXPECT_EQ(parse_declaration(source.code, {}).state_bytes, 32U);
  }
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

// As of a disk that fails: the kernel gives EIO for an address where there is no memory.
TEST_F(KernelFile, OneThatCannotBeReadIsAnError) {
  const fs::path file = path_of("broken.comp");
  fs::create_symlink("/proc/self/mem", file);
  EXPECT_THAT(error_of(ErrorCode::open_read, [&] { return load_kernel_file(file); }),
              HasSubstr("broken.comp: cannot be read to its end"));
  const auto including = glsl("#version 460\n#include \"" + file.string() + "\"\n");
  EXPECT_THAT(error_of(ErrorCode::compile, [&] { return compile_glsl(including); }), HasSubstr("broken.comp"));
  const fs::path huge = write_file("huge.comp", "");
  fs::resize_file(huge, std::uintmax_t{1} << 40U);
  EXPECT_THAT(error_of(ErrorCode::open_read, [&] { return load_kernel_file(huge); }), HasSubstr("more than 256 MiB"));
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
    // Nor does the search for a function go on for ever.
    EXPECT_EQ(error_of(ErrorCode::compile, [&] { return compile_glsl(load_kernel_file(path, "other")); }), error);
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
