// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/export.hpp"
#include "gpumap/latency.hpp"
#include "gpumap/ring.hpp"

namespace gpumap {

/// A ring between processes of one machine: a producer serves the ring that it writes, up to max_link_clients consumers
/// see its frames, each in a ring of its own on the same memory. One ring may follow another. Either side may die at
/// any moment and costs the others nothing but its frames.

struct ThreadSchedule;

inline constexpr std::uint32_t max_link_clients = 16;
inline constexpr std::size_t max_link_message = 1'000'000;  ///< bytes of LinkServer::send()
inline constexpr std::size_t max_link_answer = 60'000;      ///< bytes of LinkServer::answer()
inline constexpr std::size_t max_link_note = 16'384;        ///< bytes of a note of LinkServer::show()
inline constexpr std::size_t max_link_question = 4096;      ///< bytes of LinkConsumer::ask() and tell()

/// What a client misses that is slower than the producer.
enum class LinkLeak : std::uint32_t {
  no,      ///< nothing: it stops the producer, and so all
  newest,  ///< frames that come while it has its share of the slots
  oldest,  ///< the oldest frames that it has not taken yet
};

struct LinkClient {
  std::uint32_t index = 0;
  std::uint64_t connection = 0;  ///< 1, 2, … in the order in which a server's clients came
  pid_t pid = 0;
  uid_t uid = 0;
  std::string name;  ///< what it calls itself: printable, at most 63 bytes
  LinkLeak leak = LinkLeak::no;
  std::uint64_t shown = 0;    ///< frames that it got, or still may take
  std::uint64_t dropped = 0;  ///< frames that it missed
  std::uint32_t slots = 0;    ///< that it has now
  bool ended = false;         ///< it takes no more frames, and keeps those slots until its application lets them go
};

/// What a client sent by LinkConsumer::ask() or tell(). Not to be trusted.
struct LinkQuestion {
  LinkClient who;
  std::uint64_t server = 0;  ///< the generation of the one that was asked
  std::uint64_t number = 0;  ///< 0: it wants no answer
  std::vector<std::byte> text{};
};

/// A path that is taken: a socket listens there, and nobody answers until a LinkServer serves a ring at it. Who
/// connects before waits, for 2 s at a time, and tries again. One server after the other may have it; meanwhile nobody
/// else can.
///
/// Thread safety: every member from any thread. It belongs to the process that took it: in a child of fork() its end
/// leaves the file alone.
class GPUMAP_API LinkAddress {
 public:
  /// Error(invalid): a path that is too long, is no socket, or is served or taken by a process that lives; Error(io):
  /// no such folder, or no right to it. A file that a dead server left is replaced. `mode`: of the socket's file.
  [[nodiscard]] static std::shared_ptr<LinkAddress> take(const std::string& path, mode_t mode = 0600);
  /// The file goes.
  ~LinkAddress();
  LinkAddress(const LinkAddress&) = delete;
  LinkAddress& operator=(const LinkAddress&) = delete;

  [[nodiscard]] const std::string& path() const noexcept;

 private:
  friend class LinkServer;
  struct GPUMAP_NO_EXPORT State;
  explicit LinkAddress(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct LinkServerOptions {
  std::string path;                    ///< of the socket, at most 107 bytes
  mode_t mode = 0600;                  ///< of the socket's file
  std::vector<uid_t> allowed_users{};  ///< beside the user of this process
  std::uint32_t max_clients = max_link_clients;
  bool may_stall = true;      ///< false: who asks for LinkLeak::no is refused
  std::uint32_t reserve = 2;  ///< slots that clients with another LinkLeak never get
  /// Disconnects the client that keeps the oldest frame, of those with LinkLeak::no if there are any, when no slot was
  /// free for this time, while the producer waits or is told `full` each time. Default: 0, no limit. The limit keeps a
  /// process that is stopped (SIGSTOP) or in a debugger from stopping all. Between two looks for a slot no more than
  /// half of it counts, so that a producer that was stopped with its clients waits for them once more.
  std::chrono::nanoseconds stall_limit{0};
  /// How long the end of a server waits for clients to be done with what was published; then it is taken from them,
  /// unless the server was told to leave().
  std::chrono::nanoseconds linger = std::chrono::seconds(1);
  /// Called in the link's own thread, in their order; must not call the server. `reason`: why it went, empty when it
  /// came.
  std::function<void(const LinkClient& client, const std::string& reason)> on_client{};
  /// Called in the same thread, which clients' comings and goings wait for meanwhile: to be moved from, and answered in
  /// another one. False: it will not be answered, and who asked has an empty answer at once.
  std::function<bool(LinkQuestion& question)> on_question{};
  /// How many frames the application has given up because the ring was full, for reports: where it may look for a slot
  /// more than once for a frame, only it can tell. Null: each acquire that found the ring full was one. It outlives the
  /// server.
  const std::atomic<std::uint64_t>* dropped = nullptr;
  /// Called in the link's own thread when clients came, went, read what was unread or came to the ring, after wake(),
  /// and every `turn`.
  /// It may call the server, but for its destructor, and must not wait for clients.
  std::function<void()> on_turn{};
  std::chrono::milliseconds turn{100};
  const ThreadSchedule* schedule =
      nullptr;  ///< of that thread, looked at as it starts; null: as the one that starts it
  /// Taken before, instead of `path` and `mode`. Another server may have it once this one has ended.
  std::shared_ptr<LinkAddress> address{};
};

struct LinkCounters {
  std::uint64_t connected = 0, disconnected = 0, refused = 0;  ///< clients since the start
  std::uint64_t liars = 0;                                     ///< of the disconnected ones
  std::uint64_t observed = 0;           ///< reports made; several observers at once may get the same
  std::uint64_t wakes = 0;              ///< clients woken by a system call
  std::int64_t longest_reclaim_ns = 0;  ///< from hearing that a client is gone to its last slot being free
  std::uint64_t starved = 0;            ///< looks at which one waited whom no descriptor of this process is left for
};

/// The producer's side. It is the consumer of its ring: nobody else may receive() from it.
///
/// Ownership: shares the ring. Thread safety: every member from any thread. It serves the process that made it: in a
/// child of fork() it does nothing. It has one thread, which accepts clients, hears of their end, and collects what
/// they give back while the producer waits.
class GPUMAP_API LinkServer {
 public:
  /// Errors of LinkAddress::take(), and Error(not_supported): memory that cannot be passed on; Error(invalid): an
  /// address that another server has.
  [[nodiscard]] static std::unique_ptr<LinkServer> serve(std::shared_ptr<Ring> ring, LinkServerOptions options);
  /// The same without a ring: clients wait at the path until change() brings one.
  [[nodiscard]] static std::unique_ptr<LinkServer> serve(LinkServerOptions options);
  /// Clients get what was published, then `closed`. Waits for LinkServerOptions::linger; what clients hold then is no
  /// longer theirs, see LinkConsumer::revoked().
  ~LinkServer();
  LinkServer(const LinkServer&) = delete;
  LinkServer& operator=(const LinkServer&) = delete;

  /// As Ring::acquire(), and collects what clients gave back: for as long as the ring spins, 50 ms at most, without a
  /// system call on either side. `drop_oldest` takes back what no client has taken, also from those with LinkLeak::no.
  [[nodiscard]] RingStatus acquire(WriteLease& lease, WhenFull when_full = WhenFull::block,
                                   Deadline deadline = no_deadline);
  /// Ring::publish() and hand_on().
  void publish(WriteLease& lease, const FrameInfo& info);
  /// Show the clients what was published on the ring, and collect what they gave back. Without a client frames are
  /// dropped. Waits for the DMA of Transport::pinned, 5 s at most. Throws Error(device_lost).
  void hand_on();
  /// The same for one frame that the caller received from the ring: for who keeps an order of its own among frames and
  /// messages, and then calls this instead of hand_on() and publish(). `note` arrives with this frame and no other, in
  /// memory that is shared, as the frame is: it costs a copy for each client, and no system call. An empty lease: only
  /// collects. Error(invalid) for a lease of another ring, and for more than max_link_note bytes.
  void show(ReadLease lease, std::span<const std::byte> note = {});

  /// What becomes of a message to a client that leaves much unread. skip: it does not get the message if it has more
  /// than 256 unread, and may miss frames where the message is in order with them; replace: the message takes the place
  /// of the last one, if that has the same key, waits for room in the client's socket, and no frame came in between.
  enum class Unread { send, skip, replace };
  /// A message to every client, in order with the frames: after those handed on so far, before later ones.
  /// `keep`: not 0: clients that come later get it first; a later message with the same key takes its place.
  /// Error(invalid) for one of more than max_link_message bytes. A client that does not read 1024 of them is
  /// disconnected; a long one counts for each max_link_answer bytes that it has. See wait_until_read().
  void send(std::span<const std::byte> message, std::uint32_t keep = 0, Unread unread = Unread::send);
  /// The same, but it overtakes frames and messages that clients have not taken, and is not kept. Unread::replace is as
  /// Unread::send.
  void send_at_once(std::span<const std::byte> message, Unread unread = Unread::send);
  /// The answer to a question; nothing where who asked is gone. Error(invalid) as for send().
  void answer(const LinkQuestion& question, std::span<const std::byte> text);
  /// Until no client with LinkLeak::no has more than 256 messages unread, so that such a client, which may be paused,
  /// is waited for and not disconnected. False: the deadline came first.
  [[nodiscard]] bool wait_until_read(Deadline deadline);
  /// Remember what was sent in order so far, and whether who asks this, here or of another server, and others of that
  /// process that have asked something (some only look now and then), have taken all of that.
  void mark();
  [[nodiscard]] bool is_past_mark(const LinkQuestion& question) const;
  /// Whether every client has come to the ring, after all frames of the ring before, or those that may miss nothing
  /// have: otherwise one keeps the memory of both. Clients that missed a ring do not count. Never waits.
  enum class Whom { all, may_miss_nothing };
  [[nodiscard]] bool all_follow(Whom whom = Whom::all) const;
  /// Disconnect those that wait_until_read() waits for, and those that do not follow.
  void end_unread();
  /// Take back all frames that clients have not taken (a flush).
  void withdraw_all();
  /// Clients that come later are not told what was sent with this key.
  void forget(std::uint32_t keep);
  /// Take back the oldest frames that clients have not taken, also from those with LinkLeak::no, until a slot is free:
  /// what acquire() does for WhenFull::drop_oldest, for who found the ring itself full. False: no slot came free.
  [[nodiscard]] bool make_room();
  /// Disconnect who keeps the producer waiting, as acquire() does, for who waits at the ring itself and has found no
  /// slot `since`: past LinkServerOptions::stall_limit clients go until a slot is free. To be called again and again
  /// while it waits: nothing else looks. False: no slot came free.
  [[nodiscard]] bool end_stall(Deadline since);

  /// The client that end_stall() would disconnect, past a limit, or that end_unread() would; empty: none has a frame
  /// and none is waited for.
  [[nodiscard]] std::optional<LinkClient> who_stalls() const;

  /// Go on with another ring: clients take what is left of the one before, then have LinkNext::ring. What they hold of
  /// that, and have yet to take, stays theirs, also when this process has ended; nobody writes there while the ring
  /// lives. Null: there is none for now, and clients let go of the one before. `earlier_frames`: of the application's
  /// rings before this one: clients get each frame's number with it added, so that they see whether they missed some.
  /// A client that may miss frames and has not come to the last ring misses this one, and joins the one that there is
  /// when it comes. Errors of serve() for memory; Error(invalid): the present ring, or one of which clients had frames
  /// when another one followed, for it would lack their slots. Clients that have no descriptors for it are
  /// disconnected.
  void change(std::shared_ptr<Ring> ring, std::uint64_t earlier_frames = 0);
  /// The end of a server whose ring is done with: it waits for nobody to read (for messages to go out it does, for
  /// LinkServerOptions::linger at most) and takes nothing back. What clients hold, and what they have yet to take,
  /// stays theirs, also when this process has ended. The leases are those of the slots in question: nobody writes there
  /// while they live. Afterwards the server is good for its destructor alone.
  [[nodiscard]] std::vector<ReadLease> leave();
  /// As at its end, but without a wait: clients take what was published and go, and the path is free. Nothing is shown
  /// any more.
  void close();
  /// LinkServerOptions::on_turn is called soon.
  void wake() noexcept;

  [[nodiscard]] std::vector<LinkClient> clients() const;
  [[nodiscard]] LinkCounters counters() const;
  /// Until there is a client that takes frames: one that has ended and keeps leases does not; one that misses frames
  /// until it comes to the ring counts. False: the deadline came first.
  [[nodiscard]] bool wait_for_client(Deadline deadline);
  [[nodiscard]] const std::string& path() const noexcept;
  /// Of this server: no other one, before or after it, has the same. Never 0.
  [[nodiscard]] std::uint64_t generation() const noexcept;

 private:
  struct GPUMAP_NO_EXPORT State;
  class GPUMAP_NO_EXPORT Seat;
  explicit LinkServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct LinkConsumerOptions {
  std::string path;
  std::string name{};  ///< printable, at most 63 bytes; for the server's lists and logs
  LinkLeak leak = LinkLeak::oldest;
  std::vector<uid_t> allowed_users{};    ///< whose servers are believed, beside the user of this process
  std::uint64_t generation = 0;          ///< connect to this server only; 0: to any
  std::chrono::nanoseconds patience{0};  ///< try again for this time, in pauses of an eighth of it, 10 ms to 1 s
  std::chrono::nanoseconds spin{
      0};  ///< busy-poll for frames for this time before next() sleeps, 50 ms at most; else nothing is heard
  const std::atomic<bool>* cancel = nullptr;  ///< ends the tries when it becomes true
  /// Called by connect(), once, when the server has had no place for this client for 1 s: with the reason, while it
  /// tries again.
  std::function<void(const std::string& why)> on_full{};
};

/// A frame, or a message, as the producer published it.
struct LinkFrame {
  FrameInfo info;  ///< of the producer's ring, its sequence included; with the `earlier_frames` of LinkServer::change()
  std::vector<std::byte> note{};  ///< LinkNext::frame: what was shown with it. Not to be trusted
  /// LinkNext::frame: its way up to `published`, where the producer's ring stamps. None lies in the future.
  std::optional<FrameRecord> stamps{};
  std::vector<std::byte> message{};  ///< LinkNext::message
};

/// `ring`: all frames of the ring before are taken, and LinkConsumer::ring() is another one, or null.
enum class LinkNext { frame, message, ring, timeout, interrupted, closed };

/// A consumer's side: a connection, and a ring on the producer's memory, whose slots are the producer's by number.
///
/// A slot goes back to the producer once its ReadLease has ended and its read fences have signalled: at the next call
/// of next(), else 2 ms later at most while the connection's thread runs. Leases may outlive this object: the
/// connection then lives until the last of them has ended.
///
/// A GPU context that is lost ends the connection, with the reason in why(): 0.1 s after Device::lost() tells of it, or
/// a fence of a slot that waits to go back does. All slots are the producer's then, those under a lease too: revoked().
///
/// Ownership: shares the device. Thread safety: next() from one thread at a time, the rest from any.
class GPUMAP_API LinkConsumer {
 public:
  /// Error(not_found): nobody serves there within the patience; Error(busy): the server is full, or does not answer;
  /// Error(no_resources): this process has no descriptor, thread or memory left, which is not waited for;
  /// Error(invalid): it refuses, with its reason, or has another version; Error(not_supported): memory of another GPU
  /// than `device`.
  [[nodiscard]] static std::unique_ptr<LinkConsumer> connect(std::shared_ptr<Device> device,
                                                             LinkConsumerOptions options);
  /// The same, on the GPU that the server's memory is on; where it is on none, on the first one. Error(no_device): this
  /// process does not see that GPU.
  [[nodiscard]] static std::unique_ptr<LinkConsumer> connect(LinkConsumerOptions options);
  ~LinkConsumer();
  LinkConsumer(const LinkConsumer&) = delete;
  LinkConsumer& operator=(const LinkConsumer&) = delete;

  /// The next frame, message or ring. What `lease` held is released first. `closed` once the producer is gone and all
  /// that it published has been taken: why() tells. Errors of connect() for the memory of the producer's next ring: the
  /// connection has ended then.
  [[nodiscard]] LinkNext next(ReadLease& lease, LinkFrame& frame, Deadline deadline = no_deadline);
  /// As next(), but a frame stays in ring(), published, for who receives there; `before(slot)` is called ahead of that.
  /// Releases are then those of its leases; what nobody received goes back once this object and all handles of the ring
  /// are gone. A connection is used by next() or by pass(), not by both.
  [[nodiscard]] LinkNext pass(LinkFrame& frame, const std::function<void(std::uint32_t slot)>& before,
                              Deadline deadline = no_deadline);
  /// As next(), but only for messages that were sent at once: for who takes no frames now. timeout, interrupted or
  /// message; with Hear::rings also `ring`, while another one follows. Rings and the end are given by next().
  enum class Hear { messages, rings };
  [[nodiscard]] LinkNext hear(LinkFrame& frame, Deadline deadline = no_deadline, Hear what = Hear::messages);
  /// Tell the producer something, without an answer. False: it is gone, or has so much unread that this is lost.
  /// Error(invalid) for more than max_link_question bytes. Any thread.
  [[nodiscard]] bool tell(std::span<const std::byte> text);
  /// Ask the producer. False: no answer came before the deadline, or it is gone. Error(invalid) as above. Any thread,
  /// and any number of them: frames and messages for next() stay where they are. `meanwhile`: called every 2 ms or more
  /// often, without a lock.
  [[nodiscard]] bool ask(std::span<const std::byte> text, std::vector<std::byte>& answer, Deadline deadline,
                         const std::function<void()>& meanwhile = nullptr);
  /// next() returns `interrupted` once.
  void interrupt() noexcept;

  /// The server took back what this client held of ring(), for it kept the producer waiting too long or was not done
  /// when the server ended: what is being read may be a later frame. Ask after reading, where that can be. Nothing of
  /// the rings before is taken back.
  [[nodiscard]] bool revoked() const noexcept;
  /// The same, while the server goes on: the slots are being written anew. At a server's end that is its application's
  /// affair.
  [[nodiscard]] bool cut_off() const noexcept;
  /// cut_off() for who holds leases of ring() when this object has gone or has another ring: the answer counts as long
  /// as one of them lives.
  [[nodiscard]] std::function<bool()> asks_whether_cut_off() const;
  /// Frames that a client with another policy than LinkLeak::no was not shown, since it had all the slots that it may
  /// have, or the producer had no more than it needs. It grows while nothing comes back; each ring() counts anew.
  [[nodiscard]] std::uint64_t passed_over() const noexcept;
  [[nodiscard]] std::uint32_t held() const;  ///< slots of ring() that have not gone back
  [[nodiscard]] std::string why() const;     ///< why it is closed; empty while it is not
  [[nodiscard]] bool ended_well() const;     ///< closed, as the server said that it would be when it ended
  /// The one whose frames next() gives. Null: the producer has none for now.
  [[nodiscard]] std::shared_ptr<Ring> ring() const;
  [[nodiscard]] std::uint64_t generation() const noexcept;  ///< the server's

 private:
  struct GPUMAP_NO_EXPORT State;
  explicit LinkConsumer(std::shared_ptr<State> state);
  [[nodiscard]] LinkNext wait_for(LinkFrame& frame, const std::function<LinkNext(std::uint32_t slot)>& hand_over,
                                  Deadline deadline);
  [[nodiscard]] static std::unique_ptr<LinkConsumer> connect_on(std::shared_ptr<Device> device,
                                                                LinkConsumerOptions options);
  std::shared_ptr<State> state_;
};

/// Host memory that a link can pass on where the device's own cannot be: clients map it read-only. No GPU sees it.
/// Thread-safe. Throws Error(io).
[[nodiscard]] GPUMAP_API std::shared_ptr<Mapping> make_link_memory(std::size_t bytes);

}  // namespace gpumap
