// SPDX-License-Identifier: MIT
#include "gst/channel/upstream_requests.hpp"

#include <fmt/format.h>
#include <gst/base/gstbasesink.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/thread_schedule.hpp"
#include "gst/channel/ends.hpp"
#include "gst/channel/flushes.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/channel/upstream_text.hpp"
#include "gst/gst_error.hpp"
#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

namespace {

/// Requests that wait: without an answer, and with one. A client has few of the second kind at a time, but many clients
/// may have come and gone.
constexpr std::size_t max_told = 256;
constexpr std::size_t max_asked = 4096;

/// A seek without a flush waits for streaming threads. They are held back by a paused producer, or by a client that may
/// miss nothing and takes nothing.
bool waits_for_streaming(GstEvent* event) {
  if (GST_EVENT_TYPE(event) != GST_EVENT_SEEK) return false;
  GstSeekFlags flags = GST_SEEK_FLAG_NONE;
  gst_event_parse_seek(event, nullptr, nullptr, &flags, nullptr, nullptr, nullptr, nullptr);
  return (flags & GST_SEEK_FLAG_FLUSH) == 0;
}

/// Sinks answer an instant change of the rate with the lock of their pipeline's state, behind the frame that they
/// render: one that renders until the application lets it go on would keep that lock from who stops the pipeline.
/// False: one renders a frame for 1 s.
bool lets_sinks_render(GstElement* sink, GstEvent* seek) {
  constexpr std::chrono::seconds longest(1);
  GstSeekFlags flags = GST_SEEK_FLAG_NONE;
  gst_event_parse_seek(seek, nullptr, nullptr, &flags, nullptr, nullptr, nullptr, nullptr);
  return (flags & GST_SEEK_FLAG_INSTANT_RATE_CHANGE) == 0 || await_renders(sink, Clock::now() + longest);
}

/// False: what is upstream of `pad` says that it is more than 140 years away, or at no time at all. A seek by time has
/// been checked when it was read. Frames and bytes up to `few` are near enough whatever they last.
bool is_in_reach(GstPad* pad, GstFormat format, gint64 value) {
  constexpr auto latest = static_cast<gint64>(140ULL * 366 * 24 * 3600 * GST_SECOND);
  constexpr gint64 few = 1'000'000'000;
  if (format == GST_FORMAT_TIME || value <= few) return true;
  const Ptr<GstQuery> convert(gst_query_new_convert(format, value, GST_FORMAT_TIME));
  if (peer_query(pad, convert.get()) != PeerAnswer::yes) return true;
  gint64 time = 0;
  gst_query_parse_convert(convert.get(), nullptr, nullptr, nullptr, &time);
  return time >= 0 && time <= latest;
}

}  // namespace

GType upstream_events_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {static_cast<int>(UpstreamEvents::none), "None", "none"},
        {static_cast<int>(UpstreamEvents::first), "Those of the client that has been connected longest", "first"},
        {static_cast<int>(UpstreamEvents::all), "Those of every client", "all"},
        {0, nullptr, nullptr},
    };
    return g_enum_register_static("GstGpumapUpstreamEvents", values);
  }();
  return type;
}

UpstreamRequests::UpstreamRequests(GstElement* sink, std::shared_ptr<Channel> channel, UpstreamEvents rule,
                                   FindServer server)
    : sink_(sink),
      channel_(std::move(channel)),
      rule_(rule),
      server_(std::move(server)),
      waiting_seek_(std::make_shared<WaitingSeek>(server_)),
      thread_(start_thread("gpumap-upstream", "what clients ask", [this] { run(); })) {}

UpstreamRequests::~UpstreamRequests() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  // Ends: the thread looks at stopping_ after each question, which is answered within upstream's own calls.
  thread_.join();
  const std::lock_guard lock(waiting_seek_->mutex);
  waiting_seek_->server = nullptr;
}

bool UpstreamRequests::take(LinkQuestion& question) {
  {
    const std::lock_guard lock(mutex_);
    if (questions_.size() >= (question.number == 0 ? max_told : max_asked)) {
      // Of a question that is left out its client is told. QoS events are many, and the next one says the same.
      has_left_out_ = has_left_out_ || (question.number == 0 && !says_qos(question.text));
      return false;
    }
    questions_.push_back(std::move(question));
  }
  changed_.notify_all();
  return true;
}

void UpstreamRequests::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !questions_.empty(); });
    if (stopping_) return;
    const LinkQuestion question = std::move(questions_.front());
    questions_.pop_front();
    lock.unlock();
    handle(question);
    lock.lock();
    if (!has_left_out_ || std::exchange(told_left_out_, true)) continue;
    lock.unlock();
    tell_of_left_out();
    lock.lock();
  }
}

/// In this thread, which upstream kept busy: now it is free again.
void UpstreamRequests::tell_of_left_out() {
  post_warning(sink_,
               FiguredError(Error(ErrorCode::busy,
                                  fmt::format("events that clients of gpumapsink sent upstream are left out, for "
                                              "{} of them waited while upstream was busy with one",
                                              max_told),
                                  "see what takes a seek or another event so long, or let clients send fewer"),
                            {{"waiting-events", std::uint64_t{max_told}}}));
}

bool UpstreamRequests::may_send(const LinkServer& server, const LinkQuestion& question) const {
  if (rule_ != UpstreamEvents::first) return rule_ == UpstreamEvents::all;
  const auto clients = server.clients();
  return std::none_of(clients.begin(), clients.end(),
                      [&](const LinkClient& one) { return !one.ended && one.connection < question.who.connection; });
}

/// Whether a seek's start and stop make a segment, calculated as gst_segment_do_seek() does from the current one. That
/// function asserts it: a client need not know the current segment, and must not trigger assertions in the producer.
/// Where another client's seek may come before this one is done, `seek` becomes one that leaves nothing to the segment
/// that there is then.
bool UpstreamRequests::may_seek(GstEvent*& seek, Others others) const {
  gdouble rate = 0;
  GstSeekFlags flags{};
  GstFormat format{};
  GstSeekType types[2] = {};
  gint64 wanted[2] = {};
  gst_event_parse_seek(seek, &rate, &format, &flags, &types[0], &wanted[0], &types[1], &wanted[1]);
  if (types[0] == GST_SEEK_TYPE_NONE && types[1] == GST_SEEK_TYPE_NONE && rate > 0) return true;
  GstPad* const pad = GST_BASE_SINK_PAD(sink_);
  for (const int at : {0, 1}) {
    if (types[at] == GST_SEEK_TYPE_SET && !is_in_reach(pad, format, wanted[at])) return false;
  }
  gint64 duration = -1;
  const Ptr<GstQuery> length(gst_query_new_duration(format));
  if (peer_query(pad, length.get()) == PeerAnswer::yes) gst_query_parse_duration(length.get(), nullptr, &duration);
  gint64 now[2] = {0, -1};
  GstFormat now_format = format;
  const Ptr<GstQuery> segment(gst_query_new_segment(format));
  const bool known = peer_query(pad, segment.get()) == PeerAnswer::yes;
  if (known) gst_query_parse_segment(segment.get(), nullptr, &now_format, &now[0], &now[1]);
  if (now_format != format) {
    // Elements convert such a seek. Its result is known only when it does not depend on the current segment.
    const bool has_no_stop = now[1] == -1 && others == Others::none;
    return rate > 0 && types[0] == GST_SEEK_TYPE_SET && (types[1] == GST_SEEK_TYPE_SET || has_no_stop);
  }
  gint64 ends[2] = {};
  for (const int at : {0, 1}) {
    ends[at] = now[at];
    if (types[at] == GST_SEEK_TYPE_SET) ends[at] = at == 0 ? std::max<gint64>(wanted[at], 0) : wanted[at];
    if (types[at] == GST_SEEK_TYPE_END) {
      // That function's sum may wrap round where the place lies outside.
      if (duration < 0 || wanted[at] > 0 || wanted[at] < -duration) return false;
      ends[at] = duration + wanted[at];
    }
    if (duration >= 0 && ends[at] != -1) ends[at] = std::clamp<gint64>(ends[at], 0, duration);
  }
  if (rate < 0 && ends[1] == -1 && duration < 0) return false;
  if (ends[1] != -1 && ends[0] > ends[1]) return false;
  const bool stays = types[0] == GST_SEEK_TYPE_SET && types[1] == GST_SEEK_TYPE_SET;
  if (others == Others::none || stays) return true;
  if (!known && (types[0] == GST_SEEK_TYPE_NONE || types[1] == GST_SEEK_TYPE_NONE)) return false;
  // A segment without a stop says its duration instead.
  if (types[1] == GST_SEEK_TYPE_NONE && ends[1] == duration) ends[1] = -1;
  GstEvent* const same =
      gst_event_new_seek(rate, format, flags, GST_SEEK_TYPE_SET, ends[0], GST_SEEK_TYPE_SET, ends[1]);
  GstClockTime interval = 0;
  gst_event_parse_seek_trickmode_interval(seek, &interval);
  gst_event_set_seek_trickmode_interval(same, interval);
  gst_event_set_seqnum(same, gst_event_get_seqnum(seek));
  gst_event_unref(std::exchange(seek, same));
  return true;
}

bool UpstreamRequests::has_waiting_seek() const {
  const std::lock_guard lock(waiting_seek_->mutex);
  return waiting_seek_->is_there;
}

/// Holds the server only for the call: the server's end, which frees the path for the next one, must not wait long.
void UpstreamRequests::answer(const LinkQuestion& question, const LinkText& text) {
  if (const auto server = server_()) server->answer(question, text);
}

bool UpstreamRequests::send(GstElement* sink, Channel& channel, GstEvent* event) {
  return channel.send_upstream(event,
                               [&](GstEvent* sent) { return gst_pad_push_event(GST_BASE_SINK_PAD(sink), sent) != 0; });
}

/// Takes `seek`. False: another one waits, or the system gives no thread.
bool UpstreamRequests::leave_to_other_thread(const LinkQuestion& question, GstEvent* seek) {
  Ptr<GstEvent> owned(seek);
  {
    const std::lock_guard lock(waiting_seek_->mutex);
    if (std::exchange(waiting_seek_->is_there, true)) return false;
  }
  auto run = [waiting = waiting_seek_, question, seek = std::move(owned), channel = channel_,
              sink = Ptr<GstElement>(GST_ELEMENT_CAST(gst_object_ref(sink_)))]() mutable {
    const bool handled = lets_sinks_render(sink.get(), seek.get()) && send(sink.get(), *channel, seek.release());
    const std::lock_guard lock(waiting->mutex);
    waiting->is_there = false;
    const auto server = waiting->server ? waiting->server() : nullptr;
    if (server) server->answer(question, answer_of(handled));
  };
  try {
    start_thread("gpumap-seek", "a client's seek", std::move(run)).detach();
    return true;
  } catch (const std::exception& error) {
    GST_WARNING_OBJECT(sink_, "client %u cannot seek: %s", question.who.index, error.what());
    const std::lock_guard lock(waiting_seek_->mutex);
    waiting_seek_->is_there = false;
    return false;
  }
}

/// Until the client is through the flush that its seek made, at whichever sockets: it is over when the seek returns, as
/// in one process.
void UpstreamRequests::await_flush(guint32 number, const LinkQuestion& question) {
  constexpr auto longest = std::chrono::seconds(2);
  const Deadline end = Clock::now() + longest;
  std::unique_lock lock(mutex_);
  while (!stopping_ && Clock::now() < end) {
    lock.unlock();
    if (has_taken_flush(number, question)) return;
    lock.lock();
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
}

void UpstreamRequests::handle(const LinkQuestion& question) {
  const auto answer = [&](const LinkText& text) { this->answer(question, text); };
  // Nothing is read of a client that may send nothing, because names that it is the first to use would stay.
  const bool may = [&] {
    const auto server = server_();
    return server && may_send(*server, question);
  }();
  if (says_event(question.text) && !may) {
    GST_INFO_OBJECT(sink_, "client %u may not send events", question.who.index);
    return answer(answer_of(false));
  }
  constexpr std::size_t most_processes = 4096;
  if (names_.size() >= most_processes) names_.clear();  // the limit for all of them remains
  NewNames none(0);
  NewNames& names =
      may ? names_.try_emplace(question.who.pid, NewNames::of_client(question.who.uid)).first->second : none;
  UpstreamAsked asked = asked_of(question.text, names);
  if (may && names.tells_of_refusal()) {
    GST_WARNING_OBJECT(sink_,
                       "client %u (process %d): what has names that are new here is left out from now on: those of one "
                       "process may take %zu bytes, those of one user %zu",
                       question.who.index, static_cast<int>(question.who.pid), NewNames::most_of_peer,
                       NewNames::most_of_user);
  }
  GstPad* const pad = GST_BASE_SINK_PAD(sink_);
  if (asked.query != nullptr) {
    const bool answered = peer_query(pad, asked.query) == PeerAnswer::yes;
    if (answered && GST_QUERY_TYPE(asked.query) == GST_QUERY_LATENCY) channel_->add_sink_latency(asked.query);
    answer(answer_of(answered, asked.query));
    gst_query_unref(asked.query);
    return;
  }
  bool handled = false;
  const bool waits = asked.event != nullptr && waits_for_streaming(asked.event);
  const Others others = waits || has_waiting_seek() ? Others::may_come : Others::none;
  if (waits && !channel_->sink_playing()) {
    GST_INFO_OBJECT(sink_, "client %u may not seek without a flush while this is paused", question.who.index);
    gst_event_unref(asked.event);
  } else if (asked.event != nullptr && GST_EVENT_TYPE(asked.event) == GST_EVENT_SEEK &&
             !may_seek(asked.event, others)) {
    GST_INFO_OBJECT(sink_, "client %u: a seek to nowhere: %" GST_PTR_FORMAT, question.who.index,
                    static_cast<void*>(asked.event));
    gst_event_unref(asked.event);
  } else if (waits) {
    if (leave_to_other_thread(question, asked.event)) return;
    GST_INFO_OBJECT(sink_, "client %u may not seek without a flush while another such seek waits", question.who.index);
  } else if (asked.event != nullptr) {
    GST_DEBUG_OBJECT(sink_, "client %u: %" GST_PTR_FORMAT, question.who.index, static_cast<void*>(asked.event));
    const bool seeks = GST_EVENT_TYPE(asked.event) == GST_EVENT_SEEK;
    const guint32 number = gst_event_get_seqnum(asked.event);
    handled = send(sink_, *channel_, asked.event);
    if (handled && seeks) await_flush(number, question);
  }
  answer(answer_of(handled));
}

}  // namespace gpumap::gst
