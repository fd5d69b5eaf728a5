// SPDX-License-Identifier: MIT
#include <array>

#include "gpumap/memory.hpp"

namespace gpumap {
namespace {

struct Row {
  std::string_view name;
  Placement placement;
};
/// In the order of Transport.
constexpr std::array rows{
    Row{"bar", Placement::bar},
    Row{"pinned", Placement::mirrored},
    Row{"zero-copy", Placement::host},
    Row{"pageable", Placement::mirrored_pageable},
};
static_assert(rows.size() == all_transports.size() &&
                  static_cast<std::size_t>(all_transports.back()) + 1 == all_transports.size(),
              "a transport lacks a row here, or in all_transports");

}  // namespace

std::string_view to_string(Transport transport) noexcept {
  return rows[static_cast<std::size_t>(transport)].name;
}

Placement placement_of(Transport transport) noexcept {
  return rows[static_cast<std::size_t>(transport)].placement;
}

}  // namespace gpumap
