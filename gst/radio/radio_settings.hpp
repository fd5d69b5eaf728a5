// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <string>
#include <vector>

#include "gst/property_table.hpp"

namespace gpumap::gst {

enum class OnRadioLost : int { error, wait };

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

/// Of soapysrc. `changed` is called when one was set that the radio has to be told while playing.
[[nodiscard]] std::vector<Property> radio_properties(PropertiesOf<RadioSettings>::Find find,
                                                     void (*changed)(GObject* element));

}  // namespace gpumap::gst
