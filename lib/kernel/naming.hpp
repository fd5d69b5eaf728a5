// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <string>

#include "gpumap/error.hpp"

namespace gpumap {

/// `call`; what goes wrong with the GPU meanwhile is said of this kernel.
template <typename Call>
auto naming(const std::string& kernel, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::device_lost) throw;
    throw Error(ErrorCode::device_lost, fmt::format("while running kernel {}: {}", kernel, error.what()));
  }
}

}  // namespace gpumap
