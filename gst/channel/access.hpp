// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpumap::gst {

// Properties that say which processes may be at the other end of a socket. Both functions throw Error(invalid) with the
// value.

/// Users, by name or number, as in "alice, 1001". Names are looked up. Empty: none.
[[nodiscard]] std::vector<uid_t> users_of(const std::string& text);
/// The mode of a file, octal, as in "0660".
[[nodiscard]] mode_t mode_of(const std::string& text);

}  // namespace gpumap::gst
