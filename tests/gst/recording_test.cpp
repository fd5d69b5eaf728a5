// SPDX-License-Identifier: MIT
// What an encoder or a muxer behind a gpumapsrc makes of a stream: whole, in order, and nothing twice, whatever becomes
// of either pipeline meanwhile.
#include <algorithm>
#include <iterator>

#include "due.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

// One that is faster than time, and starts again, or has another segment: behind what is recorded, not over it.
TEST(TwoPipelines, ARecordingGoesOnBehindARestart) {
  Due raw;
  const std::string channel = new_channel();
  Pipeline in(
      "videotestsrc ! video/x-raw,format=I420,width=16,height=16,framerate=5/1 ! gpumapsink name=sink channel=" +
      channel);
  Pipeline out("gpumapsrc channel=" + channel + " ! x264enc name=enc ! fakesink sync=false");
  raw.watch(out.element("enc"), "sink");
  ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (const std::size_t until : {100, 200, 300}) {
    ASSERT_TRUE(eventually([&] { return raw.count() >= until; }));
    if (until == 100) {
      in.stop();
    } else {
      ASSERT_TRUE(gst_element_seek_simple(in.element("sink"), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 0));
    }
    ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  }
  ASSERT_TRUE(eventually([&] { return raw.count() >= 400; }));
  out.stop();
  for (std::size_t n = 1; n < raw.running.size(); ++n) EXPECT_LT(raw.running[n - 1], raw.running[n]) << n;
}

// Nothing goes back in a recording that is paused, nor does the pause last in it: a live producer plays on meanwhile,
// another waits. Where the producer is paused the time here goes on. Frames that the encoder reorders keep theirs.
TEST(TwoPipelines, ARecordingGoesOnBehindAPause) {
  const std::vector<std::string> names{
      "a producer that waits", "a live one", "a live one that drops frames", "a live one beside another source",
      "the producer",          "both"};
  side_by_side(names, [&names](const std::string& name) {
    const auto is = [&](std::size_t n) { return name == names[n]; };
    Due raw, encoded;
    const std::string channel = new_channel();
    Pipeline in(std::string("videotestsrc is-live=") + (is(0) ? "false" : "true") +
                " ! video/x-raw,format=I420,width=16,height=16,framerate=50/1 ! gpumapsink leaky=" +
                (is(2) ? "oldest" : "no") + " channel=" + channel);
    Pipeline out("gpumapsrc channel=" + channel +
                 " ! x264enc name=enc rc-lookahead=5 sync-lookahead=0 bframes=3 b-adapt=false ! "
                 "identity name=out sleep-time=5000 ! fakesink sync=false" +
                 (is(3) ? " audiotestsrc is-live=true ! fakesink sync=false async=false" : ""));
    raw.watch(out.element("enc"), "sink");
    encoded.watch(out.element("out"), "sink");
    ASSERT_NE(in.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    ASSERT_NE(out.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::vector<Pipeline*> paused;
    if (!is(4)) paused.push_back(&out);
    if (is(4) || is(5)) paused.push_back(&in);
    std::size_t from = 0;  // what comes before time begins, and its encoder's, is due as it begins beside other sources
    for (const std::size_t until : {50, 100, 150}) {
      ASSERT_TRUE(eventually([&] { return encoded.count() >= until; }));
      if (from == 0) from = raw.count() - 1;
      for (Pipeline* const one : paused) {
        ASSERT_NE(one->set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
        g_usleep(200'000);
      }
      g_usleep(800'000);
      std::ranges::reverse(paused);
      for (Pipeline* const one : paused) {
        ASSERT_NE(one->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
        g_usleep(200'000);
      }
      std::ranges::reverse(paused);
    }
    ASSERT_TRUE(eventually([&] { return encoded.count() >= 200; }));
    out.stop();
    raw.running.erase(raw.running.begin(), raw.running.begin() + static_cast<std::ptrdiff_t>(from));
    int gaps = 0;
    for (std::size_t n = 1; n < raw.running.size(); ++n) {
      EXPECT_LT(raw.running[n - 1], raw.running[n]) << n;
      if (raw.running[n] - raw.running[n - 1] > 700 * GST_MSECOND) ++gaps;
    }
    EXPECT_EQ(gaps, is(4) ? 3 : 0);
    std::ranges::sort(encoded.running);
    const auto begin = std::ranges::lower_bound(encoded.running, raw.running[0]);
    std::vector<GstClockTime> others;  // each once
    std::set_difference(begin, encoded.running.end(), raw.running.begin(), raw.running.end(),
                        std::back_inserter(others));
    EXPECT_THAT(others, testing::IsEmpty());
  });
}

}  // namespace
}  // namespace gpumap::gst::test
