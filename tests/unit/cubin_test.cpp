// SPDX-License-Identifier: MIT
// That a cubin or a fatbin which was cut short, anywhere, is refused before a driver reads beyond its end.
#include "kernel/compile/cuda_binary.hpp"

#include <gmock/gmock.h>

#include <random>

#include "gpumap/error.hpp"

namespace gpumap {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string code) {
  try {
    check_cubin({.language = Language::cubin, .name = "test.cubin", .code = std::move(code), .function = {}});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compile);
    return error.what();
  }
  return "no error";
}

TEST(Cubin, RefusesWhatIsCutShort) {
  std::string whole;
  try {
    whole = compile_cuda(source_of(*find_builtin("checksum"), Backend::cuda), "sm_90");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_driver) throw;
    GTEST_SKIP() << error.what();
  }
  EXPECT_EQ(error_of(whole), "no error");
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    ASSERT_THAT(error_of(whole.substr(0, bytes)), HasSubstr("is a truncated cubin")) << bytes;
  }
  // Damaged ones are read or refused, never beyond their end.
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    for (int j = 0; j < 4; ++j) damaged[random() % (j < 2 ? 64 : damaged.size())] = static_cast<char>(random());
    damaged.shrink_to_fit();
    (void)error_of(damaged);
  }
}

TEST(Cubin, Fatbins) {
  std::string fatbin(
      "\x50\xed\x55\xba\x01\x00\x10\x00\x08\x00\x00\x00\x00\x00\x00\x00"
      "12345678",
      24);
  EXPECT_EQ(error_of(fatbin), "no error");
  for (std::size_t bytes = 0; bytes < fatbin.size(); ++bytes) {
    EXPECT_THAT(error_of(fatbin.substr(0, bytes)), HasSubstr("test.cubin")) << bytes;
  }
  fatbin[15] = '\x7f';
  EXPECT_THAT(error_of(fatbin), HasSubstr("is a truncated cubin"));
}

}  // namespace
}  // namespace gpumap
