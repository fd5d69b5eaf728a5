// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>
#include <type_traits>

namespace latency {

struct Unref {
  template <typename T>
  void operator()(T* object) const {
    if constexpr (std::is_same_v<T, GError>) {
      g_error_free(object);
    } else if constexpr (std::is_same_v<T, char>) {
      g_free(object);
    } else if constexpr (std::is_same_v<T, GstStructure>) {
      gst_structure_free(object);
    } else if constexpr (requires { object->mini_object; } || std::is_same_v<T, GstMessage>) {
      gst_mini_object_unref(GST_MINI_OBJECT_CAST(object));
    } else {
      gst_object_unref(object);
    }
  }
};
template <typename T>
using Owned = std::unique_ptr<T, Unref>;

}  // namespace latency
