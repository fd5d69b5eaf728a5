// SPDX-License-Identifier: MIT
#include "kernel/compile/compilers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <shaderc/shaderc.hpp>
#include <string>
#include <string_view>

#include "gpumap/error.hpp"
#include "gpumap/file.hpp"
#include "kernel/embedded_sources.hpp"

namespace gpumap {
namespace {

constexpr std::array<OwnHeader, 12> memory_files{{
    {"gpumap.glsl", embedded::gpumap_glsl},
    {"gpumap_sample_format.glsl", embedded::sample_format_h},
    {"gpumap_samples.glsl", embedded::samples_h},
    {"gpumap_bayer.glsl", embedded::bayer_h},
    {"gpumap_components.glsl", embedded::components_h},
    {"gpumap_color.glsl", embedded::color_h},
    {"gpumap_pixels.glsl", embedded::pixels_h},
    {"gpumap_sums.glsl", embedded::gpumap_sums_glsl},
    {"gpumap_taps.glsl", embedded::taps_h},
    {"gpumap_tensors.glsl", embedded::gpumap_tensors_glsl},
    {"gpumap_words.glsl", embedded::gpumap_words_glsl},
    {"gpumap_radio.glsl", embedded::gpumap_radio_glsl},
}};

bool is_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// What may be an entry point: a void function without parameters. By hand, as has_version().
std::set<std::string> functions_of(std::string_view code) {
  std::set<std::string> names;
  std::array<std::string_view, 4> before;  // words and signs, the last one at the end
  while (!code.empty()) {
    const auto word_end = static_cast<std::size_t>(std::ranges::find_if_not(code, is_of_word) - code.begin());
    const std::string_view one = code.substr(0, std::max<std::size_t>(word_end, 1));
    code.remove_prefix(one.size());
    if (std::isspace(static_cast<unsigned char>(one[0])) != 0) continue;
    if (one == ")") {
      const std::size_t opened = before[3] == "void" ? 2 : 3;
      const std::string_view name = before[opened - 1];
      if (before[opened] == "(" && before[opened - 2] == "void" && is_of_word(name[0])) names.emplace(name);
    }
    std::rotate(before.begin(), before.begin() + 1, before.end());
    before.back() = one;
  }
  if (names.empty()) names.insert("no void function without parameters");
  return names;
}

/// #include <name> from memory; #include "name" beside the file that includes it.
class Includer : public shaderc::CompileOptions::IncluderInterface {
 public:
  explicit Includer(std::vector<std::filesystem::path> folders) : folders_(std::move(folders)) {}

  shaderc_include_result* GetInclude(const char* requested, shaderc_include_type type, const char* requesting,
                                     std::size_t depth) override {
    // shaderc sees a failure as an empty name with a message for content.
    auto* answer = new Answer;
    // A file that includes itself twice would, however shallow, take time without end.
    if (depth > deepest || ++included_ > max_included) {
      answer->content = "too many files";
      exceeded_ = true;
    } else if (type == shaderc_include_type_standard) {
      // A name in quotes is asked for here too when no such file was found beside the one that includes it.
      answer->content =
          "neither comes with gpumap, as <gpumap.glsl> does, nor lies beside the including file or in an include path";
      if (const std::string_view text = own_glsl(requested); !text.empty()) {
        answer->name = fmt::format("<{}>", requested);
        answer->content = text;
      }
      for (const std::filesystem::path& folder : folders_) {
        if (answer->name.empty()) read(folder / requested, *answer);
      }
    } else {
      read(std::filesystem::path(requesting).parent_path() / requested, *answer);
    }
    answer->view = {answer->name.c_str(), answer->name.size(), answer->content.c_str(), answer->content.size(), answer};
    return &answer->view;
  }

  void ReleaseInclude(shaderc_include_result* view) override { delete static_cast<Answer*>(view->user_data); }

  /// Throws Error(compile) where more were asked for than it gives. It counts anew from here on.
  void check(const KernelSource& source) {
    included_ = 0;
    if (!exceeded_) return;
    throw Error(
        ErrorCode::compile,
        fmt::format("kernel {}: its files include one another more than {} deep, or {} in all: does one include "
                    "itself?",
                    source.name, deepest, max_included));
  }
  /// What it read of files.
  [[nodiscard]] const std::vector<std::string>& texts() const noexcept { return texts_; }

 private:
  struct Answer {
    std::string name;
    std::string content;
    shaderc_include_result view{};
  };

  void read(const std::filesystem::path& path, Answer& answer) {
    // Looked at first: to open a pipe waits for who writes into it.
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) return;
    std::ifstream file(path, std::ios::binary);
    std::optional<std::string> content = read_to_end(file);
    if (!content) return;
    answer.name = path.string();
    answer.content = *std::move(content);
    texts_.push_back(answer.content);
  }

  static constexpr std::size_t deepest = 64;
  static constexpr std::size_t max_included = 1000;
  std::vector<std::filesystem::path> folders_;
  std::vector<std::string> texts_;
  std::size_t included_ = 0;
  bool exceeded_ = false;
};

/// Whether a line begins with the directive. By hand: std::regex needs the stack for each character of a long line.
bool has_version(std::string_view code) {
  constexpr std::string_view blanks = " \t", word = "version";
  const auto skip_blanks = [&] { code.remove_prefix(std::min(code.find_first_not_of(blanks), code.size())); };
  for (;;) {
    skip_blanks();
    if (code.starts_with('#')) {
      code.remove_prefix(1);
      skip_blanks();
      if (code.starts_with(word)) {
        code.remove_prefix(word.size());
        if (code.empty() || !is_of_word(code[0])) return true;
      }
    }
    const std::size_t end = code.find('\n');
    if (end == code.npos) return false;
    code.remove_prefix(end + 1);
  }
}

/// Without a #version a compiler takes the source for a language of another time and stumbles over each line of
/// gpumap.glsl.
void check_version(const KernelSource& source) {
  if (has_version(source.code)) return;
  throw Error(ErrorCode::compile,
              fmt::format("kernel {}: no #version in it: begin it with the line #version 460", source.name));
}

/// What is compiled: without comments and what an #if leaves out, and with what macros and included files make. The
/// file as it is where the compiler cannot tell, which it then says itself.
std::string preprocessed(const KernelSource& source, const shaderc::Compiler& compiler,
                         const shaderc::CompileOptions& options) {
  const shaderc::PreprocessedSourceCompilationResult made = compiler.PreprocessGlsl(
      source.code.data(), source.code.size(), shaderc_compute_shader, source.name.c_str(), options);
  if (made.GetCompilationStatus() != shaderc_compilation_status_success) return source.code;
  return {made.begin(), made.end()};
}

/// Throws Error(compile) where `code`, that of `source`, has no such function: a main of its own would run instead.
void check_function(const std::string& function, const KernelSource& source, std::string_view code) {
  const std::set<std::string> there = functions_of(code);
  if (there.contains(function)) return;
  throw Error(ErrorCode::compile, fmt::format("kernel {}: no function '{}' in it", source.name, function),
              fmt::format("it has {}", fmt::join(there, ", ")));
}

/// The function that becomes main; empty where that is the one.
std::string renamed_to_main(const KernelSource& source) {
  return source.function == "main" ? std::string() : source.function;
}

// As it was when this process loaded it: libgpumap itself where shaderc is linked into that.
const auto& shaderc_identity =
    *new std::string(identity_of_code(reinterpret_cast<const void*>(&shaderc_compiler_initialize)));

/// Sets `options`, which own what is returned.
Includer& take_options(const KernelSource& source, shaderc::CompileOptions& options) {
  options.SetTargetEnvironment(shaderc_target_env_vulkan, shaderc_env_version_vulkan_1_2);
  options.SetOptimizationLevel(shaderc_optimization_level_performance);
  auto owned = std::make_unique<Includer>(source.include_folders);
  Includer& includer = *owned;
  options.SetIncluder(std::move(owned));
  for (const std::string& define : source.defines) {
    const std::size_t equals = std::min(define.find('='), define.size());
    options.AddMacroDefinition(define.substr(0, equals), equals == define.size() ? "1" : define.substr(equals + 1));
  }
  return includer;
}

std::string run_shaderc(const KernelSource& source) {
  check_version(source);
  shaderc::CompileOptions options;
  Includer& includer = take_options(source, options);
  const shaderc::Compiler compiler;
  if (const std::string function = renamed_to_main(source); !function.empty()) {
    const std::string code = preprocessed(source, compiler, options);
    includer.check(source);
    check_function(function, source, code);
    // GLSL knows no entry point but main.
    options.AddMacroDefinition(function, "main");
  }
  const shaderc::SpvCompilationResult result = compiler.CompileGlslToSpv(
      source.code.data(), source.code.size(), shaderc_compute_shader, source.name.c_str(), "main", options);
  includer.check(source);
  if (result.GetCompilationStatus() != shaderc_compilation_status_success) {
    const std::string log = result.GetErrorMessage();
    throw Error(ErrorCode::compile,
                fmt::format("kernel {} does not compile (shaderc):\n{}", source.name,
                            log.empty() ? "the compiler does not say why, as where no memory is left for it: raise "
                                          "ulimit -v, or end what takes the memory"
                                        : shortened_log(log)));
  }
  return with_capabilities_of_constants(
      {reinterpret_cast<const char*>(result.begin()), reinterpret_cast<const char*>(result.end())});
}

}  // namespace

std::string_view own_glsl(std::string_view name) noexcept {
  const auto* found = std::ranges::find(memory_files, name, &OwnHeader::first);
  return found == memory_files.end() ? std::string_view() : found->second;
}

std::vector<std::string> included_glsl(const KernelSource& source) {
  shaderc::CompileOptions options;
  const Includer& includer = take_options(source, options);
  static_cast<void>(preprocessed(source, shaderc::Compiler(), options));
  return includer.texts();
}

std::string build_glsl(const KernelSource& source, CodeCache& cache) {
  if (source.language != Language::glsl) {
    throw Error(ErrorCode::invalid, fmt::format("kernel {}: not GLSL: nothing to compile", source.name));
  }
  CacheKey key;  // the options are the same for all: they change with the build of gpumap, which is in every key
  key.add_compiler(shaderc_identity);
  key.add("glsl");
  key.add(renamed_to_main(source));
  for (const std::string& define : source.defines) key.add(define);
  for (const std::filesystem::path& folder : source.include_folders) key.add("-I" + folder.string());
  key.add_source(source.name, source.code, memory_files);
  return cache.get(key, [&]() -> Compiled { return {.code = run_shaderc(source), .listing = {}}; }).code;
}

std::string compile_glsl(const KernelSource& source) {
  return build_glsl(source, CodeCache::of_process());
}

}  // namespace gpumap
