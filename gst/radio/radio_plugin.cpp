// SPDX-License-Identifier: MIT
#include <gst/gst.h>

#include "gst/radio/radio.hpp"

#define PACKAGE "gpumap"

static gboolean register_radio(GstPlugin* plugin) {
  return static_cast<gboolean>(GST_ELEMENT_REGISTER(soapysrc, plugin) != 0 &&
                               GST_DEVICE_PROVIDER_REGISTER(soapydeviceprovider, plugin) != 0);
}

GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, gpumapradio,
                  "Samples of radios, written by their drivers straight into downstream's memory", register_radio,
                  GPUMAP_VERSION, "MIT/X11", GPUMAP_PACKAGE_NAME, GPUMAP_PACKAGE_ORIGIN)
