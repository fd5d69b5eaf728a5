// SPDX-License-Identifier: MIT
// A program that is one kernel: a file of the user's, or a built-in that needs no more.
#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "gpumap/program.hpp"
#include "kernel/state_memory.hpp"

namespace gpumap {
namespace {

class KernelProgram final : public Program {
 public:
  KernelProgram(std::shared_ptr<Kernel> kernel, const Builtin* builtin)
      : kernel_(std::move(kernel)), builtin_(builtin) {}

  void set_params(std::string_view text) override {
    if (builtin_ != nullptr) {
      apply_parameters(*builtin_, text, params_);
      return;
    }
    std::array<float, GPUMAP_MAX_PARAMS> given{};
    std::size_t at = 0;
    for (const auto& [name, values] : parse_parameters(text)) {
      for (const float value : values) given[at++] = value;
    }
    params_ = given;
  }

  void begin(const gpumap_view& /*in*/, const gpumap_view& /*out*/) override { state_.restart(); }

  [[nodiscard]] std::optional<std::size_t> output_bytes(std::size_t /*input_bytes*/) const override { return {}; }

  void run(Queue& queue, const gpumap_frame& frame) override {
    gpumap_frame given = frame;
    std::copy(params_.begin(), params_.end(), std::begin(given.params));
    given.state = state_.ready(queue);
    given.state_bytes = state_.bytes();
    queue.launch(*kernel_, kernel_->grid_for(given), given);
  }

 private:
  std::shared_ptr<Kernel> kernel_;
  const Builtin* builtin_;
  std::array<float, GPUMAP_MAX_PARAMS> params_{};
  StateMemory state_;
};

}  // namespace

std::unique_ptr<Program> Program::load(const std::shared_ptr<Device>& device, const Builtin& builtin, Backend backend) {
  auto program = builtin.make_program != nullptr
                     ? builtin.make_program(device, backend)
                     : std::make_unique<KernelProgram>(Kernel::load(device, source_of(builtin, backend)), &builtin);
  program->set_params({});
  return program;
}

std::unique_ptr<Program> Program::load(const std::shared_ptr<Device>& device, const KernelSource& source) {
  return std::make_unique<KernelProgram>(Kernel::load(device, source), nullptr);
}

}  // namespace gpumap
