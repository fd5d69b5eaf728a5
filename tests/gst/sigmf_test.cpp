// SPDX-License-Identifier: MIT
// SigMF recordings, read and written: samples, captures, annotations, seeks, and what is wrong with them.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gst/audio/audio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "gst/radio/radio_metas.hpp"
#include "gst/radio/sigmf_metadata.hpp"
#include "sigmf_recording.hpp"

namespace gpumap::gst::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Of every datatype, in blocks that do not divide the recording.
TEST_F(Sigmf, ReadsEveryDatatypeSampleForSample) {
  for (const bool complex : {true, false}) {
    for (const SigmfDatatype& type : sigmf_datatypes) {
      for (const unsigned channels : {1U, 3U}) {
        const unsigned numbers = channels * (complex ? 2 : 1);
        const std::string name = (complex ? "c" : "r") + std::string(type.name);
        SCOPED_TRACE(name);
        const Data data = random_data(1237ULL * numbers * type.bytes, channels);
        record(fmt::format(R"("core:datatype":"{}","core:sample_rate":48000,"core:num_channels":{})", name, channels),
               data);
        const auto samples = play_plain("block-samples=500");
        ASSERT_EQ(outcome_, "eos");
        ASSERT_EQ(samples.size(), 3U);
        EXPECT_TRUE(joined(samples) == data);
        EXPECT_THAT(caps_of(samples[0]),
                    AllOf(HasSubstr("format=(string)" + std::string(type.format) + ","),
                          HasSubstr(fmt::format("channels=(int){},", numbers)), HasSubstr("rate=(int)48000")));
        GstAudioInfo info;
        ASSERT_TRUE(gst_audio_info_from_caps(&info, gst_sample_get_caps(samples[0].get())));
        EXPECT_EQ(GST_AUDIO_INFO_BPF(&info), static_cast<gint>(numbers * type.bytes));
      }
    }
  }
}

// The file is read into slots: nothing is copied behind that.
TEST_F(Sigmf, ReadsIntoTheSlotsOfTheRing) {
  const Data data = random_data(8UL * 10'007, 5);
  record(cf32, data);
  for (const char* const way :
       {"gpumapsink name=taker slots=16 $CHANNEL gpumapsrc $CHANNEL", "gpumapupload name=taker slots=16"}) {
    const auto samples = play(source("block-samples=999") + " ! " + way + " ! appsink name=out sync=false");
    ASSERT_EQ(outcome_, "eos");
    EXPECT_TRUE(joined(samples) == data);
    EXPECT_EQ(stat(pipeline_->element("taker"), "zero-copy-frames"), 11U) << way;
    EXPECT_EQ(stat(pipeline_->element("taker"), "copied-frames"), 0U) << way;
  }
}

TEST_F(Sigmf, BuffersEndWithTheirCaptureAndTellItsTimeAndFrequency) {
  // Two whose times follow each other, one that was tuned elsewhere, one later, one of which nothing is known.
  record(std::string(R"("core:offset":1000,)") + cf32, random_data(8UL * 5000, 6),
         R"({"core:sample_start":1000,"core:frequency":1e8,"core:datetime":"2024-05-06T07:08:09.123456789Z"},
            {"core:sample_start":1700,"core:frequency":1e8,"core:datetime":"2024-05-06T07:08:09.124156Z"},
            {"core:sample_start":2000,"core:frequency":-2.5,"core:datetime":"2024-05-06T07:08:09.124456Z"},
            {"core:sample_start":3000,"core:frequency":-2.5,"core:datetime":"2024-05-06T07:08:10Z"},
            {"core:sample_start":4000})");
  const auto samples = play_plain("block-samples=600");
  ASSERT_EQ(outcome_, "eos");
  struct Expected {
    std::uint64_t first, count;
    bool discont;
    std::optional<double> frequency;
    std::optional<std::uint64_t> time;
  };
  constexpr std::uint64_t second = 1'714'979'289'000'000'000;
  const std::vector<Expected> expected{
      {1000, 600, true, 1e8, second + 123456789},
      {1600, 100, false, 1e8, second + 124056789},
      {1700, 300, false, 1e8, second + 124156000},
      {2000, 600, true, -2.5, second + 124456000},
      {2600, 400, false, -2.5, second + 125056000},
      {3000, 600, true, -2.5, second + 1000000000},
      {3600, 400, false, -2.5, second + 1000600000},
      {4000, 600, true, {}, {}},
      {4600, 600, false, {}, {}},
      {5200, 600, false, {}, {}},
      {5800, 200, false, {}, {}},
  };
  ASSERT_EQ(samples.size(), expected.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    GstBuffer* buffer = buffer_of(samples[i]);
    SCOPED_TRACE(i);
    EXPECT_EQ(GST_BUFFER_OFFSET(buffer), expected[i].first);
    EXPECT_EQ(gst_buffer_get_size(buffer), 8 * expected[i].count);
    EXPECT_EQ(GST_BUFFER_PTS(buffer), (expected[i].first - 1000) * 1000);
    EXPECT_EQ(GST_BUFFER_DURATION(buffer), expected[i].count * 1000);
    EXPECT_EQ(GST_BUFFER_IS_DISCONT(buffer) != 0, expected[i].discont);
    EXPECT_EQ(radio_of(buffer).center_frequency, expected[i].frequency);
    EXPECT_EQ(unix_time_of(buffer), expected[i].time);
    EXPECT_THAT(caps_of(samples[i]), testing::Not(HasSubstr("center-frequency")));
  }
}

TEST_F(Sigmf, CapsHaveTheFrequencyThatAllCapturesHave) {
  record(
      cf32, random_data(8UL * 100, 7),
      R"({"core:sample_start":0,"core:frequency":433920000.5},{"core:sample_start":50,"core:frequency":433920000.5})");
  const auto samples = play_plain();
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_THAT(caps_of(samples[0]), HasSubstr("center-frequency=(double)433920000.5"));
  EXPECT_FALSE(GST_BUFFER_IS_DISCONT(buffer_of(samples[1])));
}

// Two real channels are no I and Q.
TEST_F(Sigmf, CapsTellRealChannelsFromComplexOnes) {
  for (const auto& [type, real] : {std::pair{"ri16_le", true}, {"ci16_le", false}}) {
    record(fmt::format(R"("core:datatype":"{}","core:sample_rate":8000,"core:num_channels":2)", type),
           random_data(800, 8));
    const auto samples = play_plain();
    ASSERT_EQ(samples.size(), 1U);
    EXPECT_EQ(caps_of(samples[0]).find("complex=(boolean)false") != std::string::npos, real) << type;
  }
}

// A file of another kind: bytes before each capture, and behind all, are no samples.
TEST_F(Sigmf, ReadsDatasetsThatDoNotConform) {
  const Data data = random_data(44 + 2 * 300 + 7 + 2 * 201 + 13, 9);
  describe(R"("core:datatype":"cu8","core:sample_rate":8000,"core:dataset":"x.wav","core:trailing_bytes":13)",
           R"({"core:sample_start":0,"core:header_bytes":44},{"core:sample_start":300,"core:header_bytes":7})");
  write("x.wav", data);
  const auto samples = play_plain();
  ASSERT_EQ(outcome_, "eos");
  Data expected = part(data, 44, 644);
  const Data rest = part(data, 651, data.size() - 13);
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_TRUE(joined(samples) == expected);
  EXPECT_THAT(pipeline_->warnings(), IsEmpty());
}

TEST_F(Sigmf, AnnotationsComeWhereTheyBegin) {
  record(std::string(R"("core:offset":10,)") + cf32, random_data(8UL * 1000, 10), R"({"core:sample_start":10})",
         R"({"core:sample_start":310,"core:label":"later"},
            {"core:sample_start":10,"core:sample_count":450,"core:freq_lower_edge":-1.5,"core:freq_upper_edge":2e9,
             "core:label":"long","core:comment":"a \"comment\"","core:generator":"g","core:uuid":"u"})");
  auto samples = play_plain("block-samples=200");
  ASSERT_EQ(samples.size(), 5U);
  const auto first = annotations_of(buffer_of(samples[0]), 1e6);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].sample_start, 10U);
  EXPECT_EQ(first[0].sample_count, 450U);
  EXPECT_EQ(first[0].freq_lower_edge, -1.5);
  EXPECT_EQ(first[0].freq_upper_edge, 2e9);
  EXPECT_THAT((std::array{first[0].label, first[0].comment, first[0].generator, first[0].uuid}),
              ElementsAre("long", "a \"comment\"", "g", "u"));
  const auto second = annotations_of(buffer_of(samples[1]), 1e6);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].label, "later");
  EXPECT_FALSE(second[0].sample_count);
  for (std::size_t i = 2; i < 5; ++i) EXPECT_THAT(annotations_of(buffer_of(samples[i]), 1e6), IsEmpty());
  // Behind a seek, what is under way comes again. GStreamer 1.22's appsink wants its last sample back before that.
  samples.clear();
  for (const auto& [to, labels] : {std::pair{459, 1U}, {460, 0U}}) {
    ASSERT_TRUE(gst_element_seek_simple(pipeline_->get(), GST_FORMAT_DEFAULT, GST_SEEK_FLAG_FLUSH, to - 10));
    const Sample sample = pull(pipeline_->appsink());
    ASSERT_TRUE(sample);
    EXPECT_EQ(GST_BUFFER_OFFSET(buffer_of(sample)), static_cast<guint64>(to));
    EXPECT_EQ(annotations_of(buffer_of(sample), 1e6).size(), labels) << to;
  }
}

TEST_F(Sigmf, SeeksBySampleAndByTime) {
  const Data data = random_data(2UL * 100'000, 11);
  // Samples that do not begin at whole nanoseconds, and times that a rate in whole hertz would not give.
  record(R"("core:datatype":"ci8","core:sample_rate":44099.25)", data);
  pipeline_.emplace(source("block-samples=777") + " ! appsink name=out sync=false");
  ASSERT_TRUE(pipeline_->reach(GST_STATE_PAUSED));
  gint64 duration = 0;
  ASSERT_TRUE(gst_element_query_duration(pipeline_->get(), GST_FORMAT_DEFAULT, &duration));
  EXPECT_EQ(duration, 100'000);
  ASSERT_TRUE(gst_element_query_duration(pipeline_->get(), GST_FORMAT_TIME, &duration));
  EXPECT_EQ(duration, 2'267'612'261);
  pipeline_->set_state(GST_STATE_PLAYING);
  const auto rest = [&] {
    std::vector<Sample> samples;
    while (Sample sample = pull(pipeline_->appsink())) samples.push_back(std::move(sample));
    return samples;
  };
  for (const gint64 sample : {0, 1, 4'711, 77'777, 99'998}) {
    ASSERT_TRUE(gst_element_seek_simple(pipeline_->get(), GST_FORMAT_DEFAULT,
                                        static_cast<GstSeekFlags>(GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_ACCURATE),
                                        sample));
    EXPECT_TRUE(joined(rest()) == part(data, static_cast<std::size_t>(2 * sample), data.size())) << sample;
  }
  // A part, which ends within a block.
  ASSERT_TRUE(gst_element_seek(pipeline_->get(), 1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET,
                               GST_SECOND, GST_SEEK_TYPE_SET, GST_SECOND + 100 * GST_MSECOND));
  auto samples = rest();
  ASSERT_FALSE(samples.empty());
  EXPECT_TRUE(joined(samples) == part(data, 2UL * 44'099, 2UL * 48'509));
  EXPECT_TRUE(GST_BUFFER_IS_DISCONT(buffer_of(samples[0])));
  samples.clear();  // as above
  // From the end, in seconds, behind a seek by samples.
  ASSERT_TRUE(gst_element_seek_simple(pipeline_->get(), GST_FORMAT_DEFAULT, GST_SEEK_FLAG_FLUSH, 5));
  ASSERT_TRUE(gst_element_seek(pipeline_->get(), 1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_END,
                               -GST_SECOND, GST_SEEK_TYPE_NONE, 0));
  EXPECT_TRUE(joined(rest()) == part(data, 2UL * (100'000 - 44'099), data.size()));
  // Not backwards, and a seek that is refused leaves all as it was.
  EXPECT_FALSE(gst_element_seek(pipeline_->get(), -1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET, 0,
                                GST_SEEK_TYPE_SET, GST_SECOND));
  EXPECT_EQ(pipeline_->wait(), "eos");
}

// Seeks that are sent to the element itself, by any number: what cannot be is refused, and what is behind the end is
// the end. None leaves the element in a state in which it cannot be sought again.
TEST_F(Sigmf, SeeksThatAreSentToTheElementItself) {
  const Data data = random_data(2UL * 10'000, 40);
  record(R"("core:datatype":"ci8","core:sample_rate":1000)", data);
  pipeline_.emplace(source("block-samples=100") + " ! appsink name=out sync=false");
  ASSERT_TRUE(pipeline_->reach(GST_STATE_PAUSED));
  pipeline_->set_state(GST_STATE_PLAYING);
  const auto seek = [&](double rate, GstFormat format, gint64 from, gint64 to) {
    // GstBin forgets a sink that is flushed again while it brings it back to PLAYING.
    EXPECT_TRUE(pipeline_->reach(GST_STATE_PLAYING));
    return gst_element_send_event(pipeline_->element("src"),
                                  gst_event_new_seek(rate, format, GST_SEEK_FLAG_FLUSH, GST_SEEK_TYPE_SET, from,
                                                     to < 0 ? GST_SEEK_TYPE_NONE : GST_SEEK_TYPE_SET, to)) != 0;
  };
  const auto rest = [&] {
    std::vector<Sample> samples;
    while (Sample sample = pull(pipeline_->appsink())) samples.push_back(std::move(sample));
    return joined(samples);
  };
  for (const double rate : {-1.0, -2.5}) EXPECT_FALSE(seek(rate, GST_FORMAT_TIME, 0, 5 * GST_SECOND));
  EXPECT_TRUE(rest() == data) << "a seek that is refused leaves all as it was";
  for (const gint64 far : {gint64{10'000}, gint64{1} << 40U, G_MAXINT64}) {
    (void)seek(1.0, GST_FORMAT_DEFAULT, far, -1);
    EXPECT_TRUE(rest().empty()) << far;
    (void)seek(1.0, GST_FORMAT_TIME, far == 10'000 ? 10 * GST_SECOND : far, -1);
    EXPECT_TRUE(rest().empty()) << far;
    ASSERT_TRUE(seek(1.0, GST_FORMAT_DEFAULT, 9'000, -1)) << far;
    EXPECT_TRUE(rest() == part(data, 2UL * 9'000, data.size())) << far;
  }
  ASSERT_TRUE(seek(2.0, GST_FORMAT_DEFAULT, 100, 301));
  EXPECT_TRUE(rest() == part(data, 200, 602));
}

// A pool of downstream's has room for a block, or for the recording where that is less; and block-samples, which is for
// the next start, may be set at any time.
TEST_F(Sigmf, PoolsHaveRoomForABlock) {
  const Data data = random_data(8UL * 100'000, 41);
  record(cf32, data);
  for (const guint64 block : {1'000U, 100'000'000U}) {
    const Ptr<GstBufferPool> pool(gst_buffer_pool_new());
    pipeline_.emplace(source("block-samples=" + std::to_string(block)) +
                      " ! appsink name=out sync=false max-buffers=2");
    const Pad pad(gst_element_get_static_pad(pipeline_->element("out"), "sink"));
    const auto offer = [](GstPad* /*pad*/, GstPadProbeInfo* info, gpointer offered) {
      auto* query = GST_PAD_PROBE_INFO_QUERY(info);
      if (GST_QUERY_TYPE(query) != GST_QUERY_ALLOCATION) return GST_PAD_PROBE_OK;
      gst_query_add_allocation_pool(query, static_cast<GstBufferPool*>(offered), 16, 4, 0);
      return GST_PAD_PROBE_HANDLED;
    };
    gst_pad_add_probe(pad.get(), GST_PAD_PROBE_TYPE_QUERY_DOWNSTREAM, offer, pool.get(), nullptr);
    pipeline_->set_state(GST_STATE_PLAYING);
    Data got;
    for (guint64 size = 7; const Sample sample = pull(pipeline_->appsink()); size = size * 7 % 40'009) {
      const Data bytes = data_of(buffer_of(sample));
      got.insert(got.end(), bytes.begin(), bytes.end());
      g_object_set(pipeline_->element("src"), "block-samples", size, nullptr);
    }
    EXPECT_EQ(pipeline_->wait(), "eos");
    EXPECT_TRUE(got == data) << block;
    EXPECT_THAT(pipeline_->warnings(), IsEmpty());
    const Ptr<GstStructure> config(gst_buffer_pool_get_config(pool.get()));
    guint bytes = 0;
    ASSERT_TRUE(gst_buffer_pool_config_get_params(config.get(), nullptr, &bytes, nullptr, nullptr));
    EXPECT_EQ(bytes, 8 * std::min<guint64>(block, 100'000));
  }
}

// Small buffers in one frame: it ends before one of another frequency, and has each annotation once.
TEST_F(Sigmf, GatheredFramesTellOneFrequencyAndEachAnnotation) {
  for (const char* gathers : {"gpumapupload gather=5600", "gpumapsink gather=5600 $CHANNEL gpumapsrc $CHANNEL"}) {
    pipeline_.emplace(
        on_new_channel("appsrc name=in format=time caps=audio/x-raw,format=S8,layout=interleaved,"
                       "channels=2,rate=100000 ! " +
                       std::string(gathers) + " ! appsink name=out sync=false"));
    pipeline_->set_state(GST_STATE_PLAYING);
    const Data data = random_data(20'000, 45);
    for (std::size_t i = 0; i < 20; ++i) {
      Buffer buffer = new_buffer(part(data, 1000 * i, 1000 * (i + 1)), i * 5 * GST_MSECOND);
      GST_BUFFER_DURATION(buffer.get()) = 5 * GST_MSECOND;
      add_radio(buffer.get(), {.center_frequency = i < 9 ? 1e8 : 2e8});
      add_annotation(buffer.get(), {.sample_start = 500 * i + 1, .label = std::to_string(i)}, 100'000);
      push(pipeline_->appsrc(), std::move(buffer));
    }
    gst_app_src_end_of_stream(pipeline_->appsrc());
    Data got;
    std::string labels;
    std::vector<double> frequencies;
    std::vector<std::size_t> sizes;
    while (const Sample sample = pull(pipeline_->appsink())) {
      const Data bytes = data_of(buffer_of(sample));
      got.insert(got.end(), bytes.begin(), bytes.end());
      sizes.push_back(bytes.size());
      frequencies.push_back(radio_of(buffer_of(sample)).center_frequency.value_or(0));
      for (const auto& one : annotations_of(buffer_of(sample), 100'000)) labels += one.label + " ";
    }
    EXPECT_TRUE(got == data);
    EXPECT_THAT(sizes, ElementsAre(5600, 3400, 5600, 5400));
    EXPECT_THAT(frequencies, ElementsAre(1e8, 1e8, 2e8, 2e8));
    EXPECT_EQ(labels, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 ");
  }
}

// Frames of another length than the buffers that they are put together of: each tells the sample and the time that it
// begins with, and an annotation stays at its sample.
TEST_F(Sigmf, GatheredFramesTellWhereTheyBegin) {
  for (const std::string gathers : {"gpumapupload gather=5600", "gpumapsink gather=5600 $CHANNEL gpumapsrc $CHANNEL"}) {
    SCOPED_TRACE(gathers);
    const Data data = random_data(8UL * 10'007, 46);
    record(
        R"("core:datatype":"cf32_le","core:sample_rate":10000,"core:offset":50)", data,
        R"({"core:sample_start":50,"core:datetime":"2024-05-06T07:08:09Z"})",
        R"({"core:sample_start":1761,"core:label":"a","core:sample_count":9},{"core:sample_start":4053,"core:label":"b"})");
    constexpr std::uint64_t begun = 1'714'979'289'000'000'000, samples = 700, length = GST_SECOND / 10'000;
    const auto frames = play(source("block-samples=1000") + " ! " + gathers + " ! appsink name=out sync=false");
    EXPECT_TRUE(joined(frames) == data);
    ASSERT_EQ(frames.size(), 15U);
    for (std::size_t i = 0; i < frames.size(); ++i) {
      GstBuffer* const frame = buffer_of(frames[i]);
      EXPECT_EQ(GST_BUFFER_OFFSET(frame), 50 + i * samples) << i;
      EXPECT_EQ(GST_BUFFER_OFFSET_END(frame), std::min<std::uint64_t>(50 + (i + 1) * samples, 50 + 10'007)) << i;
      EXPECT_EQ(unix_time_of(frame), begun + i * samples * length) << i;
      const Caps clock = new_caps("timestamp/x-unix");
      const auto* const meta = gst_buffer_get_reference_timestamp_meta(frame, clock.get());
      ASSERT_NE(meta, nullptr);
      EXPECT_EQ(meta->duration, GST_BUFFER_DURATION(frame)) << i;
    }
    pipeline_.emplace(
        on_new_channel(source("block-samples=1000") + " ! " + gathers + " ! sigmfsink location=" + path("y")));
    ASSERT_EQ(pipeline_->run(), "eos");
    const SigmfMetadata made = read_sigmf(path("y.sigmf-meta"));
    ASSERT_EQ(made.captures.size(), 1U);
    EXPECT_EQ(made.captures[0].datetime, begun);
    ASSERT_EQ(made.annotations.size(), 2U);
    EXPECT_EQ(made.annotations[0].sample_start, 1711U);
    EXPECT_EQ(made.annotations[0].sample_count, 9U);
    EXPECT_EQ(made.annotations[1].sample_start, 4003U);
  }
}

// A sparse file: what lies behind 4 GiB is found there.
TEST_F(Sigmf, ReadsRecordingsOf40GB) {
  constexpr std::uint64_t bytes = 40'000'000'000, last = 8UL * 1000;
  record(cf32, {}, R"({"core:sample_start":0},{"core:sample_start":4999999100,"core:frequency":7.0})");
  std::filesystem::resize_file(path("x.sigmf-data"), bytes);
  const Data data = random_data(last, 12);
  {
    std::fstream file(path("x.sigmf-data"), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(bytes - last));
    file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(last));
  }
  pipeline_.emplace(source() + " ! gpumapupload ! appsink name=out sync=false");
  ASSERT_TRUE(pipeline_->reach(GST_STATE_PAUSED));
  gint64 duration = 0;
  ASSERT_TRUE(gst_element_query_duration(pipeline_->get(), GST_FORMAT_TIME, &duration));
  EXPECT_EQ(duration, 5000 * GST_SECOND);
  ASSERT_TRUE(gst_element_seek_simple(pipeline_->get(), GST_FORMAT_DEFAULT, GST_SEEK_FLAG_FLUSH, 4'999'999'000));
  pipeline_->set_state(GST_STATE_PLAYING);
  std::vector<Sample> samples;
  while (Sample sample = pull(pipeline_->appsink())) samples.push_back(std::move(sample));
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_TRUE(joined(samples) == data);
  EXPECT_EQ(GST_BUFFER_OFFSET(buffer_of(samples[1])), 4'999'999'100U);
  EXPECT_EQ(radio_of(buffer_of(samples[1])).center_frequency, 7.0);
}

TEST_F(Sigmf, PlaysWhatIsThereAndWarnsOfTheRest) {
  const Data data = random_data(8 * 500 + 5, 13);
  record(cf32, data, R"({"core:sample_start":0},{"core:sample_start":499},{"core:sample_start":600})");
  const auto samples = play_plain();
  EXPECT_EQ(outcome_, "eos");
  EXPECT_TRUE(joined(samples) == part(data, 0, 8UL * 500));
  EXPECT_THAT(pipeline_->warnings(),
              ElementsAre(HasSubstr("ends within a sample: 5 bytes behind sample 500 of 8 bytes each"),
                          HasSubstr("capture 2 begins at sample 600, and")));
  // A header that is cut off is no samples either.
  record(cf32, data, R"({"core:sample_start":0},{"core:sample_start":490,"core:header_bytes":86})");
  EXPECT_TRUE(joined(play_plain()) == part(data, 0, 8UL * 490));
  EXPECT_THAT(pipeline_->warnings(), ElementsAre(HasSubstr("capture 1 begins at sample 490")));
}

// gst-launch-1.0 prints the debug string of an INFO, and not its text.
TEST_F(Sigmf, ARateThatIsNoWholeNumberIsTold) {
  record(R"("core:datatype":"cu8","core:sample_rate":1000.5)", random_data(200, 15));
  pipeline_.emplace(source() + " ! fakesink");
  pipeline_->set_state(GST_STATE_PAUSED);
  const Ptr<GstBus> bus(gst_element_get_bus(pipeline_->get()));
  const Ptr<GstMessage> told(gst_bus_timed_pop_filtered(bus.get(), 10 * GST_SECOND, GST_MESSAGE_INFO));
  ASSERT_TRUE(told);
  GError* info = nullptr;
  gchar* debug = nullptr;
  gst_message_parse_info(told.get(), &info, &debug);
  EXPECT_STREQ(info->message, "core:sample_rate is 1000.5: caps say 1001, times keep to the exact rate");
  EXPECT_EQ(debug, "src: " + std::string(info->message));
  EXPECT_TRUE(g_error_matches(info, GST_STREAM_ERROR, GST_STREAM_ERROR_FORMAT));
  g_error_free(info);
  g_free(debug);
}

TEST_F(Sigmf, AFileThatIsCutWhileItPlaysEndsThere) {
  const Data data = random_data(2UL * 100'000, 14);
  record(R"("core:datatype":"cu8","core:sample_rate":1000)", data);
  pipeline_.emplace(source("block-samples=100") + " ! appsink name=out sync=false max-buffers=1");
  ASSERT_TRUE(pipeline_->reach(GST_STATE_PAUSED));
  std::filesystem::resize_file(path("x.sigmf-data"), 2 * 50'033 + 1);
  pipeline_->set_state(GST_STATE_PLAYING);
  std::vector<Sample> samples;
  while (Sample sample = pull(pipeline_->appsink())) samples.push_back(std::move(sample));
  EXPECT_EQ(pipeline_->wait(), "eos");
  EXPECT_TRUE(joined(samples) == part(data, 0, 2UL * 50'033));
  EXPECT_THAT(pipeline_->warnings(),
              ElementsAre(HasSubstr("has become shorter while it was read: it ends at sample 50033")));
}

TEST_F(Sigmf, WhatIsWrongIsOneSentence) {
  struct Case {
    std::string global, captures, annotations, said;
  };
  const std::string rate = R"("core:sample_rate":1)";
  const std::string all = R"("core:datatype":"cu8",)" + rate;
  const std::vector<Case> cases{
      {rate, "", "", "global has no core:datatype: give one of the specification"},
      {R"("core:datatype":"cf16_le",)" + rate, "", "", "global: core:datatype is \"cf16_le\": give one"},
      {R"("core:datatype":"xi8",)" + rate, "", "", "core:datatype is \"xi8\""},
      {R"("core:datatype":7,)" + rate, "", "", "core:datatype is 7: give a text"},
      {R"("core:datatype":"cu8")", "", "", "global has no core:sample_rate: add it"},
      {R"("core:datatype":"cu8","core:sample_rate":3e9)", "", "",
       "core:sample_rate is 3000000000: caps have rates from 1"},
      {R"("core:datatype":"cu8","core:sample_rate":-1)", "", "", "core:sample_rate is -1"},
      {all + R"(,"core:num_channels":0)", "", "", "core:num_channels is 0: give 1 to 32768"},
      {all + R"(,"core:num_channels":2.5)", "", "", "core:num_channels is 2.5: give a whole number"},
      {all + R"(,"core:dataset":"../etc/passwd")", "", "", "core:dataset is \"../etc/passwd\": give the name alone"},
      {all + R"(,"core:extensions":[{"name":"odd","version":"1.0.0","optional":false}])", "", "",
       "nobody can read the samples without the extension \"odd\""},
      {all, R"({"core:sample_start":-4})", "", "capture 0: core:sample_start is -4: give a whole number"},
      {all, R"({"core:sample_start":5},{"core:sample_start":4})", "",
       "capture 1: core:sample_start is 4, and 5 of the capture before: sort captures"},
      {all, R"({"core:sample_start":0,"core:datetime":"yesterday"})", "",
       "capture 0: core:datetime is \"yesterday\": give a time as"},
      {all, R"({"core:sample_start":0,"core:frequency":"fm"})", "",
       "capture 0: core:frequency is \"fm\": give a number"},
      {all, "7", "", "capture 0 is 7 instead of an object"},
      {all, "", "{}", "annotation 0 has no core:sample_start"},
      {all, "", R"({"core:sample_start":0,"core:label":[1,2]})", "annotation 0: core:label is a list of 2 values"},
      {all + R"(,"x":1e999)", "", "", "is no JSON: number overflow"},
      {all + ",", "", "", "is no JSON: parse error at line 1, column"},
  };
  const auto error_now = [&] {
    (void)play_plain();
    return outcome_;
  };
  for (const Case& one : cases) {
    record(one.global, random_data(20, 15), one.captures, one.annotations);
    EXPECT_THAT(error_now(), HasSubstr(one.said));
  }
  record(all, random_data(20, 15));
  std::filesystem::remove(path("x.sigmf-data"));
  EXPECT_THAT(error_now(), AllOf(HasSubstr("x.sigmf-data: No such file"), HasSubstr("belong beside the metadata")));
  describe(all + R"(,"core:metadata_only":true)", "");
  EXPECT_THAT(error_now(), HasSubstr("has core:metadata_only: it comes without samples"));
  record(R"("core:num_channels":4,)" + all, random_data(7, 16));
  EXPECT_THAT(error_now(),
              HasSubstr("x.sigmf-data has 7 bytes, and a sample of cu8 takes 8: give a file with samples"));
  for (const auto& [location, said] : {std::pair{"x.sigmf", "is an archive: unpack it"},
                                       {"y.sigmf-meta", "y.sigmf-meta: No such file or directory: set location"},
                                       {"x.sigmf-collection", "is a collection: give"}}) {
    (void)play("sigmfsrc location=" + path(location) + " ! appsink name=out");
    EXPECT_THAT(outcome_, HasSubstr(said));
  }
  (void)play("sigmfsrc ! appsink name=out");
  EXPECT_THAT(outcome_, HasSubstr("no location is set"));
}

// What a recording says of its samples comes with them through memory of the GPU, a ring, and a kernel that changes
// none.
TEST_F(Sigmf, WritesWhatItReads) {
  for (const char* const way :
       {"identity", "gpumapupload", "gpumapsink $CHANNEL gpumapsrc $CHANNEL",
        "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum ! gpumapdownload"}) {
    SCOPED_TRACE(way);
    const Data data = random_data(6UL * 10'007, 17);
    record(R"("core:datatype":"ri16_be","core:sample_rate":1000000,"core:num_channels":3,"core:offset":70,
              "core:author":"A","core:description":"D \"1\"","core:license":"https://x.org/l","core:hw":"H",
              "core:recorder":"R")",
           data,
           R"({"core:sample_start":70,"core:frequency":1e8,"core:datetime":"2024-05-06T07:08:09.123456789Z"},
              {"core:sample_start":1000,"core:frequency":100000000.25,"gpumap:gain":-3.5},
              {"core:sample_start":2000,"core:frequency":100000000.25,"core:datetime":"2024-05-06T07:08:10.5Z"})",
           R"({"core:sample_start":80,"core:label":"late","core:sample_count":9000},
              {"core:sample_start":70,"core:comment":"first","core:freq_lower_edge":1.5,"core:freq_upper_edge":2,
               "core:uuid":"u","core:generator":"g"})");
    pipeline_.emplace(
        on_new_channel(source("block-samples=333") + " ! " + way + " ! sigmfsink location=" + path("y.sigmf-meta")));
    ASSERT_EQ(pipeline_->run(), "eos");
    EXPECT_TRUE(file("y.sigmf-data") == data);
    const SigmfMetadata made = read_sigmf(path("y.sigmf-meta"));
    EXPECT_EQ(made.datatype.name, "i16_be");
    EXPECT_FALSE(made.complex);
    EXPECT_EQ(made.channels, 3U);
    EXPECT_EQ(made.sample_rate, 1e6);
    EXPECT_THAT((std::array{made.author, made.description, made.license, made.hardware, made.recorder}),
                ElementsAre("A", "D \"1\"", "https://x.org/l", "H", "R"));
    ASSERT_EQ(made.captures.size(), 3U);
    constexpr std::uint64_t second = 1'714'979'289'000'000'000;
    const std::vector<std::uint64_t> starts{0, 930, 1930};
    const std::vector<std::optional<double>> frequencies{1e8, 100000000.25, 100000000.25}, gains{{}, -3.5, -3.5};
    const std::vector<std::optional<std::uint64_t>> times{second + 123456789, {}, second + 1500000000};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(made.captures[i].sample_start, starts[i]);
      EXPECT_EQ(made.captures[i].frequency, frequencies[i]);
      EXPECT_EQ(made.captures[i].gain, gains[i]);
      EXPECT_EQ(made.captures[i].datetime, times[i]);
    }
    ASSERT_EQ(made.annotations.size(), 2U);
    EXPECT_EQ(made.annotations[0].sample_start, 0U);
    EXPECT_EQ(made.annotations[0].comment, "first");
    EXPECT_EQ(made.annotations[0].freq_lower_edge, 1.5);
    EXPECT_EQ(made.annotations[0].freq_upper_edge, 2.0);
    EXPECT_EQ(made.annotations[0].uuid + made.annotations[0].generator, "ug");
    EXPECT_EQ(made.annotations[1].sample_start, 10U);
    EXPECT_EQ(made.annotations[1].sample_count, 9000U);
    EXPECT_EQ(made.annotations[1].label, "late");
    EXPECT_FALSE(std::filesystem::exists(path("y.sigmf-meta.new")));
  }
}

// At another rate an annotation has as many samples as there are then.
TEST_F(Sigmf, AnnotationsFollowTheRate) {
  record(R"("core:datatype":"cf32_le","core:sample_rate":96000)", random_data(8UL * 96'000, 26),
         R"({"core:sample_start":0})", R"({"core:sample_start":48000,"core:sample_count":24000,"core:label":"half"})");
  pipeline_.emplace(source("block-samples=4800") + " ! gpumapupload ! gpumapkernel kernel=ddc params=rate=32000 ! " +
                    "audio/x-raw ! sigmfsink location=" + path("y"));
  ASSERT_EQ(pipeline_->run(), "eos");
  const SigmfMetadata made = read_sigmf(path("y.sigmf-meta"));
  ASSERT_EQ(made.annotations.size(), 1U);
  EXPECT_EQ(made.annotations[0].sample_start, 16000U);
  EXPECT_EQ(made.annotations[0].sample_count, 8000U);
}

/// Into a sigmfsink, buffer by buffer.
struct SigmfWritten : Sigmf {
  void start(const std::string& caps, const std::string& options = "") {
    pipeline_.emplace("appsrc name=in format=time ! sigmfsink name=sink location=" + path("y") + " " + options);
    gst_app_src_set_caps(pipeline_->appsrc(), new_caps("audio/x-raw,layout=interleaved," + caps).get());
    ASSERT_NE(pipeline_->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  void give(
      const Data& data, const std::function<void(GstBuffer*)>& change = [](GstBuffer*) {}) {
    Buffer buffer = new_buffer(data, 0);
    change(buffer.get());
    (void)push(pipeline_->appsrc(), std::move(buffer));
  }
  [[nodiscard]] std::string end() {
    gst_app_src_end_of_stream(pipeline_->appsrc());
    return pipeline_->wait();
  }
  [[nodiscard]] SigmfMetadata made() const { return read_sigmf(path("y.sigmf-meta")); }
};

TEST_F(SigmfWritten, CapturesBeginWhereSamplesDoNotContinue) {
  const Data data = random_data(100UL * 4, 18);
  start("format=S16LE,channels=2,rate=1000,center-frequency=(double)5");
  const auto discont = [](GstBuffer* buffer) { GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT); };
  give(part(data, 0, 41), discont);  // ends within a sample
  give(part(data, 41, 80));
  give(part(data, 80, 90));
  give(part(data, 80, 120), discont);  // what was begun of a sample is none
  give(part(data, 120, 160), [](GstBuffer* buffer) { add_radio(buffer, {.center_frequency = 6.0}); });
  give(part(data, 160, 200), [](GstBuffer* buffer) { add_radio(buffer, {.center_frequency = 6.0, .gain = 2.0}); });
  // A host's clock jitters, which is no hole; 11 ms are one.
  constexpr std::uint64_t now = 1'700'000'000 * GST_SECOND;
  const std::array<std::uint64_t, 3> times{now, now + 19 * GST_MSECOND, now + 31 * GST_MSECOND};
  for (std::size_t i = 0; i < 3; ++i) {
    give(part(data, 200 + 40 * i, 240 + 40 * i), [&](GstBuffer* buffer) {
      add_radio(buffer, {.center_frequency = 6.0, .gain = 2.0});
      add_unix_time(buffer, times[i], GST_CLOCK_TIME_NONE);
    });
  }
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  segment.start = GST_SECOND;
  const Sample sample(gst_sample_new(new_buffer(part(data, 320, 400), GST_SECOND).get(), nullptr, &segment, nullptr));
  gst_app_src_push_sample(pipeline_->appsrc(), sample.get());
  ASSERT_EQ(end(), "eos");
  Data expected = part(data, 0, 88);
  const Data rest = part(data, 80, 400);
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_TRUE(file("y.sigmf-data") == expected);
  std::vector<std::uint64_t> starts;
  std::vector<double> frequencies, gains;
  std::vector<std::uint64_t> datetimes;
  for (const SigmfCapture& one : made().captures) {
    starts.push_back(one.sample_start);
    frequencies.push_back(one.frequency.value_or(0));
    gains.push_back(one.gain.value_or(0));
    datetimes.push_back(one.datetime.value_or(0));
  }
  EXPECT_THAT(starts, ElementsAre(0, 22, 32, 42, 52, 72, 82));
  EXPECT_THAT(frequencies, ElementsAre(5, 5, 6, 6, 6, 6, 5));
  EXPECT_THAT(gains, ElementsAre(0, 0, 0, 2, 2, 2, 2));
  EXPECT_THAT(datetimes, ElementsAre(0, 0, 0, 0, now, now + 31 * GST_MSECOND, 0));
}

TEST_F(SigmfWritten, IsARecordingFromTheFirstSampleOn) {
  write("y.sigmf-meta", random_data(10, 19));
  write("y.sigmf-data", random_data(100, 20));
  start("format=U8,channels=2,rate=48000");
  const Data data = random_data(64, 21);
  give(data);
  ASSERT_TRUE(
      eventually([&] { return std::filesystem::exists(path("y.sigmf-meta")) && file("y.sigmf-data") == data; }));
  // As a crash would leave it.
  std::filesystem::rename(path("y.sigmf-meta"), path("x.sigmf-meta"));
  std::filesystem::copy(path("y.sigmf-data"), path("x.sigmf-data"));
  give(data);
  ASSERT_EQ(end(), "eos");
  EXPECT_EQ(made().captures.size(), 1U);
  EXPECT_EQ(std::filesystem::file_size(path("y.sigmf-data")), 128U);
  EXPECT_TRUE(joined(play_plain()) == data);
}

TEST_F(SigmfWritten, HashesAndTags) {
  start("format=F32LE,channels=1,rate=8000", "sha512=true");
  const Data data = random_data(1003, 22);
  give(part(data, 0, 402));
  GstTagList* tags = gst_tag_list_new(GST_TAG_TITLE, "begin", GST_TAG_COMMENT, "of it", nullptr);
  ASSERT_TRUE(eventually([&] { return std::filesystem::file_size(path("y.sigmf-data")) == 400; }));
  gst_element_send_event(GST_ELEMENT(pipeline_->appsrc()), gst_event_new_tag(tags));
  give(part(data, 402, 1003));
  ASSERT_EQ(end(), "eos");
  const Data stored = part(data, 0, 1000);
  EXPECT_TRUE(file("y.sigmf-data") == stored);
  const Ptr<gchar> expected(
      g_compute_checksum_for_data(G_CHECKSUM_SHA512, reinterpret_cast<const guchar*>(stored.data()), stored.size()));
  const Data json = file("y.sigmf-meta");
  const std::string text(reinterpret_cast<const char*>(json.data()), json.size());
  EXPECT_THAT(text, AllOf(HasSubstr(std::string("\"core:sha512\": \"") + expected.get()), HasSubstr("\"rf32_le\""),
                          HasSubstr("\"core:recorder\": \"gpumap ")));
  ASSERT_EQ(made().annotations.size(), 1U);
  EXPECT_EQ(made().annotations[0].sample_start, 100U);
  EXPECT_EQ(made().annotations[0].label + made().annotations[0].comment, "beginof it");
}

// By whatever name, and whichever of its files: what is read stays as it is.
TEST_F(SigmfWritten, ARecordingThatIsReadIsNotReplaced) {
  const Data data = random_data(8UL * 10'000, 44);
  record(cf32, data);
  const Data described = file("x.sigmf-meta");
  std::filesystem::create_symlink("x.sigmf-data", path("symbolic.sigmf-data"));
  std::filesystem::create_hard_link(path("x.sigmf-data"), path("hard.sigmf-data"));
  for (const char* name : {"x.sigmf-meta", "./x", "symbolic", "hard"}) {
    pipeline_.emplace(source("block-samples=100") + " ! sigmfsink location=" + path(name));
    EXPECT_THAT(pipeline_->run(), AllOf(HasSubstr(".sigmf-data is being read"), HasSubstr("set another location")))
        << name;
    pipeline_->stop();
    EXPECT_TRUE(file("x.sigmf-data") == data && file("x.sigmf-meta") == described) << name;
  }
  std::filesystem::rename(path("x.sigmf-data"), path("x.wav"));
  describe(std::string(R"("core:dataset":"x.wav",)") + cf32, "");
  pipeline_.emplace(source() + " ! sigmfsink location=" + path("x"));
  EXPECT_THAT(pipeline_->run(), HasSubstr("x.sigmf-meta is being read"));
  EXPECT_TRUE(joined(play_plain()) == data);
  // What is written is read meanwhile, and replaced by nobody; later it is.
  start("format=U8,channels=2,rate=48000");
  give(part(data, 0, 64));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(path("y.sigmf-meta")); }));
  {
    Pipeline reader("sigmfsrc location=" + path("y") + " ! appsink name=out sync=false");
    ASSERT_TRUE(reader.set_state(GST_STATE_PLAYING) != GST_STATE_CHANGE_FAILURE);
    EXPECT_TRUE(data_of(buffer_of(pull(reader.appsink()))) == part(data, 0, 64));
    Pipeline other("audiotestsrc ! sigmfsink location=" + path("y"));
    EXPECT_THAT(other.run(), HasSubstr("written by another sigmfsink"));
  }
  EXPECT_EQ(end(), "eos");
  EXPECT_TRUE(file("y.sigmf-data") == part(data, 0, 64));
  start("format=U8,channels=2,rate=48000");
  give(part(data, 64, 96));
  EXPECT_EQ(end(), "eos");
  EXPECT_TRUE(file("y.sigmf-data") == part(data, 64, 96));
}

// A run is a recording: READY touches nothing yet, takes another location, and the next run has its own caps.
TEST_F(SigmfWritten, EachRunBeginsItsRecording) {
  const Data old = random_data(100, 43);
  write("y.sigmf-data", old);
  write("y.sigmf-meta", old);
  pipeline_.emplace(
      "audiotestsrc num-buffers=3 ! capsfilter name=filter caps=audio/x-raw,format=U8,channels=2 ! "
      "sigmfsink name=sink location=" +
      path("y.sigmf-meta"));
  ASSERT_TRUE(pipeline_->reach(GST_STATE_READY));
  EXPECT_TRUE(file("y.sigmf-data") == old && file("y.sigmf-meta") == old);
  g_object_set(pipeline_->element("sink"), "location", path("z.sigmf-meta").c_str(), nullptr);
  for (const char* format : {"U8", "S16LE"}) {
    const Caps caps = new_caps(std::string("audio/x-raw,channels=2,format=") + format);
    g_object_set(pipeline_->element("filter"), "caps", caps.get(), nullptr);
    ASSERT_EQ(pipeline_->run(), "eos") << format;
    ASSERT_TRUE(pipeline_->reach(GST_STATE_READY));
    const SigmfMetadata made = read_sigmf(path("z.sigmf-meta"));
    EXPECT_EQ(made.datatype.format, format);
    EXPECT_EQ(made.captures.size(), 1U);
    EXPECT_EQ(std::filesystem::file_size(path("z.sigmf-data")), std::uintmax_t{3} * 1024 * made.frame_bytes());
  }
  EXPECT_TRUE(file("y.sigmf-data") == old && file("y.sigmf-meta") == old);
}

TEST_F(SigmfWritten, WhatIsWrongIsOneSentence) {
  start("format=U8,channels=2,rate=48000");
  give(random_data(20, 23));
  gst_app_src_set_caps(pipeline_->appsrc(),
                       new_caps("audio/x-raw,layout=interleaved,format=U8,channels=2,rate=24000").get());
  give(random_data(20, 24));
  EXPECT_THAT(end(), HasSubstr("changed behind 10 samples, and a recording has one of each: begin another one"));
  EXPECT_EQ(std::filesystem::file_size(path("y.sigmf-data")), 20U);
  // No room on the disk.
  pipeline_.reset();
  std::filesystem::remove(path("y.sigmf-data"));
  std::filesystem::create_symlink("/dev/full", path("y.sigmf-data"));
  start("format=U8,channels=2,rate=48000");
  give(random_data(20, 25));
  EXPECT_THAT(end(),
              AllOf(HasSubstr("y.sigmf-data cannot be written: No space left"), HasSubstr("make room on the disk")));
  // A pipe that nobody reads, and one that somebody does.
  ASSERT_EQ(mkfifo(path("pipe.sigmf-data").c_str(), 0600), 0);
  for (const bool is_read : {false, true}) {
    const int reader = is_read ? open(path("pipe.sigmf-data").c_str(), O_RDONLY | O_NONBLOCK) : -1;
    pipeline_.emplace("audiotestsrc ! sigmfsink location=" + path("pipe"));
    EXPECT_THAT(pipeline_->run(), HasSubstr("pipe.sigmf-data is a pipe: set the location of a file"));
    if (reader >= 0) close(reader);
  }
  for (const auto& [location, said] :
       {std::pair{"location=" + path("none/y"), "none/y.sigmf-data cannot be written: No such"},
        {"location=" + path("y.sigmf"), "y.sigmf is an archive"},
        {std::string(), "no location is set: set location"}}) {
    pipeline_.emplace("audiotestsrc ! sigmfsink " + location);
    EXPECT_THAT(pipeline_->run(), HasSubstr(said));
  }
}

}  // namespace
}  // namespace gpumap::gst::test
