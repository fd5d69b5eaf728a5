// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "gpumap/error.hpp"

namespace gpumap {

/// What `call` throws for what is wrong in its arguments.
template <typename Call>
std::string error_of(Call call) {
  try {
    static_cast<void>(call());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid);
    return error.what();
  }
  return "no error";
}

}  // namespace gpumap
