// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "paths.hpp"

namespace bench {
namespace {

using gpumap::Fence;

/// gpumap's own: stores into the slot.
class Bar final : public Path {
 public:
  Bar(Stage& stage, const char* name, gpumap::Copier& copier, unsigned threads)
      : Path(stage, name, threads, false), copier_(copier) {}

  Fence send(const std::byte* frame, Work work) override {
    copier_.copy(stage_.slot->host(), frame, stage_.bytes);
    gpumap::store_fence();
    stage_.slot->flush(0, stage_.bytes);
    return stage_.gpu.launch(work, address(), stage_.bytes);
  }
  [[nodiscard]] std::uint64_t address() const override { return stage_.slot->address(stage_.gpu.backend()); }
  std::string calibrate() override {
    const gpumap::Copier::Plan plan = copier_.plan_for(stage_.bytes);
    return fmt::format("{}, {} threads", plan.kernel, plan.threads);
  }

 private:
  gpumap::Copier& copier_;
};

/// What a careful program does today, with memcpy; and what it could do with gpumap's own streaming stores.
class Pinned final : public Path {
 public:
  Pinned(Stage& stage, Team& team, bool streaming)
      : Path(stage, streaming ? "stream to pinned + DMA" : "copy to pinned + DMA", team.threads(), true), team_(team) {
    job_ = {.bytes = stage.bytes, .chunk_bytes = stage.bytes, .streaming = streaming};
  }

  Fence send(const std::byte* frame, Work work) override {
    job_.from = frame;
    copy_with_dma(team_, job_, stage_.gpu.queue(), *stage_.pinned, *stage_.device, 0);
    return stage_.gpu.launch(work, address(), stage_.bytes);
  }
  [[nodiscard]] std::uint64_t address() const override { return stage_.device->address(stage_.gpu.backend()); }

  /// The rival at its best: a few sizes of chunk.
  std::string calibrate() override {
    constexpr std::array<std::size_t, 6> chunks{std::size_t{64} << 10,  std::size_t{128} << 10, std::size_t{256} << 10,
                                                std::size_t{512} << 10, std::size_t{1} << 20,   ~std::size_t{0}};
    constexpr unsigned tries = 9;
    Team::Job best = job_;
    std::int64_t best_ns = 0;
    std::uint64_t frame = 0;
    for (const std::size_t chunk : chunks) {
      if (chunk != chunks.back() && chunk >= stage_.bytes) continue;
      job_.chunk_bytes = std::min(chunk, stage_.bytes);
      std::array<std::int64_t, tries> times{};
      for (std::int64_t& time : times) {
        time = time_frame(*this, stage_, stage_.source.frame(stage_.bytes, frame++), Work::nothing).ns;
      }
      std::nth_element(times.begin(), times.begin() + tries / 2, times.end());
      if (best_ns != 0 && times[tries / 2] >= best_ns) continue;
      best_ns = times[tries / 2];
      best = job_;
    }
    job_ = best;
    return fmt::format("chunks of {} bytes", job_.chunk_bytes);
  }

 private:
  Team& team_;
  Team::Job job_;
};

/// The frame lies in ordinary memory, and the driver is asked to bring it.
class Pageable final : public Path {
 public:
  explicit Pageable(Stage& stage) : Path(stage, "pageable", 1, true) {}

  Fence send(const std::byte* frame, Work work) override {
    offset_ = stage_.source.offset(frame);
    // Ends: the copy stands behind nothing.
    stage_.gpu.queue().wait(stage_.source.mapping().upload(offset_, stage_.bytes), never);
    return stage_.gpu.launch(work, address(), stage_.bytes);
  }
  [[nodiscard]] std::uint64_t address() const override {
    return stage_.source.mapping().address(stage_.gpu.backend()) + offset_;
  }

 private:
  std::size_t offset_ = 0;
};

/// Copied to page-locked memory, which the kernel reads over PCIe.
class ZeroCopy final : public Path {
 public:
  ZeroCopy(Stage& stage, Team& team) : Path(stage, "copy to zero-copy", team.threads(), true), team_(team) {}

  Fence send(const std::byte* frame, Work work) override {
    constexpr std::size_t line = 64;
    const std::size_t share = (stage_.bytes / team_.threads() + line) / line * line;
    team_.copy({.to = stage_.pinned->host(), .from = frame, .bytes = stage_.bytes, .chunk_bytes = share},
               [](std::size_t, std::size_t) {});
    stage_.pinned->flush(0, stage_.bytes);
    return stage_.gpu.launch(work, address(), stage_.bytes);
  }
  [[nodiscard]] std::uint64_t address() const override { return stage_.pinned->address(stage_.gpu.backend()); }
  [[nodiscard]] bool moves() const override { return false; }

 private:
  Team& team_;
};

}  // namespace

void copy_with_dma(Team& team, Team::Job job, gpumap::Queue& queue, const gpumap::Mapping& pinned,
                   const gpumap::Mapping& device, std::size_t at) {
  job.to = pinned.host() + at;
  team.copy(job, [&](std::size_t offset, std::size_t bytes) {
    pinned.flush(at + offset, bytes);
    queue.copy(pinned, at + offset, device, at + offset, bytes);
    // A CUDA copy is under way by now; Vulkan only records until it is told to submit.
    if (queue.backend() == gpumap::Backend::vulkan) static_cast<void>(queue.submit());
  });
}

Paths copying_paths(Stage& stage, Copiers& copiers) {
  Paths paths;
  for (const Copiers::Of& of : copiers.all) {
    if (!of.team) {
      const unsigned threads = of.copier->plan_for(stage.bytes).threads;
      paths.push_back(std::make_unique<Bar>(stage, "bar, auto", *of.copier, threads));
      continue;
    }
    paths.push_back(std::make_unique<Bar>(stage, "bar", *of.copier, of.threads));
    for (const bool streaming : {false, true}) paths.push_back(std::make_unique<Pinned>(stage, *of.team, streaming));
    paths.push_back(std::make_unique<ZeroCopy>(stage, *of.team));
  }
  paths.push_back(std::make_unique<Pageable>(stage));
  return paths;
}

}  // namespace bench
