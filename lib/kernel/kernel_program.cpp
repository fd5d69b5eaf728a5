// SPDX-License-Identifier: MIT
// Programs of kernels alone: a built-in's, or those of a user's file, one after the other.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/program.hpp"
#include "gpumap/sample_format.hpp"
#include "kernel/compile/compilers.hpp"
#include "kernel/kernel_memory.hpp"
#include "kernel/load_kernel.hpp"

namespace gpumap {
namespace {

constexpr std::uint64_t chunk_bytes = 128;
// Enough threads to fill the largest GPUs.
constexpr std::uint64_t max_chunk_blocks = 1024;

std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return value / by + (value % by != 0 ? 1 : 0);
}

std::uint64_t item_bytes(std::uint32_t format) {
  return std::max<std::uint64_t>(sample_bits(format) / CHAR_BIT, 1);
}

/// Where the memory of `view` begins: its bytes count from plane 0 on, and other planes may lie before that.
std::uint64_t begin_of(const gpumap_view& view) {
  std::uint64_t begin = view.plane[0];
  for (const gpumap_u64 plane : view.plane) begin = plane != 0 ? std::min<std::uint64_t>(begin, plane) : begin;
  return begin;
}

std::uint64_t bytes_from_begin(const gpumap_view& view) {
  return view.plane[0] - begin_of(view) + view.bytes;
}

Grid grid_2d(const GridShape& shape, std::uint64_t width, std::uint64_t height) {
  const auto& threads = shape.threads_2d;
  const auto blocks = [&](std::size_t axis, std::uint64_t items) {
    return static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(divide_up(items, threads[axis]), 1, shape.max_blocks[axis]));
  };
  return {.blocks = {blocks(0, width), blocks(1, height), 1}, .threads = threads};
}

Grid grid_1d(const GridShape& shape, std::uint64_t items, std::uint64_t max_total) {
  const auto& threads = shape.threads_1d;
  const std::uint64_t block = std::uint64_t{threads[0]} * threads[1] * threads[2];
  const std::uint64_t blocks = std::clamp<std::uint64_t>(divide_up(items, block), 1, max_total);
  // What exceeds one row of blocks goes on in the next: see gpumap_thread().
  const std::uint64_t across = std::min<std::uint64_t>(blocks, shape.max_blocks[0]);
  const std::uint64_t down = std::min<std::uint64_t>(divide_up(blocks, across), shape.max_blocks[1]);
  return {.blocks = {static_cast<std::uint32_t>(across), static_cast<std::uint32_t>(down), 1}, .threads = threads};
}

/// A word of `code`, before the parenthesis that a loop has behind it. By hand, for code of any length.
bool has_loop(std::string_view code) {
  constexpr std::string_view name = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  for (const std::string_view word : {"for", "while"}) {
    for (std::size_t at = code.find(word); at != code.npos; at = code.find(word, at + 1)) {
      if (at != 0 && name.find(code[at - 1]) != name.npos) continue;
      const std::size_t next = code.find_first_not_of(" \t\r\n", at + word.size());
      if (next != code.npos && code[next] == '(') return true;
    }
  }
  return false;
}

}  // namespace

std::uint64_t items_of(const gpumap_frame& frame) {
  if (frame.out.width != 0 || frame.in.width != 0) {
    const gpumap_view& view = frame.out.width != 0 ? frame.out : frame.in;
    return std::uint64_t{view.width} * view.height;
  }
  const gpumap_view& view = frame.out.bytes != 0 ? frame.out : frame.in;
  return divide_up(view.bytes, item_bytes(view.format));
}

void check_grid(const KernelSource& source, const GridShape& shape) {
  const auto &asked = source.grid, &most = shape.max_blocks;
  if (asked[0] <= most[0] && asked[1] <= most[1] && asked[2] <= most[2]) return;
  throw Error(ErrorCode::invalid,
              fmt::format("kernel {}: a grid of {}x{}x{} blocks, and this device takes {}x{}x{} at most: ask for fewer",
                          source.name, asked[0], asked[1], asked[2], most[0], most[1], most[2]));
}

Grid make_grid(const GridShape& shape, const gpumap_frame& frame) {
  const bool has_pixels = frame.out.width != 0 || frame.in.width != 0;
  if (shape.blocks[0] != 0) {
    return {.blocks = shape.blocks, .threads = has_pixels ? shape.threads_2d : shape.threads_1d};
  }
  if (shape.work == Work::chunk) {
    return grid_1d(shape, divide_up(frame.in.bytes, chunk_bytes), max_chunk_blocks);
  }
  if (has_pixels) {
    const gpumap_view& view = frame.out.width != 0 ? frame.out : frame.in;
    return grid_2d(shape, shape.work == Work::quad ? divide_up(view.width, 4) : view.width, view.height);
  }
  return grid_1d(shape, items_of(frame), ~std::uint64_t{0});
}

std::string loop_risk_of(const KernelSource& source, const DeviceInfo& device) {
  if (!device.software || source.language != Language::glsl) return {};
  const auto includes_loop = [&] {
    return includes_others(source.code) && std::ranges::any_of(included_glsl(source), has_loop);
  };
  if (!has_loop(source.code) && !includes_loop()) return {};
  return fmt::format(
      "kernel {} has a loop, and {} may end the loops of a thread after {} turns, those of all its loops "
      "together, without a word: give large work many threads, or several functions",
      source.name, device.name, max_loop_turns);
}

namespace {

class KernelProgram final : public Program {
 public:
  /// `frame_bytes`: how much of a frame the kernels take; `guarded`: whether behind the state there is room for a
  /// guard.
  KernelProgram(std::shared_ptr<Device> device, std::vector<std::shared_ptr<Kernel>> kernels, Declaration declaration,
                std::size_t frame_bytes, bool guarded)
      : device_(std::move(device)),
        kernels_(std::move(kernels)),
        declaration_(std::move(declaration)),
        frame_bytes_(frame_bytes),
        guarded_(guarded),
        state_(*device_, kernels_.front()->backend(), declaration_.state_bytes, guarded),
        between_{{{device_, kernels_.front()->backend()}, {device_, kernels_.front()->backend()}}} {}

  void set_params(std::string_view text) override {
    apply_declared(declaration_, kernels_.front()->name(), text, params_, numbers_);
    std::copy(params_.begin(), params_.end(), std::begin(given_.params));
    std::copy(numbers_.begin(), numbers_.end(), std::begin(given_.numbers));
  }

  void begin(const gpumap_view& /*in*/, const gpumap_view& /*out*/) override { state_.restart(); }

  [[nodiscard]] std::optional<std::size_t> output_bytes(std::size_t /*input_bytes*/) const override { return {}; }

  [[nodiscard]] bool remembers() const override { return declaration_.state_bytes != 0 && !declaration_.self_clearing; }

  [[nodiscard]] std::vector<BoundsCheck::Range> guarded(Queue& queue, const gpumap_frame& frame) override {
    if (!guarded_) return {};
    std::vector<BoundsCheck::Range> ranges;
    // Zeroed before the guard is laid, some bytes of which are zeroed with it.
    if (state_.ready(queue) != 0) ranges.push_back(state_.range());
    const std::size_t handed_over = declaration_.unchanged ? 0 : kernels_.size() - 1;
    const std::uint64_t bytes = bytes_from_begin(frame.out);
    for (std::size_t i = 0; i < std::min(handed_over, between_.size()); ++i) {
      static_cast<void>(between_[i].ready(queue, bytes + BoundsCheck::guard_bytes));
      ranges.push_back({.memory = between_[i].memory().get(),
                        .end = bytes,
                        .bytes = bytes,
                        .what = fmt::format("what function {} hands to the next", i + 1),
                        .remedy = "frame.out's width, height and bytes"});
    }
    return ranges;
  }

  [[nodiscard]] std::string risk(const gpumap_frame& frame) const override {
    if (!device_->info().software) return {};
    const std::uint64_t items = items_of(frame);
    for (const auto& kernel : kernels_) {
      const Grid grid = kernel->grid_for(frame);
      std::uint64_t threads = 1;
      for (std::size_t i = 0; i < grid.blocks.size(); ++i) threads *= std::uint64_t{grid.blocks[i]} * grid.threads[i];
      if (items <= max_loop_turns * threads) continue;
      return fmt::format(
          "kernel {}: {} thread(s) in its grid for {} pixels, samples or bytes, and {} may end a thread's loops after "
          "{} turns without a word: ask for a grid of {} threads or more, or leave it out",
          kernel->name(), threads, items, device_->info().name, max_loop_turns, items / max_loop_turns + 1);
    }
    return {};
  }

  void run(Queue& queue, const gpumap_frame& frame) override {
    gpumap_frame& given = given_;
    take(given, frame, 0, offsetof(gpumap_frame, params));
    take(given, frame, offsetof(gpumap_frame, tables), frame_bytes_);
    given.state = state_.ready(queue);
    given.state_bytes = state_.bytes();
    const std::uint64_t begin = begin_of(frame.out), bytes = bytes_from_begin(frame.out);
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      // Where none writes an output, all look at the same frame.
      const bool hands_over = i + 1 != kernels_.size() && !declaration_.unchanged;
      given.out = hands_over ? moved(frame.out, begin, between_[i % 2].ready(queue, bytes), bytes) : frame.out;
      queue.launch(*kernels_[i], kernels_[i]->grid_for(given), given);
      if (hands_over) given.in = given.out;
    }
  }

 private:
  static void take(gpumap_frame& to, const gpumap_frame& from, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    std::memcpy(reinterpret_cast<std::byte*>(&to) + begin, reinterpret_cast<const std::byte*>(&from) + begin,
                end - begin);
  }

  std::shared_ptr<Device> device_;
  std::vector<std::shared_ptr<Kernel>> kernels_;
  Declaration declaration_;
  const std::size_t frame_bytes_;
  const bool guarded_;
  gpumap_frame given_{};  ///< with the parameters; the rest is of the last frame
  std::array<float, GPUMAP_MAX_PARAMS> params_{};
  std::array<std::uint64_t, GPUMAP_MAX_PARAMS> numbers_{};  ///< the same, exactly
  StateMemory state_;
  std::array<WorkMemory, 2> between_;  ///< what one kernel writes and the next one reads
};

std::unique_ptr<Program> load_launched(const std::shared_ptr<Device>& device, const KernelSource& source,
                                       Declaration declaration, bool guarded) {
  std::vector<std::shared_ptr<Kernel>> kernels;
  if (declaration.functions.empty()) {
    kernels.push_back(Kernel::load(device, source));
  } else {
    for (const std::string& function : declaration.functions) {
      KernelSource one = source;
      one.function = function;
      kernels.push_back(Kernel::load(device, one));
    }
  }
  // A CUDA kernel that names nothing of the rest is compiled without it.
  const std::size_t bytes = source.language == Language::cuda ? frame_bytes(source) : sizeof(gpumap_frame);
  auto program = std::make_unique<KernelProgram>(device, std::move(kernels), std::move(declaration), bytes, guarded);
  program->set_params({});
  return program;
}

}  // namespace

std::shared_ptr<Kernel> Kernel::load(const std::shared_ptr<Device>& device, const KernelSource& source) {
  auto gpu = std::dynamic_pointer_cast<GpuDevice>(device);
  if (!gpu) throw Error(ErrorCode::invalid, fmt::format("kernel {}: no device: open one first", source.name));
  gpu->check_alive();
  const Backend backend = backend_of(source.language);
  if (!gpu->has(backend)) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {}: {} has no {}: use a {} kernel", source.name, gpu->info().name,
                            to_string(backend), traits_of(gpu->default_backend()).files));
  }
  return backend == Backend::cuda ? load_cuda_kernel(std::move(gpu), source)
                                  : load_vulkan_kernel(std::move(gpu), source);
}

std::unique_ptr<Program> Program::load(const std::shared_ptr<Device>& device, const Builtin& builtin, Backend backend) {
  if (builtin.make_program == nullptr) return load(device, source_of(builtin, backend), declaration_of(builtin));
  auto program = builtin.make_program(device, backend);
  program->set_params({});
  return program;
}

std::unique_ptr<Program> Program::load(const std::shared_ptr<Device>& device, KernelPlan& plan, KernelMode mode) {
  if (plan.resident) {
    try {
      auto kernels =
          load_resident_kernels(std::dynamic_pointer_cast<GpuDevice>(device), plan.source, plan.declaration.functions);
      auto program = std::make_unique<KernelProgram>(device, std::move(kernels), plan.declaration,
                                                     frame_bytes(plan.source), plan.guarded);
      program->set_params({});
      return program;
    } catch (const Error& error) {
      if (mode == KernelMode::resident || error.code() == ErrorCode::device_lost) throw;
      plan.why_launched = error.what();
    } catch (const std::exception& error) {
      plan.why_launched = fmt::format("kernel {} cannot stay on the GPU: {}", plan.source.name, error.what());
      if (mode == KernelMode::resident) throw Error(ErrorCode::not_supported, plan.why_launched, "use mode=launch");
    }
    plan.resident = false;
  }
  return plan.builtin != nullptr ? load(device, *plan.builtin, backend_of(plan.source.language))
                                 : load_launched(device, plan.source, plan.declaration, plan.guarded);
}

std::unique_ptr<Program> Program::load(const std::shared_ptr<Device>& device, const KernelSource& source,
                                       Declaration declaration) {
  return load_launched(device, source, std::move(declaration), false);
}

}  // namespace gpumap
