// SPDX-License-Identifier: MIT
// States in any order, again and again: nothing is lost, nothing grows.
#include <gst/gst.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <sstream>
#include <thread>

#include "matrix.hpp"
#include "monitor.hpp"
#include "pipeline.hpp"
#include "temporary_folder.hpp"
#include "test_helpers.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

constexpr const char* looping =
    "videotestsrc pattern=snow ! video/x-raw,format=NV12,width=320,height=180,framerate=500/1 ! "
    "gpumapsink name=sink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=identity ! fakesink";

GstState random_state(std::mt19937& random) {
  constexpr GstState states[] = {GST_STATE_NULL, GST_STATE_READY, GST_STATE_PAUSED, GST_STATE_PLAYING};
  return states[random() % std::size(states)];
}

/// True when no element is on its way to a state any more.
bool all_settled(Pipeline& pipeline) {
  bool settled = true;
  GstIterator* elements = gst_bin_iterate_elements(GST_BIN(pipeline.get()));
  gst_iterator_foreach(
      elements,
      [](const GValue* value, gpointer user) {
        auto* element = static_cast<GstElement*>(g_value_get_object(value));
        const GstStateChangeReturn result = gst_element_get_state(element, nullptr, nullptr, 0);
        if (result != GST_STATE_CHANGE_SUCCESS && result != GST_STATE_CHANGE_NO_PREROLL) {
          *static_cast<bool*>(user) = false;
        }
      },
      &settled);
  gst_iterator_free(elements);
  return settled;
}

/// GStreamer itself can leave a bin whose changes overtook one another waiting for ever for elements that are all there
/// (`videotestsrc ! queue ! fakesink` does, once in some thousand changes): then it is the elements that count.
bool settle(Pipeline& pipeline, GstState state) {
  if (pipeline.set_state(state) == GST_STATE_CHANGE_FAILURE) return false;
  for (int second = 0; second < 40; ++second) {
    const GstStateChangeReturn result = gst_element_get_state(pipeline.get(), nullptr, nullptr, GST_SECOND);
    if (result != GST_STATE_CHANGE_ASYNC) return result != GST_STATE_CHANGE_FAILURE;
    if (second > 0 && all_settled(pipeline)) return true;
  }
  return false;
}

/// Half of the times the state is waited for, else the next one comes while the change is under way. Where the stream
/// `seeks`, that comes in between as well.
void change_states(Pipeline& pipeline, std::mt19937& random, int changes, bool seeks = false) {
  GstBus* bus = gst_element_get_bus(pipeline.get());
  for (int i = 0; i < changes; ++i) {
    const GstState state = random_state(random);
    if (random() % 2 == 0) {
      ASSERT_TRUE(settle(pipeline, state))
          << "change " << i << " to " << gst_element_state_get_name(state) << ": " << pipeline.error();
    } else {
      ASSERT_NE(pipeline.set_state(state), GST_STATE_CHANGE_FAILURE) << "change " << i;
      g_usleep(random() % 3000);
    }
    if (seeks && random() % 3 == 0) {
      gst_element_seek_simple(pipeline.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH,
                              static_cast<gint64>(random() % 1000 * GST_MSECOND));
    }
    while (GstMessage* message = gst_bus_pop(bus)) {
      if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
        GError* error = nullptr;
        gchar* debug = nullptr;
        gst_message_parse_error(message, &error, &debug);
        ADD_FAILURE() << "change " << i << ": " << error->message << "\n" << debug;
        g_error_free(error);
        g_free(debug);
      }
      gst_message_unref(message);
    }
  }
  gst_object_unref(bus);
}

/// In a while: what a driver's thread still holds goes once that thread comes to it.
bool no_more_memory_than(std::size_t bytes) {
  return eventually([bytes] { return resident_bytes() <= bytes; }, 10s);
}

TEST(State, AThousandChangesAndNothingGrows) {
  std::mt19937 random(20240610);
  Pipeline pipeline(on_new_channel(looping));
  change_states(pipeline, random, 150);  // caches of the drivers and of the allocator fill up
  ASSERT_FALSE(HasFatalFailure());
  pipeline.stop();
  const std::size_t descriptors = open_descriptors();
  const std::size_t bytes = resident_bytes();
  change_states(pipeline, random, 1000);
  ASSERT_FALSE(HasFatalFailure());
  pipeline.stop();
  EXPECT_TRUE(no_more_descriptors_than(descriptors)) << open_descriptors() << " of " << descriptors;
  // One ring has 0.7 MB: one lost in a hundred changes shows.
  if (!sanitized) {
    EXPECT_TRUE(no_more_memory_than(bytes + 12'000'000)) << resident_bytes() << ", before: " << bytes;
  }
}

// In one element and one thread, with few slots, several readers and frames on their way back.
TEST(State, UploadAndDownloadGoAlong) {
  std::mt19937 random(20261126);
  for (const char* line : {"gpumapupload name=sink slots=2 ! gpumapkernel kernel=identity ! "
                           "video/x-raw(memory:GPUMap) ! gpumapdownload ! fakesink",
                           "gpumapupload name=sink slots=3 ! tee name=tee  tee. ! queue max-size-buffers=3 ! "
                           "gpumapdownload ! queue ! videoconvert ! fakesink  tee. ! queue ! gpumapkernel "
                           "kernel=checksum ! fakesink",
                           "queue ! gpumapupload name=sink slots=2 ! queue ! fakesink"}) {
    SCOPED_TRACE(line);
    Pipeline pipeline(std::string("videotestsrc ! video/x-raw,format=NV12,width=320,height=180,framerate=500/1 ! ") +
                      line);
    change_states(pipeline, random, 50, true);
    ASSERT_FALSE(HasFatalFailure());
    pipeline.stop();
    const std::size_t descriptors = open_descriptors();
    const std::size_t bytes = resident_bytes();
    change_states(pipeline, random, 200, true);
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_TRUE(settle(pipeline, GST_STATE_PLAYING)) << pipeline.error();
    EXPECT_TRUE(eventually([&] { return stat(pipeline.element("sink"), "frames") > 20; })) << "it stands";
    EXPECT_LT(pipeline.stop(), at_once);
    EXPECT_TRUE(no_more_descriptors_than(descriptors)) << open_descriptors() << " of " << descriptors;
    if (!sanitized) {
      EXPECT_TRUE(no_more_memory_than(bytes + 12'000'000)) << resident_bytes() << ", before: " << bytes;
    }
  }
}

// Properties are read and set by any thread at any time.
TEST(State, PropertiesWhileStatesChange) {
  Pipeline pipeline(on_new_channel(looping));
  GstElement* sink = pipeline.element("sink");
  std::atomic<bool> over{false};
  std::thread reader([&] {
    for (bool odd = false; !over; odd = !odd) {
      EXPECT_LE(stat(sink, "zero-copy-frames"), stat(sink, "frames") + 1000);
      g_object_set(sink, "device", odd ? "auto" : "0", "sync", static_cast<gboolean>(odd), nullptr);
    }
  });
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(settle(pipeline, i % 2 == 0 ? GST_STATE_PAUSED : GST_STATE_READY)) << i;
  }
  over = true;
  reader.join();
}

TEST(State, NewPipelinesAndNothingGrows) {
  std::size_t descriptors = 0;
  std::size_t bytes = 0;
  for (int i = 0; i < 60; ++i) {
    if (i == 20) {
      descriptors = open_descriptors();
      bytes = resident_bytes();
    }
    Pipeline pipeline(on_new_channel(looping));
    g_object_set(pipeline.element("sink"), "slots", 2 + i % 7, nullptr);
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
  }
  EXPECT_TRUE(no_more_descriptors_than(descriptors)) << open_descriptors() << " of " << descriptors;
  if (!sanitized) {
    EXPECT_TRUE(no_more_memory_than(bytes + 12'000'000)) << resident_bytes() << ", before: " << bytes;
  }
}

TEST(State, RestartAfterEos) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc name=source num-buffers=12 ! video/x-raw,format=NV12,width=33,height=17 ! "
      "gpumapsink name=sink $CHANNEL gpumapsrc name=src $CHANNEL ! gpumapkernel kernel=checksum ! fakesink"));
  for (const GstState between : {GST_STATE_NULL, GST_STATE_READY, GST_STATE_NULL}) {
    ASSERT_EQ(pipeline.run(), "eos");
    EXPECT_EQ(stat(pipeline.element("sink"), "frames"), 12U);
    EXPECT_EQ(stat(pipeline.element("src"), "frames"), 12U);
    ASSERT_TRUE(pipeline.reach(between));
  }
  EXPECT_EQ(pipeline.results().size(), 36U);
}

// The second run has other caps, and a downstream that would not take the first run's.
TEST(State, RestartWithOtherCaps) {
  Pipeline pipeline(on_new_channel(
      "videotestsrc num-buffers=5 ! capsfilter name=before caps=video/x-raw,format=NV12,width=33,height=17 ! "
      "gpumapsink $CHANNEL gpumapsrc $CHANNEL name=src ! "
      "capsfilter name=after caps=video/x-raw(memory:GPUMap),format=NV12 ! fakesink"));
  for (const char* format : {"NV12", "RGB", "GRAY8", "NV12"}) {
    SCOPED_TRACE(format);
    const Caps before = new_caps(std::string("video/x-raw,width=34,height=18,format=") + format);
    const Caps after = new_caps(std::string("video/x-raw(memory:GPUMap),format=") + format);
    g_object_set(pipeline.element("before"), "caps", before.get(), nullptr);
    g_object_set(pipeline.element("after"), "caps", after.get(), nullptr);
    ASSERT_EQ(pipeline.run(), "eos");
    EXPECT_EQ(stat(pipeline.element("src"), "frames"), 5U);
    pipeline.stop();
  }
}

// Its pads stop first, and refuse the events that a source sends just then. That is no error, and no concern of the
// producer's.
TEST(State, ABinAroundTheSrcThatStops) {
  const std::string channel = new_channel();
  Pipeline producer("videotestsrc ! video/x-raw,format=GRAY8,width=33,height=17 ! gpumapsink channel=" + channel);
  Pipeline consumer("bin.( name=bin gpumapsrc name=src channel=" + channel + " ) ! fakesink name=out sync=false");
  GstElement* bin = consumer.element("bin");
  const Pad src(gst_element_get_static_pad(consumer.element("src"), "src"));
  // The first that a bin does on its way down, in the moment of an event.
  const auto stops = [](GstPad*, GstPadProbeInfo* info, gpointer stopping) {
    if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) != GST_EVENT_TAG) return GST_PAD_PROBE_OK;
    GST_STATE_TARGET(stopping) = GST_STATE_READY;
    GST_PAD_SET_FLUSHING(GST_PAD(GST_ELEMENT(stopping)->srcpads->data));
    return GST_PAD_PROBE_REMOVE;
  };
  gst_pad_add_probe(src.get(), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, stops, bin, nullptr);
  ASSERT_NE(producer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(consumer.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  // The bin is told to play after the sink, which takes frames then.
  ASSERT_EQ(gst_element_get_state(consumer.get(), nullptr, nullptr, 40 * GST_SECOND), GST_STATE_CHANGE_SUCCESS);
  ASSERT_TRUE(eventually([&] { return stat(consumer.element("src"), "frames") > 5; }));
  ASSERT_TRUE(gst_element_send_event(consumer.element("src"),
                                     gst_event_new_tag(gst_tag_list_new(GST_TAG_TITLE, "a title", nullptr))));
  ASSERT_TRUE(eventually([&] { return gst_pad_get_task_state(src.get()) == GST_TASK_PAUSED; }));
  EXPECT_EQ(consumer.wait(100ms), "timeout");
  EXPECT_EQ(producer.wait(1ms), "timeout");
  gst_element_set_state(bin, GST_STATE_READY);
  ASSERT_TRUE(gst_element_sync_state_with_parent(bin));
  EXPECT_TRUE(eventually([&] { return stat(consumer.element("src"), "frames") > 5; }));
  EXPECT_EQ(producer.wait(1ms), "timeout");
}

}  // namespace
}  // namespace gpumap::gst::test

// Scenarios of seeks, pauses and states, after those that gst-validate brings: play, pause_resume, seek_forward,
// seek_backward, scrub_forward_seeking, fast_forward, reverse_playback, seek_with_stop, simple_seeks,
// change_state_intensive and force_eos. Debian 12 and Ubuntu 24.04 have no package of gst-validate-1.0, so that its
// monitors' rules are in monitor.hpp, and the control is a pipeline with a queue in gpumap's place. Time is simulated,
// and stands still but for what is waited.
// Tables of pipelines, made once: how fast their texts grow does not matter.
// NOLINTBEGIN(performance-inefficient-string-concatenation)
namespace gpumap::gst::test {
namespace {

struct Scenario {
  const char* name;
  /// One step a word: `play`, `pause`, `ready`, `null`, `wait:MILLISECONDS`, `seek:START[:STOP[:RATE]]` in seconds,
  /// `scrub:START` (a key unit, and not waited for), `eos` (sent), `end` (waited for).
  const char* steps;
};

constexpr Scenario scenarios[] = {
    {"Play", "play wait:500"},
    {"PauseResume", "play wait:200 pause wait:200 play wait:200 pause wait:100 play wait:200"},
    {"SeekForward", "play wait:100 seek:2 wait:150 seek:5 wait:150 seek:10 wait:150 seek:15 wait:150"},
    {"SeekBackward", "play wait:100 seek:18 wait:150 seek:12 wait:150 seek:5 wait:150 seek:0 wait:150"},
    {"SimpleSeeks", "pause seek:10 wait:100 seek:0 wait:100 play wait:200 seek:5 wait:200"},
    {"SeekInPaused", "pause seek:1 seek:2 seek:3 seek:19 seek:0 play wait:200"},
    {"Scrub",
     "pause scrub:1 scrub:2 scrub:3 wait:20 scrub:4 scrub:5 scrub:6 scrub:7 wait:50 scrub:8 seek:9 play wait:200"},
    {"FastForward", "play seek:0:20:2 wait:300 seek:1:20:4 wait:300 seek:2:20:8 wait:300"},
    {"Slow", "play seek:3:10:0.5 wait:300 seek:4:10:0.25 wait:300"},
    {"SeekWithStop", "pause seek:10:10.5 play end seek:3:3.5 end"},
    {"AfterTheEnd", "play seek:19.5:20 end seek:1 wait:200 seek:19.8:20 end"},
    {"ChangeStates", "play ready play pause ready pause play null play wait:50 null pause null play wait:200"},
    {"SeekInEveryState",
     "pause seek:3 play seek:4 pause seek:5 ready pause seek:6 play wait:100 null play seek:7 wait:100"},
    {"ForceEos", "play wait:200 eos end seek:4 wait:100 eos end"},
};

/// Of a state, a seek, an end.
constexpr Time step_limit = patience;

class Player {
 public:
  explicit Player(const std::string& description) : pipeline_(description) {
    use(pipeline_, time_.clock(1'000 * GST_SECOND));
    out_.on(pipeline_.element("out"), "sink");
    in_.on(pipeline_.element("in"), "sink");
  }

  /// What went wrong; empty where nothing did.
  std::string run(const std::string& steps) {
    std::istringstream words(steps);
    for (std::string word; words >> word;) {
      const std::string wrong = step(word) + in_.violations() + out_.violations() + error();
      if (!wrong.empty()) return word + " of \"" + steps + "\": " + wrong;
    }
    return "";
  }

 private:
  std::string step(const std::string& word) {
    std::istringstream parts(word);
    std::string what;
    std::getline(parts, what, ':');
    std::vector<double> numbers;
    for (std::string number; std::getline(parts, number, ':');) numbers.push_back(std::stod(number));
    if (what == "play") return reach(GST_STATE_PLAYING);
    if (what == "pause") return reach(GST_STATE_PAUSED);
    if (what == "ready") return reach(GST_STATE_READY);
    if (what == "null") return reach(GST_STATE_NULL);
    if (what == "wait") {
      for (double left = numbers.at(0); left > 0; left -= 10) let_play();
      return "";
    }
    if (what == "eos") {  // a source that waits for a full queue takes it when there is room
      auto sent = std::async(std::launch::async,
                             [this] { return gst_element_send_event(pipeline_.get(), gst_event_new_eos()) != FALSE; });
      while (sent.wait_for(0s) != std::future_status::ready) let_play();
      return sent.get() ? "" : "refused\n";
    }
    if (what == "end") {
      std::string verdict;
      const bool ended = eventually(
          [&] {
            let_play();
            verdict = std::exchange(ended_, false) ? "eos" : pipeline_.wait(0ms);
            return verdict != "timeout";
          },
          step_limit);
      return ended && verdict == "eos" ? "" : verdict + '\n';
    }
    return seek(numbers, what == "scrub");
  }

  /// For the time of a quarter of a frame.
  void let_play() {
    time_.pass(10ms);
    g_usleep(1000);
  }

  std::string reach(GstState state) {
    const bool reached = pipeline_.reach(state, step_limit);
    if (state < GST_STATE_PAUSED) {
      in_.begin_anew();
      out_.begin_anew();
    }
    return reached ? "" : "not reached\n";
  }

  std::string seek(const std::vector<double>& numbers, bool scrub) {
    const double start = numbers.at(0);
    const double stop = numbers.size() > 1 ? numbers[1] : -1;
    const double rate = numbers.size() > 2 ? numbers[2] : 1;
    const auto ns = [](double seconds) { return static_cast<gint64>(seconds * GST_SECOND); };
    const auto flags = static_cast<GstSeekFlags>(static_cast<unsigned>(GST_SEEK_FLAG_FLUSH) |
                                                 (scrub ? GST_SEEK_FLAG_KEY_UNIT : GST_SEEK_FLAG_ACCURATE));
    GstEvent* event = gst_event_new_seek(rate, GST_FORMAT_TIME, flags, GST_SEEK_TYPE_SET, ns(start),
                                         stop < 0 ? GST_SEEK_TYPE_NONE : GST_SEEK_TYPE_SET, stop < 0 ? 0 : ns(stop));
    for (Monitor* monitor : {&in_, &out_}) monitor->expect_seqnum(gst_event_get_seqnum(event));
    if (!gst_element_send_event(pipeline_.get(), event)) return "refused\n";
    ended_ = false;
    // A scrub is followed by the next before it is done.
    if (scrub) return "";
    if (gst_element_get_state(pipeline_.get(), nullptr, nullptr,
                              static_cast<GstClockTime>(std::chrono::nanoseconds(step_limit).count())) ==
        GST_STATE_CHANGE_ASYNC) {
      return "not done\n";
    }
    gint64 at = -1;
    if (!gst_element_query_position(pipeline_.get(), GST_FORMAT_TIME, &at)) return "no position\n";
    // The time of a sink that plays stands still, too. One that does not wait for it may have two frames by now: that
    // for its preroll, and the first one that is due.
    const double ahead = (static_cast<double>(at) / GST_SECOND - start) * (rate < 0 ? -1 : 1);
    if (ahead < -0.05 || ahead > 0.09) return "position " + std::to_string(static_cast<double>(at) / GST_SECOND) + '\n';
    return "";
  }

  std::string error() {
    GstBus* bus = gst_element_get_bus(pipeline_.get());
    constexpr auto types = static_cast<GstMessageType>(static_cast<unsigned>(GST_MESSAGE_ERROR) | GST_MESSAGE_EOS);
    std::string text;
    while (GstMessage* message = gst_bus_pop_filtered(bus, types)) {
      if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_EOS) {
        ended_ = true;
        gst_message_unref(message);
        continue;
      }
      GError* error = nullptr;
      gst_message_parse_error(message, &error, nullptr);
      text = std::string("ERROR of ") + GST_MESSAGE_SRC_NAME(message) + ": " + error->message + '\n';
      g_error_free(error);
      gst_message_unref(message);
    }
    gst_object_unref(bus);
    return text;
  }

  Monitor in_, out_;
  SimulatedTime time_;
  Pipeline pipeline_;
  bool ended_ = false;  ///< error() met EOS
};

/// Twenty seconds of film, once as a source that makes it and once as a file.
const std::string& film() {
  static const TemporaryFolder folder;
  static const std::string file = [] {
    std::string name = folder.path() / "film.mp4";
    Pipeline writer(
        "videotestsrc num-buffers=500 pattern=ball ! video/x-raw,format=I420,width=96,height=64,framerate=25/1 ! "
        "x264enc speed-preset=ultrafast key-int-max=25 bframes=2 b-adapt=false ! h264parse ! mp4mux ! filesink "
        "location=" +
        name);
    EXPECT_EQ(writer.run(), "eos");
    return name;
  }();
  return file;
}

struct Line {
  const char* name;
  const char* between;  ///< what stands between upstream and sink, with `name=in` on its first element
  bool file = false;
};
constexpr Line lines[] = {
    {"Queue", "queue name=in ! fakesink name=out sync=true"},
    {"QueueFile", "queue name=in ! fakesink name=out sync=true", true},
    {"Raw", "gpumapsink name=in $CHANNEL gpumapsrc $CHANNEL ! fakesink name=out sync=true"},
    {"Paced", "gpumapsink name=in sync=true $CHANNEL gpumapsrc $CHANNEL ! fakesink name=out sync=false"},
    {"Kernel",
     "gpumapsink name=in $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel=convert ! video/x-raw,format=RGBA ! "
     "fakesink name=out sync=true"},
    {"File", "gpumapsink name=in $CHANNEL gpumapsrc $CHANNEL ! fakesink name=out sync=true", true},
    {"FilePinned",
     "gpumapsink name=in transport=pinned slots=16 $CHANNEL gpumapsrc $CHANNEL ! fakesink name=out sync=true", true},
};

struct Played {
  Line line;
  Scenario scenario;
};
void PrintTo(const Played& played, std::ostream* out) {
  *out << played.line.between << ": " << played.scenario.steps;
}

std::vector<Played> all() {
  std::vector<Played> all;
  for (const Line& line : lines) {
    for (const Scenario& scenario : scenarios) {
      // A demuxer's pads go with its READY, and gst-launch's way of linking them works once.
      const std::string_view steps(scenario.steps);
      const bool stops = steps.find("ready") != steps.npos || steps.find("null") != steps.npos;
      if (!line.file || !stops) all.push_back({line, scenario});
    }
  }
  return all;
}

class Scenarios : public testing::TestWithParam<Played> {};
INSTANTIATE_TEST_SUITE_P(Of, Scenarios, testing::ValuesIn(all()),
                         [](const auto& test) { return std::string(test.param.line.name) + test.param.scenario.name; });

TEST_P(Scenarios, KeepTheRules) {
  const auto& [line, scenario] = GetParam();
  const std::string upstream =
      line.file ? "filesrc location=" + film() + " ! qtdemux ! h264parse ! avdec_h264 max-threads=1 ! "
                : "videotestsrc pattern=ball ! video/x-raw,format=I420,width=96,height=64,framerate=25/1 ! ";
  Player player(on_new_channel(upstream + line.between));
  EXPECT_EQ(player.run(scenario.steps), "");
}

}  // namespace
}  // namespace gpumap::gst::test
// NOLINTEND(performance-inefficient-string-concatenation)
