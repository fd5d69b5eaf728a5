// SPDX-License-Identifier: MIT
// A kernel that does not end, before a built-in for radio, which has memory and tables of its own: the pipeline ends
// all the same, and what the kernels use is left to them. It keeps the software driver busy for good, so this program
// does nothing else.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

TEST(Endless, KernelDoesNotKeepThePipelineFromStopping) {
  const std::string path = testing::TempDir() + "gpumap-endless-" + std::to_string(getpid()) + ".comp";
  std::ofstream(path) << "#version 460\n// gpumap: block 256\n// gpumap: grid 8192\n#include <gpumap.glsl>\n"
                         "layout(buffer_reference, scalar) volatile buffer At { uint value; };\n"
                         "void main() {\n"
                         "  At at = At(frame.out_view.plane[0]);\n"
                         // lavapipe leaves a loop after 65535 turns; two million threads of it take it minutes.
                         "  for (uint i = 0u; i < 65000u; ++i) atomicAdd(at.value, 1u);\n"
                         "}\n";
  // All that ends waits for the GPU, but only until one part has given up.
  std::string others;
  for (int i = 0; i < 8; ++i) {
    others +=
        "videotestsrc is-live=true ! video/x-raw,format=GRAY8,width=64,height=48 ! gpumapupload ! gpumapkernel "
        "kernel=checksum ! video/x-raw(memory:GPUMap) ! gpumapdownload ! fakesink async=false ";
  }
  Pipeline pipeline(
      on_new_channel("audiotestsrc ! audio/x-raw,format=S16LE,rate=48000,channels=2 ! gpumapsink sync=false $CHANNEL "
                     "gpumapsrc $CHANNEL ! tee name=tee ! queue ! gpumapkernel location=" +
                     path +
                     " ! gpumapkernel kernel=channelizer ! application/x-iq-channels ! fakesink async=false "
                     "tee. ! queue ! audioconvert ! audio/x-raw,format=F32LE ! fakesink async=false sync=false "
                     "audiotestsrc ! gpumapupload transport=pageable ! fakesink async=false sync=true " +
                     others));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_EQ(pipeline.wait(1s), "timeout");
  // The kernels' elements wait for it, and the ring for its slot, and others for copies to and from slots.
  EXPECT_LT(pipeline.stop(), 40s);
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

}  // namespace
}  // namespace gpumap::gst::test
