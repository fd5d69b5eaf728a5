// SPDX-License-Identifier: MIT
#include <array>
#include <utility>

#include "gpumap/memory.hpp"

namespace gpumap {
namespace {

struct Row {
  Transport transport;
  std::string_view name;
  Placement placement;
};
constexpr std::array rows{
    Row{Transport::bar, "bar", Placement::bar},
    Row{Transport::pinned, "pinned", Placement::mirrored},
    Row{Transport::zero_copy, "zero-copy", Placement::host},
    Row{Transport::pageable, "pageable", Placement::mirrored_pageable},
};

}  // namespace

std::string_view to_string(Transport transport) noexcept {
  return rows[static_cast<std::size_t>(transport)].name;
}

std::optional<Transport> find_transport(std::string_view name) noexcept {
  for (const Row& row : rows) {
    if (row.name == name) return row.transport;
  }
  return std::nullopt;
}

Placement placement_of(Transport transport) noexcept {
  return rows[static_cast<std::size_t>(transport)].placement;
}

}  // namespace gpumap
