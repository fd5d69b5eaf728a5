// SPDX-License-Identifier: MIT
// examples/tensor: what kernel=convert makes of a picture is that picture again.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "example.hpp"

namespace gpumap::gst::test {
namespace {

class Tensor : public Example {};

// Halves tell all 256 values apart, also after normalising.
TEST_P(Tensor, IsThePictureThatItWasMadeOf) {
  const std::string normalise = "params=\"mean=[0.485,0.456,0.406],scale=[4.367,4.464,4.444]\"";
  for (const auto& [type, width, height] :
       {std::tuple("float16", 224, 224), {"float16", 333, 17}, {"float32", 333, 17}, {"float16", 1, 1}}) {
    SCOPED_TRACE(testing::Message() << type << ", " << width << "x" << height);
    Pipeline pipeline(
        on_new_channel(fmt::format("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                                   "gpumapkernel kernel=convert {0} ! "
                                   "application/x-tensor(memory:GPUMap),type={1},layout=chw,channels=3 ! "
                                   "gpumapkernel location={2} {0} ! appsink name=out sync=false",
                                   normalise, type, kernel("tensor/from_tensor"))));
    gst_app_src_set_caps(pipeline.appsrc(), video_caps("RGBA", width, height).get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    Data picture = random_data(std::size_t{4} * static_cast<unsigned>(width) * static_cast<unsigned>(height), 5);
    for (std::size_t alpha = 3; alpha < picture.size(); alpha += 4) picture[alpha] = std::byte{255};
    push(pipeline.appsrc(), new_buffer(picture));
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    GstVideoInfo info;
    ASSERT_TRUE(gst_video_info_from_caps(&info, gst_sample_get_caps(sample.get())));
    EXPECT_EQ(GST_VIDEO_INFO_FORMAT(&info), GST_VIDEO_FORMAT_RGBA);
    EXPECT_EQ(GST_VIDEO_INFO_WIDTH(&info), width);
    EXPECT_EQ(GST_VIDEO_INFO_HEIGHT(&info), height);
    EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), picture);
  }
}

GPUMAP_BOTH_LANGUAGES(Tensor);

}  // namespace
}  // namespace gpumap::gst::test
