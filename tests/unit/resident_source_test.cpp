// SPDX-License-Identifier: MIT
// What a kernel's source becomes so that it stays on the GPU: it needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "kernel/compile/compilers.hpp"
#include "kernel/resident/resident_source.hpp"
#include "temporary_folder.hpp"

namespace gpumap {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

KernelSource cuda(std::string code, std::string name = "user.cu") {
  return {.language = Language::cuda,
          .name = std::move(name),
          .code = "#include <gpumap/kernel.h>\n" + std::move(code),
          .function = {}};
}

TEST(ResidentSource, RefusesWhatTheGpuWouldNotComeBackFrom) {
  const auto refusal = [](const KernelSource& source) {
    try {
      static_cast<void>(resident_source(source, {}));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_supported);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(cuda("auto all = cooperative_groups::this_grid();")), HasSubstr("waits for all blocks"));
  EXPECT_THAT(refusal(cuda("other<<<1, 1>>>();")), HasSubstr("launches kernels itself"));
  EXPECT_THAT(refusal(cuda("cg::this_cluster().sync();")), HasSubstr("mode=launch"));
  KernelSource shader = cuda("");
  shader.language = Language::ptx;
  EXPECT_THAT(refusal(shader), HasSubstr("only CUDA C++"));
  EXPECT_THAT(refusal(cuda("asm(\"mov.u32 %0, %%ctaid.x;\" : \"=r\"(v));")), HasSubstr("blockIdx"));
  EXPECT_THAT(refusal(cuda("x = __nvvm_read_ptx_sreg_ctaid_x();")), HasSubstr("blockIdx"));
  EXPECT_THAT(refusal(cuda("x = __ldg(p);")), HasSubstr("plain loads"));
  EXPECT_THAT(refusal(cuda("asm(\"ld.global.nc.u32 %0, [%1];\" : \"=r\"(v) : \"l\"(p));")), HasSubstr("plain loads"));
  EXPECT_THAT(refusal(cuda("asm(\"ld.global\" \".nc\" \".u32 %0, [%1];\" : \"=r\"(v) : \"l\"(p));")),
              HasSubstr("plain loads"));
  EXPECT_THAT(refusal(cuda("asm(\"ldu.global.u32 %0, [%1];\" : \"=r\"(v) : \"l\"(p));")), HasSubstr("plain loads"));
  EXPECT_THAT(refusal(cuda("asm(\"mov.u32 %0, %%ncta\" \"id.x;\" : \"=r\"(v));")), HasSubstr("blockIdx"));
  EXPECT_THAT(refusal(cuda("asm(\"mov.u32 %0, %%clusterid.x;\" : \"=r\"(v));")), HasSubstr("blockIdx"));
  EXPECT_THAT(refusal(cuda("asm(\"setmaxnreg.dec.sync.aligned.u32 24;\");")), HasSubstr("for later frames"));
  EXPECT_THAT(refusal(cuda("#define LOAD(how) __ld##how\nx = LOAD(g)(p);")), HasSubstr("a ## that"));
  // What nobody compiles, and what has a part of such a name, is no reason.
  for (const char* fine : {"// run it as one<<<blocks, 256>>>(frame), or by this_grid()\n", "s = \"<<<%d>>>, __ldg\";",
                           "/* no __launch_bounds__ */ const unsigned ctaid = blockIdx.x;",
                           "asm(\"{ .reg .u32 func; mov.u32 func, 3; }\");"}) {
    EXPECT_EQ(refusal(cuda(fine)), "") << fine;
  }
  EXPECT_THAT(refusal(cuda("__cluster_barrier_wait();")), HasSubstr("it uses block clusters"));
  EXPECT_EQ(refusal(cuda("__global__ void one(gpumap_frame frame) {}")), "");
  // Threads that have returned are still there, and a barrier behind would wait for them.
  const std::string one = "__global__ void one(gpumap_frame frame) {";
  const std::string none = "__device__ void none() {}\n";
  EXPECT_THAT(refusal(cuda(one + "if (threadIdx.x > 3) return;\n__syncthreads();\n}")), HasSubstr("both return, by"));
  EXPECT_THAT(refusal(cuda(one + "return ;\nx = __shfl_down_sync(~0u, x, 1);}")),
              HasSubstr("and __shfl_down_sync, which"));
  EXPECT_THAT(refusal(cuda(one + "return;\nblock.sync();}")), HasSubstr("and sync, which"));
  const std::string early = "__device__ int early(int x) { if (x) return 1; return 2; }\n";
  const std::string vec = "template <class T> struct Vec { T x; };\n";
  const std::string meet = "template <int n = 1> __device__ int meet(int x) { __syncthreads(); return x; }\n";
  for (const std::string& both : std::vector<std::string>{
           one + "__syncthreads(); x = two(); if (x) return; x = 1;}",  // which might be in a loop
           one + "return;}\n__global__ void two(gpumap_frame frame) { __syncthreads(); }",
           "__device__ void sum() { __syncwarp(); }" + one + "if (x) return; sum(); }",
           "#define SKIP(x) if (x) return\n" + one + "SKIP(threadIdx.x); __syncthreads(); }",
           "#define SKIP(x) \\\n  if (x) re\\\nturn\n" + one + "SKIP(threadIdx.x); __syncthreads(); }",
           "#define WAIT __syncthreads()\n" + one + "if (x) return /* early */ ; WAIT; }",
           "#define KERNEL extern \"C\" __global__ void\nKERNEL one(gpumap_frame) { if (x) return; __syncthreads(); }",
           "__attribute__((global)) void one(gpumap_frame) { if (x) return; __syncthreads(); }",
           "__device__ void none() {}" + one + "if (x) return none(); __syncthreads(); }",
           one + "if (x) goto end; __syncthreads(); end: x = 1; }",
           one + "if (x) return; asm(\"ba\" \"r.sync 0;\"); }",
           one + "if (x) return; if (__any(x)) x = 1; }",
           one + "if (x) return; x = __shfl(x, 1); }",
           one + "if (x) return; arrived.arrive_and_wait(); }",
           one + "if (x) return; __barrier_sync_count(1, 64); }",
           one + "printf(HEADER\"of (it)\"); if (x) return; __syncthreads(); }",
           none + "__attribute__((used, global)) void one(gpumap_frame) { if (x) return none(); __syncthreads(); }",
           none + "#define KERNEL __global__ void\nKERNEL one(gpumap_frame) { if (x) return none(); __syncthreads(); }",
           none +
               "#define KERNEL(name) __global__ void name(gpumap_frame)\nKERNEL(one) { if (x) return none(); sync(); }",
           none +
               "#define KERNEL(name) __global__ void name\nKERNEL(one)(gpumap_frame) { if (x) return none(); sync(); }",
           none + "#define ARGS (gpumap_frame)\n__global__ void one ARGS { if (x) return none(); sync(); }",
           none + "#define ONE __global__ void one(gpumap_frame)\nONE { if (x) return none(); sync(); }",
           none + "#define KERNEL(...) __global__ void __VA_ARGS__\nKERNEL(one() { if (x) return none(); sync(); })",
           none + "#define BODY(...) __global__ void one() { __VA_ARGS__ }\nBODY(if (x) return none(); sync();)",
           none + "#define ONE __global__ void one() {\n#define END }\nONE if (x) return none(); sync(); END",
           "#include <gpumap/mine.h>\n" + one + "if (x) return; mine(); }",
           "#include <mine.h>\n" + one + "if (x) return; mine(); }",
           "#define MINE <mine.h>\n#include MINE\n" + one + "if (x) return; mine(); }",
           "#include_next <cuda_fp16.h>\n" + one + "if (x) return; mine(); }",
           "#import <mine.h>\n" + one + "if (x) return; mine(); }",
           "/* mine */ #include <mine.h>\n" + one + "if (x) return; mine(); }",
           "/* Mine,\n * and others' */ # /* . */ include \"mine.h\"\n" + one + "if (x) return; mine(); }",
           "\f#include <mine.h>\n" + one + "if (x) return; mine(); }",
           " \v #include <mine.h>\n" + one + "if (x) return; mine(); }",
           "%:include <mine.h>\n" + one + "__syncthreads(); MINE(x); }",
           "#include \"mine.h\"\n" + one + "if (x) return; mine(); }",
           "#include \"mine.h\"\n" + one + "MINE(x); __syncthreads(); }",
           "#include <cooperative_groups.h>\n" + one + "if (x) return; }",
           "#define JOIN(a, b) a##b\n" + one + "if (x) JOIN(ret, urn); __syncthreads(); }",
           "#define JOIN(a, b) a /* */ %:%: /* */ b\n" + one + "if (x) JOIN(ret, urn); __syncthreads(); }",
           "#define JOIN(a, b) a \\\n ## \\\n b\n" + one + "if (x) JOIN(ret, urn); __syncthreads(); }",
           "#define JOIN(a, b) a \f##\v b\n" + one + "if (x) JOIN(ret, urn); __syncthreads(); }",
           "#define LEAVE(b) ret##b\n" + one + "if (x) LEAVE(urn); __syncthreads(); }",
           "#define LEAVE ret##urn\n" + one + "if (x) LEAVE; __syncthreads(); }",
           "#define JOIN(a, b, c) a##b##c\n" + one + "if (x) JOIN(re, tu, rn); __syncthreads(); }",
           "#define JOIN(a, ...) a##__VA_ARGS__\n" + one + "if (x) JOIN(ret, urn); __syncthreads(); }",
           "#define JOIN(a, b) a##b\n" + one + "if (x) return; JOIN(__sync, threads)(); }",
           "#define JOIN(a, b) a##b\n" + one + "if (x) JOIN(ret, urn); JOIN(__sync, threads)(); }",
           one + "if (x == '\"') return; s = \"//\"; __syncthreads(); }",
           "__device__ int sum(int x) { if (x) return 1; __syncthreads(); return 2; }",
           "__device__ auto sum(int x) -> int { if (x) { return 1; } __syncthreads(); return 2; }",
           "template <class T> __device__ T sum(T x) { if (x) return x; return __shfl_xor_sync(~0u, x, 1); }",
           "namespace mine { struct Sum { __device__ int of(int x) const { if (x) return 1; __syncwarp(); } }; }",
           "__device__ int sum(int x) { for (;;) { __syncthreads(); if (x) return 1; } }",
           std::string("__device__ int sum() { __syncthreads(); return 2; }\n") +
               "__device__ int two(int x) { if (x) return 1; return sum(); }",
           "__device__ int sum(int x) { return each([&](int i) { if (i) return 1; __syncwarp(); return 2; }); }",
           one + "auto f = [](int x) { if (x) return 1; __syncthreads(); return 2; }; }",
           "__device__ int sum(const int* a, float x) { if (a[1] > (int)x) { return 1; } __syncthreads(); return 2; }",
           "__device__ int sum(int x) { if (x) return 1; asm volatile(\"bar.sync 0;\"); return 2; }",
           "#define SUM(x) __shfl_xor_sync(~0u, x, 1)\n__device__ int sum(int x) { if (x) return 1; return SUM(x); }",
           std::string("__device__ int sum(int x); __device__ int two(int x) { if (x) return 1; return sum(x); }\n") +
               "__device__ int sum(int x) { __syncthreads(); return x; }",
           std::string("template <int n> __device__ int sum(int x) { __syncthreads(); return x; }\n") +
               "__device__ int two(int x) { if (x) return 1; return sum<3>(x); }",
           std::string("__device__ int sum(int x) {\n#if A\nif (x) return 1;\n#else\nif (x) "
                       "{\n#endif\n__syncthreads(); return 2; ") +
               "}",
           "#define SYNC __syncthreads()\n__device__ int sum(int x) { if (x) return 1; SYNC; return 2; }",
           "#define SYNC __syncthreads()\n#define STEP SYNC\n__device__ int sum(int x) { if (x) return 1; STEP; }",
           "#define SYNC(x) (#x, __syncthreads())\n__device__ int sum(int x) { if (x) return 1; SYNC(x); return 2; }",
           "#define SYNC asm(\"bar.sync 0;\")\n__device__ int sum(int x) { if (x) return 1; SYNC; return 2; }",
           meet + "#define ALL meet\n__device__ int sum(int x) { if (x) return 1; ALL(x); return 2; }",
           meet + "#define STEP(x) meet(x)\n__device__ int sum(int x) { if (x) return 1; STEP(x); return 2; }",
           "__device__ int sum(int x) { while (__syncthreads_or(x)) if (x) return 1; return 2; }",
           "__device__ int sum(int x) { for (;;) if (x) { __syncthreads(); } else { return 1; } }",
           meet + "__device__ int sum(int x) { for (;;) if (x) meet(x); else if (!x) return 1; }",
           "__device__ int sum(int x) { for (int s : {4, 2}) { __syncthreads(); if (x > s) return s; } return 2; }",
           "__device__ int sum(int x) { EACH(i, 4) { __syncthreads(); if (x > i) return i; } return 2; }",
           "__device__ int sum(int x) { do { if (x) return 1; } while (__syncthreads_or(x)); return 2; }",
           "__device__ int sum(int2 x = {1, 2}) { if (x.x) return 1; __syncthreads(); return 2; }",
           "__device__ int sum(int x) noexcept(bool{true}) { if (x) return 1; __syncthreads(); return 2; }",
           std::string("DEVICE(fast) int all(int x) { __syncthreads(); return x; }\n__device__ int sum(int x) { if (x) "
                       "return 1; ") +
               "return all(x); }",
           std::string(
               "template <int n> __device__ typename on<(n > 2), int>::type all(int x) { __syncthreads(); return x; ") +
               "}\n__device__ int sum(int x) { if (x) return 1; return all<3>(x); }",
           std::string("struct R { int x; };\nstruct R all(int x) { __syncthreads(); return {x}; }\n__device__ int "
                       "sum(int x) { if ") +
               "(x) return 1; return all(x).x; }",
           std::string(
               "struct Tile : Base<decltype(T())> { __device__ int all() const { __syncthreads(); return 1; } ") +
               "};\n__device__ int sum(Tile t) { if (t.x) return 1; return t.all(); }",
           std::string("struct All { __device__ int operator()(int x) const { __syncthreads(); return x; } "
                       "};\n__device__ int ") +
               "sum(All all, int x) { if (x) return 1; return all(x); }",
           meet + "__device__ int sum(int x) { if (x) return 1; (meet)(x); return 2; }",
           meet + "__device__ int sum(int x) { if (x) return 1; return meet <5>(x); }",
           std::string("__device__ int sum(int x) { auto all = [](int y) { __syncwarp(); return y; }; if (x) return 1; "
                       "return ") +
               "all(x); }",
           "__device__ int sum(int x) { if (table[x](x)) { return 1; } __syncthreads(); return 2; }",
           "__device__ int sum(int x) BEGIN if (x) return 1; __syncthreads(); return 2; END",
           std::string("#define EACH(n) for (int i = 0; i < n; ++i) {\n#define NEXT }\n__device__ int sum(int x) { ") +
               "EACH(4) __syncthreads(); if (x > i) return i; NEXT return 2; }",
           "__device__ int sum(int x) <% for (;;) <% __syncthreads(); if (x) return 1; %> return 2; %>",
           std::string("struct All { int x; __device__ operator int() const { __syncwarp(); return x; } };\n") +
               "__device__ int sum(All all, int x) { if (x) return 1; return all; }",
           std::string("struct All { __device__ int operator[](int x) const __attribute__((pure)) { __syncwarp(); ") +
               "return x; } };\n__device__ int sum(All all, int x) { if (x) return 1; return all[x]; }",
           std::string("struct All { __device__ int* begin() { __syncwarp(); return a; } int a[4]; };\n") +
               "__device__ int sum(All all, int x) { if (x) return 1; for (int i : all) x += i; return x; }",
           std::string("struct All { __device__ ~All() { __syncwarp(); } };\n") +
               "__device__ int sum(int x) { All all; if (x) return 1; return 2; }",
           std::string("struct All { __device__ All() { __syncwarp(); } };\n") +
               "__device__ int sum(int x) { if (x) return 1; All all; return 2; }",
           std::string("template <class T> struct Tile { __device__ T all(T); };\ntemplate <class T> __device__ T ") +
               "Tile<T>::all(T x) { x = __shfl_xor_sync(~0u, x, 1); return x; }\n__device__ int sum(Tile<int> t) { "
               "if (t.x) return 1; return t.all(2); }",
           std::string("template <class T, class U = ns::t> __device__ T all(T x) { __syncwarp(); return x; }\n") +
               "__device__ int sum(int x) { if (x) return 1; return all(x); }",
           std::string(
               "template <class T, int N = (sizeof(T) > 2)> struct Tile { __device__ T all() { __syncwarp(); ") +
               "return 1; } };\n__device__ int sum(Tile<int> t) { if (t.x) return 1; return t.all(); }",
           std::string("#define DEFINE(name) __device__ int name(int x) { __syncwarp(); return x; }\nDEFINE(all)\n") +
               "__device__ int sum(int x) { if (x) return 1; return all(x); }",
           std::string("#define DEFINE(name, op) __device__ int name(int x) { return op(x); }\n") +
               "DEFINE(all, __syncthreads_or)\n__device__ int sum(int x) { if (x) return 1; return all(x); }",
           std::string("#define NAMED(name) __device__ int name(int x)\nNAMED(all) { __syncwarp(); return x; }\n") +
               "__device__ int sum(int x) { if (x) return 1; return all(x); }",
           std::string("#define NAME all\n__device__ int NAME(int x) { __syncwarp(); return x; }\n") +
               "__device__ int sum(int x) { if (x) return 1; return all(x); }",
           std::string("struct __align__(8) All { __device__ All() { __syncwarp(); } };\nusing Any = All;\n") +
               "__device__ int sum(int x) { if (x) return 1; Any any; return 2; }",
           std::string("#define DEFINE(name) __global__ void one(); __device__ int name(int x)\n") +
               "DEFINE(all) { __syncwarp(); return x; }\n__device__ int sum(int x) { if (x) return 1; return all(x); }",
           std::string("#if A\n#define DEFINE(name) __device__ void name(int x)\n#else\n") +
               "#define DEFINE(name) __global__ void name(int x)\n#endif\nDEFINE(all) { __syncwarp(); }\n" +
               "__device__ int sum(int x) { if (x) return 1; all(x); return 2; }",
           std::string("#define OP(of) operator of\n__device__ int OP(*)(A, A) noexcept(true) { __syncwarp(); }\n") +
               "__device__ int sum(A a) { if (a.x) return 1; return a * a; }",
           std::string("__device__ int (&all(int (&x)[2]) noexcept(true))[2] { __syncwarp(); return x; }\n") +
               "__device__ int sum(int (&x)[2]) { if (x[0]) return 1; return all(x)[0]; }",
           std::string("template <> __device__ int all<sizeof(T) < 8>(int x) noexcept(true) { __syncwarp(); }\n") +
               "__device__ int sum(int x) { if (x) return 1; return all<true>(x); }",
           vec + "template <class T> __device__ Vec<T> all(Vec<T> (&v)[2]) { __syncwarp(); return v[0]; }\n" +
               "__device__ int sum(Vec<int>* v) { if (v[0].x) return 1; return all(*v).x; }",
           std::string("template <class T> struct All { __device__ All(T); };\ntemplate <class T> __device__ ") +
               "All<T>::All(T) { __syncwarp(); }\n__device__ int sum(int x) { if (x) return 1; All<int> all(x); }",
           std::string("template <class T> struct All : T { __device__ All(int x) : T{x} { __syncwarp(); } };\n") +
               "__device__ int sum(int x) { if (x) return 1; All<One> all(x); return 2; }",
           vec + "template <> __device__ int all<3 >= 2>(Vec<int> v) { __syncwarp(); return 2; }\n" +
               "__device__ int sum(int x) { if (x) return 1; return all<true>({x}); }",
           vec + "template <> __device__ auto all<sizeof(int) < 8>(int x) -> Vec<int> { __syncwarp(); return {x}; }\n" +
               "__device__ int sum(int x) { if (x) return 1; return all<true>(x).x; }",
           meet + "__device__ int sum(int x) { if (x) return 1; return meet\n<3>(x); }",
           "__device__ int sum(cg::thread_block b, int x) { if (x) return 1; cg::sync(b); return 2; }",
           one + "if (x) return; sync<32>(x); }",
           one + "if (x) return; auto* f = &sync; f(x); }",
           "#define WAIT sync\n__device__ int sum(B b, int x) { if (x) return 1; b.WAIT(); return 2; }",
           std::string("__device__ int sum(int x) { if (x) return 1;\n#include <gpumap/grid.h>\nreturn 2; "
                       "}\n__device__ void ") +
               "meet(int) { __syncthreads(); }",
       }) {
    EXPECT_THAT(refusal(cuda(both)), HasSubstr("threads end early")) << both;
  }
  for (const std::string& fine : std::vector<std::string>{
           "int two() { return 2; }" + one + "__syncthreads(); if (two()) x = 1;}",
           one + "// no return; here\n/* return; */ __syncthreads(); }",
           one + "// __syncthreads();\nif (x) return; s = \"no exit\"[0]; }",
           one + "if (x == 1'000) x = 2'0; __syncthreads(); }",
           "#include <cuda_fp16.h>\n" + one + "if (x) return; }",
           "#include <gpumap/grid.h>\n#include \"gpumap/pixels.h\"\n" + one + "if (x) return; }",
           "#include <gpumap/pixels.h>\n" + one + "__syncthreads(); }",
           one + "if (await_count != waiting) return; my_barrier_count = 2; }",
           one + "printf(\"exit code, bar.sync\"); if (x) return; }",
           one + "__syncthreads(); printf(\"exit code\"); }",
           one + "if (x) return; asm volatile(\"add.u32 %0, %1, 1;\\n\\t\" : \"=r\"(exit) : \"r\"(x)); }",
           "#include \"mine.h\"\n" + one + "x = mine(); }",
           "#define NAMED(x) table_##x\n" + one + "__syncthreads(); NAMED(one) = 1; }",
           "#define NAMED(x) x##_of_two\n" + one + "if (x) return; NAMED(one) = 1; }",
           "#define LOG(text, ...) printf(text, ##__VA_ARGS__)\n" + one + "__syncthreads(); LOG(\"%d\", 1); }",
           std::string("__device__ int two(int x) { if (x) return 1; return 2; }\n") +
               "__device__ int sum(int x) { __syncthreads(); if (x) return 1; return two(x); }",
           "__device__ int sum(int x) { auto two = [x](int y) { if (y) return 1; return x; }; __syncthreads(); }",
           "__device__ int sum(int x) { if (x) { __syncwarp(); } for (;;) { if (x) return 1; } }",
           "__device__ int sum(int x) {\n#if A\nreturn __any_sync(~0u, x);\n#else\nreturn 1;\n#endif\n}",
           "__device__ int one(cooperative_groups::thread_block all, int x) { if (x) return 1; return 2; }",
           std::string("struct Two { __device__ int of() const { if (more) return 1; return 2; } };\n") +
               "struct alignas(16) More { __device__ int of() { __syncwarp(); return 2; } };",
           "__device__ int sum(int x) { const auto two = [](int y) { return y; }; __syncthreads(); return two(x); }",
           "__device__ int sum(int x) { for (int i = 0; i < 5; ++i) { x += __shfl_down_sync(~0u, x, 1); } return x; }",
           "struct __align__(16) Two { __device__ int of() { return 1; } __device__ void wait_for_all() { sync(); } };",
           std::string("__device__ int sum(const int* a) { for (int i = a[0] + (int)threadIdx.x; i < 9; ++i) {") +
               " __syncwarp(); } return 1; }\n__device__ int two(int x) { if (x) return 1; for (;;) { x = 2; } return "
               "2; }",
           "__device__ float2 sum(float2 v) { return {__shfl_down_sync(~0u, v.x, 1), __shfl_down_sync(~0u, v.y, 1)}; }",
           "__device__ int sum(int x) { return each([&](int i) { __syncwarp(); return i; }); }",
           std::string("__device__ int sum(int x) { __syncwarp(); return x; }\n") +
               "__device__ int two(int x) { if (x) return 1; int sum = 0; return sum; }",
           // What heads of functions have in common with those of types does not name either.
           early + vec + "template <class T> __device__ T sum(T x) { __syncwarp(); return x; }",
           early + vec + "template <class T> __device__ Vec<T> sum(const Vec<T>& v, Vec<Vec<T>>) { sync(); return v; }",
           early + vec + "template <class T> __device__ T sum(T (&v)[2]) { __syncwarp(); return v[0]; }",
           early +
               "template <> struct Least<int> { int x; };\n__device__ int sum(int (&v)[2]) { sync(); return v[0]; }",
           early + "template <class T, on<sizeof(T) < 8> = 0> __device__ T sum(T x) { __syncwarp(); return x; }",
           std::string("struct __attribute__((aligned(16))) Two { int x; };\n") + early +
               "__device__ __attribute__((noinline)) int sum(int x) { __syncwarp(); return x; }",
           early + "template <int n = sizeof(T)> struct Two {};\ntemplate <int n = sizeof(T)> int sum() { sync(); }",
           // The heads of kernels may be macros.
           "#define KERNEL extern \"C\" __global__ void\n" + early + "KERNEL one(gpumap_frame) { __syncthreads(); }",
           "#define KERNEL(name) __global__ void name(gpumap_frame)\n" + early + "KERNEL(one) { __syncthreads(); }",
           "#define KERNEL(name) __global__ void name\n" + early + "KERNEL(one)(gpumap_frame) { __syncthreads(); }",
           "#define FAST(x) __attribute__((x))\n" + early + "__global__ void FAST(hot) one(gpumap_frame) { sync(); }",
           "__device__ int two(int x) {\n#if A\nfor (;;) {\n#else\nfor (;;) {\n#endif\nx = 1; } return x; }\n" + one +
               "__syncthreads(); }",
           "#define EACH(n) for (int i = 0; i < n; ++i) { x += i; }\n__device__ int sum(int x) { EACH(4) return x; }",
           std::string("#include <gpumap/grid.h>\nextern \"C\" {\n__device__ int two(int x) { return x * x; }\n") +
               one + "__syncthreads(); x = two(x); }\n}",
           "template <class T> __device__ my::index top(T x) { return x; }\n" + one + "__syncthreads(); x = top(x); }",
           one + "int sync = 3, bar[2]; if (x) return; x = sync + bar[1]; }",
           one + "if (x) return; for (int bar = 0; bar < 8; ++bar) x += bar; const bool wait = (x & 1) != 0; }",
           one + "if (x) return; const int sync = (x % 188); x = x && sync ? sync : 2; }",
           one + "auto two = [](float v) { return v * v; }; __syncthreads(); x = two(x); }",
           "#define TEXT(x) #x\n" + one + "__syncthreads(); printf(TEXT(x)); }",
       }) {
    EXPECT_EQ(refusal(cuda(fine)), "") << fine;
  }
  // A thread that ends by itself comes for no frame after that.
  for (const char* exit : {
           "asm(\"exit;\");",
           "if (x) asm volatile(\"{ ret; }\");",
           "asm(R\"x(exit;)x\");",
           "__asm__ __volatile__(\"ex\" \"it;\");",
           "asm(\"ex\" R\"(it;)\" : : \"r\"(x));",
           "asm(\"\\145xit;\");",
           "asm(LEAVE);",
       }) {
    EXPECT_THAT(refusal(cuda(one + exit + "}")), HasSubstr("would not come for later frames")) << exit;
    EXPECT_THAT(refusal(cuda(std::string("#define LEAVE() ") + exit + "\n" + one + "LEAVE(); }")),
                HasSubstr("would not come for later frames"))
        << exit;
  }
  for (const char* named : {"#define ASM asm volatile\n#define LEAVE() ASM(\"exit;\")\n", "#define ASM asm\n"}) {
    EXPECT_THAT(refusal(cuda(named + one + "f(x); ASM(\"exit;\"); LEAVE(); }")),
                HasSubstr("would not come for later frames"))
        << named;
  }
  // Macros may come from elsewhere.
  KernelSource defined = cuda(one + "SKIP(x); __syncthreads(); }");
  EXPECT_EQ(refusal(defined), "");
  defined.defines = {"NONE", "SKIP(x)=if(x)return"};
  EXPECT_THAT(refusal(defined), HasSubstr("both return, by"));
  defined = cuda(one + "if (x) return; WAIT; }");
  EXPECT_EQ(refusal(defined), "");
  defined.defines = {"WAIT=__syncthreads()"};
  EXPECT_THAT(refusal(defined), HasSubstr("and __syncthreads, which"));
  // Without them a block might have more threads than its kernel was made for.
  KernelSource bound = cuda("__global__ void __launch_bounds__(64) one(gpumap_frame frame) {}");
  EXPECT_THAT(refusal(bound), HasSubstr("__launch_bounds__"));
  bound.block = {64, 1, 1};
  EXPECT_EQ(refusal(bound), "");
  EXPECT_THAT(refusal(cuda("__global__ void __maxnreg__(32) one(gpumap_frame frame) {}")), HasSubstr("__maxnreg__"));
}

// Files that it includes are read, wherever the compiler finds them.
TEST(ResidentSource, LooksIntoWhatIsIncluded) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "more/gpumap");
  std::filesystem::create_directories(folder.path() / "nested");
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder.path() / name) << text; };
  write("waits.h", "__device__ void mine() { __syncthreads(); }");
  write("ends.h", "#define SKIP(x) if (x) return\n");
  write("plain.h", "#pragma once\n#include <plain.h>\n__device__ int two() { return 2; }");
  write("outer.h", "#include \"more/inner.h\"\n");
  write("more/inner.h", "#include \"next.h\"\n");
  write("more/next.h", "__device__ void mine() { __syncwarp(); }");
  write("more/gpumap/mine.h", "__device__ void mine() { asm(\"exit;\"); }");
  write("grid.h", "__device__ void mine() { cooperative_groups::this_grid().sync(); }");
  write("old.h", "__device__ int two(const int* at) { return __ldg(at); }");
  write("bound.h", "#define BOUND __launch_bounds__(64)\n");
  write("more/cuda_fp16.h", "__device__ void mine() { __cluster_barrier_wait(); }");
  write("body.h", "if (x) return 1;");
  write("both.h", "__device__ void mine() {}");
  write("more/both.h", "__device__ void mine() { __syncthreads(); }");
  write("nested/in_quotes.h", "#include \"both.h\"\n");
  write("nested/in_angles.h", "#include <both.h>\n");
  write("nested/beside.h", "#include \"mine.h\"\n");
  write("nested/mine.h", "__device__ void mine() {}");
  write("more/mine.h", "__device__ void mine() { __syncthreads(); }");
  write("comment.h", "/* What\n * waits. */ #include <waits.h>\n");
  write("head.h", "#define KERNEL(name) __global__ void name(gpumap_frame frame)\n");
  const auto refusal = [&](const std::string& header, const std::string& body) {
    KernelSource source = cuda("#include " + header + "\n__global__ void one(gpumap_frame frame) {" + body + "}",
                               folder.path() / "one.cu");
    source.include_folders = {folder.path() / "more"};
    try {
      static_cast<void>(resident_source(source, {}));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("<waits.h>", "if (x) return; mine();"), HasSubstr("and __syncthreads, which"));
  EXPECT_THAT(refusal("\"waits.h\"", "if (x) return; mine();"), HasSubstr("and __syncthreads, which"));
  EXPECT_THAT(refusal("<comment.h>", "if (x) return; mine();"), HasSubstr("and __syncthreads, which"));
  EXPECT_THAT(refusal("<ends.h>", "SKIP(x); __syncthreads();"), HasSubstr("both return, by"));
  EXPECT_THAT(refusal("\"outer.h\"", "if (x) return; mine();"), HasSubstr("and __syncwarp, which"));
  EXPECT_THAT(refusal("<gpumap/mine.h>", "mine();"), HasSubstr("would not come for later frames"));
  EXPECT_THAT(refusal("\"grid.h\"", "mine();"), HasSubstr("waits for all blocks"));
  EXPECT_THAT(refusal("<old.h>", "x = two(at);"), HasSubstr("plain loads"));
  EXPECT_THAT(refusal("<bound.h>", "x = 1;"), HasSubstr("__launch_bounds__"));
  EXPECT_THAT(refusal("\"body.h\"", "__syncthreads();"), HasSubstr("both return, by"));
  EXPECT_THAT(refusal("<head.h>", "}\nKERNEL(two) { if (x) return none(); __syncthreads();"), HasSubstr("threads end"));
  EXPECT_EQ(refusal("<head.h>", "}\nint early() { if (x) return 1; return 2; }\nKERNEL(two) { __syncthreads();"), "");
  EXPECT_EQ(refusal("<cuda_fp16.h>", "if (x) return;"), "") << "it is CUDA's own";
  EXPECT_EQ(refusal("\"plain.h\"", "if (x) return; x = two();"), "");
  EXPECT_EQ(refusal("<plain.h>", "__syncthreads(); x = two();"), "");
  EXPECT_EQ(refusal("<waits.h>", "mine();"), "");
  // Of two files of one name the compiler takes the one in the include path, but in quotes the one beside.
  EXPECT_THAT(refusal("<both.h>", "if (x) return; mine();"), HasSubstr("and __syncthreads, which"));
  EXPECT_EQ(refusal("\"both.h\"", "if (x) return; mine();"), "");
  EXPECT_THAT(refusal("\"nested/in_quotes.h\"", "if (x) return; mine();"), HasSubstr("and __syncthreads, which"));
  EXPECT_THAT(refusal("\"nested/in_angles.h\"", "if (x) return; mine();"), HasSubstr("and __syncthreads, which"));
  EXPECT_EQ(refusal("\"nested/beside.h\"", "if (x) return; mine();"), "");
}

TEST(ResidentSource, NamesAreThoseOfTheSource) {
  EXPECT_EQ(name_in_source("blur"), "blur");
  EXPECT_EQ(name_in_source("_ZN7filters4blurE12gpumap_frame"), "filters::blur");
  EXPECT_EQ(name_in_source("_Z3sumILi5EEv12gpumap_frame"), "sum<5>");
  EXPECT_EQ(name_in_source("_ZN12_GLOBAL__N_14blurE12gpumap_frame"), "blur");
  // What the ABI calls types: a name like them is one all the same, and so is what is mangled and no function.
  for (const char* name : {"f", "i", "d", "x", "b", "v", "Pi", "PKc", "St", "_Z", "_Z1", "_Z3one", "__Z3onev", ""}) {
    EXPECT_EQ(name_in_source(name), std::string_view(name) == "_Z3one" ? "one" : name);
  }
}

class ResidentCompiler : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      static_cast<void>(compile_cuda(source_of(*find_builtin("identity"), Backend::cuda), "sm_90"));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::no_driver) throw;
      GTEST_SKIP() << error.what();
    }
  }
  [[nodiscard]] static std::string compile(const KernelSource& source, std::vector<std::string> functions = {}) {
    return build_resident(source, std::move(functions), GetParam()).code;
  }
};

TEST_P(ResidentCompiler, TakesBuiltInsAndExamplesAsTheyAre) {
  for (const Builtin& builtin : builtins()) {
    if (builtin.make_program != nullptr) continue;
    EXPECT_THAT(compile(source_of(builtin, Backend::cuda)), HasSubstr(resident_function)) << builtin.name;
  }
  int files = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(GPUMAP_EXAMPLES)) {
    if (file.path().extension() != ".cu") continue;
    const KernelSource source = load_kernel_file(file.path());
    EXPECT_THAT(compile(source, parse_declaration(source.code).functions), HasSubstr(resident_function)) << source.name;
    ++files;
  }
  EXPECT_GT(files, 3);
}

TEST_P(ResidentCompiler, TakesWhatUsersWrite) {
  KernelSource source = cuda(R"(
extern __shared__ float room[];
template <int count>
__global__ void __launch_bounds__(128) sum(const __grid_constant__ gpumap_frame frame) {
  __shared__ float parts[count];
  parts[threadIdx.x % count] = room[threadIdx.x] + frame.params[threadIdx.x % 64];
  __syncthreads();
  if (blockIdx.x * blockDim.x + threadIdx.x < frame.in.bytes) {
    for (unsigned i = 0; i < frame.past_count; ++i) parts[0] += frame.past[i].stride[i % 4];
  }
  atomicAdd(reinterpret_cast<unsigned long long*>(frame.result), gridDim.x + static_cast<unsigned>(parts[0]));
}
namespace filters {
__device__ void helper(const gpumap_frame& frame) { *reinterpret_cast<float*>(frame.out.plane[0]) = blockIdx.y; }
__global__ void scale(gpumap_frame frame) {
  frame.params[0] += 1;
  helper(frame);
}
}  // namespace filters
)");
  source.block = {128, 1, 1};
  EXPECT_THAT(compile(source, {"sum<5>", "filters::scale"}), HasSubstr(resident_function));
}

// Functions of C have one name for all namespaces.
TEST_P(ResidentCompiler, TakesWhatIsOfCInANamespace) {
  const std::string first = "extern \"C\" __global__ void first(const gpumap_frame frame) {}\n";
  const KernelSource one = cuda("namespace filters {\n" + first + "}  // namespace filters");
  EXPECT_THAT(compile(one), HasSubstr(resident_function));
  EXPECT_THAT(compile(one, {"first"}), HasSubstr(resident_function));
  const KernelSource two =
      cuda("namespace filters::inner {\n" + first + "}\nextern \"C\" __global__ void second(gpumap_frame) {}");
  EXPECT_THAT(compile(two, {"second", "first"}), HasSubstr(resident_function));
}

TEST_P(ResidentCompiler, TakesNamesOfTheUsersOwn) {
  const KernelSource source = cuda(R"(
#define frame 1
#define function 2
#define residence 3
#define stay 4
#define turn 5
#define here 6
unsigned column(uint3 block) { return block.x; }
unsigned column(dim3) = delete;
namespace {
template <int count>
__global__ void one(gpumap_frame given) {
  const uint3& same = blockIdx;
  const dim3& grid = gridDim;
  *reinterpret_cast<unsigned*>(given.out.plane[0]) = column(blockIdx) + same.y + grid.z + count;
}
template __global__ void one<7>(gpumap_frame);
}  // namespace
)");
  EXPECT_THAT(compile(source), HasSubstr(resident_function));
}

// Names of the loop's own: a kernel may have them, and so may members, parameters and macros of a file or of `defines`.
TEST_P(ResidentCompiler, TakesNamesOfTheLoopsOwn) {
  std::string code;
  std::vector<std::string> names{"frame", "function", "residence", "stay", "move", "turn", "f"};
  for (const std::string& name : names) {
    code += (name.size() % 2 == 0 ? "extern \"C\" " : "") + ("__global__ void " + name) + "(gpumap_frame given) {}\n";
  }
  EXPECT_THAT(compile(cuda(code), names), HasSubstr(resident_function));
  KernelSource source = cuda(R"(
#define global __global__
#define launch_bounds 3
struct Place {
  uint3 blockIdx;
  dim3 gridDim;
};
__device__ unsigned column(uint3 blockIdx, dim3 gridDim) { return ::blockIdx.y + blockIdx.x * gridDim.x; }
extern "C" global void __maxnreg__(64) one(gpumap_frame frame) {
  const Place place{blockIdx, gridDim};
  *reinterpret_cast<unsigned*>(frame.out.plane[0]) =
      column(place.blockIdx, place.gridDim) + threads + self + ADD(turn, number) + ONCE + launch_bounds;
}
)");
  source.block = {64, 1, 1};
  source.defines = {"threads=256", "self=1",     "row=2",  "block=3", "turn=4",   "number=5", "all=6",
                    "add=7",       "parts=done", "done=8", "at=9",    "kind=run", "ONCE",     "ADD(x, y)=((x)+(y))"};
  EXPECT_THAT(compile(source, {"one"}), HasSubstr(resident_function));
}

TEST_P(ResidentCompiler, TellsWhatCompilesOnlyAsOneThatIsLaunched) {
  try {
    static_cast<void>(compile(cuda("struct More : gpumap_frame {};\n"
                                   "extern \"C\" __global__ void one(More more) {}\n"),
                              {"one"}));
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_supported);
    EXPECT_THAT(error.what(), HasSubstr("launched it compiles, in the loop that stays it does not"));
  }
}

// The loop takes registers of its own: as many threads as are asked for are to fit all the same.
TEST_P(ResidentCompiler, FitsTheThreadsThatAreAskedFor) {
  KernelSource source = cuda("extern \"C\" __global__ void one(gpumap_frame frame) {}\n");
  EXPECT_THAT(resident_source(source, std::vector<std::string>{"one"}).code, Not(HasSubstr("launch_bounds(")));
  source.block = {32, 16, 2};
  const KernelSource made = resident_source(source, std::vector<std::string>{"one"});
  EXPECT_THAT(made.code, HasSubstr("launch_bounds(1024)"));
  EXPECT_THAT(build_cuda_module(made, GetParam()), HasSubstr(resident_function));
}

TEST_P(ResidentCompiler, TellsErrorsAtTheUsersLine) {
  const KernelSource source = cuda("extern \"C\" __global__ void one(gpumap_frame frame) {\n  no_such_thing();\n}\n");
  try {
    static_cast<void>(compile(source, {"one"}));
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("user.cu(3): error: identifier \"no_such_thing\""));
  }
}

INSTANTIATE_TEST_SUITE_P(Each, ResidentCompiler,
                         ::testing::Values("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"));

}  // namespace
}  // namespace gpumap
