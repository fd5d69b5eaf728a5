// SPDX-License-Identifier: MIT
#include "gpumap/figured_error.hpp"

#include <algorithm>

namespace gpumap {

FiguredError::FiguredError(const Error& error, Figures figures)
    : Error(error), figures_(std::make_shared<const Figures>(std::move(figures))) {}
FiguredError::~FiguredError() = default;

Figures figures_of(const Error& error) {
  const auto* figured = dynamic_cast<const FiguredError*>(&error);
  return figured != nullptr ? figured->figures() : Figures();
}

std::string remedy_of(const Error& error) {
  const std::string text = error.what();
  return text.substr(std::min(error.cause().size() + 2, text.size()));  // ": "
}

FiguredError within(const std::string& what, const Error& error, const Figures& more) {
  const std::string remedy = remedy_of(error);
  const std::string cause = what + ": " + error.cause();
  Figures figures = figures_of(error);
  figures.insert(figures.end(), more.begin(), more.end());
  return {
      remedy.empty() ? Error(error.code(), cause, error.where()) : Error(error.code(), cause, remedy, error.where()),
      std::move(figures)};
}

}  // namespace gpumap
