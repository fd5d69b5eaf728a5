// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c/c_memory.hpp"
#include "c/c_status.hpp"
#include "c/stream_messages.hpp"
#include "gpumap/link.hpp"
#include "gpumap/ring.hpp"

namespace gpumap::c {

/// What holds for the frames of a stream from some frame on.
struct StreamState {
  std::shared_ptr<const std::string> caps;
  std::optional<gpumap_layout> usual;   ///< as the caps say, where gpumap knows these
  std::optional<gpumap_layout> layout;  ///< as the producer says beside the caps

  void set_caps(const Caps& from);
};

/// What is behind a gpumap_ring: a ring of this process, which a server may have, or a connection.
/// Thread safety: every member from any thread.
class RingCore : public std::enable_shared_from_this<RingCore> {
 public:
  RingCore() = default;
  RingCore(const RingCore&) = delete;
  RingCore& operator=(const RingCore&) = delete;
  virtual ~RingCore() = default;

  /// As the functions of gpumap.h.
  [[nodiscard]] virtual gpumap_status acquire(std::uint32_t when_full, std::int64_t timeout_ns,
                                              std::unique_ptr<Object>& slot) = 0;
  [[nodiscard]] virtual gpumap_status take(std::int64_t timeout_ns, std::unique_ptr<Object>& slot) = 0;
  virtual void publish(WriteLease& lease, const FrameInfo& info) = 0;
  virtual void set_caps(const char* caps) = 0;
  virtual void set_layout(const gpumap_layout* layout) = 0;
  virtual void end() = 0;
  virtual void drop_queued() = 0;
  [[nodiscard]] virtual const std::shared_ptr<Device>& device() const = 0;
  [[nodiscard]] virtual gpumap_ring_info info() const = 0;
  virtual void stop(bool stopped) = 0;
  void close() {
    closed_ = true;
    stop(true);
  }
  [[nodiscard]] const std::atomic<bool>& stopped() const noexcept { return stopped_; }
  /// What a call that was interrupted gives. Throws Failure where the ring was closed.
  [[nodiscard]] gpumap_status interrupted() const;

 protected:
  std::atomic<bool> stopped_{false}, closed_{false};
};

class RingObject final : public Object {
 public:
  static constexpr const char* name = "ring";
  explicit RingObject(std::shared_ptr<RingCore> its_core) : core(std::move(its_core)) {}
  [[nodiscard]] const char* what() const noexcept override { return name; }

  const std::shared_ptr<RingCore> core;
};

/// A slot that was acquired or taken. Thread safety: its turns and its mutex.
class SlotObject final : public Object {
 public:
  static constexpr const char* name = "slot";
  SlotObject(std::shared_ptr<RingCore> of, WriteLease lease)
      : core(std::move(of)), ring(lease.ring()->mapping()), device(lease.ring()->device()), write(std::move(lease)) {
    offset = write.offset();
    bytes = write.bytes();
  }
  SlotObject(std::shared_ptr<RingCore> of, ReadLease lease, const FrameInfo& frame, StreamState its_stream,
             std::shared_ptr<LinkConsumer> from)
      : core(std::move(of)),
        ring(lease.ring()->mapping()),
        device(lease.ring()->device()),
        connection(std::move(from)),
        info(frame),
        stream(std::move(its_stream)),
        written(lease.written()),
        is_taken(true),
        read(std::move(lease)) {
    offset = read.offset();
    bytes = read.ring()->slot_bytes();
  }
  [[nodiscard]] const char* what() const noexcept override { return name; }
  [[nodiscard]] Place place() const noexcept { return {*device, *ring, offset, bytes}; }
  /// Of the frame. Throws Error(not_supported), Error(invalid) for one that leaves the frame.
  [[nodiscard]] gpumap_layout layout() const;
  /// The same, or none where none is known.
  [[nodiscard]] std::optional<gpumap_layout> known_layout() const;
  /// Throws Failure(GPUMAP_ERROR_REVOKED).
  void check_revoked() const;

  const std::shared_ptr<RingCore> core;
  const std::shared_ptr<Mapping> ring;  ///< its memory
  const std::shared_ptr<Device> device;
  const std::shared_ptr<LinkConsumer> connection;  ///< null within a process
  const FrameInfo info;                            ///< of one that was taken
  const StreamState stream;                        ///< likewise
  const Fence written;
  const bool is_taken = false;
  std::size_t offset = 0, bytes = 0;
  Turns turns;       ///< of what publishes or releases it, and at `write`
  WriteLease write;  ///< one of the two is empty; both once it was published or released
  std::mutex mutex;  ///< of `read`
  ReadLease read;
};

/// A ring in this process, which a server may have.
class LocalRing final : public RingCore {
 public:
  explicit LocalRing(std::shared_ptr<Ring> ring) : ring_(std::move(ring)), streams_(ring_->slots()) {}

  [[nodiscard]] gpumap_status acquire(std::uint32_t when_full, std::int64_t timeout_ns,
                                      std::unique_ptr<Object>& slot) override;
  [[nodiscard]] gpumap_status take(std::int64_t timeout_ns, std::unique_ptr<Object>& slot) override;
  void publish(WriteLease& lease, const FrameInfo& info) override;
  void set_caps(const char* caps) override;
  void set_layout(const gpumap_layout* layout) override;
  void end() override;
  void drop_queued() override;
  [[nodiscard]] const std::shared_ptr<Device>& device() const override { return ring_->device(); }
  [[nodiscard]] gpumap_ring_info info() const override;
  void stop(bool stopped) override;

  /// The ring's one server. Throws Error(invalid) where there is or was one, or where frames are queued.
  void serve(LinkServerOptions options, std::int64_t base_ns);
  /// The end of that server.
  void end_serving() noexcept;
  /// Null: there is none, or it ends.
  [[nodiscard]] std::shared_ptr<LinkServer> server() const;

 private:
  void tell_of_segment();

  const std::shared_ptr<Ring> ring_;
  std::vector<StreamState> streams_;  ///< of the frame in each slot: whose lease it is
  mutable std::mutex mutex_;          ///< of what follows; messages to clients keep their order by it
  StreamState stream_;
  std::optional<Caps> caps_;
  std::shared_ptr<LinkServer> server_;
  bool was_served_ = false;
  std::atomic<unsigned> takers_{0};  ///< threads in take(); grows under mutex_
  bool told_segment_ = false;
  bool ended_ = false;
};

/// The ring of another process. Throws as LinkConsumer::connect().
[[nodiscard]] std::shared_ptr<RingCore> connect_ring(const char* path, const gpumap_connect_options& options);

/// The members that a ring of either kind fills in.
[[nodiscard]] gpumap_ring_info info_of(const Ring& ring);

}  // namespace gpumap::c
