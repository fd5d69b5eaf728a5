// SPDX-License-Identifier: MIT
#include "gst/channel/inlet.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"
#include "gpumap/thread_schedule.hpp"
#include "gst/channel/meta_text.hpp"
#include "gst/channel/pipeline_state.hpp"
#include "gst/channel/upstream_asks.hpp"
#include "gst/gst_error.hpp"
#include "gst/latency/latency_report.hpp"
#include "gst/ptr.hpp"

GST_DEBUG_CATEGORY_EXTERN(gpumap_src_debug);
#define GST_CAT_DEFAULT gpumap_src_debug

namespace gpumap::gst {

using namespace std::chrono_literals;

namespace {

constexpr auto second_look = 50ms;
/// A server that starts makes its socket, and gives others access, in less time.
constexpr std::chrono::nanoseconds patience_for_server = 2s;

/// Rings that a src has not come to. A producer that continues with another ring is followed without waiting for it.
constexpr std::size_t max_rings = 4;

/// No frame has this number: the first one follows no other.
constexpr std::uint64_t any_sequence = ~std::uint64_t{0};

GstClockTime gst_time(std::int64_t time) {
  return time < 0 ? GST_CLOCK_TIME_NONE : static_cast<GstClockTime>(time);
}

/// Why no connection to `path`, which has no server, can succeed until a person changes what is there. Empty: it may
/// succeed.
std::optional<FiguredError> obstacle_at(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) {
      return FiguredError(
          Error(ErrorCode::open_read,
                fmt::format("gpumapsrc waits at socket-path {}, which is there and is no socket", printable(path)),
                "choose the path that the gpumapsink has"),
          {{"socket-path", path}});
    }
    if (faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0) return {};
  }
  if (errno != EACCES) return {};
  return FiguredError(
      Error(ErrorCode::open_read,
            fmt::format("gpumapsrc waits at socket-path {}, to which user {} has no right", printable(path), geteuid()),
            "run both as one user, or see socket-mode and allowed-users of the gpumapsink, and the folder's mode"),
      {{"socket-path", path}, {"user", std::uint64_t{geteuid()}}});
}

/// The producer has as many clients as it takes, and this one is not to wait.
struct NoPlace : FiguredError {
  using FiguredError::FiguredError;
};

/// A client's name for the link.
std::string link_name(const gchar* name) {
  constexpr std::size_t most = 50;
  return printable(name, {}, most);
}

/// Gives times, flags and metas of a frame to `carrier`.
void fill_carrier(GstBuffer* carrier, const LinkFrame& frame, bool after_hole, NewNames& names) {
  const FrameInfo& info = frame.info;
  GST_BUFFER_PTS(carrier) = gst_time(info.pts);
  GST_BUFFER_DTS(carrier) = gst_time(info.dts);
  GST_BUFFER_DURATION(carrier) = gst_time(info.duration);
  GST_BUFFER_OFFSET(carrier) = info.offset;
  GST_BUFFER_OFFSET_END(carrier) = info.offset_end;
  constexpr std::uint32_t of_frames =
      GST_BUFFER_FLAG_LIVE | GST_BUFFER_FLAG_DISCONT | GST_BUFFER_FLAG_RESYNC | GST_BUFFER_FLAG_CORRUPTED |
      GST_BUFFER_FLAG_MARKER | GST_BUFFER_FLAG_HEADER | GST_BUFFER_FLAG_GAP | GST_BUFFER_FLAG_DROPPABLE |
      GST_BUFFER_FLAG_DELTA_UNIT | GST_BUFFER_FLAG_SYNC_AFTER | GST_BUFFER_FLAG_NON_DROPPABLE |
      GST_BUFFER_FLAG_DECODE_ONLY | GST_VIDEO_BUFFER_FLAG_INTERLACED | GST_VIDEO_BUFFER_FLAG_TFF |
      GST_VIDEO_BUFFER_FLAG_RFF | GST_VIDEO_BUFFER_FLAG_ONEFIELD | GST_VIDEO_BUFFER_FLAG_MULTIPLE_VIEW |
      GST_VIDEO_BUFFER_FLAG_FIRST_IN_BUNDLE;
  GST_BUFFER_FLAG_SET(carrier, info.flags & of_frames);
  if (after_hole) GST_BUFFER_FLAG_SET(carrier, GST_BUFFER_FLAG_DISCONT);
  if (!add_metas(carrier, frame.note, info.bytes, names)) {
    GST_WARNING("the producer sent metas that are not understood, or cannot be: left out");
  }
}

}  // namespace

/// Upstream of the gpumapsink that is connected at the moment.
class Inlet::Far final : public FarSink {
 public:
  bool send(GstEvent* event) override { return asks.send(event); }
  bool query(GstQuery* query) override { return asks.query(query); }

  UpstreamAsks asks;

  // Whose turn it is to take from the connection. The src's while it waits for a frame. The inlet's when something else
  // came, and when the src has been away for longer than it takes to hand on a frame: each change costs two threads a
  // switch.

  void nudge() noexcept override {
    const std::lock_guard lock(turn_);
    ++nudges_;
    if (taker_ == Taker::src) follows_->interrupt();
  }
  [[nodiscard]] std::uint64_t nudges() const noexcept override { return nudges_; }
  bool bring(const Ring& ring, std::uint64_t nudges, Deadline deadline) override {
    std::unique_lock lock(turn_);
    if (follows_ == nullptr || ring_ != &ring) return false;
    if (taker_ == Taker::inlet || handed_) {
      wanted_ = true;
      if (taker_ == Taker::inlet) follows_->interrupt();
      return false;
    }
    if (nudges_ != nudges) return true;
    taker_ = Taker::src;
    lock.unlock();
    LinkNext next = LinkNext::closed;
    std::exception_ptr failure;
    try {
      next = inlet_->bring(deadline);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    taker_ = Taker::nobody;
    ++turns_;
    away_ = false;
    failure_ = failure;
    if (next == LinkNext::message || next == LinkNext::ring || next == LinkNext::closed) handed_ = next;
    if (handed_ || ends_) turned_.notify_all();
    return true;
  }

  /// From here on the src may take frames of `consumer`, which end_turns() ends.
  void begin_turns(Inlet& inlet, LinkConsumer& consumer) {
    const std::lock_guard lock(turn_);
    inlet_ = &inlet;
    follows_ = &consumer;
    taker_ = Taker::inlet;
    handed_.reset();
    wanted_ = false;
    away_ = true;
  }
  /// The ring that consumer's frames go through from here on; null: there is none.
  void follow(Ring* ring) {
    const std::lock_guard lock(turn_);
    ring_ = ring;
  }
  /// Gives the inlet's turn away until it is the inlet's again, `limit` at most. True: it is; `left`: what the src took
  /// and left to the inlet, if it did. Rethrows what the src met.
  [[nodiscard]] bool await_turn(Clock::duration limit, std::optional<LinkNext>& left) {
    constexpr auto absence = 10ms;
    std::unique_lock lock(turn_);
    if (taker_ == Taker::inlet) {
      taker_ = Taker::nobody;
      if (std::exchange(wanted_, false)) {
        away_ = false;
        if (ring_ != nullptr) ring_->nudge_consumer();
      }
    }
    const Deadline end = Clock::now() + limit;
    while (taker_ == Taker::src || !(handed_ || ends_ || away_)) {
      const Deadline now = Clock::now();
      if (now >= end) return false;
      const std::uint64_t turns = turns_;
      turned_.wait_until(lock, taker_ == Taker::src ? end : std::min<Deadline>(end, now + absence),
                         [this] { return taker_ == Taker::nobody && (handed_ || ends_); });
      away_ = taker_ == Taker::nobody && turns_ == turns;
    }
    taker_ = Taker::inlet;
    left = std::exchange(handed_, std::nullopt);
    if (left == LinkNext::closed) left.reset();  // it is looked at here
    if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
    return true;
  }
  /// The src takes no more frames of this connection.
  void end_turns() {
    std::unique_lock lock(turn_);
    ends_ = true;
    // Ends: an interrupted wait returns.
    while (taker_ == Taker::src) {
      follows_->interrupt();
      turned_.wait_for(lock, 1ms);
    }
    ends_ = false;
    follows_ = nullptr;
    ring_ = nullptr;
    taker_ = Taker::nobody;
  }
  /// The inlet stops: await_turn() returns.
  void stop() {
    const std::lock_guard lock(turn_);
    ends_ = true;
    if (taker_ == Taker::src) follows_->interrupt();
    turned_.notify_all();
  }

 private:
  enum class Taker { nobody, inlet, src };
  std::mutex turn_;
  std::condition_variable turned_;
  Taker taker_ = Taker::nobody;
  Inlet* inlet_ = nullptr;
  LinkConsumer* follows_ = nullptr;  ///< null: there is nothing to take from
  Ring* ring_ = nullptr;             ///< its frames are for this ring
  std::optional<LinkNext> handed_;   ///< the src has left this for the inlet
  std::exception_ptr failure_;       ///< with `closed`: what it met
  bool wanted_ = false;              ///< the src waits for its turn
  bool ends_ = false;
  std::uint64_t turns_ = 0;               ///< of the src
  bool away_ = false;                     ///< it has had none for a while
  std::atomic<std::uint64_t> nudges_{0};  ///< grows under the lock
};

GType on_lost_type() {
  static const GType type = [] {
    static const GEnumValue values[] = {
        {static_cast<int>(OnLost::wait), "Wait for the next one", "wait"},
        {static_cast<int>(OnLost::eos), "End the stream", "eos"},
        {static_cast<int>(OnLost::error), "Post an error", "error"},
        {0, nullptr, nullptr},
    };
    return g_enum_register_static("GstGpumapOnLost", values);
  }();
  return type;
}

Inlet::Inlet(GstElement* src, std::shared_ptr<Channel> channel, InletSettings settings)
    : src_(src), channel_(std::move(channel)), settings_(std::move(settings)), far_(std::make_shared<Far>()) {
  // Made once: each frame would turn a lambda into a new function on the heap.
  before_ = [this](std::uint32_t slot) {
    ring_->put(slot, make_carrier(frame_));
    put_way(*ring_, slot, frame_);
    if (next_sequence_ == any_sequence) channel_->set_far_joined_late(frame_.info.sequence != 0);
    next_sequence_ = frame_.info.sequence + 1;
  };
  channel_->set_far_sink(far_);
  channel_->set_log(nullptr);
  try {
    thread_ = start_thread(
        "gpumap-inlet", "what a producer shows", [this] { run(); }, settings_.schedule);
  } catch (...) {
    channel_->set_far_sink(nullptr);
    throw;
  }
}

Inlet::~Inlet() {
  stopping_ = true;
  far_->stop();
  // Ends: each wait of the thread has a limit, and it looks at stopping_ then.
  thread_.join();
  channel_->set_far_sink(nullptr);
  channel_->detach_sink(false, 0);  // drops queued frames
}

/// A src that takes nothing, such as a paused one, leaves the channel full. A flush gets through all the same.
void Inlet::push(GstEvent* event) {
  const Ptr<GstEvent> owned(event);
  while (!stopping_ && !channel_->push_event(event)) {
    if (!flushing_) {
      hear_what_overtakes();
      continue;
    }
    channel_->make_room_in_flush();
    if (!channel_->push_event(event)) {
      GST_WARNING_OBJECT(src_, "%s is left out: more sticky events than gpumapsrc keeps in a flush",
                         GST_EVENT_TYPE_NAME(event));
    }
    return;
  }
}

void Inlet::hear_what_overtakes() {
  constexpr auto a_while = 10ms;
  LinkFrame frame;
  if (consumer_ == nullptr) {
    std::this_thread::sleep_for(a_while);
    return;
  }
  if (consumer_->hear(frame, Clock::now() + a_while) != LinkNext::message) return;
  switch (type_of_event(frame.message)) {
    case GST_EVENT_FLUSH_START:
    case GST_EVENT_LATENCY:
    case GST_EVENT_CUSTOM_DOWNSTREAM_OOB:
    case GST_EVENT_CUSTOM_BOTH_OOB:
      read(frame.message);
      break;
    default:  // no gpumapsink sends it at once
      GST_WARNING_OBJECT(src_, "the producer sent an event ahead of its place: left out");
  }
}

/// Frames cannot be used without their caps and segment, or with earlier ones.
void Inlet::refuse(GstEventType type, const std::string& field) const {
  constexpr std::size_t most = 100;
  if (type == GST_EVENT_CAPS) {
    throw Error(ErrorCode::not_supported,
                fmt::format("the gpumapsink at socket-path {} sent caps that cannot be taken here, because of {}: use "
                            "the same GStreamer on both sides, or take it out of the caps before the gpumapsink",
                            printable(settings_.path),
                            field.empty() ? "what they lack" : fmt::format("field {}", printable(field, {}, most))));
  }
  if (type == GST_EVENT_SEGMENT) {
    throw Error(ErrorCode::not_supported,
                fmt::format("the gpumapsink at socket-path {} sent a segment that cannot be taken here, because of its "
                            "format or rate: use a format that both processes know, as time or bytes",
                            printable(settings_.path)));
  }
}

void Inlet::tell_of_refused_names() {
  if (!names_.tells_of_refusal()) return;
  post_warning(
      src_, FiguredError(
                Error(ErrorCode::no_memory,
                      fmt::format("fields and metas of the gpumapsink at socket-path {} whose names are new here are "
                                  "left out from now on: such names may take {} KiB, for GLib keeps each for ever",
                                  printable(settings_.path), NewNames::most_of_peer >> 10U),
                      "use fewer names in what changes"),
                {{"socket-path", settings_.path}, {"most-bytes", NewNames::most_of_peer}}));
}

void Inlet::read(std::span<const std::byte> text) {
  if (says_layout(text)) {
    if (!read_layout(text, layout_)) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("the gpumapsink at socket-path {} has frames of a video format that this GStreamer does "
                              "not know: use the same GStreamer on both sides, or put videoconvert before the "
                              "gpumapsink",
                              printable(settings_.path)));
    }
    blank_.reset();
    blank_bytes_ = 0;
    return;
  }
  if (Channel::FarTime time; read_time(text, time)) {
    channel_->set_far_time(time);
    return;
  }
  std::string refused;
  GstEvent* event = event_of(text, names_, &refused);
  tell_of_refused_names();
  if (event == nullptr) {
    refuse(type_of_event(text), refused);
    GST_WARNING_OBJECT(src_, "the producer sent an event that is not understood: left out");
    return;
  }
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      flushing_ = true;
      flush(event);
      return;
    case GST_EVENT_FLUSH_STOP:
      ended_ = false;
      // Without a FLUSH_START before it, it may have to wait for what follows the src.
      if (std::exchange(flushing_, false)) {
        flush(event);
      } else {
        channel_->flush(event);
      }
      return;
    case GST_EVENT_LATENCY:  // the producer's pipeline has another latency: this pipeline queries it again
      gst_event_unref(event);
      gst_element_post_message(src_, gst_message_new_latency(GST_OBJECT_CAST(src_)));
      return;
    case GST_EVENT_CUSTOM_DOWNSTREAM_OOB:
    case GST_EVENT_CUSTOM_BOTH_OOB:
      channel_->pass(event);
      return;
    case GST_EVENT_SINK_MESSAGE: {  // from this element, as what it tells of the producer
      GstMessage* message = nullptr;
      gst_event_parse_sink_message(event, &message);
      GST_MESSAGE_SRC(message) = GST_OBJECT_CAST(gst_object_ref(src_));
      gst_message_unref(message);
      break;
    }
    case GST_EVENT_EOS:
      ended_ = true;
      break;
    case GST_EVENT_STREAM_START:
      ended_ = false;
      break;
    default:
      break;
  }
  push(event);
}

void Inlet::flush(GstEvent* event) {
  const std::function<void()> flush = [this, event] { channel_->flush(event); };
  if (!far_->asks.let_seeker(flush)) flush();
}

/// Ends the flush of a producer that died meanwhile. It drops an EOS that came before, too.
void Inlet::end_flush() {
  if (!std::exchange(flushing_, false)) return;
  ended_ = false;
  channel_->flush(gst_event_new_flush_stop(TRUE));
}

LinkNext Inlet::next(LinkConsumer& consumer) {
  // A frame that was taken can no longer make room for a newer one, so only some are taken ahead. In a flush all are
  // taken, because they will be dropped. So are those of a producer that ends, which waits only for a moment, and of
  // one that goes on with another ring.
  const auto enough = [&] {
    return !flushing_ && ring_ && ring_->ring().queued() >= max_ahead(ring_->ring().slots()) && consumer.why().empty();
  };
  if (enough()) {
    channel_->when_src_waits([&consumer] { consumer.interrupt(); });
    constexpr auto rings = LinkConsumer::Hear::rings;
    const LinkNext heard = enough() ? consumer.hear(frame_, Clock::now() + second_look, rings) : LinkNext::timeout;
    channel_->when_src_waits(nullptr);
    if (heard != LinkNext::ring && (heard != LinkNext::timeout || enough())) return heard;
  }
  return pass(Clock::now() + second_look);
}

/// In the src's thread.
LinkNext Inlet::bring(Deadline deadline) {
  if (blank_bytes_ != 0) prepare_carrier(blank_bytes_);
  return pass(deadline);
}

LinkNext Inlet::pass(Deadline deadline) {
  const LinkNext next = consumer_->pass(frame_, before_, deadline);
  // The application may ask the producer meanwhile, which takes the connection's lock.
  if (next == LinkNext::frame) tell_of_refused_names();
  return next;
}

/// A client that may miss frames would miss them all, in silence, where what follows gives no slot back.
void Inlet::tell_if_passed_over(const LinkConsumer& consumer) {
  constexpr auto patience = 3s;
  // While other threads may still be on their way with a frame, or with slots, misses say nothing.
  constexpr auto time_to_bring = 1s;
  const Deadline now = Clock::now();
  const bool waits_long = channel_->src_waits().value_or(0us) >= patience;
  if (!waits_long) passed_over_ = consumer.passed_over();
  const std::uint64_t missed = consumer.passed_over() - passed_over_;
  if (!waits_long || missed == 0) misses_since_ = now;
  if (told_passed_over_ || now - misses_since_ < time_to_bring) return;
  told_passed_over_ = true;
  const std::uint32_t kept = consumer.held();
  const std::uint32_t slots = ring_ ? ring_->ring().slots() : 0;
  const std::string who = kept == 0 ? "other clients keep the slots that clients which may miss frames can have"
                                    : fmt::format(
                                          "what follows keeps {} of the {} slots, all that a client which may "
                                          "miss frames gets now",
                                          kept, slots);
  post_warning(
      src_, FiguredError(
                Error(ErrorCode::no_memory,
                      fmt::format("no frame from socket-path {} for {} s, and {} frames were missed: {}",
                                  printable(settings_.path), patience.count(), missed, who),
                      "set slots on the gpumapsink to more than is kept, put gpumapkernel before "
                      "what keeps them, or set leaky=no here, and the producer waits"),
                {{"socket-path", settings_.path}, {"kept-slots", kept}, {"slots", slots}, {"missed-frames", missed}}));
}

/// How many frames wait here. Further frames wait at the producer, which may prefer newer ones.
std::uint32_t Inlet::max_ahead(std::uint32_t slots) const {
  constexpr std::uint32_t few = 8;  // downstream may hold most of them
  return settings_.leak == LinkLeak::oldest || slots < few ? 1 : slots / 2;
}

void Inlet::put_way(ChannelRing& ring, std::uint32_t slot, const LinkFrame& frame) {
  if (!log_ && !frame.stamps) return;
  if (!log_) {
    log_ = traced_log(settings_.path);
    if (!log_) log_ = LatencyLog::find(settings_.path);  // this process measures that path
    if (!log_) log_ = std::make_shared<LatencyLog>(settings_.path);
    channel_->set_log(log_);
  }
  ring.put_way(slot, frame.stamps.value_or(FrameRecord{}), frame.stamps ? log_ : nullptr);
}

/// Makes a carrier with the layout of frames of `bytes` bytes. These are half of this thread's instructions for a
/// frame, so they run after the frame before.
void Inlet::prepare_carrier(std::uint64_t bytes) {
  if (blank_ && blank_bytes_ == bytes) return;
  blank_.reset(gst_buffer_new());
  blank_bytes_ = bytes;
  if (layout_ && !add_layout(blank_.get(), *layout_, bytes)) {
    throw Error(ErrorCode::invalid,
                fmt::format("the gpumapsink at socket-path {} says of frames of {} bytes that rows lie elsewhere: "
                            "use the same gpumap on both sides",
                            printable(settings_.path), bytes));
  }
}

/// A buffer without memory, as a gpumapsink hands it to a gpumapsrc.
GstBuffer* Inlet::make_carrier(const LinkFrame& frame) {
  prepare_carrier(frame.info.bytes);
  fill_carrier(blank_.get(), frame, frame.info.sequence != next_sequence_, names_);
  return blank_.release();
}

/// The frames that come next are of the connection's ring, or there are none for now.
void Inlet::begin_ring(LinkConsumer& consumer) {
  // A src that takes nothing would keep the memory of every ring that comes.
  while (!stopping_ && channel_->rings_waiting() >= max_rings) {
    if (flushing_) {
      channel_->make_room_in_flush();
    } else if (channel_->src_has_enough()) {
      channel_->leave_out_rings();
    } else {
      hear_what_overtakes();
    }
  }
  if (ring_) frames_ += ring_->ring().published();
  const std::shared_ptr<Ring> ring = consumer.ring();
  far_->follow(ring.get());
  if (!ring) {
    ring_.reset();
    channel_->retire_ring();
    return;
  }
  ring_ = std::make_shared<ChannelRing>(ring, frames_, nullptr);
  ring_->expect_ways();
  // The producer may take back frames that are queued here or that downstream has, from the moment it says so.
  ring_->loans()->ask_whether_recalled(consumer.asks_whether_cut_off());
  if (settings_.leak != LinkLeak::no) ring_->loans()->make_scarce();
  channel_->push_ring(ring_);
  passed_over_ = 0;
  misses_since_ = Clock::now();
}

/// False: do not connect again.
bool Inlet::follow(const std::shared_ptr<LinkConsumer>& connection) {
  LinkConsumer& consumer = *connection;
  consumer_ = &consumer;
  // Another producer has another time. The time of the producer before held for its last frames.
  channel_->set_far_time(std::nullopt);
  layout_.reset();
  blank_.reset();
  blank_bytes_ = 0;
  next_sequence_ = any_sequence;  // numbers go on from ring to ring of a producer
  far_->begin_turns(*this, consumer);
  const auto without_turns = [](Far* far) { far->end_turns(); };
  std::unique_ptr<Far, decltype(without_turns)> turns(far_.get());
  begin_ring(consumer);
  for (LinkNext next = LinkNext::timeout; !stopping_ && next != LinkNext::closed;) {
    std::optional<LinkNext> left;
    next = LinkNext::timeout;
    // In a flush the src takes nothing, and the end of the flush would wait until it has been away for a while.
    if (flushing_ || far_->await_turn(second_look, left)) next = left ? *left : this->next(consumer);
    if (next == LinkNext::message) read(frame_.message);
    if (next == LinkNext::ring) begin_ring(consumer);
    if (next == LinkNext::timeout) tell_if_passed_over(consumer);
    if (next != LinkNext::frame) continue;
    prepare_carrier(frame_.info.bytes);
    // The src takes no more frames, and the producer may need their slots.
    if (channel_->src_has_enough()) ring_->ring().drop_queued();
  }
  turns.reset();
  consumer_ = nullptr;
  if (ring_ && consumer.cut_off()) ring_->loans()->recall();
  end_flush();
  if (ring_) frames_ += ring_->ring().published();
  ring_.reset();
  why_ = consumer.why();
  if (stopping_ || consumer.ended_well()) {
    GST_INFO_OBJECT(src_, "%s is closed: %s", printable(settings_.path).c_str(), why_.c_str());
  } else {
    GST_WARNING_OBJECT(src_, "%s is closed: %s", printable(settings_.path).c_str(), why_.c_str());
  }
  const bool again = !stopping_ && !ended_ && settings_.on_lost == OnLost::wait;
  if (again && !consumer.ended_well() && !is_over()) tell_of_lost_connection();
  return again;
}

/// Without it a client that was cut off, or could not go on, would miss frames in silence.
void Inlet::tell_of_lost_connection() const {
  post_warning(src_,
               FiguredError(Error(ErrorCode::open_read,
                                  fmt::format("the connection to the gpumapsink at socket-path {} is lost, and with it "
                                              "the frames until the next one: {}",
                                              printable(settings_.path), printable(why_)),
                                  "see why, or set on-lost=error to end then"),
                            {{"socket-path", settings_.path}, {"why", why_}}));
}

/// A src that has enough, has sent its EOS, or stops, loses nothing and waits for nothing.
bool Inlet::is_over() const {
  const Ptr<GstPad> pad(channel_->src_pad());
  return channel_->src_has_enough() || (pad && GST_PAD_IS_EOS(pad.get())) || is_stopping(src_);
}

void Inlet::lose(const std::string& why) {
  if (stopping_ || ended_) return;
  if (settings_.on_lost == OnLost::error && !is_over()) {
    post_error(src_, FiguredError(Error(ErrorCode::open_read,
                                        fmt::format("the gpumapsink at socket-path {} went without EOS ({})",
                                                    printable(settings_.path), printable(why)),
                                        "see why, or set on-lost=wait to wait for the next one, eos to end"),
                                  {{"socket-path", settings_.path}, {"why", why}}));
  }
  push(gst_event_new_eos());
}

/// As LinkConsumer::connect(). Posts a warning, once for each producer, when there is none to connect to.
std::shared_ptr<LinkConsumer> Inlet::connect(LinkConsumerOptions options) {
  if (options.patience > patience_for_server && !std::exchange(told_wait_, true)) {
    LinkConsumerOptions first = options;
    first.patience = patience_for_server;
    std::optional<FiguredError> waits;
    try {
      return LinkConsumer::connect(std::move(first));
    } catch (const Error& error) {
      const bool refused = told_full_ && settings_.on_lost == OnLost::error;
      const bool may_come = error.code() == ErrorCode::not_found || error.code() == ErrorCode::busy;
      if (!may_come || stopping_ || refused) throw;
      waits.emplace(Error(ErrorCode::not_found, "gpumapsrc waits: " + error.cause(),
                          "start a gpumapsink with this socket-path, or see what became of its process", error.where()),
                    Figures{{"socket-path", settings_.path}});
    }
    const auto obstacle = obstacle_at(settings_.path);
    if (!told_full_ && !is_over()) post_warning(src_, obstacle ? *obstacle : *waits);
  }
  return LinkConsumer::connect(std::move(options));
}

void Inlet::run() {
  try {
    for (bool again = true; again;) {
      // As begin_ring(), for producers that come and go.
      while (!stopping_ && channel_->rings_waiting() >= max_rings) std::this_thread::sleep_for(10ms);
      LinkConsumerOptions options;
      options.path = settings_.path;
      gchar* name = gst_object_get_name(GST_OBJECT_CAST(src_));
      options.name = link_name(name);
      g_free(name);
      options.leak = settings_.leak;
      options.spin = std::chrono::microseconds(settings_.busy_poll_us);
      options.allowed_users = settings_.allowed_users;
      options.patience = std::chrono::nanoseconds(365 * 24h);
      options.cancel = &stopping_;
      options.on_full = [this](const std::string& why) {
        if (std::exchange(told_full_, true)) return;
        const auto no_place = [&](const char* what) {
          return FiguredError(
              Error(ErrorCode::busy, fmt::format("{} at socket-path {}: {}", what, printable(settings_.path), why)),
              {{"socket-path", settings_.path}, {"most-clients", max_link_clients}});
        };
        if (settings_.on_lost == OnLost::error) {
          const FiguredError error = no_place("no place");
          throw NoPlace(error, error.figures());
        }
        post_warning(src_, no_place("gpumapsrc waits for a place"));
      };
      const std::shared_ptr<LinkConsumer> consumer = connect(std::move(options));
      far_->asks.connect(consumer);
      again = follow(consumer);
      told_wait_ = told_full_ = false;
      far_->asks.connect(nullptr);
    }
    lose(why_);
  } catch (const NoPlace& error) {
    far_->asks.connect(nullptr);
    if (!stopping_) post_error(src_, error);
  } catch (const std::exception& error) {
    far_->asks.connect(nullptr);
    if (!stopping_) post_error(src_, error);
  }
}

}  // namespace gpumap::gst
