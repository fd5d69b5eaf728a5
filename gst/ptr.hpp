// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <concepts>
#include <memory>

namespace gpumap::gst {

/// GstBuffer, GstCaps, GstEvent, GstMemory, GstMessage, GstQuery...
template <typename T>
concept MiniObject = requires(T one) {
  one.mini_object.refcount;
};
/// GstObject, and what begins with one: GstElement, GstPad, GstBus, GstClock, GstBufferPool...
template <typename T>
concept Object = std::same_as<T, GstObject> || requires(T one) {
  one.object.control_bindings;
} || requires(T one) {
  one.parent.control_bindings;
};

/// Gives one thing of GStreamer's or GLib's back. A kind that is not named here does not compile.
struct Release {
  template <MiniObject T>
  void operator()(T* one) const noexcept {
    gst_mini_object_unref(&one->mini_object);
  }
  template <Object T>
  void operator()(T* one) const noexcept {
    gst_object_unref(one);
  }
  void operator()(GObject* one) const noexcept { g_object_unref(one); }
  void operator()(GstContext* one) const noexcept { gst_context_unref(one); }
  void operator()(GstSample* one) const noexcept { gst_sample_unref(one); }
  void operator()(GstStructure* one) const noexcept { gst_structure_free(one); }
  void operator()(GstToc* one) const noexcept { gst_toc_unref(one); }
  void operator()(GstTocEntry* one) const noexcept { gst_toc_entry_unref(one); }
  void operator()(GByteArray* one) const noexcept { g_byte_array_unref(one); }
  void operator()(GDateTime* one) const noexcept { g_date_time_unref(one); }
  void operator()(GTimeZone* one) const noexcept { g_time_zone_unref(one); }
  void operator()(GError* one) const noexcept { g_error_free(one); }
  void operator()(gchar* one) const noexcept { g_free(one); }
};

/// Owns one reference of what is counted, else the thing itself: what GStreamer's pages call "transfer full". get()
/// lends it ("transfer none"), release() hands it on. Null: nothing.
template <typename T>
using Ptr = std::unique_ptr<T, Release>;

}  // namespace gpumap::gst
