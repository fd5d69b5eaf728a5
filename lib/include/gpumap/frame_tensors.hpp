// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpumap/block_pool.hpp"
#include "gpumap/declaration.hpp"
#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/kernel.h"
#include "gpumap/latency.hpp"
#include "gpumap/memory.hpp"
#include "gpumap/program.hpp"
#include "gpumap/queue.hpp"

namespace gpumap {

/// The owner of an input frame's memory, which learns what the GPU does with it.
class GPUMAP_API FrameHolder {
 public:
  FrameHolder() = default;
  FrameHolder(const FrameHolder&) = delete;
  FrameHolder& operator=(const FrameHolder&) = delete;
  virtual ~FrameHolder();
  /// GPU work that reads it: it must not be written to before that is done.
  virtual void add_read_fence(const Fence& fence) = 0;
  /// A stamp of the frame's way. `at_ns` as monotonic_ns().
  virtual void stamp(Stamp stamp, std::int64_t at_ns) const noexcept = 0;
};

/// A tensor that comes with a frame, for a line `input-tensor`. Its elements lie one after the other, those of the last
/// dimension side by side.
struct TensorInput {
  NumberType type = NumberType::f32;
  std::vector<std::uint64_t> dims;   ///< outermost first
  const Mapping* mapping = nullptr;  ///< that it lies in, at `offset`, where the launcher's back end reaches it; else:
  std::size_t offset = 0;
  std::uint64_t address = 0;        ///< in memory of others, for the launcher's back end; 0: it is not; else:
  std::span<const std::byte> host;  ///< ordinary memory, copied while the launch is made
  std::size_t bytes = 0;
  Fence written;                  ///< GPU work that fills it
  FrameHolder* holder = nullptr;  ///< may be null: then the caller waits for FrameOutput::done

  [[nodiscard]] bool is_on_gpu() const noexcept { return mapping != nullptr || address != 0; }
};

/// A tensor that goes with a frame: where it lies in FrameOutput::tensors.
struct TensorOutput {
  std::vector<std::uint64_t> dims;
  std::size_t offset = 0, bytes = 0;
};

/// The tensors that a kernel takes and gives beside its frames. Ownership: keeps the device open; the owner waits for
/// what was launched before it destroys this. Thread safety: one thread at a time.
class GPUMAP_API FrameTensors {
 public:
  /// As the lines say; `kernel` is for messages. With room for a guard behind each that goes out where they are
  /// `guarded`.
  FrameTensors(std::shared_ptr<Device> device, Backend backend, std::string kernel, std::vector<DeclaredTensor> inputs,
               std::vector<DeclaredTensor> outputs, bool guarded = false);

  /// A stream begins whose frames are as `in`. Throws Error(invalid) for dimensions that have no value there.
  void begin(const gpumap_view& in);
  /// Those that go with each frame, as declared. Valid until begin().
  [[nodiscard]] const std::vector<TensorOutput>& outputs() const noexcept { return outputs_; }

  /// Memory of one launch.
  struct Room {
    LentBlock outputs;  ///< empty where there are none, as the next one
    LentBlock copied;   ///< what came in ordinary memory
  };
  /// Before a launch with `in`, in the order of the lines: room for all of it. False when cancelled. Throws
  /// Error(invalid) where these are not what the lines say, Error(no_memory).
  [[nodiscard]] bool take(std::span<const TensorInput> in, const std::atomic<bool>& cancelled, Room& room);
  /// Put into `frame` where they lie; those that go out are cleared on `queue` first.
  void show(std::span<const TensorInput> in, const Room& room, Queue& queue, gpumap_frame& frame) const;
  /// Those that go out, which are guarded.
  [[nodiscard]] std::vector<BoundsCheck::Range> ranges(const Room& room) const;

 private:
  void check(std::span<const TensorInput> in) const;

  std::shared_ptr<Device> device_;
  Backend backend_;
  std::string kernel_;
  std::vector<DeclaredTensor> declared_inputs_, declared_outputs_;
  std::vector<std::vector<std::uint64_t>> inputs_;  ///< their dimensions; 0: any
  std::vector<TensorOutput> outputs_;
  std::size_t output_bytes_ = 0;
  bool guarded_;
  std::shared_ptr<BlockPool> output_pool_, copy_pool_;
};

}  // namespace gpumap
