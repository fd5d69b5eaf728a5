// SPDX-License-Identifier: MIT
// A kernel that does not end: the pipeline ends all the same, and what the kernel uses is left to it. It keeps the
// software driver busy for good, so this program does nothing else.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

TEST(Endless, KernelDoesNotKeepThePipelineFromStopping) {
  const std::string path = testing::TempDir() + "gpumap-endless-" + std::to_string(getpid()) + ".comp";
  std::ofstream(path) << "#version 460\n#include <gpumap.glsl>\n"
                         "layout(buffer_reference, scalar) volatile buffer At { uint value; };\n"
                         "void main() {\n"
                         "  At at = At(frame.out_view.plane[0]);\n"
                         // lavapipe leaves a loop after 65535 turns; two million threads of it take it minutes.
                         "  for (uint i = 0u; i < 65000u; ++i) atomicAdd(at.value, 1u);\n"
                         "}\n";
  Pipeline pipeline(
      on_new_channel("videotestsrc ! video/x-raw,format=NV12,width=1920,height=1080 ! gpumapsink $CHANNEL "
                     "gpumapsrc $CHANNEL ! gpumapkernel location=" +
                     path + " ! video/x-raw ! fakesink"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_EQ(pipeline.wait(1s), "timeout");
  // The kernel's element waits for it, and the ring for its slot.
  EXPECT_LT(pipeline.stop(), 60s);
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

}  // namespace
}  // namespace gpumap::gst::test
