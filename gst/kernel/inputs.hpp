// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "gpumap/device.hpp"
#include "gpumap/tables.hpp"
#include "gst/kernel/settings.hpp"

namespace gpumap::gst {

/// Those that the kernel declares, or that the properties give it; null where there are none. Throws as Tables.
[[nodiscard]] std::unique_ptr<Tables> tables_of(const KernelPlan& plan, const KernelSettings& settings,
                                                const std::shared_ptr<Device>& device);

}  // namespace gpumap::gst
