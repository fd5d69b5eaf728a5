// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/kernel.h"
#include "gpumap/queue.hpp"

namespace gpumap {

enum class Language { cuda, ptx, cubin, glsl, spirv };

/// What those have to know who plan, name or refuse a kernel.
struct BackendTraits {
  Backend backend;
  const char* value;   ///< as a property or an option names it
  Language source;     ///< of the built-ins
  const char* files;   ///< that it runs, for people
  const char* remedy;  ///< where a device lacks it
  bool stays;          ///< it can keep a kernel on the GPU
  bool shares;         ///< its queues have a priority and a share of the GPU
};
/// In the order of Backend.
inline constexpr std::array backends{
    BackendTraits{.backend = Backend::cuda,
                  .value = "cuda",
                  .source = Language::cuda,
                  .files = ".cu, .ptx or .cubin",
                  .remedy = "install the NVIDIA driver",
                  .stays = true,
                  .shares = true},
    BackendTraits{.backend = Backend::vulkan,
                  .value = "vulkan",
                  .source = Language::glsl,
                  .files = ".comp or .spv",
                  .remedy = "install a Vulkan driver for it",
                  .stays = false,
                  .shares = false},
};
static_assert([] {
  for (std::size_t i = 0; i < backends.size(); ++i) {
    if (static_cast<std::size_t>(backends[i].backend) != i) return false;
  }
  return true;
}());
[[nodiscard]] constexpr const BackendTraits& traits_of(Backend backend) noexcept {
  return backends[static_cast<std::size_t>(backend)];
}
[[nodiscard]] constexpr const char* value_name(Backend backend) noexcept {
  return traits_of(backend).value;
}
[[nodiscard]] constexpr Backend backend_of(Language language) noexcept {
  return language == Language::glsl || language == Language::spirv ? Backend::vulkan : Backend::cuda;
}

/// A kernel before compilation.
struct KernelSource {
  Language language = Language::cuda;
  std::string name;  ///< file or built-in name, for messages
  std::string code;  ///< text, or the bytes of a .ptx, .cubin or .spv
  /// Entry point; of CUDA C++ also as in "blur<5>" or "filters::blur", which need not be extern "C". Empty: "main" of a
  /// shader, the only kernel of a CUDA file. A .comp may have functions of any names
  /// and no main: the one asked for is compiled as main.
  std::string function;
  std::vector<std::string> defines;                    ///< "NAME" or "NAME=value"; for .cu and .comp
  std::vector<std::filesystem::path> include_folders;  ///< where .cu and .comp find what they include
  std::array<std::uint32_t, 3> block{};                ///< threads of a block; 0: chosen
  std::array<std::uint32_t, 3> grid{};                 ///< blocks; 0: as many as give every output item a thread
  Work work = Work::item;                              ///< what the grid that is chosen has a thread for
  std::uint32_t shared_bytes = 0;                      ///< dynamic shared memory of a block; CUDA
};

/// Read a .cu, .ptx, .cubin, .comp or .spv file; the extension tells the language. Throws Error(io | invalid).
[[nodiscard]] GPUMAP_API KernelSource load_kernel_file(const std::filesystem::path& path, std::string function = {});

/// Block, grid, work and shared memory as `declaration` has them.
GPUMAP_API void declare_launch(KernelSource& source, const Declaration& declaration);

class Program;

/// One of the kernels that a built-in launches.
struct KernelText {
  std::string_view name;
  std::string_view cuda;  ///< source text
  std::string_view glsl;  ///< source text
};

/// A kernel that comes with gpumap, in CUDA C++ and in GLSL. Its sources say of it what those of a user's say, in lines
/// "// gpumap:", which are the same in both languages.
struct Builtin {
  std::string_view name;
  std::string_view cuda;  ///< source text
  std::string_view glsl;  ///< source text
  /// For one that is more than a kernel on its own. Throws as Kernel::load.
  std::unique_ptr<Program> (*make_program)(const std::shared_ptr<Device>& device, Backend backend) = nullptr;
  /// What such a one launches where that is several; the one of them whose lines declare is `cuda` and `glsl`.
  std::span<const KernelText> kernels{};
};
[[nodiscard]] GPUMAP_API std::span<const Builtin> builtins() noexcept;
[[nodiscard]] GPUMAP_API const Builtin* find_builtin(std::string_view name) noexcept;
/// What its sources declare: parsed anew with each call.
[[nodiscard]] GPUMAP_API Declaration declaration_of(const Builtin& builtin);
/// With the launch that it declares.
[[nodiscard]] GPUMAP_API KernelSource source_of(const Builtin& builtin, Backend backend);
[[nodiscard]] GPUMAP_API KernelSource source_of(const KernelText& kernel, Backend backend);

/// Parse "gain=2.5,taps=[1,2,3],other[1]=5"; the last one is named "other[1]". Throws Error(invalid) naming the
/// position. At most GPUMAP_MAX_PARAMS numbers, each a finite double or a whole number of 64 bits.
using NamedNumbers = std::vector<std::pair<std::string, std::vector<Number>>>;
[[nodiscard]] GPUMAP_API NamedNumbers parse_parameters(std::string_view text);
/// The inverse.
[[nodiscard]] GPUMAP_API std::string format_parameters(const NamedNumbers& parameters);
/// Lay named values, and numbers of lists as "taps[1]=2", out for a built-in over its initial values. Throws
/// Error(invalid) for an unknown name, a wrong count or a number that is not of its type, and then leaves `params`
/// alone.
GPUMAP_API void apply_parameters(const Builtin& builtin, std::string_view text,
                                 std::span<double, GPUMAP_MAX_PARAMS> params);
/// The same for a kernel that gets them as they are: to the nearest float each.
GPUMAP_API void apply_parameters(const Builtin& builtin, std::string_view text,
                                 std::span<float, GPUMAP_MAX_PARAMS> params);

/// Compile without a GPU, or take what was compiled before from the user's cache. `architecture` is "sm_90"; the result
/// is a cubin, or PTX for an architecture newer than NVRTC knows. Throws Error(compile) with NVRTC's log,
/// Error(no_driver) where NVRTC is missing, Error(not_supported) for an architecture older than it knows.
[[nodiscard]] GPUMAP_API std::string compile_cuda(const KernelSource& source, std::string_view architecture);
/// GLSL to SPIR-V, from the cache likewise. Throws Error(compile) with the compiler's log.
[[nodiscard]] GPUMAP_API std::string compile_glsl(const KernelSource& source);

/// A kernel loaded on a device. Thread safety: immutable after load.
class GPUMAP_API Kernel {
 public:
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  /// Compile where needed and load. Throws Error(compile | no_driver | not_supported | device_lost).
  [[nodiscard]] static std::shared_ptr<Kernel> load(const std::shared_ptr<Device>& device, const KernelSource& source);

  [[nodiscard]] virtual Backend backend() const noexcept = 0;
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  /// A grid that gives every output item a thread: 2-D over pixels for video, 1-D over samples or bytes otherwise.
  /// There may be more threads than items. A Vulkan driver may limit a row of workgroups: a long 1-D grid then goes on
  /// in y, and gpumap_thread() of gpumap.glsl counts through.
  [[nodiscard]] virtual Grid grid_for(const gpumap_frame& frame) const = 0;
};

/// How video components relate to red, green and blue.
enum class ColorMatrix { bt601, bt709, bt2020, smpte240m, fcc, rgb };

/// What 8-bit values mean black and white: 16 to 235 (chroma 16 to 240), or 0 to 255. In 10 bits limited values are
/// four times as large, full ones go to 1023, and so on.
enum class ColorRange { limited, full };

/// The conversion from components of `bits` (8 to 16) to red, green and blue of 0 to 255 that `convert` applies: see
/// gpumap_color.
[[nodiscard]] GPUMAP_API gpumap_color color_matrix(ColorMatrix matrix, ColorRange range, unsigned bits = 8) noexcept;

/// The other way around: red, green and blue of 0 to 255 to components of `bits`, as gpumap_frame::out_color.
[[nodiscard]] GPUMAP_API gpumap_color color_from_rgb(ColorMatrix matrix, ColorRange range, unsigned bits = 8) noexcept;

/// What the built-in kernel `checksum` leaves in result word 0, computed by the CPU: the sum modulo 2^64 of
/// mix64(word[i] + (i + 1) * 0x9E3779B97F4A7C15) over little-endian 64-bit words, the last one padded with zeros, plus
/// mix64(bytes). mix64 is the finaliser of SplitMix64. Being a sum it needs no order, and yet a word that moved, a
/// repeated word and a lost tail all change it. Not cryptographic.
/// Thread safety: any thread.
[[nodiscard]] GPUMAP_API std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace gpumap
