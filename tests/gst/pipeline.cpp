// SPDX-License-Identifier: MIT
#include "pipeline.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "../unit/test_helpers.hpp"
#include "gpumap/device.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/memory.hpp"
#include "gst/elements.hpp"

namespace gpumap::gst::test {

namespace {

// A test that hangs is ended by a signal: with a bug in a lock, nothing that runs in a thread could be relied upon. A
// little before Meson ends the whole program (tests/run), which would not say where.
constexpr unsigned test_seconds = sanitized ? 500 : 200;

void on_alarm(int /*signal*/) {
  constexpr std::string_view text = "[  FAILED  ] the test hangs: its time limit is over\n";
  (void)!write(STDERR_FILENO, text.data(), text.size());
  std::abort();
}

class TimeLimit : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& /*test*/) override { alarm(test_seconds); }
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override { alarm(0); }
};

class GstEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    (void)std::signal(SIGALRM, on_alarm);
    ::testing::UnitTest::GetInstance()->listeners().Append(new TimeLimit);
    gst_init(nullptr, nullptr);
    ASSERT_TRUE(gst_plugin_register_static(GST_VERSION_MAJOR, GST_VERSION_MINOR, "gpumaptest", "gpumap linked in",
                                           gpumap_register_elements, GPUMAP_VERSION, "MIT/X11", "gpumap", "gpumap",
                                           "https://example.org"));
  }
  void TearDown() override { EXPECT_EQ(validation_message_count(), 0U) << "messages of the Vulkan validation layer"; }
};

const auto* const environment = ::testing::AddGlobalTestEnvironment(new GstEnvironment);

std::chrono::steady_clock::time_point end_of(Time limit) {
  return std::chrono::steady_clock::now() + limit;
}

GstClockTime left_until(std::chrono::steady_clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - std::chrono::steady_clock::now());
  return static_cast<GstClockTime>(std::max<std::int64_t>(left.count(), 0));
}

}  // namespace

Pipeline::Pipeline(const std::string& description) {
  GError* error = nullptr;
  pipeline_ = gst_parse_launch_full(description.c_str(), nullptr, GST_PARSE_FLAG_FATAL_ERRORS, &error);
  if (error != nullptr) {
    error_ = error->message;
    ADD_FAILURE() << description << ": " << error_;
    g_error_free(error);
  }
  if (pipeline_ == nullptr) {
    pipeline_ = gst_pipeline_new(nullptr);
  } else if (!GST_IS_PIPELINE(pipeline_)) {  // a single element
    GstElement* bin = gst_pipeline_new(nullptr);
    gst_bin_add(GST_BIN(bin), pipeline_);
    pipeline_ = bin;
  }
}

Pipeline::~Pipeline() {
  stop();
  gst_object_unref(pipeline_);
}

GstElement* Pipeline::element(const char* name) const {
  GstElement* found = gst_bin_get_by_name(GST_BIN(pipeline_), name);
  if (found == nullptr) {
    ADD_FAILURE() << "no element \"" << name << '"';
    std::abort();
  }
  gst_object_unref(found);
  return found;
}

GstStateChangeReturn Pipeline::set_state(GstState state) {
  return gst_element_set_state(pipeline_, state);
}

void Pipeline::note(GstMessage* message) {
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
    GError* error = nullptr;
    gchar* debug = nullptr;
    gst_message_parse_error(message, &error, &debug);
    if (error_.empty()) {
      error_ = std::string(error->message) + (debug != nullptr ? std::string("\n") + debug : "");
      culprit_ = GST_OBJECT_NAME(GST_MESSAGE_SRC(message));
    }
    g_clear_error(&error);
    g_free(debug);
  }
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_WARNING) {
    GError* warning = nullptr;
    gst_message_parse_warning(message, &warning, nullptr);
    warnings_.emplace_back(warning->message);
    g_clear_error(&warning);
  }
  const GstStructure* structure = gst_message_get_structure(message);
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ELEMENT && gst_structure_has_name(structure, "gpumap-checksum")) {
    guint64 sum = 0, bytes = 0, sequence = 0, pts = 0;
    EXPECT_TRUE(gst_structure_get(structure, "checksum", G_TYPE_UINT64, &sum, "bytes", G_TYPE_UINT64, &bytes,
                                  "sequence", G_TYPE_UINT64, &sequence, "pts", G_TYPE_UINT64, &pts, nullptr));
    results_.push_back({sum, bytes, sequence, pts});
  }
}

bool Pipeline::reach(GstState state, Time limit) {
  const auto end = end_of(limit);
  ended_ = false;
  GstStateChangeReturn changed = set_state(state);
  GstBus* bus = gst_element_get_bus(pipeline_);
  while (changed == GST_STATE_CHANGE_ASYNC && left_until(end) != 0) {
    changed = gst_element_get_state(pipeline_, nullptr, nullptr, 20 * GST_MSECOND);
    // The end may come in the same moment as the state: wait() is told.
    constexpr auto types = static_cast<GstMessageType>(static_cast<unsigned>(GST_MESSAGE_EOS) | GST_MESSAGE_ERROR);
    GstMessage* message = gst_bus_pop_filtered(bus, types);
    if (message == nullptr) continue;
    note(message);
    ended_ = GST_MESSAGE_TYPE(message) == GST_MESSAGE_EOS;
    if (ended_) {
      gst_message_unref(message);
      continue;
    }
    gst_message_unref(message);
    changed = GST_STATE_CHANGE_FAILURE;
  }
  if (changed == GST_STATE_CHANGE_FAILURE && error_.empty()) {
    if (GstMessage* message = gst_bus_timed_pop_filtered(bus, GST_SECOND, GST_MESSAGE_ERROR)) {
      note(message);
      gst_message_unref(message);
    }
  }
  gst_object_unref(bus);
  if (changed != GST_STATE_CHANGE_SUCCESS && changed != GST_STATE_CHANGE_NO_PREROLL) return false;
  // The thread of the bin's that brought the state about tells of it before it lets go of its lock.
  return eventually(
      [this] {
        if (GST_STATE_TRYLOCK(pipeline_) == FALSE) return false;
        GST_STATE_UNLOCK(pipeline_);
        return true;
      },
      limit);
}

std::string Pipeline::wait(Time limit) {
  const auto end = end_of(limit);
  constexpr auto types = static_cast<GstMessageType>(static_cast<unsigned>(GST_MESSAGE_EOS) | GST_MESSAGE_ERROR |
                                                     GST_MESSAGE_WARNING | GST_MESSAGE_ELEMENT);
  GstBus* bus = gst_element_get_bus(pipeline_);
  std::string verdict = std::exchange(ended_, false) ? "eos" : "";
  while (verdict.empty()) {
    GstMessage* message = gst_bus_timed_pop_filtered(bus, left_until(end), types);
    if (message == nullptr) {
      verdict = "timeout";
      break;
    }
    note(message);
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_EOS) verdict = "eos";
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) verdict = error_;
    gst_message_unref(message);
  }
  gst_object_unref(bus);
  return verdict;
}

std::string Pipeline::run(Time limit) {
  // A failure to change state posts its error too.
  (void)set_state(GST_STATE_PLAYING);
  return wait(limit);
}

Time Pipeline::stop() {
  const auto began = std::chrono::steady_clock::now();
  (void)set_state(GST_STATE_NULL);
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now() - began);
}

namespace {

void replace_all(std::string& text, std::string_view mark, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += by.size()) {
    text.replace(at, mark.size(), by);
  }
}

}  // namespace

std::string new_channel() {
  static std::atomic<int> made{0};
  return "test" + std::to_string(made++);
}

std::string on_new_channel(std::string description) {
  replace_all(description, "$CHANNEL", "channel=" + new_channel());
  return description;
}

std::vector<const char*> transports() {
  std::vector<const char*> names;
  for (const Transport one : all_transports) names.push_back(to_string(one).data());
  return names;
}

std::string transport_name(const testing::TestParamInfo<const char*>& test) {
  std::string name = test.param;
  replace_all(name, "-", "");
  return name;
}

std::string on_transport(std::string description, const std::string& transport) {
  replace_all(description, "gpumapsink", "gpumapsink transport=" + transport);
  return description;
}

std::uint64_t stat(GstElement* element, const char* field) {
  GstStructure* stats = nullptr;
  g_object_get(element, "stats", &stats, nullptr);
  guint64 value = 0;
  EXPECT_TRUE(stats != nullptr && gst_structure_get_uint64(stats, field, &value)) << field;
  if (stats != nullptr) gst_structure_free(stats);
  return value;
}

std::string stat_text(GstElement* element, const char* field) {
  GstStructure* stats = nullptr;
  g_object_get(element, "stats", &stats, nullptr);
  const char* value = stats != nullptr ? gst_structure_get_string(stats, field) : nullptr;
  std::string text = value != nullptr ? value : "";
  if (stats != nullptr) gst_structure_free(stats);
  return text;
}

Data random_data(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Data data(bytes);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = random();
    std::memcpy(data.data() + at, &word, std::min<std::size_t>(8, bytes - at));
  }
  return data;
}

Buffer new_buffer(const Data& data, GstClockTime pts) {
  Buffer buffer(gst_buffer_new_memdup(data.data(), data.size()));
  GST_BUFFER_PTS(buffer.get()) = pts;
  return buffer;
}

Data data_of(GstBuffer* buffer) {
  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) {
    ADD_FAILURE() << "cannot map a buffer for reading";
    return {};
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(map.data);
  Data data(bytes, bytes + map.size);
  gst_buffer_unmap(buffer, &map);
  return data;
}

std::uint64_t checksum_of(const Data& data) {
  return checksum(data);
}

Caps new_caps(const std::string& text) {
  Caps caps(gst_caps_from_string(text.c_str()));
  EXPECT_NE(caps, nullptr) << text;
  return caps;
}

Caps video_caps(const char* format, int width, int height) {
  return Caps(gst_caps_new_simple("video/x-raw", "format", G_TYPE_STRING, format, "width", G_TYPE_INT, width, "height",
                                  G_TYPE_INT, height, "framerate", GST_TYPE_FRACTION, 30, 1, nullptr));
}

std::size_t frame_bytes(const GstCaps* caps) {
  GstVideoInfo info;
  EXPECT_TRUE(gst_video_info_from_caps(&info, caps));
  return info.size;
}

bool push(GstAppSrc* source, Buffer buffer) {
  return gst_app_src_push_buffer(source, buffer.release()) == GST_FLOW_OK;
}

Sample pull(GstAppSink* sink, Time limit) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(limit);
  return Sample(gst_app_sink_try_pull_sample(sink, static_cast<GstClockTime>(ns.count())));
}

std::size_t open_descriptors() {
  // A thread of Mesa's tends its cache of compiled shaders, and has some of its files open at any time.
  const std::filesystem::directory_iterator listing("/proc/self/fd");
  return static_cast<std::size_t>(std::count_if(begin(listing), end(listing), [](const auto& entry) {
    std::error_code gone;
    return read_symlink(entry.path(), gone).string().find("mesa_shader_cache") == std::string::npos;
  }));
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace gpumap::gst::test
