// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpumap::gst {

/// Who may be at the other end of a socket, as properties say it. Both throw Error(invalid) that names the value.

/// "alice, 1001": names, which are looked up, and numbers. Nobody where it is empty.
[[nodiscard]] std::vector<uid_t> users_of(const std::string& text);
/// Of a file: "0660", octal.
[[nodiscard]] mode_t mode_of(const std::string& text);

}  // namespace gpumap::gst
