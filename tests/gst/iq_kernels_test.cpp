// SPDX-License-Identifier: MIT
// The kernels for samples, iq-to-f32 and iq-power, through the pipeline against plain C++.
#include <gst/audio/audio.h>

#include <cmath>
#include <cstring>

#include "builtin_reference.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

struct Format {
  const char* name;
  std::uint32_t id;
};
constexpr Format formats[] = {{"U8", GPUMAP_FORMAT_U8},           {"S8", GPUMAP_FORMAT_S8},
                              {"S16LE", GPUMAP_FORMAT_S16},       {"S16BE", GPUMAP_FORMAT_S16_BE},
                              {"U16LE", GPUMAP_FORMAT_U16},       {"U16BE", GPUMAP_FORMAT_U16_BE},
                              {"S24LE", GPUMAP_FORMAT_S24},       {"S24BE", GPUMAP_FORMAT_S24_BE},
                              {"S24_32LE", GPUMAP_FORMAT_S24_32}, {"S24_32BE", GPUMAP_FORMAT_S24_32_BE},
                              {"S32LE", GPUMAP_FORMAT_S32},       {"S32BE", GPUMAP_FORMAT_S32_BE},
                              {"U32LE", GPUMAP_FORMAT_U32},       {"U32BE", GPUMAP_FORMAT_U32_BE},
                              {"F32LE", GPUMAP_FORMAT_F32},       {"F32BE", GPUMAP_FORMAT_F32_BE},
                              {"F64LE", GPUMAP_FORMAT_F64},       {"F64BE", GPUMAP_FORMAT_F64_BE},
                              {"S12LE", GPUMAP_FORMAT_S12}};

/// The media type of caps.
std::string media(const Format& format) {
  return format.id == GPUMAP_FORMAT_S12 ? "application/x-iq" : "audio/x-raw";
}

class Samples : public testing::TestWithParam<Format> {
 protected:
  static std::vector<float> floats_of(const Sample& sample) {
    const Data data = data_of(gst_sample_get_buffer(sample.get()));
    std::vector<float> floats(data.size() / 4);
    std::memcpy(floats.data(), data.data(), floats.size() * 4);
    return floats;
  }

  /// Frames of several sizes through `kernel`; expected(frame, i) is what float i should be.
  template <typename Expected>
  static void expect_from(const std::string& kernel, int channels, int channels_out, std::size_t outputs_per_sample_of,
                          Expected expected) {
    for (const char* memory : {"", "(memory:GPUMap)"}) {
      Pipeline pipeline(
          on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                         "gpumapkernel kernel=" +
                         kernel + " ! capsfilter caps=audio/x-raw" + memory + " ! appsink name=out sync=false"));
      const Caps caps = new_caps(media(GetParam()) + ",format=" + GetParam().name +
                                 ",layout=interleaved,rate=2400000,channels=" + std::to_string(channels) +
                                 (channels > 2 ? ",channel-mask=(bitmask)0" : ""));
      gst_app_src_set_caps(pipeline.appsrc(), caps.get());
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      for (const std::size_t frames : {1, 3, 1023, 40001, 17}) {
        const std::size_t samples = frames * static_cast<std::size_t>(channels);
        const Data in = reference::random_samples(GetParam().id, samples, frames);
        push(pipeline.appsrc(), new_buffer(in));
        const Sample sample = pull(pipeline.appsink());
        ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
        const GstStructure* made = gst_caps_get_structure(gst_sample_get_caps(sample.get()), 0);
        EXPECT_STREQ(gst_structure_get_string(made, "format"), "F32LE");
        gint rate = 0, got_channels = 0;
        EXPECT_TRUE(gst_structure_get(made, "rate", G_TYPE_INT, &rate, "channels", G_TYPE_INT, &got_channels, nullptr));
        EXPECT_EQ(rate, 2400000);
        EXPECT_EQ(got_channels, channels_out);
        const std::vector<float> got = floats_of(sample);
        ASSERT_EQ(got.size(), samples / outputs_per_sample_of);
        for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(double{got[i]}, expected(in, i), 1e-6) << i;
      }
    }
  }
};

TEST_P(Samples, ToFloat) {
  for (const int channels : {1, 2, 32}) {
    if (GetParam().id == GPUMAP_FORMAT_S12 && channels != 2) continue;
    expect_from("iq-to-f32", channels, channels, 1,
                [](const Data& in, std::size_t i) { return reference::sample(GetParam().id, in, i); });
  }
}

TEST_P(Samples, Power) {
  expect_from("iq-power", 2, 1, 2, [](const Data& in, std::size_t i) {
    const double in_phase = reference::sample(GetParam().id, in, 2 * i);
    const double quadrature = reference::sample(GetParam().id, in, 2 * i + 1);
    return in_phase * in_phase + quadrature * quadrature;
  });
}

// Only whole frames have room in the output: what is left waits for the next buffer, and a buffer without one gives
// none.
TEST_P(Samples, PartialFrames) {
  struct Case {
    const char* kernel;
    int channels;
    std::size_t bytes, frames;
  };
  if (GetParam().id == GPUMAP_FORMAT_S12) GTEST_SKIP() << "is of two channels: see PackedSamplesEndAnywhere";
  const std::size_t sample = reference::sample_bits(GetParam().id) / 8;
  const std::string user = "location=" GPUMAP_EXAMPLES "/kernels/invert.comp";
  for (const Case& test :
       {Case{"kernel=iq-to-f32", 64, 64 * sample * 15 + 41, 15}, Case{"kernel=iq-to-f32", 64, 3, 0},
        Case{"kernel=iq-to-f32", 100000, 99999, 0}, Case{"kernel=iq-power", 2, 2 * sample * 5 + 1, 5},
        Case{user.c_str(), 64, 64 * sample * 15 + 41, 15}}) {
    SCOPED_TRACE(testing::Message() << test.kernel << ", " << test.channels << " channels, " << test.bytes << " bytes");
    Pipeline pipeline(
        on_new_channel(std::string("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                                   "gpumapkernel ") +
                       test.kernel + " ! capsfilter caps=audio/x-raw ! appsink name=out sync=false"));
    const Caps caps =
        new_caps(media(GetParam()) + ",format=" + GetParam().name +
                 ",layout=interleaved,rate=48000,channel-mask=(bitmask)0,channels=" + std::to_string(test.channels));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Data in = random_data(test.bytes, 5);
    push(pipeline.appsrc(), new_buffer(in));
    if (test.frames == 0) {
      gst_app_src_end_of_stream(pipeline.appsrc());
      EXPECT_EQ(pull(pipeline.appsink()), nullptr);
      EXPECT_EQ(pipeline.wait(), "eos");
      continue;
    }
    const Sample got = pull(pipeline.appsink());
    ASSERT_NE(got, nullptr) << pipeline.wait(1ms);
    GstAudioInfo info;
    ASSERT_TRUE(gst_audio_info_from_caps(&info, gst_sample_get_caps(got.get())));
    EXPECT_EQ(gst_buffer_get_size(gst_sample_get_buffer(got.get())),
              test.frames * static_cast<std::size_t>(GST_AUDIO_INFO_BPF(&info)));
  }
}

// Two samples of 12 bits share a byte; buffers that end within one leave it to the next.
TEST(PackedIq, SamplesEndAnywhere) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel "
                     "kernel=iq-to-f32 ! audio/x-raw ! appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(),
                       new_caps("application/x-iq,format=S12LE,layout=interleaved,channels=2,rate=1000").get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Data in = random_data(3001, 9);
  std::size_t at = 0;
  for (const std::size_t bytes : {1000, 1, 1, 7, 1992}) {
    push(pipeline.appsrc(), new_buffer(Data(in.begin() + static_cast<std::ptrdiff_t>(at),
                                            in.begin() + static_cast<std::ptrdiff_t>(at + bytes))));
    at += bytes;
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  std::vector<float> got;
  while (const Sample sample = pull(pipeline.appsink())) {
    const Data data = data_of(gst_sample_get_buffer(sample.get()));
    got.resize(got.size() + data.size() / 4);
    std::memcpy(&got[got.size() - data.size() / 4], data.data(), data.size());
  }
  EXPECT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(got.size(), 2000U);
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(double{got[i]}, reference::sample(GPUMAP_FORMAT_S12, in, i)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Samples, testing::ValuesIn(formats),
                         [](const auto& test) { return std::string(test.param.name); });

// One kernel after another, the first one's result in GPU memory: ordered without the CPU.
// Between two kernels a frame stays in GPU memory, though the last one's neighbour wants system memory.
TEST(KernelChain, StaysOnTheGpuInBetween) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=33,height=17 ! gpumapsink $CHANNEL "
                     "gpumapsrc $CHANNEL ! gpumapkernel kernel=convert ! gpumapkernel name=second kernel=identity ! "
                     "video/x-raw,format=RGBA ! fakesink"));
  ASSERT_EQ(pipeline.run(), "eos");
  const Pad pad(gst_element_get_static_pad(pipeline.element("second"), "sink"));
  const Caps caps(gst_pad_get_current_caps(pad.get()));
  ASSERT_NE(caps, nullptr);
  EXPECT_TRUE(gst_caps_features_contains(gst_caps_get_features(caps.get(), 0), "memory:GPUMap"));
}

TEST(KernelChain, PowerOfConvertedSamplesThenItsSum) {
  Pipeline pipeline(on_new_channel(
      "appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=iq-to-f32 ! "
      "gpumapkernel kernel=iq-power ! gpumapkernel kernel=identity ! gpumapkernel kernel=checksum ! "
      "appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(),
                       new_caps("audio/x-raw,format=S16LE,layout=interleaved,rate=48000,channels=2").get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  constexpr std::size_t count = 50;
  std::vector<Data> results;
  for (std::size_t i = 0; i < count; ++i) push(pipeline.appsrc(), new_buffer(random_data(std::size_t{4} * 30011, i)));
  gst_app_src_end_of_stream(pipeline.appsrc());
  for (std::size_t i = 0; i < count; ++i) {
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr);
    results.push_back(data_of(gst_sample_get_buffer(sample.get())));
  }
  ASSERT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const Data in = random_data(std::size_t{4} * 30011, i);
    EXPECT_EQ(pipeline.results()[i].checksum, checksum_of(results[i]));
    for (std::size_t at = 0; at < 30011; at += 997) {
      float got = 0;
      std::memcpy(&got, &results[i][4 * at], 4);
      const double in_phase = reference::sample(GPUMAP_FORMAT_S16, in, 2 * at);
      const double quadrature = reference::sample(GPUMAP_FORMAT_S16, in, 2 * at + 1);
      ASSERT_NEAR(double{got}, in_phase * in_phase + quadrature * quadrature, 1e-6) << i << " " << at;
    }
  }
}

}  // namespace
}  // namespace gpumap::gst::test
