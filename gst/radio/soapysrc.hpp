// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

GST_ELEMENT_REGISTER_DECLARE(soapysrc)
GST_DEVICE_PROVIDER_REGISTER_DECLARE(soapydeviceprovider)

namespace gpumap::gst {

/// What soapysrc may give: of a radio that is not open yet (transfer full).
[[nodiscard]] GstCaps* radio_caps();

}  // namespace gpumap::gst
