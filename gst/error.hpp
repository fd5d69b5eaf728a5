// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <exception>
#include <string>

namespace gpumap::gst {

/// Post `error` on the bus as the element's: its text names the cause, the figure and the remedy.
void post_error(GstElement* element, const std::exception& error);
/// Post a warning of a resource that is short: the pipeline goes on, with something slower.
void post_warning(GstElement* element, const std::string& text);

}  // namespace gpumap::gst
