// SPDX-License-Identifier: MIT
// What the tests of kernels in files share: compute shaders that make gray pictures, and frames through them.
#pragma once

#include <string>

#include "result_stream.hpp"

namespace gpumap::gst::test {

/// One thread an output pixel: its value is `value`, of uint x and y.
inline std::string gray(const std::string& declarations, const std::string& value) {
  return declarations +
         "void main() {\n"
         "  uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;\n"
         "  if (x >= frame.out_view.width || y >= frame.out_view.height) return;\n"
         "  store_u8(frame.out_view.plane[0] + uint64_t(y) * frame.out_view.stride[0] + x, " +
         value + ");\n}\n";
}

inline constexpr const char* input_pixel =
    "load_u8(frame.in_view.plane[0] + uint64_t(2 * y) * frame.in_view.stride[0] + 2 * x)";
inline constexpr const char* halved = "// gpumap: output video/x-raw,format=GRAY8,width={width/2},height={height/2}\n";

/// Frames of 65x43 GRAY8 of random bytes into a gpumapkernel with `options`, and out to an appsink.
class Own {
 public:
  explicit Own(const std::string& options, const std::string& after = "")
      : pipeline_(on_new_channel("appsrc name=in format=time caps=video/x-raw,format=GRAY8,width=65,height=43,"
                                 "framerate=30/1 ! gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! "
                                 "gpumapkernel name=kernel " +
                                 options + " ! " + after + " appsink name=out sync=false")),
        data_(random_data(frame_bytes, 11)) {}

  static constexpr int stride = 68;
  static constexpr std::size_t frame_bytes = std::size_t{stride} * 43;
  Pipeline& pipeline() { return pipeline_; }
  [[nodiscard]] unsigned pixel(int x, int y) const { return std::to_integer<unsigned>(data_[y * stride + x]); }

  Sample frame(GstClockTime pts = 0) {
    EXPECT_NE(pipeline_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push(pipeline_.appsrc(), new_buffer(data_, pts));
    return pull(pipeline_.appsink());
  }
  /// The first bytes of the next frame out.
  Data bytes(GstClockTime pts = 0) {
    const Sample sample = frame(pts);
    return sample ? data_of(gst_sample_get_buffer(sample.get())) : Data();
  }

 private:
  Pipeline pipeline_;
  Data data_;
};

inline std::string caps_of(const Sample& sample) {
  gchar* text = gst_caps_to_string(gst_sample_get_caps(sample.get()));
  std::string made = text;
  g_free(text);
  return made;
}

}  // namespace gpumap::gst::test
