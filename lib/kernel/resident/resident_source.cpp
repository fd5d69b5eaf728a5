// SPDX-License-Identifier: MIT
#include "kernel/resident/resident_source.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/file.hpp"
#include "kernel/compile/compilers.hpp"
#include "kernel/load_kernel.hpp"
#include "kernel/resident/source_words.hpp"
#include "kernel/resident/waiting_functions.hpp"
#include "queue/queues.hpp"

namespace gpumap {
namespace {

struct Refusal {
  std::string_view word;
  std::string_view why;
};
constexpr std::string_view past_caches =
    "it reads past the caches' order, for what nobody writes while a kernel runs: use plain loads";
constexpr std::string_view asks_for_block =
    "it asks the GPU for its block, and that runs many of the frame's: use blockIdx and gridDim";
// What the compiler takes, and the GPU would never come back from or do otherwise: parts of words of C++.
constexpr std::array<Refusal, 8> refusals{{
    {"this_grid", "it waits for all blocks of its grid, which run one after the other here"},
    {"grid_group", "it waits for all blocks of its grid, which run one after the other here"},
    {"this_cluster", "it uses block clusters, and blocks run one after the other here"},
    {"__cluster", "it uses block clusters, and blocks run one after the other here"},
    {"<<<", "it launches kernels itself, which run when this one has ended"},
    {"__ldg", past_caches},
    {"sreg_ctaid", asks_for_block},
    {"sreg_nctaid", asks_for_block},
}};
/// Whole words of PTX.
constexpr std::array<Refusal, 7> ptx_refusals{{
    {"ctaid", asks_for_block},
    {"nctaid", asks_for_block},
    {"clusterid", asks_for_block},
    {"nclusterid", asks_for_block},
    {"setmaxnreg", "its threads would have so many registers for later frames, too"},
    {"nc", past_caches},
    {"ldu", past_caches},
}};

/// Such words, whole: of C++, and of PTX.
constexpr std::array<std::string_view, 19> waits{
    "sync",     "cub",       "cooperative_groups", "barrier",         "bar",
    "wait",     "wait_for",  "wait_until",         "wait_parity",     "arrive_and_wait",
    "try_wait", "test_wait", "try_wait_for",       "try_wait_parity", "consumer_wait",
    "__any",    "__all",     "__ballot",           "__shfl",
};
constexpr std::array<std::string_view, 10> ptx_waits{
    "sync", "bar", "barrier", "mbarrier", "wait", "try_wait", "test_wait", "vote", "shfl", "elect",
};

/// It waits for the threads of a block or a warp, or names something of a library that does.
bool is_wait(std::string_view word) noexcept {
  return std::ranges::find(waits, word) != waits.end() || word.starts_with("__sync") || word.ends_with("_sync") ||
         word.starts_with("__shfl_") || word.starts_with("__nvvm") || word.starts_with("__pipeline_wait") ||
         word.starts_with("__barrier_sync");
}

bool is_ptx_wait(std::string_view word) noexcept {
  return std::ranges::find(ptx_waits, word) != ptx_waits.end();
}

/// A word of which `part` is a part may be an end or a wait: macros that put words together (##) hide what they make.
bool may_hide(std::string_view part) noexcept {
  constexpr std::array<std::string_view, 10> others{
      "return",     "goto",  "asm",     "__asm__",    "__syncthreads",
      "__syncwarp", "_sync", "__shfl_", "__nvvm_bar", "__pipeline_wait",
  };
  const auto has = [part](std::string_view word) { return word.find(part) != word.npos; };
  return std::ranges::any_of(others, has) || std::ranges::any_of(waits, has) ||
         std::ranges::any_of(refusals, has, &Refusal::word);
}

/// `text` of asm(), as words of PTX.
std::vector<std::string_view> ptx_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_of_name(text[end])) ++end;
    if (end > at) words.push_back(text.substr(at, end - at));
    at = std::max(end, at + 1);
  }
  return words;
}

/// Of the threads or registers of a kernel, which the loop around it does not have.
bool is_limit(std::string_view word) noexcept {
  return word == "__launch_bounds__" || word == "__maxnreg__" || word == "__block_size__";
}

bool is_asm(std::string_view word) noexcept {
  return word == "asm" || word == "__asm" || word == "__asm__";
}

/// What the asm at word `at` hands to the assembler: its strings joined. Nothing: it is not in quotes there, as where a
/// macro names asm() otherwise, or not in plain letters.
std::optional<std::string> asm_text(const std::vector<SourceWord>& words, std::size_t at) {
  constexpr std::array<std::string_view, 5> kinds{"volatile", "__volatile", "__volatile__", "inline", "goto"};
  std::string made;
  const bool directive = words[at].directive;
  do ++at;
  while (at < words.size() && std::ranges::find(kinds, words[at].text) != kinds.end());
  if (at == words.size() || words[at].text != "(" || words[at].directive != directive) return {};
  for (++at; at < words.size(); ++at) {
    const SourceWord& word = words[at];
    if (!word.quoted) {
      if (word.text == ":" || word.text == ")") return made;
      if (word.text == "R") continue;  // a raw string
      return {};
    }
    for (std::size_t i = 0; i < word.text.size(); ++i) {
      if (word.text[i] != '\\') {
        made += word.text[i];
      } else if (++i < word.text.size() && std::string_view("ntr").find(word.text[i]) != std::string_view::npos) {
        made += ' ';
      } else {
        return {};
      }
    }
  }
  return made;
}

/// How threads of a kernel end before others of their block, and what waits for these: in a launch it does not wait for
/// those that ended, but where the kernel stays they are still there. Whether one can come before the other no search
/// of a text can tell, through functions, macros and loops: so both may not be in one file.
struct EarlyEnd {
  std::string by;    ///< "return"; empty: none
  std::string wait;  ///< "__syncthreads"; empty: none
};

/// Headers of CUDA's by which no thread waits or ends.
constexpr std::array<std::string_view, 10> plain_headers{
    "cuda_fp16.h",      "cuda_bf16.h", "cuda_fp8.h", "cuda_runtime.h", "vector_types.h",
    "math_constants.h", "cuComplex.h", "mma.h",      "stdint.h",       "cstdint",
};

/// Reads a source, its defines, and what it includes.
class Search {
 public:
  explicit Search(const KernelSource& source) : source_(source) {
    read_all();
    if (functions_.is_left_early() && found_.by.empty()) found_.by = "return";
    if (unknown_ == pasted && found_.by.empty() && found_.wait.empty()) found_ = {unknown_, unknown_};
    if (!unknown_.empty() && found_.by.empty() != found_.wait.empty()) {
      (found_.by.empty() ? found_.by : found_.wait) = unknown_;
    }
  }
  [[nodiscard]] const EarlyEnd& found() const noexcept { return found_; }
  /// Null: none.
  [[nodiscard]] const Refusal* refusal() const noexcept { return refusal_; }
  /// "__launch_bounds__", or another limit of what the compiler makes; empty: none stands anywhere.
  [[nodiscard]] const std::string& limit() const noexcept { return limit_; }
  /// An end that an asm() has, which no loop survives; empty: none.
  [[nodiscard]] const std::string& exit() const noexcept { return exit_; }

 private:
  void read_all() {
    for (const std::string& define : source_.defines) {
      std::string line = define;
      if (const std::size_t equals = line.find('='); equals != line.npos) line[equals] = ' ';
      read("#define " + line + "\n", {});
    }
    const std::filesystem::path file = source_.name;
    read(source_.code, file.parent_path());
  }
  void read(const std::string& code, const std::filesystem::path& folder) {
    const SourceWords read(code);
    const std::vector<SourceWord>& words = read.all();
    std::size_t macro = 0;  // the `define` of a line that pastes
    WaitingFunctions::Reader functions(functions_, read);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto& [text, quoted, directive] = words[i];
      if (quoted) continue;
      refuse(refusals, [word = text](std::string_view part) { return word.find(part) != word.npos; });
      if (is_limit(text) && limit_.empty()) limit_ = text;
      if (directive && text == "define") macro = i;
      if (directive && (text == "##" || text == "%:%:") && pastes(read, macro, i)) unknown_ = pasted;
      const std::string_view next = i + 1 < words.size() ? words[i + 1].text : std::string_view();
      // A kernel returns nothing: `return;` is one's, or a function's that is like it, wherever macros put it. Only
      // other functions and lambdas return values: WaitingFunctions looks at each of these.
      const bool returns = text == "return" && (next == ";" || directive);
      if ((returns || text == "goto") && found_.by.empty()) found_.by = text;
      const bool waiting = is_wait(text) && !is_variable(read, i);
      if (waiting && found_.wait.empty()) found_.wait = text;
      functions.see(i, waiting || (is_asm(text) && read_asm(asm_text(words, i))));
      if (directive && (text == "include" || text == "include_next" || text == "import")) {
        include(text, read.behind(words[i]), folder);
      }
    }
  }

  /// A plain word that variables have for a name, too: it is not called, nor is it of an object or a namespace.
  [[nodiscard]] static bool is_variable(const SourceWords& read, std::size_t at) {
    constexpr std::array<std::string_view, 4> plain{"sync", "bar", "barrier", "wait"};
    const std::vector<SourceWord>& words = read.all();
    if (words[at].directive || std::ranges::find(plain, words[at].text) == plain.end()) return false;
    const auto word = [&words](std::size_t i) { return i < words.size() ? words[i].text : std::string_view(); };
    const auto between = [&read, &words](std::size_t i) {  // this word and the next
      std::string_view text = i < words.size() ? read.behind(i) : std::string_view();
      while (!text.empty() && text.front() <= ' ') text.remove_prefix(1);
      while (!text.empty() && text.back() <= ' ') text.remove_suffix(1);
      return text;
    };
    const std::string_view before = at > 0 ? between(at - 1) : std::string_view();
    if (before.ends_with('.') || before.ends_with("->")) return false;
    if (before.ends_with('&') && !before.ends_with("&&")) return false;
    if (at > 0 && before.empty() && word(at - 1) == ":" && at > 1 && word(at - 2) == ":") return false;
    if (between(at).empty() && (word(at + 1) == "(" || (word(at + 1) == ":" && word(at + 2) == ":"))) return false;
    if (!between(at).starts_with('<')) return true;
    // Arguments of a template, or less than something.
    for (std::size_t i = at + 1; !word(i).empty() && word(i) != ";" && word(i) != "{" && word(i) != ")"; ++i) {
      if (between(i).ends_with('>') && word(i + 1) == "(") return false;
    }
    return true;
  }

  template <typename Has>
  void refuse(std::span<const Refusal> any, const Has& has) {
    const auto found = std::ranges::find_if(any, has, &Refusal::word);
    if (refusal_ == nullptr && found != any.end()) refusal_ = &*found;
  }

  /// The ## at word `at`, of the macro whose `define` is word `macro`, may make any word: what it puts together are
  /// parameters, or parts of what is looked for.
  [[nodiscard]] static bool pastes(const SourceWords& read, std::size_t macro, std::size_t at) {
    const std::vector<SourceWord>& words = read.all();
    if (at == 0 || at + 1 >= words.size()) return false;
    const SourceWord &before = words[at - 1], &after = words[at + 1];
    // Else one side is no name: what comes of it is none either.
    if (!read.touch(before, words[at]) || !read.touch(words[at], after)) return false;
    const auto any_word = [&](const SourceWord& word) {
      if (word.quoted || !is_of_name(word.text[0])) return word.text == "##" || word.text == "%:%:";
      if (word.text == "__VA_ARGS__" || may_hide(word.text)) return true;
      if (macro + 2 >= words.size() || words[macro + 2].text != "(") return false;
      for (std::size_t i = macro + 3; i < at && words[i].text != ")"; ++i) {
        if (words[i].text == word.text) return true;
      }
      return false;
    };
    return any_word(before) && any_word(after);
  }

  /// Whether it waits.
  bool read_asm(const std::optional<std::string>& text) {
    if (!text) {
      exit_ = "asm with a text that does not stand in its quotes in plain letters";
      return false;
    }
    bool is_waiting = false;
    for (const std::string_view word : ptx_words(*text)) {
      refuse(ptx_refusals, [word](std::string_view other) { return word == other; });
      if (word == "exit" || word == "ret") exit_ = fmt::format("asm(\"{};\")", word);
      if (!is_ptx_wait(word)) continue;
      is_waiting = true;
      if (found_.wait.empty()) found_.wait = word;
    }
    return is_waiting;
  }

  void include(std::string_view how, std::string_view line, const std::filesystem::path& folder) {
    if (const auto named = IncludedName::read(line); how == "include" && named) {
      const std::string& name = named->name;
      if (const std::string_view own = own_header(name); !own.empty()) {
        // Returns in there are known to come before no wait.
        for (const std::string_view word : ptx_words(own)) {
          if (is_wait(word) && word.starts_with("__") && found_.wait.empty()) found_.wait = word;
        }
        return;
      }
      const bool is_plain = std::ranges::find(plain_headers, name) != plain_headers.end();
      if ((is_plain && !named->in_quotes) || read_file(*named, folder) || is_plain) return;
    }
    unknown_ = fmt::format("#{}", how);
  }

  /// The file that the compiler takes. False: it lies nowhere that is known.
  bool read_file(const IncludedName& named, const std::filesystem::path& folder) {
    for (const std::filesystem::path& one : named.folders(source_, folder)) {
      const std::filesystem::path path = one / named.name;
      if (std::error_code ignored; !std::filesystem::is_regular_file(path, ignored)) continue;
      if (!files_.insert(path.lexically_normal()).second) return true;  // read already
      if (files_.size() > most_files) return false;
      std::ifstream file(path);
      const std::optional<std::string> code = read_to_end(file);
      if (!code) return false;
      read(*code, path.parent_path());
      return true;
    }
    return false;
  }

  static constexpr std::size_t most_files = 100;
  static constexpr std::string_view pasted = "a ## that may make any word";
  const KernelSource& source_;
  const Refusal* refusal_ = nullptr;
  std::string limit_;
  EarlyEnd found_;
  std::string exit_;
  std::string unknown_;  ///< "#include" of something that cannot be looked at, or `pasted`
  std::set<std::filesystem::path> files_;
  WaitingFunctions functions_;
};

}  // namespace

KernelSource resident_source(const KernelSource& source, std::span<const std::string> functions) {
  if (source.language != Language::cuda) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {} cannot stay on the GPU: only CUDA C++ (.cu) can be compiled for that: give the "
                            ".cu file, or use mode=launch",
                            source.name));
  }
  const Search search(source);
  if (const Refusal* refusal = search.refusal()) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {} cannot stay on the GPU: its source has {}: {}: use mode=launch", source.name,
                            refusal->word, refusal->why));
  }
  if (!search.exit().empty()) {
    throw Error(
        ErrorCode::not_supported,
        fmt::format("kernel {} cannot stay on the GPU: its file has {}: a thread that ends by itself would not "
                    "come for later frames: have the kernel skip its work, and no wait, by if, or use mode=launch",
                    source.name, search.exit()));
  }
  if (const EarlyEnd& early = search.found(); !early.by.empty() && !early.wait.empty()) {
    throw Error(
        ErrorCode::not_supported,
        fmt::format("kernel {} cannot stay on the GPU: its file has both {}, by which threads end early, and {}, "
                    "which waits for the threads of a block or warp: those that ended would be waited for: have "
                    "the kernel skip its work, and no wait, by if instead of ending, or use mode=launch",
                    source.name, early.by, early.wait));
  }
  const std::uint64_t threads = std::uint64_t{source.block[0]} * source.block[1] * source.block[2];
  if (threads == 0 && !search.limit().empty()) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {} cannot stay on the GPU: its source has {}, which the loop around it does not "
                            "see: say its threads by the line block, or block, or use mode=launch",
                            source.name, search.limit()));
  }
  // One that is too large is refused when it is loaded.
  const std::string bounds =
      threads == 0 || threads > 1024 ? std::string() : fmt::format(" __attribute__((launch_bounds({})))", threads);
  KernelSource made = source;
  made.function = resident_function;
  // Behind the loop, whose names they do not change.
  std::string defines;
  for (const std::string& define : std::exchange(made.defines, {})) {
    const std::size_t equals = define.find('=');
    defines += equals == define.npos
                   ? fmt::format("#define {} 1\n", define)
                   : fmt::format("#define {} {}\n", define.substr(0, equals), define.substr(equals + 1));
  }
  std::string cases;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    cases += fmt::format("      case {}: {}(gpumap_resident_frame); break;\n", i, functions[i]);
  }
  // A kernel may have any name but those that begin with gpumap_, and so may a macro.
  made.code = fmt::format(R"(#include <gpumap/resident.h>
{}#line 1
{}
#undef global
#undef launch_bounds
#undef stay
extern "C" __attribute__((global)){} void {}(gpumap_residence gpumap_resident_of) {{
  gpumap_resident::stay(gpumap_resident_of, [](unsigned gpumap_resident_case, const gpumap_frame& gpumap_resident_frame) {{
    switch (gpumap_resident_case) {{
{}    }}
  }});
}}
)",
                          defines, source.code, bounds, resident_function, cases);
  return made;
}

namespace {

ResidentModule build(const KernelSource& source, std::span<const std::string> functions,
                     std::string_view architecture) {
  KernelSource made = resident_source(source, functions);
  std::string code = build_cuda_module(made, architecture);
  return {std::move(made), std::move(code)};
}

}  // namespace

ResidentModule build_resident(const KernelSource& source, std::vector<std::string> functions,
                              std::string_view architecture) {
  if (functions.empty() && source.function.empty()) {
    // Its text has one kernel: what that is called, the compiler knows.
    static_cast<void>(resident_source(source, {}));  // a refusal comes before the compiler's time
    functions.push_back(name_in_source(build_cuda(source, architecture).function));
  } else if (functions.empty()) {
    functions.push_back(source.function);
  }
  try {
    return build(source, functions, architecture);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::compile) throw;
    KernelSource launched = source, declares = source;
    for (const std::string& function : functions) {
      launched.function = function;
      const std::string name = build_cuda(launched, architecture).function;  // throws where the kernel itself is wrong
      // One that is "C" in a namespace is the same function outside of it.
      if (!name.starts_with("_Z"))
        declares.code += fmt::format("\nextern \"C\" __global__ void {}(gpumap_frame);", name);
    }
    try {
      return build(declares, functions, architecture);
    } catch (const Error&) {
      throw Error(
          ErrorCode::not_supported,
          fmt::format("kernel {} cannot stay on the GPU: launched it compiles, in the loop that stays it does not: "
                      "use mode=launch, or see what the compiler says: {}",
                      source.name, error.what()));
    }
  }
}

std::string name_in_source(const std::string& ptx_name) {
  // "f" is a name as well as what the ABI calls a float.
  if (!ptx_name.starts_with("_Z")) return ptx_name;
  int status = -1;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(ptx_name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || !text) return ptx_name;
  std::string name = text.get();
  name.resize(std::min(name.rfind('('), name.size()));
  // A template's begins with what it returns.
  if (name.starts_with("void ")) name.erase(0, std::string_view("void ").size());
  constexpr std::string_view nameless = "(anonymous namespace)::";
  for (std::size_t at = 0; (at = name.find(nameless)) != name.npos;) name.erase(at, nameless.size());
  return name;
}

namespace {

/// What all functions of a resident kernel have in common.
struct Loaded {
  Loaded(const std::shared_ptr<GpuDevice>& device, const ResidentModule& made)
      : name(made.source.name),
        module(device, name, made.code),
        function(module.find(resident_function)),
        shape(module.fit(function, made.source)),
        shared_bytes(made.source.shared_bytes),
        frame(frame_bytes(made.source)) {}
  const std::string name;
  const CudaModule module;
  const CUfunction function;
  const GridShape shape;
  const std::uint32_t shared_bytes;
  const std::size_t frame;
};

class LoadedResidentKernel final : public ResidentKernel {
 public:
  LoadedResidentKernel(std::shared_ptr<const Loaded> loaded, std::uint32_t index)
      : loaded_(std::move(loaded)), index_(index) {}

  [[nodiscard]] const std::string& name() const noexcept override { return loaded_->name; }
  [[nodiscard]] Grid grid_for(const gpumap_frame& frame) const override { return make_grid(loaded_->shape, frame); }
  [[nodiscard]] CUfunction resident_function() const noexcept override { return loaded_->function; }
  [[nodiscard]] std::uint32_t index() const noexcept override { return index_; }
  [[nodiscard]] std::size_t frame_bytes() const noexcept override { return loaded_->frame; }
  [[nodiscard]] std::shared_ptr<const void> owner() const noexcept override { return loaded_; }
  [[nodiscard]] std::uint32_t shared_bytes() const noexcept override { return loaded_->shared_bytes; }

 private:
  const std::shared_ptr<const Loaded> loaded_;
  const std::uint32_t index_;
};

}  // namespace

std::vector<std::shared_ptr<Kernel>> load_resident_kernels(const std::shared_ptr<GpuDevice>& device,
                                                           const KernelSource& source,
                                                           std::vector<std::string> functions) {
  device->check_alive();
  if (!device->cuda()->stream_memory()) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {} cannot stay on the GPU: {} has no stream memory operations: use mode=launch",
                            source.name, device->info().name));
  }
  const std::size_t count = std::max<std::size_t>(functions.size(), 1);
  const auto loaded =
      std::make_shared<const Loaded>(device, build_resident(source, std::move(functions), architecture_of(*device)));
  std::vector<std::shared_ptr<Kernel>> kernels;
  for (std::uint32_t i = 0; i < count; ++i) {
    kernels.push_back(std::make_shared<LoadedResidentKernel>(loaded, i));
  }
  return kernels;
}

}  // namespace gpumap
