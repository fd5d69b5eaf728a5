// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>
#include <SoapySDR/Device.hpp>
#include <SoapySDR/Types.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/error.hpp"
#include "gst/property_table.hpp"
#include "gst/ptr.hpp"

GST_ELEMENT_REGISTER_DECLARE(soapysrc)
GST_DEVICE_PROVIDER_REGISTER_DECLARE(soapydeviceprovider)

namespace gpumap::gst {

/// A format of SoapySDR's and what caps call it. A value.
struct RadioFormat {
  const char* soapy;      ///< CS16
  const char* caps_name;  ///< of `audio/x-raw`; S12LE of `application/x-iq`
  std::size_t bytes;      ///< of an element: I and Q together, or one real sample
  bool complex;
  bool packed;  ///< two samples share a byte
};

#if G_BYTE_ORDER == G_LITTLE_ENDIAN
#define GPUMAP_RADIO_NATIVE "LE"
#else
#define GPUMAP_RADIO_NATIVE "BE"
#endif
/// SoapySDR's samples are in the byte order of the host. It has no caps for CU12, CS4 and CU4.
inline constexpr std::array radio_formats{
    RadioFormat{"CS8", "S8", 2, true, false},
    RadioFormat{"CU8", "U8", 2, true, false},
    RadioFormat{"CS12", "S12LE", 3, true, true},
    RadioFormat{"CS16", "S16" GPUMAP_RADIO_NATIVE, 4, true, false},
    RadioFormat{"CU16", "U16" GPUMAP_RADIO_NATIVE, 4, true, false},
    RadioFormat{"CS32", "S32" GPUMAP_RADIO_NATIVE, 8, true, false},
    RadioFormat{"CU32", "U32" GPUMAP_RADIO_NATIVE, 8, true, false},
    RadioFormat{"CF32", "F32" GPUMAP_RADIO_NATIVE, 8, true, false},
    RadioFormat{"CF64", "F64" GPUMAP_RADIO_NATIVE, 16, true, false},
    RadioFormat{"S8", "S8", 1, false, false},
    RadioFormat{"U8", "U8", 1, false, false},
    RadioFormat{"S16", "S16" GPUMAP_RADIO_NATIVE, 2, false, false},
    RadioFormat{"U16", "U16" GPUMAP_RADIO_NATIVE, 2, false, false},
    RadioFormat{"S32", "S32" GPUMAP_RADIO_NATIVE, 4, false, false},
    RadioFormat{"U32", "U32" GPUMAP_RADIO_NATIVE, 4, false, false},
    RadioFormat{"F32", "F32" GPUMAP_RADIO_NATIVE, 4, false, false},
    RadioFormat{"F64", "F64" GPUMAP_RADIO_NATIVE, 8, false, false},
};
#undef GPUMAP_RADIO_NATIVE

/// Null: caps have no name for it.
[[nodiscard]] constexpr const RadioFormat* find_radio_format(std::string_view soapy) noexcept {
  const auto* const found = std::find_if(radio_formats.begin(), radio_formats.end(),
                                         [&](const RadioFormat& one) { return one.soapy == soapy; });
  return found != radio_formats.end() ? found : nullptr;
}

/// What soapysrc may give: of a radio that is not open yet (transfer full).
[[nodiscard]] inline GstCaps* radio_caps() {
  return gst_caps_from_string(
      "audio/x-raw,format=(string){S8,U8,S16LE,S16BE,U16LE,U16BE,S32LE,S32BE,U32LE,U32BE,F32LE,F32BE,F64LE,F64BE},"
      "layout=(string)interleaved,channels=(int)[1,64],rate=(int)[1,max];"
      "application/x-iq,format=(string)S12LE,layout=(string)interleaved,channels=(int)[2,64],rate=(int)[1,max]");
}

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

/// How long a search may take: drivers for the network wait for answers.
inline constexpr std::chrono::seconds radio_search_limit{5};

struct RadioSearch {
  SoapySDR::KwargsList found;       ///< what opens each, with `driver`
  std::vector<std::string> silent;  ///< drivers that had not answered when the time was up, or that no thread could ask
};

/// The radios that match, of all drivers asked side by side. A driver that does not answer in time costs its own radios
/// alone; its thread ends when the driver comes back.
[[nodiscard]] RadioSearch find_radios(const SoapySDR::Kwargs& wanted, std::chrono::milliseconds limit);

/// What readStream() gave.
struct RadioRead {
  enum class Kind {
    samples,
    nothing,   ///< the time was up
    overflow,  ///< samples were lost before the next ones
    corrupt,   ///< as overflow: the driver threw away what was damaged
  };
  Kind kind = Kind::nothing;
  std::size_t samples = 0;      ///< of each channel
  bool hole_follows = false;    ///< samples were lost behind these
  std::optional<long long> ns;  ///< the radio's clock at the first sample
};

/// An open receiver and its stream. What the driver refuses or throws is an Error with the driver's words; once one of
/// code `io` was thrown, the radio is gone. Thread safety: one thread at a time.
class Radio {
 public:
  /// Opens, and sets all of `settings`: what the radio refuses of them is in refused(). Throws Error.
  explicit Radio(const RadioSettings& settings);
  ~Radio();
  Radio(const Radio&) = delete;
  Radio& operator=(const Radio&) = delete;

  /// Set what differs from what was set before, the rate between a stop and a start of the stream. What the radio
  /// refuses stays as it was and comes back, one error each.
  [[nodiscard]] std::vector<Error> change(const RadioSettings& settings);

  [[nodiscard]] const std::vector<Error>& refused() const noexcept { return refused_; }

  /// Those that caps have a name for, the preferred one first: what `format` says, else the native one.
  [[nodiscard]] const std::vector<const RadioFormat*>& formats() const noexcept { return formats_; }
  [[nodiscard]] std::size_t channels() const noexcept { return channels_.size(); }
  /// What the radio says that it has, after rounding.
  [[nodiscard]] double rate() const noexcept { return rate_; }
  [[nodiscard]] double frequency() const noexcept { return frequency_; }
  [[nodiscard]] double bandwidth() const noexcept { return bandwidth_; }
  /// All gains together, in dB; empty: the radio chooses them.
  [[nodiscard]] std::optional<double> gain() const noexcept { return gain_; }
  /// What a full sample of the native format is.
  [[nodiscard]] double full_scale() const noexcept { return full_scale_; }
  /// "RTL2838 of driver rtlsdr".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Where there is a stream of another format, it is closed.
  void open_stream(const RadioFormat& format, const std::string& arguments);
  void start_stream();
  /// Also where it does not run.
  void stop_stream() noexcept;
  [[nodiscard]] bool is_streaming() const noexcept { return streaming_; }
  /// Up to `samples` of each channel, interleaved, at `to`: those of one channel by the driver itself.
  [[nodiscard]] RadioRead read(std::byte* to, std::size_t samples, std::chrono::microseconds timeout);

 private:
  void open(const std::string& arguments);
  /// Up to `samples` into each of `buffers`, one for each channel.
  [[nodiscard]] RadioRead read_apart(void* const* buffers, std::size_t samples, std::chrono::microseconds timeout);
  void choose_channels(const std::string& text);
  void choose_formats(const std::string& wanted);
  void set_rate(double rate);
  void set_frequency(double hertz);
  void set_bandwidth(double hertz);
  void set_gain(const std::string& text);
  void set_antenna(const std::string& name);
  void close_stream() noexcept;
  void close() noexcept;

  SoapySDR::Device* device_ = nullptr;
  SoapySDR::Stream* stream_ = nullptr;
  const RadioFormat* stream_format_ = nullptr;
  bool streaming_ = false;
  std::size_t unit_ = 0;  ///< samples that the driver hands over in one go
  RadioSettings applied_;
  std::vector<Error> refused_;  ///< when it was opened
  std::vector<std::size_t> channels_;
  std::vector<const RadioFormat*> formats_;
  double rate_ = 0.0, frequency_ = 0.0, bandwidth_ = 0.0, full_scale_ = 0.0;
  std::optional<double> gain_;
  std::vector<std::vector<std::byte>> planes_;  ///< of several channels, before they are interleaved
  std::string name_;
};

/// What the radio gives as it is set, the preferred format first.
[[nodiscard]] Ptr<GstCaps> caps_of(const Radio& radio, bool tell_frequency);
/// The radio's format of these caps; null: it has none.
[[nodiscard]] const RadioFormat* format_of(const Radio& radio, const GstCaps* caps);

/// When the samples of a stream are due: counted from the first one's arrival by the radio's rate, so that neighbours
/// are as far apart as samples are, and drawn to the pipeline's clock so slowly that no one hears it. Thread safety:
/// one thread at a time.
class SampleTimes {
 public:
  /// A thousandth of a buffer's length is how far its time may be drawn: clocks differ by far less.
  static constexpr double max_drift = 0.001;
  /// What jitter of arrivals is divided by.
  static constexpr double smoothing = 512.0;
  /// Samples do not come so many ns before they are due: then the pipeline's time began anew.
  static constexpr double most_early = 1e9;

  void begin() noexcept { begun_ = false; }

  /// The time of a buffer that lasts `length` ns and whose last sample came at `now`. Behind a hole samples are due
  /// `hole` ns later, or, where the radio does not say how long it was, when they come. Time goes back with the
  /// pipeline's own alone: a flush may begin that anew.
  [[nodiscard]] GstClockTime next(GstClockTime now, double length, bool behind_hole,
                                  std::optional<double> hole) noexcept {
    const double arrived = static_cast<double>(now) - length;
    if (!begun_ || (behind_hole && due_ > arrived + most_early)) {
      due_ = std::max(arrived, 0.0);
      begun_ = true;
    } else if (behind_hole) {
      due_ = hole && *hole >= 0.0 ? due_ + *hole : std::max(due_, arrived);
    } else {
      due_ += std::clamp((arrived - due_) / smoothing, -max_drift * length, max_drift * length);
    }
    const auto pts = static_cast<GstClockTime>(std::llround(due_));
    due_ += length;
    return pts;
  }

 private:
  bool begun_ = false;
  double due_ = 0.0;  ///< of the next buffer, in ns
};

/// What a radio's own clock tells of samples that were lost. Thread safety: one thread at a time.
class RadioClock {
 public:
  /// A clock that differs by this from what the samples say has lost some.
  static constexpr double jump_ns = 1e6;
  /// How many ns a driver may keep samples. A hole that is longer than that and the time since the last samples came is
  /// none: the clock was set.
  static constexpr double most_kept = 1e9;

  struct Seen {
    std::optional<double> begins;  ///< its time at the first sample, in ns
    bool jumped = false;           ///< samples are missing before these, and nobody has said so
    std::optional<double> hole;    ///< how long that hole was, or the one that is known; in ns
  };

  void forget() noexcept { due_.reset(); }

  /// The next samples: they last `length` ns, and came `waited` ns after the ones before; `ns`: the radio's clock at
  /// the first one. `at_hole`: it is known that some are missing before them.
  [[nodiscard]] Seen next(std::optional<long long> ns, double length, double sample, bool at_hole,
                          double waited) noexcept {
    Seen seen;
    if (ns) {
      const auto begins = static_cast<double>(*ns);
      const double off = due_ ? begins - *due_ : 0.0;
      seen.jumped = !at_hole && std::abs(off) > std::max(jump_ns, sample);
      if (due_ && (seen.jumped || at_hole) && off <= waited + most_kept) seen.hole = off;
      due_ = begins;
    } else if (at_hole) {
      due_.reset();
    }
    seen.begins = due_;
    if (due_) *due_ += length;
    return seen;
  }

 private:
  std::optional<double> due_;  ///< at the next sample, in ns
};

}  // namespace gpumap::gst
