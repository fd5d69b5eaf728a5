// SPDX-License-Identifier: MIT
// soapysrc with a radio that is made up: samples, what goes wrong with them, and what can be set.
#include <gmock/gmock.h>

#include <SoapySDR/Errors.h>
#include <SoapySDR/Device.hpp>
#include <SoapySDR/Registry.hpp>
#include <cmath>
#include <cstring>

#include "gst/radio/radio.hpp"
#include "gst/radio/radio_metas.hpp"
#include "soapysrc_sides.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Registered : public testing::Environment {
  void SetUp() override {
    gst_init(nullptr, nullptr);
    ASSERT_TRUE(GST_ELEMENT_REGISTER(soapysrc, nullptr));
    ASSERT_TRUE(GST_DEVICE_PROVIDER_REGISTER(soapydeviceprovider, nullptr));
  }
};
const auto* const registered = testing::AddGlobalTestEnvironment(new Registered);

// What bench/run measures with: the made-up radio's cheap samples are those that tell which they are, and late reads
// are overflows.
TEST_F(SoapySrc, RepeatsAPeriodAtAnyRate) {
  Pipeline pipeline(source(",native=CU8,repeat=1,unit=100003", "num-buffers=9 rate=1200000000 buffer-samples=70001") +
                    "! appsink name=out sync=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Data once = expected_samples("CU8", 0, period);
  std::size_t at = 0;
  for (const Sample& sample : pull_all(pipeline)) {
    for (const std::byte byte : data_of(gst_sample_get_buffer(sample.get()))) {
      ASSERT_EQ(byte, once[at % once.size()]) << at;
      ++at;
    }
  }
  EXPECT_EQ(at, std::size_t{9} * 70001 * 2);

  Pipeline late(source(",repeat=1,paced=1,clock=1", "rate=100000 buffer-samples=1000") +
                "! appsink name=out sync=false max-buffers=1");
  ASSERT_NE(late.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(pull(late.appsink()));
  EXPECT_TRUE(eventually([&] {
    std::this_thread::sleep_for(150ms);
    // How many were lost is known when the samples behind them come.
    return pull(late.appsink()) && stat(late.element("radio"), "lost-samples") > 5000;
  }));
  EXPECT_GT(stat(late.element("radio"), "overflows"), 0U);
}

// Each format as the driver has it, through reads of other sizes than buffers.
TEST_F(SoapySrc, GivesEverySampleInTheNativeFormat) {
  const std::pair<const char*, const char*> formats[] = {
      {"CS16", "audio/x-raw, format=(string)S16LE, layout=(string)interleaved, channels=(int)2"},
      {"CU8", "audio/x-raw, format=(string)U8, layout=(string)interleaved, channels=(int)2"},
      {"CS8", "format=(string)S8"},
      {"CU16", "format=(string)U16LE"},
      {"CS12", "application/x-iq, format=(string)S12LE, layout=(string)interleaved, channels=(int)2"},
      {"CS32", "format=(string)S32LE"},
      {"CF32", "format=(string)F32LE"},
      {"CF64", "format=(string)F64LE"},
      {"S16", "audio/x-raw, format=(string)S16LE, layout=(string)interleaved, channels=(int)1"},
      {"U8", "audio/x-raw, format=(string)U8, layout=(string)interleaved, channels=(int)1"},
  };
  for (const auto& [format, caps] : formats) {
    Pipeline pipeline(
        source(std::string(",formats=CF32,native=") + format, "num-buffers=3 rate=1000000 buffer-samples=1733") +
        "! appsink name=out sync=false");
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const auto samples = pull_all(pipeline);
    ASSERT_EQ(samples.size(), 3U) << format;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(data_of(gst_sample_get_buffer(samples[i].get())), expected_samples(format, 1733 * i, 1733)) << format;
      EXPECT_EQ(is_discont(samples[i].get()), i == 0);
      EXPECT_EQ(GST_BUFFER_OFFSET(gst_sample_get_buffer(samples[i].get())), 1733 * i);
    }
    EXPECT_THAT(caps_of(samples.front().get()), AllOf(HasSubstr(caps), HasSubstr("rate=(int)1000000")));
    EXPECT_EQ(stat_text(pipeline.element("radio"), "format"), format);
    EXPECT_EQ(number_stat(pipeline.element("radio"), "full-scale"), 2048.0);
  }
}

TEST_F(SoapySrc, GivesAnotherFormatWhereDownstreamOrThePropertyWantsIt) {
  for (const auto& [options, caps] : {std::pair{"", " ! audio/x-raw,format=F32LE"}, {"format=CF32", ""}}) {
    Pipeline pipeline(source(",native=CU12,formats=CS16+CF32", std::string(options) + " num-buffers=2") + caps +
                      " ! appsink name=out sync=false");
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const auto samples = pull_all(pipeline);
    ASSERT_EQ(samples.size(), 2U);
    // 10 ms of 1 MS/s, as the radio has them without being told.
    EXPECT_EQ(data_of(gst_sample_get_buffer(samples[1].get())), expected_samples("CF32", 10000, 10000));
  }
}

TEST_F(SoapySrc, InterleavesChannels) {
  for (const char* format : {"CS16", "CU8", "CS12", "CF64", "S8"}) {
    Pipeline pipeline(
        source(std::string(",channels=3,native=") + format, "channels=2,0,1 num-buffers=2 buffer-samples=4999") +
        "! appsink name=out sync=false");
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const auto samples = pull_all(pipeline);
    ASSERT_EQ(samples.size(), 2U) << format;
    EXPECT_EQ(data_of(gst_sample_get_buffer(samples[1].get())), expected_samples(format, 4999, 4999, {2, 0, 1}));
    EXPECT_THAT(caps_of(samples[1].get()), HasSubstr(format[0] == 'C' ? "channels=(int)6" : "channels=(int)3"));
  }
}

// The driver writes into slots: no copy, and nothing is lost on the way through the GPU.
TEST_F(SoapySrc, WritesIntoGpuMemory) {
  std::vector<std::string> passages{"gpumapupload name=in"};
  for (const char* transport : transports()) {
    passages.push_back(on_transport("gpumapsink name=in $CHANNEL gpumapsrc $CHANNEL", transport));
  }
  for (const std::string& passage : passages) {
    SCOPED_TRACE(passage);
    Pipeline pipeline(on_new_channel(source("", "num-buffers=30 rate=1000000 buffer-samples=3001") + "! " + passage +
                                     " ! gpumapkernel kernel=identity ! appsink name=out sync=false"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    Data got;
    for (const Sample& sample : pull_all(pipeline)) {
      const Data part = data_of(gst_sample_get_buffer(sample.get()));
      got.insert(got.end(), part.begin(), part.end());
    }
    EXPECT_EQ(got, expected_samples("CS16", 0, 30UL * 3001));
    EXPECT_EQ(stat(pipeline.element("in"), "zero-copy-frames"), 30U);
    EXPECT_EQ(stat(pipeline.element("in"), "copied-frames"), 0U);
  }
}

// Where gpumapsink puts buffers together, they are parts of its frames, which the driver writes where they belong; also
// where the time limit ends frames. Across a queue they are copied.
TEST_F(SoapySrc, WritesPartsOfAFrame) {
  constexpr std::size_t all = 170;
  struct Case {
    const char *passage, *options, *arguments;
    std::size_t least, most;  ///< buffers in place
  };
  for (const auto& [passage, options, arguments, least, most] :
       {Case{"gpumapupload name=in gather=65536", "rate=20000000", "", all, all},
        {"gpumapsink name=in gather=65536 $CHANNEL gpumapsrc $CHANNEL", "rate=20000000", "", all, all},
        {"gpumapsink name=in gather=65536 transport=pinned $CHANNEL gpumapsrc $CHANNEL", "rate=20000000", "", all, all},
        {"gpumapsink name=in gather=160000 $CHANNEL gpumapsrc $CHANNEL", "rate=500000", "", all, all},
        {"gpumapsink name=in gather=65432 $CHANNEL gpumapsrc $CHANNEL", "rate=20000000", "", 1, all},
        {"gpumapsink name=in gather=65536 gather-time=20000 $CHANNEL gpumapsrc $CHANNEL", "rate=100000", ",paced=1", 1,
         all},
        {"queue min-threshold-buffers=3 ! gpumapsink name=in gather=65536 $CHANNEL gpumapsrc $CHANNEL", "rate=20000000",
         "", 0, 1}}) {
    SCOPED_TRACE(passage);
    Pipeline pipeline(on_new_channel(source(arguments, std::string("num-buffers=170 ") + options) + "! " + passage +
                                     " ! gpumapkernel kernel=identity ! appsink name=out sync=false"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    Data got;
    for (const Sample& sample : pull_all(pipeline)) {
      const Data part = data_of(gst_sample_get_buffer(sample.get()));
      got.insert(got.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(got == expected_samples("CS16", 0, got.size() / 4));
    GstElement* in = pipeline.element("in");
    EXPECT_EQ(stat(in, "gathered-buffers"), all);
    EXPECT_EQ(got.size() % all, 0U);
    EXPECT_GE(stat(in, "bytes-in-place"), got.size() / all * least);
    EXPECT_LE(stat(in, "bytes-in-place"), got.size() / all * most);
    EXPECT_EQ(stat(in, "bytes-in-place") + stat(in, "bytes-copied"), got.size());
  }
}

TEST_F(SoapySrc, AToneIsInItsBin) {
  Pipeline pipeline(
      on_new_channel(source(",tone=100300100", "num-buffers=9 rate=2400000 frequency=100000000") +
                     "! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=spectrum params=size=4096 ! "
                     "application/x-spectrum ! appsink name=out sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::size_t rows = 0;
  for (const Sample& sample : pull_all(pipeline)) {
    const Data bytes = data_of(gst_sample_get_buffer(sample.get()));
    std::vector<float> powers(bytes.size() / sizeof(float));
    std::memcpy(powers.data(), bytes.data(), bytes.size());
    for (std::size_t row = 0; row + 4096 <= powers.size(); row += 4096, ++rows) {
      const auto begin = powers.begin() + static_cast<std::ptrdiff_t>(row);
      // 300,100 Hz above the middle, in bins of 2,400,000 / 4096 Hz.
      EXPECT_EQ(std::max_element(begin, begin + 4096) - begin, 2048 + 512);
    }
  }
  EXPECT_EQ(rows, std::size_t{9} * 24000 / 4096);
}

// A buffer never has samples of both sides of a hole.
TEST_F(SoapySrc, MarksWhatAnOverflowLost) {
  for (const auto& [arguments, counter] : {std::pair{",clock=1", &MadeUpRadio::overflows},
                                           {"", &MadeUpRadio::overflows},
                                           {",clock=1", &MadeUpRadio::abrupt}}) {
    radio_.reset();
    radio_.lost = 54321;
    Pipeline pipeline(source(arguments, "rate=1000000 buffer-samples=3000") +
                      "! appsink name=out sync=false max-buffers=2");
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::uint64_t next = 0, holes = 0;
    GstClockTime due = GST_CLOCK_TIME_NONE;
    for (int i = 0; i < 60 && holes < 3; ++i) {
      const Sample sample = pull(pipeline.appsink());
      ASSERT_TRUE(sample);
      GstBuffer* buffer = gst_sample_get_buffer(sample.get());
      const std::size_t count = gst_buffer_get_size(buffer) / 4;
      const bool hole = i > 0 && is_discont(sample.get());
      if (hole) ++holes;
      next += hole ? 54321U : 0U;
      EXPECT_EQ(data_of(buffer), expected_samples("CS16", next, count)) << i;
      if (hole && arguments[0] != '\0') {
        EXPECT_NEAR(static_cast<double>(GST_BUFFER_PTS(buffer) - due), 54321e3, 3e4);
      }
      due = GST_BUFFER_PTS(buffer) + GST_BUFFER_DURATION(buffer);
      next += count;
      if (i % 10 == 3) ++(radio_.*counter);
    }
    EXPECT_EQ(holes, 3U);
    GstElement* element = pipeline.element("radio");
    EXPECT_GE(stat(element, "overflows"), 3U);
    const std::uint64_t counted = stat(element, "lost-samples");
    EXPECT_EQ(counted % 54321, 0U);
    EXPECT_TRUE(arguments[0] == '\0' ? counted == 0 : counted >= std::uint64_t{3} * 54321) << counted;
    (void)pipeline.wait(1ms);
    EXPECT_THAT(pipeline.warnings(), Contains(AllOf(HasSubstr("lost samples"), HasSubstr("leaky=oldest"))));
    EXPECT_EQ(pipeline.warnings().size(), 1U);
  }
}

TEST_F(SoapySrc, SeesByTheRadiosClockWhatNobodyReported) {
  Pipeline pipeline(source(",clock=1", "rate=1000000 buffer-samples=2000") +
                    "! appsink name=out sync=false max-buffers=2");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(pull(pipeline.appsink()));
  radio_.unsaid = 7777;
  bool seen = false;
  for (int i = 0; i < 20 && !seen; ++i) {
    const Sample sample = pull(pipeline.appsink());
    ASSERT_TRUE(sample);
    seen = is_discont(sample.get());
  }
  EXPECT_TRUE(seen);
  EXPECT_EQ(stat(pipeline.element("radio"), "jumps"), 1U);
  EXPECT_EQ(stat(pipeline.element("radio"), "lost-samples"), 7777U);
}

// For seconds: nothing spins, the element stops at once, and goes on once there are samples.
TEST_F(SoapySrc, OutlivesAnEndlessOverflow) {
  radio_.overflows = 1 << 30;
  Pipeline pipeline(source("", "rate=1000000") + "! appsink name=out sync=false max-buffers=2");
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_TRUE(eventually([&] { return stat(pipeline.element("radio"), "overflows") >= 300; }));
  const auto took = std::chrono::duration_cast<Time>(std::chrono::steady_clock::now() - begin);
  EXPECT_LE(radio_.reads, static_cast<std::uint64_t>(took.count()) + 100);
  radio_.overflows = 0;
  const Sample sample = pull(pipeline.appsink());
  ASSERT_TRUE(sample);
  EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), expected_samples("CS16", 0, 10000));
  radio_.overflows = 1 << 30;
  EXPECT_LT(pipeline.stop(), at_once);
}

TEST_F(SoapySrc, TellsARateThatTheRadioRounds) {
  Pipeline pipeline(source(",step=65536", "rate=2000000") + "! appsink name=out sync=false max-buffers=1");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Sample sample = pull(pipeline.appsink());
  ASSERT_TRUE(sample);
  EXPECT_THAT(caps_of(sample.get()), HasSubstr("rate=(int)2031616"));
  // And while playing: caps follow, and what comes is marked.
  g_object_set(pipeline.element("radio"), "rate", 1000000.0, nullptr);
  bool marked = false;
  for (int i = 0; i < 20 && caps_of(sample.get()).find("rate=(int)983040") == std::string::npos; ++i) {
    sample = pull(pipeline.appsink());
    ASSERT_TRUE(sample);
    marked = is_discont(sample.get());
  }
  EXPECT_THAT(caps_of(sample.get()), HasSubstr("rate=(int)983040"));
  EXPECT_TRUE(marked);
  EXPECT_EQ(gst_buffer_get_size(gst_sample_get_buffer(sample.get())), 4 * std::lround(983040 * 0.01));
  (void)pipeline.wait(1ms);
  EXPECT_THAT(pipeline.warnings(), AllOf(Contains(AllOf(HasSubstr("rate=2000000"), HasSubstr("gives 2031616"))),
                                         Contains(AllOf(HasSubstr("rate=1000000"), HasSubstr("gives 983040")))));
}

TEST_F(SoapySrc, RetunesAHundredTimesASecond) {
  Pipeline pipeline(source(",paced=1", "rate=500000 frequency=100000000 buffer-samples=1500") +
                    "! fakesink name=out sync=false");
  Watch watch;
  watch.on(pipeline.element("out"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return watch.count() > 3; }));
  const Pad pad(gst_element_get_static_pad(pipeline.element("out"), "sink"));
  const auto caps = [&] {
    const Caps now(gst_pad_get_current_caps(pad.get()));
    const Ptr<gchar> text(gst_caps_to_string(now.get()));
    return std::string(text.get());
  };
  EXPECT_THAT(caps(), HasSubstr("center-frequency=(double)100000000"));
  double hertz = 0.0;
  for (int i = 1; i <= 100; ++i) {
    hertz = 1e8 + 1000.0 * i;
    g_object_set(pipeline.element("radio"), "frequency", hertz, nullptr);
    g_usleep(10000);
  }
  EXPECT_TRUE(eventually([&] { return radio_.frequency == hertz; }));
  EXPECT_GE(radio_.tunes, 3U);
  EXPECT_LE(radio_.tunes, 101U);
  EXPECT_TRUE(eventually([&] { return number_stat(pipeline.element("radio"), "frequency") == hertz; }));
  // Not new caps for each: once the frequency is not constant, caps do not have it.
  EXPECT_EQ(watch.events(GST_EVENT_CAPS), 2U);
  EXPECT_THAT(caps(), Not(HasSubstr("center-frequency")));
  const auto frames = watch.frames();
  EXPECT_EQ(std::count_if(frames.begin(), frames.end(), [](const auto& frame) { return frame.discont; }), 1);
  EXPECT_EQ(radio_.starts, 1U);
}

// Behind the GPU as before it.
TEST_F(SoapySrc, BuffersTellFrequencyAndGain) {
  Pipeline pipeline(on_new_channel(source("", "rate=1000000 frequency=100000000 gain=12.5 buffer-samples=1000") +
                                   "! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=identity ! "
                                   "appsink name=out sync=false max-buffers=2"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const auto next = [&] {
    const Sample sample = pull(pipeline.appsink());
    return sample ? radio_of(gst_sample_get_buffer(sample.get())) : RadioSetting{};
  };
  const RadioSetting first = next();
  EXPECT_EQ(first.center_frequency, 1e8);
  EXPECT_EQ(first.gain, 12.5);
  g_object_set(pipeline.element("radio"), "frequency", 2e8, "gain", "auto", nullptr);
  // A buffer may come between the two.
  EXPECT_TRUE(eventually([&] {
    const RadioSetting now = next();
    return now.center_frequency == 2e8 && !now.gain;
  }));
}

TEST_F(SoapySrc, SetsWhatTheRadioHas) {
  Pipeline pipeline(source(",paced=1",
                           "rate=48000 frequency=7000000 bandwidth=20000 gain=30,LNA=12 antenna=LNAH "
                           "clock-source=external time-source=gps frequency-correction=-3.5 "
                           "device-settings=bias=true") +
                    "! fakesink name=out sync=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_EQ(radio_.frequency, 7e6);
  EXPECT_EQ(radio_.bandwidth, 2e4);
  EXPECT_EQ(radio_.gain, 30.0);
  EXPECT_EQ(radio_.lna, 12.0);
  EXPECT_FALSE(radio_.automatic);
  EXPECT_EQ(radio_.antenna, 'L');
  EXPECT_EQ(radio_.clock_source, 'e');
  EXPECT_EQ(radio_.time_source, 'g');
  EXPECT_EQ(radio_.correction, -3.5);
  EXPECT_TRUE(radio_.bias);
  GstElement* element = pipeline.element("radio");
  ASSERT_TRUE(eventually([&] { return stat(element, "buffers") > 0; }));
  g_object_set(element, "gain", "auto", "antenna", "RX", "bandwidth", 10000.0, "clock-source", "internal",
               "device-settings", "bias=false", nullptr);
  EXPECT_TRUE(eventually([&] {
    return radio_.automatic && radio_.antenna == 'R' && radio_.bandwidth == 1e4 && radio_.clock_source == 'i' &&
           !radio_.bias;
  }));
  // What the radio refuses is told, and it plays on as it was.
  g_object_set(element, "frequency", 9e9, "antenna", "Yagi", nullptr);
  const std::uint64_t before = stat(element, "buffers");
  EXPECT_TRUE(eventually([&] { return stat(element, "buffers") > before + 2; }));
  (void)pipeline.wait(1ms);
  EXPECT_THAT(pipeline.warnings(),
              AllOf(Contains(AllOf(HasSubstr("9000000000 Hz"), HasSubstr("the synthesizer does not lock"))),
                    Contains(AllOf(HasSubstr("Yagi"), HasSubstr("RX, LNAH")))));
  EXPECT_EQ(number_stat(element, "frequency"), 7e6);
}

TEST_F(SoapySrc, SaysWhatIsWrong) {
  const std::pair<std::string, testing::Matcher<std::string>> cases[] = {
      {source(",serial=18"), AllOf(HasSubstr("serial=18"), HasSubstr("no Figment 18"))},
      {"soapysrc device=driver=nobody ", AllOf(HasSubstr("driver=nobody"), HasSubstr("SoapySDRUtil --find"))},
      {"soapysrc device=serial=99 ", AllOf(HasSubstr("no radio matches"), HasSubstr("serial=99"))},
      {source("", "channels=0,2"), AllOf(HasSubstr("\"0,2\""), HasSubstr("has 2"))},
      {source("", "channels=x"), HasSubstr("\"x\"")},
      {source("", "format=CF32"), AllOf(HasSubstr("CF32"), HasSubstr("CS16"))},
      {source(",native=CU12"), AllOf(HasSubstr("CU12"), HasSubstr("choose another format"))},
      {source("", "antenna=Yagi"), AllOf(HasSubstr("Yagi"), HasSubstr("RX, LNAH"))},
      {source("", "gain=loud"), AllOf(HasSubstr("loud"), HasSubstr("gain=30"))},
      {source("", "gain=MIX=3"), AllOf(HasSubstr("MIX"), HasSubstr("LNA, VGA"))},
      {source("", "clock-source=moon"), AllOf(HasSubstr("moon"), HasSubstr("internal, external"))},
      {source("", "time-source=moon"), AllOf(HasSubstr("moon"), HasSubstr("none, gps"))},
      {source("", "rate=2e8"), HasSubstr("no more than 100 MS/s")},
      {source("", "frequency=9e9"), HasSubstr("the synthesizer does not lock")},
      {source("", "device-settings=warp=9"), HasSubstr("no setting warp")},
      {source("", "rate=1000000") + "! audio/x-raw,rate=48000 ", AllOf(HasSubstr("1000000"), HasSubstr("rate"))},
  };
  for (const auto& [description, expected] : cases) {
    for (const GstState state : {GST_STATE_PAUSED, GST_STATE_PLAYING}) {
      Pipeline pipeline(description + "! fakesink");
      (void)pipeline.set_state(state);
      EXPECT_THAT(pipeline.wait(), expected) << description;
    }
  }
}

// Wherever the radio goes while it plays: as an exception, or as a number.
TEST_F(SoapySrc, IsAnErrorWithTheDriversWordsWhereTheRadioIsPulledOut) {
  for (const bool throws : {true, false}) {
    radio_.reset();
    Pipeline pipeline(source(",paced=1", "rate=100000") + "! fakesink");
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(eventually([&] { return stat(pipeline.element("radio"), "buffers") > 1; }));
    if (throws) {
      radio_.gone = true;
    } else {
      radio_.code = SOAPY_SDR_STREAM_ERROR;
    }
    EXPECT_THAT(pipeline.wait(), AllOf(HasSubstr("Figment"), HasSubstr(throws ? pulled_out : "STREAM_ERROR"),
                                       HasSubstr("on-lost=wait")));
    EXPECT_LT(pipeline.stop(), at_once);
  }
}

TEST_F(SoapySrc, WaitsForTheRadioToComeBack) {
  Pipeline pipeline(source(",paced=1", "rate=100000 on-lost=wait") + "! appsink name=out sync=false max-buffers=1");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Sample sample = pull(pipeline.appsink());
  ASSERT_TRUE(sample);
  const GstClockTime first = GST_BUFFER_PTS(gst_sample_get_buffer(sample.get()));
  radio_.gone = true;
  ASSERT_TRUE(eventually([&] {
    (void)pull(pipeline.appsink(), 10ms);
    (void)pipeline.wait(1ms);
    return !pipeline.warnings().empty();
  }));
  while (pull(pipeline.appsink(), 100ms)) {
  }
  // Paused and played without it.
  EXPECT_TRUE(pipeline.reach(GST_STATE_PAUSED));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  g_object_set(pipeline.element("radio"), "frequency", 5e6, nullptr);  // is set once it is back
  radio_.gone = false;
  sample = pull(pipeline.appsink());
  ASSERT_TRUE(sample);
  EXPECT_TRUE(is_discont(sample.get()));
  EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), expected_samples("CS16", 0, 1000));
  EXPECT_GT(GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())), first);
  EXPECT_EQ(stat(pipeline.element("radio"), "reopened"), 1U);
  EXPECT_EQ(radio_.frequency, 5e6);
  (void)pipeline.wait(1ms);
  EXPECT_THAT(pipeline.warnings(), Contains(AllOf(HasSubstr("waiting"), HasSubstr(pulled_out))));
  radio_.gone = true;
  ASSERT_TRUE(eventually([&] { return pull(pipeline.appsink(), 1s) == nullptr; }));
  EXPECT_LT(pipeline.stop(), at_once);
}

TEST_F(SoapySrc, TellsWhyItCannotBeOpenedAgainOnceForEachReason) {
  Pipeline pipeline(source(",paced=1", "rate=100000 on-lost=wait") + "! fakesink");
  GstElement* element = pipeline.element("radio");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return stat(element, "buffers") > 0; }));
  const auto tries = [&](const char* why) {
    (void)pipeline.wait(1ms);
    const auto all = pipeline.warnings();
    return std::count_if(all.begin(), all.end(), [&](const std::string& one) {
      return one.find("cannot be opened again") != one.npos && one.find(why) != one.npos;
    });
  };
  radio_.gone = true;
  ASSERT_TRUE(eventually([&] { return tries("") == 1; }));
  EXPECT_EQ(pipeline.wait(1300ms), "timeout") << "two more tries";
  EXPECT_EQ(tries(""), 1);
  g_object_set(element, "channels", "7", nullptr);  // and now it is there, and has none of that number
  radio_.gone = false;
  EXPECT_TRUE(eventually([&] { return tries("channels") == 1; }));
  EXPECT_EQ(tries(""), 2);
  EXPECT_LT(pipeline.stop(), at_once);
}

// Each call of the driver's fails once: with words or without, at the start, while it plays and at the end.
TEST_F(SoapySrc, OutlivesADriverThatThrowsInAnyCall) {
  for (const char* on_lost : {"error", "wait"}) {
    int failed = 0;
    bool reached = true;
    for (int call = 0; reached; ++call) {
      radio_.reset();
      radio_.failing_call = call;
      radio_.wordless = call % 2 == 1;
      Pipeline pipeline(source("", std::string("num-buffers=2 rate=1000000 frequency=5e6 bandwidth=1e6 antenna=RX "
                                               "clock-source=internal time-source=gps frequency-correction=2 "
                                               "gain=30,LNA=3 device-settings=bias=true on-lost=") +
                                       on_lost) +
                        "! fakesink");
      (void)pipeline.set_state(GST_STATE_PLAYING);
      const std::string end = pipeline.wait();
      EXPECT_THAT(end, AnyOf("eos", HasSubstr(pulled_out), HasSubstr("throws what has no words"))) << call;
      if (end != "eos") ++failed;
      EXPECT_LT(pipeline.stop(), at_once);
      reached = radio_.calls > call;
    }
    EXPECT_GT(failed, 20) << on_lost;
  }
}

TEST_F(SoapySrc, OutlivesADriverThatThrowsWhereItIsOpenedAgain) {
  for (const bool wordless : {true, false}) {
    for (const int call : {1, 3, 4, 9}) {
      radio_.reset();
      Pipeline pipeline(source(",paced=1", "rate=100000 on-lost=wait") + "! fakesink");
      GstElement* element = pipeline.element("radio");
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      ASSERT_TRUE(eventually([&] { return stat(element, "buffers") > 0; }));
      radio_.gone = true;
      ASSERT_TRUE(eventually([&] { return !(void(pipeline.wait(1ms)), pipeline.warnings().empty()); }));
      radio_.wordless = wordless;
      radio_.failing_call = radio_.calls + call;
      radio_.gone = false;
      EXPECT_TRUE(eventually([&] { return stat(element, "reopened") == 1; })) << call;
      const std::uint64_t before = stat(element, "buffers");
      EXPECT_TRUE(eventually([&] { return stat(element, "buffers") > before; })) << call;
      EXPECT_GT(radio_.calls, radio_.failing_call);
    }
  }
}

// What was refused while it played is refused again, and no reason to wait for ever. Nor does what changed meanwhile
// give samples of another format than caps say.
TEST_F(SoapySrc, IsOpenedAgainAsItIsSet) {
  Pipeline pipeline(source(",paced=1,formats=CF32", "rate=100000 buffer-samples=1000 on-lost=wait") +
                    "! capsfilter name=filter caps=audio/x-raw,format=S16LE ! "
                    "appsink name=out sync=false max-buffers=1 drop=true");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(pull(pipeline.appsink()));
  g_object_set(pipeline.element("radio"), "antenna", "Yagi", nullptr);
  const auto warnings = [&](const char* text) {
    (void)pipeline.wait(1ms);
    const auto all = pipeline.warnings();
    return std::count_if(all.begin(), all.end(), [&](const auto& one) { return one.find(text) != one.npos; });
  };
  ASSERT_TRUE(eventually([&] { return warnings("Yagi") == 1; }));
  radio_.gone = true;
  ASSERT_TRUE(eventually([&] { return warnings("waiting until") == 1; }));
  const Caps floats = new_caps("audio/x-raw,format=F32LE");
  g_object_set(pipeline.element("filter"), "caps", floats.get(), nullptr);
  // The streaming thread decides on caps as it begins anew.
  EXPECT_TRUE(pipeline.reach(GST_STATE_PAUSED));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  while (pull(pipeline.appsink(), 100ms)) {
  }
  radio_.gone = false;
  const Sample sample = pull(pipeline.appsink());
  ASSERT_TRUE(sample);
  EXPECT_THAT(caps_of(sample.get()), HasSubstr("F32LE"));
  const Data bytes = data_of(gst_sample_get_buffer(sample.get()));
  std::uint64_t first = 0;  // appsink drops buffers where this thread is late
  while (first < 1'000'000 && bytes != expected_samples("CF32", first, 1000)) first += 1000;
  EXPECT_LT(first, 1'000'000U) << "no samples of that format";
  EXPECT_TRUE(eventually([&] { return warnings("Yagi") == 2; }));
}

// Properties that are for the start may be set at any time.
TEST_F(SoapySrc, BufferSamplesAreThoseOfTheStart) {
  Pipeline pipeline(source(",paced=1", "rate=100000 buffer-samples=1000") + "! fakesink name=out sync=false");
  Watch watch;
  watch.on(pipeline.element("out"));
  GstElement* element = pipeline.element("radio");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return watch.count() > 0; }));
  g_object_set(element, "buffer-samples", 1U << 26U, "frequency", 5e6, nullptr);
  ASSERT_TRUE(eventually([&] { return number_stat(element, "frequency") == 5e6; }));
  const std::size_t before = watch.count();
  EXPECT_TRUE(eventually([&] { return watch.count() > before + 2; }));
  const Ptr<GstQuery> query(gst_query_new_latency());
  ASSERT_TRUE(gst_element_query(element, query.get()));
  GstClockTime least = 0;
  gst_query_parse_latency(query.get(), nullptr, &least, nullptr);
  EXPECT_EQ(least, 10 * GST_MSECOND);
}

// The radio's clock is set: to 2027, say. No samples are missing, and nobody waits for that year.
TEST_F(SoapySrc, AClockThatIsSetIsNoHole) {
  Pipeline pipeline(source(",clock=1,paced=1", "rate=100000 buffer-samples=500") + "! fakesink name=out sync=false");
  Watch watch;
  watch.on(pipeline.element("out"));
  GstElement* element = pipeline.element("radio");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return watch.count() > 2; }));
  radio_.jump_s = 1'800'000'000;
  ASSERT_TRUE(eventually([&] { return stat(element, "jumps") == 1; }));
  const std::size_t before = watch.count();
  ASSERT_TRUE(eventually([&] { return watch.count() > before + 2; }));
  EXPECT_EQ(stat(element, "lost-samples"), 0U);
  EXPECT_LT(watch.frames().back().pts, 3600 * GST_SECOND);
}

// The application flushes, and time begins anew.
TEST_F(SoapySrc, TimesBeginAnewBehindAFlush) {
  Pipeline pipeline(source(",paced=1", "rate=100000 buffer-samples=1000") + "! fakesink name=out sync=false");
  Watch watch;
  watch.on(pipeline.element("out"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const auto last = [&] { return watch.count() != 0 ? watch.frames().back().pts : 0; };
  ASSERT_TRUE(eventually([&] { return last() > 1500 * GST_MSECOND; }));
  ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_flush_start()));
  watch.forget();
  ASSERT_TRUE(gst_element_send_event(pipeline.get(), gst_event_new_flush_stop(TRUE)));
  ASSERT_TRUE(eventually([&] { return watch.count() > 1; }));
  const Ptr<GstClock> clock(gst_element_get_clock(pipeline.element("radio")));
  const GstClockTime now = gst_clock_get_time(clock.get()) - gst_element_get_base_time(pipeline.element("radio"));
  EXPECT_LE(watch.frames().front().pts, now);
}

// By an application, to the pipeline and to the element itself: nothing is flushed for it.
TEST_F(SoapySrc, RefusesSeeks) {
  Pipeline pipeline(source(",paced=1", "rate=100000") + "! fakesink name=out sync=false");
  Watch watch;
  watch.on(pipeline.element("out"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return watch.count() > 1; }));
  for (GstElement* to : {pipeline.get(), pipeline.element("radio")}) {
    EXPECT_FALSE(gst_element_seek_simple(to, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 0));
  }
  EXPECT_EQ(watch.events(GST_EVENT_FLUSH_START), 0U);
  const auto before = watch.count();
  EXPECT_TRUE(eventually([&] { return watch.count() > before + 1; }));
}

TEST_F(SoapySrc, StopsWhileNoSampleComes) {
  radio_.silent = true;
  Pipeline waits(source("", "timeout=0") + "! fakesink");
  ASSERT_NE(waits.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return radio_.reads > 2; }));
  EXPECT_LT(waits.stop(), at_once);
  Pipeline ends(source("", "timeout=300") + "! fakesink");
  ASSERT_NE(ends.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_THAT(ends.wait(), AllOf(HasSubstr("no sample for 300 ms"), HasSubstr("timeout")));
  // A driver that does not wait itself does not make the element spin.
  radio_.reset();
  radio_.empty = true;
  Pipeline turns(source("", "timeout=300") + "! fakesink");
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_NE(turns.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  EXPECT_THAT(turns.wait(), HasSubstr("no sample for 300 ms"));
  const auto took = std::chrono::duration_cast<Time>(std::chrono::steady_clock::now() - begin);
  EXPECT_LE(radio_.reads, static_cast<std::uint64_t>(took.count()) + 100);
}

// Nobody takes frames: the element waits for a slot, and can be paused, played and stopped all the same.
TEST_F(SoapySrc, PausesWhileDownstreamIsFull) {
  Pipeline pipeline(on_new_channel(source(",paced=1", "rate=500000") + "! gpumapsink slots=2 async=false $CHANNEL"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return stat(pipeline.element("radio"), "buffers") == 2; }));
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_TRUE(pipeline.reach(GST_STATE_PAUSED, at_once)) << turn;
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  EXPECT_LT(pipeline.stop(), at_once);
}

// What the driver kept while the pipeline was paused is old.
TEST_F(SoapySrc, BeginsAnewBehindAPause) {
  Pipeline pipeline(source(",paced=1", "rate=100000") + "! fakesink name=out sync=false");
  Watch watch;
  watch.on(pipeline.element("out"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return watch.count() > 3; }));
  EXPECT_EQ(radio_.starts, 1U);
  EXPECT_TRUE(pipeline.reach(GST_STATE_PAUSED));
  watch.forget();
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return watch.count() > 3; }));
  EXPECT_EQ(radio_.starts, 2U);
  const auto frames = watch.frames();
  EXPECT_EQ(std::count_if(frames.begin(), frames.end(), [](const auto& frame) { return frame.discont; }), 1);
}

TEST_F(SoapySrc, TimesAreSmoothAndTellTheRadiosClock) {
  Pipeline pipeline(source(",paced=1,clock=1", "num-buffers=40 rate=100000 buffer-samples=777") +
                    "! appsink name=out sync=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const auto samples = pull_all(pipeline);
  ASSERT_EQ(samples.size(), 40U);
  const Caps clock = new_caps("timestamp/x-radio");
  for (std::size_t i = 0; i < samples.size(); ++i) {
    GstBuffer* buffer = gst_sample_get_buffer(samples[i].get());
    EXPECT_EQ(GST_BUFFER_DURATION(buffer), 7770000U);
    const auto* meta = gst_buffer_get_reference_timestamp_meta(buffer, clock.get());
    ASSERT_NE(meta, nullptr);
    EXPECT_EQ(meta->timestamp, GST_SECOND + i * 7770000);
    if (i == 0) continue;
    const GstClockTime before = GST_BUFFER_PTS(gst_sample_get_buffer(samples[i - 1].get()));
    EXPECT_NEAR(static_cast<double>(GST_BUFFER_PTS(buffer) - before), 7770000.0, 7770.0 + 1.0) << i;
  }
}

// Hours of a clock that is 50 parts in a million fast, seconds of jitter, and holes.
TEST(SampleTimes, FollowTheClockAndDrawOutJitter) {
  SampleTimes times;
  const double length = 1e7;
  std::uint32_t random = 1;
  double due = 0.0, at = 0.0, last = 0.0;
  for (int i = 0; i < 1'000'000; ++i) {
    random = random * 1664525U + 1013904223U;
    at += length * 1.00005;
    const double jitter = (random >> 8U) % 5'000'000;
    due = static_cast<double>(times.next(static_cast<GstClockTime>(at + jitter), length, false, std::nullopt));
    if (i > 0) {
      ASSERT_NEAR(due - last, length, length * SampleTimes::max_drift + 1.0) << i;
    }
    last = due;
  }
  EXPECT_NEAR(due, at - length + 2.5e6, 1.5e6);
  // A hole whose length is known, and one that ends when samples come; time never goes back.
  EXPECT_NEAR(static_cast<double>(times.next(static_cast<GstClockTime>(at), length, true, 3e9)), last + length + 3e9,
              2.0);
  const auto later = static_cast<GstClockTime>(at + 9e9);
  EXPECT_NEAR(static_cast<double>(times.next(later, length, true, std::nullopt)), at + 9e9 - length, 2.0);
  EXPECT_NEAR(static_cast<double>(times.next(later - 500'000'000, length, true, std::nullopt)), at + 9e9, 2.0);
  // But with the pipeline's.
  EXPECT_NEAR(static_cast<double>(times.next(70'000'000, length, true, std::nullopt)), 6e7, 2.0);
}

TEST_F(SoapySrc, IsLiveAndLateByABuffer) {
  Pipeline pipeline(source(",paced=1", "rate=100000 buffer-samples=2500") + "! fakesink name=out sync=true");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(eventually([&] { return stat(pipeline.element("radio"), "buffers") > 0; }));
  const Ptr<GstQuery> query(gst_query_new_latency());
  ASSERT_TRUE(gst_element_query(pipeline.element("radio"), query.get()));
  gboolean live = FALSE;
  GstClockTime least = 0, most = 0;
  gst_query_parse_latency(query.get(), &live, &least, &most);
  EXPECT_TRUE(live);
  EXPECT_EQ(least, 25 * GST_MSECOND);
  EXPECT_EQ(most, GST_CLOCK_TIME_NONE);
}

}  // namespace
}  // namespace gpumap::gst::test
