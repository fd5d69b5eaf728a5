// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpumap {

/// What making a mapping and giving it back consist of, where a driver has a call of its own for it.
enum class MappingStep {
  allocate,        ///< memory: choosing its kind, its share of a budget, the driver's allocation, the buffer on it
  map,             ///< a CPU address for it: vkMapMemory
  import_to_cuda,  ///< a descriptor of it, and CUDA's address for that
  drop_import,     ///< CUDA lets go
  free,            ///< the driver takes it back, and with it the CPU's address
};
inline constexpr std::size_t mapping_steps = 5;

/// For benchmarks: while one lives, it adds up how long the steps take that this thread goes through. The innermost
/// one counts. A mapping in two parts goes through some steps twice, and so does one whose first allocation did not
/// fit; memory that CUDA page-locks is allocated and mapped by one call, which counts as allocate.
class MappingTimes {
 public:
  MappingTimes() noexcept;
  ~MappingTimes();
  MappingTimes(const MappingTimes&) = delete;
  MappingTimes& operator=(const MappingTimes&) = delete;

  /// Empty for a step that this thread did not go through.
  [[nodiscard]] std::optional<std::int64_t> ns(MappingStep step) const {
    return ns_.at(static_cast<std::size_t>(step));
  }

 private:
  friend class TimedStep;
  std::array<std::optional<std::int64_t>, mapping_steps> ns_{};
  MappingTimes* const outer_;
};

/// A step lasts as long as this does. Without a MappingTimes on the thread it looks at no clock.
class TimedStep {
 public:
  explicit TimedStep(MappingStep step) noexcept;
  ~TimedStep() { end(); }
  TimedStep(const TimedStep&) = delete;
  TimedStep& operator=(const TimedStep&) = delete;

  /// End the step that lasts, and begin `step`.
  void next(MappingStep step) noexcept;

 private:
  void end() noexcept;

  MappingTimes* const times_;
  MappingStep step_;
  std::int64_t began_ns_ = 0;
};

}  // namespace gpumap
