// SPDX-License-Identifier: MIT
#include "gst/link/upstream_desk.hpp"

#include <gst/base/gstbasesink.h>

#include <algorithm>
#include <utility>

#include "gst/channel/peer_query.hpp"
#include "gst/link/upstream_text.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

namespace {

/// Of what wants no answer; of what wants one, a client has few at a time, but many clients may have come and gone.
constexpr std::size_t max_told = 256;
constexpr std::size_t max_asked = 4096;

}  // namespace

GType upstream_events_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {static_cast<int>(UpstreamEvents::none), "Nobody's", "none"},
        {static_cast<int>(UpstreamEvents::first), "Those of the client that has been connected longest", "first"},
        {static_cast<int>(UpstreamEvents::all), "Those of every client", "all"},
        {0, nullptr, nullptr},
    };
    return g_enum_register_static("GstGpumapUpstreamEvents", values);
  }();
  return type;
}

UpstreamDesk::UpstreamDesk(GstElement* sink, std::shared_ptr<Channel> channel, UpstreamEvents rule, FindServer server)
    : sink_(sink), channel_(std::move(channel)), rule_(rule), server_(std::move(server)), thread_([this] { run(); }) {}

UpstreamDesk::~UpstreamDesk() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool UpstreamDesk::take(LinkQuestion& question) {
  {
    const std::lock_guard lock(mutex_);
    if (questions_.size() >= (question.number == 0 ? max_told : max_asked)) return false;
    questions_.push_back(std::move(question));
  }
  changed_.notify_all();
  return true;
}

void UpstreamDesk::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !questions_.empty(); });
    if (stopping_) return;
    const LinkQuestion question = std::move(questions_.front());
    questions_.pop_front();
    lock.unlock();
    handle(question);
    lock.lock();
  }
}

bool UpstreamDesk::may_send(const LinkServer& server, const LinkQuestion& question) const {
  if (rule_ != UpstreamEvents::first) return rule_ == UpstreamEvents::all;
  const auto clients = server.clients();
  return std::none_of(clients.begin(), clients.end(),
                      [&](const LinkClient& one) { return one.connection < question.who.connection; });
}

void UpstreamDesk::handle(const LinkQuestion& question) {
  // No server is held meanwhile: its end, with the path that the next one needs, waits for nobody.
  const auto answer = [&](const LinkText& text) {
    if (const auto server = server_()) server->answer(question, text);
  };
  const auto may_send = [&] {
    const auto server = server_();
    return server && this->may_send(*server, question);
  };
  const UpstreamAsked asked = asked_of(question.text);
  GstPad* const pad = GST_BASE_SINK_PAD(sink_);
  if (asked.query != nullptr) {
    const bool answered = peer_query(pad, asked.query) == PeerAnswer::yes;
    const LinkText text = answer_of(answered, asked.query);
    answer(text.size() <= max_link_message ? text : answer_of(false));
    gst_query_unref(asked.query);
    return;
  }
  bool handled = false;
  if (asked.event != nullptr && may_send()) {
    GST_DEBUG_OBJECT(sink_, "client %u: %" GST_PTR_FORMAT, question.who.index, static_cast<void*>(asked.event));
    handled =
        channel_->send_upstream(asked.event, [&](GstEvent* event) { return gst_pad_push_event(pad, event) != 0; });
  } else if (asked.event != nullptr) {
    GST_INFO_OBJECT(sink_, "client %u may not send %s", question.who.index, GST_EVENT_TYPE_NAME(asked.event));
    gst_event_unref(asked.event);
  }
  answer(answer_of(handled));
}

}  // namespace gpumap::gst
