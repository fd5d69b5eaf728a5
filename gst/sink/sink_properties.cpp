// SPDX-License-Identifier: MIT
#include "gst/sink/sink_properties.hpp"

#include <iterator>

#include "gpumap/link.hpp"
#include "gpumap/memory.hpp"
#include "gst/link/upstream_requests.hpp"
#include "gst/sink/sink_element.hpp"

namespace gpumap::gst {

namespace {

GEnumValue row(Transport transport, const char* meaning) {
  return {static_cast<gint>(transport) + 1, meaning, to_string(transport).data()};
}

/// Of the property `transport`: 0 is auto, which is no transport in the library; the library's own follow.
GType transport_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {0, "bar where the window has room, else pinned", "auto"},
        row(Transport::bar, "The CPU writes into GPU memory"),
        row(Transport::pinned, "The CPU writes into page-locked memory, DMA fetches it"),
        row(Transport::zero_copy, "The CPU writes into page-locked memory, kernels read it there"),
        row(Transport::pageable, "The CPU writes into ordinary memory, the driver copies it"),
        {0, nullptr, nullptr},
    };
    static_assert(std::size(values) == all_transports.size() + 2, "a transport has no row here");
    return g_enum_register_static("GstGpumapTransport", values);
  }();
  return type;
}

}  // namespace

GType leaky_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {static_cast<int>(WhenFull::block), "Wait for a slot", "no"},
        {static_cast<int>(WhenFull::drop_newest), "Drop the new frame", "newest"},
        {static_cast<int>(WhenFull::drop_oldest), "Drop the oldest queued frame", "oldest"},
        {0, nullptr, nullptr},
    };
    return g_enum_register_static("GstGpumapLeaky", values);
  }();
  return type;
}

SinkSettings sink_settings(GstElement* sink) {
  GST_OBJECT_LOCK(sink);
  SinkSettings settings = sink_state(sink).settings;
  GST_OBJECT_UNLOCK(sink);
  if (!settings.socket_path.empty()) {
    settings.channel = "socket " + settings.socket_path;
    // The only memory that another process can have.
    if (!settings.transport) settings.transport = Transport::bar;
  }
  return settings;
}

std::vector<Property> slot_properties(const PropertiesOf<SinkSettings>& of, PropertiesOf<ThreadSettings>::Find threads,
                                      const std::string& which_threads) {
  using Settings = SinkSettings;
  std::vector<Property> table{
      of.text("device", "GPU: auto, an index, a UUID or a PCI address (see gpumap-info)", &Settings::device),
      of.number("slots", "Frames that the ring holds", &Settings::slots, min_slots, max_slots),
      of.number("slot-size", "Bytes of a slot (0: from the caps, or from the frames)", &Settings::slot_bytes, 0,
                G_MAXINT64),
      of.number(
          "gather",
          "Bytes of a frame that smaller buffers are put together to (0: each buffer is a frame); pictures pass as "
          "they are",
          &Settings::gather_bytes, 0, G_MAXINT64),
      of.number("gather-time",
                "With gather: microseconds after which a frame goes on that is not full (0: only an event ends it)",
                &Settings::gather_us, 0, 3600000000),
      of.number("copy-threads", "Threads that copy frames into slots (0: chosen by measuring)", &Settings::copy_threads,
                0, 64),
      of.choice("transport", "How the bytes that upstream writes reach the GPU", &Settings::transport,
                transport_type()),
      of.flag("stamps",
              "Follow the way of every frame: latencies in stats, GpumapLatencyMeta on the frames in GPU memory",
              &Settings::stamps),
      of.number("latency-interval",
                "Milliseconds between element messages gpumap-latency, with the latencies since the start (0: none); "
                "sets stamps",
                &Settings::latency_interval_ms, 0, 3600000),
  };
  add_thread_properties(table, threads, which_threads);
  return table;
}

std::vector<Property> sink_properties() {
  using Settings = SinkSettings;
  const PropertiesOf<Settings> of([](GObject* sink) -> Settings& { return sink_state(sink).settings; });
  std::vector<Property> table = slot_properties(
      of, [](GObject* sink) -> ThreadSettings& { return sink_state(sink).settings.threads; },
      "the threads that copy frames and, with socket-path, of the link's");
  const std::vector<Property> own{
      of.text("channel", "Name under which this sink and one gpumapsrc meet", &Settings::channel),
      of.choice("leaky", "What to do with a frame when the ring is full", &Settings::when_full, leaky_type()),
      of.number("busy-poll", "Microseconds to spin for a slot before sleeping", &Settings::busy_poll_us, 0, 1000000),
      of.number("linger",
                "Milliseconds that the frames of an ended stream wait in GPU memory for a gpumapsrc once this element "
                "has stopped (4294967295: for ever)",
                &Settings::linger_ms),
      of.text("socket-path", "Serve gpumapsrcs of other processes at this Unix socket, instead of one of this process",
              &Settings::socket_path),
      of.text("allowed-users",
              "With socket-path: users that may connect beside the own one, names or numbers with commas between them; "
              "socket-mode must let them, too",
              &Settings::allowed_users),
      of.text("socket-mode", "With socket-path: mode of the socket's file, octal", &Settings::socket_mode),
      of.flag("wait-for-connection",
              "With socket-path: hold frames back while no client is connected, instead of dropping them",
              &Settings::wait_for_connection),
      of.number("stall-limit",
                "With socket-path: milliseconds without a free slot after which the client that keeps the oldest frame "
                "is disconnected (0: it may stop this element for ever, as what follows a queue may)",
                &Settings::stall_limit_ms, 0, 3600000),
      of.choice("upstream-events",
                "With socket-path: whose seeks, QoS and other events go upstream; queries are anybody's",
                &Settings::upstream_events, upstream_events_type()),
      read_only(
          g_param_spec_uint("num-clients", "Num clients", "With socket-path: number of clients that are connected", 0,
                            max_link_clients, 0, G_PARAM_READABLE),
          [](GObject* sink, GValue* value) { g_value_set_uint(value, sink_state(sink).clients); }),
      statistics("frames, zero-copy-frames, copied-frames, bytes-copied, bytes-in-place, gathered-buffers, drops, "
                 "cpu-reads, waits, "
                 "device, transport, "
                 "copy-threads, copy-kernel; with stamps: latency",
                 [](GObject* sink) { return sink_state(sink).core->stats("gpumapsink-stats"); }),
  };
  table.insert(table.end(), own.begin(), own.end());
  return table;
}

}  // namespace gpumap::gst
