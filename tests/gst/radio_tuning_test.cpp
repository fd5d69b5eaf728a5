// SPDX-License-Identifier: MIT
// Centre frequency, gain and time of samples, from a recording through kernels and across a socket.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "gst/radio/radio_metas.hpp"
#include "gst/radio/sigmf_metadata.hpp"
#include "sigmf_recording.hpp"

namespace gpumap::gst::test {
namespace {

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
