// SPDX-License-Identifier: MIT
#include "gst/radio/radio_settings.hpp"

#include <utility>

namespace gpumap::gst {
namespace {

GType on_radio_lost_type() {
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

}  // namespace

std::vector<Property> radio_properties(PropertiesOf<RadioSettings>::Find find, void (*changed)(GObject*)) {
  using Settings = RadioSettings;
  const PropertiesOf<Settings> of(find);
  const auto told = [changed](Property property) { return then(std::move(property), changed); };
  constexpr double most = 1e12;
  return {
      of.text("device", "Which radio, in SoapySDR's words: driver=rtlsdr,serial=00000001; empty: the first one found",
              &Settings::device),
      of.text("stream-arguments", "What the driver's stream takes: WIRE=CS8", &Settings::stream_arguments),
      of.text("channels", "Which of the radio's channels, interleaved: 0,1", &Settings::channels),
      of.text("format",
              "SoapySDR's name of the samples' format: CS16; empty: the native one, where downstream takes it",
              &Settings::format),
      of.number<guint>(
          "buffer-samples",
          "Samples of a buffer; 0: those of 10 ms, or fewer where downstream puts buffers together (gather)",
          &Settings::buffer_samples, 0, 1U << 26U),
      of.number<guint>("timeout", "Milliseconds without a sample after which the radio is lost; 0: never",
                       &Settings::timeout_ms),
      of.choice("on-lost", "What to do where the radio is lost while playing", &Settings::on_lost,
                on_radio_lost_type()),
      told(of.number<gdouble>("rate", "Samples a second; 0: as the radio has it", &Settings::rate, 0.0, most,
                              mutable_playing)),
      told(of.number<gdouble>("frequency", "Hertz in the middle of the band; 0: as the radio has it",
                              &Settings::frequency, 0.0, most, mutable_playing)),
      told(of.number<gdouble>("bandwidth", "Hertz that the radio's filter passes; 0: as the driver chooses",
                              &Settings::bandwidth, 0.0, most, mutable_playing)),
      told(of.number<gdouble>("frequency-correction", "Parts in a million that the radio's oscillator is off",
                              &Settings::frequency_correction, -1e6, 1e6, mutable_playing)),
      told(of.text("gain", "In dB (30), by name (LNA=24,VGA=16) or auto; empty: as the radio has it", &Settings::gain,
                   mutable_playing)),
      told(of.text("antenna", "By its name; empty: as the radio has it", &Settings::antenna, mutable_playing)),
      told(of.text("clock-source", "Of the radio's clock: external; empty: as the radio has it",
                   &Settings::clock_source, mutable_playing)),
      told(of.text("time-source", "Of the radio's time: gps; empty: as the radio has it", &Settings::time_source,
                   mutable_playing)),
      told(of.text("device-settings", "What the driver calls settings: biastee=true,direct_samp=2",
                   &Settings::device_settings, mutable_playing)),
  };
}

}  // namespace gpumap::gst
