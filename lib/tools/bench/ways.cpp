// SPDX-License-Identifier: MIT
#include "ways.hpp"

#include <fmt/format.h>

#include <cstring>

#include "bare_stores.hpp"

namespace bench {

Ways::Ways(const Context& context, Gpu& gpu, Source& origin, Copiers& copiers, std::size_t region_bytes)
    : gpu_(gpu),
      source_(origin),
      region_bytes_(region_bytes),
      slots_(context.allocate(gpumap::Placement::bar, region_bytes)),
      pinned_(context.allocate(gpumap::Placement::host, region_bytes)),
      device_(context.allocate(gpumap::Placement::device, region_bytes)),
      host_(region_bytes) {
  for (const std::string_view name : gpumap::store_kernel_names()) {
    kernels_.push_back(std::make_unique<gpumap::Copier>(
        gpumap::CopierOptions{.threads = 1, .kernel = std::string(name), .pci_address = {}}));
  }
  for (const bool warm : {true, false}) {
    for (const Copiers::Of& of : copiers.all) {
      add_stores("bar", of.threads, false, warm,
                 [copier = of.copier.get()](auto... arguments) { copier->copy(arguments...); });
    }
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      add_stores(fmt::format("bar, {}", gpumap::store_kernel_names()[i]), 1, false, warm,
                 [copier = kernels_[i].get()](auto... arguments) { copier->copy(arguments...); });
    }
    for (const BareStore& store : bare_stores()) {
      add_stores(fmt::format("bare loop, {}", store.name), 1, true, warm,
                 [copy = store.copy](std::byte* to, const std::byte* from, std::size_t bytes) {
                   constexpr std::size_t line = 64;
                   const std::size_t whole = bytes / line * line;
                   copy(to, from, whole);
                   if (whole != bytes) std::memcpy(to + whole, from + whole, bytes - whole);
                 });
    }
    add({.path = "host-to-host memcpy",
         .rival = true,
         .copy = [this](std::size_t from, std::size_t to) { std::memcpy(host_.data() + to, source() + from, bytes_); },
         .fetch = [this](std::size_t, std::size_t to,
                         std::span<std::byte> back) { std::memcpy(back.data(), host_.data() + to, back.size()); }},
        warm);
  }
  add_rivals(copiers);
  add_back();
}

void Ways::add(Way way, bool warm) {
  way.warm = warm;
  if (way.detail.empty()) way.detail = warm ? "warm" : "cold";
  all_.push_back(std::move(way));
}

void Ways::add_stores(const std::string& path, unsigned threads, bool rival, bool warm,
                      const std::function<void(std::byte*, const std::byte*, std::size_t)>& store) {
  add({.path = path,
       .threads = threads,
       .rival = rival,
       .copy =
           [this, store](std::size_t from, std::size_t to) {
             store(slots_->host() + to, source() + from, bytes_);
             gpumap::store_fence();
             slots_->flush(to, bytes_);
           },
       .fetch = [this](std::size_t, std::size_t to, std::span<std::byte> back) { slots_->download(to, back); }},
      warm);
}

void Ways::add_rivals(Copiers& copiers) {
  const auto fetch = [this](std::size_t, std::size_t to, std::span<std::byte> back) { device_->download(to, back); };
  for (const Copiers::Of& of : copiers.all) {
    add({.path = "copy to pinned + DMA",
         .threads = of.threads,
         .rival = true,
         .copy =
             [this, team = of.team.get()](std::size_t from, std::size_t to) {
               constexpr std::size_t chunk = std::size_t{256} << 10;
               copy_with_dma(*team, {.from = source() + from, .bytes = bytes_, .chunk_bytes = chunk}, gpu_.queue(),
                             *pinned_, *device_, to);
               poll(gpu_.queue().submit());
             },
         .fetch = fetch,
         .waits = true},
        false);
  }
  add({.path = "pageable",
       .rival = true,
       .copy = [this](std::size_t from, std::size_t) { poll(source_.mapping().upload(from, bytes_)); },
       .fetch = [this](std::size_t at, std::size_t,
                       std::span<std::byte> back) { source_.mapping().download(at, back); },
       .waits = true},
      false);
  add({.path = "DMA from pinned",
       .copy =
           [this](std::size_t from, std::size_t to) {
             gpu_.queue().copy(*pinned_, from, *device_, to, bytes_);
             poll(gpu_.queue().submit());
           },
       .fetch = fetch,
       .prepare = [this](std::size_t at) { std::memcpy(pinned_->host() + at, source() + at, bytes_); },
       .detail = "page-locked source",
       .waits = true},
      false);
}

void Ways::add_back() {
  const auto fetch = [this](std::size_t, std::size_t to, std::span<std::byte> back) {
    std::memcpy(back.data(), host_.data() + to, back.size());
  };
  const auto prepare = [this](std::size_t at) {
    gpumap::stream_copy(slots_->host() + at, source() + at, bytes_);
    gpumap::store_fence();
    slots_->flush(at, bytes_);
  };
  add({.path = "download",
       .copy =
           [this](std::size_t from, std::size_t to) {
             slots_->download(from, {host_.data() + to, bytes_});
           },
       .fetch = fetch,
       .prepare = prepare,
       .detail = "read back",
       .waits = true},
      false);
  constexpr std::size_t patience_bytes = 4096;
  add({.path = "CPU reads of the BAR",
       .copy = [this](std::size_t from,
                      std::size_t to) { std::memcpy(host_.data() + to, slots_->host() + from, bytes_); },
       .fetch = fetch,
       .prepare = prepare,
       .detail = "read back",
       .waits = true,
       .max_bytes = patience_bytes},
      false);
}

}  // namespace bench
