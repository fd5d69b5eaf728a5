// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/kernel.hpp"

namespace gpumap {

/// What the line `params` says: "gain=1.5,count:u32=5 in [0,100],taps=[1,2,3]". Throws Error(invalid).
[[nodiscard]] std::vector<DeclaredParameter> parse_declared_parameters(std::string_view text);

/// `put` each number that `text` gives at its place among those of `known`. `kernel` is for messages. Throws
/// Error(invalid) for an unknown name or a wrong count, and what `put` throws.
void lay_out_parameters(std::string_view kernel, std::span<const DeclaredParameter> known, std::string_view text,
                        const std::function<void(std::size_t at, const Number& number)>& put);

}  // namespace gpumap
