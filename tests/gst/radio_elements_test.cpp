// SPDX-License-Identifier: MIT
// The radio built-ins through the pipeline: caps, times, and that a tone ends where it belongs.
#include <gmock/gmock.h>
#include <gst/audio/audio.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <numbers>
#include <optional>
#include <tuple>

#include "pipeline.hpp"
#include "test_frames.hpp"

namespace gpumap::gst::test {
namespace {

using testing::HasSubstr;

/// exp(2 pi i frequency t) in S16.
Data tone(double rate, double frequency, std::size_t samples, std::size_t first = 0) {
  Data data(4 * samples);
  for (std::size_t i = 0; i < samples; ++i) {
    const double phase = 2.0 * std::numbers::pi * std::fmod(frequency * static_cast<double>(first + i) / rate, 1.0);
    const std::array iq{static_cast<std::int16_t>(std::lround(32000.0 * std::cos(phase))),
                        static_cast<std::int16_t>(std::lround(32000.0 * std::sin(phase)))};
    std::memcpy(&data[4 * i], iq.data(), 4);
  }
  return data;
}

std::vector<float> floats_of(GstSample* sample) {
  const Data data = data_of(gst_sample_get_buffer(sample));
  std::vector<float> floats(data.size() / 4);
  std::memcpy(floats.data(), data.data(), floats.size() * 4);
  return floats;
}

std::string caps_of(GstSample* sample) {
  gchar* text = gst_caps_to_string(gst_sample_get_caps(sample));
  std::string copy = text;
  g_free(text);
  return copy;
}

constexpr std::size_t frame_samples = 1000;

class Radio : public testing::Test {
 protected:
  /// S16 IQ through `kernels` to an appsink.
  void start(const std::string& kernels, int rate = 2400000) {
    pipeline_.emplace(on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! " +
                                     kernels + " ! appsink name=out sync=false"));
    gst_app_src_set_caps(
        pipeline_->appsrc(),
        new_caps("audio/x-raw,format=S16LE,layout=interleaved,channels=2,channel-mask=(bitmask)0,rate=" +
                 std::to_string(rate))
            .get());
    ASSERT_NE(pipeline_->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  /// A tone in frames of 1000 samples, a millisecond each, then the stream's end.
  void push_tone(double frequency, std::size_t frames, double rate = 2400000.0) {
    for (std::size_t i = 0; i < frames; ++i) {
      Buffer buffer = new_buffer(tone(rate, frequency, frame_samples, i * frame_samples),
                                 static_cast<GstClockTime>(i) * GST_MSECOND);
      GST_BUFFER_DURATION(buffer.get()) = GST_MSECOND;
      ASSERT_TRUE(push(pipeline_->appsrc(), std::move(buffer)));
    }
    gst_app_src_end_of_stream(pipeline_->appsrc());
  }
  /// All that comes.
  std::vector<Sample> pull_all() {
    std::vector<Sample> all;
    while (Sample sample = pull(pipeline_->appsink())) all.push_back(std::move(sample));
    EXPECT_EQ(pipeline_->wait(), "eos");
    return all;
  }

  std::optional<Pipeline> pipeline_;
};

/// Hertz, from one sample's phase to the next.
double frequency_of(const std::vector<float>& iq, double rate) {
  const auto at = [&](std::size_t i) { return std::complex<double>(iq[2 * i], iq[2 * i + 1]); };
  const std::size_t last = iq.size() / 2 - 1;
  return std::arg(at(last) * std::conj(at(last - 1))) / (2.0 * std::numbers::pi) * rate;
}

// As from a pipe, which knows nothing of samples: nothing is lost where a buffer ends within one.
TEST_F(Radio, BuffersMayEndWithinASample) {
  const Data all = random_data(120'004, 3);
  for (const std::string& kernels :
       std::vector<std::string>{"gpumapkernel kernel=magnitude", "gpumapkernel kernel=ddc params=rate=240000",
                                "gpumapkernel kernel=ssb params=rate=240000,lowest=9000,highest=90000",
                                "gpumapkernel kernel=iq-power ! gpumapkernel kernel=iq-to-f32"}) {
    // Times that jump, by a second each, tell nothing of bytes; kernels that remember samples begin anew there.
    const bool jumps = kernels.find("rate=") == kernels.npos;
    const auto played = [&](const std::vector<std::size_t>& sizes) {
      start(kernels + " ! audio/x-raw");
      for (std::size_t at = 0, i = 0; at < all.size(); ++i) {
        const std::size_t bytes = std::min(sizes[i % sizes.size()], all.size() - at);
        Data part(all.begin() + static_cast<std::ptrdiff_t>(at), all.begin() + static_cast<std::ptrdiff_t>(at + bytes));
        EXPECT_TRUE(push(pipeline_->appsrc(), new_buffer(part, jumps ? i * GST_SECOND : GST_CLOCK_TIME_NONE)));
        at += bytes;
      }
      gst_app_src_end_of_stream(pipeline_->appsrc());
      std::vector<float> made;
      for (const Sample& sample : pull_all()) {
        const auto floats = floats_of(sample.get());
        made.insert(made.end(), floats.begin(), floats.end());
      }
      return made;
    };
    const std::vector<float> expected = played({all.size()});
    EXPECT_GT(expected.size(), 2000U);
    EXPECT_EQ(played({4001, 1, 1, 2, 9003, 6}), expected) << kernels;
  }
}

TEST_F(Radio, DdcMovesAToneAndTellsItsRate) {
  start("gpumapkernel kernel=ddc params=\"frequency=250000,rate=240000\" ! audio/x-raw");
  push_tone(262000.0, 30);
  const auto samples = pull_all();
  ASSERT_EQ(samples.size(), 30U);
  std::size_t floats = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto got = floats_of(samples[i].get());
    floats += got.size();
    EXPECT_THAT(caps_of(samples[i].get()), HasSubstr("rate=(int)240000"));
    EXPECT_THAT(caps_of(samples[i].get()), HasSubstr("F32LE"));
    EXPECT_EQ(GST_BUFFER_PTS(gst_sample_get_buffer(samples[i].get())), i * GST_MSECOND);
    EXPECT_EQ(GST_BUFFER_DURATION(gst_sample_get_buffer(samples[i].get())), GST_MSECOND);
    if (i < 2) continue;  // the filter fills
    EXPECT_NEAR(frequency_of(got, 240000.0), 12000.0, 50.0) << i;
  }
  EXPECT_EQ(floats, 2 * 3000U);
}

TEST_F(Radio, DdcTakesItsRateFromDownstreamOrKeepsTheInputs) {
  start("gpumapkernel kernel=ddc params=\"frequency=250000\" ! audio/x-raw,rate=48000");
  push_tone(251000.0, 20);
  auto samples = pull_all();
  ASSERT_FALSE(samples.empty());
  EXPECT_THAT(caps_of(samples.back().get()), HasSubstr("rate=(int)48000"));
  EXPECT_NEAR(frequency_of(floats_of(samples.back().get()), 48000.0), 1000.0, 20.0);
  start("gpumapkernel kernel=ddc params=\"frequency=250000\" ! audio/x-raw");
  push_tone(251000.0, 3);
  samples = pull_all();
  ASSERT_FALSE(samples.empty());
  EXPECT_THAT(caps_of(samples.back().get()), HasSubstr("rate=(int)2400000"));
}

// Frames that only fill a transform give no buffer; what comes spans them.
TEST_F(Radio, SpectrumGathersFrames) {
  start("gpumapkernel kernel=spectrum params=\"size=2048,db=1,window=3\" ! application/x-spectrum");
  push_tone(300000.0, 21);
  const auto samples = pull_all();
  ASSERT_EQ(samples.size(), 10U);
  GstClockTime expected = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    GstBuffer* buffer = gst_sample_get_buffer(samples[i].get());
    EXPECT_EQ(GST_BUFFER_PTS(buffer), expected) << i;
    EXPECT_EQ(GST_BUFFER_DURATION(buffer), (i == 0 ? 3 : 2) * GST_MSECOND) << i;
    expected += GST_BUFFER_DURATION(buffer);
    EXPECT_TRUE(i == 0 || !GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DISCONT)) << i;
    const auto row = floats_of(samples[i].get());
    ASSERT_EQ(row.size(), 2048U);
    EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), 1024 + 256);
    EXPECT_NEAR(row[1024 + 256], 20.0 * std::log10(32000.0 / 32768.0), 0.01);
  }
  for (const char* field : {"bins=(int)2048", "rate=(int)2400000", "unit=(string)decibel", "format=(string)F32LE"}) {
    EXPECT_THAT(caps_of(samples.front().get()), HasSubstr(field));
  }
}

TEST_F(Radio, ChannelizerPutsAToneIntoItsChannel) {
  start("gpumapkernel kernel=channelizer params=\"channels=32,oversample=2\" ! application/x-iq-channels");
  push_tone(-3.0 * 75000.0, 5);
  const auto samples = pull_all();
  ASSERT_EQ(samples.size(), 5U);
  EXPECT_THAT(caps_of(samples.front().get()), HasSubstr("channels=(int)32"));
  EXPECT_THAT(caps_of(samples.front().get()), HasSubstr("rate=(fraction)150000/1"));
  const auto last = floats_of(samples.back().get());
  ASSERT_EQ(last.size() % 64, 0U);
  for (std::size_t channel = 0; channel < 32; ++channel) {
    const std::size_t at = last.size() - 64 + 2 * channel;
    EXPECT_NEAR(std::hypot(last[at], last[at + 1]), channel == 29 ? 32000.0 / 32768.0 : 0.0, 1e-3) << channel;
  }
}

// Before the start, and on the command line before the kernel that has them.
TEST_F(Radio, ChildrenSetParametersThatCapsHangOn) {
  const std::pair<const char*, const char*> cases[] = {
      {"kernel=spectrum size::value=256", "bins=(int)256"},
      {"size::value=512 kernel=spectrum params=size=64,db=1", "bins=(int)512"},
      {"kernel=channelizer channels::value=8", "channels=(int)8"},
      {"kernel=channelizer params=channels=7", "channels=(int)7, rate=(fraction)2400000/7"},
      {"kernel=ddc rate::value=48000", "rate=(int)48000"},
      {"kernel=ddc params=rate=240000 ! gpumapkernel kernel=fm params=rate=48000", "channels=(int)1, rate=(int)48000"},
      {"kernel=fm rate::value=96000", "channels=(int)1, rate=(int)96000"},
  };
  for (const auto& [options, field] : cases) {
    start(std::string("gpumapkernel name=kernel ") + options);
    push_tone(1000.0, 4);
    const auto samples = pull_all();
    ASSERT_FALSE(samples.empty()) << options;
    EXPECT_THAT(caps_of(samples.front().get()), HasSubstr(field)) << options;
  }
  // Set between the start and the first caps.
  start("gpumapkernel name=kernel kernel=spectrum");
  gst_child_proxy_set(GST_CHILD_PROXY(pipeline_->element("kernel")), "size::value", 128.0, nullptr);
  push_tone(1000.0, 4);
  const auto samples = pull_all();
  ASSERT_FALSE(samples.empty());
  EXPECT_THAT(caps_of(samples.front().get()), HasSubstr("bins=(int)128"));
  EXPECT_EQ(floats_of(samples.front().get()).size() % 128, 0U);
}

// Samples on both sides of a hole do not belong together.
TEST_F(Radio, BeginsAnewAtADiscontinuity) {
  start("gpumapkernel kernel=spectrum params=size=2048 ! application/x-spectrum");
  for (std::size_t i = 0; i < 10; ++i) {
    Buffer buffer = new_buffer(tone(2400000.0, 300000.0, frame_samples, i * frame_samples), i * GST_MSECOND);
    GST_BUFFER_DURATION(buffer.get()) = GST_MSECOND;
    if (i == 0 || i == 2 || i == 5) GST_BUFFER_FLAG_SET(buffer.get(), GST_BUFFER_FLAG_DISCONT);
    ASSERT_TRUE(push(pipeline_->appsrc(), std::move(buffer)));
  }
  gst_app_src_end_of_stream(pipeline_->appsrc());
  const auto samples = pull_all();
  // Of frames 0 and 1 nothing comes, of 2 to 4 one, of 5 to 9 two: three frames fill one, and the next needs two more.
  ASSERT_EQ(samples.size(), 3U);
  constexpr std::array<GstClockTime, 3> begins{2, 5, 8};
  for (std::size_t i = 0; i < 3; ++i) {
    GstBuffer* buffer = gst_sample_get_buffer(samples[i].get());
    EXPECT_EQ(GST_BUFFER_PTS(buffer), begins[i] * GST_MSECOND) << i;
    EXPECT_EQ(GST_BUFFER_IS_DISCONT(buffer) != 0, i < 2) << i;
  }
}

// Nor do those that are due at another time, whether or not upstream says so.
TEST_F(Radio, BeginsAnewWhereSamplesAreNotDue) {
  start("gpumapkernel kernel=spectrum params=size=2048 ! application/x-spectrum");
  // Jitter, a hole of 10 s, no time at all, and a way back.
  const std::array<GstClockTime, 12> times{
      0, 7000, 20000, 31000, GST_CLOCK_TIME_NONE, GST_CLOCK_TIME_NONE, 10031, 10032, 10033, 5000, 5001, 5002};
  for (std::size_t i = 0; i < times.size(); ++i) {
    const GstClockTime pts = i < 4                             ? times[i] * GST_USECOND
                             : times[i] == GST_CLOCK_TIME_NONE ? times[i]
                                                               : times[i] * GST_MSECOND;
    ASSERT_TRUE(
        push(pipeline_->appsrc(), new_buffer(tone(2400000.0, 300000.0, frame_samples, i * frame_samples), pts)));
  }
  gst_app_src_end_of_stream(pipeline_->appsrc());
  const auto samples = pull_all();
  // Two of frames 0 to 5, one of 6 to 8 and one of 9 to 11.
  ASSERT_EQ(samples.size(), 4U);
  EXPECT_EQ(GST_BUFFER_PTS(gst_sample_get_buffer(samples[2].get())), 10031 * GST_MSECOND);
  EXPECT_EQ(GST_BUFFER_PTS(gst_sample_get_buffer(samples[3].get())), 5000 * GST_MSECOND);
}

TEST_F(Radio, LatencyIsWhatIsGathered) {
  const std::tuple<const char*, int, std::uint64_t> cases[] = {
      {"kernel=spectrum params=size=1024,overlap=0.5,average=10", 48000, 1024 + 9 * 512},
      {"kernel=spectrum params=size=256", 48000, 256},
      {"kernel=channelizer params=channels=64,oversample=2", 96000, 32},
      {"kernel=ddc params=rate=8000", 48000, 6},
      {"kernel=fm params=rate=8000,deviation=5000,highest=3000", 48000, 6},
      {"kernel=magnitude", 48000, 0},
  };
  for (const auto& [options, rate, gathered] : cases) {
    Pipeline pipeline(
        "appsrc name=in format=time is-live=true min-latency=1000000 max-latency=-1 ! queue ! "
        "gpumapkernel name=kernel " +
        std::string(options) + " ! fakesink name=out sync=false");
    gst_app_src_set_caps(
        pipeline.appsrc(),
        new_caps("audio/x-raw(memory:GPUMap),format=S16LE,layout=interleaved,channels=2,rate=" + std::to_string(rate))
            .get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(push(pipeline.appsrc(), on_gpu(tone(rate, 0.0, 100))));
    const GstClockTime expected = GST_MSECOND + gst_util_uint64_scale_ceil(gathered, GST_SECOND, rate);
    const Pad pad(gst_element_get_static_pad(pipeline.element("kernel"), "src"));
    GstClockTime least = 0, most = 0;
    gboolean live = FALSE;
    const bool told = eventually([&] {
      GstQuery* query = gst_query_new_latency();
      const bool answered = gst_pad_query(pad.get(), query) != 0;
      gst_query_parse_latency(query, &live, &least, &most);
      gst_query_unref(query);
      return answered && least == expected;
    });
    EXPECT_TRUE(told) << options << ": " << least << " instead of " << expected;
    EXPECT_TRUE(live);
    EXPECT_EQ(most, GST_CLOCK_TIME_NONE);
    // And the pipeline heard that it changed.
    const bool heard = eventually(
        [&] {
          GstMessage* message = gst_bus_pop_filtered(GST_ELEMENT_BUS(pipeline.get()), GST_MESSAGE_LATENCY);
          const bool from_kernel =
              message != nullptr && GST_MESSAGE_SRC(message) == GST_OBJECT_CAST(pipeline.element("kernel"));
          if (message != nullptr) gst_message_unref(message);
          return from_kernel;
        },
        gathered != 0 ? patience : 0s);
    EXPECT_EQ(heard, gathered != 0) << options;
  }
}

TEST_F(Radio, KernelsFollowEachOther) {
  start(
      "gpumapkernel kernel=ddc params=\"frequency=250000,rate=240000\" ! gpumapkernel kernel=magnitude ! "
      "audio/x-raw,channels=1");
  push_tone(262000.0, 10);
  const auto samples = pull_all();
  ASSERT_EQ(samples.size(), 10U);
  for (const float value : floats_of(samples.back().get())) EXPECT_NEAR(value, 32000.0 / 32768.0, 1e-3);
}

TEST_F(Radio, WhatIsWrongIsAnErrorOfTheElement) {
  const auto error_of = [&](const std::string& kernel) {
    start(kernel, 96000);
    (void)push(pipeline_->appsrc(), new_buffer(tone(96000.0, 0.0, 100)));
    return pipeline_->wait();
  };
  EXPECT_THAT(error_of("gpumapkernel kernel=ddc params=\"rate=192000\""), HasSubstr("above the input's 96000"));
  EXPECT_THAT(error_of("gpumapkernel kernel=ddc params=\"rate=48000,bandwidth=50000\""), HasSubstr("does not fit"));
}

TEST(RadioParameters, AreCheckedAtTheStart) {
  Pipeline pipeline(
      on_new_channel("appsrc ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=spectrum "
                     "params=\"size=1000\" ! fakesink"));
  (void)pipeline.set_state(GST_STATE_PLAYING);
  EXPECT_THAT(pipeline.wait(), HasSubstr("not a power of two"));
}

}  // namespace
}  // namespace gpumap::gst::test
