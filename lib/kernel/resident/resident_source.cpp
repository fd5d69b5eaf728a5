// SPDX-License-Identifier: MIT
#include "kernel/resident/resident_source.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

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

constexpr bool is_of_name(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// A name, a keyword or a number of a source, or one of ( ) { } ; #
struct Word {
  std::string_view text;
  bool quoted = false;     ///< within a string, as what asm() takes
  bool directive = false;  ///< in a line of the preprocessor
};

/// What the compiler sees of a source, without comments.
class Words {
 public:
  explicit Words(const std::string& code) : joined_(joined(code)), code_(joined_) {
    while (at_ < code_.size()) read();
  }
  [[nodiscard]] const std::vector<Word>& all() const noexcept { return words_; }

 private:
  /// Lines that end in a backslash go on with the next.
  static std::string joined(std::string_view code) {
    std::string made;
    for (std::size_t at = 0; at < code.size(); ++at) {
      if (const std::string_view rest = code.substr(at); rest.starts_with("\\\n")) {
        ++at;
      } else if (rest.starts_with("\\\r\n")) {
        at += 2;
      } else {
        made += code[at];
      }
    }
    return made;
  }
  [[nodiscard]] bool comes(std::string_view text) const noexcept { return code_.substr(at_).starts_with(text); }
  void go_behind(std::string_view text) noexcept {
    const std::size_t found = code_.find(text, at_);
    at_ = found == code_.npos ? code_.size() : found + text.size();
  }
  void read() {
    const char c = code_[at_];
    if (comes("//")) {
      at_ = std::min(code_.find('\n', at_), code_.size());
    } else if (comes("/*")) {
      go_behind("*/");
    } else if (c == '"' || c == '\'') {
      ++at_;
      if (directive_) words_.push_back({code_.substr(at_ - 1, 1), false, true});
      read_quoted(std::string(1, c), true);
    } else if (is_of_name(c)) {
      // A ' between digits is of the number.
      const std::size_t begin = at_;
      while (at_ < code_.size() && (is_of_name(code_[at_]) || (code_[at_] == '\'' && code_[begin] <= '9'))) ++at_;
      words_.push_back({code_.substr(begin, at_ - begin), false, directive_});
      if (code_[at_ - 1] == 'R' && comes("\"")) {  // a raw string
        ++at_;
        const std::string_view delimiter = code_.substr(at_, std::min(code_.find('(', at_), code_.size()) - at_);
        read_quoted(")" + std::string(delimiter) + "\"", false);
      }
    } else {
      if (c == '#' && begins_line_) directive_ = true;
      if (c == '\n') directive_ = false;
      if (std::string_view("(){};#").find(c) != std::string_view::npos) {
        words_.push_back({code_.substr(at_, 1), false, directive_});
      }
      begins_line_ = c == '\n' || (begins_line_ && (c == ' ' || c == '\t' || c == '\r'));
      ++at_;
      return;
    }
    begins_line_ = false;
  }
  void read_quoted(const std::string& end, bool escapes) {
    for (std::size_t begin = at_; at_ < code_.size(); ++at_) {
      const bool ends = comes(end);
      if (is_of_name(code_[at_]) && !ends) continue;
      if (at_ > begin) words_.push_back({code_.substr(begin, at_ - begin), true, directive_});
      if (ends || (escapes && code_[at_] == '\n')) break;
      if (escapes && code_[at_] == '\\') ++at_;
      begin = at_ + 1;
    }
    if (comes(end)) at_ += end.size();
  }

  const std::string joined_;
  const std::string_view code_;
  std::size_t at_ = 0;
  bool begins_line_ = true, directive_ = false;
  std::vector<Word> words_;
};

/// It waits for the threads of a block or a warp, or names something of a library that does.
bool is_wait(std::string_view word) noexcept {
  const auto has = [word](std::string_view part) { return word.find(part) != word.npos; };
  return word == "sync" || word == "bar" || word == "cub" || word == "cooperative_groups" ||
         word.starts_with("__sync") || word.ends_with("_sync") || has("barrier") || has("wait");
}

/// Where the kernel ends whose `__global__` is word `at`, or its declaration.
std::size_t end_of_kernel(const std::vector<Word>& words, std::size_t at) {
  for (int depth = 0; at < words.size(); ++at) {
    const std::string_view text = words[at].text;
    if (text == "(" || text == "{") ++depth;
    if (text == ")" || text == "}") --depth;
    if (depth == 0 && (text == ";" || text == "}")) return at;
  }
  return at;
}

/// How threads of a kernel end before others of their block, and what waits for these: in a launch it does not wait for
/// those that ended, but where the kernel stays they are still there. Whether one can come before the other no search
/// of a text can tell, through functions, macros and loops: so both may not be in one file.
struct EarlyEnd {
  std::string by;    ///< "return"; empty: none
  std::string wait;  ///< "__syncthreads"; empty: none
};
EarlyEnd early_end_of(const KernelSource& source) {
  const Words read(source.code);
  const std::vector<Word>& words = read.all();
  EarlyEnd made;
  std::string included;  // of the user's own: what is in there is not looked at
  std::size_t kernel_ends = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& [text, quoted, directive] = words[i];
    const std::string_view next = i + 1 < words.size() ? words[i + 1].text : std::string_view();
    if (text == "__global__" && i >= kernel_ends) kernel_ends = end_of_kernel(words, i);
    // A kernel returns nothing: `return;` is one's, or a function's that is like it, wherever macros put it.
    const bool returns = text == "return" && (next == ";" || directive || i < kernel_ends);
    const bool ends = quoted ? text == "exit" || text == "ret" : returns || text == "goto";
    if (ends && made.by.empty()) made.by = text;
    if (is_wait(text) && made.wait.empty()) made.wait = text;
    if (directive && text == "include" && (next == "\"" || (!source.include_folders.empty() && next != "gpumap"))) {
      included = "#include";
    }
  }
  if (!included.empty() && made.by.empty() != made.wait.empty()) (made.by.empty() ? made.by : made.wait) = included;
  return made;
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
  if (const EarlyEnd early = early_end_of(source); !early.by.empty() && !early.wait.empty()) {
    throw Error(
        ErrorCode::not_supported,
        fmt::format("kernel {} cannot stay on the GPU: its file has both {}, by which threads end early, and {}, "
                    "which waits for the threads of a block or warp: those that ended would be waited for: have "
                    "the kernel skip the rest by if instead of ending, or use mode=launch",
                    source.name, early.by, early.wait));
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

}  // namespace gpumap
