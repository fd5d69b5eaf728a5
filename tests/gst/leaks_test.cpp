// SPDX-License-Identifier: MIT
// GStreamer's leaks tracer: nothing that a pipeline made is alive when it is gone. Once on gst-launch-1.0, as a user
// runs it, and once inside this program, where seeks, restarts and errors can be had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <type_traits>
#include <utility>

#include "gst/ptr.hpp"
#include "matrix.hpp"
#include "pipeline.hpp"
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

// A buffer outlives its pipeline: from the sink's pool, from gpumapsrc, from a kernel. It can be read, written where it
// is the writer's, and freed.

/// Frames that leave the pipeline, which then goes away while they are held.
std::vector<Sample> frames_of_a_gone_pipeline(const std::string& downstream, std::vector<Data>& pushed, int count) {
  Pipeline pipeline(on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL slots=8 gpumapsrc $CHANNEL ! " +
                                   downstream + "appsink name=out sync=false"));
  gst_app_src_set_caps(pipeline.appsrc(), video_caps("RGB", 33, 7).get());
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<Sample> held;
  for (int i = 0; i < count; ++i) {
    pushed.push_back(random_data(frame_bytes(video_caps("RGB", 33, 7).get()), static_cast<std::uint64_t>(i)));
    push(pipeline.appsrc(), new_buffer(pushed.back()));
    held.push_back(pull(pipeline.appsink()));
  }
  return held;
}

class Held : public testing::TestWithParam<const char*> {};

TEST_P(Held, ReadAfterThePipelineIsGone) {
  std::vector<Data> pushed;
  const auto held = frames_of_a_gone_pipeline(GetParam(), pushed, 5);
  for (std::size_t i = 0; i < held.size(); ++i) {
    ASSERT_NE(held[i], nullptr);
    EXPECT_TRUE(data_of(gst_sample_get_buffer(held[i].get())) == pushed[i]) << i;
  }
}

TEST_P(Held, FreedUnread) {
  std::vector<Data> pushed;
  EXPECT_EQ(frames_of_a_gone_pipeline(GetParam(), pushed, 5).size(), 5U);
}

// A CPU that writes gets a copy: another holder of the frame sees what was there.
TEST_P(Held, WrittenInACopy) {
  std::vector<Data> pushed;
  const auto held = frames_of_a_gone_pipeline(GetParam(), pushed, 1);
  ASSERT_NE(held[0], nullptr);
  GstBuffer* mine = gst_buffer_make_writable(gst_buffer_ref(gst_sample_get_buffer(held[0].get())));
  GstMapInfo map;
  ASSERT_TRUE(gst_buffer_map(mine, &map, GST_MAP_READWRITE));
  EXPECT_EQ(std::memcmp(map.data, pushed[0].data(), map.size), 0);
  std::memset(map.data, 0x5a, map.size);
  gst_buffer_unmap(mine, &map);
  EXPECT_TRUE(data_of(mine) == Data(pushed[0].size(), std::byte{0x5a}));
  EXPECT_TRUE(data_of(gst_sample_get_buffer(held[0].get())) == pushed[0]);
  gst_buffer_unref(mine);
}

INSTANTIATE_TEST_SUITE_P(From, Held,
                         testing::Values("", "gpumapkernel kernel=checksum ! ",
                                         "gpumapkernel kernel=identity ! "
                                         "video/x-raw(memory:GPUMap) ! ",
                                         "gpumapkernel kernel=identity ! video/x-raw ! "),
                         [](const auto& test) {
                           const std::string_view text(test.param);
                           return text.empty()                                      ? "Src"
                                  : text.find("checksum") != std::string_view::npos ? "KernelInPlace"
                                  : text.find("GPUMap") != std::string_view::npos   ? "KernelOnTheGpu"
                                                                                    : "KernelInHostMemory";
                         });

/// The pool that gpumapsink offers for `caps`.
GstBufferPool* offered_pool(Pipeline& pipeline, GstCaps* caps) {
  const Pad pad(gst_element_get_static_pad(pipeline.element("sink"), "sink"));
  GstQuery* query = gst_query_new_allocation(caps, TRUE);
  GstBufferPool* pool = nullptr;
  guint size = 0, least = 0, most = 0;
  EXPECT_TRUE(gst_pad_query(pad.get(), query));
  EXPECT_GE(gst_query_get_n_allocation_pools(query), 1U);
  EXPECT_TRUE(gst_query_find_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr));
  gst_query_parse_nth_allocation_pool(query, 0, &pool, &size, &least, &most);
  gst_query_unref(query);
  GstStructure* config = gst_buffer_pool_get_config(pool);
  gst_buffer_pool_config_set_params(config, caps, size, least, most);
  EXPECT_TRUE(gst_buffer_pool_set_config(pool, config));
  return pool;
}

TEST(HeldFromThePool, WrittenAndFreedAfterThePipelineIsGone) {
  const Caps caps = video_caps("NV12", 333, 77);
  GstBufferPool* pool = nullptr;
  std::vector<Buffer> held;
  {
    Pipeline pipeline(on_new_channel("gpumapsink name=sink slots=4 $CHANNEL"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PAUSED), GST_STATE_CHANGE_FAILURE);
    pool = offered_pool(pipeline, caps.get());
    ASSERT_TRUE(gst_buffer_pool_set_active(pool, TRUE));
    for (int i = 0; i < 3; ++i) {
      GstBuffer* buffer = nullptr;
      ASSERT_EQ(gst_buffer_pool_acquire_buffer(pool, &buffer, nullptr), GST_FLOW_OK);
      held.emplace_back(buffer);
    }
  }
  for (const Buffer& buffer : held) {
    EXPECT_STREQ(gst_buffer_peek_memory(buffer.get(), 0)->allocator->mem_type, "GPUMapMemory");
    const Data data = random_data(gst_buffer_get_size(buffer.get()), 5);
    GstMapInfo map;
    ASSERT_TRUE(gst_buffer_map(buffer.get(), &map, GST_MAP_WRITE));
    std::memcpy(map.data, data.data(), data.size());
    gst_buffer_unmap(buffer.get(), &map);
    EXPECT_TRUE(data_of(buffer.get()) == data);
  }
  // The pool may still give host memory, but neither hangs nor crashes.
  GstBuffer* more = nullptr;
  if (gst_buffer_pool_acquire_buffer(pool, &more, nullptr) == GST_FLOW_OK) gst_buffer_unref(more);
  gst_buffer_pool_set_active(pool, FALSE);
  gst_object_unref(pool);
  held.clear();
}

// Ptr gives back each kind of thing once, and nothing that it handed on. Of what is not counted (structures, texts,
// errors) there is one here of each: AddressSanitizer tells of one that is given back twice, or in another way.

static_assert(sizeof(Ptr<GstCaps>) == sizeof(GstCaps*));
static_assert(!std::is_invocable_v<Release, GValue*>, "what is not named is not given back in some other way");
static_assert(!std::is_invocable_v<Release, GList*> && !std::is_invocable_v<Release, void*>);

/// Of a thing that begins with its count, as GObject says it, or GstMiniObject.
gint count_of(GstMiniObject* one) {
  return GST_MINI_OBJECT_REFCOUNT_VALUE(one);
}
gint count_of(GObject* one) {
  return static_cast<gint>(one->ref_count);
}

/// `one` (transfer full), of which this takes a second reference through `Base`, which counts them.
template <typename Base, typename T>
void expect_given_back(T* one) {
  auto* const base = reinterpret_cast<Base*>(one);
  const auto ref = [base] {
    if constexpr (std::is_same_v<Base, GObject>) {
      g_object_ref(base);
    } else {
      gst_mini_object_ref(base);
    }
  };
  ref();
  const gint both = count_of(base);
  { const Ptr<T> owns(one); }
  EXPECT_EQ(count_of(base), both - 1);

  ref();
  Ptr<T> first(one);
  Ptr<T> second = std::move(first);
  EXPECT_EQ(count_of(base), both) << "moved, not taken twice";
  EXPECT_EQ(second.release(), one);
  second.reset();
  EXPECT_EQ(count_of(base), both) << "handed on";
  const Ptr<T> rest(one);
  if constexpr (std::is_same_v<Base, GObject>) {
    g_object_unref(base);
  } else {
    gst_mini_object_unref(base);
  }
}

TEST(Ptr, GivesBackWhatIsCounted) {
  expect_given_back<GstMiniObject>(gst_buffer_new());
  expect_given_back<GstMiniObject>(gst_caps_new_empty_simple("video/x-raw"));
  expect_given_back<GstMiniObject>(gst_event_new_eos());
  expect_given_back<GstMiniObject>(gst_message_new_eos(nullptr));
  expect_given_back<GstMiniObject>(gst_query_new_latency());
  expect_given_back<GstMiniObject>(gst_allocator_alloc(nullptr, 77, nullptr));
  expect_given_back<GstMiniObject>(gst_sample_new(nullptr, nullptr, nullptr, nullptr));
  expect_given_back<GstMiniObject>(gst_context_new("a.context", TRUE));
  expect_given_back<GObject>(GST_ELEMENT(gst_object_ref_sink(gst_pipeline_new(nullptr))));
  expect_given_back<GObject>(GST_OBJECT(gst_object_ref_sink(gst_bin_new(nullptr))));
  expect_given_back<GObject>(GST_PAD(gst_object_ref_sink(gst_pad_new("pad", GST_PAD_SRC))));
  expect_given_back<GObject>(gst_bus_new());
  expect_given_back<GObject>(gst_buffer_pool_new());
  expect_given_back<GObject>(gst_system_clock_obtain());
  expect_given_back<GObject>(static_cast<GObject*>(g_object_new(G_TYPE_OBJECT, nullptr)));
}

TEST(Ptr, FreesWhatIsNot) {
  const Ptr<GstStructure> structure(gst_structure_new("a", "text", G_TYPE_STRING, "and more", nullptr));
  const Ptr<gchar> text(gst_structure_to_string(structure.get()));
  EXPECT_STREQ(text.get(), "a, text=(string)\"and\\ more\";");
  const Ptr<GError> error(g_error_new(GST_CORE_ERROR, GST_CORE_ERROR_CLOCK, "%s", text.get()));
  EXPECT_STREQ(error->message, text.get());
  const Ptr<GDateTime> time(g_date_time_new_utc(2024, 2, 29, 23, 59, 59));
  EXPECT_EQ(g_date_time_get_year(time.get()), 2024);
  const Ptr<GByteArray> bytes(g_byte_array_append(g_byte_array_new(), reinterpret_cast<const guint8*>("odd"), 3));
  EXPECT_EQ(bytes->len, 3U);
  const Ptr<GstCaps> none;
  EXPECT_FALSE(none);
}

}  // namespace
}  // namespace gpumap::gst::test
