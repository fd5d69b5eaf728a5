// SPDX-License-Identifier: MIT
#pragma once

#include <SoapySDR/Device.hpp>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gpumap/error.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio_format.hpp"
#include "gst/radio/radio_settings.hpp"

namespace gpumap::gst {

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

}  // namespace gpumap::gst
