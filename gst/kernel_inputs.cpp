// SPDX-License-Identifier: MIT
// What a KernelRunner hands a kernel beside the frame at hand: tables from files.
#include "kernel_inputs.hpp"

#include "kernel_runner.hpp"

namespace gpumap::gst {

std::unique_ptr<Tables> tables_of(const KernelPlan& plan, const KernelSettings& settings,
                                  const std::shared_ptr<Device>& device) {
  if (plan.declaration.tables.empty() && settings.tables.empty()) return nullptr;
  return std::make_unique<Tables>(device, backend_of(plan.source.language), plan.source.name, plan.declaration.tables,
                                  settings.tables);
}

std::string KernelRunner::refresh_tables() {
  return tables_ ? tables_->refresh(last_) : std::string();
}

}  // namespace gpumap::gst
