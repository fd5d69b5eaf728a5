// SPDX-License-Identifier: MIT
#include "gst/sink/transport_type.hpp"

#include <iterator>

#include "gpumap/memory.hpp"

namespace gpumap::gst {

namespace {

GEnumValue row(Transport transport, const char* meaning) {
  return {static_cast<gint>(transport) + 1, meaning, to_string(transport).data()};
}

}  // namespace

GType transport_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {0, "bar where the window has room, else pinned", "auto"},
        row(Transport::bar, "The CPU writes into GPU memory"),
        row(Transport::pinned, "The CPU writes into page-locked memory, DMA fetches it"),
        row(Transport::zero_copy, "The CPU writes into page-locked memory, kernels read it there"),
        row(Transport::pageable, "The CPU writes into ordinary memory, the driver copies it"),
        {0, nullptr, nullptr},
    };
    static_assert(std::size(values) == all_transports.size() + 2, "a transport has no row here");
    return g_enum_register_static("GstGpumapTransport", values);
  }();
  return type;
}

}  // namespace gpumap::gst
