// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/kernel.hpp"
#include "kernel/cache/code_cache.hpp"

namespace gpumap {

/// What NVRTC made of a CUDA source.
struct CudaBinary {
  std::string code;      ///< a cubin, or PTX where the architecture is newer than this NVRTC
  std::string function;  ///< the kernel's name
};

/// See compile_cuda.
[[nodiscard]] CudaBinary build_cuda(const KernelSource& source, std::string_view architecture,
                                    CodeCache& cache = CodeCache::of_process());

/// How much of a gpumap_frame the kernels of `source` are compiled with: all, or as much as GPUMAP_SHORT_FRAME has.
[[nodiscard]] std::size_t frame_bytes(const KernelSource& source);

/// The text of what a source may include without any file on disk, as "gpumap/grid.h"; empty: there is none.
[[nodiscard]] std::string_view own_header(std::string_view name) noexcept;
/// The same of GLSL, as "gpumap.glsl".
[[nodiscard]] std::string_view own_glsl(std::string_view name) noexcept;

/// True where `code` may include anything but gpumap's own files.
[[nodiscard]] inline bool includes_others(std::string_view code) {
  constexpr std::string_view directive = "include";
  for (std::size_t at = code.find(directive); at != code.npos; at = code.find(directive, at)) {
    at = code.find_first_not_of(" \t", at + directive.size());
    if (at == code.npos || code[at] != '<') return true;
    const std::string_view name = code.substr(at + 1, code.find('>', at) - at - 1);
    if (own_header(name).empty() && own_glsl(name).empty()) return true;
  }
  return false;
}

/// The texts of the files that a GLSL source includes, without those that come with gpumap.
[[nodiscard]] std::vector<std::string> included_glsl(const KernelSource& source);

/// The same as build_cuda() for a source whose kernels take what they like: the code alone.
[[nodiscard]] std::string build_cuda_module(const KernelSource& source, std::string_view architecture);

/// See compile_glsl.
[[nodiscard]] std::string build_glsl(const KernelSource& source, CodeCache& cache);

/// What a compiler said, without the blank end, and of a long list only the first lines: the rest follows from these.
[[nodiscard]] inline std::string shortened_log(std::string log) {
  constexpr auto max_lines = 40;
  log.erase(std::find_if(log.rbegin(), log.rend(), [](char c) { return c != '\n' && c != '\0'; }).base(), log.end());
  std::size_t end = 0;
  for (int line = 0; line < max_lines && end != log.npos; ++line) end = log.find('\n', end == 0 ? 0 : end + 1);
  if (end == log.npos) return log;
  const auto left_out = std::count(log.begin() + static_cast<std::ptrdiff_t>(end), log.end(), '\n');
  return fmt::format("{}\n({} more lines)", log.substr(0, end), left_out);
}

/// What a SPIR-V module says of one entry point.
struct ShaderInfo {
  std::string function;
  std::array<std::uint32_t, 3> threads{1, 1, 1};  ///< workgroup size
  bool threads_from_constants = false;  ///< specialisation constants 0, 1, 2 set the size (as gpumap.glsl does)
  std::uint64_t shared_bytes = 0;       ///< at least: without padding, and arrays whose length is not a plain constant
};

/// What a loader needs to know of a SPIR-V module.
struct SpirvModule {
  std::vector<ShaderInfo> shaders;          ///< its compute entry points
  std::vector<std::uint32_t> capabilities;  ///< SpvCapability values
  bool uses_descriptors = false;            ///< it declares buffers, images, samplers or uniforms
  std::uint64_t push_constant_bytes = 0;    ///< end of the largest push-constant block; 2^40 where that is unknown
};

/// Validates a module by SPIRV-Tools: a driver may crash on a module that breaks the rules of SPIR-V or of Vulkan.
/// Throws Error(compile) with the cause and the version of SPIRV-Tools.
void check_valid_spirv(std::string_view bytes);

/// Reads a module by SPIRV-Tools. The module is one that check_valid_spirv() takes or that shaderc made. Throws
/// Error(compile).
[[nodiscard]] SpirvModule read_spirv(std::string_view bytes);

/// A module from shaderc, with the capabilities that its constants of 8 and 16 bits need. glslang declares them for
/// arithmetic alone. The optimizer behind it folds conversions into constants and declares nothing: drivers take that,
/// the specification and newer validation layers do not.
[[nodiscard]] std::string with_capabilities_of_constants(std::string spirv);

/// A kernel as PTX declares it.
struct PtxEntry {
  std::string name;
  bool takes_frame = false;  ///< one parameter of the size of gpumap_frame
};

/// The kernels of a PTX text, in order.
[[nodiscard]] std::vector<PtxEntry> ptx_entries(std::string_view ptx);

/// Whether a function is named as C++ does, as in "blur<5>" or "filters::blur", and not as PTX does.
[[nodiscard]] bool is_name_expression(std::string_view function);
/// `ptx` with a line before it that says how the function that was asked for is called in it.
[[nodiscard]] std::string with_lowered_name(std::string_view ptx, std::string_view name);

/// The entry that `source` means: the one named by source.function, or the only one. Throws Error(compile) naming the
/// candidates, or when the kernel does not take one gpumap_frame.
[[nodiscard]] std::string choose_entry(const KernelSource& source, std::string_view ptx);

/// Whether a parameter of `bytes` bytes may be the gpumap_frame of this version, or of one before, which had less at
/// its end: it sees that much of a frame.
[[nodiscard]] bool is_frame_size(std::size_t bytes) noexcept;

/// A driver is handed a cubin's address without its length and reads as far as the headers in it say. Throws
/// Error(compile) where that is beyond the end of `source.code`, or where it is neither a cubin nor a fatbin.
void check_cubin(const KernelSource& source);

}  // namespace gpumap
