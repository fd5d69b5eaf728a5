// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpumap/declaration.hpp"
#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/kernel.h"
#include "gpumap/kernel.hpp"
#include "gpumap/queue.hpp"
#include "gpumap/tables.hpp"

namespace gpumap {

/// Finds out whether a kernel writes behind the end of what it may write to: there lie bytes that no kernel may change.
/// Thread safety: one thread at a time.
class GPUMAP_API BoundsCheck {
 public:
  /// What memory that is guarded has behind what the kernel may write to. A row of pixels too many is caught, a wild
  /// pointer is not.
  static constexpr std::size_t guard_bytes = 65536;

  /// What a kernel may write to: memory up to `end`, behind which there is room for a guard.
  struct Range {
    const Mapping* memory = nullptr;
    std::size_t end = 0;
    std::size_t bytes = 0;  ///< of what ends there
    std::string what;       ///< "its output"
    std::string remedy;     ///< what to compare positions with: "frame.out's width, height and bytes"
  };

  BoundsCheck(std::shared_ptr<Device> device, Backend backend);

  /// Before and after the kernel, on its queue.
  void write_guards(Queue& queue, std::vector<Range> ranges);
  void read_guards(Queue& queue);
  /// Once all that has run. Throws Error(invalid) where a guard has changed.
  void verify(const std::string& kernel) const;

 private:
  std::shared_ptr<Device> device_;
  Backend backend_;
  std::shared_ptr<Mapping> written_;
  std::vector<std::shared_ptr<Mapping>> read_;  ///< one for each range, and for those of frames before
  std::vector<Range> ranges_;
};

/// How frames come to a kernel.
enum class KernelMode {
  launch,     ///< each is a launch
  resident,   ///< it stays on the GPU and waits for them; CUDA C++ only
  automatic,  ///< resident where that can be
};

/// What a user asks for: which kernel, and how it is to run. In messages a member has the name of gpumapkernel's
/// property: `check_bounds` is "check-bounds".
struct KernelSettings {
  std::string kernel = "identity";  ///< a built-in, unless `location` is set
  std::string location;
  std::string function;  ///< or several, run in sequence: "one,other". Before what is declared
  std::string params;
  std::string declare;  ///< lines before those of the file: see parse_declaration()
  std::string device = "auto";
  std::optional<Backend> backend;  ///< empty: the device's own
  std::string include_path;        ///< folders, separated by ':'
  std::string defines;             ///< "NAME,OTHER=2"
  bool reload = false;
  bool check_bounds = false;
  bool late_results = false;
  std::uint32_t timeout_ms = 10000;  ///< 0: none
  std::uint32_t priority = 0;        ///< as CudaQueueOptions, and the next
  double sm_share = 0;
  KernelMode mode = KernelMode::launch;
  std::uint32_t resident_blocks = 0;  ///< that stay on the GPU, at most; 0: one for almost every second multiprocessor
  std::uint32_t resident_idle_ms = 100;  ///< after this time without a frame, it leaves until the next
};

/// The built-in that is meant; null where it is a file. Throws Error(invalid) for an unknown name, and for properties
/// that contradict each other: which one is the mistake, only the user knows.
[[nodiscard]] GPUMAP_API const Builtin* builtin_of(const KernelSettings& settings);

/// The kernel's parameters, with initial values. Empty optional: a file that declares none takes any. Throws
/// Error(invalid | io) for a file that cannot be read.
[[nodiscard]] GPUMAP_API std::optional<std::vector<DeclaredParameter>> parameters_of(const KernelSettings& settings);

/// What the kernel declares, with what the settings say in its place; of an unknown built-in nothing. Throws
/// Error(invalid | io).
[[nodiscard]] GPUMAP_API Declaration declaration_of(const KernelSettings& settings);

/// What is to be run: a built-in or a file, with what it and the properties declare.
struct KernelPlan {
  const Builtin* builtin = nullptr;
  KernelSource source;
  Declaration declaration;
  bool resident = false;     ///< it is to stay on the GPU
  bool guarded = false;      ///< its state has room for a guard: see BoundsCheck
  std::string why_launched;  ///< where its mode leaves that open and it does not stay: why
};
/// For a backend that `device` has. Throws Error(invalid | io | not_supported).
[[nodiscard]] GPUMAP_API KernelPlan plan_of(const KernelSettings& settings, const Device& device);

/// The tables that the kernel declares; null where there are none. Throws as Tables, and is given up likewise.
[[nodiscard]] GPUMAP_API std::unique_ptr<Tables> tables_of(const KernelPlan& plan,
                                                           const std::shared_ptr<Device>& device,
                                                           const std::atomic<bool>* given_up = nullptr);

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
