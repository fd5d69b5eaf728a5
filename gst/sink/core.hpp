// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gpumap/device.hpp"
#include "gpumap/ring.hpp"
#include "gpumap/slot_copier.hpp"
#include "gst/channel/channel.hpp"
#include "gst/channel/frame_origin.hpp"
#include "gst/channel/upstream_requests.hpp"
#include "gst/latency/latency_report.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/property_table.hpp"

namespace gpumap::gst {

/// How the element that fills our buffers treats them. map() flags tell, but not always the truth.
enum class Upstream {
  as_declared,  ///< believe the map flags
  writes_only,  ///< maps READWRITE, yet never reads
  reads,        ///< maps WRITE, yet reads
};

struct SinkSettings {
  std::string channel = "default";
  std::string socket_path;    ///< serve other processes there instead; empty: do not
  std::string allowed_users;  ///< beside the own one, see users_of()
  std::string socket_mode = "0600";
  bool wait_for_connection = false;
  std::uint32_t stall_limit_ms = 0;  ///< 0: who takes no frames keeps the others waiting for ever
  UpstreamEvents upstream_events = UpstreamEvents::first;
  std::string device = "auto";
  std::uint32_t slots = 8;
  std::uint64_t slot_bytes = 0;    ///< 0: from the caps, or from the first frame
  std::uint64_t gather_bytes = 0;  ///< see Gather
  std::uint32_t gather_us = 0;
  WhenFull when_full = WhenFull::block;
  std::uint32_t busy_poll_us = 0;
  std::uint32_t copy_threads = 0;         ///< 0: as many as pay
  ThreadSettings threads;                 ///< of those that copy, and of the link's
  std::optional<Transport> transport;     ///< empty: bar, or pinned where the window has no room
  bool stamps = false;                    ///< follow every frame's way, see gpumap/latency.hpp
  std::uint32_t latency_interval_ms = 0;  ///< post what became of them this often; 0: never
  guint linger_ms = 60000;                ///< how long an ended stream waits for a src; G_MAXUINT: for ever
};

/// What a gpumapsink or gpumapupload and the pool that it offers upstream share: the device, the ring of the moment,
/// the counters. A pool may outlive the element, so this outlives both. Thread safety: every member from any thread.
class SinkCore : public std::enable_shared_from_this<SinkCore> {
 public:
  SinkCore() = default;

  /// Open the device. Throws Error.
  void open(const SinkSettings& settings);
  /// The same, and meet the channel. Throws Error(invalid) when it has a sink already.
  void start(GstElement* sink, const SinkSettings& settings);
  /// The same on a channel that no other element finds.
  void start(GstElement* sink, const SinkSettings& settings, const std::shared_ptr<Channel>& channel);
  void stop(bool drained);

  enum class Renewal { where_too_small, always };
  /// Make the ring's slots hold `bytes`, with a new ring where the present one's are smaller. Throws Error.
  void provision(std::size_t bytes, Renewal renewal = Renewal::where_too_small);
  /// Make a ring for frames of `bytes` where there is none yet. Throws Error.
  void provide_ring(std::size_t bytes);
  enum class Patience { waits, does_not_wait };
  enum class Writer {
    upstream,  ///< which may read what it writes
    element    ///< by fill()
  };
  /// A slot to write; waits as the ring does, and gives up with `timeout` once `stopped()`, or at once where it does
  /// not wait. Any other status but ok: take host memory (full and leaky, upstream reads, no slot to be had, the
  /// element flushes). Throws Error.
  [[nodiscard]] RingStatus acquire(std::size_t bytes, std::unique_ptr<FrameMemory>& slot,
                                   const std::function<bool()>& stopped, Patience patience = Patience::waits,
                                   Writer writer = Writer::upstream);
  /// Part of `slot`, which is open, for upstream to write. Null: upstream is to take other memory. Throws Error.
  [[nodiscard]] std::unique_ptr<FrameMemory> lend(GstMemory* slot, std::size_t at, std::size_t bytes) const;
  /// Copy `bytes` bytes of `buffer`, from its byte `from` on, to byte `at` of `slot`, which is mapped to write: one of
  /// acquire(), or host memory in its place. Throws Error.
  void fill(GstMemory* slot, std::size_t at, GstBuffer* buffer, std::size_t from, std::size_t bytes);
  /// Upstream has written `part`, which is one of `slot`.
  void take_part(GstMemory* slot, GstMemory* part);
  /// So many buffers became one frame.
  void count_gathered(std::uint64_t buffers) noexcept { gathered_.fetch_add(buffers, std::memory_order_relaxed); }
  /// The next frame, of `bytes`, gets host memory to see how long that takes to fill.
  [[nodiscard]] bool times_host(std::size_t bytes) const { return slow_slots_.times_host(bytes); }
  /// RAII: a frame is being rendered, the wait for the clock included.
  class Rendering {
   public:
    explicit Rendering(SinkCore& core) : core_(core) { ++core_.rendering_; }
    ~Rendering() { --core_.rendering_; }
    Rendering(const Rendering&) = delete;
    Rendering& operator=(const Rendering&) = delete;

   private:
    SinkCore& core_;
  };
  /// Send a frame across, under a Rendering: publishes the buffer's slot, or copies the buffer into one. Nothing where
  /// the wait for a slot ended because `stopped()`, or would be one at all. Throws Error.
  [[nodiscard]] std::optional<GstFlowReturn> send(GstBuffer* buffer, const FrameOrigin& origin,
                                                  const std::function<bool()>& stopped, Patience patience);
  /// A frame was dropped before it came here: the next one is marked as discontinuous.
  void mark_hole() noexcept { hole_ = true; }
  /// Frames' ways are followed.
  [[nodiscard]] bool stamping() const noexcept { return stamping_.load(std::memory_order_relaxed); }
  /// Frames that were given up because the ring was full, since the start; 0 where none is.
  [[nodiscard]] std::uint64_t given_up() const;
  [[nodiscard]] std::uint64_t sent() const noexcept { return frames_.load(std::memory_order_relaxed); }
  /// What became of the frames since the start, in a sentence; empty: there were none.
  [[nodiscard]] std::string summary() const;
  /// Frames that found no slot, since the start.
  [[nodiscard]] const std::atomic<std::uint64_t>& dropped() const noexcept { return drops_; }

  /// What was waited before counts for no stall.
  void begin_to_play() noexcept { no_slot_since_ns_ = 0; }
  void set_flushing(bool flushing);
  /// Posts a warning, once a start, where no gpumapsrc is there to take a frame: `why` that matters now.
  void tell_if_alone(const std::string& why);
  /// Posts a warning that this element `has_waited` where a client of the socket has the slots; once for each client
  /// in a row. False: no client has.
  bool tell_who_stalls(const char* has_waited);
  /// Post the error as the element's, from wherever it was met.
  void report(const std::exception& error) const;
  void set_upstream(Upstream upstream) noexcept { upstream_ = upstream; }

  /// Null when stopped.
  [[nodiscard]] std::shared_ptr<Channel> channel() const;
  /// No frame waits for the src.
  [[nodiscard]] bool queue_is_empty() const;
  /// A structure of that name; transfer full.
  [[nodiscard]] GstStructure* stats(const char* name) const;

 private:
  /// What holds from a start to the stop: threads of the pool go on with it while the element stops and starts anew.
  struct Session {
    SinkSettings settings;
    std::shared_ptr<Device> device;
    std::shared_ptr<Channel> channel;
    std::shared_ptr<LatencyLog> log;  ///< null where frames' ways are not followed
  };

  /// What is counted of a ring.
  struct Counters {
    std::uint64_t drops = 0, waits = 0, published = 0;
  };

  [[nodiscard]] std::shared_ptr<const Session> session() const;
  /// Both of one moment: null when stopped, and where there is no ring.
  struct Present {
    std::shared_ptr<const Session> session;
    std::shared_ptr<ChannelRing> ring;
  };
  [[nodiscard]] Present present() const;
  /// Its slots are large enough and as many as are wanted: provision() would leave it as it is.
  [[nodiscard]] bool suffices(const Present& present, std::size_t bytes) const {
    if (!present.session || !present.ring) return false;
    const Ring& ring = present.ring->ring();
    return ring.slot_bytes() >= bytes && !is_outgrown(*present.session, ring);
  }
  /// Of the ring of the moment and of those before it. Under mutex_.
  [[nodiscard]] Counters counters() const;
  void copy(WriteLease& lease, GstBuffer* buffer);
  void count_copied(std::size_t bytes);
  /// Where the next frame of `bytes` goes that upstream writes, in slots of `ring`.
  [[nodiscard]] SlowSlots::Next next_place(const Ring& ring, std::size_t bytes) const;
  /// False: meanwhile another thread made a new ring, and the channel looks for frames there.
  [[nodiscard]] bool publish(ChannelRing& channel_ring, WriteLease& lease, GstBuffer* buffer, std::size_t bytes,
                             const FrameOrigin& origin);
  [[nodiscard]] std::shared_ptr<ChannelRing> channel_ring() const;
  /// Its slots have `spare` bytes more where there is memory for them. Null when a flush came in between. Throws Error.
  [[nodiscard]] std::shared_ptr<Ring> make_ring(const Session& session, std::size_t bytes, std::size_t spare,
                                                const std::weak_ptr<Mapping>& old, std::optional<Transport> replaced);
  void watch_upstream(FrameMemory& bytes);
  void join(GstElement* sink, const SinkSettings& settings, const std::shared_ptr<Channel>& channel);
  /// Nothing: there is another ring now, or there should be. `own`: how many frames the caller is rendering.
  [[nodiscard]] std::optional<RingStatus> wait_for_slot(const Session& session, ChannelRing& channel_ring,
                                                        WriteLease& lease, const std::function<bool()>& stopped,
                                                        Patience patience, int own);
  /// Nobody has had a slot since the first of these calls behind the last slot, of a sink that plays. True: one came
  /// free, for who kept it lost it.
  [[nodiscard]] bool end_stall(const Session& session);
  /// A long time of drops alone gets the warning of a long wait.
  void tell_who_has_all();
  /// No src is there to take a frame, and an event of the application, as a rule EOS, waits for upstream.
  [[nodiscard]] static bool is_kept_from_ending(const Session& session);
  /// The slots that it lacks are its own upstream's: after so many slices of waiting in a row.
  [[nodiscard]] static bool waits_for_itself(const Ring& ring, int slices);
  void give_host_memory(const SinkSettings& settings);
  /// How many slots the ring should have: as many as are set, and as many more as downstream of the src keeps.
  [[nodiscard]] std::uint32_t wanted_slots(const Session& session) const;
  [[nodiscard]] bool is_outgrown(const Session& session, const Ring& ring) const {
    return ring.slots() < wanted_slots(session);
  }
  /// Null, and no further try until the next start, where there is no memory for that.
  [[nodiscard]] std::shared_ptr<Ring> grow_ring(const Session& session, const Ring& ring);

  std::atomic<Upstream> upstream_{Upstream::as_declared};
  SlowSlots slow_slots_;
  SlotCopier copier_;
  std::atomic<bool> lonely_told_{false};
  std::string stall_told_;           ///< under mutex_
  std::atomic<bool> hoards_{false};  ///< upstream kept slots and wanted more than there were
  std::atomic<int> rendering_{0};
  std::atomic<bool> hole_{false};                  ///< frames are missing before the next one
  std::atomic<std::int64_t> no_slot_since_ns_{0};  ///< 0: there was one the last time
  std::atomic<std::int64_t> told_drops_since_ns_{0};
  std::atomic<std::uint32_t> slots_limit_{0};  ///< for more there was no memory
  std::shared_ptr<MapCounters> maps_ = std::make_shared<MapCounters>();

  std::mutex provisioning_;
  std::mutex order_;          ///< of frames and changes of ring, as the channel receives them; ahead of mutex_
  mutable std::mutex mutex_;  ///< of what follows, up to log_
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Session> session_;
  std::shared_ptr<ChannelRing> channel_ring_;  ///< changes under order_, too: read under either
  bool flushing_ = false;
  Counters gone_;                       ///< of rings that are gone
  std::optional<Transport> transport_;  ///< of the ring of the moment, or of the last one
  std::shared_ptr<LatencyLog> log_;     ///< of the session, or of the last one
  std::unique_ptr<Ticker> reports_;
  std::atomic<bool> stamping_{false};

  std::atomic<std::uint64_t> frames_{0}, zero_copy_{0}, copied_{0}, bytes_copied_{0}, bytes_in_place_{0}, drops_{0},
      gathered_{0};
};

}  // namespace gpumap::gst
