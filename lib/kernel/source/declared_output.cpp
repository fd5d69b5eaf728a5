// SPDX-License-Identifier: MIT
// What a kernel says of its output, frame by frame, and of its results.
#include <fmt/format.h>

#include <algorithm>

#include "gpumap/declaration.hpp"
#include "gpumap/error.hpp"

namespace gpumap {

OutputMay parse_output_may(std::string_view text) {
  OutputMay may;
  for (const std::string& word : parse_names(text)) {
    bool OutputMay::*const one = word == "drop" ? &OutputMay::drop : &OutputMay::shorten;
    if (word != "drop" && word != "shorten") {
      throw Error(ErrorCode::invalid,
                  fmt::format("an output may not \"{}\": choose drop, shorten or drop,shorten", word));
    }
    if (may.*one) throw Error(ErrorCode::invalid, fmt::format("\"{}\": {} is there twice: write it once", text, word));
    may.*one = true;
  }
  return may;
}

std::optional<std::size_t> bytes_given(const OutputMay& may, std::string_view kernel, std::uint64_t said,
                                       std::size_t bytes) {
  if (said == 0 && may.drop) return std::nullopt;
  if (!may.shorten) return bytes;
  if (said > bytes) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("kernel {}: gives {} bytes of an output that has {}: have it write fewer to frame.given, or "
                    "declare more with the line bytes",
                    kernel, said, bytes));
  }
  if (said == 0 && bytes != 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: gives 0 bytes of an output of {}, which is to drop the frame, and does not "
                            "declare that it may: write the line output-may drop,shorten",
                            kernel, bytes));
  }
  return static_cast<std::size_t>(said);
}

void declare_result_words(Declaration& declaration, std::uint64_t words) {
  if (words < GPUMAP_RESULT_WORDS || words > GPUMAP_MAX_RESULT_WORDS) {
    throw Error(ErrorCode::invalid, fmt::format("a result block of {} words: choose from {} to {}", words,
                                                GPUMAP_RESULT_WORDS, GPUMAP_MAX_RESULT_WORDS));
  }
  declaration.result_words = static_cast<std::uint32_t>(words);
}

std::string parse_message_name(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const bool is_name = !text.empty() && is_letter(text.front()) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
  if (is_name) return std::string(text);
  throw Error(
      ErrorCode::invalid,
      fmt::format("\"{}\" is no name for a message: write letters, digits, '-', '_' and '.', a letter first", text));
}

void check_results(const Declaration& declaration) {
  using Kind = DeclaredAnalytics::Kind;
  const Kind analytics = declaration.analytics.kind;
  if (analytics == Kind::classification && declaration.results.empty()) {
    throw Error(ErrorCode::invalid,
                "analytics classification takes the levels of classes from results that have their names: declare them "
                "with the line results, as in results cat=f32,dog=f32");
  }
  if (analytics == Kind::detections && !declaration.results.empty()) {
    throw Error(ErrorCode::invalid,
                "analytics detections says itself what the words of the result block are: leave the line results out");
  }
  if (declaration.results.size() <= declaration.result_words) return;
  throw Error(ErrorCode::invalid,
              fmt::format("{} results named: the block has {} words: declare more with the line result-words, up to {}",
                          declaration.results.size(), declaration.result_words, GPUMAP_MAX_RESULT_WORDS));
}

}  // namespace gpumap
