// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>
#include <string_view>

#include "gpumap/device.hpp"

namespace gpumap::gst {

/// The GPU whose memory `frame` lies in; null where that is none of gpumap's.
[[nodiscard]] const std::shared_ptr<Device>& device_of(GstBuffer* frame);

/// For a kernel that runs on `own`, as `selector` chose it, and a frame in the memory of `frames`: that GPU where the
/// kernel is to go there, null where it stays. Throws Error(invalid) where it was told to be elsewhere.
[[nodiscard]] std::shared_ptr<Device> device_to_follow(std::string_view selector, const Device& own,
                                                       const std::shared_ptr<Device>& frames);

}  // namespace gpumap::gst
