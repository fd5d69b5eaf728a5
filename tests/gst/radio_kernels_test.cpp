// SPDX-License-Identifier: MIT
// The kernels for samples, iq-to-f32 and iq-power, through the pipeline against plain C++.
#include <gmock/gmock.h>
#include <gst/audio/audio.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "builtin_reference.hpp"
#include "gst/radio/radio_metas.hpp"
#include "gst/radio/sigmf_metadata.hpp"
#include "pipeline.hpp"
#include "sigmf_recording.hpp"

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

// Centre frequency, gain and time of samples, from a recording through kernels and across a socket.

using testing::HasSubstr;

/// exp(2 pi i frequency t) in cf32.
Data tone(double rate, double frequency, std::size_t samples) {
  Data data(8 * samples);
  for (std::size_t i = 0; i < samples; ++i) {
    const double phase = 2.0 * std::numbers::pi * std::fmod(frequency * static_cast<double>(i) / rate, 1.0);
    const std::array iq{static_cast<float>(std::cos(phase)), static_cast<float>(std::sin(phase))};
    std::memcpy(&data[8 * i], iq.data(), 8);
  }
  return data;
}

std::vector<float> floats_of(const Sample& sample) {
  const Data data = data_of(buffer_of(sample));
  std::vector<float> floats(data.size() / 4);
  std::memcpy(floats.data(), data.data(), floats.size() * 4);
  return floats;
}

/// Hertz, over the last half of a buffer of I and Q, where a filter is filled.
double frequency_in(const Sample& sample, double rate) {
  const std::vector<float> iq = floats_of(sample);
  double turned = 0.0;
  const std::size_t last = iq.size() / 2, first = last / 2;
  for (std::size_t i = first; i + 1 < last; ++i) {
    const std::complex<double> one(iq[2 * i], iq[2 * i + 1]), next(iq[2 * i + 2], iq[2 * i + 3]);
    turned += std::arg(next * std::conj(one));
  }
  return turned / (2.0 * std::numbers::pi) * rate / static_cast<double>(last - 1 - first);
}

std::optional<double> center_of(const Sample& sample) {
  return center_frequency_of(gst_caps_get_structure(gst_sample_get_caps(sample.get()), 0));
}

/// A tone at 100.03 MHz, in a band of 200 kHz around 100 MHz.
constexpr double band_rate = 200e3, band_center = 100e6, tone_at = 100.03e6;
constexpr const char* band = R"("core:datatype":"cf32_le","core:sample_rate":200000)";

struct Tuned : Sigmf {
  void SetUp() override {
    record(band, tone(band_rate, tone_at - band_center, 40'000),
           R"({"core:sample_start":0,"core:frequency":100000000})");
  }
  [[nodiscard]] std::vector<Sample> through(const std::string& kernel, const std::string& caps = "audio/x-raw") {
    return play(source("block-samples=10000") + " ! gpumapupload ! gpumapkernel name=kernel " + kernel + " ! " + caps +
                " ! appsink name=out sync=false");
  }
};

TEST_F(Tuned, DdcTakesAFrequencyOfTheSky) {
  // The same band by both ways: what comes is centred there, and caps and metas say so.
  for (const char* const params : {"rate=20000,sky=100028500", "rate=20000,frequency=28500"}) {
    const auto samples = through(std::string("kernel=ddc params=") + params);
    ASSERT_EQ(outcome_, "eos") << params;
    ASSERT_EQ(samples.size(), 4U);
    for (const Sample& sample : samples) {
      EXPECT_NEAR(frequency_in(sample, 20e3), tone_at - 100.0285e6, 0.5) << params;
      EXPECT_EQ(center_of(sample), 100.0285e6) << params;
      EXPECT_EQ(radio_of(buffer_of(sample)).center_frequency, 100.0285e6) << params;
    }
  }
  // Two in a row, and what the second one asks of the sky is of the first one's band.
  const auto samples =
      through("kernel=ddc params=rate=40000,sky=100025000 ! gpumapkernel kernel=ddc params=rate=8000,sky=100029000");
  ASSERT_EQ(outcome_, "eos");
  EXPECT_NEAR(frequency_in(samples.back(), 8e3), 1000.0, 0.5);
  EXPECT_EQ(center_of(samples.back()), 100.029e6);
}

TEST_F(Tuned, DdcIsTunedWhileItPlays) {
  pipeline_.emplace(
      source("block-samples=1000") +
      " ! gpumapupload ! gpumapkernel name=kernel kernel=ddc params=rate=20000,sky=100028500 ! audio/x-raw ! "
      "appsink name=out sync=false max-buffers=1");
  pipeline_->set_state(GST_STATE_PLAYING);
  const Sample first = pull(pipeline_->appsink());
  ASSERT_TRUE(first);
  EXPECT_EQ(center_of(first), 100.0285e6);
  gst_child_proxy_set(GST_CHILD_PROXY(pipeline_->element("kernel")), "sky::value", 100.031e6, nullptr);
  std::size_t bytes = gst_buffer_get_size(buffer_of(first));
  Sample last;
  while (Sample sample = pull(pipeline_->appsink())) {
    bytes += gst_buffer_get_size(buffer_of(sample));
    // Caps change in front of the frame that is tuned to them.
    EXPECT_EQ(radio_of(buffer_of(sample)).center_frequency, center_of(sample));
    last = std::move(sample);
  }
  ASSERT_EQ(pipeline_->wait(), "eos");
  EXPECT_EQ(bytes, 8U * 4000U);
  EXPECT_EQ(center_of(last), 100.031e6);
  EXPECT_NEAR(frequency_in(last, 20e3), -1000.0, 0.5);
}

// The receiver is tuned elsewhere in the middle of the recording: the station stays where it is.
TEST_F(Tuned, DdcFollowsAReceiverThatIsTunedElsewhere) {
  Data data = tone(band_rate, tone_at - band_center, 20'000);
  const Data behind = tone(band_rate, tone_at - 100.05e6, 20'000);
  data.insert(data.end(), behind.begin(), behind.end());
  record(
      band, data,
      R"({"core:sample_start":0,"core:frequency":100000000},{"core:sample_start":20000,"core:frequency":100050000})");
  const auto samples = through("kernel=ddc params=rate=20000,sky=100028500");
  ASSERT_EQ(outcome_, "eos");
  ASSERT_EQ(samples.size(), 4U);
  for (const Sample& sample : samples) {
    EXPECT_NEAR(frequency_in(sample, 20e3), 1500.0, 0.5);
    EXPECT_EQ(radio_of(buffer_of(sample)).center_frequency, 100.0285e6);
    EXPECT_EQ(center_of(sample), 100.0285e6);
  }
}

// It sees more, or less, from elsewhere: what is inside one band only is asked of that one.
TEST_F(Tuned, DdcFollowsAReceiverThatSeesAnotherBand) {
  struct Band {
    double rate, center;
  };
  Pipeline pipeline(
      "appsrc name=in format=time ! gpumapupload ! gpumapkernel kernel=ddc params=rate=20000,sky=100028500 ! "
      "audio/x-raw ! appsink name=out sync=false");
  pipeline.set_state(GST_STATE_PLAYING);
  GstClockTime time = 0;
  for (const Band& one : {Band{200e3, 100e6}, Band{800e3, 100.35e6}, Band{200e3, 100e6}}) {
    const Ptr<GstCaps> caps(gst_caps_new_simple(
        "audio/x-raw", "format", G_TYPE_STRING, "F32LE", "layout", G_TYPE_STRING, "interleaved", "channels", G_TYPE_INT,
        2, "rate", G_TYPE_INT, static_cast<gint>(one.rate), "center-frequency", G_TYPE_DOUBLE, one.center, nullptr));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    const Data data = tone(one.rate, tone_at - one.center, static_cast<std::size_t>(one.rate / 20));
    push(pipeline.appsrc(), new_buffer(data, time));
    time += 50 * GST_MSECOND;
    const Sample sample = pull(pipeline.appsink());
    ASSERT_TRUE(sample) << one.rate << ": " << pipeline.wait();
    EXPECT_NEAR(frequency_in(sample, 20e3), 1500.0, 0.5) << one.rate;
    EXPECT_EQ(center_of(sample), 100.0285e6) << one.rate;
  }
}

TEST_F(Tuned, WhatIsOutsideTheBandIsAnError) {
  (void)through("kernel=ddc params=rate=20000,sky=100200000");
  EXPECT_THAT(outcome_, HasSubstr("sky=100200000 is outside the input's band, 200000 Hz around 100000000: give"));
  (void)through("kernel=ddc params=rate=20000,sky=100000001,frequency=1");
  EXPECT_THAT(outcome_, HasSubstr("frequency=1 and sky=100000001: give one of the two"));
  record(band, tone(band_rate, 0, 1000));  // of a centre that nobody knows
  (void)through("kernel=ddc params=rate=20000,sky=100200000");
  EXPECT_THAT(outcome_,
              HasSubstr("sky=100200000, and neither caps nor frames say the centre frequency of the band: put"));
  EXPECT_EQ(through("kernel=ddc params=rate=20000,sky=100001000,center=100000000").size(), 1U);
  EXPECT_EQ(outcome_, "eos");
}

// A source that may choose its caps is not told by what follows the kernel where its band is.
TEST_F(Tuned, TheSkyIsNotTakenForTheInputsCenter) {
  const std::string sky = "kernel=ddc params=sky=100005000";
  for (const char* const behind : {"audio/x-raw", "audio/x-raw,center-frequency=(double)100005000"}) {
    const auto samples = through(sky, behind);
    ASSERT_EQ(outcome_, "eos") << behind;
    EXPECT_NEAR(frequency_in(samples.front(), band_rate), 25e3, 5.0) << behind;
    EXPECT_EQ(center_of(samples.front()), 100.005e6) << behind;
  }
  (void)through("kernel=ddc params=sky=100000000");
  EXPECT_EQ(outcome_, "eos");
  record(band, tone(band_rate, tone_at - band_center, 20'000));  // of a centre that nobody knows
  for (const char* const behind : {"audio/x-raw", "audio/x-raw,center-frequency=(double)100005000"}) {
    (void)through(sky, behind);
    EXPECT_THAT(outcome_, HasSubstr("neither caps nor frames say the centre frequency of the band")) << behind;
  }
}

// Bin i stands at center-frequency + (i - bins / 2) * rate / bins; a row's time is that of the samples that it is made
// of.
TEST_F(Tuned, SpectrumSaysWhereItsBinsAreAndWhenItWas) {
  record(band, tone(band_rate, tone_at - band_center, 40'000),
         R"({"core:sample_start":0,"core:frequency":100000000,"core:datetime":"2024-05-06T07:08:09Z"})",
         R"({"core:sample_start":1500,"core:label":"in a frame that gives nothing"})");
  const auto samples = play(source("block-samples=1000") +
                            " ! gpumapupload ! gpumapkernel kernel=spectrum params=size=2000 ! appsink name=out");
  EXPECT_THAT(outcome_, HasSubstr("size=2000 is not a power of two"));
  const auto rows = play(source("block-samples=1000") +
                         " ! gpumapupload ! gpumapkernel kernel=spectrum params=size=4096,window=1 ! appsink name=out "
                         "sync=false");
  ASSERT_EQ(outcome_, "eos");
  ASSERT_EQ(rows.size(), 9U);
  std::size_t annotated = 0;
  for (const Sample& row : rows) {
    const std::vector<float> power = floats_of(row);
    const auto peak = static_cast<double>(std::max_element(power.begin(), power.end()) - power.begin());
    ASSERT_TRUE(center_of(row));
    EXPECT_NEAR(*center_of(row) + (peak - 2048.0) * band_rate / 4096.0, tone_at, band_rate / 4096.0);
    const GstBuffer* buffer = buffer_of(row);
    EXPECT_EQ(unix_time_of(buffer_of(row)), 1'714'979'289'000'000'000 + GST_BUFFER_PTS(buffer));
    annotated += annotations_of(buffer_of(row), band_rate).size();
  }
  EXPECT_EQ(annotated, 1U);
}

// To another process they go with the samples, too.
TEST_F(Tuned, MetasCrossASocket) {
  record(band, tone(band_rate, tone_at - band_center, 40'000),
         R"({"core:sample_start":0,"core:frequency":1e8,"core:datetime":"2024-05-06T07:08:09Z","gpumap:gain":20.5})",
         R"({"core:sample_start":5,"core:label":"crossed","core:sample_count":3})");
  Pipeline consumer("gpumapsrc socket-path=" + path("socket") + " on-lost=eos ! sigmfsink location=" + path("y"));
  ASSERT_NE(consumer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Pipeline producer(source("block-samples=7000") +
                    " ! gpumapsink wait-for-connection=true socket-path=" + path("socket"));
  ASSERT_EQ(producer.run(), "eos");
  ASSERT_EQ(consumer.wait(), "eos");
  consumer.stop();
  EXPECT_TRUE(file("y.sigmf-data") == file("x.sigmf-data"));
  const SigmfMetadata made = read_sigmf(path("y.sigmf-meta"));
  ASSERT_FALSE(made.captures.empty());
  for (const SigmfCapture& one : made.captures) {  // a frame behind a change of ring is DISCONT, and begins one
    EXPECT_EQ(one.frequency, 1e8);
    EXPECT_EQ(one.gain, 20.5);
    EXPECT_EQ(one.datetime, 1'714'979'289'000'000'000U + made.time_of(one.sample_start));
  }
  ASSERT_EQ(made.annotations.size(), 1U);
  EXPECT_EQ(made.annotations[0].sample_start, 5U);
  EXPECT_EQ(made.annotations[0].label, "crossed");
}

}  // namespace
}  // namespace gpumap::gst::test
