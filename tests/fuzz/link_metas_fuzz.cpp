// SPDX-License-Identifier: MIT
// Any bytes as the metas of a frame, of as many bytes as the first two say. What is taken for some is in range, and is
// written and read again as the same.
#include <gst/audio/audio.h>
#include <gst/video/video.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "fuzz_gstreamer.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/channel/event_text.hpp"
#include "gst/channel/meta_text.hpp"
#include "gst/channel/new_names.hpp"
#include "gst/ptr.hpp"

namespace {

using namespace gpumap::gst;        // NOLINT
using namespace gpumap::gst::fuzz;  // NOLINT

using Buffer = Ptr<GstBuffer>;

/// What has no room in it is left out.
NewNames names;  // NOLINT

constexpr std::uint64_t most = std::numeric_limits<gint>::max();

void check(const GstAudioMeta& meta, std::uint64_t bytes) {
  const GstAudioInfo& info = meta.info;
  expect(info.rate > 0 && info.channels > 0 && info.bpf > 0 && meta.samples <= bytes / info.bpf);
  const std::uint64_t plane = meta.samples * info.bpf / info.channels;
  for (int channel = 0; info.layout == GST_AUDIO_LAYOUT_NON_INTERLEAVED && channel < info.channels; ++channel) {
    expect(meta.offsets[channel] <= bytes && plane <= bytes - meta.offsets[channel]);
  }
}

void check(GstMeta* meta, std::uint64_t bytes) {
  const GType api = meta->info->api;
  if (api == GST_AUDIO_META_API_TYPE) {
    check(*reinterpret_cast<GstAudioMeta*>(meta), bytes);
  } else if (api == GST_VIDEO_CROP_META_API_TYPE) {
    const auto& crop = *reinterpret_cast<GstVideoCropMeta*>(meta);
    expect(std::uint64_t{crop.x} + crop.width <= most && std::uint64_t{crop.y} + crop.height <= most);
  } else if (api == GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE) {
    const auto& region = *reinterpret_cast<GstVideoRegionOfInterestMeta*>(meta);
    expect(std::uint64_t{region.x} + region.w <= most && std::uint64_t{region.y} + region.h <= most);
  } else if (api == GST_VIDEO_TIME_CODE_META_API_TYPE) {
    // As elements show and count it.
    auto* const code = &reinterpret_cast<GstVideoTimeCodeMeta*>(meta)->tc;
    expect(gst_video_time_code_is_valid(code));
    const Ptr<gchar> shown(gst_video_time_code_to_string(code));
    (void)gst_video_time_code_frames_since_daily_jam(code);
    (void)gst_video_time_code_nsec_since_daily_jam(code);
    GDateTime* const time = gst_video_time_code_to_date_time(code);
    if (time != nullptr) g_date_time_unref(time);
  } else if (api == GST_REFERENCE_TIMESTAMP_META_API_TYPE) {
    const auto& reference = *reinterpret_cast<GstReferenceTimestampMeta*>(meta);
    expect(reference.reference != nullptr && gst_caps_get_size(reference.reference) != 0);
    expect(GST_CLOCK_TIME_IS_VALID(reference.timestamp));
  }
}

guint count_checked(GstBuffer* buffer, std::uint64_t bytes) {
  guint count = 0;
  gpointer state = nullptr;
  while (GstMeta* meta = gst_buffer_iterate_meta(buffer, &state)) {
    check(meta, bytes);
    ++count;
  }
  return count;
}

/// As the link makes it: with a layout of its own, which is no record. Others are.
Buffer new_carrier() {
  Buffer made(gst_buffer_new());
  gst_buffer_add_video_meta(made.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_GRAY8, 1, 1);
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  start_gstreamer();
  static const gchar* const tags[] = {nullptr};
  gst_meta_register_custom("fuzz", const_cast<const gchar**>(tags), nullptr, nullptr, nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint16_t bytes = 0;
  if (size < sizeof bytes) return 0;
  std::memcpy(&bytes, data, sizeof bytes);
  const auto text = std::as_bytes(std::span(data, size)).subspan(sizeof bytes);
  const Buffer buffer = new_carrier();
  (void)read([&] { return add_metas(buffer.get(), text, bytes, names); });
  expect(gst_buffer_n_memory(buffer.get()) == 0 && gst_buffer_is_writable(buffer.get()));
  const guint count = count_checked(buffer.get(), bytes);
  const MetaText written = text_of_metas(buffer.get(), 64 * size + 4096);
  expect(written.left_out == 0);
  const Buffer again = new_carrier();
  expect(read([&] { return add_metas(again.get(), written.text, bytes, names); }) &&
         count_checked(again.get(), bytes) == count);
  expect(text_of_metas(again.get(), written.text.size()).text == written.text);
  // With its memory the frame may be copied.
  gst_buffer_append_memory(buffer.get(), gst_allocator_alloc(nullptr, bytes, nullptr));
  const Buffer copy(gst_buffer_copy(buffer.get()));
  copy_tensors(copy.get(), buffer.get());
  expect(count_checked(copy.get(), bytes) == count);
  return 0;
}
