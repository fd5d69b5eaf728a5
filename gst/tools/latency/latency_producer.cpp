// SPDX-License-Identifier: MIT
#include "gst/tools/latency/latency_producer.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <utility>
#include <vector>

#include "figures.hpp"

namespace latency {
namespace {

constexpr std::int64_t second = 1'000'000'000;

/// Every byte, with whole words, in rising order: what a generator or a demultiplexer does.
void fill(std::byte* to, std::size_t bytes, std::uint64_t value) noexcept {
  std::size_t at = 0;
  for (; at + sizeof value <= bytes; at += sizeof value) {
    std::memcpy(to + at, &value, sizeof value);
    value += 0x9E3779B97F4A7C15;
  }
  std::memcpy(to + at, &value, bytes - at);
}

std::size_t cache_bytes() {
  const long level3 = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  constexpr std::size_t least = std::size_t{32} << 20;
  constexpr std::size_t most = std::size_t{256} << 20;  // of what a virtual machine says, half is not its own
  return std::clamp(level3 > 0 ? 2 * static_cast<std::size_t>(level3) : least, least, most);
}

std::vector<std::byte>& own_bytes() {
  static std::vector<std::byte> bytes;
  return bytes;
}

void set(gpumap::FrameRecord& record, gpumap::Stamp stamp) {
  record.at_ns[static_cast<std::size_t>(stamp)] = gpumap::monotonic_ns();
}

/// Who else counts may die between its step and its call.
constexpr timespec second_look{.tv_sec = 0, .tv_nsec = 100'000'000};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "words that two processes share hold no lock");

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* time) noexcept {
  return ::syscall(SYS_futex, &word, operation, value, time, nullptr, 0);
}

}  // namespace

SharedArrivals::SharedArrivals(int fd)
    : fd_(fd), words_(static_cast<Arrivals*>(bench::map_shared(fd_, sizeof(Arrivals)))) {}

SharedArrivals::~SharedArrivals() {
  ::munmap(words_, sizeof(Arrivals));
  ::close(fd_);
}

void Gate::arrived() {
  arrivals_.count.fetch_add(1);
  wake();
}

void Gate::wake() {
  if (!spin_ && arrivals_.asleep.exchange(0) != 0) futex(arrivals_.asleep, FUTEX_WAKE, 1, nullptr);
}

void Gate::wait_for(std::uint64_t count) {
  const auto waits = [&] { return this->count() < count && !stopped(); };
  if (!spin_) {
    while (waits()) {
      arrivals_.asleep = 1;
      // A thread that comes from here on finds it asleep.
      if (waits()) futex(arrivals_.asleep, FUTEX_WAIT, 1, &second_look);
    }
    return;
  }
  constexpr unsigned looks_before_yield = 4096;
  for (unsigned look = 1; waits(); ++look) {
    if (look % looks_before_yield == 0) std::this_thread::yield();
  }
}

// A producer on time is what is asked for: with spin it does not depend on how soon the scheduler wakes it.
void Gate::wait_until(std::int64_t time_ns) {
  constexpr std::int64_t spun_ns = 200'000;
  const std::int64_t sleep_until = spin_ ? time_ns - spun_ns : time_ns;
  const timespec until{.tv_sec = sleep_until / second, .tv_nsec = sleep_until % second};
  while (!stopped() && gpumap::monotonic_ns() < sleep_until) {
    // The bit set's variant takes a time on the clock, and not one from now on.
    ::syscall(SYS_futex, &stopped_, FUTEX_WAIT_BITSET, 0, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  }
  while (spin_ && !stopped() && gpumap::monotonic_ns() < time_ns) {
  }
}

void Gate::stop() {
  stopped_ = 1;
  futex(stopped_, FUTEX_WAKE, INT_MAX, nullptr);
  wake();
}

OwnMemory::OwnMemory(std::size_t frame_bytes) {
  constexpr std::size_t line = 64;
  stride_ = (frame_bytes + line - 1) / line * line;
  count_ = std::max<std::size_t>(cache_bytes() / stride_, 2);
  auto& bytes = own_bytes();
  if (bytes.size() >= stride_ * count_) return;
  bytes.resize(stride_ * count_);
  fill(bytes.data(), bytes.size(), 1);
}

std::byte* OwnMemory::next() noexcept {
  at_ = (at_ + 1) % count_;
  return own_bytes().data() + at_ * stride_;
}

Producer::Producer(GstElement* pipeline, GstElement* first, ProducerOptions options)
    : pipeline_(pipeline),
      options_(std::move(options)),
      pad_(GST_PAD(gst_object_ref_sink(gst_pad_new("upstream", GST_PAD_SRC)))),
      caps_(gst_caps_from_string(options_.plan.caps.c_str())),
      gate_(options_.plan.spin, options_.arrivals) {
  const Ptr<GstPad> sink(gst_element_get_static_pad(first, "sink"));
  if (!caps_ || !sink || gst_pad_link(pad_.get(), sink.get()) != GST_PAD_LINK_OK) {
    throw std::runtime_error("cannot feed " + options_.plan.caps + " to " + GST_OBJECT_NAME(first));
  }
  gst_pad_set_active(pad_.get(), TRUE);
}

void Producer::start() {
  base_ns_ = static_cast<std::int64_t>(gst_element_get_base_time(pipeline_));
  // A pipeline that is still on its way has none yet, or an old one: every frame would be due at a wrong time.
  GstState state = GST_STATE_NULL;
  const GstStateChangeReturn change = gst_element_get_state(pipeline_, &state, nullptr, 0);
  if (options_.plan.rate > 0 && (change == GST_STATE_CHANGE_ASYNC || state != GST_STATE_PLAYING || base_ns_ <= 0)) {
    throw std::runtime_error(
        std::string("the pipeline is ") + gst_element_state_get_name(state) +
        " when its first frame is to be made, so when that is due is not known: an element in it waits for a frame "
        "before it plays (async=true)");
  }
  thread_ = std::thread([this] {
    try {
      run();
    } catch (const std::exception& error) {
      const Ptr<GError> said(
          g_error_new(GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_FAILED, "no frame can be made: %s", error.what()));
      gst_element_post_message(pipeline_, gst_message_new_error(GST_OBJECT_CAST(pipeline_), said.get(), nullptr));
    }
  });
}

void Producer::stop() {
  gate_.stop();
  if (pad_) gst_pad_set_active(pad_.get(), FALSE);
  // Ends: the gate is stopped, and the pad takes nothing more.
  if (thread_.joinable()) thread_.join();
  if (pool_) gst_buffer_pool_set_active(pool_.get(), FALSE);
  pool_.reset();
}

void Producer::negotiate() {
  gst_pad_push_event(pad_.get(), gst_event_new_stream_start("gpumap-latency"));
  gst_pad_push_event(pad_.get(), gst_event_new_caps(caps_.get()));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(pad_.get(), gst_event_new_segment(&segment));

  gst_allocation_params_init(&params_);
  if (!options_.plan.in_place) {
    memory_.emplace(options_.plan.frame_bytes);
    return;
  }
  const Ptr<GstQuery> query(gst_query_new_allocation(caps_.get(), TRUE));
  if (!gst_pad_peer_query(pad_.get(), query.get())) return;
  if (gst_query_get_n_allocation_pools(query.get()) > 0) {
    GstBufferPool* pool = nullptr;
    guint size = 0;
    guint least = 0;
    guint most = 0;
    gst_query_parse_nth_allocation_pool(query.get(), 0, &pool, &size, &least, &most);
    pool_.reset(pool);
    if (pool_) {
      GstStructure* config = gst_buffer_pool_get_config(pool_.get());
      size = std::max(size, static_cast<guint>(options_.plan.frame_bytes));
      gst_buffer_pool_config_set_params(config, caps_.get(), size, least, most);
      if (gst_buffer_pool_set_config(pool_.get(), config) && gst_buffer_pool_set_active(pool_.get(), TRUE)) return;
      pool_.reset();
    }
  }
  if (gst_query_get_n_allocation_params(query.get()) > 0) {
    GstAllocator* allocator = nullptr;
    gst_query_parse_nth_allocation_param(query.get(), 0, &allocator, &params_);
    allocator_.reset(allocator);
  }
}

GstBuffer* Producer::offered_buffer() {
  if (!pool_) return gst_buffer_new_allocate(allocator_.get(), options_.plan.frame_bytes, &params_);
  GstBuffer* buffer = nullptr;
  return gst_buffer_pool_acquire_buffer(pool_.get(), &buffer, nullptr) == GST_FLOW_OK ? buffer : nullptr;
}

GstBuffer* Producer::make_frame(gpumap::FrameRecord& record) {
  record.bytes = options_.plan.frame_bytes;
  if (!options_.plan.in_place) {
    return gst_buffer_new_wrapped_full(GST_MEMORY_FLAG_READONLY, memory_->next(), options_.plan.frame_bytes, 0,
                                       options_.plan.frame_bytes, nullptr, nullptr);
  }
  GstBuffer* buffer = offered_buffer();
  if (buffer == nullptr) return nullptr;
  set(record, gpumap::Stamp::acquired);
  GstMapInfo map;
  set(record, gpumap::Stamp::first_store);
  if (!gst_buffer_map(buffer, &map, GST_MAP_WRITE)) {
    gst_buffer_unref(buffer);
    return nullptr;
  }
  fill(reinterpret_cast<std::byte*>(map.data), map.size, seed_ += 0x2545F4914F6CDD1D);
  gst_buffer_unmap(buffer, &map);
  set(record, gpumap::Stamp::last_store);
  return buffer;
}

void Producer::run() {
  pthread_setname_np(pthread_self(), "producer");
  prctl(PR_SET_TIMERSLACK, 1UL);  // else the kernel may wake it 50 us late, to save energy
  negotiate();
  constexpr std::int64_t head_start = 5'000'000;
  std::int64_t first_due = gpumap::monotonic_ns() + head_start;

  for (std::size_t number = 0; number < options_.plan.frames && !gate_.stopped(); ++number) {
    if (number == 1 && options_.arrivals != nullptr) {
      gate_.wait_for(1);
      first_due = gpumap::monotonic_ns() + head_start;
    }
    if (options_.plan.in_flight > 0 && number >= options_.plan.in_flight)
      gate_.wait_for(number - options_.plan.in_flight + 1);
    gpumap::FrameRecord record;
    record.sequence = number;
    if (options_.plan.rate > 0) {
      // Due by its number and not by when the one before was done: a late frame makes those after it late, too, and no
      // frame is left out for it.
      record.due_ns = first_due + std::llround(static_cast<double>(number) * second / options_.plan.rate);
      gate_.wait_until(record.due_ns);
    }
    if (gate_.stopped()) return;
    if (options_.before_frame) options_.before_frame(number);
    GstBuffer* buffer = make_frame(record);
    if (buffer == nullptr) return;
    if (record.due_ns != 0) GST_BUFFER_PTS(buffer) = static_cast<GstClockTime>(record.due_ns - base_ns_);
    if (options_.before_push) options_.before_push(record);
    if (gst_pad_push(pad_.get(), buffer) != GST_FLOW_OK) return;  // the element that stopped it says why on the bus
  }
  gst_pad_push_event(pad_.get(), gst_event_new_eos());
}

HeldUpstream::HeldUpstream(GstElement* element, unsigned in_flight, bool spin, Arrivals* arrivals)
    : in_flight_(in_flight), first_alone_(arrivals != nullptr), gate_(spin, arrivals) {
  const Ptr<GstPad> pad(gst_element_get_static_pad(element, "sink"));
  element_chain_ = GST_PAD_CHAINFUNC(pad.get());
  gst_pad_set_chain_function_full(pad.get(), chain, this, nullptr);
}

GstFlowReturn HeldUpstream::chain(GstPad* pad, GstObject* parent, GstBuffer* buffer) {
  auto& self = *static_cast<HeldUpstream*>(pad->chaindata);
  const GstFlowReturn flow = self.element_chain_(pad, parent, buffer);
  if (flow != GST_FLOW_OK) return flow;
  const std::uint64_t pushed = ++self.pushed_;
  if (self.first_alone_ && pushed == 1) self.gate_.wait_for(1);
  if (self.in_flight_ > 0 && pushed >= self.in_flight_) self.gate_.wait_for(pushed - self.in_flight_ + 1);
  self.began_ns_ = gpumap::monotonic_ns();
  return flow;
}

}  // namespace latency
