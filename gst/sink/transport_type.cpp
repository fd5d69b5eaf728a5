// SPDX-License-Identifier: MIT
#include "gst/sink/transport_type.hpp"

namespace gpumap::gst {

namespace {

constexpr gint automatic = 0;  // the library's values follow, in order

GEnumValue row(Transport transport, const char* meaning) {
  return {to_enum(transport), meaning, to_string(transport).data()};
}

}  // namespace

GType transport_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {automatic, "bar where the window has room, else pinned", "auto"},
        row(Transport::bar, "The CPU writes into GPU memory"),
        row(Transport::pinned, "The CPU writes into page-locked memory, DMA fetches it"),
        row(Transport::zero_copy, "The CPU writes into page-locked memory, kernels read it there"),
        row(Transport::pageable, "The CPU writes into ordinary memory, the driver copies it"),
        {0, nullptr, nullptr},
    };
    return g_enum_register_static("GstGpumapTransport", values);
  }();
  return type;
}

gint to_enum(const std::optional<Transport>& transport) {
  return transport ? static_cast<gint>(*transport) + 1 : automatic;
}

std::optional<Transport> transport_from_enum(gint value) {
  if (value == automatic) return std::nullopt;
  return static_cast<Transport>(value - 1);
}

}  // namespace gpumap::gst
