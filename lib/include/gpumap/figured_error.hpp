// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/export.hpp"

namespace gpumap {

/// What an error's text says in numbers and names, for programs: {"asked-bytes", 4096}. Names are as those of
/// properties.
using Figure = std::variant<std::uint64_t, std::string>;
using Figures = std::vector<std::pair<const char*, Figure>>;

/// An error with its figures. A copy as Error has the text alone.
class GPUMAP_API FiguredError : public Error {
 public:
  FiguredError(const Error& error, Figures figures);
  ~FiguredError() override;
  [[nodiscard]] const Figures& figures() const noexcept { return *figures_; }

 private:
  std::shared_ptr<const Figures> figures_;  ///< shared, so that copying throws nothing
};

/// Of a FiguredError; of another error none.
[[nodiscard]] GPUMAP_API Figures figures_of(const Error& error);
/// What its text says behind the cause; empty where that was not given apart.
[[nodiscard]] GPUMAP_API std::string remedy_of(const Error& error);
/// The same error of `what`, as in "8 slots of 4 MiB", which its text then begins with; with figures of its own, behind
/// those that it has.
[[nodiscard]] GPUMAP_API FiguredError within(const std::string& what, const Error& error, const Figures& more = {});

}  // namespace gpumap
