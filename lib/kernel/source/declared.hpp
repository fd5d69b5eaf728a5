// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <span>
#include <string>
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

/// What a line `input-tensor` or `output-tensor` says, as in "boxes float32 1x100x4". `any`: a dimension may be left
/// open. Throws Error(invalid).
[[nodiscard]] DeclaredTensor parse_declared_tensor(std::string_view text, bool any);
/// Throws Error(invalid) for what caps could not name.
[[nodiscard]] std::string parse_tensor_id(std::string_view text);

}  // namespace gpumap
