// SPDX-License-Identifier: MIT
#include "gst/link/outlet.hpp"

#include <chrono>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/error.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

using namespace std::chrono_literals;

namespace {

/// What clients gave back is looked for this often while no frame comes.
constexpr auto idle = 10ms;
constexpr auto longest_drain = 5s;

guint signal_ids[2];

}  // namespace

void install_outlet_signals(GObjectClass* klass) {
  signal_ids[0] = g_signal_new("client-connected", G_TYPE_FROM_CLASS(klass), G_SIGNAL_RUN_LAST, 0, nullptr, nullptr,
                               nullptr, G_TYPE_NONE, 3, G_TYPE_UINT, G_TYPE_INT, G_TYPE_STRING);
  signal_ids[1] = g_signal_new("client-disconnected", G_TYPE_FROM_CLASS(klass), G_SIGNAL_RUN_LAST, 0, nullptr, nullptr,
                               nullptr, G_TYPE_NONE, 4, G_TYPE_UINT, G_TYPE_INT, G_TYPE_STRING, G_TYPE_STRING);
}

Outlet::Outlet(GstElement* sink, std::shared_ptr<Channel> channel, OutletSettings settings, std::atomic<guint>& clients)
    : sink_(sink), channel_(std::move(channel)), settings_(std::move(settings)), clients_(clients), thread_([this] {
        run();
      }) {}

Outlet::~Outlet() {
  stop(false);
}

void Outlet::stop(bool drained) {
  if (!thread_.joinable()) return;
  if (drained) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, longest_drain, [this] { return ended_; });
  }
  stopping_ = true;
  thread_.join();
  server_.reset();
  clients_ = 0;
}

void Outlet::tell(const LinkClient& client, const std::string& reason) {
  if (reason.empty()) {
    ++clients_;
    g_signal_emit(sink_, signal_ids[0], 0, client.index, client.pid, client.name.c_str());
  } else {
    --clients_;
    g_signal_emit(sink_, signal_ids[1], 0, client.index, client.pid, client.name.c_str(), reason.c_str());
  }
}

void Outlet::run() {
  while (!stopping_) {
    Channel::Next next = channel_->next(Clock::now() + idle);
    try {
      if (next.kind == Channel::Next::Kind::event) {
        forward(next.event);
      } else if (next.kind == Channel::Next::Kind::frame) {
        forward(next);
      } else if (next.kind == Channel::Next::Kind::flushing) {
        std::this_thread::sleep_for(1ms);
      }
      if (server_) server_->show({});
    } catch (const std::exception& error) {
      // Once: what follows is dropped, and the pipeline is told to stop.
      if (!std::exchange(failed_, true)) post_error(sink_, error);
      server_.reset();
    }
  }
}

void Outlet::send(const LinkText& text, std::uint32_t keeping) {
  if (keeping != 0) kept_[keeping] = text;
  if (server_) server_->send(text, keeping);
}

void Outlet::forward(GstEvent* event) {
  const std::unique_ptr<GstEvent, decltype(&gst_event_unref)> owned(event, gst_event_unref);
  if (GST_EVENT_TYPE(event) == GST_EVENT_STREAM_START) {
    std::erase_if(kept_, [](const auto& one) { return one.first != layout_keeping; });
  }
  const LinkText text = text_of(event);
  if (text.empty() || text.size() > max_link_message) {
    GST_WARNING_OBJECT(sink_, "%s does not cross to other processes: %s", GST_EVENT_TYPE_NAME(event),
                       text.empty() ? "it cannot be written as text" : "it is too long");
  } else {
    send(text, keeping_of(event));
  }
  if (GST_EVENT_TYPE(event) != GST_EVENT_EOS) return;
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Outlet::forward(Channel::Next& frame) {
  if (failed_) return;
  if (frame.lease.ring() != ring_.get()) serve(channel_->src_ring());
  const auto layout = frame.carrier ? layout_of(frame.carrier.get()) : std::nullopt;
  if (layout != layout_) {
    layout_ = layout;
    send(text_of(layout), layout_keeping);
  }
  while (settings_.wait_for_connection && !stopping_ && !server_->wait_for_client(Clock::now() + 100ms)) {
  }
  server_->show(std::move(frame.lease));
}

void Outlet::serve(const std::shared_ptr<Ring>& ring) {
  server_.reset();  // its clients finish what they have, and come again
  clients_ = 0;
  ring_ = ring;
  LinkServerOptions options;
  options.path = settings_.path;
  options.on_client = [this](const LinkClient& client, const std::string& reason) { tell(client, reason); };
  server_ = LinkServer::serve(ring_, std::move(options));
  for (const auto& [keeping, text] : kept_) server_->send(text, keeping);
}

}  // namespace gpumap::gst
