// SPDX-License-Identifier: MIT
#include "kernel/resident/resident_source.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

struct Refusal {
  std::string_view word;
  std::string_view why;
};
// What the compiler takes, and the GPU would never come back from or do otherwise.
constexpr std::array<Refusal, 7> refusals{{
    {"this_grid", "it waits for all blocks of its grid, which run one after the other here"},
    {"grid_group", "it waits for all blocks of its grid, which run one after the other here"},
    {"this_cluster", "it uses block clusters, and blocks run one after the other here"},
    {"<<<", "it launches kernels itself, which run when this one has ended"},
    {"ctaid", "it asks the GPU for its block, and that runs many of the frame's: use blockIdx and gridDim"},
    {"__ldg", "it reads past the caches' order, for what nobody writes while a kernel runs: use plain loads"},
    {".nc.", "it reads past the caches' order, for what nobody writes while a kernel runs: use plain loads"},
}};

/// In one of the kernels a `return;` with something behind it that waits for the threads of a block or a warp: those
/// that returned would be waited for, too, where in a launch they are gone.
bool waits_behind_return(std::string_view code) {
  std::size_t end = 0;
  for (std::size_t begin = code.find("__global__"); begin != code.npos; begin = end) {
    end = code.find("__global__", begin + 1);
    std::string_view kernel = code.substr(begin, end == code.npos ? end : end - begin);
    std::size_t at = kernel.find("return");
    for (; at != kernel.npos; at = kernel.find("return", at + 1)) {
      const std::size_t next = kernel.find_first_not_of(" \t\r\n", at + std::string_view("return").size());
      if (next != kernel.npos && kernel[next] == ';') break;
    }
    if (at == kernel.npos) continue;
    kernel.remove_prefix(at);
    for (const std::string_view wait : {"__sync", "_sync(", "sync(", "bar."}) {
      if (kernel.find(wait) != kernel.npos) return true;
    }
  }
  return false;
}

}  // namespace

KernelSource resident_source(const KernelSource& source, std::span<const std::string> functions) {
  if (source.language != Language::cuda) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {} cannot stay on the GPU: only CUDA C++ (.cu) can be compiled for that: give the "
                            ".cu file, or use mode=launch",
                            source.name));
  }
  for (const auto& [word, why] : refusals) {
    if (source.code.find(word) == std::string::npos) continue;
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {} cannot stay on the GPU: its source has {}: {}: use mode=launch", source.name,
                            word, why));
  }
  if (waits_behind_return(source.code)) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {} cannot stay on the GPU: it returns early and waits for the threads of its block "
                            "or warp behind that: have all threads come to the wait, or use mode=launch",
                            source.name));
  }
  const std::uint64_t threads = std::uint64_t{source.block[0]} * source.block[1] * source.block[2];
  if (threads == 0 && source.code.find("__launch_bounds__") != std::string::npos) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {} cannot stay on the GPU: its source has __launch_bounds__, which the loop around "
                            "it does not see: say its threads by the line block, or block, or use mode=launch",
                            source.name));
  }
  // One that is too large is refused when it is loaded.
  const std::string bounds =
      threads == 0 || threads > 1024 ? std::string() : fmt::format(" __attribute__((launch_bounds({})))", threads);
  KernelSource made = source;
  made.function = resident_function;
  std::string cases;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    cases += fmt::format("      case {}: {}(frame); break;\n", i, functions[i]);
  }
  made.code = fmt::format(R"(#include <gpumap/resident.h>
#line 1
{}
#undef blockIdx
#undef gridDim
#undef frame
#undef function
#undef residence
#undef stay
extern "C" __attribute__((global)){} void {}(gpumap_residence residence) {{
  gpumap_resident::stay(residence, [](unsigned function, const gpumap_frame& frame) {{
    switch (function) {{
{}    }}
  }});
}}
)",
                          source.code, bounds, resident_function, cases);
  return made;
}

std::string name_in_source(const std::string& ptx_name) {
  int status = -1;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(ptx_name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || !text) return ptx_name;
  std::string name = text.get();
  name.resize(name.rfind('('));
  // A template's begins with what it returns.
  if (name.starts_with("void ")) name.erase(0, std::string_view("void ").size());
  constexpr std::string_view nameless = "(anonymous namespace)::";
  for (std::size_t at = 0; (at = name.find(nameless)) != name.npos;) name.erase(at, nameless.size());
  return name;
}

}  // namespace gpumap
