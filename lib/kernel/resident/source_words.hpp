// SPDX-License-Identifier: MIT
// A source of CUDA C++ as words, for what is looked for in it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/kernel.hpp"

namespace gpumap {

/// As in the names of C++.
constexpr bool is_of_name(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Between the words of one line.
constexpr bool is_blank(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\f' || c == '\v';
}

/// A name, a keyword or a number of a source, one of ( ) { } [ ] ; : ~ # ## <<< <% %>, or what is between the quotes of
/// a string.
struct SourceWord {
  std::string_view text;
  bool quoted = false;
  bool directive = false;  ///< in a line of the preprocessor
};

/// What an #include has behind the word: the name of a file.
struct IncludedName {
  std::string name;
  bool in_quotes;

  /// None where a macro has the name, or a comment stands before it.
  static std::optional<IncludedName> read(std::string_view line) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.starts_with('<') && !line.starts_with('"')) return {};
    const bool in_quotes = line[0] == '"';
    const std::size_t end = line.find(in_quotes ? '"' : '>', 1);
    if (end == line.npos) return {};
    return IncludedName{std::string(line.substr(1, end - 1)), in_quotes};
  }

  /// Where the compiler of `source` looks for it, in its order. `folder`: that of the file which includes it.
  [[nodiscard]] std::vector<std::filesystem::path> folders(const KernelSource& source,
                                                           const std::filesystem::path& folder) const {
    std::vector<std::filesystem::path> made = source.include_folders;
    if (in_quotes) made.insert(made.begin(), folder);
    made.push_back(std::filesystem::path(source.name).parent_path());
    return made;
  }
};

/// What the compiler sees of a source, without comments.
class SourceWords {
 public:
  explicit SourceWords(const std::string& code) : joined_(joined(code)), code_(joined_) {
    while (at_ < code_.size()) read();
  }
  [[nodiscard]] const std::vector<SourceWord>& all() const noexcept { return words_; }
  /// Nothing but blanks and comments of one line are between a word and the one behind it.
  [[nodiscard]] bool touch(const SourceWord& word, const SourceWord& next) const noexcept {
    const auto at = static_cast<std::size_t>(word.text.data() + word.text.size() - code_.data());
    std::string_view between = code_.substr(at, static_cast<std::size_t>(next.text.data() - code_.data()) - at);
    while (!between.empty()) {
      const std::size_t comment = between.starts_with("/*") ? between.find("*/", 2) : between.npos;
      if (comment == between.npos && !is_blank(between[0])) return false;
      between.remove_prefix(comment == between.npos ? 1 : comment + 2);
    }
    return true;
  }
  /// Between word `at` and the next, or the end: operators, blanks and comments.
  [[nodiscard]] std::string_view behind(std::size_t at) const noexcept {
    const std::string_view word = words_[at].text;
    const char* const end = at + 1 < words_.size() ? words_[at + 1].text.data() : code_.data() + code_.size();
    return {word.data() + word.size(), static_cast<std::size_t>(end - word.data()) - word.size()};
  }
  /// Up to the end of its line.
  [[nodiscard]] std::string_view behind(const SourceWord& word) const noexcept {
    const auto at = static_cast<std::size_t>(word.text.data() + word.text.size() - code_.data());
    return code_.substr(at, code_.find('\n', at) - at);
  }

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
      return;  // as a blank
    } else if (c == '"' || c == '\'') {
      ++at_;
      read_quoted(std::string(1, c), true);
    } else if (is_of_name(c)) {
      // A ' between digits is of the number.
      const std::size_t begin = at_;
      while (at_ < code_.size() && (is_of_name(code_[at_]) || (code_[at_] == '\'' && code_[begin] <= '9'))) ++at_;
      words_.push_back({code_.substr(begin, at_ - begin), false, directive_});
      if (begins_raw(words_.back().text) && comes("\"")) {
        ++at_;
        const std::string_view delimiter = code_.substr(at_, std::min(code_.find('(', at_), code_.size()) - at_);
        at_ = std::min(at_ + delimiter.size() + 1, code_.size());
        read_quoted(")" + std::string(delimiter) + "\"", false);
      }
    } else {
      if (begins_line_ && (c == '#' || comes("%:"))) directive_ = true;
      const bool has_two = comes("##") || comes("<%") || comes("%>");
      if (const std::size_t length = has_two ? 2 : comes("%:%:") ? 4 : 0; length != 0) {
        words_.push_back({code_.substr(at_, length), false, directive_});
        begins_line_ = false;
        at_ += length;
        return;
      }
      if (c == '\n') directive_ = false;
      if (comes("<<<")) words_.push_back({code_.substr(at_, 3), false, directive_});
      if (std::string_view("(){}[];:~#").find(c) != std::string_view::npos) {
        words_.push_back({code_.substr(at_, 1), false, directive_});
      }
      begins_line_ = c == '\n' || (begins_line_ && (is_blank(c) || c == '\r'));
      ++at_;
      return;
    }
    begins_line_ = false;
  }
  /// Of a string. Any other name that ends in R is a macro before a string.
  [[nodiscard]] static bool begins_raw(std::string_view prefix) noexcept {
    constexpr std::array<std::string_view, 5> prefixes{"R", "LR", "uR", "UR", "u8R"};
    return std::ranges::find(prefixes, prefix) != prefixes.end();
  }
  void read_quoted(const std::string& end, bool escapes) {
    const std::size_t begin = at_;
    while (at_ < code_.size() && !comes(end) && !(escapes && code_[at_] == '\n')) {
      at_ += escapes && code_[at_] == '\\' ? 2 : 1;
    }
    at_ = std::min(at_, code_.size());
    if (end != "'") words_.push_back({code_.substr(begin, at_ - begin), true, directive_});
    if (comes(end)) at_ += end.size();
  }

  const std::string joined_;
  const std::string_view code_;
  std::size_t at_ = 0;
  bool begins_line_ = true, directive_ = false;
  std::vector<SourceWord> words_;
};

}  // namespace gpumap
