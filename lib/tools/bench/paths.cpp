// SPDX-License-Identifier: MIT
#include "paths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <gpumap/kernel.hpp>
#include <random>
#include <span>
#include <stdexcept>

namespace bench {
namespace {

constexpr std::int64_t helper_spin_ns = 50'000;
constexpr std::size_t result_bytes = GPUMAP_RESULT_WORDS * sizeof(std::uint64_t);

/// Of the checksum kernel: that it read the bytes of that frame.
void check_result(const Path& path, const Stage& stage, const std::byte* frame) {
  const std::uint64_t wanted = stage.source.checksum(frame);
  const std::uint64_t got = stage.gpu.result();
  if (got == wanted) return;
  throw std::runtime_error(
      fmt::format("{} with {} threads brought other bytes than it was given: a frame of {} bytes has the checksum "
                  "{:016x} on the GPU and {:016x} on the CPU; no figure of this run counts",
                  path.name, path.threads, stage.bytes, got, wanted));
}

/// Copy into page-locked memory; the DMA of each chunk begins as soon as it is there.
void copy_with_dma(Team& team, const Team::Job& job, const Stage& stage) {
  gpumap::Queue& queue = stage.gpu.queue();
  team.copy(job, [&](std::size_t offset, std::size_t bytes) {
    stage.pinned->flush(offset, bytes);
    queue.copy(*stage.pinned, offset, *stage.device, offset, bytes);
    // A CUDA copy is under way by now; Vulkan only records until it is told to submit.
    if (queue.backend() == gpumap::Backend::vulkan) static_cast<void>(queue.submit());
  });
}

/// The rival at its best: a few sizes of chunk.
std::string choose_chunk(Path& path, Stage& stage, Team::Job& job) {
  constexpr std::array<std::size_t, 6> chunks{std::size_t{64} << 10,  std::size_t{128} << 10, std::size_t{256} << 10,
                                              std::size_t{512} << 10, std::size_t{1} << 20,   ~std::size_t{0}};
  constexpr unsigned tries = 9;
  std::size_t best = 0;
  std::int64_t best_ns = 0;
  std::uint64_t frame = 0;
  std::int64_t cpu = 0;
  for (const std::size_t chunk : chunks) {
    if (chunk != chunks.back() && chunk >= stage.bytes) continue;
    job.chunk_bytes = std::min(chunk, stage.bytes);
    std::array<std::int64_t, tries> times{};
    for (std::int64_t& time : times) {
      time = time_frame(path, stage, stage.source.frame(stage.bytes, frame++), Work::nothing, cpu);
    }
    std::nth_element(times.begin(), times.begin() + tries / 2, times.end());
    if (best_ns != 0 && times[tries / 2] >= best_ns) continue;
    best_ns = times[tries / 2];
    best = job.chunk_bytes;
  }
  job.chunk_bytes = best;
  return fmt::format("chunks of {} bytes", best);
}

/// gpumap's own: stores into the slot.
Path bar_path(Stage& stage, const Copiers::Of& of) {
  gpumap::Copier& copier = *of.copier;
  const gpumap::Copier::Plan plan = copier.plan_for(stage.bytes);
  return {.name = of.team ? "bar" : "bar, auto",
          .threads = of.team ? of.threads : plan.threads,
          .send =
              [&stage, &copier](const std::byte* frame) {
                copier.copy(stage.slot->host(), frame, stage.bytes);
                gpumap::store_fence();
                stage.slot->flush(0, stage.bytes);
                return stage.address(*stage.slot);
              },
          .calibrate = [plan](Path&) { return fmt::format("{}, {} threads", plan.kernel, plan.threads); }};
}

/// What a careful program does today, with memcpy; and what it could do with gpumap's own streaming stores.
Path pinned_path(Stage& stage, Team& team, bool streaming) {
  const auto job = std::make_shared<Team::Job>(
      Team::Job{.to = stage.pinned->host(), .bytes = stage.bytes, .chunk_bytes = stage.bytes, .streaming = streaming});
  return {.name = streaming ? "stream to pinned + DMA" : "copy to pinned + DMA",
          .threads = team.threads(),
          .rival = true,
          .send =
              [&stage, &team, job](const std::byte* frame) {
                job->from = frame;
                copy_with_dma(team, *job, stage);
                return stage.address(*stage.device);
              },
          .calibrate = [&stage, job](Path& path) { return choose_chunk(path, stage, *job); }};
}

/// Copied to page-locked memory, which the kernel reads over PCIe.
Path zero_copy_path(Stage& stage, Team& team) {
  constexpr std::size_t line = 64;
  const std::size_t share = (stage.bytes / team.threads() + line) / line * line;
  return {.name = "copy to zero-copy",
          .threads = team.threads(),
          .rival = true,
          .send =
              [&stage, &team, share](const std::byte* frame) {
                team.copy({.to = stage.pinned->host(), .from = frame, .bytes = stage.bytes, .chunk_bytes = share},
                          [](std::size_t, std::size_t) {});
                stage.pinned->flush(0, stage.bytes);
                return stage.address(*stage.pinned);
              },
          .moves = false};
}

/// The frame lies in ordinary memory, and the driver is asked to bring it.
Path pageable_path(Stage& stage) {
  return {.name = "pageable", .rival = true, .send = [&stage](const std::byte* frame) {
            const gpumap::Mapping& source = stage.source.mapping();
            const std::size_t offset = stage.source.offset(frame);
            // Ends: the copy stands behind nothing.
            stage.gpu.queue().wait(source.upload(offset, stage.bytes), never);
            return stage.address(source) + offset;
          }};
}

/// `dma` brings the frame to the device at the end; else the kernel reads it where it was written.
Path in_place_path(Stage& stage, const char* name, gpumap::Mapping& to, bool dma) {
  const bool rival = &to != stage.slot.get();
  constexpr std::size_t tail_bytes = 256;
  const std::size_t tail = std::min(tail_bytes, stage.bytes);
  const std::size_t rest = stage.bytes - tail;
  const auto last = std::make_shared<std::array<std::byte, tail_bytes>>();
  const auto store = [&to, rival](std::size_t at, const std::byte* from, std::size_t bytes) {
    if (rival) {
      std::memcpy(to.host() + at, from, bytes);
    } else {
      gpumap::stream_copy(to.host() + at, from, bytes);
      gpumap::store_fence();
    }
  };
  return {.name = name,
          .rival = rival,
          .send =
              [&stage, &to, dma, store, tail, rest, last](const std::byte*) {
                store(rest, last->data(), tail);
                to.flush(0, stage.bytes);
                if (dma) stage.gpu.queue().copy(to, 0, *stage.device, 0, stage.bytes);
                return stage.address(dma ? *stage.device : to);
              },
          .prepare =
              [store, tail, rest, last](const std::byte* frame) {
                store(0, frame, rest);
                std::memcpy(last->data(), frame + rest, tail);
              },
          .moves = !rival || dma};
}

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
  job_ = job;
  job_.chunk_bytes = chunk;
  chunks_ = chunks;
  ticket_.store(std::uint64_t{generation} << 32 | chunks, std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  if (!helpers_.empty() && chunks > 1) generation_.notify_all();

  bool left = true;
  for (std::size_t told = 0; told < chunks;) {
    while (told < chunks && done_[told].load(std::memory_order_acquire) == generation) {
      copied(told * chunk, std::min(chunk, job.bytes - told * chunk));
      ++told;
    }
    if (left) {
      left = copy_one();
    } else {
      __builtin_ia32_pause();
    }
  }
}

bool Team::copy_one() {
  constexpr std::uint64_t left = 0xFFFFFFFF;
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if ((ticket & left) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire));

  const std::size_t index = chunks_ - (ticket & left);
  const std::size_t at = index * job_.chunk_bytes;
  const std::size_t count = std::min(job_.chunk_bytes, job_.bytes - at);
  if (job_.streaming) {
    gpumap::stream_copy(job_.to + at, job_.from + at, count);
    gpumap::store_fence();  // streaming stores do not keep to the order of the flag below
  } else {
    std::memcpy(job_.to + at, job_.from + at, count);
  }
  done_[index].store(static_cast<std::uint32_t>(ticket >> 32), std::memory_order_release);
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
    while (copy_one()) {
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

std::int64_t time_frame(Path& path, Stage& stage, const std::byte* frame, Work work, std::int64_t& cpu) {
  if (work == Work::checksum) stage.gpu.clear_result();
  if (path.prepare) path.prepare(frame);
  const std::int64_t cpu_before = cpu_ns();
  const std::int64_t began = now_ns();
  path.address = path.send(frame);
  poll(stage.gpu.launch(work, path.address, stage.bytes));
  const std::int64_t took = now_ns() - began;
  cpu += cpu_ns() - cpu_before;
  if (work == Work::checksum) check_result(path, stage, frame);
  return took;
}

void verify(const Path& path, Stage& stage, const std::byte* frame) {
  stage.gpu.clear_result();
  poll(stage.gpu.launch(Work::checksum, path.address, stage.bytes));
  check_result(path, stage, frame);
}

void run_in_turns(std::vector<Run>& runs, const Turns& turns, ModeReport& report, double parts) {
  std::vector<std::size_t> visits, order;
  for (const Run& run : runs) {
    std::vector<std::int64_t> ignored;
    const std::int64_t began = now_ns();
    static_cast<void>(run.visit(2, ignored));
    const double one = static_cast<double>(now_ns() - began) / 2;  // with what is not timed of it
    visits.push_back(static_cast<std::size_t>(std::clamp(turns.budget_ns / one, turns.least, turns.most)) /
                     turns.rounds);
    order.push_back(order.size());
  }
  std::mt19937 random(static_cast<unsigned>(runs.size()));  // NOLINT(cert-msc51-cpp): the same in every run
  for (unsigned round = 0; round < turns.rounds; ++round) {
    if (turns.shuffle) std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t which : order) {
      Run& run = runs[which];
      std::vector<std::int64_t> ignored;
      static_cast<void>(run.visit(run.warm_up, ignored));
      run.cpu_ns += run.visit(visits[which], run.ns);
      if (run.verify) run.verify();
    }
  }
  for (Run& run : runs) {
    run.row.cpu_us = static_cast<double>(run.cpu_ns) / (static_cast<double>(run.ns.size()) * parts) / 1e3;
    report.add(run.row, run.ns, parts);
  }
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

std::vector<Path> copying_paths(Stage& stage, Copiers& copiers) {
  std::vector<Path> paths;
  for (const Copiers::Of& of : copiers.all) {
    paths.push_back(bar_path(stage, of));
    if (!of.team) continue;
    for (const bool streaming : {false, true}) paths.push_back(pinned_path(stage, *of.team, streaming));
    paths.push_back(zero_copy_path(stage, *of.team));
  }
  paths.push_back(pageable_path(stage));
  return paths;
}

std::vector<Path> in_place_paths(Stage& stage) {
  return {in_place_path(stage, "bar", *stage.slot, false), in_place_path(stage, "pinned, DMA", *stage.pinned, true),
          in_place_path(stage, "zero-copy", *stage.pinned, false)};
}

}  // namespace bench
