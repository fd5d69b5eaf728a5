// SPDX-License-Identifier: MIT
#include "gst/sink/known_sinks.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gst/channel/pipeline_state.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

struct Known {
  explicit Known(GstElement* element) : sink(element) { g_weak_ref_init(&ref, element); }
  ~Known() { g_weak_ref_clear(&ref); }
  Known(const Known&) = delete;
  Known& operator=(const Known&) = delete;

  const GstElement* sink;  ///< for comparing only
  GWeakRef ref;            ///< a sink may be on its way out while another thread looks
};

std::mutex mutex;

/// Never destroyed: elements may outlive it at exit.
std::vector<std::unique_ptr<Known>>& all() {
  static auto* const sinks = new std::vector<std::unique_ptr<Known>>;
  return *sinks;
}

/// Whether a gpumapsrc with these properties meets it: at its socket, where it serves one, else on its channel.
bool meets(GstElement* sink, const std::string& channel, const std::string& socket_path) {
  gchar* own_channel = nullptr;
  gchar* own_path = nullptr;
  g_object_get(sink, "channel", &own_channel, "socket-path", &own_path, nullptr);
  const Ptr<gchar> of_channel(own_channel);
  const Ptr<gchar> of_path(own_path);
  const std::string path = own_path != nullptr ? own_path : "";
  return path == socket_path && (!path.empty() || g_strcmp0(own_channel, channel.c_str()) == 0);
}

/// Those that `are_wanted`.
std::vector<Ptr<GstElement>> living(const std::function<bool(GstElement*)>& are_wanted) {
  // The last reference to one may end here, and its end takes the mutex.
  std::vector<Ptr<GstElement>> sinks;
  {
    const std::lock_guard lock(mutex);
    for (const auto& known : all()) {
      if (gpointer sink = g_weak_ref_get(&known->ref)) sinks.emplace_back(GST_ELEMENT_CAST(sink));
    }
  }
  std::erase_if(sinks, [&](const Ptr<GstElement>& sink) { return !are_wanted(sink.get()); });
  return sinks;
}

}  // namespace

void know_sink(GstElement* sink) {
  const std::lock_guard lock(mutex);
  all().push_back(std::make_unique<Known>(sink));
}

void forget_sink(GstElement* sink) {
  const std::lock_guard lock(mutex);
  std::erase_if(all(), [&](const auto& known) { return known->sink == sink; });
}

GstPad* pad_of_sole_sink(const std::string& channel, const std::string& socket_path) {
  const auto sinks = living([&](GstElement* sink) { return meets(sink, channel, socket_path); });
  return sinks.size() == 1 ? gst_element_get_static_pad(sinks.front().get(), "sink") : nullptr;
}

bool is_among_others(GstElement* sink) {
  return !living([&](GstElement* other) { return other != sink && same_pipeline(sink, other); }).empty();
}

}  // namespace gpumap::gst
