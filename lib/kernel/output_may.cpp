// SPDX-License-Identifier: MIT
// What a kernel says of its output, frame by frame.
#include <fmt/format.h>

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
    if (may.*one) throw Error(ErrorCode::invalid, fmt::format("\"{}\": {} is there twice", text, word));
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

}  // namespace gpumap
