// SPDX-License-Identifier: MIT
// A CUDA kernel that loses its context: it reads a word of frame.in, where there is one, and writes it where nothing is
// mapped. In PTX, so that it needs no compiler.
#pragma once

#include <cstddef>
#include <string>

#include "gpumap/kernel.h"

namespace gpumap::test {

inline std::string faulty_kernel() {
  static_assert(offsetof(gpumap_frame, in) == 0 && offsetof(gpumap_view, plane) == 0);
  return ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry fault(.param .align 8 .b8 frame[" +
         std::to_string(sizeof(gpumap_frame)) + "]) {" + R"(
  .reg .b64 %from;
  .reg .b64 %address;
  .reg .b32 %value;
  .reg .pred %some;
  ld.param.u64 %from, [frame];
  mov.u32 %value, 1;
  setp.ne.u64 %some, %from, 0;
  @%some ld.global.u32 %value, [%from];
  mov.u64 %address, 16;
  st.global.u32 [%address], %value;
  ret;
}
)";
}

}  // namespace gpumap::test
