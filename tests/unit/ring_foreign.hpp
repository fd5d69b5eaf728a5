// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "ring/control_block.hpp"

namespace gpumap::test {

/// The block as a peer has it: found among this process's mappings, not through the ring.
inline ring::ControlBlock& foreign_view() {
  std::ifstream maps("/proc/self/maps");
  ring::ControlBlock* found = nullptr;
  int blocks = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:gpumap-ring") == std::string::npos) continue;
    found = reinterpret_cast<ring::ControlBlock*>(std::stoull(line, nullptr, 16));
    ++blocks;
  }
  EXPECT_EQ(blocks, 1);
  EXPECT_EQ(found->magic, ring::control_magic);
  EXPECT_EQ(found->version, ring::control_version);
  EXPECT_EQ(found->block_bytes, sizeof(ring::ControlBlock));
  return *found;
}

}  // namespace gpumap::test
