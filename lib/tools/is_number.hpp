// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>

namespace gpumap {

/// A check of a CLI11 option beside CLI::Range, which takes NaN: that is neither below nor above any bound.
inline std::string is_number(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? "that is no number" : "";
}

}  // namespace gpumap
