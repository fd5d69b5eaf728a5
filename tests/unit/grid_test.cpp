// SPDX-License-Identifier: MIT
// How many blocks and threads a launch gets from the block's size, the frame and what a thread takes.
#include "kernel/grid.hpp"

#include <gmock/gmock.h>

namespace gpumap {
namespace {

using ::testing::ElementsAre;

TEST(Grid, OfAGivenNumberOfBlocksEachHasTheThreadsOfItsData) {
  GridShape shape;
  shape.blocks = {7, 1, 1};
  gpumap_frame frame{};
  frame.in.bytes = frame.out.bytes = 100000;
  EXPECT_THAT(make_grid(shape, frame).threads, ElementsAre(256, 1, 1));
  EXPECT_THAT(make_grid(shape, frame).blocks, ElementsAre(7, 1, 1));
  frame.out.width = frame.out.height = 40;
  EXPECT_THAT(make_grid(shape, frame).threads, ElementsAre(32, 8, 1)) << "samples in, a picture out";
  frame.in.width = frame.in.height = 40;
  frame.out.width = frame.out.height = 0;
  EXPECT_THAT(make_grid(shape, frame).threads, ElementsAre(32, 8, 1)) << "a picture in, a histogram out";
}

TEST(Grid, HasThreadsForWhatEachOfThemTakes) {
  gpumap_frame frame{};
  frame.in.bytes = frame.out.bytes = 100000;
  frame.in.width = frame.out.width = 401, frame.in.height = frame.out.height = 50;
  GridShape shape;
  EXPECT_THAT(make_grid(shape, frame).blocks, ElementsAre(13, 7, 1)) << "401 pixels by 32, 50 rows by 8";
  shape.work = Work::quad;
  EXPECT_THAT(make_grid(shape, frame).blocks, ElementsAre(4, 7, 1)) << "101 times four pixels";
  shape.work = Work::chunk;
  EXPECT_THAT(make_grid(shape, frame).blocks, ElementsAre(4, 1, 1)) << "782 times 128 bytes by 256";
}

TEST(Grid, ItemsArePixelsSamplesOrBytes) {
  gpumap_frame frame{};
  frame.in.bytes = frame.out.bytes = 100001;
  EXPECT_EQ(items_of(frame), 100001U);
  frame.out.format = GPUMAP_FORMAT_F32;
  EXPECT_EQ(items_of(frame), 25001U);
  frame.out.bytes = 0;
  EXPECT_EQ(items_of(frame), 100001U) << "those of the input, where nothing comes out";
  frame.in.width = 70000, frame.in.height = 70001;
  EXPECT_EQ(items_of(frame), 4900070000U);
  frame.out.width = 3, frame.out.height = 5;
  EXPECT_EQ(items_of(frame), 15U);
}

}  // namespace
}  // namespace gpumap
