// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernel/cache/cache_key.hpp"

namespace gpumap {

/// What a compiler made of a kernel.
struct Compiled {
  std::string code;     ///< what is loaded: a cubin, PTX or SPIR-V
  std::string listing;  ///< the PTX beside a cubin, which names the kernels in it; else empty

  [[nodiscard]] bool operator==(const Compiled&) const = default;
};

/// The bytes of a cache file: a head with format version and sizes, the two parts, a checksum of all before it. In the
/// machine's own byte order, as the code is for one kind of machine too.
[[nodiscard]] std::string format_entry(const Digest& key, const Compiled& compiled);

/// Read foreign bytes; trusts nothing. Nothing for what is not whole, not of this format or not of this key.
[[nodiscard]] std::optional<Compiled> parse_entry(std::string_view bytes, const Digest& key);

}  // namespace gpumap
