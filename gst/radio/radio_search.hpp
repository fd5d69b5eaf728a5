// SPDX-License-Identifier: MIT
#pragma once

#include <SoapySDR/Types.hpp>
#include <chrono>
#include <string>
#include <vector>

namespace gpumap::gst {

/// How long a search may take: drivers for the network wait for answers.
inline constexpr std::chrono::seconds radio_search_limit{5};

struct RadioSearch {
  SoapySDR::KwargsList found;       ///< what opens each, with `driver`
  std::vector<std::string> silent;  ///< drivers that had not answered when the time was up, or that no thread could ask
};

/// The radios that match, of all drivers asked side by side. A driver that does not answer in time costs its own radios
/// alone; its thread ends when the driver comes back.
[[nodiscard]] RadioSearch find_radios(const SoapySDR::Kwargs& wanted, std::chrono::milliseconds limit);

}  // namespace gpumap::gst
