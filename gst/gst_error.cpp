// SPDX-License-Identifier: MIT
#include "gst/gst_error.hpp"

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"

namespace gpumap::gst {
std::string message_of(std::string_view text) {
  return printable(text, "\n\t");
}

void post_error(GstElement* element, const std::exception& error) {
  GQuark domain = GST_RESOURCE_ERROR;
  gint code = GST_RESOURCE_ERROR_FAILED;
  if (const auto* ours = dynamic_cast<const Error*>(&error)) {
    switch (ours->code()) {
      case ErrorCode::no_driver:
      case ErrorCode::no_device:
        code = GST_RESOURCE_ERROR_NOT_FOUND;
        break;
      case ErrorCode::no_memory:
        code = GST_RESOURCE_ERROR_NO_SPACE_LEFT;
        break;
      case ErrorCode::device_lost:
      case ErrorCode::io:
        break;
      case ErrorCode::invalid:
        code = GST_RESOURCE_ERROR_SETTINGS;
        break;
      case ErrorCode::not_supported:
        domain = GST_LIBRARY_ERROR;
        code = GST_LIBRARY_ERROR_FAILED;
        break;
      case ErrorCode::compile:
        domain = GST_LIBRARY_ERROR;
        code = GST_LIBRARY_ERROR_INIT;
        break;
    }
  }
  gst_element_message_full(element, GST_MESSAGE_ERROR, domain, code, g_strdup(message_of(error.what()).c_str()),
                           nullptr, __FILE__, static_cast<const gchar*>(__func__), __LINE__);
}

void post_warning(GstElement* element, const std::string& text) {
  gst_element_message_full(element, GST_MESSAGE_WARNING, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NO_SPACE_LEFT,
                           g_strdup(message_of(text).c_str()), nullptr, __FILE__, static_cast<const gchar*>(__func__),
                           __LINE__);
}

}  // namespace gpumap::gst
