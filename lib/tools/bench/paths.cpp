// SPDX-License-Identifier: MIT
#include "paths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <gpumap/kernel.hpp>
#include <span>
#include <stdexcept>

namespace bench {
namespace {

using gpumap::Fence;

constexpr std::int64_t helper_spin_ns = 50'000;
constexpr std::size_t result_bytes = GPUMAP_RESULT_WORDS * sizeof(std::uint64_t);

[[noreturn]] void complain(const Path& path, const Stage& stage, std::uint64_t got, std::uint64_t wanted) {
  throw std::runtime_error(
      fmt::format("{} with {} threads brought other bytes than it was given: a frame of {} bytes has the checksum "
                  "{:016x} on the GPU and {:016x} on the CPU; no figure of this run counts",
                  path.name(), path.threads(), stage.bytes, got, wanted));
}

/// Copy into page-locked memory; the DMA of each chunk begins as soon as it is there. `job.to` is ignored: both
/// mappings are written from `at` on.
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

/// A producer that writes its frames where the path begins: what is left when the clock starts are the last bytes,
/// which it has in its cache as if it had just computed them.
class InPlace : public Path {
 public:
  InPlace(Stage& stage, const char* name, bool rival, std::byte* to)
      : Path(stage, name, 1, rival), to_(to), tail_(std::min(tail_bytes, stage.bytes)) {}

  void prepare(const std::byte* frame) final {
    write(to_, frame, stage_.bytes - tail_);
    std::memcpy(last_.data(), frame + stage_.bytes - tail_, tail_);
  }

 protected:
  virtual void write(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  void finish() { write(to_ + stage_.bytes - tail_, last_.data(), tail_); }

 private:
  std::byte* to_;
  std::size_t tail_;
  std::array<std::byte, tail_bytes> last_{};
};

class InPlaceBar final : public InPlace {
 public:
  explicit InPlaceBar(Stage& stage) : InPlace(stage, "bar", false, stage.slot->host()) {}

  Fence send(const std::byte*, Work work) override {
    finish();
    stage_.slot->flush(0, stage_.bytes);
    return stage_.gpu.launch(work, address(), stage_.bytes);
  }
  [[nodiscard]] std::uint64_t address() const override { return stage_.slot->address(stage_.gpu.backend()); }

 private:
  void write(std::byte* to, const std::byte* from, std::size_t bytes) override {
    gpumap::stream_copy(to, from, bytes);
    gpumap::store_fence();
  }
};

/// Page-locked memory: `dma` brings it to the device at the end, else the kernel reads it over PCIe.
class InPlaceHost final : public InPlace {
 public:
  InPlaceHost(Stage& stage, bool dma)
      : InPlace(stage, dma ? "pinned, DMA" : "zero-copy", true, stage.pinned->host()), dma_(dma) {}

  Fence send(const std::byte*, Work work) override {
    finish();
    stage_.pinned->flush(0, stage_.bytes);
    if (dma_) stage_.gpu.queue().copy(*stage_.pinned, 0, *stage_.device, 0, stage_.bytes);
    return stage_.gpu.launch(work, address(), stage_.bytes);
  }
  [[nodiscard]] std::uint64_t address() const override {
    return (dma_ ? stage_.device : stage_.pinned)->address(stage_.gpu.backend());
  }
  [[nodiscard]] bool moves() const override { return dma_; }

 private:
  void write(std::byte* to, const std::byte* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }

  bool dma_;
};

std::size_t stride_of(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  return (bytes + page - 1) / page * page;
}

}  // namespace

Team::Team(unsigned threads) : done_(std::make_unique<std::atomic<std::uint32_t>[]>(max_chunks)) {
  for (unsigned i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
}

Team::~Team() {
  over_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  // Ends: a helper copies its part, and looks at over_ when it is called.
  for (std::thread& helper : helpers_) helper.join();
}

void Team::copy(const Job& job, const Copied& copied) {
  const std::size_t least = (job.bytes + max_chunks - 1) / max_chunks;
  const std::size_t chunk = std::max(job.chunk_bytes, least);
  const std::size_t chunks = (job.bytes + chunk - 1) / chunk;
  const std::uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  to_.store(job.to, std::memory_order_relaxed);
  from_.store(job.from, std::memory_order_relaxed);
  bytes_.store(job.bytes, std::memory_order_relaxed);
  chunk_bytes_.store(chunk, std::memory_order_relaxed);
  chunks_.store(chunks, std::memory_order_relaxed);
  streaming_.store(job.streaming, std::memory_order_relaxed);
  ticket_.store(std::uint64_t{generation} << 32, std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  if (!helpers_.empty() && chunks > 1) generation_.notify_all();

  bool left = true;
  for (std::size_t told = 0; told < chunks;) {
    while (told < chunks && done_[told].load(std::memory_order_acquire) == generation) {
      copied(told * chunk, std::min(chunk, job.bytes - told * chunk));
      ++told;
    }
    if (left) {
      left = copy_one(generation);
    } else {
      __builtin_ia32_pause();
    }
  }
}

bool Team::copy_one(std::uint32_t generation) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  std::byte* const to = to_.load(std::memory_order_relaxed);
  const std::byte* const from = from_.load(std::memory_order_relaxed);
  const std::size_t bytes = bytes_.load(std::memory_order_relaxed);
  const std::size_t chunk = chunk_bytes_.load(std::memory_order_relaxed);
  const std::size_t chunks = chunks_.load(std::memory_order_relaxed);
  const bool streaming = streaming_.load(std::memory_order_relaxed);
  std::size_t index = 0;
  do {
    index = ticket & 0xFFFFFFFFU;
    if (ticket >> 32 != generation || index >= chunks) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire));

  const std::size_t at = index * chunk;
  const std::size_t count = std::min(chunk, bytes - at);
  if (streaming) {
    gpumap::stream_copy(to + at, from + at, count);
    gpumap::store_fence();  // streaming stores do not keep to the order of the flag below
  } else {
    std::memcpy(to + at, from + at, count);
  }
  done_[index].store(generation, std::memory_order_release);
  return true;
}

void Team::help() {
  std::uint32_t seen = 0;
  for (;;) {
    const std::int64_t until = now_ns() + helper_spin_ns;
    while (generation_.load(std::memory_order_acquire) == seen && now_ns() < until) __builtin_ia32_pause();
    // Ends: the destructor raises it as well.
    generation_.wait(seen, std::memory_order_acquire);
    if (over_) return;
    seen = generation_.load(std::memory_order_acquire);
    while (copy_one(seen)) {
    }
  }
}

Source::Source(const Context& context, std::size_t bytes)
    : mapping_(context.allocate(gpumap::Placement::mirrored_pageable, bytes)) {
  std::uint64_t state = 0x243F6A8885A308D3;
  for (std::size_t at = 0; at + sizeof state <= bytes;
       at += sizeof state) {  // xorshift64*: fast, and no two words alike
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    const std::uint64_t word = state * 0x2545F4914F6CDD1D;
    std::memcpy(mapping_->host() + at, &word, sizeof word);
  }
}

const std::byte* Source::frame(std::size_t bytes, std::uint64_t n) const {
  return mapping_->host() + n % frames(bytes) * stride_of(bytes);
}

std::size_t Source::frames(std::size_t bytes) const {
  return std::max<std::size_t>(mapping_->bytes() / stride_of(bytes), 1);
}

void Source::sum_frames(std::size_t bytes) {
  checksums_.clear();
  for (std::size_t n = 0; n < frames(bytes); ++n) {
    const std::byte* at = frame(bytes, n);
    checksums_.emplace(offset(at), gpumap::checksum(std::span(at, bytes)));
  }
}

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

Paths in_place_paths(Stage& stage) {
  Paths paths;
  paths.push_back(std::make_unique<InPlaceBar>(stage));
  paths.push_back(std::make_unique<InPlaceHost>(stage, true));
  paths.push_back(std::make_unique<InPlaceHost>(stage, false));
  return paths;
}

}  // namespace bench
