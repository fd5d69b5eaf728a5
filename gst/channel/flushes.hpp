// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>

#include "gpumap/link.hpp"

namespace gpumap::gst {

// Flushes on their way to clients. A demuxer flushes all its branches at a seek that comes by one of them, and the
// client sends the same seek by its other sockets: pads that are still being flushed would take none. Thread safety:
// from any thread.

/// Of the flush with this number, the end went to the clients.
void note_flush(const std::shared_ptr<LinkServer>& server, guint32 number);
/// Before the owner lets a server go: nobody else is to be the last one to do so.
void forget_flush(const std::shared_ptr<LinkServer>& server);
/// Whether the client that asked, and those of its process that ask as well, have dealt with that end, by whichever
/// sockets it comes.
[[nodiscard]] bool has_taken_flush(guint32 number, const LinkQuestion& question);

}  // namespace gpumap::gst
