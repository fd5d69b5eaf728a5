// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "gpumap/declaration.hpp"

namespace gpumap {

/// What a line `input-tensor` or `output-tensor` says, as in "boxes float32 1x100x4". `any`: a dimension may be left
/// open. Throws Error(invalid).
[[nodiscard]] DeclaredTensor parse_declared_tensor(std::string_view text, bool any);
/// Throws Error(invalid) for what caps could not name.
[[nodiscard]] std::string parse_tensor_id(std::string_view text);

}  // namespace gpumap
