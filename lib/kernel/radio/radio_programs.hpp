// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "gpumap/program.hpp"

namespace gpumap {

// The programs of the radio built-ins, for Builtin::make_program.
[[nodiscard]] std::unique_ptr<Program> make_ddc(const std::shared_ptr<Device>& device, Backend backend);
[[nodiscard]] std::unique_ptr<Program> make_fm(const std::shared_ptr<Device>& device, Backend backend);
[[nodiscard]] std::unique_ptr<Program> make_am(const std::shared_ptr<Device>& device, Backend backend);
[[nodiscard]] std::unique_ptr<Program> make_ssb(const std::shared_ptr<Device>& device, Backend backend);
[[nodiscard]] std::unique_ptr<Program> make_spectrum(const std::shared_ptr<Device>& device, Backend backend);
[[nodiscard]] std::unique_ptr<Program> make_channelizer(const std::shared_ptr<Device>& device, Backend backend);

}  // namespace gpumap
