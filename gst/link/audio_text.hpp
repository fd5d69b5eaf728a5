// SPDX-License-Identifier: MIT
#pragma once

#include <gst/audio/audio.h>

#include <cstdint>

#include "gst/link/byte_text.hpp"

namespace gpumap::gst {

/// Behind what is there. False: it does not cross.
[[nodiscard]] bool put_audio(LinkText& text, const GstAudioMeta& meta);
/// Add to `carrier`, which has no memory, what a peer wrote of a frame of `bytes`. False: that is none, or cannot be.
[[nodiscard]] bool take_audio(GstBuffer* carrier, Reader& text, std::uint64_t bytes);

}  // namespace gpumap::gst
