// SPDX-License-Identifier: MIT
// A kernel that takes too long is told of, wherever its frame is meanwhile. It keeps the software driver busy, so this
// program does nothing else.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

TEST(Watchdog, TellsOfAKernelThatDoesNotEnd) {
  const std::string path = testing::TempDir() + "gpumap-slow-" + std::to_string(getpid()) + ".comp";
  std::ofstream(path) << "#version 460\n#include <gpumap.glsl>\n"
                         "layout(buffer_reference, scalar) volatile buffer At { uint value; };\n"
                         "void main() {\n"
                         "  At at = At(frame.out_view.plane[0]);\n"
                         // lavapipe leaves a loop after 65535 turns; a hundred thousand threads of it take it seconds.
                         "  for (uint i = 0u; i < 65000u; ++i) atomicAdd(at.value, 1u);\n"
                         "}\n";
  // Two slots: after two frames the sink waits for the kernel, and nothing runs in gpumapkernel's thread any more.
  Pipeline pipeline(
      on_new_channel("videotestsrc ! video/x-raw,format=NV12,width=480,height=270 ! gpumapsink slots=2 $CHANNEL "
                     "gpumapsrc $CHANNEL ! gpumapkernel name=slow timeout=400 location=" +
                     path + " ! fakesink"));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THAT(pipeline.run(), testing::AllOf(testing::HasSubstr(path), testing::HasSubstr("has not ended for 400 ms")));
  EXPECT_EQ(pipeline.culprit(), "slow");
  EXPECT_LT(std::chrono::steady_clock::now() - began, patience);
  EXPECT_LT(pipeline.stop(), patience);
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

}  // namespace
}  // namespace gpumap::gst::test
