// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "copy/store_kernel.hpp"
#include "gpumap/copy.hpp"
#include "gpumap/error.hpp"

namespace gpumap {

struct Copier::State {
  const copy::StoreKernel* kernel;
};

Copier::Copier(const CopierOptions& options)
    : state_(std::make_unique<State>(State{&copy::choose(options.kernel.c_str())})) {}
Copier::~Copier() = default;

void Copier::calibrate(std::span<std::byte> /*scratch*/, std::string_view /*key*/) {}

void Copier::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  state_->kernel->copy(to, from, bytes);
}

void Copier::copy(std::span<std::byte> slot, std::size_t at, std::span<const std::byte> from) {
  if (at > slot.size() || from.size() > slot.size() - at) {
    throw Error(ErrorCode::invalid,
                fmt::format("{} bytes at offset {} do not fit into a slot of {} bytes", from.size(), at, slot.size()));
  }
  copy(slot.data() + at, from.data(), from.size());
}

void Copier::copy_2d(std::byte* to, std::size_t to_stride, const std::byte* from, std::size_t from_stride,
                     std::size_t row_bytes, std::size_t rows) {
  for (std::size_t row = 0; row < rows; ++row) copy(to + row * to_stride, from + row * from_stride, row_bytes);
}

Copier::Plan Copier::plan_for(std::size_t /*bytes*/) const {
  return {state_->kernel->name, 1};
}

}  // namespace gpumap
