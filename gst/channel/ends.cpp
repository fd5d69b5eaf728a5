// SPDX-License-Identifier: MIT
#include "gst/channel/ends.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "gpumap/printable.hpp"
#include "gst/channel/channel.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_sink_debug);
#define GST_CAT_DEFAULT gpumap_sink_debug

namespace gpumap::gst {

namespace {

struct Known {
  Known(End kind, GstElement* known) : end(kind), element(known) { g_weak_ref_init(&ref, known); }
  ~Known() { g_weak_ref_clear(&ref); }
  Known(const Known&) = delete;
  Known& operator=(const Known&) = delete;

  const End end;
  const GstElement* element;       ///< for comparing only
  GWeakRef ref;                    ///< an element may be on its way out while another thread looks
  std::weak_ptr<Channel> channel;  ///< the one that it opened last
};

std::mutex mutex;

/// Never destroyed: elements may outlive it at exit.
std::vector<std::unique_ptr<Known>>& all() {
  static auto* const ends = new std::vector<std::unique_ptr<Known>>;
  return *ends;
}

using Ends = std::vector<Ptr<GstElement>>;

/// The living elements of one kind that `are_wanted`.
Ends living(End end, const std::function<bool(GstElement*)>& are_wanted) {
  // The last reference to an element may end here, and finalizing it takes the mutex.
  Ends ends;
  {
    const std::lock_guard lock(mutex);
    for (const auto& known : all()) {
      if (known->end != end) continue;
      if (gpointer element = g_weak_ref_get(&known->ref)) ends.emplace_back(GST_ELEMENT_CAST(element));
    }
  }
  std::erase_if(ends, [&](const Ptr<GstElement>& element) { return !are_wanted(element.get()); });
  return ends;
}

struct Address {
  std::string channel, socket_path;
};

Address address_of(GstElement* element) {
  gchar* channel = nullptr;
  gchar* path = nullptr;
  g_object_get(element, "channel", &channel, "socket-path", &path, nullptr);
  const Ptr<gchar> of_channel(channel);
  const Ptr<gchar> of_path(path);
  return {channel != nullptr ? channel : "", path != nullptr ? path : ""};
}

/// Keeps those of `ends` that lie in the innermost bin around `element` that has any of them. Returns that bin; null:
/// no bin has any, and all are kept.
Ptr<GstObject> narrow_to_bin(GstElement* element, Ends& ends) {
  Ptr<GstObject> bin(gst_object_get_parent(GST_OBJECT_CAST(element)));
  for (; bin; bin.reset(gst_object_get_parent(bin.get()))) {
    const auto is_outside = [&](const Ptr<GstElement>& end) {
      return gst_object_has_as_ancestor(GST_OBJECT_CAST(end.get()), bin.get()) == 0;
    };
    if (std::all_of(ends.begin(), ends.end(), is_outside)) continue;
    std::erase_if(ends, is_outside);
    break;
  }
  return bin;
}

/// A number that no other bin gets: a later bin may have the same address. Under the mutex.
std::uintptr_t number_of(GstObject* bin) {
  static const GQuark quark = g_quark_from_static_string("gpumap-bin");
  static std::uintptr_t last = 0;
  if (g_object_get_qdata(G_OBJECT(bin), quark) == nullptr) {
    g_object_set_qdata(G_OBJECT(bin), quark, reinterpret_cast<gpointer>(++last));
  }
  return reinterpret_cast<std::uintptr_t>(g_object_get_qdata(G_OBJECT(bin), quark));
}

/// Under the mutex.
Known* known_of(const GstElement* element) {
  const auto found =
      std::find_if(all().begin(), all().end(), [&](const auto& known) { return known->element == element; });
  return found != all().end() ? found->get() : nullptr;
}

/// The channel that the element opened last, if it still exists.
std::shared_ptr<Channel> last_channel_of(const GstElement* element) {
  const std::lock_guard lock(mutex);
  const Known* known = known_of(element);
  return known != nullptr ? known->channel.lock() : nullptr;
}

bool is_taken(End end, const Channel& channel) {
  const Ptr<GstElement> holder(end == End::sink ? channel.sink() : channel.src());
  return holder != nullptr;
}

}  // namespace

void know_end(End end, GstElement* element) {
  const std::lock_guard lock(mutex);
  all().push_back(std::make_unique<Known>(end, element));
}

void forget_end(GstElement* element) {
  const std::lock_guard lock(mutex);
  std::erase_if(all(), [&](const auto& known) { return known->element == element; });
}

std::shared_ptr<Channel> channel_of(End end, GstElement* element, const std::string& name) {
  // A gpumapsink with a socket has its channel as well; a gpumapsrc with one has no other.
  Ends others = living(end == End::sink ? End::src : End::sink, [&](GstElement* other) {
    const Address address = address_of(other);
    return address.channel == name && (end == End::src || address.socket_path.empty());
  });
  const Ptr<GstObject> bin = narrow_to_bin(element, others);
  // The channel that the other end has opened: that element may have been alone in its bin then, or may have lost its
  // peer. A channel with a free place goes first. When all are taken, attaching to a taken one gives the error that
  // names its holder.
  std::shared_ptr<Channel> channel;
  for (const Ptr<GstElement>& other : others) {
    auto opened = last_channel_of(other.get());
    if (!opened || opened->name() != name) continue;
    const bool is_free = !is_taken(end, *opened);
    if (!channel || is_free) channel = std::move(opened);
    if (is_free) break;
  }
  const std::lock_guard lock(mutex);
  if (!channel) channel = Channel::open(name, bin ? number_of(bin.get()) : 0);
  if (Known* known = known_of(element)) known->channel = channel;
  return channel;
}

GstPad* pad_of_sole_sink(GstElement* src, const std::string& channel, const std::string& socket_path) {
  Ends sinks = living(End::sink, [&](GstElement* sink) {
    const Address address = address_of(sink);
    return address.socket_path == socket_path && (!socket_path.empty() || address.channel == channel);
  });
  narrow_to_bin(src, sinks);
  return sinks.size() == 1 ? gst_element_get_static_pad(sinks.front().get(), "sink") : nullptr;
}

std::string ends_here(End kind) {
  constexpr std::size_t most = 5;
  const char* const name = kind == End::sink ? "gpumapsink" : "gpumapsrc";
  std::set<std::string> found;
  for (const Ptr<GstElement>& end : living(kind, [](GstElement*) { return true; })) {
    const Address address = address_of(end.get());
    found.insert(address.socket_path.empty() ? fmt::format("channel=\"{}\"", printable(address.channel))
                                             : fmt::format("socket-path={}", printable(address.socket_path)));
  }
  if (found.empty()) return fmt::format("this process has no {}", name);
  const auto last = found.size() > most ? std::next(found.begin(), most) : found.end();
  return fmt::format("this process has {} {}{}", name, fmt::join(found.begin(), last, ", "),
                     last != found.end() ? ", ..." : "");
}

void end_unmet_sinks(GstEvent* event, GstElement* src) {
  for (const Ptr<GstElement>& sink : living(End::sink, [&](GstElement* sink) {
         return is_sent_to_both(event, src, sink) && address_of(sink).socket_path.empty();
       })) {
    const auto channel = last_channel_of(sink.get());
    if (channel && !is_taken(End::src, *channel)) channel->end_unmet();
  }
}

bool is_among_others(GstElement* sink) {
  return !living(End::sink, [&](GstElement* other) { return other != sink && same_pipeline(sink, other); }).empty();
}

namespace {

/// The pads whose peers this thread is asking, innermost first.
struct Asking {
  const Asking* before;
  const GstPad* pad;
};
thread_local const Asking* innermost = nullptr;

thread_local const EventOnItsWay* innermost_event = nullptr;

}  // namespace

PeerAnswer peer_query(GstPad* pad, GstQuery* query) {
  for (const Asking* at = innermost; at != nullptr; at = at->before) {
    if (at->pad == pad) return PeerAnswer::loop;
  }
  const Asking asking{innermost, pad};
  innermost = &asking;
  const bool answered = gst_pad_peer_query(pad, query) != 0;
  innermost = asking.before;
  return answered ? PeerAnswer::yes : PeerAnswer::no;
}

EventOnItsWay::EventOnItsWay(const void* place, GstEvent* event)
    : before_(innermost_event), place_(place), type_(GST_EVENT_TYPE(event)), number_(gst_event_get_seqnum(event)) {
  for (const auto* at = before_; at != nullptr && !came_round_; at = at->before_) {
    came_round_ = at->place_ == place_ && at->type_ == type_ && at->number_ == number_;
  }
  innermost_event = this;
}

EventOnItsWay::~EventOnItsWay() {
  innermost_event = before_;
}

namespace {

constexpr std::chrono::seconds patience_for_turn(5);

struct Turn {
  std::thread::id thread;
  int seeks = 0;  ///< of that thread, one within the other
};

/// Who has the turn in each pipeline. Never destroyed: threads may outlive it at exit.
struct Turns {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const GstElement*, Turn> of;
};

Turns& turns() {
  static auto* const turns = new Turns;
  return *turns;
}

bool flushes(GstEvent* seek) {
  GstSeekFlags flags = GST_SEEK_FLAG_NONE;
  gst_event_parse_seek(seek, nullptr, nullptr, &flags, nullptr, nullptr, nullptr, nullptr);
  return (flags & GST_SEEK_FLAG_FLUSH) != 0;
}

}  // namespace

SeekTurn::SeekTurn(GstElement* sink, GstEvent* seek) {
  if (!flushes(seek)) return;
  pipeline_.reset(top_level(sink));
  const auto own = std::this_thread::get_id();
  Turns& all = turns();
  std::unique_lock lock(all.mutex);
  const auto is_free = [&] {
    const auto turn = all.of.find(pipeline_.get());
    return turn == all.of.end() || turn->second.thread == own;
  };
  if (!all.changed.wait_for(lock, patience_for_turn, is_free)) {
    GST_WARNING_OBJECT(sink, "another seek has not ended for 5 s: this one is refused");
    pipeline_.reset();
    is_refused_ = true;
    return;
  }
  Turn& turn = all.of[pipeline_.get()];
  turn.thread = own;
  ++turn.seeks;
}

SeekTurn::~SeekTurn() {
  if (!pipeline_) return;
  Turns& all = turns();
  {
    const std::lock_guard lock(all.mutex);
    const auto turn = all.of.find(pipeline_.get());
    if (--turn->second.seeks > 0) return;
    all.of.erase(turn);
  }
  all.changed.notify_all();
}

}  // namespace gpumap::gst
