// SPDX-License-Identifier: MIT
// Rings between processes: serving one, and being connected to one.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "c/c_ring.hpp"
#include "c/stream_messages.hpp"
#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"

namespace gpumap::c {
namespace {

class ConnectedRing final : public RingCore {
 public:
  ConnectedRing(const char* path, const gpumap_connect_options& options) {
    link_.path = path;
    link_.name = text_or(options.name, "gpumap");
    switch (options.leaky) {
      case GPUMAP_LEAKY_OLDEST:
        link_.leak = LinkLeak::oldest;
        break;
      case GPUMAP_LEAKY_NEWEST:
        link_.leak = LinkLeak::newest;
        break;
      case GPUMAP_LEAKY_NO:
        link_.leak = LinkLeak::no;
        break;
      default:
        throw Error(ErrorCode::invalid, fmt::format("leaky is {}: see gpumap_leaky", options.leaky));
    }
    // A year for what has no limit: sums with it stay countable.
    constexpr std::chrono::nanoseconds longest = std::chrono::hours(24 * 365);
    link_.patience = std::min(patience_of(options.timeout_ns), longest);
    link_.spin = std::chrono::nanoseconds(std::max<std::int64_t>(options.spin_ns, 0));
    link_.cancel = &stopped_;
    if (options.device != nullptr) device_ = use<DeviceObject>(options.device)->device;
    consumer_ = device_ ? LinkConsumer::connect(device_, link_) : LinkConsumer::connect(link_);
    device_ = consumer_->ring()->device();
  }

  [[nodiscard]] gpumap_status acquire(std::uint32_t, std::int64_t, std::unique_ptr<Object>&) override { refuse(); }
  void publish(WriteLease&, const FrameInfo&) override { refuse(); }
  void set_caps(const char*) override { refuse(); }
  void set_layout(const gpumap_layout*) override { refuse(); }
  void end() override { refuse(); }

  [[nodiscard]] gpumap_status take(std::int64_t timeout_ns, std::unique_ptr<Object>& slot) override {
    const Deadline deadline = deadline_of(timeout_ns);
    std::unique_lock lock(taking_, std::defer_lock);
    LinkFrame frame;
    for (;;) {
      if (stopped_) return interrupted();
      // One thread listens to the connection. Others wait for it, and it waits for those that drop what is queued.
      if (lock.owns_lock() && drops_ != 0) lock.unlock();
      if (!lock.owns_lock() && (drops_ != 0 || !lock.try_lock())) {
        if (Clock::now() >= deadline) return GPUMAP_TIMEOUT;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      if (std::exchange(dropped_end_, false)) return GPUMAP_END;
      ReadLease lease;
      switch (consumer_->next(lease, frame, deadline)) {
        case LinkNext::frame:
          ++taken_;
          slot = std::make_unique<SlotObject>(shared_from_this(), std::move(lease), frame.info, stream_, consumer_);
          return GPUMAP_OK;
        case LinkNext::message:
          if (read(frame.message)) return GPUMAP_END;
          break;
        case LinkNext::ring:
          ++rings_;
          break;
        case LinkNext::timeout:
          return GPUMAP_TIMEOUT;
        case LinkNext::interrupted:
          break;
        case LinkNext::closed:
          throw Failure(GPUMAP_ERROR_CLOSED, fmt::format("the producer at {} is gone ({}): connect again when it is "
                                                         "back",
                                                         link_.path, consumer_->why()));
      }
    }
  }

  void drop_queued() override {
    ++drops_;
    consumer_->interrupt();
    const std::lock_guard lock(taking_);
    --drops_;
    const auto slots = [this] {
      const auto ring = consumer_->ring();
      return ring ? ring->slots() : 1;
    };
    LinkFrame frame;
    // At most one round, as in one process: a producer that goes on publishing does not keep us here.
    for (std::uint32_t left = slots(); left != 0;) {
      ReadLease lease;
      const LinkNext next = consumer_->next(lease, frame, Deadline{});
      if (next == LinkNext::frame) --left;
      if (next == LinkNext::message) dropped_end_ = read(frame.message) || dropped_end_;
      if (next == LinkNext::ring) {
        ++rings_;
        left = slots();
      }
      if (next == LinkNext::timeout || next == LinkNext::closed) return;
    }
  }

  [[nodiscard]] const std::shared_ptr<Device>& device() const override { return device_; }
  [[nodiscard]] gpumap_ring_info info() const override {
    const auto ring = consumer_->ring();
    gpumap_ring_info made = ring ? info_of(*ring) : gpumap_ring_info();
    made.taken = taken_;
    made.connected = 1;
    made.rings = rings_;
    put_text(made.why, consumer_->why());
    return made;
  }
  void stop(bool stopped) override {
    stopped_ = stopped;
    if (stopped) consumer_->interrupt();
  }

 private:
  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::invalid,
                "this ring is another process's: only that writes to it; make one by gpumap_ring_create() to publish");
  }
  /// True: the stream has ended.
  bool read(std::span<const std::byte> message) {
    StreamNews news = read_message(message);
    switch (news.kind) {
      case StreamNews::Kind::caps:
        stream_.set_caps(news.caps);
        break;
      case StreamNews::Kind::layout:
        stream_.layout = news.layout;
        break;
      case StreamNews::Kind::end:
        return true;
      case StreamNews::Kind::other:
        break;
    }
    return false;
  }

  LinkConsumerOptions link_;
  std::shared_ptr<Device> device_;
  std::mutex taking_;          ///< of stream_, of dropped_end_, and of next()
  std::atomic<int> drops_{0};  ///< calls of drop_queued() that wait for it
  StreamState stream_;
  bool dropped_end_ = false;  ///< the stream ended behind what was dropped: the next take() tells it
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::uint32_t> rings_{1};
  std::shared_ptr<LinkConsumer> consumer_;
};

class ServerObject final : public Object {
 public:
  static constexpr const char* name = "server";
  explicit ServerObject(std::shared_ptr<LocalRing> of) : ring(std::move(of)) {}
  ~ServerObject() override { ring->end_serving(); }
  [[nodiscard]] const char* what() const noexcept override { return name; }
  /// Throws Failure where it was closed meanwhile.
  [[nodiscard]] std::shared_ptr<LinkServer> get() const {
    auto alive = ring->server();  // none from the beginning of its end on
    if (!alive) throw Failure(GPUMAP_ERROR_CLOSED, "this server was closed");
    return alive;
  }

  const std::shared_ptr<LocalRing> ring;
};

}  // namespace

std::shared_ptr<RingCore> connect_ring(const char* path, const gpumap_connect_options& options) {
  return std::make_shared<ConnectedRing>(path, options);
}

}  // namespace gpumap::c

using namespace gpumap;     // NOLINT: definitions of the C interface
using namespace gpumap::c;  // NOLINT

gpumap_status gpumap_ring_connect(const char* path, const gpumap_connect_options* options, gpumap_ring* ring) {
  return guarded([&] {
    need(ring, "where the ring is to go");
    need(path, "the socket's path");
    HandleTable::get().check_process();
    hand_out(std::make_unique<RingObject>(connect_ring(path, options_of(options, "gpumap_connect_options"))), ring);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_ring_serve(gpumap_ring ring, const char* path, const gpumap_serve_options* options,
                                gpumap_server* server) {
  return guarded([&] {
    need(server, "where the server is to go");
    need(path, "the socket's path");
    const auto object = use<RingObject>(ring);
    const auto local = std::dynamic_pointer_cast<LocalRing>(object->core);
    if (!local) throw Error(ErrorCode::invalid, "this ring is another process's, which serves it");
    const gpumap_serve_options wanted = options_of(options, "gpumap_serve_options");
    LinkServerOptions made;
    made.path = path;
    if (wanted.mode != 0) made.mode = wanted.mode;
    if (wanted.max_clients != 0) made.max_clients = wanted.max_clients;
    made.may_stall = wanted.refuse_waiting == 0;
    if (wanted.reserve != 0) made.reserve = wanted.reserve;
    made.stall_limit = std::chrono::nanoseconds(std::max<std::int64_t>(wanted.stall_limit_ns, 0));
    if (wanted.linger_ns != 0) made.linger = patience_of(wanted.linger_ns);
    const std::int64_t base_ns = wanted.base_time_ns != 0 ? wanted.base_time_ns : monotonic_ns();
    local->serve(std::move(made), base_ns);
    hand_out(std::make_unique<ServerObject>(local), server);
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_server_close(gpumap_server server) {
  return guarded([&] {
    // At once, though another thread waits for a client.
    if (server != nullptr) close<ServerObject>(server)->ring->end_serving();
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_server_get_info(gpumap_server server, gpumap_server_info* info) {
  return guarded([&] {
    const auto serving = use<ServerObject>(server)->get();
    const LinkCounters counters = serving->counters();
    gpumap_server_info made{};
    made.connected = counters.connected;
    made.disconnected = counters.disconnected;
    made.refused = counters.refused;
    made.clients = static_cast<std::uint32_t>(serving->clients().size());
    tell(made, info, "gpumap_server_info");
    return GPUMAP_OK;
  });
}

gpumap_status gpumap_server_wait_for_client(gpumap_server server, int64_t timeout_ns) {
  return guarded([&]() -> gpumap_status {
    // In slices: closing the server waits for no longer than that.
    constexpr std::chrono::milliseconds slice{50};
    const Deadline deadline = deadline_of(timeout_ns);
    const auto object = use<ServerObject>(server);
    for (;;) {
      if (object->get()->wait_for_client(std::min<Deadline>(deadline, Clock::now() + slice))) return GPUMAP_OK;
      if (Clock::now() >= deadline) return GPUMAP_TIMEOUT;
    }
  });
}
