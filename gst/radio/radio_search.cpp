// SPDX-License-Identifier: MIT
#include "gst/radio/radio_search.hpp"

#include <SoapySDR/Device.hpp>
#include <SoapySDR/Modules.hpp>
#include <SoapySDR/Registry.hpp>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/start_thread.hpp"

namespace gpumap::gst {

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

}  // namespace gpumap::gst
