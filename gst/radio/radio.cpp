// SPDX-License-Identifier: MIT
#include "gst/radio/radio.hpp"

#include <fmt/format.h>

#include <SoapySDR/Constants.h>
#include <SoapySDR/Device.hpp>
#include <SoapySDR/Errors.hpp>
#include <SoapySDR/Modules.hpp>
#include <SoapySDR/Registry.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"
#include "gpumap/thread_schedule.hpp"
#include "gst/radio/radio_metas.hpp"

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

namespace {

/// Kept by each of the threads that ask: the caller may have gone.
struct Answers {
  std::mutex mutex;
  std::condition_variable came;
  std::map<std::string, SoapySDR::KwargsList> by_driver;
};

SoapySDR::KwargsList ask(SoapySDR::Kwargs wanted, const std::string& driver) {
  wanted["driver"] = driver;
  try {
    return SoapySDR::Device::enumerate(wanted);
  } catch (...) {
    return {};  // as SoapySDR's own search has it
  }
}

}  // namespace

RadioSearch find_radios(const SoapySDR::Kwargs& wanted, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  SoapySDR::loadModules();
  std::vector<std::string> drivers;
  for (const auto& [driver, find] : SoapySDR::Registry::listFindFunctions()) {
    const auto named = wanted.find("driver");
    if (named == wanted.end() || named->second == driver) drivers.push_back(driver);
  }
  const auto answers = std::make_shared<Answers>();
  std::size_t unasked = 0;
  for (const std::string& driver : drivers) {
    try {
      start_thread("gpumap-radios", "a search for radios", [answers, driver, wanted] {
        SoapySDR::KwargsList found = ask(wanted, driver);
        const std::lock_guard lock(answers->mutex);
        answers->by_driver.emplace(driver, std::move(found));
        answers->came.notify_all();
      }).detach();
    } catch (const Error&) {
      ++unasked;  // it stays silent
    }
  }
  RadioSearch search;
  std::unique_lock lock(answers->mutex);
  answers->came.wait_until(lock, end, [&] { return answers->by_driver.size() + unasked == drivers.size(); });
  for (const std::string& driver : drivers) {
    const auto answer = answers->by_driver.find(driver);
    if (answer == answers->by_driver.end()) {
      search.silent.push_back(driver);
      continue;
    }
    for (SoapySDR::Kwargs& one : answer->second) {
      one["driver"] = driver;
      // Red Pitaya's driver finds itself, whether or not there is a radio.
      if (one.size() > 1) search.found.push_back(one);
    }
  }
  return search;
}

namespace {

constexpr int rx = SOAPY_SDR_RX;

/// A call of the driver's, whose exceptions become Errors: "setting the antenna \"X\": what the driver said".
template <typename Call>
auto by_driver(ErrorCode code, const std::string& doing, const std::string& remedy, Call call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(code, fmt::format("{}: the driver says \"{}\"", doing, error.what()), remedy);
  } catch (...) {
    throw Error(code, fmt::format("{}: the driver throws what has no words", doing), remedy);
  }
}

/// A radio that was pulled out has nothing to be closed, whatever its driver throws.
template <typename Call>
void ignoring_all(Call call) noexcept {
  try {
    call();
  } catch (...) {
    return;
  }
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, end);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Many drivers take any name and do nothing.
void expect_name(const char* what, const std::string& name, const std::vector<std::string>& known) {
  if (known.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
  throw Error(ErrorCode::invalid, fmt::format("{} \"{}\": the radio has none of this name", what, name),
              "choose one of " + joined(known));
}

template <std::size_t Bytes>
void interleave(const std::vector<std::vector<std::byte>>& planes, std::size_t samples, std::byte* to) {
  for (std::size_t i = 0; i < samples; ++i) {
    for (const std::vector<std::byte>& plane : planes) {
      std::memcpy(to, plane.data() + i * Bytes, Bytes);
      to += Bytes;
    }
  }
}

void interleave(const std::vector<std::vector<std::byte>>& planes, std::size_t bytes, std::size_t samples,
                std::byte* to) {
  switch (bytes) {
    case 1:
      return interleave<1>(planes, samples, to);
    case 2:
      return interleave<2>(planes, samples, to);
    case 3:
      return interleave<3>(planes, samples, to);
    case 4:
      return interleave<4>(planes, samples, to);
    case 8:
      return interleave<8>(planes, samples, to);
    default:
      return interleave<16>(planes, samples, to);
  }
}

constexpr const char* gone_remedy = "plug it in again, or set on-lost=wait to wait for it";

}  // namespace

Radio::Radio(const RadioSettings& settings) {
  try {
    open(settings.device);
    choose_channels(settings.channels);
    choose_formats(settings.format);
    refused_ = change(settings);
    if (!(rate_ > 0.0)) {
      if (!refused_.empty()) throw Error(refused_.front());
      throw Error(ErrorCode::invalid, fmt::format("{} has no rate to begin with", name_),
                  "set one, as in rate=2400000");
    }
  } catch (...) {
    close();
    throw;
  }
}

Radio::~Radio() {
  close();
}

void Radio::close() noexcept {
  close_stream();
  if (device_ != nullptr) ignoring_all([&] { SoapySDR::Device::unmake(device_); });
}

void Radio::open(const std::string& arguments) {
  SoapySDR::Kwargs wanted = SoapySDR::KwargsFromString(arguments);
  if (wanted.count("driver") == 0) {
    // SoapySDR would wait for the slowest driver's search.
    const RadioSearch search = find_radios(wanted, radio_search_limit);
    if (search.found.empty()) {
      throw Error(ErrorCode::not_found,
                  arguments.empty() ? "no radio found" : fmt::format("no radio matches \"{}\"", arguments),
                  "look at what `SoapySDRUtil --find` lists; each family of radios needs its module, such as "
                  "soapysdr-module-rtlsdr, and the right to open the device");
    }
    wanted = search.found.front();
  }
  by_driver(ErrorCode::not_found, fmt::format("the radio \"{}\" cannot be opened", SoapySDR::KwargsToString(wanted)),
            "look at what `SoapySDRUtil --find` lists", [&] {
              device_ = SoapySDR::Device::make(wanted);
              name_ = printable(fmt::format("{} of driver {}", device_->getHardwareKey(), device_->getDriverKey()));
            });
}

void Radio::choose_channels(const std::string& text) {
  const std::size_t there = by_driver(ErrorCode::io, "asking for the number of channels", gone_remedy,
                                      [&] { return device_->getNumChannels(rx); });
  for (const std::string& part : split(text)) {
    const auto channel = number_of<std::size_t>(part);
    if (!channel || *channel >= there || std::find(channels_.begin(), channels_.end(), *channel) != channels_.end()) {
      throw Error(ErrorCode::invalid, fmt::format("channels \"{}\": {} has {} to receive", text, name_, there),
                  "name numbers from 0 on with commas between them, each once");
    }
    channels_.push_back(*channel);
  }
  if (channels_.empty()) throw Error(ErrorCode::invalid, "channels is empty", "name at least one, such as channels=0");
}

void Radio::choose_formats(const std::string& wanted) {
  std::vector<std::string> offered;
  by_driver(ErrorCode::io, "asking for the formats of samples", gone_remedy, [&] {
    offered = device_->getStreamFormats(rx, channels_.front());
    offered.insert(offered.begin(), device_->getNativeStreamFormat(rx, channels_.front(), full_scale_));
  });
  if (!wanted.empty()) {
    expect_name("format", wanted, offered);
    offered = {wanted};
  }
  for (const std::string& name : offered) {
    const RadioFormat* const known = find_radio_format(name);
    if (known != nullptr && std::find(formats_.begin(), formats_.end(), known) == formats_.end()) {
      formats_.push_back(known);
    }
  }
  if (formats_.empty()) {
    throw Error(ErrorCode::not_supported, fmt::format("samples of {}: caps have no name for these", joined(offered)),
                "choose another format, such as format=CS16, where the driver converts");
  }
}

std::vector<Error> Radio::change(const RadioSettings& settings) {
  std::vector<Error> refused;
  const auto set = [&](auto RadioSettings::*member, auto apply) {
    if (settings.*member == applied_.*member) return;
    try {
      apply(settings.*member);
    } catch (const Error& error) {
      refused.push_back(error);
    }
    applied_.*member = settings.*member;  // what was refused is not tried again until it changes
  };
  const auto source = [&](const char* what, const std::string& name, const auto& known, auto choose) {
    if (name.empty()) return;
    by_driver(ErrorCode::invalid, fmt::format("setting the {} \"{}\"", what, name), "choose another one", [&] {
      expect_name(what, name, known());
      choose();
    });
  };
  // The clock first: others are derived from it.
  set(&RadioSettings::clock_source, [&](const std::string& name) {
    source(
        "clock-source", name, [&] { return device_->listClockSources(); }, [&] { device_->setClockSource(name); });
  });
  set(&RadioSettings::time_source, [&](const std::string& name) {
    source(
        "time-source", name, [&] { return device_->listTimeSources(); }, [&] { device_->setTimeSource(name); });
  });
  set(&RadioSettings::device_settings, [&](const std::string& text) {
    for (const auto& one : SoapySDR::KwargsFromString(text)) {
      by_driver(ErrorCode::invalid, fmt::format("the setting {}={}", one.first, one.second),
                "look at what `SoapySDRUtil --probe` lists", [&] { device_->writeSetting(one.first, one.second); });
    }
  });
  set(&RadioSettings::antenna, [&](const std::string& name) { set_antenna(name); });
  set(&RadioSettings::rate, [&](double rate) { set_rate(rate); });
  set(&RadioSettings::bandwidth, [&](double hertz) { set_bandwidth(hertz); });
  set(&RadioSettings::frequency_correction, [&](double ppm) {
    by_driver(ErrorCode::invalid, fmt::format("a frequency-correction of {} ppm", ppm), "choose another one", [&] {
      for (const std::size_t channel : channels_) device_->setFrequencyCorrection(rx, channel, ppm);
    });
  });
  set(&RadioSettings::frequency, [&](double hertz) { set_frequency(hertz); });
  set(&RadioSettings::gain, [&](const std::string& text) { set_gain(text); });
  by_driver(ErrorCode::io, "asking what the radio has", gone_remedy, [&] {
    rate_ = device_->getSampleRate(rx, channels_.front());
    frequency_ = device_->getFrequency(rx, channels_.front());
    bandwidth_ = device_->getBandwidth(rx, channels_.front());
    const bool chooses = device_->hasGainMode(rx, channels_.front()) && device_->getGainMode(rx, channels_.front());
    gain_ = chooses ? std::nullopt : std::optional(device_->getGain(rx, channels_.front()));
  });
  return refused;
}

void Radio::set_rate(double rate) {
  const bool streamed = streaming_;
  stop_stream();
  by_driver(ErrorCode::invalid, fmt::format("a rate of {} samples/s", rate),
            "choose one that `SoapySDRUtil --probe` lists", [&] {
              if (rate > 0.0) {
                for (const std::size_t channel : channels_) device_->setSampleRate(rx, channel, rate);
              }
              rate_ = device_->getSampleRate(rx, channels_.front());
              for (const std::size_t channel : channels_) {
                const double other = device_->getSampleRate(rx, channel);
                if (other == rate_) continue;
                throw std::runtime_error(fmt::format("channel {} has {} samples/s, channel {} {}", channels_.front(),
                                                     rate_, channel, other));
              }
            });
  if (streamed) start_stream();
}

void Radio::set_frequency(double hertz) {
  by_driver(ErrorCode::invalid, fmt::format("a frequency of {} Hz", hertz),
            "choose one that `SoapySDRUtil --probe` lists", [&] {
              for (const std::size_t channel : channels_) device_->setFrequency(rx, channel, hertz);
            });
}

void Radio::set_bandwidth(double hertz) {
  by_driver(ErrorCode::invalid, fmt::format("a bandwidth of {} Hz", hertz),
            "choose one that `SoapySDRUtil --probe` lists", [&] {
              for (const std::size_t channel : channels_) device_->setBandwidth(rx, channel, hertz);
            });
}

void Radio::set_antenna(const std::string& name) {
  if (name.empty()) return;
  by_driver(ErrorCode::invalid, fmt::format("the antenna \"{}\"", name), "choose another one", [&] {
    for (const std::size_t channel : channels_) {
      expect_name("antenna", name, device_->listAntennas(rx, channel));
      device_->setAntenna(rx, channel, name);
    }
  });
}

void Radio::set_gain(const std::string& text) {
  const auto apply = [&](std::size_t channel, const std::string& part) {
    const std::size_t equals = part.find('=');
    const std::string name = equals != std::string::npos ? part.substr(0, equals) : "";
    const auto decibels = number_of<double>(equals != std::string::npos ? part.substr(equals + 1) : part);
    if (part == "auto") {
      if (!device_->hasGainMode(rx, channel)) {
        throw Error(ErrorCode::not_supported, fmt::format("gain=auto: {} has no automatic gain", name_),
                    "set it in dB, such as gain=30");
      }
      device_->setGainMode(rx, channel, true);
      return;
    }
    if (!decibels || !std::isfinite(*decibels) || (equals != std::string::npos && name.empty())) {
      throw Error(ErrorCode::invalid, fmt::format("gain \"{}\": \"{}\" is no gain", text, part),
                  "write auto, dB (gain=30), or dB by name (gain=\"LNA=24,VGA=16\")");
    }
    if (device_->hasGainMode(rx, channel)) device_->setGainMode(rx, channel, false);
    if (name.empty()) {
      device_->setGain(rx, channel, *decibels);
    } else {
      expect_name("gain", name, device_->listGains(rx, channel));
      device_->setGain(rx, channel, name, *decibels);
    }
  };
  by_driver(ErrorCode::invalid, fmt::format("a gain of {}", text), "choose one that `SoapySDRUtil --probe` lists", [&] {
    for (const std::size_t channel : channels_) {
      for (const std::string& part : split(text)) apply(channel, part);
    }
  });
}

void Radio::open_stream(const RadioFormat& format, const std::string& arguments) {
  if (stream_ != nullptr && stream_format_ == &format) return;
  close_stream();
  by_driver(ErrorCode::io, fmt::format("opening a stream of {} of {}", format.soapy, name_),
            "look whether another program has it, or choose another format", [&] {
              stream_ = device_->setupStream(rx, format.soapy, channels_, SoapySDR::KwargsFromString(arguments));
              stream_format_ = &format;
              unit_ = std::max<std::size_t>(device_->getStreamMTU(stream_), 1);
            });
}

void Radio::start_stream() {
  const int status =
      by_driver(ErrorCode::io, "starting to receive", gone_remedy, [&] { return device_->activateStream(stream_); });
  if (status != 0) {
    throw Error(ErrorCode::io,
                fmt::format("{} does not start to receive: the driver says {}", name_, SoapySDR::errToStr(status)),
                gone_remedy);
  }
  streaming_ = true;
}

void Radio::stop_stream() noexcept {
  if (std::exchange(streaming_, false)) ignoring_all([&] { device_->deactivateStream(stream_); });
}

void Radio::close_stream() noexcept {
  stop_stream();
  if (stream_ == nullptr) return;
  ignoring_all([&] { device_->closeStream(stream_); });
  stream_ = nullptr;
}

RadioRead Radio::read(std::byte* to, std::size_t samples, std::chrono::microseconds timeout) {
  if (channels() == 1) {
    void* const one = to;
    return read_apart(&one, samples, timeout);
  }
  constexpr std::size_t unit_at_least = 4096;
  samples = std::min(samples, std::max(unit_, unit_at_least));
  planes_.resize(channels());
  std::vector<void*> planes;
  for (std::vector<std::byte>& plane : planes_) {
    plane.resize(std::max(plane.size(), samples * stream_format_->bytes));
    planes.push_back(plane.data());
  }
  const RadioRead got = read_apart(planes.data(), samples, timeout);
  interleave(planes_, stream_format_->bytes, got.samples, to);
  return got;
}

RadioRead Radio::read_apart(void* const* buffers, std::size_t samples, std::chrono::microseconds timeout) {
  int flags = 0;
  long long ns = 0;
  int got = 0;
  try {
    got = device_->readStream(stream_, buffers, samples, flags, ns, static_cast<long>(timeout.count()));
  } catch (...) {  // no by_driver() around it: a text for each read would cost more than many reads
    by_driver(ErrorCode::io, fmt::format("{} stopped receiving", name_), gone_remedy, [] { throw; });
  }
  RadioRead result;
  if ((flags & SOAPY_SDR_HAS_TIME) != 0) result.ns = ns;
  if (got > 0) {
    result.kind = RadioRead::Kind::samples;
    result.samples = std::min(static_cast<std::size_t>(got), samples);
    result.hole_follows = (flags & SOAPY_SDR_END_ABRUPT) != 0;
    return result;
  }
  if (got == 0 || got == SOAPY_SDR_TIMEOUT) return result;
  if (got == SOAPY_SDR_OVERFLOW || got == SOAPY_SDR_CORRUPTION) {
    result.kind = got == SOAPY_SDR_OVERFLOW ? RadioRead::Kind::overflow : RadioRead::Kind::corrupt;
    return result;
  }
  throw Error(ErrorCode::io, fmt::format("{} stopped receiving: the driver says {}", name_, SoapySDR::errToStr(got)),
              gone_remedy);
}

Ptr<GstCaps> caps_of(const Radio& radio, bool tell_frequency) {
  Ptr<GstCaps> made(gst_caps_new_empty());
  for (const RadioFormat* format : radio.formats()) {
    GstStructure* one = samples_of(format->packed ? "application/x-iq" : "audio/x-raw", format->caps_name,
                                   static_cast<unsigned>(radio.channels() * (format->complex ? 2 : 1)), format->complex,
                                   static_cast<gint>(std::lround(radio.rate())));
    if (tell_frequency) set_center_frequency(one, radio.frequency());
    gst_caps_append_structure(made.get(), one);
  }
  return made;
}

const RadioFormat* format_of(const Radio& radio, const GstCaps* caps) {
  const GstStructure* structure = gst_caps_get_structure(caps, 0);
  const gchar* name = gst_structure_get_string(structure, "format");
  for (const RadioFormat* format : radio.formats()) {
    if (name != nullptr && std::string_view(name) == format->caps_name &&
        gst_structure_has_name(structure, "application/x-iq") == static_cast<gboolean>(format->packed)) {
      return format;
    }
  }
  return nullptr;
}

}  // namespace gpumap::gst
