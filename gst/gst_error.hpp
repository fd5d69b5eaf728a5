// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <exception>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "gpumap/error.hpp"

namespace gpumap::gst {

/// `text` for a message: GStreamer asks for a bug report where that is no UTF-8. Lines stay lines.
[[nodiscard]] std::string message_of(std::string_view text);
/// Post `error` on the bus as the element's: its text names the cause, the figure and the remedy. The debug string says
/// where it was made, the message's details its code, cause, remedy and figures.
void post_error(GstElement* element, const std::exception& error);
/// The same, but not twice in a row since forget_errors(): what asks again, such as a query for caps, fails again.
void post_error_once(GstElement* element, const std::exception& error);
/// `element` starts.
void forget_errors(GstElement* element);
/// Whether post_error_once() has posted any since then.
[[nodiscard]] bool has_posted_error(GstElement* element);
/// Post a warning of properties that were set, of these, though without `socket-path` they have no effect.
void warn_of_idle_properties(GstElement* element, std::initializer_list<const char*> names);
/// Post an INFO. Its debug string has the text too, behind the element's name: gst-launch-1.0 prints nothing else of
/// it.
void post_info(GstElement* element, GQuark domain, gint code, std::string_view text);
/// Post a warning, with the details that an error would have, and its code or this one: the pipeline goes on.
void post_warning(GstElement* element, const Error& warning, std::optional<GstResourceError> code = {});

}  // namespace gpumap::gst
