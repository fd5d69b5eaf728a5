// SPDX-License-Identifier: MIT
// States in any order, again and again: nothing is lost, nothing grows.
#include <atomic>
#include <random>
#include <thread>

#include "pipeline.hpp"
#include "sanitizers.hpp"

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
