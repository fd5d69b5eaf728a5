// SPDX-License-Identifier: MIT
// Any bytes as what another process says beside its frames, as a client in C reads it; and as the text of caps. What is
// read is written again as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "c/stream_messages.hpp"
#include "gpumap/error.hpp"

namespace {

using namespace gpumap::c;  // NOLINT

void expect(bool holds) {
  if (!holds) std::abort();
}

void use(const gpumap_layout& layout, std::uint64_t bytes) {
  try {
    check_layout(layout, bytes);
  } catch (const gpumap::Error&) {
    // It leaves the frame.
  }
}

void read_text(std::string_view text) {
  Caps caps;
  try {
    caps = parse_caps(text);
  } catch (const gpumap::Error&) {
    return;
  }
  const std::string written = text_of(caps);
  expect(text_of(parse_caps(written)) == written);
  Caps crossed;
  expect(read_caps(bytes_of(caps), crossed));
  expect(text_of(crossed) == written);
  const StreamNews news = read_message(caps_message(caps));
  expect(news.kind == StreamNews::Kind::caps && text_of(news.caps) == written);
  if (const auto layout = layout_of(caps)) use(*layout, text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const StreamNews news = read_message(bytes);
  if (news.kind == StreamNews::Kind::caps) {
    static_cast<void>(text_of(news.caps));
    if (const auto layout = layout_of(news.caps)) use(*layout, size);
  }
  if (news.layout) use(*news.layout, size);
  read_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
