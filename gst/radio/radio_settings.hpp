// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>

namespace gpumap::gst {

enum class OnRadioLost : int { error, wait };
[[nodiscard]] inline GType on_radio_lost_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {static_cast<gint>(OnRadioLost::error), "Post an error with the driver's words", "error"},
        {static_cast<gint>(OnRadioLost::wait), "Warn, and try to open it again until it is back", "wait"},
        {0, nullptr, nullptr},
    };
    return g_enum_register_static("GstSoapySrcOnLost", values);
  }();
  return type;
}

/// What soapysrc's properties say. Of texts empty, and of numbers 0, is what the radio has without being told.
struct RadioSettings {
  std::string device;
  std::string stream_arguments;
  std::string device_settings;
  std::string channels = "0";
  std::string format;
  double rate = 0.0;
  double frequency = 0.0;
  double bandwidth = 0.0;
  double frequency_correction = 0.0;
  std::string gain;
  std::string antenna;
  std::string clock_source;
  std::string time_source;
  guint buffer_samples = 0;
  guint timeout_ms = 5000;
  OnRadioLost on_lost = OnRadioLost::error;
};

}  // namespace gpumap::gst
