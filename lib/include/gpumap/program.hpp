// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/bounds_check.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/kernel.h"
#include "gpumap/kernel.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

enum class KernelMode;
struct KernelPlan;

/// What runs on each frame of a stream: a kernel with its parameters and the state that it keeps from frame to frame,
/// or a built-in that launches several and does arithmetic of its own between them.
/// Ownership: keeps its device open. What it allocates must outlive what it launched: drain the queue, then destroy it.
/// Thread safety: one thread at a time.
class GPUMAP_API Program {
 public:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  virtual ~Program() = default;

  /// Compile and load. Throw as Kernel::load.
  [[nodiscard]] static std::unique_ptr<Program> load(const std::shared_ptr<Device>& device, const Builtin& builtin,
                                                     Backend backend);
  /// The kernels of `declaration.functions`, or the one that `source` names where it lists none. Block, grid, work
  /// and shared memory are those of `source`, the rest of the declaration holds.
  [[nodiscard]] static std::unique_ptr<Program> load(const std::shared_ptr<Device>& device, const KernelSource& source,
                                                     Declaration declaration);

  /// As planned; where that is resident, for a queue of that kind. What does not load to stay is loaded to be launched
  /// where `mode` leaves that open, and then `plan` says so.
  [[nodiscard]] static std::unique_ptr<Program> load(const std::shared_ptr<Device>& device, KernelPlan& plan,
                                                     KernelMode mode);

  /// The parameters, as in "gain=2.5,taps=[1,2,3]", for the frames from here on. Throws Error(invalid), and then leaves
  /// them as they were.
  virtual void set_params(std::string_view text) = 0;

  /// A stream begins: what is kept from frame to frame is as new with the next run(). The views tell format, size,
  /// channels and rate; they have no addresses, and `bytes` is 0 where it differs from frame to frame.
  /// Throws Error(invalid) where the parameters do not go with them, and as Kernel::load where it compiles for them.
  virtual void begin(const gpumap_view& in, const gpumap_view& out) = 0;
  /// As set_params() and begin() at once: the parameters are those of the stream that begins, and need not go with the
  /// one before, nor those before with this one. Throws as both; then begin() is due.
  virtual void begin_with(std::string_view params, const gpumap_view& in, const gpumap_view& out) {
    set_params(params);
    begin(in, out);
  }

  /// Bytes that the next frame in order, of `input_bytes`, will give; 0: none, it is only remembered. Empty: as the
  /// formats say (a whole image, or as many samples as went in).
  [[nodiscard]] virtual std::optional<std::size_t> output_bytes(std::size_t input_bytes) const = 0;

  /// Whether what comes out hangs on frames before, which begin() makes it forget.
  [[nodiscard]] virtual bool remembers() const { return false; }
  /// Samples, at most, from the first that goes into an output to the last, which gives it; 0: each frame gives its
  /// own.
  [[nodiscard]] virtual std::uint64_t gathers() const { return 0; }

  /// What the kernels may write to beside the output (the state, and what lies between several kernels), ready for
  /// run() with the same `frame`, which comes next on `queue`. Each has room for a guard behind it; none where
  /// KernelPlan::guarded did not ask for that. Throws as run() does.
  [[nodiscard]] virtual std::vector<BoundsCheck::Range> guarded(Queue& /*queue*/, const gpumap_frame& /*frame*/) {
    return {};
  }

  /// What may go wrong on this device with launches on `frame`, without that anyone could tell, and what helps; empty
  /// as a rule.
  [[nodiscard]] virtual std::string risk(const gpumap_frame& /*frame*/) const { return {}; }

  /// Launch on the next frame in order. Of `frame`, everything but params and state is the caller's to fill in;
  /// out.bytes is what output_bytes() said. Throws Error(device_lost | no_memory), Error(invalid) for a field of an
  /// interlaced picture that cannot be taken on its own, and QueueCancelled where memory has to grow and
  /// Queue::set_wait() gives up: then begin() is due.
  virtual void run(Queue& queue, const gpumap_frame& frame) = 0;
};

}  // namespace gpumap
