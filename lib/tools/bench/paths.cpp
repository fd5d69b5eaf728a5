// SPDX-License-Identifier: MIT
#include "paths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace bench {
namespace {

constexpr std::size_t result_bytes = GPUMAP_RESULT_WORDS * sizeof(std::uint64_t);

[[noreturn]] void complain(const Path& path, const Stage& stage, std::uint64_t got, std::uint64_t wanted) {
  throw std::runtime_error(
      fmt::format("{} with {} threads brought other bytes than it was given: a frame of {} bytes has the checksum "
                  "{:016x} on the GPU and {:016x} on the CPU; no figure of this run counts",
                  path.name(), path.threads(), stage.bytes, got, wanted));
}

}  // namespace

Gpu::Gpu(const Context& context)
    : nothing_(gpumap::Kernel::load(context.device, nothing_kernel(context.backend))),
      checksum_(
          gpumap::Kernel::load(context.device, gpumap::source_of(*gpumap::find_builtin("checksum"), context.backend))),
      result_(context.allocate(gpumap::Placement::host, result_bytes)),
      state_(context.allocate(gpumap::Placement::device,
                              gpumap::declaration_of(*gpumap::find_builtin("checksum")).state_bytes)),
      queue_(context.create_queue()) {
  frame_.result = result_->address(context.backend);
  frame_.state = state_->address(context.backend);
  frame_.state_bytes = state_->bytes();
  queue_->clear(*state_, 0, state_->bytes());
}

gpumap::Fence Gpu::launch(Work work, std::uint64_t address, std::size_t bytes) {
  frame_.in.plane[0] = address;
  frame_.in.bytes = bytes;
  ++frame_.sequence;
  const gpumap::Kernel& kernel = work == Work::nothing ? *nothing_ : *checksum_;
  gpumap::Grid grid = kernel.grid_for(frame_);
  if (work == Work::nothing) grid.blocks = {1, 1, 1};  // a million idle threads would be timed too
  queue_->launch(kernel, grid, frame_);
  return queue_->submit();
}

void Gpu::clear_result() {
  std::fill_n(result_->host(), result_bytes, std::byte{0});
  result_->flush(0, result_bytes);
}

std::uint64_t Gpu::result() const {
  result_->invalidate(0, result_bytes);
  return *reinterpret_cast<const std::uint64_t*>(result_->host());
}

Stage::Stage(const Context& context, Gpu& the_gpu, Source& the_source, std::size_t the_bytes)
    : gpu(the_gpu),
      source(the_source),
      bytes(the_bytes),
      slot(context.allocate(gpumap::Placement::bar, the_bytes)),
      pinned(context.allocate(gpumap::Placement::host, the_bytes)),
      device(context.allocate(gpumap::Placement::device, the_bytes)) {}

Took time_frame(Path& path, Stage& stage, const std::byte* frame, Work work) {
  if (work == Work::checksum) stage.gpu.clear_result();
  path.prepare(frame);
  Took took;
  const std::int64_t cpu_before = cpu_ns();
  const std::int64_t began = now_ns();
  const gpumap::Fence fence = path.send(frame, work);
  poll(fence);
  took.ns = now_ns() - began;
  took.cpu_ns = cpu_ns() - cpu_before;
  if (work == Work::checksum) {
    const std::uint64_t wanted = stage.source.checksum(frame);
    if (stage.gpu.result() != wanted) complain(path, stage, stage.gpu.result(), wanted);
  }
  return took;
}

void verify(const Path& path, Stage& stage, const std::byte* frame) {
  stage.gpu.clear_result();
  poll(stage.gpu.launch(Work::checksum, path.address(), stage.bytes));
  const std::uint64_t wanted = stage.source.checksum(frame);
  if (stage.gpu.result() != wanted) complain(path, stage, stage.gpu.result(), wanted);
}

Copiers::Copiers(const Context& context, const std::vector<unsigned>& threads) {
  constexpr std::size_t scratch_bytes = std::size_t{8} << 20;
  const auto scratch = context.allocate(gpumap::Placement::bar, scratch_bytes);
  for (const unsigned count : threads) {
    gpumap::CopierOptions options;
    options.threads = count;
    options.pci_address = context.device->info().pci_address;
    Of& of = all.emplace_back();
    of.threads = count;
    of.copier = std::make_unique<gpumap::Copier>(options);
    if (count > 0) of.team = std::make_unique<Team>(count);
    of.copier->calibrate({scratch->host(), scratch->bytes()}, {}, !scratch->cpu_readable());
  }
}

}  // namespace bench
