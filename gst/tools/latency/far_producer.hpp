// SPDX-License-Identifier: MIT
// gpumap-latency: the producer of a round in a process of its own, as the one that measures sees it.
//
// It is this program again, with --as-producer. The two share a socket, standard input over there, and the words of a
// Gate. Lines of JSON: one job there, then back
//   {"plays": true, "live": …}   the pipeline plays
//   {"error": "…"}               it does not, or no more: the process ends
//   {"report": {…}}              in answer to the end of what is read
// When either process ends, in whatever way, the socket ends, and the other process notices.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gst/tools/latency/collector.hpp"
#include "gst/tools/latency/latency_producer.hpp"
#include "gst/tools/latency/latency_watch.hpp"

namespace latency {

struct ProducerJob {
  std::string line;           ///< for gst-launch: what ends in the gpumapsink
  ProducerPlan plan;          ///< without caps: the line makes its frames itself
  bool held = false;          ///< its frames count at their end: no more than the plan's in_flight are under way
  std::size_t warmup = 0;     ///< frames that do not count
  std::string socket_folder;  ///< it goes with the process, should nobody be left who removes it
  int arrivals = -1;          ///< descriptor of SharedArrivals
};

/// What happened over there. Counts are of the whole round, CPU time is from the first frame on that counts.
struct ProducerReport {
  SinkStats sink;
  std::int64_t cpu_ns = 0;
  std::uint64_t switches = 0;
  std::vector<Event> events;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Event, kind, since_ns, at_ns, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SinkStats, zero_copy_frames, copied_frames, waits, drops, transport)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProducerPlan, caps, frame_bytes, frames, in_place, rate, in_flight, spin)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProducerJob, line, plan, held, warmup, socket_folder, arrivals)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProducerReport, sink, cpu_ns, switches, events)

/// Lines to and from the other end of a socket, which it closes.
class Lines {
 public:
  explicit Lines(int socket) : socket_(socket) {}
  ~Lines();
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  /// Nothing where the other end is gone, which receive() tells.
  void send(const nlohmann::json& line) const;
  /// Nothing more follows.
  void finish() const;
  /// The next line that comes within that time. Throws nlohmann's errors.
  [[nodiscard]] std::optional<nlohmann::json> receive(std::chrono::milliseconds patience);
  [[nodiscard]] bool ended() const noexcept { return ended_; }  ///< the other end sends nothing more

 private:
  int socket_;
  std::string text_;  ///< that came and was not taken
  bool ended_ = false;
};

/// A folder for the socket, and the process. Both are gone when this is. Thread safety: arrived() from any thread, the
/// rest from one.
class FarProducer {
 public:
  /// `spin`: the producer polls for what arrived(). Throws std::runtime_error, as all that follows.
  explicit FarProducer(bool spin);
  ~FarProducer();
  FarProducer(const FarProducer&) = delete;
  FarProducer& operator=(const FarProducer&) = delete;

  [[nodiscard]] std::string socket_path() const { return folder_ + "/link"; }
  /// Fills in what the job needs to know of this object.
  void start(ProducerJob job);
  /// Hears what it has said. Throws where it said what is wrong, or is dead.
  void look(std::chrono::milliseconds patience = {});
  [[nodiscard]] bool plays() const noexcept { return plays_; }
  [[nodiscard]] bool live() const noexcept { return live_; }  ///< its frames are due at certain times
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] std::uint64_t entered() const noexcept { return arrivals_->entered; }
  void arrived() { gate_.arrived(); }  ///< a frame, at the end of its way
  [[nodiscard]] std::uint64_t count() const noexcept { return gate_.count(); }
  /// Bids it end. Empty, after some seconds at most: it had nothing more to say, and is killed where it lives.
  [[nodiscard]] std::optional<ProducerReport> end();

 private:
  void take(const nlohmann::json& line);
  [[noreturn]] void fail();
  [[nodiscard]] bool reap(bool wait);

  std::string folder_;
  SharedArrivals arrivals_;
  Gate gate_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool running_ = false;
  std::optional<Lines> lines_;
  bool plays_ = false, live_ = false;
  std::optional<ProducerReport> report_;
};

/// The other end of it: what --as-producer runs. The exit status.
[[nodiscard]] int run_as_producer();

}  // namespace latency
