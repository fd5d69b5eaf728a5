// SPDX-License-Identifier: MIT
// What mode bw measures: ways of moving bytes between host memory and the GPU, one copy at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paths.hpp"

namespace bench {

struct Way {
  std::string path;
  unsigned threads = 1;
  bool rival = false;
  /// Copies Ways::bytes; the offsets are into the source, or what takes its place, and into the destination.
  std::function<void(std::size_t from, std::size_t to)> copy{};
  /// Brings what was copied to ordinary memory, to be compared with the source.
  std::function<void(std::size_t from, std::size_t to, std::span<std::byte> back)> fetch{};
  /// For what does not start in the source: puts those bytes where it does start. Only before a comparison.
  std::function<void(std::size_t from)> prepare{};
  std::string detail{};
  bool warm = false;
  bool waits = false;  ///< each copy waits for the GPU: nothing to gain from timing many at once
  std::size_t max_bytes = ~std::size_t{0};
};

class Ways {
 public:
  /// Destinations lie in regions of `region_bytes`: more than the caches hold, as a ring of slots does.
  Ways(const Context& context, Gpu& gpu, Source& origin, Copiers& copiers, std::size_t region_bytes);
  Ways(const Ways&) = delete;
  Ways& operator=(const Ways&) = delete;

  [[nodiscard]] const std::vector<Way>& all() const { return all_; }
  [[nodiscard]] std::size_t region_bytes() const { return region_bytes_; }
  [[nodiscard]] const std::byte* source() const { return source_.mapping().host(); }
  void set_bytes(std::size_t bytes) { bytes_ = bytes; }

 private:
  void add(Way way, bool warm);
  void add_stores(const std::string& path, unsigned threads, bool rival, bool warm,
                  const std::function<void(std::byte*, const std::byte*, std::size_t)>& store);
  void add_rivals(Copiers& copiers);
  void add_back();

  Gpu& gpu_;
  Source& source_;
  std::size_t region_bytes_, bytes_ = 0;
  std::shared_ptr<gpumap::Mapping> slots_, pinned_, device_;
  std::vector<std::byte> host_;
  std::vector<std::unique_ptr<gpumap::Copier>> kernels_;  // one for each store kernel
  std::vector<Way> all_;
};

}  // namespace bench
