// SPDX-License-Identifier: MIT
#include "sink_path.hpp"

#include <fmt/format.h>

#include <cstring>
#include <ctime>
#include <random>
#include <stdexcept>

#include "figures.hpp"
#include "gst/memory/gpumap_memory.hpp"

namespace sink_bench {
namespace {

constexpr std::size_t line_bytes = 64;

std::int64_t process_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool same(GstBuffer* buffer, const GstVideoInfo& info, const std::byte* expected) {
  GstVideoFrame frame;
  if (gst_video_frame_map(&frame, &info, buffer, GST_MAP_READ) == FALSE) return false;
  bool equal = true;
  for (guint plane = 0; equal && plane < GST_VIDEO_INFO_N_PLANES(&info); ++plane) {
    const auto* got = static_cast<const std::byte*>(GST_VIDEO_FRAME_PLANE_DATA(&frame, plane));
    const auto stride = static_cast<std::size_t>(GST_VIDEO_FRAME_PLANE_STRIDE(&frame, plane));
    const std::byte* want = expected + GST_VIDEO_INFO_PLANE_OFFSET(&info, plane);
    const auto row = static_cast<std::size_t>(GST_VIDEO_INFO_PLANE_STRIDE(&info, plane));
    const auto rows = static_cast<std::size_t>(GST_VIDEO_INFO_COMP_HEIGHT(&info, plane));
    for (std::size_t y = 0; equal && y < rows; ++y) {
      equal = std::memcmp(got + y * stride, want + y * row, static_cast<std::size_t>(info.width)) == 0;
    }
  }
  gst_video_frame_unmap(&frame);
  return equal;
}

}  // namespace

Frames::Frames(Size size, std::size_t span_bytes)
    : stride_((size.bytes() + line_bytes - 1) / line_bytes * line_bytes),
      count_(span_bytes / stride_ + 1),
      bytes_(stride_ * count_) {
  std::mt19937_64 random(size.bytes());
  for (std::size_t at = 0; at < bytes_.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes_.data() + at, &word, sizeof word);
  }
}

const std::byte* Frames::next() {
  at_ = (at_ + 1) % count_;
  return bytes_.data() + at_ * stride_;
}

Path::Path(const std::string& description, Size size) : size_(size) {
  gst_video_info_set_format(&info_, GST_VIDEO_FORMAT_NV12, size.width, size.height);
  GError* error = nullptr;
  pipeline_ = gst_parse_launch(description.c_str(), &error);
  if (error != nullptr) {
    const std::string text = error->message;
    g_error_free(error);
    if (pipeline_ != nullptr) gst_object_unref(pipeline_);
    throw std::runtime_error(text);
  }
  first_ = gst_bin_get_by_name(GST_BIN(pipeline_), "first");
  GstElement* last = gst_bin_get_by_name(GST_BIN(pipeline_), "last");
  GstPad* end = gst_element_get_static_pad(last, "sink");
  gst_pad_add_probe(end, GST_PAD_PROBE_TYPE_BUFFER, on_arrived, this, nullptr);
  gst_object_unref(end);
  gst_object_unref(last);

  source_ = gst_pad_new("upstream", GST_PAD_SRC);
  GstPad* sink = gst_element_get_static_pad(first_, "sink");
  gst_pad_link(source_, sink);
  gst_object_unref(sink);
}

Path::~Path() {
  gst_pad_set_active(source_, FALSE);
  gst_element_set_state(pipeline_, GST_STATE_NULL);
  gst_object_unref(source_);
  gst_object_unref(first_);
  gst_object_unref(pipeline_);
}

bool Path::set(const std::string& property, const std::string& value) const {
  if (g_object_class_find_property(G_OBJECT_GET_CLASS(first_), property.c_str()) == nullptr) return false;
  gst_util_set_object_arg(G_OBJECT(first_), property.c_str(), value.c_str());
  return true;
}

void Path::start() {
  gst_pad_set_active(source_, TRUE);
  if (gst_element_set_state(pipeline_, GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) fail("does not start");
  gst_pad_push_event(source_, gst_event_new_stream_start("sink-bench"));
  info_.fps_n = 30;
  info_.fps_d = 1;
  GstCaps* caps = gst_video_info_to_caps(&info_);
  gst_pad_push_event(source_, gst_event_new_caps(caps));
  gst_caps_unref(caps);
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(source_, gst_event_new_segment(&segment));
}

Times Path::push(const std::byte* frame, bool check) {
  // Its own memory, never written to: upstream neither asks for a pool nor lets go of the bytes.
  GstBuffer* buffer = gst_buffer_new_wrapped_full(GST_MEMORY_FLAG_READONLY, const_cast<std::byte*>(frame),
                                                  size_.bytes(), 0, size_.bytes(), nullptr, nullptr);
  GST_BUFFER_PTS(buffer) = pushed_ * GST_SECOND / 30;
  GST_BUFFER_DURATION(buffer) = GST_SECOND / 30;
  to_check_ = check ? frame : nullptr;
  ++pushed_;

  const std::int64_t cpu = process_cpu_ns();
  const std::int64_t began = bench::now_ns();
  const GstFlowReturn flow = gst_pad_push(source_, buffer);
  const std::int64_t returned = bench::now_ns();
  const std::int64_t cpu_ended = process_cpu_ns();
  if (flow != GST_FLOW_OK) fail(gst_flow_get_name(flow));
  if (after_) after_();
  const std::int64_t after = bench::now_ns();
  if (!bench::spin_until([&] { return arrived_.load(std::memory_order_acquire) >= pushed_; })) {
    fail("a frame did not arrive within 10 s");
  }
  if (differs_) fail("what arrived is not what was pushed");
  return {.returned_ns = returned - began, .done_ns = (after_ ? after : done_) - began, .cpu_ns = cpu_ended - cpu};
}

GstPadProbeReturn Path::on_arrived(GstPad* /*pad*/, GstPadProbeInfo* info, gpointer user) {
  static_cast<Path*>(user)->arrived(GST_PAD_PROBE_INFO_BUFFER(info));
  return GST_PAD_PROBE_OK;
}

void Path::arrived(GstBuffer* buffer) {
  // Null for memory of others' making, whose element waited for its copy.
  if (gpumap::gst::FrameMemory* bytes = gpumap::gst::frame_memory(gst_buffer_peek_memory(buffer, 0));
      bytes != nullptr) {
    const gpumap::Fence fence = bytes->written();
    if (!bench::spin_until([&] { return fence.signalled(); })) return;  // push() gives up too
  }
  done_ = bench::now_ns();
  if (to_check_ != nullptr && !same(buffer, info_, to_check_)) differs_ = true;
  arrived_.fetch_add(1, std::memory_order_release);
}

std::map<std::string, std::string> Path::stats() const {
  std::map<std::string, std::string> made;
  if (g_object_class_find_property(G_OBJECT_GET_CLASS(first_), "stats") == nullptr) return made;
  GstStructure* stats = nullptr;
  g_object_get(first_, "stats", &stats, nullptr);
  for (gint i = 0; i < gst_structure_n_fields(stats); ++i) {
    const char* name = gst_structure_nth_field_name(stats, i);
    gchar* text = gst_value_serialize(gst_structure_get_value(stats, name));
    made[name] = text == nullptr ? "" : text;
    g_free(text);
  }
  gst_structure_free(stats);
  return made;
}

void Path::fail(const std::string& what) const {
  std::string text = what;
  GstBus* bus = gst_element_get_bus(pipeline_);
  if (GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_ERROR); message != nullptr) {
    GError* error = nullptr;
    gst_message_parse_error(message, &error, nullptr);
    text = fmt::format("{}: {}", what, error->message);
    g_error_free(error);
    gst_message_unref(message);
  }
  gst_object_unref(bus);
  throw std::runtime_error(text);
}

}  // namespace sink_bench
