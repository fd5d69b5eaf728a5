// SPDX-License-Identifier: MIT
#include "kernel/views.hpp"

#include <algorithm>

namespace gpumap {

gpumap_view bytes_view(std::uint64_t address, std::size_t bytes) noexcept {
  gpumap_view made{};
  made.format = GPUMAP_FORMAT_BYTES;
  made.plane[0] = address;
  made.bytes = bytes;
  return made;
}

gpumap_view moved(gpumap_view view, std::uint64_t from, std::uint64_t to, std::size_t bytes) noexcept {
  const std::uint64_t before = view.plane[0] - from;
  for (std::size_t i = 0; i < GPUMAP_MAX_PLANES; ++i) {
    if (i == 0 || view.plane[i] != 0) view.plane[i] = view.plane[i] - from + to;
  }
  view.bytes = bytes - before;
  return view;
}

gpumap_view field_of(gpumap_view view, std::uint32_t field) noexcept {
  for (std::size_t i = 0; i < GPUMAP_MAX_PLANES; ++i) {
    view.plane[i] += std::uint64_t{field} * view.stride[i];
    if (i == 0) view.bytes -= std::min<std::uint64_t>(view.bytes, std::uint64_t{field} * view.stride[0]);
    view.stride[i] *= 2;
  }
  view.height = (view.height + 1 - field) / 2;
  return view;
}

}  // namespace gpumap
