// SPDX-License-Identifier: MIT
#include "memory/mapping_steps.hpp"

#include "gpumap/latency.hpp"

namespace gpumap {
namespace {

// Of the thread, not of the device: other threads allocate meanwhile and do not concern a benchmark.
constinit thread_local MappingTimes* current = nullptr;

}  // namespace

MappingTimes::MappingTimes() noexcept : outer_(current) {
  current = this;
}

MappingTimes::~MappingTimes() {
  current = outer_;
}

TimedStep::TimedStep(MappingStep step) noexcept : times_(current), step_(step) {
  if (times_ != nullptr) began_ns_ = monotonic_ns();
}

void TimedStep::next(MappingStep step) noexcept {
  end();
  step_ = step;
  if (times_ != nullptr) began_ns_ = monotonic_ns();
}

void TimedStep::end() noexcept {
  if (times_ == nullptr) return;
  auto& sum = times_->ns_[static_cast<std::size_t>(step_)];
  sum = sum.value_or(0) + monotonic_ns() - began_ns_;
}

}  // namespace gpumap
