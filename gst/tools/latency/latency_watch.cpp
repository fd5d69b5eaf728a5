// SPDX-License-Identifier: MIT
#include "gst/tools/latency/latency_watch.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace latency {
namespace {

/// What stands behind `key` on its line of a status file.
std::string_view field(std::string_view status, std::string_view key) {
  const std::size_t at = status.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view value = status.substr(at + key.size());
  value = value.substr(0, value.find('\n'));
  const std::size_t begin = value.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view{} : value.substr(begin);
}

std::int64_t clock_ns(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Arithmetic and memory traffic, until somebody kills it.
[[noreturn]] void keep_busy(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // it ended before that was set
  std::signal(SIGINT, SIG_IGN);
  static std::array<volatile std::uint64_t, std::size_t{1} << 19> memory;  // 4 MiB: more than a core's own caches hold
  for (std::uint64_t i = 0;; ++i) memory[i * 8 % memory.size()] = memory[i * 8 % memory.size()] + i;
}

/// In the thread that posts, so that times are true. Nothing piles up on the bus: a kernel posts with each frame.
GstBusSyncReply on_message(GstBus* /*bus*/, GstMessage* message, gpointer user) {
  auto& watch = *static_cast<Watch*>(user);
  const char* source = GST_MESSAGE_SRC_NAME(message);
  switch (GST_MESSAGE_TYPE(message)) {
    case GST_MESSAGE_ERROR:
    case GST_MESSAGE_EOS:
      return GST_BUS_PASS;
    case GST_MESSAGE_STATE_CHANGED: {
      GstState from = GST_STATE_VOID_PENDING;
      GstState to = GST_STATE_VOID_PENDING;
      gst_message_parse_state_changed(message, &from, &to, nullptr);
      watch.note(Event::Kind::state, fmt::format("{} went from {} to {}", source, gst_element_state_get_name(from),
                                                 gst_element_state_get_name(to)));
      break;
    }
    case GST_MESSAGE_QOS:
      watch.note(Event::Kind::qos, fmt::format("{} told of a late frame", source));
      break;
    case GST_MESSAGE_LATENCY:
      watch.note(Event::Kind::latency, fmt::format("{} has another latency", source));
      break;
    case GST_MESSAGE_WARNING: {
      GError* error = nullptr;
      gst_message_parse_warning(message, &error, nullptr);
      const Ptr<GError> owned(error);
      watch.note(Event::Kind::warning, fmt::format("{}: {}", source, error->message));
      break;
    }
    default:
      break;
  }
  gst_message_unref(message);
  return GST_BUS_DROP;
}

}  // namespace

Watch::~Watch() {
  for (const auto& [id, thread] : threads_) ::close(thread.status);
}

void Watch::add(Event event) {
  const std::lock_guard lock(mutex_);
  if (events_.size() < max_events) {
    events_.push_back(std::move(event));
    return;
  }
  events_[next_] = std::move(event);
  next_ = (next_ + 1) % max_events;
}

void Watch::note(Event::Kind kind, std::string text) {
  const std::int64_t now = gpumap::monotonic_ns();
  add({.kind = kind, .since_ns = now, .at_ns = now, .text = std::move(text)});
}

void Watch::find_threads() {
  for (auto& [id, thread] : threads_) thread.seen = false;
  DIR* folder = ::opendir("/proc/self/task");
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    const int id = std::atoi(entry->d_name);
    if (id <= 0 || id == ::gettid()) continue;
    const auto [at, found] = threads_.try_emplace(id);
    Thread& thread = at->second;
    thread.seen = true;
    if (found) thread.looked_ns = last_search_ns_;
    if (thread.status < 0) {
      thread.status = ::open(fmt::format("/proc/self/task/{}/status", id).c_str(), O_RDONLY | O_CLOEXEC);
    }
  }
  ::closedir(folder);
  std::erase_if(threads_, [](const auto& one) {
    if (one.second.seen && one.second.status >= 0) return false;
    if (one.second.status >= 0) ::close(one.second.status);
    return true;
  });
}

void Watch::look_at_threads() {
  constexpr unsigned looks_between_searches = 10;
  const std::int64_t now = gpumap::monotonic_ns();
  if (looks_++ % looks_between_searches == 0) {
    find_threads();
    last_search_ns_ = now;
  }
  for (auto& [id, thread] : threads_) {
    std::array<char, 4096> text;
    const ssize_t length = ::pread(thread.status, text.data(), text.size(), 0);
    if (length <= 0) continue;  // it has ended; the next search drops it
    const std::string_view status(text.data(), static_cast<std::size_t>(length));
    const std::string_view number = field(status, "nonvoluntary_ctxt_switches:");
    std::uint64_t switches = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), switches).ec != std::errc{}) continue;
    const std::uint64_t more = switches - std::exchange(thread.switches, switches);
    const std::int64_t since_ns = std::exchange(thread.looked_ns, now);
    if (since_ns == 0 || more == 0) continue;
    switches_ += more;
    add({.kind = Event::Kind::context_switch,
         .since_ns = since_ns,
         .at_ns = now,
         .text = fmt::format("{} was taken off its CPU{}", field(status, "Name:"),
                             more == 1 ? "" : fmt::format(" {} times", more))});
  }
}

std::vector<Event> Watch::take() {
  const std::lock_guard lock(mutex_);
  next_ = 0;
  return std::exchange(events_, {});
}

Load::Load(unsigned processes) {
  const pid_t parent = ::getpid();
  for (unsigned i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    if (child == 0) keep_busy(parent);
    if (child < 0) throw std::runtime_error("cannot start the processes of --load");
    children_.push_back(child);
  }
}

Load::~Load() {
  for (const int child : children_) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

CpuTime::CpuTime() {
  if (pthread_getcpuclockid(pthread_self(), &own_) != 0) throw std::runtime_error("this thread has no clock");
}

std::int64_t CpuTime::of_others_ns() const noexcept {
  return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - clock_ns(own_);
}

std::string error_of(GstMessage* message) {
  GError* error = nullptr;
  gst_message_parse_error(message, &error, nullptr);
  const Ptr<GError> owned(error);
  return fmt::format("{}: {}", GST_MESSAGE_SRC_NAME(message), error->message);
}

Line::Line(const std::string& text, Watch& watch) {
  GError* error = nullptr;
  Ptr<GstElement> made(gst_parse_launch(text.c_str(), &error));
  const Ptr<GError> owned(error);
  if (made) gst_object_ref_sink(made.get());
  if (error != nullptr || !made) {
    throw std::runtime_error(fmt::format("{}\n  in: {}", error != nullptr ? error->message : "no pipeline", text));
  }
  if (!GST_IS_PIPELINE(made.get())) {
    // A line of one element is that element.
    Ptr<GstElement> pipeline(GST_ELEMENT(gst_object_ref_sink(gst_pipeline_new(nullptr))));
    gst_bin_add(GST_BIN(pipeline.get()), made.get());
    made = std::move(pipeline);
  }
  pipeline_ = std::move(made);
  bus_.reset(gst_element_get_bus(pipeline()));
  gst_bus_set_sync_handler(bus(), on_message, &watch, nullptr);
  const Ptr<GstClock> clock(gst_system_clock_obtain());
  gst_pipeline_use_clock(GST_PIPELINE(pipeline()), clock.get());
}

void Line::probe(GstElement* element, const char* pad, GstPadProbeCallback callback, gpointer user) {
  const Ptr<GstPad> found(element != nullptr ? gst_element_get_static_pad(element, pad) : nullptr);
  if (!found) throw std::runtime_error(fmt::format("no pad {} to look at", pad));
  gst_pad_add_probe(found.get(), GST_PAD_PROBE_TYPE_BUFFER, callback, user, nullptr);
}

GstStateChangeReturn Line::change(GstState state) const {
  const GstStateChangeReturn changed = gst_element_set_state(pipeline(), state);
  if (changed != GST_STATE_CHANGE_FAILURE) return changed;
  const Ptr<GstMessage> message(gst_bus_pop_filtered(bus(), GST_MESSAGE_ERROR));
  throw std::runtime_error(message ? error_of(message.get()) : "the pipeline does not start");
}

bool Line::pause() const {
  return change(GST_STATE_PAUSED) == GST_STATE_CHANGE_NO_PREROLL;
}

void Line::play() const {
  static_cast<void>(change(GST_STATE_PLAYING));
}

void Line::stop() {
  if (!bus_) return;
  gst_element_set_state(pipeline(), GST_STATE_NULL);
  gst_bus_set_sync_handler(bus(), nullptr, nullptr, nullptr);
}

SinkStats Line::sink_stats() const {
  const auto sink = element("latency-sink");
  if (!sink) return {};
  GstStructure* raw = nullptr;
  g_object_get(sink.get(), "stats", &raw, nullptr);
  const Ptr<GstStructure> stats(raw);
  if (!stats) return {};
  const auto number = [&](const char* field) {
    guint64 value = 0;
    gst_structure_get_uint64(stats.get(), field, &value);
    return value;
  };
  const char* transport = gst_structure_get_string(stats.get(), "transport");
  return {.zero_copy_frames = number("zero-copy-frames"),
          .copied_frames = number("copied-frames"),
          .waits = number("waits"),
          .drops = number("drops"),
          .transport = transport != nullptr ? transport : ""};
}

std::string missing_elements() {
  const Ptr<GstElement> sink(gst_element_factory_make("gpumapsink", nullptr));
  if (!sink) {
    return "no element gpumapsink: export GST_PLUGIN_PATH=<the folder with libgstgpumap.so>, which is build/gst in a "
           "checkout; gst-inspect-1.0 gpumapsink tells more";
  }
  if (g_object_class_find_property(G_OBJECT_GET_CLASS(sink.get()), "stamps") == nullptr) {
    return "the gpumapsink that GStreamer finds has no property stamps: it is of an older gpumap than this program";
  }
  return {};
}

std::string why_not_here(const Case& which, const Options& options) {
  if (!which.has_ring() && !options.pipeline.empty()) return "it stands beside pipelines of our own only";
  if (!which.is_rival()) {
    if (options.upstream == "videotestsrc" && options.pipeline.empty() && !which.frame.is_video()) {
      return "videotestsrc makes no blocks of bytes: use --upstream in-place or copy";
    }
    return {};
  }
  if (as_rgba(which.frame, 0).empty()) return "it takes video, and this size makes no RGBA picture";
  if (options.upstream == "videotestsrc" && !which.frame.is_video()) return "videotestsrc makes no blocks of bytes";
  const Ptr<GstElement> upload(gst_element_factory_make("cudaupload", nullptr));
  if (!upload) return "this GStreamer has no cudaupload, which comes with gst-plugins-bad and an NVIDIA driver";
  const bool opens = gst_element_set_state(upload.get(), GST_STATE_READY) != GST_STATE_CHANGE_FAILURE;
  gst_element_set_state(upload.get(), GST_STATE_NULL);
  return opens ? "" : "cudaupload is there and opens no CUDA device";
}

}  // namespace latency
