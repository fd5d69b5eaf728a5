// SPDX-License-Identifier: MIT
//
// What the tests of the elements share: pipelines that never hang a test, buffers of random bytes, statistics and the
// checksums that gpumapkernel posts. Linking this in registers the elements of this build, initialises GStreamer,
// gives every test a time limit and makes the program fail when the Vulkan validation layer had anything to say.
#pragma once

#include <gst/app/gstappsink.h>
#include <gst/app/gstappsrc.h>
#include <gst/gst.h>
#include <gst/video/video.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gst/ptr.hpp"

namespace gpumap::gst::test {

using namespace std::chrono_literals;
using Time = std::chrono::milliseconds;

using Buffer = Ptr<GstBuffer>;
using Sample = Ptr<GstSample>;
using Caps = Ptr<GstCaps>;
using Element = Ptr<GstElement>;
using Pad = Ptr<GstPad>;
using Data = std::vector<std::byte>;

/// Longer than any wait of a healthy build on a busy machine.
inline constexpr Time patience = 40s;
/// What has nothing to wait for takes less there. A stop that waits for GPU work which does not end takes no less
/// (patience_at_end).
inline constexpr Time at_once = 5s;

/// What gpumapkernel kernel=checksum posts for a frame.
struct Result {
  std::uint64_t checksum = 0, bytes = 0, sequence = 0, pts = 0;
};

/// A pipeline from a gst-launch line. Destroyed, it goes to NULL.
class Pipeline {
 public:
  explicit Pipeline(const std::string& description);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  [[nodiscard]] GstElement* get() const { return pipeline_; }
  /// By name; borrowed: it lives as long as the pipeline.
  [[nodiscard]] GstElement* element(const char* name) const;
  [[nodiscard]] GstAppSrc* appsrc(const char* name = "in") const { return GST_APP_SRC(element(name)); }
  [[nodiscard]] GstAppSink* appsink(const char* name = "out") const { return GST_APP_SINK(element(name)); }

  /// Ask for a state without waiting for it.
  GstStateChangeReturn set_state(GstState state);
  /// Wait for the state, and for the thread that saw to it; false after an error, which error() then has, or when the
  /// time is up.
  [[nodiscard]] bool reach(GstState state, Time limit = patience);
  /// Wait for EOS. "eos", "timeout", or the text of the error with its debug string.
  [[nodiscard]] std::string wait(Time limit = patience);
  /// Play until EOS; what wait() says.
  [[nodiscard]] std::string run(Time limit = patience);
  /// Go to NULL; how long that took.
  Time stop();

  /// Element messages of checksums, in order, as wait() met them.
  [[nodiscard]] const std::vector<Result>& results() const { return results_; }
  [[nodiscard]] const std::string& error() const { return error_; }
  /// Texts of warnings, in order, as wait() met them.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// Name of the element that posted the error.
  [[nodiscard]] const std::string& culprit() const { return culprit_; }

 private:
  void note(GstMessage* message);

  GstElement* pipeline_ = nullptr;
  bool ended_ = false;  ///< reach() met EOS, which wait() has not told yet
  std::vector<Result> results_;
  std::vector<std::string> warnings_;
  std::string error_, culprit_;
};

/// A channel name that no other pipeline of this program has.
[[nodiscard]] std::string new_channel();
/// `description` with every $CHANNEL replaced by one new name.
[[nodiscard]] std::string on_new_channel(std::string description);

/// A counter of an element's `stats`, and a text.
[[nodiscard]] std::uint64_t stat(GstElement* element, const char* field);
[[nodiscard]] std::string stat_text(GstElement* element, const char* field);

/// The values of gpumapsink's property `transport`.
[[nodiscard]] std::vector<const char*> transports();
/// For testing::TestWithParam<const char*>: "-" may not be in a name.
[[nodiscard]] std::string transport_name(const testing::TestParamInfo<const char*>& test);
/// `description` with this transport on every gpumapsink.
[[nodiscard]] std::string on_transport(std::string description, const std::string& transport);

[[nodiscard]] Data random_data(std::size_t bytes, std::uint64_t seed);
/// A buffer in ordinary memory; times other than `pts` unset.
[[nodiscard]] Buffer new_buffer(const Data& data, GstClockTime pts = GST_CLOCK_TIME_NONE);
/// The bytes of a buffer, through a CPU map.
[[nodiscard]] Data data_of(GstBuffer* buffer);
[[nodiscard]] std::uint64_t checksum_of(const Data& data);

[[nodiscard]] Caps new_caps(const std::string& text);
[[nodiscard]] Caps video_caps(const char* format, int width, int height);
/// Bytes of a frame of `caps` in GStreamer's default layout.
[[nodiscard]] std::size_t frame_bytes(const GstCaps* caps);

bool push(GstAppSrc* source, Buffer buffer);
/// The next sample; null at EOS and when the time is up.
[[nodiscard]] Sample pull(GstAppSink* sink, Time limit = patience);

/// Wait until `done()`, looking every few milliseconds.
template <typename Condition>
[[nodiscard]] bool eventually(Condition done, Time limit = patience) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    g_usleep(2000);
  }
  return true;
}

/// For what hangs on the pace of a machine that may be busy with something else for a second. `attempt()` is the whole
/// test, from a new pipeline on, and says what went wrong, "" for nothing: a fault goes wrong three times in a row.
template <typename Attempt>
[[nodiscard]] std::string best_of_three(Attempt attempt) {
  std::string all;
  for (int i = 0; i < 3; ++i) {
    const std::string problem = attempt();
    if (problem.empty()) return "";
    all += problem + '\n';
  }
  return all;
}

/// For a limit of the product's own. `attempt(limit)` is the whole test with that limit, and says what went wrong, ""
/// for nothing. A busy machine may be away for all of a short one; a fault goes wrong with each.
template <typename Attempt>
[[nodiscard]] std::string best_of_longer_limits(Attempt attempt) {
  std::string all;
  for (const Time limit : {Time(300ms), Time(1s), Time(3s)}) {
    const std::string problem = attempt(limit);
    if (problem.empty()) return "";
    all += "with " + std::to_string(limit.count()) + " ms: " + problem + '\n';
  }
  return all;
}

/// Cases that mostly wait, each in a thread of its own: all of them take as long as the longest. What fails names its
/// case, and ASSERT_* ends that one alone. What the cases return, in their order.
template <typename Case, typename Attempt>
auto side_by_side(const std::vector<Case>& cases, Attempt attempt) {
  using Outcome = std::invoke_result_t<Attempt&, const Case&>;
  std::vector<std::future<Outcome>> under_way;
  for (const Case& one : cases) {
    under_way.push_back(std::async(std::launch::async, [&one, &attempt] {
      SCOPED_TRACE(one);
      return attempt(one);
    }));
  }
  if constexpr (std::is_void_v<Outcome>) {
    for (auto& one : under_way) one.get();
  } else {
    std::vector<Outcome> outcomes;
    for (auto& one : under_way) outcomes.push_back(one.get());
    return outcomes;
  }
}

/// Of this process.
[[nodiscard]] std::size_t open_descriptors();
/// In a while: threads of drivers may have one open at the moment.
[[nodiscard]] inline bool no_more_descriptors_than(std::size_t before) {
  return eventually([before] { return open_descriptors() <= before; });
}
[[nodiscard]] std::size_t resident_bytes();

/// The lines of a category, of `level` and graver, while it lives.
class DebugLog {
 public:
  DebugLog(std::string category, GstDebugLevel level) : category_(std::move(category)), level_(level) {
    gst_debug_set_threshold_for_name(category_.c_str(), level);
    (gst_debug_add_log_function)(&DebugLog::take, this, nullptr);  // the macro compares what C++ does not
  }
  ~DebugLog() {
    gst_debug_remove_log_function_by_data(this);
    gst_debug_unset_threshold_for_name(category_.c_str());
  }
  DebugLog(const DebugLog&) = delete;
  DebugLog& operator=(const DebugLog&) = delete;
  [[nodiscard]] std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  static void take(GstDebugCategory* category, GstDebugLevel level, const gchar* /*file*/, const gchar* /*function*/,
                   gint /*line*/, GObject* /*object*/, GstDebugMessage* message, gpointer self) {
    auto* log = static_cast<DebugLog*>(self);
    if (log->category_ != gst_debug_category_get_name(category) || level > log->level_) return;
    const std::lock_guard lock(log->mutex_);
    log->lines_.emplace_back(gst_debug_message_get(message));
  }

  const std::string category_;
  const GstDebugLevel level_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace gpumap::gst::test
