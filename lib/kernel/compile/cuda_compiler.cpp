// SPDX-License-Identifier: MIT
#include "kernel/compile/compilers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "device/nvrtc_library.hpp"
#include "device/unique_fd.hpp"
#include "gpumap/error.hpp"
#include "gpumap/file.hpp"
#include "gpumap/result_blocks.hpp"
#include "kernel/cache/code_cache.hpp"
#include "kernel/embedded_sources.hpp"
#include "kernel/resident/source_words.hpp"

namespace gpumap {
namespace {

/// CUDA's run-time compiler, opened at run time. Thread safety: immutable; NVRTC itself takes calls from any thread.
struct Nvrtc {
#define GPUMAP_NVRTC_MEMBER(type, name, ...) type (*name)(__VA_ARGS__) = nullptr;
  GPUMAP_NVRTC_FUNCTIONS(GPUMAP_NVRTC_MEMBER)
#undef GPUMAP_NVRTC_MEMBER
  NvrtcLibrary found;
  std::vector<int> architectures;  ///< 75, 80, ...: what it compiles for, rising
  std::string version;             ///< "13.0"
  std::string identity;            ///< of its file, as identity_of_code() gives it: versions lack the patch level

  /// The process's table. Throws Error(no_driver) saying what is missing; tries again next time.
  [[nodiscard]] static const Nvrtc& get();
};

std::unique_ptr<Nvrtc> open() {
  auto nvrtc = std::make_unique<Nvrtc>();
  nvrtc->found = open_nvrtc();
  if (!nvrtc->found.library) {
    check_descriptors("NVRTC", "opening it");
    throw Error(ErrorCode::no_driver,
                fmt::format("NVRTC not found (looked for {}): install NVRTC (cuda-nvrtc of the CUDA Toolkit), set "
                            "GPUMAP_NVRTC_PATH to its folder, or use a .cubin or .comp kernel",
                            fmt::join(nvrtc->found.looked_in, ", ")));
  }
  const auto load = [&nvrtc](const char* name, auto& function) {
    if (nvrtc->found.library.find(name, function)) return;
    throw Error(ErrorCode::no_driver,
                fmt::format("{} has no {}: gpumap needs NVRTC 11.2 or newer", nvrtc->found.path, name));
  };
#define GPUMAP_NVRTC_LOAD(type, name, ...) load(#name, nvrtc->name);
  GPUMAP_NVRTC_FUNCTIONS(GPUMAP_NVRTC_LOAD)
#undef GPUMAP_NVRTC_LOAD

  int major = 0;
  int minor = 0;
  int count = 0;
  nvrtc->nvrtcVersion(&major, &minor);
  nvrtc->version = fmt::format("{}.{}", major, minor);
  nvrtc->identity = identity_of_code(reinterpret_cast<const void*>(nvrtc->nvrtcVersion));
  if (nvrtc->nvrtcGetNumSupportedArchs(&count) == NVRTC_SUCCESS && count > 0) {
    nvrtc->architectures.resize(static_cast<std::size_t>(count));
    nvrtc->nvrtcGetSupportedArchs(nvrtc->architectures.data());
    std::sort(nvrtc->architectures.begin(), nvrtc->architectures.end());
  }
  return nvrtc;
}

const Nvrtc& Nvrtc::get() {
  static std::mutex mutex;
  // Never closed: another thread may still be compiling while the process exits.
  static const Nvrtc* nvrtc = nullptr;
  const std::lock_guard lock(mutex);
  if (nvrtc == nullptr) nvrtc = open().release();
  return *nvrtc;
}

// What a source may include without any file on disk. The views are zero-terminated: they view string literals.
constexpr auto own_headers = std::to_array<OwnHeader>({
    {"gpumap/kernel.h", embedded::kernel_h},
    {"gpumap/grid.h", embedded::grid_h},
    {"gpumap/sample_format.h", embedded::sample_format_h},
    {"gpumap/samples.h", embedded::samples_h},
    {"gpumap/bayer.h", embedded::bayer_h},
    {"gpumap/components.h", embedded::components_h},
    {"gpumap/color.h", embedded::color_h},
    {"gpumap/pixels.h", embedded::pixels_h},
    {"gpumap/sums.h", embedded::sums_h},
    {"gpumap/taps.h", embedded::taps_h},
    {"gpumap/tensors.h", embedded::tensors_h},
    {"gpumap/words.h", embedded::words_h},
    {"gpumap/radio.h", embedded::radio_h},
    {"gpumap/spectrum.h", embedded::spectrum_h},
    {"gpumap/turn.h", embedded::turn_h},
    {"gpumap/resident.h", embedded::resident_h},
});

class Compilation {
 public:
  Compilation(const Nvrtc& nvrtc, const KernelSource& source) : nvrtc_(nvrtc), name_(source.name) {
    std::array<const char*, own_headers.size()> names{};
    std::array<const char*, own_headers.size()> texts{};
    for (std::size_t i = 0; i < own_headers.size(); ++i) {
      names[i] = own_headers[i].first.data();
      texts[i] = own_headers[i].second.data();
    }
    check(nvrtc_.nvrtcCreateProgram(&program_, source.code.c_str(), source.name.c_str(), static_cast<int>(names.size()),
                                    texts.data(), names.data()));
  }
  ~Compilation() { nvrtc_.nvrtcDestroyProgram(&program_); }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  /// Have what `function` names in C++ made, too; before compile().
  void ask_for(const std::string& function) { check(nvrtc_.nvrtcAddNameExpression(program_, function.c_str())); }
  /// And how that is called in the PTX; behind compile().
  [[nodiscard]] std::string lowered_name(const std::string& function) const {
    const char* name = nullptr;
    check(nvrtc_.nvrtcGetLoweredName(program_, function.c_str(), &name));
    return name;
  }

  void compile(const std::vector<std::string>& options) {
    std::vector<const char*> words;
    for (const std::string& option : options) words.push_back(option.c_str());
    const nvrtcResult result = nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(words.size()), words.data());
    if (result == NVRTC_SUCCESS) return;
    std::size_t size = 0;
    std::string log;
    if (nvrtc_.nvrtcGetProgramLogSize(program_, &size) == NVRTC_SUCCESS) {
      log.resize(size);
      nvrtc_.nvrtcGetProgramLog(program_, log.data());
    }
    throw Error(ErrorCode::compile,
                fmt::format("kernel {} does not compile (NVRTC {}, {}): {}\n{}", name_, nvrtc_.version, options.front(),
                            nvrtc_.nvrtcGetErrorString(result), shortened_log(std::move(log))));
  }

  [[nodiscard]] std::string ptx() const { return output(nvrtc_.nvrtcGetPTXSize, nvrtc_.nvrtcGetPTX); }
  [[nodiscard]] std::string cubin() const { return output(nvrtc_.nvrtcGetCUBINSize, nvrtc_.nvrtcGetCUBIN); }

 private:
  template <typename Size, typename Get>
  [[nodiscard]] std::string output(Size size_of, Get get) const {
    std::size_t size = 0;
    check(size_of(program_, &size));
    std::string bytes(size, '\0');
    check(get(program_, bytes.data()));
    return bytes;
  }

  void check(nvrtcResult result) const {
    if (result == NVRTC_SUCCESS) return;
    throw Error(ErrorCode::compile,
                fmt::format("kernel {}: NVRTC {}: {}", name_, nvrtc_.version, nvrtc_.nvrtcGetErrorString(result)));
  }

  const Nvrtc& nvrtc_;
  std::string name_;
  nvrtcProgram program_ = nullptr;
};

int parse_architecture(std::string_view text) {
  constexpr std::string_view prefix = "sm_";
  int number = 0;
  if (text.starts_with(prefix)) {
    const std::string_view digits = text.substr(prefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc{} && end == digits.data() + digits.size() && number > 0) return number;
  }
  throw Error(ErrorCode::invalid,
              fmt::format("architecture '{}': write sm_ and the compute capability, as sm_90", text));
}

/// The folders of a user's own headers and of the toolkit's (cuda_fp16.h and the like are files, not built in).
std::vector<std::string> include_options(const KernelSource& source) {
  std::vector<std::filesystem::path> folders = source.include_folders;
  if (std::error_code ignored; std::filesystem::is_regular_file(source.name, ignored)) {
    const std::filesystem::path folder = std::filesystem::path(source.name).parent_path();
    folders.push_back(folder.empty() ? "." : folder);
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) folders.push_back(std::filesystem::path(root) / "include");
  }
  folders.emplace_back("/usr/local/cuda/include");
  std::vector<std::string> options;
  for (const std::filesystem::path& folder : folders) options.push_back("--include-path=" + folder.string());
  return options;
}

/// Looks at the files of a user's own that a source includes: NVRTC would open a pipe among them, and wait for ever for
/// a writer. It does not look where a macro has the name.
class IncludedFiles {
 public:
  /// Throws Error(compile) for a pipe or a device.
  static void check(const KernelSource& source) {
    if (includes_others(source.code)) {
      IncludedFiles(source).read(source.code, std::filesystem::path(source.name).parent_path());
    }
  }

 private:
  explicit IncludedFiles(const KernelSource& source) : source_(source) {}

  void read(const std::string& code, const std::filesystem::path& folder) {
    const SourceWords words(code);
    for (const SourceWord& word : words.all()) {
      if (!word.directive || word.quoted || word.text != "include") continue;
      const std::optional<IncludedName> file = IncludedName::read(words.behind(word));
      if (!file || !own_header(file->name).empty()) continue;
      for (const std::filesystem::path& one : file->folders(source_, folder)) {
        if (found(one / file->name)) break;
      }
    }
  }

  bool found(const std::filesystem::path& path) {
    std::error_code ignored;
    const std::filesystem::file_status status = std::filesystem::status(path, ignored);
    if (!std::filesystem::exists(status) || std::filesystem::is_directory(status)) return false;
    if (!std::filesystem::is_regular_file(status)) {
      throw Error(ErrorCode::compile,
                  fmt::format("kernel {}: {}, which it includes, is a pipe or a device: give a file", source_.name,
                              path.string()));
    }
    if (files_.size() == most_files || !files_.insert(path.lexically_normal()).second) return true;
    std::ifstream file(path);
    if (const std::optional<std::string> code = read_to_end(file)) read(*code, path.parent_path());
    return true;
  }

  static constexpr std::size_t most_files = 1000;
  const KernelSource& source_;
  std::set<std::filesystem::path> files_;
};

/// True where the source shows that the kernel names nothing that GPUMAP_SHORT_FRAME leaves out of gpumap_frame.
bool takes_short_frame(const KernelSource& source) {
  constexpr std::array fields{"gpumap_param_", "numbers",      "tables",   "past",
                              "given",         "result_words", "_tensors", "out_color"};
  return std::none_of(fields.begin(), fields.end(),
                      [&source](std::string_view field) { return ResultBlocks::may_name(source, field); });
}

struct Built {
  Compiled compiled;
  bool exact;  ///< for the architecture itself: else it is PTX
};

Built build(const KernelSource& source, std::string_view architecture, CodeCache& cache) {
  if (source.language != Language::cuda) {
    throw Error(ErrorCode::invalid, fmt::format("kernel {}: not CUDA C++: nothing to compile", source.name));
  }
  const Nvrtc& nvrtc = Nvrtc::get();
  const int wanted = parse_architecture(architecture);
  // PTX of an older architecture runs on every newer GPU: the driver compiles it at load.
  const auto above = std::upper_bound(nvrtc.architectures.begin(), nvrtc.architectures.end(), wanted);
  if (above == nvrtc.architectures.begin()) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {}: NVRTC {} compiles for {} only, not for {}: point GPUMAP_NVRTC_PATH at an older "
                            "CUDA Toolkit, or use a Vulkan kernel",
                            source.name, nvrtc.version, fmt::join(nvrtc.architectures, ", "), architecture));
  }
  const int chosen = *std::prev(above);
  const bool exact = chosen == wanted;

  std::vector<std::string> options{
      fmt::format("--gpu-architecture={}_{}", exact ? "sm" : "compute", chosen),
      "--std=c++17",
      "--device-as-default-execution-space",
      "--restrict",
      "--generate-line-info",
  };
  for (const std::string& define : source.defines) options.push_back("--define-macro=" + define);
  if (takes_short_frame(source)) options.emplace_back("--define-macro=GPUMAP_SHORT_FRAME");
  for (std::string& option : include_options(source)) options.push_back(std::move(option));

  const bool by_expression = is_name_expression(source.function);
  CacheKey key;
  key.add_compiler(nvrtc.identity);
  key.add(by_expression ? source.function : std::string());
  key.add(nvrtc.version);
  for (const std::string& option : options) key.add(option);
  key.add_source(source.name, source.code, own_headers);
  Compiled compiled = cache.get(key, [&]() -> Compiled {
    IncludedFiles::check(source);
    Compilation program(nvrtc, source);
    if (by_expression) program.ask_for(source.function);
    program.compile(options);
    std::string ptx = program.ptx();
    while (!ptx.empty() && ptx.back() == '\0') ptx.pop_back();
    if (by_expression) ptx = with_lowered_name(ptx, program.lowered_name(source.function));
    if (!exact) return {.code = std::move(ptx), .listing = {}};
    return {.code = program.cubin(), .listing = std::move(ptx)};
  });
  return {std::move(compiled), exact};
}

}  // namespace

std::size_t frame_bytes(const KernelSource& source) {
  return takes_short_frame(source) ? offsetof(gpumap_frame, numbers) : sizeof(gpumap_frame);
}

std::string_view own_header(std::string_view name) noexcept {
  const auto* found = std::ranges::find(own_headers, name, &OwnHeader::first);
  return found == own_headers.end() ? std::string_view() : found->second;
}

CudaBinary build_cuda(const KernelSource& source, std::string_view architecture, CodeCache& cache) {
  auto [compiled, exact] = build(source, architecture, cache);
  std::string function = choose_entry(source, exact ? compiled.listing : compiled.code);
  return {.code = std::move(compiled.code), .function = std::move(function)};
}

std::string build_cuda_module(const KernelSource& source, std::string_view architecture) {
  return build(source, architecture, CodeCache::of_process()).compiled.code;
}

std::string compile_cuda(const KernelSource& source, std::string_view architecture) {
  return build_cuda(source, architecture).code;
}

}  // namespace gpumap
