// SPDX-License-Identifier: MIT
#include "made_up_radio.hpp"

#include <sys/resource.h>

#include <SoapySDR/Errors.h>
#include <SoapySDR/Device.hpp>
#include <SoapySDR/Formats.hpp>
#include <SoapySDR/Registry.hpp>
#include <SoapySDR/Version.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <numbers>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace gpumap::gst::test {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// With repeat=1: what is older than this is lost.
constexpr auto kept_for = 100ms;

/// CPU time of the process, in s.
double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::uint64_t mixed(std::uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

template <typename Number>
void append(std::vector<std::byte>& to, Number value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof value);
}

/// Of each call.
void check_there() {
  MadeUpRadio& told = made_up_radio();
  const bool fails = told.calls++ == told.failing_call;
  if (fails && told.wordless) throw -99;  // NOLINT(hicpp-exception-baseclass): what a driver may do
  if (fails || told.gone) throw std::runtime_error(pulled_out);
}

class Device : public SoapySDR::Device {
 public:
  explicit Device(SoapySDR::Kwargs arguments) : arguments_(std::move(arguments)) {
    check_there();
    ++made_up_radio().opened;
  }

  [[nodiscard]] std::string getDriverKey() const override {
    check_there();
    return "made-up";
  }
  [[nodiscard]] std::string getHardwareKey() const override {
    check_there();
    return "Figment";
  }
  [[nodiscard]] size_t getNumChannels(int /*direction*/) const override {
    check_there();
    return number("channels", 2);
  }
  [[nodiscard]] std::vector<std::string> getStreamFormats(int /*direction*/, size_t /*channel*/) const override {
    check_there();
    std::vector<std::string> formats{text("native", "CS16")};
    std::istringstream others(text("formats", ""));
    for (std::string one; std::getline(others, one, '+');) formats.push_back(one);
    return formats;
  }
  [[nodiscard]] std::string getNativeStreamFormat(int /*direction*/, size_t /*channel*/,
                                                  double& full_scale) const override {
    check_there();
    full_scale = 2048.0;
    return text("native", "CS16");
  }

  SoapySDR::Stream* setupStream(int /*direction*/, const std::string& format, const std::vector<size_t>& channels,
                                const SoapySDR::Kwargs& /*arguments*/) override {
    check_there();
    format_ = format;
    channels_ = channels.empty() ? std::vector<size_t>{0} : channels;
    if (repeats_) fill_tables();
    return reinterpret_cast<SoapySDR::Stream*>(this);
  }
  void closeStream(SoapySDR::Stream* /*stream*/) override { check_there(); }
  [[nodiscard]] size_t getStreamMTU(SoapySDR::Stream* /*stream*/) const override {
    check_there();
    return unit_;
  }
  int activateStream(SoapySDR::Stream* /*stream*/, int /*flags*/, long long /*ns*/, size_t /*count*/) override {
    check_there();
    ++made_up_radio().starts;
    began_ = Clock::now();
    first_ = next_;
    lost_ = overflows_ = 0;
    cpu_began_ = cpu_seconds();
    return 0;
  }
  int deactivateStream(SoapySDR::Stream* /*stream*/, int /*flags*/, long long /*ns*/) override {
    check_there();
    if (text("report", "") == "1") report();
    return 0;
  }

  int readStream(SoapySDR::Stream* /*stream*/, void* const* buffers, size_t samples, int& flags, long long& ns,
                 long timeout_us) override {
    check_there();
    MadeUpRadio& told = made_up_radio();
    ++told.reads;
    if (told.code != 0) return told.code;
    if (told.empty) return 0;
    if (told.silent) {
      std::this_thread::sleep_for(std::chrono::microseconds(timeout_us));
      return SOAPY_SDR_TIMEOUT;
    }
    if (took(told.overflows)) {
      next_ += told.lost;
      return SOAPY_SDR_OVERFLOW;
    }
    if (repeats_ && paced_ && is_late()) return SOAPY_SDR_OVERFLOW;
    next_ += told.unsaid.exchange(0);
    samples = std::min(samples, unit_);
    if (paced_ && !wait_for(samples, std::chrono::microseconds(timeout_us))) return SOAPY_SDR_TIMEOUT;
    for (size_t i = 0; i < channels_.size(); ++i) write(samples, channels_[i], static_cast<std::byte*>(buffers[i]));
    if (text("clock", "") == "1") {
      flags |= SOAPY_SDR_HAS_TIME;
      ns = std::llround((1.0 + static_cast<double>(told.jump_s) + static_cast<double>(next_) / rate_) * 1e9);
    }
    next_ += samples;
    if (took(told.abrupt)) {
      next_ += told.lost;
      flags |= SOAPY_SDR_END_ABRUPT;
    }
    return static_cast<int>(samples);
  }

  [[nodiscard]] std::vector<std::string> listAntennas(int /*direction*/, size_t /*channel*/) const override {
    check_there();
    return {"RX", "LNAH"};
  }
  void setAntenna(int /*direction*/, size_t /*channel*/, const std::string& name) override {
    check_there();
    made_up_radio().antenna = name.at(0);
  }
  [[nodiscard]] bool hasGainMode(int /*direction*/, size_t /*channel*/) const override {
    check_there();
    return true;
  }
  void setGainMode(int /*direction*/, size_t /*channel*/, bool automatic) override {
    check_there();
    made_up_radio().automatic = automatic;
  }
  [[nodiscard]] bool getGainMode(int /*direction*/, size_t /*channel*/) const override {
    check_there();
    return made_up_radio().automatic;
  }
  [[nodiscard]] double getGain(int /*direction*/, size_t /*channel*/) const override {
    check_there();
    return made_up_radio().gain;
  }
  [[nodiscard]] std::vector<std::string> listGains(int /*direction*/, size_t /*channel*/) const override {
    check_there();
    return {"LNA", "VGA"};
  }
  void setGain(int /*direction*/, size_t /*channel*/, double decibels) override {
    check_there();
    made_up_radio().gain = decibels;
  }
  void setGain(int /*direction*/, size_t /*channel*/, const std::string& name, double decibels) override {
    check_there();
    (name == "LNA" ? made_up_radio().lna : made_up_radio().gain) = decibels;
  }
  void setFrequency(int /*direction*/, size_t /*channel*/, double hertz,
                    const SoapySDR::Kwargs& /*arguments*/) override {
    check_there();
    if (hertz > 6e9) throw std::runtime_error("the synthesizer does not lock");
    frequency_ = hertz;
    made_up_radio().frequency = hertz;
    ++made_up_radio().tunes;
  }
  [[nodiscard]] double getFrequency(int /*direction*/, size_t /*channel*/) const override {
    check_there();
    return frequency_;
  }
  void setFrequencyCorrection(int /*direction*/, size_t /*channel*/, double value) override {
    check_there();
    made_up_radio().correction = value;
  }
  void setSampleRate(int /*direction*/, size_t /*channel*/, double rate) override {
    check_there();
    if (rate > 1e8 && !repeats_) throw std::runtime_error("no more than 100 MS/s");
    const double step = static_cast<double>(number("step", 1));
    rate_ = std::max(std::round(rate / step), 1.0) * step;
  }
  [[nodiscard]] double getSampleRate(int /*direction*/, size_t /*channel*/) const override {
    check_there();
    return rate_;
  }
  void setBandwidth(int /*direction*/, size_t /*channel*/, double hertz) override {
    check_there();
    made_up_radio().bandwidth = hertz;
  }
  [[nodiscard]] double getBandwidth(int /*direction*/, size_t /*channel*/) const override {
    check_there();
    return made_up_radio().bandwidth;
  }
  [[nodiscard]] std::vector<std::string> listClockSources() const override {
    check_there();
    return {"internal", "external"};
  }
  void setClockSource(const std::string& name) override {
    check_there();
    made_up_radio().clock_source = name.at(0);
  }
  [[nodiscard]] std::vector<std::string> listTimeSources() const override {
    check_there();
    return {"none", "gps"};
  }
  void setTimeSource(const std::string& name) override {
    check_there();
    made_up_radio().time_source = name.at(0);
  }
  void writeSetting(const std::string& key, const std::string& value) override {
    check_there();
    if (key != "bias") throw std::runtime_error("no setting " + key);
    made_up_radio().bias = value == "true";
  }

 private:
  [[nodiscard]] std::string text(const std::string& key, const char* otherwise) const {
    const auto found = arguments_.find(key);
    return found != arguments_.end() ? found->second : otherwise;
  }
  [[nodiscard]] std::size_t number(const std::string& key, std::size_t otherwise) const {
    const auto found = arguments_.find(key);
    return found != arguments_.end() ? std::stoul(found->second) : otherwise;
  }
  static bool took(std::atomic<int>& count) {
    int left = count;
    while (left > 0) {
      if (count.compare_exchange_weak(left, left - 1)) return true;
    }
    return false;
  }
  [[nodiscard]] bool wait_for(std::size_t samples, std::chrono::microseconds limit) const {
    const double due = static_cast<double>(next_ - first_ + samples) / rate_;
    const auto at = began_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due));
    std::this_thread::sleep_until(std::min(at, Clock::now() + limit));
    return Clock::now() >= at;
  }
  /// True: samples were lost.
  bool is_late() {
    const std::chrono::duration<double> passed = Clock::now() - began_;
    const std::uint64_t come = first_ + static_cast<std::uint64_t>(passed.count() * rate_);
    if (passed < kept_for ||
        come < next_ + static_cast<std::uint64_t>(rate_ * std::chrono::duration<double>(kept_for).count())) {
      return false;
    }
    lost_ += come - next_;
    next_ = come;
    ++overflows_;
    return true;
  }
  void report() const {
    const std::chrono::duration<double> passed = Clock::now() - began_;
    const std::uint64_t given = next_ - first_ - lost_;
    const double cpu = cpu_seconds() - cpu_began_;
    std::fprintf(stderr,
                 "made-up radio: %s in %.2f s: %llu samples (%.1f MS/s), %llu overflows that lost %llu, "
                 "%.2f s of CPU (%.3f ns a sample)\n",
                 format_.c_str(), passed.count(), static_cast<unsigned long long>(given),
                 static_cast<double>(given) / passed.count() / 1e6, static_cast<unsigned long long>(overflows_),
                 static_cast<unsigned long long>(lost_), cpu,
                 given == 0 ? 0.0 : cpu * 1e9 / static_cast<double>(given));
  }
  void fill_tables() {
    tables_.clear();
    for (const std::size_t channel : channels_) {
      std::vector<std::byte>& table = tables_[channel];
      for (std::size_t i = 0; i < period; ++i) append_sample(format_, i, channel, table);
    }
  }
  void write(std::size_t samples, std::size_t channel, std::byte* to) const {
    if (repeats_) {
      const std::vector<std::byte>& table = tables_.at(channel);
      const std::size_t bytes = table.size() / period;
      for (std::size_t done = 0; done < samples;) {
        const std::size_t at = (next_ + done) % period, count = std::min(samples - done, period - at);
        std::memcpy(to + done * bytes, table.data() + at * bytes, count * bytes);
        done += count;
      }
      return;
    }
    const std::string carrier = text("tone", "");
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < samples; ++i) {
      if (carrier.empty()) {
        append_sample(format_, next_ + i, channel, bytes);
        continue;
      }
      if (format_ != "CS16") throw std::runtime_error("a tone is CS16");
      const double turns = std::fmod((std::stod(carrier) - frequency_) / rate_ * static_cast<double>(next_ + i), 1.0);
      append(bytes, static_cast<std::int16_t>(std::lround(30000.0 * std::cos(2.0 * std::numbers::pi * turns))));
      append(bytes, static_cast<std::int16_t>(std::lround(30000.0 * std::sin(2.0 * std::numbers::pi * turns))));
    }
    std::memcpy(to, bytes.data(), bytes.size());
  }

  const SoapySDR::Kwargs arguments_;
  const bool paced_ = text("paced", "") == "1", repeats_ = text("repeat", "") == "1";
  const std::size_t unit_ = number("unit", 1021);  ///< samples of one read, as of one packet
  std::string format_;
  std::vector<size_t> channels_;
  double rate_ = 1e6, frequency_ = 0.0;
  std::uint64_t next_ = 0, first_ = 0;
  Clock::time_point began_;
  double cpu_began_ = 0.0;
  std::uint64_t lost_ = 0, overflows_ = 0;                ///< since the stream began, with repeat=1
  std::map<std::size_t, std::vector<std::byte>> tables_;  ///< of each channel, with repeat=1
};

SoapySDR::KwargsList find(const SoapySDR::Kwargs& wanted) {
  SoapySDR::Kwargs found = wanted;
  found["label"] = made_up_radio().garbled ? "\xff\xfe radio" : "Made-up radio";
  found["serial"] = "17";
  const auto serial = wanted.find("serial");
  if (made_up_radio().gone || (serial != wanted.end() && serial->second != "17")) return {};
  return {found};
}
SoapySDR::Device* make(const SoapySDR::Kwargs& arguments) {
  const auto serial = arguments.find("serial");
  if (serial != arguments.end() && serial->second != "17") throw std::runtime_error("no Figment " + serial->second);
  return new Device(arguments);
}

const SoapySDR::Registry registry("made-up", find, make, SOAPY_SDR_ABI_VERSION);

}  // namespace

MadeUpRadio& made_up_radio() {
  static MadeUpRadio radio;
  return radio;
}

void MadeUpRadio::reset() {
  overflows = abrupt = code = 0;
  lost = unsaid = jump_s = reads = opened = starts = tunes = 0;
  gone = silent = empty = automatic = bias = wordless = garbled = false;
  calls = 0;
  failing_call = -1;
  frequency = bandwidth = gain = lna = correction = 0.0;
  antenna = clock_source = time_source = '-';
}

void append_sample(const std::string& format, std::uint64_t index, std::size_t channel, std::vector<std::byte>& to) {
  const std::uint64_t value = mixed(index * 64 + channel);
  const std::size_t bytes = SoapySDR::formatToSize(format);
  if (format == "CF32" || format == "CF64") {
    for (const unsigned shift : {0U, 32U}) {
      const double number = static_cast<std::int32_t>(value >> shift) / 2147483648.0;
      if (format == "CF32") append(to, static_cast<float>(number));
      if (format == "CF64") append(to, number);
    }
    return;
  }
  for (std::size_t i = 0; i < bytes; ++i) to.push_back(static_cast<std::byte>(value >> (8 * (i % 8))));
}

}  // namespace gpumap::gst::test
