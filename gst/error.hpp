// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <exception>

namespace gpumap::gst {

/// Post `error` on the bus as the element's: its text names the cause, the figure and the remedy.
void post_error(GstElement* element, const std::exception& error);

}  // namespace gpumap::gst
