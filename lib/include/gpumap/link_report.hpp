// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpumap/export.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/link.hpp"
#include "gpumap/memory.hpp"

namespace gpumap {

/// What a LinkServer reports to a process that may connect: without being its client, and at no cost to its frames.

/// How times are counted: within 1 in 16.
using LinkTimeSteps = LogSteps<3, 36>;

struct LinkClientReport {
  LinkClient who;
  std::uint64_t lag = 0;      ///< frames: how far the oldest one that it has is behind the newest; 0: it has none
  std::int64_t lag_ns = 0;    ///< how long ago the oldest one that it has was published
  std::uint64_t timed = 0;    ///< frames that came back while latencies were taken
  std::int64_t timed_ns = 0;  ///< the sum of their times, from publish() until the server saw them back
  /// How many of them took how long, by LinkTimeSteps::bucket_of(), modulo 2^32: what came between two reports is the
  /// difference of their counts.
  std::array<std::uint32_t, LinkTimeSteps::count> times{};
};

/// Counts are since the server began; a ring that is replaced has a new one.
struct LinkReport {
  std::uint64_t generation = 0;  ///< LinkServer::generation()
  pid_t pid = 0;           ///< of the server, as the kernel tells; 0: in a PID namespace that is not seen from here
  std::string program;     ///< what its program is called
  std::int64_t at_ns = 0;  ///< when this was so, on CLOCK_MONOTONIC
  Transport transport = Transport::bar;
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint32_t queued = 0;   ///< slots with frames that were published and not handed on yet
  std::uint32_t busy = 0;     ///< slots that clients have, or may take
  std::uint64_t frames = 0;   ///< handed on
  std::uint64_t bytes = 0;    ///< of those
  std::uint64_t unseen = 0;   ///< of those, shown to no client: none was there, or none had room
  std::uint64_t dropped = 0;  ///< given up by the producer, for the ring was full: LinkServerOptions::dropped
  bool stamps = false;        ///< Ring::stamping(): latencies are taken while somebody asks for reports
  std::vector<LinkClientReport> clients{};
};

/// What became of asking for one.
struct LinkSight {
  std::string path;
  std::optional<LinkReport> report;
  std::string trouble;  ///< why there is no report; empty where there is one
};

/// The sockets of this user's servers in this network namespace, by their paths as they are from here: what
/// observe_links() takes. Other programs' sockets are not touched. Throws Error(io) where /proc cannot be read.
[[nodiscard]] GPUMAP_API std::vector<std::string> find_links();

/// Ask the servers at `paths`, all at once, in this order. A server that has not answered at the deadline has trouble.
/// Only servers of this user are asked. A report is 10 ms old at most. Thread safety: any thread.
[[nodiscard]] GPUMAP_API std::vector<LinkSight> observe_links(std::span<const std::string> paths, Deadline deadline);

}  // namespace gpumap
