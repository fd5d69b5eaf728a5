// SPDX-License-Identifier: MIT
#include "gst/sink/properties.hpp"

#include "gpumap/link.hpp"
#include "gst/link/upstream_desk.hpp"
#include "gst/sink/transport_type.hpp"

namespace gpumap::gst {

namespace {

enum {
  PROP_CHANNEL = 1,
  PROP_DEVICE,
  PROP_SLOTS,
  PROP_SLOT_SIZE,
  PROP_LEAKY,
  PROP_BUSY_POLL,
  PROP_COPY_THREADS,
  PROP_LINGER,
  PROP_TRANSPORT,
  PROP_STAMPS,
  PROP_LATENCY_INTERVAL,
  PROP_SOCKET_PATH,
  PROP_WAIT_FOR_CONNECTION,
  PROP_UPSTREAM_EVENTS,
  PROP_STATS = sink_stats_id,
  PROP_NUM_CLIENTS = sink_clients_id
};

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

void set_sink_property(GObject* object, SinkProperties& properties, guint id, const GValue* value, GParamSpec* spec) {
  SinkSettings& settings = properties.settings;
  GST_OBJECT_LOCK(object);
  switch (id) {
    case PROP_CHANNEL:
      settings.channel = g_value_get_string(value) != nullptr ? g_value_get_string(value) : "default";
      break;
    case PROP_DEVICE:
      settings.device = g_value_get_string(value) != nullptr ? g_value_get_string(value) : "auto";
      break;
    case PROP_SLOTS:
      settings.slots = g_value_get_uint(value);
      break;
    case PROP_SLOT_SIZE:
      settings.slot_bytes = g_value_get_uint64(value);
      break;
    case PROP_LEAKY:
      settings.when_full = static_cast<WhenFull>(g_value_get_enum(value));
      break;
    case PROP_BUSY_POLL:
      settings.busy_poll_us = g_value_get_uint(value);
      break;
    case PROP_COPY_THREADS:
      settings.copy_threads = g_value_get_uint(value);
      break;
    case PROP_LINGER:
      settings.linger_ms = g_value_get_uint(value);
      break;
    case PROP_TRANSPORT:
      settings.transport = transport_from_enum(g_value_get_enum(value));
      break;
    case PROP_STAMPS:
      settings.stamps = g_value_get_boolean(value) != 0;
      break;
    case PROP_LATENCY_INTERVAL:
      settings.latency_interval_ms = g_value_get_uint(value);
      break;
    case PROP_SOCKET_PATH:
      settings.socket_path = g_value_get_string(value) != nullptr ? g_value_get_string(value) : "";
      break;
    case PROP_WAIT_FOR_CONNECTION:
      settings.wait_for_connection = g_value_get_boolean(value) != 0;
      break;
    case PROP_UPSTREAM_EVENTS:
      settings.upstream_events = g_value_get_enum(value);
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
  GST_OBJECT_UNLOCK(object);
}

void get_sink_property(GObject* object, const SinkProperties& properties, guint id, GValue* value, GParamSpec* spec) {
  const SinkSettings& settings = properties.settings;
  GST_OBJECT_LOCK(object);
  switch (id) {
    case PROP_CHANNEL:
      g_value_set_string(value, settings.channel.c_str());
      break;
    case PROP_DEVICE:
      g_value_set_string(value, settings.device.c_str());
      break;
    case PROP_SLOTS:
      g_value_set_uint(value, settings.slots);
      break;
    case PROP_SLOT_SIZE:
      g_value_set_uint64(value, settings.slot_bytes);
      break;
    case PROP_LEAKY:
      g_value_set_enum(value, static_cast<gint>(settings.when_full));
      break;
    case PROP_BUSY_POLL:
      g_value_set_uint(value, settings.busy_poll_us);
      break;
    case PROP_COPY_THREADS:
      g_value_set_uint(value, settings.copy_threads);
      break;
    case PROP_LINGER:
      g_value_set_uint(value, settings.linger_ms);
      break;
    case PROP_TRANSPORT:
      g_value_set_enum(value, to_enum(settings.transport));
      break;
    case PROP_STAMPS:
      g_value_set_boolean(value, static_cast<gboolean>(settings.stamps));
      break;
    case PROP_LATENCY_INTERVAL:
      g_value_set_uint(value, settings.latency_interval_ms);
      break;
    case PROP_SOCKET_PATH:
      g_value_set_string(value, settings.socket_path.c_str());
      break;
    case PROP_WAIT_FOR_CONNECTION:
      g_value_set_boolean(value, static_cast<gboolean>(settings.wait_for_connection));
      break;
    case PROP_UPSTREAM_EVENTS:
      g_value_set_enum(value, settings.upstream_events);
      break;
    default:
      G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
  GST_OBJECT_UNLOCK(object);
}

SinkSettings settings_of(GstElement* sink, const SinkProperties& properties) {
  GST_OBJECT_LOCK(sink);
  SinkSettings settings = properties.settings;
  GST_OBJECT_UNLOCK(sink);
  if (!settings.socket_path.empty()) {
    settings.channel = "socket " + settings.socket_path;
    // The only memory that another process can have.
    if (!settings.transport) settings.transport = Transport::bar;
  }
  return settings;
}

void install_sink_properties(GObjectClass* object_class) {
  const auto rw = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
  const auto ro = static_cast<GParamFlags>(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS);
  const SinkSettings initial;
  g_object_class_install_property(
      object_class, PROP_CHANNEL,
      g_param_spec_string("channel", "Channel", "Name under which this sink and one gpumapsrc meet",
                          initial.channel.c_str(), rw));
  g_object_class_install_property(
      object_class, PROP_DEVICE,
      g_param_spec_string("device", "Device", "GPU: auto, an index, a UUID or a PCI address (see gpumap-info)",
                          initial.device.c_str(), rw));
  g_object_class_install_property(
      object_class, PROP_SLOTS,
      g_param_spec_uint("slots", "Slots", "Frames that the ring holds", min_slots, max_slots, initial.slots, rw));
  g_object_class_install_property(
      object_class, PROP_SLOT_SIZE,
      g_param_spec_uint64("slot-size", "Slot size", "Bytes of a slot (0: from the caps, or from the frames)", 0,
                          G_MAXINT64, initial.slot_bytes, rw));
  g_object_class_install_property(object_class, PROP_LEAKY,
                                  g_param_spec_enum("leaky", "Leaky", "What to do with a frame when the ring is full",
                                                    leaky_type(), static_cast<gint>(initial.when_full), rw));
  g_object_class_install_property(
      object_class, PROP_BUSY_POLL,
      g_param_spec_uint("busy-poll", "Busy poll", "Microseconds to spin for a slot before sleeping", 0, 1000000,
                        initial.busy_poll_us, rw));
  g_object_class_install_property(
      object_class, PROP_COPY_THREADS,
      g_param_spec_uint("copy-threads", "Copy threads", "Threads that copy frames into slots (0: as many as pay)", 0,
                        64, initial.copy_threads, rw));
  g_object_class_install_property(
      object_class, PROP_LINGER,
      g_param_spec_uint("linger", "Linger",
                        "Milliseconds that the frames of an ended stream wait in GPU memory for a gpumapsrc once this "
                        "element has stopped (4294967295: for ever)",
                        0, G_MAXUINT, initial.linger_ms, rw));
  g_object_class_install_property(
      object_class, PROP_TRANSPORT,
      g_param_spec_enum("transport", "Transport", "How the bytes that upstream writes reach the GPU", transport_type(),
                        to_enum(initial.transport), rw));
  g_object_class_install_property(
      object_class, PROP_STAMPS,
      g_param_spec_boolean(
          "stamps", "Stamps",
          "Follow the way of every frame: latencies in stats, GpumapLatencyMeta on gpumapsrc's buffers",
          static_cast<gboolean>(initial.stamps), rw));
  g_object_class_install_property(
      object_class, PROP_LATENCY_INTERVAL,
      g_param_spec_uint("latency-interval", "Latency interval",
                        "Post the latencies since the start as an element message, gpumap-latency, every so many "
                        "milliseconds (0: never); sets stamps",
                        0, 3600000, initial.latency_interval_ms, rw));
  g_object_class_install_property(
      object_class, PROP_SOCKET_PATH,
      g_param_spec_string("socket-path", "Socket path",
                          "Serve gpumapsrcs of other processes at this Unix socket, instead of one of this process", "",
                          rw));
  g_object_class_install_property(
      object_class, PROP_WAIT_FOR_CONNECTION,
      g_param_spec_boolean("wait-for-connection", "Wait for connection",
                           "With socket-path: hold frames back while no client is connected, instead of dropping them",
                           static_cast<gboolean>(initial.wait_for_connection), rw));
  g_object_class_install_property(
      object_class, PROP_UPSTREAM_EVENTS,
      g_param_spec_enum("upstream-events", "Upstream events",
                        "With socket-path: whose seeks, QoS and other events go upstream; queries are anybody's",
                        upstream_events_type(), initial.upstream_events, rw));
  g_object_class_install_property(
      object_class, PROP_NUM_CLIENTS,
      g_param_spec_uint("num-clients", "Num clients", "With socket-path: how many are connected", 0, max_link_clients,
                        0, ro));
  g_object_class_install_property(
      object_class, PROP_STATS,
      g_param_spec_boxed("stats", "Statistics",
                         "frames, zero-copy-frames, copied-frames, bytes-copied, drops, cpu-reads, waits, device, "
                         "transport, copy-threads, copy-kernel; with stamps: latency",
                         GST_TYPE_STRUCTURE, ro));
  gst_type_mark_as_plugin_api(leaky_type(), static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(upstream_events_type(), static_cast<GstPluginAPIFlags>(0));
  gst_type_mark_as_plugin_api(transport_type(), static_cast<GstPluginAPIFlags>(0));
}

}  // namespace gpumap::gst
