// SPDX-License-Identifier: MIT
// gpumapsink under GstHarness's stress, with a gpumapsrc that takes what it gets.
#include "stress.hpp"

namespace gpumap::gst::test {
namespace {

class StressSink : public testing::TestWithParam<std::tuple<unsigned, const char*>> {};
INSTANTIATE_TEST_SUITE_P(With, StressSink,
                         testing::Combine(testing::Values(states, caps, flushes, events, restarts, properties, queries,
                                                          other_side, flushes | states, flushes | other_side,
                                                          flushes | restarts, states | other_side, all),
                                          testing::Values("slots=8", "slots=8 leaky=oldest")),
                         [](const auto& test) {
                           return name_of(std::get<0>(test.param)) + '_' + as_name(std::get<1>(test.param));
                         });

TEST_P(StressSink, GoesOnAfterwards) {
  const auto& [with, options] = GetParam();
  const auto is = [with = with](With what) { return (with & what) != 0; };
  const std::string channel = new_channel();
  GstHarness* in = gst_harness_new_parse(("gpumapsink " + std::string(options) + " channel=" + channel).c_str());
  Pipeline out("gpumapsrc name=src channel=" + channel + " ! fakesink async=false sync=false");
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Element sink(gst_harness_find_element(in, "gpumapsink"));
  const Pad src_pad(gst_element_get_static_pad(out.element("src"), "src"));
  const Pad out_pad(gst_pad_get_peer(src_pad.get()));
  {
    Stresses stresses;
    stresses.emplace_back(push_frames(in));
    // GstHarness takes it for a failure if something gets in the way of its first events.
    ASSERT_TRUE(eventually([&] { return stat(sink.get(), "frames") > 0; }));
    if (is(other_side)) {
      stresses.emplace_back(in, 7000, [&] {
        out.set_state(g_random_boolean() ? GST_STATE_PAUSED : GST_STATE_READY);
        out.set_state(GST_STATE_PLAYING);
      });
    }
    if (is(states)) stresses.emplace_back(gst_harness_stress_statechange_start_full(in, 5000));
    if (is(caps)) stresses.emplace_back(in, 3000, [&] { change_caps(in); });
    if (is(flushes)) stresses.emplace_back(in, 2000, [&] { flush(in); });
    if (is(events)) stresses.emplace_back(in, 500, [&] { send_events(in); });
    if (is(restarts)) stresses.emplace_back(in, 4000, [&] { end_and_start(in); });
    if (is(queries)) stresses.emplace_back(in, 500, [&] { query(out_pad); });
    if (is(properties)) {
      stresses.emplace_back(in, 500, [&] {
        g_object_set(sink.get(), "sync", static_cast<gboolean>(g_random_boolean()), "busy-poll", 5U, nullptr);
        EXPECT_GE(stat(sink.get(), "frames") + 1, 1U);
      });
    }
    g_usleep(stress_us);
    // With a consumer that hangs, pushes wait for a slot: they are woken until the last thread has ended.
    const Stress wakes(in, 2000, [&] { start_flush(in); });
    stresses.clear();
  }
  g_object_set(sink.get(), "sync", FALSE, nullptr);
  flush(in);
  start(in);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const std::uint64_t before = stat(out.element("src"), "frames");
  // Fewer than there are slots: a consumer that hangs is reported, and hangs no push.
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(gst_harness_push(in, new_buffer(random_data(1024, 1), 0).release()), GST_FLOW_OK) << i;
  }
  EXPECT_TRUE(eventually([&] { return stat(out.element("src"), "frames") == before + 4; }))
      << stat(out.element("src"), "frames") - before << " frames; " << out.wait(1ms);
  out.stop();
  gst_harness_teardown(in);
}

}  // namespace
}  // namespace gpumap::gst::test
