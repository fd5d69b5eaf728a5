// SPDX-License-Identifier: MIT
// Which functions of CUDA C++ some threads may leave while others wait in them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/resident/source_words.hpp"

namespace gpumap {

/// The functions and macros of a source and of what it includes: which of them wait, by themselves or by what they
/// call, and which return before that, or in a statement in which they do. Where the text does not tell, as where
/// macros are braces or a function that waits is called without its name, they are taken to do both.
class WaitingFunctions {
 public:
  /// Reads one file. See each of its words in order.
  class Reader {
   public:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    Reader(WaitingFunctions& all, const SourceWords& read) : all_(all), read_(read), words_(read.all()) {}
    /// `waits`: the word is something that waits.
    void see(std::size_t at, bool waits);

   private:
    struct Block {
      bool is_function = false;     ///< or a lambda
      std::size_t function = none;  ///< around it, as the others
      std::size_t statement = 0;
      int parentheses = 0;
    };
    struct Place {
      std::vector<Block> blocks;  ///< outermost first
      std::size_t statement = 0;  ///< its first word
      int parentheses = 0;
      std::size_t function = none;  ///< the one that this is in
    };
    void see_directive(std::size_t at, bool waits);
    void begin_block(std::size_t at);
    void end_block(std::size_t at);
    void end_statement(std::size_t at);
    [[nodiscard]] bool begins_statement(std::size_t at) const;
    [[nodiscard]] std::size_t statement_in_function() const;
    void begin_function(std::size_t at);
    void note(std::size_t at, std::size_t user, bool calls);
    [[nodiscard]] bool is_directive(std::size_t at) const;
    [[nodiscard]] bool is_call(std::size_t at) const;
    [[nodiscard]] bool is_part_of_type(std::size_t at, std::size_t end, bool is_argument) const;
    [[nodiscard]] std::size_t behind_angles(std::size_t at, std::size_t end) const;
    [[nodiscard]] std::size_t behind_templates(std::size_t at, std::size_t end) const;
    [[nodiscard]] bool is_type(std::size_t end) const;
    [[nodiscard]] bool is_lambda(std::size_t at) const;
    [[nodiscard]] bool is_at_end(std::size_t at) const;

    WaitingFunctions& all_;
    const SourceWords& read_;
    const std::vector<SourceWord>& words_;
    Place place_;
    std::vector<Place> branches_;  ///< as it was at each #if that is open
    std::size_t macro_ = none;     ///< the one that is being defined
  };

  /// Whether some threads may return from a function before others wait in it.
  [[nodiscard]] bool is_left_early() const;

 private:
  struct Function {
    std::set<std::string, std::less<>> names;
    bool is_macro = false;
    bool is_kernel = false;              ///< of a macro: its text ends in the head of a kernel
    std::size_t within = Reader::none;   ///< of a lambda: its function
    std::size_t left_at = Reader::none;  ///< where the first statement begins in which it returns, and does not end
    std::size_t waits_at = 0;            ///< the last word that waits; 0: none
    int braces = 0;                      ///< of a macro: those that it opens and does not close
  };

  std::vector<Function> functions_;
  using Users = std::map<std::string, std::map<std::size_t, std::size_t>, std::less<>>;  ///< and the last place
  Users callers_, users_;                                                                ///< of a function, of any word
  std::set<std::string, std::less<>> types_;    ///< their names, and those of their bases
  std::set<std::string, std::less<>> outside_;  ///< what stands in no function
  bool is_unclear_ = false;                     ///< something waits in no function
  bool is_left_anywhere_ = false;
};

}  // namespace gpumap
