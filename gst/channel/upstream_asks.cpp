// SPDX-License-Identifier: MIT
#include "gst/channel/upstream_asks.hpp"

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "gst/channel/event_text.hpp"
#include "gst/channel/upstream_text.hpp"

namespace gpumap::gst {

using namespace std::chrono_literals;

namespace {

/// A producer that is suspended or dying must not stop the caller. A seek may have to open a file again.
constexpr auto patience_for_query = 500ms;
constexpr auto patience_for_seek = 5s;

}  // namespace

void UpstreamAsks::connect(std::shared_ptr<LinkConsumer> consumer) {
  const std::lock_guard lock(mutex_);
  consumer_.swap(consumer);
}

bool UpstreamAsks::send(GstEvent* event) {
  const LinkText text = text_of_upstream(event);
  const bool waits = GST_EVENT_TYPE(event) == GST_EVENT_SEEK;
  GstSeekFlags flags = GST_SEEK_FLAG_NONE;
  if (waits) gst_event_parse_seek(event, nullptr, nullptr, &flags, nullptr, nullptr, nullptr, nullptr);
  gst_event_unref(event);
  const auto consumer = this->consumer();
  if (!consumer || text.empty() || text.size() > max_link_question) return false;
  if (!waits) return consumer->tell(text);
  std::vector<std::byte> answer;
  const Deadline end = Clock::now() + patience_for_seek;
  if ((flags & GST_SEEK_FLAG_FLUSH) == 0) return consumer->ask(text, answer, end) && read_answer(answer);
  count_seekers(1);
  const bool came = consumer->ask(text, answer, end, [this] { flush_here(); });
  count_seekers(-1);
  return came && read_answer(answer);
}

bool UpstreamAsks::let_seeker(const std::function<void()>& flush) {
  std::unique_lock lock(mutex_);
  if (seekers_ == 0) return false;
  flush_ = &flush;
  // Ends: a seek waits for its answer for a limited time, and looks here meanwhile.
  changed_.wait(lock, [this] { return seekers_ == 0 || (flush_ == nullptr && !flushes_); });
  return std::exchange(flush_, nullptr) == nullptr;
}

bool UpstreamAsks::query(GstQuery* query) {
  const auto consumer = this->consumer();
  if (!consumer) return false;
  const LinkText text = text_of(query);
  std::vector<std::byte> answer;
  if (text.empty() || text.size() > max_link_question ||
      !consumer->ask(text, answer, Clock::now() + patience_for_query)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  return read_answer(answer, query, names_);
}

std::shared_ptr<LinkConsumer> UpstreamAsks::consumer() {
  const std::lock_guard lock(mutex_);
  return consumer_;
}

void UpstreamAsks::count_seekers(int more) {
  {
    const std::lock_guard lock(mutex_);
    seekers_ += more;
  }
  changed_.notify_all();
}

void UpstreamAsks::flush_here() {
  std::unique_lock lock(mutex_);
  const auto* const flush = std::exchange(flush_, nullptr);
  if (flush == nullptr) return;
  flushes_ = true;
  lock.unlock();
  (*flush)();
  lock.lock();
  flushes_ = false;
  changed_.notify_all();
}

}  // namespace gpumap::gst
