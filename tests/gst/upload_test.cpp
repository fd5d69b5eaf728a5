// SPDX-License-Identifier: MIT
// gpumapupload where it differs from gpumapsink and gpumapsrc: one element and one streaming thread. That its pipelines
// are those of a queue, the matrix programs test.
#include "pipeline.hpp"

namespace gpumap::gst::test {
namespace {

constexpr const char* small =
    "videotestsrc num-buffers=40 pattern=snow ! video/x-raw,format=NV12,width=336,height=78 ! ";

TEST(Upload, IsWrittenInPlace) {
  for (const char* format : {"NV12", "I420", "RGB", "GRAY8", "AYUV", "YUY2"}) {
    SCOPED_TRACE(format);
    Pipeline pipeline(
        std::string("videotestsrc num-buffers=25 pattern=snow ! video/x-raw,width=333,height=77,format=") + format +
        " ! gpumapupload name=up ! gpumapkernel kernel=checksum ! fakesink");
    ASSERT_EQ(pipeline.run(), "eos");
    GstElement* up = pipeline.element("up");
    EXPECT_EQ(pipeline.results().size(), 25U);
    EXPECT_EQ(stat(up, "frames"), 25U);
    EXPECT_EQ(stat(up, "zero-copy-frames"), 25U);
    EXPECT_EQ(stat(up, "bytes-copied"), 0U);
    EXPECT_EQ(stat(up, "cpu-reads"), 0U);
    EXPECT_EQ(stat(up, "host-copies"), 0U);
  }
}

class Transports : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Upload, Transports, testing::ValuesIn(transports()), transport_name);

// Memory of upstream's own, of sizes that no slot has, growing: each byte arrives, in order, with its time.
TEST_P(Transports, BringForeignMemory) {
  Pipeline pipeline(std::string("appsrc name=in format=time ! gpumapupload name=up slots=3 transport=") + GetParam() +
                    " ! gpumapkernel kernel=checksum ! fakesink");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<std::uint64_t> sums;
  for (std::size_t n = 0; n < 30; ++n) {
    const Data data = random_data(1 + n * 4097 % 50021, n);
    sums.push_back(checksum_of(data));
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(data, n * 1000)));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), sums.size());
  for (std::size_t n = 0; n < sums.size(); ++n) {
    EXPECT_EQ(pipeline.results()[n].checksum, sums[n]) << n;
    EXPECT_EQ(pipeline.results()[n].pts, n * 1000) << n;
  }
  EXPECT_EQ(stat(pipeline.element("up"), "copied-frames"), sums.size());
  EXPECT_EQ(stat_text(pipeline.element("up"), "transport"), GetParam());
}

// Upstream would have no slot to write into, and there is no other thread that could go on.
TEST(Upload, EndsWhereAllFramesAreKept) {
  for (const char* caps : {"video/x-raw(memory:GPUMap)", "video/x-raw"}) {
    SCOPED_TRACE(caps);
    Pipeline pipeline(std::string(small) + "gpumapupload name=up slots=2 ! " + caps +
                      " ! appsink name=out sync=false wait-on-eos=false");
    ASSERT_EQ(pipeline.run(), "eos");
    std::size_t frames = 0;
    std::uint64_t together = 0;
    std::vector<Sample> kept;
    while (Sample sample = pull(pipeline.appsink(), 1ms)) kept.push_back(std::move(sample));
    for (const Sample& sample : kept) {
      ++frames;
      together ^= checksum_of(data_of(gst_sample_get_buffer(sample.get())));
    }
    EXPECT_EQ(frames, 40U);
    Pipeline plain(std::string(small) + "appsink name=out sync=false wait-on-eos=false");
    ASSERT_EQ(plain.run(), "eos");
    while (const Sample sample = pull(plain.appsink(), 1ms)) {
      together ^= checksum_of(data_of(gst_sample_get_buffer(sample.get())));
    }
    EXPECT_EQ(together, 0U) << "other bytes than without gpumapupload";
    ASSERT_EQ(pipeline.warnings().size(), 1U);
    EXPECT_NE(pipeline.warnings()[0].find("what follows gpumapupload keeps 1 of the 2 slots"), std::string::npos)
        << pipeline.warnings()[0];
    EXPECT_NE(pipeline.warnings()[0].find("set slots on gpumapupload"), std::string::npos);
    EXPECT_EQ(stat(pipeline.element("up"), "host-copies") == 0, std::string(caps) != "video/x-raw");
  }
}

// Paused, downstream gives nothing back: what the chain function waits for ends with a stop, a flush, and the pad.
TEST(Upload, WaitsForASlotNoLongerThanAsked) {
  const std::string line =
      "videotestsrc ! video/x-raw,format=GRAY8,width=16,height=16,framerate=100/1 ! gpumapupload name=up slots=2 ! "
      "video/x-raw(memory:GPUMap) ! queue ! fakesink sync=true";
  for (const char* ending : {"stop", "flush", "pad"}) {
    SCOPED_TRACE(ending);
    Pipeline pipeline(line);
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    ASSERT_TRUE(eventually([&] { return stat(pipeline.element("up"), "frames") > 5; }));
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    if (std::string(ending) == "flush") {
      EXPECT_TRUE(gst_element_seek_simple(pipeline.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 0));
      EXPECT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
      const std::uint64_t frames = stat(pipeline.element("up"), "frames");
      EXPECT_TRUE(eventually([&] { return stat(pipeline.element("up"), "frames") > frames; }));
    }
    if (std::string(ending) == "pad") {
      const Pad pad(gst_element_get_static_pad(pipeline.element("up"), "sink"));
      EXPECT_TRUE(gst_pad_set_active(pad.get(), FALSE));
    }
    EXPECT_LT(pipeline.stop(), at_once);
  }
}

TEST(Upload, StartsAnewWithOtherSettings) {
  Pipeline pipeline(std::string(small) + "gpumapupload name=up ! gpumapkernel kernel=checksum ! fakesink");
  ASSERT_EQ(pipeline.run(), "eos");
  const auto first = pipeline.results();
  pipeline.stop();
  gst_util_set_object_arg(G_OBJECT(pipeline.element("up")), "transport", "pinned");
  g_object_set(pipeline.element("up"), "slots", 5U, nullptr);
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(stat_text(pipeline.element("up"), "transport"), "pinned");
  EXPECT_EQ(stat(pipeline.element("up"), "frames"), 40U);
  ASSERT_EQ(pipeline.results().size(), 2 * first.size());
  pipeline.stop();
  g_object_set(pipeline.element("up"), "device", "no such GPU", nullptr);
  EXPECT_EQ(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
}

// One tee feeds a kernel, which reads the slot, and elements on the CPU, which get ordinary frames.
TEST(Upload, FeedsAKernelAndTheCpu) {
  Pipeline pipeline(
      std::string(small) +
      "gpumapupload name=up ! tee name=t t. ! queue ! gpumapkernel kernel=checksum ! fakesink "
      "t. ! queue ! videoconvert ! video/x-raw,format=I420 ! gpumapupload ! gpumapkernel kernel=identity ! "
      "video/x-raw,format=I420 ! fakesink");
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(pipeline.results().size(), 40U);
  EXPECT_EQ(stat(pipeline.element("up"), "zero-copy-frames"), 40U);
}

TEST(Upload, RefusesWithTheRemedy) {
  Pipeline film(std::string(small) + "gpumapupload ! capsfilter caps=video/x-raw,format=RGBA ! fakesink");
  EXPECT_NE(film.run(), "eos");
  EXPECT_NE(film.error().find("what follows gpumapupload does not take video/x-raw, format=(string)NV12"),
            std::string::npos)
      << film.error();
  EXPECT_NE(film.error().find("put videoconvert before gpumapupload"), std::string::npos) << film.error();
}

// What applications read from the frames behind gpumapsrc they read from these.
/// As while its state goes down, where the elements behind have stopped first.
void begin_to_stop(GstElement* pipeline) {
  GST_OBJECT_LOCK(pipeline);
  GST_STATE_TARGET(pipeline) = GST_STATE_READY;
  GST_OBJECT_UNLOCK(pipeline);
}

/// "" once upstream has paused without an error.
std::string ends_without_error(const Pipeline& pipeline) {
  const Pad out(gst_element_get_static_pad(pipeline.element("in"), "src"));
  if (!eventually([&] { return gst_pad_get_task_state(out.get()) == GST_TASK_PAUSED; })) return "upstream goes on";
  const Ptr<GstBus> bus(gst_element_get_bus(pipeline.get()));
  const Ptr<GstMessage> message(gst_bus_pop_filtered(bus.get(), GST_MESSAGE_ERROR));
  return message ? Ptr<gchar>(gst_structure_to_string(gst_message_get_structure(message.get()))).get() : "";
}

TEST(Upload, TellsNoErrorOfWhatHasStoppedBehindIt) {
  struct Stops {
    GstElement* pipeline;
    GstFlowReturn flow;
  };
  for (const GstFlowReturn flow : {GST_FLOW_ERROR, GST_FLOW_NOT_NEGOTIATED}) {
    SCOPED_TRACE(gst_flow_get_name(flow));
    Pipeline pipeline("appsrc name=in format=time ! gpumapupload name=up ! fakesink");
    Stops stops{pipeline.get(), flow};
    const Pad out(gst_element_get_static_pad(pipeline.element("up"), "src"));
    gst_pad_add_probe(
        out.get(), GST_PAD_PROBE_TYPE_BUFFER,
        [](GstPad*, GstPadProbeInfo* info, gpointer user) {
          begin_to_stop(static_cast<Stops*>(user)->pipeline);
          gst_buffer_unref(GST_PAD_PROBE_INFO_BUFFER(info));
          GST_PAD_PROBE_INFO_FLOW_RETURN(info) = static_cast<Stops*>(user)->flow;
          return GST_PAD_PROBE_HANDLED;
        },
        &stops, nullptr);
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(4099, 7), 0)));
    EXPECT_EQ(ends_without_error(pipeline), "");
  }
  // Caps that nobody takes any more, in front of a segment.
  Pipeline pipeline(
      "appsrc name=in format=time caps=video/x-raw,format=NV12,width=34,height=6,framerate=30/1 ! "
      "gpumapupload name=up ! video/x-raw,width=66 ! fakesink");
  const Pad in(gst_element_get_static_pad(pipeline.element("up"), "sink"));
  gst_pad_add_probe(
      in.get(), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM,
      [](GstPad*, GstPadProbeInfo* info, gpointer user) {
        const bool is_segment = GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_SEGMENT;
        if (is_segment) begin_to_stop(static_cast<GstElement*>(user));
        return GST_PAD_PROBE_OK;
      },
      pipeline.get(), nullptr);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(34 * 6 * 3 / 2, 7), 0)));
  EXPECT_EQ(ends_without_error(pipeline), "");
}

TEST(Upload, FollowsFrames) {
  Pipeline pipeline(std::string(small) + "gpumapupload name=up stamps=true ! gpumapkernel kernel=checksum ! fakesink");
  ASSERT_EQ(pipeline.run(), "eos");
  GstStructure* stats = nullptr;
  g_object_get(pipeline.element("up"), "stats", &stats, nullptr);
  const Ptr<GstStructure> owned(stats);
  EXPECT_TRUE(gst_structure_has_field(stats, "latency"));
}

}  // namespace
}  // namespace gpumap::gst::test
