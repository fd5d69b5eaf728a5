// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

GST_ELEMENT_REGISTER_DECLARE(soapysrc)
GST_DEVICE_PROVIDER_REGISTER_DECLARE(soapydeviceprovider)
