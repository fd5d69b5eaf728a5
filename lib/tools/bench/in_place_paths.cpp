// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstring>

#include "paths.hpp"

namespace bench {
namespace {

using gpumap::Fence;

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

class Bar final : public InPlace {
 public:
  explicit Bar(Stage& stage) : InPlace(stage, "bar", false, stage.slot->host()) {}

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
class Host final : public InPlace {
 public:
  Host(Stage& stage, bool dma)
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

}  // namespace

Paths in_place_paths(Stage& stage) {
  Paths paths;
  paths.push_back(std::make_unique<Bar>(stage));
  paths.push_back(std::make_unique<Host>(stage, true));
  paths.push_back(std::make_unique<Host>(stage, false));
  return paths;
}

}  // namespace bench
