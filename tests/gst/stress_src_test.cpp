// SPDX-License-Identifier: MIT
// gpumapsrc, and kernels behind it, under GstHarness's stress from the consumer's side.
#include "stress.hpp"

namespace gpumap::gst::test {
namespace {

/// gpumapsrc, alone and with a kernel behind it, from the consumer's side.
class StressSrc : public testing::TestWithParam<std::tuple<unsigned, const char*>> {};
std::string src_name(const testing::TestParamInfo<StressSrc::ParamType>& test) {
  const std::string_view behind = std::get<1>(test.param);
  const char* kernel = behind.empty() ? "Alone" : behind.find("convert") != behind.npos ? "Convert" : "Identity";
  return name_of(std::get<0>(test.param)) + kernel;
}
INSTANTIATE_TEST_SUITE_P(
    With, StressSrc,
    testing::Combine(
        testing::Values(states, flushes, events, properties, queries, other_side, flushes | states,
                        flushes | other_side, states | other_side, flushes | states | other_side, all),
        testing::Values("", " ! gpumapkernel name=kernel kernel=identity",
                        " ! gpumapkernel name=kernel kernel=convert ! capsfilter caps=video/x-raw,format=RGBA")),
    src_name);

TEST_P(StressSrc, GoesOnAfterwards) {
  const auto& [with, behind] = GetParam();
  const auto is = [with = with](With what) { return (with & what) != 0; };
  const std::string channel = new_channel();
  Pipeline in(
      "videotestsrc ! video/x-raw,format=NV12,width=32,height=32,framerate=30/1 ! gpumapsink name=sink slots=4 "
      "channel=" +
      channel);
  GstHarness* out = gst_harness_new_parse(("gpumapsrc name=src channel=" + channel + behind).c_str());
  // Frames that come out are counted and forgotten, and so are events.
  gst_harness_set_drop_buffers(out, TRUE);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  gst_harness_play(out);
  {
    Stresses stresses;
    if (is(other_side)) {
      stresses.emplace_back(out, 7000, [&] {
        in.set_state(g_random_boolean() ? GST_STATE_PAUSED : GST_STATE_READY);
        in.set_state(GST_STATE_PLAYING);
      });
    }
    if (is(states)) stresses.emplace_back(gst_harness_stress_statechange_start_full(out, 5000));
    if (is(flushes)) {
      stresses.emplace_back(out, 5000, [&] {
        gst_harness_push_upstream_event(out, gst_event_new_seek(1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH,
                                                                GST_SEEK_TYPE_SET, 0, GST_SEEK_TYPE_NONE, 0));
      });
    }
    if (is(events)) {
      stresses.emplace_back(out, 500, [&] {
        gst_harness_push_upstream_event(out, gst_event_new_reconfigure());
        gst_harness_push_upstream_event(out, gst_event_new_latency(GST_MSECOND));
        gst_harness_push_upstream_event(out, gst_event_new_qos(GST_QOS_TYPE_UNDERFLOW, 1.0, 0, 0));
        gst_harness_push_upstream_event(out,
                                        gst_event_new_custom(GST_EVENT_CUSTOM_UPSTREAM, gst_structure_new_empty("a")));
      });
    }
    if (is(properties)) {
      const bool kernel = *behind != '\0';
      const std::shared_ptr<GstElement> element(gst_bin_get_by_name(GST_BIN(out->element), kernel ? "kernel" : "src"),
                                                gst_object_unref);
      stresses.emplace_back(out, 500, [element, kernel] {
        GstStructure* stats = nullptr;
        g_object_get(element.get(), "stats", &stats, nullptr);
        if (stats != nullptr) gst_structure_free(stats);
        g_object_set(element.get(), "timeout", kernel ? 20000U : 0U, nullptr);
      });
    }
    if (is(queries)) {
      stresses.emplace_back(out, 500, [&] {
        const Pad peer(GST_PAD(gst_object_ref(out->sinkpad)));
        query(peer, is(flushes));
      });
    }
    g_usleep(stress_us);
  }
  // A pipeline whose state is changed again and again may stay in PAUSED on a busy machine, also one with a fakesink (5
  // of 720); one whose sinks are flushed meanwhile may leave one of them behind in READY.
  if (is(other_side)) in.set_state(GST_STATE_NULL);
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  if (is(states) && is(flushes)) {
    // A FLUSH_STOP does not get through an element that is stopped, and GstHarness's own pad, which does not stop with
    // it, stays in the flush. Sinks of a pipeline do stop.
    gst_element_set_state(out->element, GST_STATE_READY);
    gst_pad_send_event(out->sinkpad, gst_event_new_flush_stop(TRUE));
  }
  gst_harness_play(out);
  const auto received = [&] { return gst_harness_buffers_received(out); };
  EXPECT_TRUE(eventually([&, before = received()] { return received() > before + 5; }))
      << received() << " frames; the producer says " << in.wait(1ms);
  in.stop();
  gst_harness_teardown(out);
}

}  // namespace
}  // namespace gpumap::gst::test
