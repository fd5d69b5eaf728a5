// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "gpumap/error.hpp"

namespace gpumap {

/// What `call` throws, an Error of that code.
template <typename Call>
std::string error_of(ErrorCode code, Call call) {
  try {
    static_cast<void>(call());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}
/// What it throws for what is wrong in its arguments.
template <typename Call>
std::string error_of(Call call) {
  return error_of(ErrorCode::invalid, call);
}

}  // namespace gpumap
