// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <exception>
#include <string>
#include <string_view>

namespace gpumap::gst {

/// `text` for a message: GStreamer asks for a bug report where that is no UTF-8. Lines stay lines.
[[nodiscard]] std::string message_of(std::string_view text);
/// Post `error` on the bus as the element's: its text names the cause, the figure and the remedy.
void post_error(GstElement* element, const std::exception& error);
/// Post a warning of a resource that is short: the pipeline goes on, with something slower.
void post_warning(GstElement* element, const std::string& text);

}  // namespace gpumap::gst
