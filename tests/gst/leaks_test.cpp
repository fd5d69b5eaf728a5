// SPDX-License-Identifier: MIT
// GStreamer's leaks tracer: nothing that a pipeline made is alive when it is gone. Once on gst-launch-1.0, as a user
// runs it, and once inside this program, where seeks, restarts and errors can be had.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "matrix.hpp"
#include "test_helpers.hpp"

namespace gpumap::gst::test {
namespace {

// Before GStreamer is initialised.
const int traced = setenv("GST_TRACERS", "leaks", 1);

std::string output_of(const std::string& pipeline) {
  const std::string plugin = std::filesystem::path(std::getenv("GPUMAP_PLUGIN")).parent_path();
  const std::string registry = testing::TempDir() + "gpumap-leaks-registry-" + std::to_string(getpid());
  const std::string line =
      "env GST_PLUGIN_PATH='" + plugin + "' GST_REGISTRY='" + registry +
      "' GST_DEBUG_NO_COLOR=1 GST_TRACERS=leaks GST_DEBUG='GST_TRACER:7,gpumap*:4' timeout 90 gst-launch-1.0 -q " +
      pipeline + " 2>&1";
  FILE* pipe = popen(line.c_str(), "r");
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), got);
  const int status = pclose(pipe);
  // gst-launch-1.0 ends with 255 where a pipeline is refused, `timeout` with 124, and the shell with 128 and more when
  // a signal ended it.
  const int code = WEXITSTATUS(status);
  EXPECT_TRUE(WIFEXITED(status) && (code < 124 || code == 255)) << line << "\n" << text;
  return text;
}

/// Lines of objects, not those that declare how such a line looks.
std::string alive_in(const std::string& log) {
  std::istringstream lines(log);
  std::string alive;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("object-alive, type-name=(string)") != line.npos && line.find("%s") == line.npos)
      alive += line + '\n';
  }
  return alive;
}

class Launched : public testing::TestWithParam<Case> {};
constexpr const char* film = "videotestsrc num-buffers=20 ! video/x-raw,format=NV12,width=64,height=48 ! ";
INSTANTIATE_TEST_SUITE_P(
    Pipelines, Launched,
    testing::Values(
        Case{"raw", std::string(film) + "gpumapsink gpumapsrc ! fakesink"},
        Case{"upload and download",
             std::string(film) + "gpumapupload ! gpumapkernel kernel=identity ! gpumapdownload ! fakesink"},
        Case{"identity", std::string(film) + "gpumapsink gpumapsrc ! gpumapkernel kernel=identity ! fakesink"},
        Case{"checksum messages", std::string(film) + "gpumapsink gpumapsrc ! gpumapkernel kernel=checksum ! fakesink"},
        Case{"convert", std::string(film) +
                            "gpumapsink gpumapsrc ! gpumapkernel kernel=convert ! video/x-raw,format=RGBA ! "
                            "fakesink"},
        Case{"tensor", std::string(film) +
                           "gpumapsink gpumapsrc ! gpumapkernel kernel=convert ! application/x-tensor ! fakesink"},
        Case{"own kernel",
             "videotestsrc num-buffers=5 ! video/x-raw,format=RGBA,width=64,height=48 ! gpumapsink gpumapsrc ! "
             "gpumapkernel location=" GPUMAP_EXAMPLES "/kernels/invert.comp ! fakesink"},
        Case{"stamps",
             std::string(film) + "gpumapsink stamps=true latency-interval=10 gpumapsrc ! gpumapkernel ! fakesink"},
        Case{"pinned", std::string(film) + "gpumapsink transport=pinned gpumapsrc ! videoconvert ! fakesink"},
        Case{"encoder",
             "videotestsrc num-buffers=5 ! video/x-raw,format=I420,width=64,height=48 ! gpumapsink gpumapsrc ! "
             "x264enc tune=zerolatency ! fakesink"},
        Case{"decoder",
             "videotestsrc num-buffers=20 ! video/x-raw,format=I420,width=64,height=48 ! x264enc "
             "speed-preset=ultrafast ! h264parse ! avdec_h264 ! gpumapsink gpumapsrc ! fakesink"},
        Case{"audio",
             "audiotestsrc num-buffers=20 ! audio/x-raw,format=F32LE,channels=2 ! gpumapsink gpumapsrc ! "
             "gpumapkernel kernel=iq-power ! fakesink"},
        Case{"tags and bytes",
             "filesrc location=" GPUMAP_EXAMPLES "/quickstart blocksize=200 ! taginject tags=title=x ! "
             "gpumapsink gpumapsrc ! gpumapkernel kernel=identity ! fakesink"},
        Case{"changes of caps",
             "concat name=c ! gpumapsink gpumapsrc ! gpumapkernel kernel=convert ! fakesink  videotestsrc "
             "num-buffers=5 ! video/x-raw,format=RGB,width=64,height=48 ! c.  videotestsrc num-buffers=5 ! "
             "video/x-raw,format=NV12,width=32,height=48 ! c."},
        Case{"tee", std::string(film) +
                        "tee name=t t. ! queue ! gpumapsink channel=a t. ! queue ! gpumapsink channel=b "
                        "gpumapsrc channel=a ! fakesink  gpumapsrc channel=b ! fakesink"},
        Case{"refused caps", std::string(film) + "gpumapsink gpumapsrc ! video/x-raw,format=RGB ! fakesink"},
        Case{"no such kernel", std::string(film) + "gpumapsink gpumapsrc ! gpumapkernel kernel=nothing ! fakesink"},
        Case{"no such device", std::string(film) + "gpumapsink device=99 gpumapsrc ! fakesink"},
        Case{"no producer", "gpumapsrc timeout=100 channel=nobody ! fakesink"}),
    case_name);

TEST_P(Launched, LeavesNothingAlive) {
  if (sanitized) GTEST_SKIP() << "a plugin with a sanitizer does not load into a gst-launch-1.0 without";
  const std::string log = output_of(GetParam().pipeline);
  // Else the tracer was not there and looked for nothing.
  EXPECT_THAT(log, testing::HasSubstr("object-alive.class"));
  EXPECT_EQ(alive_in(log), "") << GetParam().pipeline;
}

/// What the tracer saw come and go in this program, by type. It can list what lives, too, but in GStreamer 1.22 it
/// takes a reference from each object that it lists.
class Tracer {
 public:
  Tracer() {
    GList* tracers = gst_tracing_get_active_tracers();
    for (GList* item = tracers; item != nullptr; item = item->next) {
      if (std::string_view(G_OBJECT_TYPE_NAME(item->data)) == "GstLeaksTracer") tracer_ = GST_TRACER(item->data);
    }
    g_list_free_full(tracers, gst_object_unref);  // GStreamer keeps its own
    if (tracer_ != nullptr) g_signal_emit_by_name(tracer_, "activity-start-tracking");
  }
  ~Tracer() {
    if (tracer_ != nullptr) g_signal_emit_by_name(tracer_, "activity-stop-tracking");
  }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  [[nodiscard]] bool is_there() const { return tracer_ != nullptr; }
  /// Since this was made: more created than removed. Fewer are what a thread from before let go later.
  [[nodiscard]] std::map<std::string, int> left() {
    GstStructure* checkpoint = nullptr;
    g_signal_emit_by_name(tracer_, "activity-get-checkpoint", &checkpoint);
    count(checkpoint, "objects-created-list", 1);
    count(checkpoint, "objects-removed-list", -1);
    gst_structure_free(checkpoint);
    std::map<std::string, int> left = left_;
    std::erase_if(left, [](const auto& type) { return type.second <= 0; });
    return left;
  }

 private:
  void count(const GstStructure* checkpoint, const char* name, int by) {
    const GValue* list = gst_structure_get_value(checkpoint, name);
    for (guint i = 0; i < gst_value_list_get_size(list); ++i) {
      const GstStructure* object = gst_value_get_structure(gst_value_list_get_value(list, i));
      left_[gst_structure_get_string(object, "type-name")] += by;
    }
  }

  GstTracer* tracer_ = nullptr;
  std::map<std::string, int> left_;
};

struct Scene {
  const char* name;
  void (*play)();
};
void PrintTo(const Scene& scene, std::ostream* out) {
  *out << scene.name;
}

const std::string endless = "videotestsrc ! video/x-raw,format=NV12,width=64,height=48,framerate=100/1 ! ";

void seeks() {
  Pipeline pipeline(with_gpumap(endless + "$MAP ! gpumapkernel kernel=checksum ! fakesink"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  for (int i = 0; i < 10; ++i) {
    gst_element_seek_simple(pipeline.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, i * GST_SECOND);
    g_usleep(10000);
  }
}
void states() {
  Pipeline pipeline(with_gpumap(endless + "$MAP ! gpumapkernel kernel=identity ! fakesink"));
  for (int i = 0; i < 5; ++i) {
    for (const GstState state :
         {GST_STATE_PLAYING, GST_STATE_PAUSED, GST_STATE_READY, GST_STATE_PAUSED, GST_STATE_NULL}) {
      ASSERT_TRUE(pipeline.reach(state));
    }
  }
}
void a_producer_without_a_consumer() {
  const std::string channel = new_channel();
  {
    Pipeline pipeline("videotestsrc num-buffers=5 ! gpumapsink slots=8 channel=" + channel);
    ASSERT_EQ(pipeline.run(), "eos");
  }
  // The ring waits for one: this is it.
  Pipeline consumer("gpumapsrc channel=" + channel + " ! fakesink");
  ASSERT_EQ(consumer.run(), "eos");
}
void an_application_that_keeps_frames() {
  std::vector<Sample> kept;
  {
    Pipeline pipeline(
        with_gpumap("videotestsrc num-buffers=6 ! video/x-raw,format=GRAY8,width=64,height=48 ! $MAP ! appsink "
                    "name=out sync=false"));
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
    for (int i = 0; i < 6; ++i) kept.push_back(pull(pipeline.appsink()));
  }
}
void events_that_nobody_takes() {
  Pipeline pipeline("appsrc name=in format=time ! gpumapsink leaky=oldest channel=" + new_channel());
  gst_app_src_set_caps(pipeline.appsrc(), video_caps("GRAY8", 8, 8).get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int i = 0; i < 50; ++i) {
    push(pipeline.appsrc(), new_buffer(random_data(64, 1), 0));
    const Pad pad(gst_element_get_static_pad(pipeline.element("in"), "src"));
    gst_pad_push_event(pad.get(), gst_event_new_gap(0, 1));
    gst_pad_push_event(pad.get(), gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty("a")));
  }
}
void an_error() {
  Pipeline pipeline(with_gpumap(endless + "$MAP ! video/x-raw,format=RGB ! fakesink"));
  EXPECT_NE(pipeline.run(), "eos");
}

class Played : public testing::TestWithParam<Scene> {};
INSTANTIATE_TEST_SUITE_P(Scenes, Played,
                         testing::Values(Scene{"Seeks", seeks}, Scene{"States", states},
                                         Scene{"AProducerWithoutAConsumer", a_producer_without_a_consumer},
                                         Scene{"AnApplicationThatKeepsFrames", an_application_that_keeps_frames},
                                         Scene{"EventsThatNobodyTakes", events_that_nobody_takes},
                                         Scene{"AnError", an_error}),
                         [](const auto& test) { return test.param.name; });

TEST_P(Played, LeavesNothingAlive) {
  GetParam().play();  // factories, templates and classes stay from their first use on
  Tracer tracer;
  ASSERT_TRUE(tracer.is_there());
  for (int i = 0; i < 3; ++i) GetParam().play();
  std::map<std::string, int> left;
  // Threads of pools give their last buffers back in their own time.
  EXPECT_TRUE(eventually([&] { return (left = tracer.left()).empty(); }));
  EXPECT_EQ(left, (std::map<std::string, int>{}));
}

}  // namespace
}  // namespace gpumap::gst::test
