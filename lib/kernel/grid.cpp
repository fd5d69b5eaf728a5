// SPDX-License-Identifier: MIT
#include "kernel/grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <string_view>

#include "gpumap/error.hpp"
#include "gpumap/sample_format.hpp"

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
  if (!device.software || source.language != Language::glsl || !has_loop(source.code)) return {};
  return fmt::format(
      "kernel {} has a loop, and {} may end the loops of a thread after {} turns, those of all its loops "
      "together, without a word: give large work many threads, or several functions",
      source.name, device.name, max_loop_turns);
}

}  // namespace gpumap
