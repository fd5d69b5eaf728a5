// SPDX-License-Identifier: MIT
#include "device/cuda_span.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "device/resident_registry.hpp"
#include "gpumap/error.hpp"
#include "gpumap/latency.hpp"

namespace gpumap {

namespace {

/// Of cuEventElapsedTime, as CUDA documents it.
constexpr std::int64_t resolution_ns = 500;
/// From the GPU's fetching the commands to its looking at the word: a round that starts before that is wider by it.
constexpr std::int64_t settle_ns = 10'000;

/// cuEventElapsedTime gives a float: half of its last bit is lost.
std::int64_t rounding_ns(std::int64_t distance_ns) noexcept {
  return static_cast<std::int64_t>(std::abs(static_cast<double>(distance_ns)) * 0x1p-24) + 1;
}

}  // namespace

struct CudaClock::Words {
  alignas(64) std::atomic<std::uint64_t> go{0};
  alignas(64) std::atomic<std::uint64_t> done{0};
};

CudaClock::~CudaClock() {
  const CudaContext::CleanupScope scope(context_);
  if (!scope) return;
  const auto& driver = context_.driver();
  // Freed words must not be written.
  if (stream_ != nullptr) {
    // Ends: nothing of this stream waits for the CPU, as every round opens its own gate.
    driver.cuStreamSynchronize(stream_);
    driver.cuStreamDestroy(stream_);
  }
  free_page_locked(context_, words_);
  for (const CUevent event : events_) driver.cuEventDestroy(event);
  for (const CUevent event : {scratch_, narrowest_}) {
    if (event != nullptr) driver.cuEventDestroy(event);
  }
}

void CudaClock::start() {
  if (due_ns_.load(std::memory_order_relaxed) == 0) compare_if_due();
}

std::optional<GpuTimes> CudaClock::times(CUevent began, CUevent ended) {
  compare_if_due();
  const std::lock_guard lock(mutex_);
  const auto& pairs = comparison_.pairs();
  if (pairs.empty()) return std::nullopt;
  // Where it lies says which pair serves best; from that one it is told again, since nearer is finer.
  const std::size_t pair = comparison_.read(pairs.back().gpu_ns + elapsed_ns(events_.back(), began)).pair;
  const std::int64_t distance_ns = elapsed_ns(events_[pair], began);
  const std::int64_t length_ns = elapsed_ns(began, ended);
  const std::int64_t gpu_ns = pairs[pair].gpu_ns + distance_ns;
  const auto first = comparison_.read(gpu_ns, pair);
  const auto last = comparison_.read(gpu_ns + length_ns, pair);
  return GpuTimes{.began_ns = first.cpu_ns,
                  .ended_ns = last.cpu_ns,
                  .error_ns = std::max(first.error_ns, last.error_ns) + resolution_ns + rounding_ns(distance_ns) +
                              rounding_ns(length_ns)};
}

void CudaClock::compare_if_due() {
  if (monotonic_ns() < due_ns_.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(comparing_, std::try_to_lock);
  if (!lock) return;  // another thread is at it
  // Should it throw, not every reader shall run into the same.
  due_ns_.store(monotonic_ns() + GpuSpan::comparison_ns, std::memory_order_relaxed);
  if (!compare()) due_ns_.store(monotonic_ns() + comparison_retry_ns, std::memory_order_relaxed);
}

bool CudaClock::compare() {
  prepare();
  if (!is_idle()) return false;
  const std::int64_t deadline_ns = monotonic_ns() + comparison_limit_ns;
  std::optional<Bracket> narrowest;
  for (int round = 0; round < comparison_rounds; ++round) {
    const auto bracket = words_ != nullptr ? watch_words(deadline_ns) : watch_event(deadline_ns);
    if (!bracket) break;
    if (narrowest && narrowest->width_ns() <= bracket->width_ns()) continue;
    narrowest = bracket;
    std::swap(narrowest_, scratch_);
    if (narrowest->width_ns() <= 2 * close_enough_ns) break;
  }
  if (narrowest) add(*narrowest);
  return narrowest.has_value();
}

void CudaClock::prepare() {
  const auto& driver = context_.driver();
  for (CUevent* event : {&scratch_, &narrowest_}) {
    if (*event == nullptr) context_.check(driver.cuEventCreate(event, CU_EVENT_DEFAULT), "creating an event");
  }
  if (stream_ != nullptr) return;
  CUstream stream = nullptr;
  context_.check(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "creating a stream");
  void* host = nullptr;
  CUresult result = CUDA_SUCCESS;
  if (context_.stream_memory()) {
    result = driver.cuMemHostAlloc(&host, sizeof(Words), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result == CUDA_SUCCESS) result = driver.cuMemHostGetDevicePointer(&go_, host, 0);
  }
  if (result != CUDA_SUCCESS) {
    free_page_locked(context_, host);
    driver.cuStreamDestroy(stream);
    context_.check(result, "allocating page-locked memory to compare the clocks");
  }
  if (host != nullptr) words_ = new (host) Words;
  done_ = go_ + offsetof(Words, done);
  stream_ = stream;
}

/// False while the GPU is still to come to a round that was given up.
bool CudaClock::is_idle() {
  if (!unfinished_) return true;
  const CUresult result = context_.driver().cuEventQuery(scratch_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  context_.check(result, "comparing the clocks");
  unfinished_ = false;
  return true;
}

std::optional<CudaClock::Bracket> CudaClock::watch_words(std::int64_t deadline_ns) {
  const auto& driver = context_.driver();
  const std::uint64_t round = ++round_;
  CUresult result = driver.cuStreamWaitValue64(stream_, go_, round, CU_STREAM_WAIT_VALUE_GEQ);
  if (result == CUDA_SUCCESS) result = driver.cuEventRecord(scratch_, stream_);
  if (result == CUDA_SUCCESS) {
    result = driver.cuStreamWriteValue64(stream_, done_, round, CU_STREAM_WRITE_VALUE_DEFAULT);
  }
  for (const std::int64_t settled = monotonic_ns() + settle_ns; result == CUDA_SUCCESS && monotonic_ns() < settled;) {
  }
  Bracket bracket{.before_ns = monotonic_ns()};
  words_->go.store(round, std::memory_order_release);  // whatever came before: the stream must not wait for ever
  context_.check(result, "comparing the clocks");
  unfinished_ = true;
  while (words_->done.load(std::memory_order_acquire) < round) {
    if (monotonic_ns() > deadline_ns) return std::nullopt;
  }
  bracket.after_ns = monotonic_ns();
  unfinished_ = false;
  return bracket;
}

std::optional<CudaClock::Bracket> CudaClock::watch_event(std::int64_t deadline_ns) {
  const auto& driver = context_.driver();
  Bracket bracket{.before_ns = monotonic_ns()};
  context_.check(driver.cuEventRecord(scratch_, stream_), "comparing the clocks");
  unfinished_ = true;
  while (!is_idle()) {
    if (monotonic_ns() > deadline_ns) return std::nullopt;
  }
  bracket.after_ns = monotonic_ns();
  return bracket;
}

/// Of narrowest_, which goes to the pairs.
void CudaClock::add(const Bracket& bracket) {
  const std::lock_guard lock(mutex_);
  ClockPair pair;
  pair.cpu_ns = bracket.before_ns + bracket.width_ns() / 2;
  pair.error_ns = bracket.width_ns() / 2 + 1 + resolution_ns;
  if (!events_.empty()) {
    const std::int64_t distance_ns = elapsed_ns(events_.back(), narrowest_);
    pair.gpu_ns = comparison_.pairs().back().gpu_ns + distance_ns;
    pair.error_ns += rounding_ns(distance_ns);
  }
  const std::size_t dropped = comparison_.add(pair);
  events_.push_back(std::exchange(narrowest_, nullptr));
  for (std::size_t i = 0; i < dropped; ++i) {
    if (narrowest_ == nullptr) {
      narrowest_ = events_.front();
    } else {
      context_.driver().cuEventDestroy(events_.front());
    }
    events_.pop_front();
  }
}

std::int64_t CudaClock::elapsed_ns(CUevent from, CUevent to) const {
  float ms = 0;
  context_.check(context_.driver().cuEventElapsedTime(&ms, from, to), "reading when an event happened");
  return std::llround(static_cast<double>(ms) * 1e6);
}

class CudaSpan final : public GpuSpan {
 public:
  CudaSpan(std::shared_ptr<CudaSpans> spans, const CudaSpans::Events& events)
      : spans_(std::move(spans)), events_(events) {}
  ~CudaSpan() override {
    if (!times_) spans_->give_back(events_);
  }

  [[nodiscard]] std::optional<GpuTimes> times() override {
    const std::lock_guard lock(mutex_);
    if (times_ || !ended_) return times_;
    const CudaContext& context = spans_->context_;
    const CudaContext::Scope scope(context);
    const CUresult result = context.driver().cuEventQuery(events_.ended);
    if (result == CUDA_ERROR_NOT_READY) return std::nullopt;
    context.check(result, "running kernels");
    times_ = context.clock().times(events_.began, events_.ended);
    if (times_) spans_->give_back(events_);
    return times_;
  }

  [[nodiscard]] bool is_of(const CudaSpans& spans) const noexcept { return spans_.get() == &spans; }
  /// In the thread of begin() and end().
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }
  [[nodiscard]] const CudaSpans::Events& events() const noexcept { return events_; }
  void set_ended() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }

 private:
  const std::shared_ptr<CudaSpans> spans_;
  const CudaSpans::Events events_;  // the span's own until it has its times
  std::mutex mutex_;
  bool ended_ = false;
  std::optional<GpuTimes> times_;
};

CudaSpans::~CudaSpans() {
  const CudaContext::CleanupScope scope(context_);
  if (!scope) return;
  for (const Events& events : idle_) {
    context_.driver().cuEventDestroy(events.began);
    context_.driver().cuEventDestroy(events.ended);
  }
}

std::shared_ptr<GpuSpan> CudaSpans::begin(CUstream stream) {
  reason_.clear();
  if (!context_.driver().has_event_times) {
    reason_ = "the CUDA driver lacks cuEventElapsedTime: update the NVIDIA driver";
    return nullptr;
  }
  context_.clock().start();
  Events events;
  if (!take(events)) {
    reason_ = fmt::format("{} spans of this queue are held unread: read their times or let go of them",
                          GpuSpan::max_per_queue);
    return nullptr;
  }
  auto span = std::make_shared<CudaSpan>(shared_from_this(), events);
  // An event may be recorded anew while its last record is pending: a span may go before the GPU came to its end.
  context_.check(context_.driver().cuEventRecord(events.began, stream), "recording an event");
  return span;
}

void CudaSpans::end(GpuSpan& span, CUstream stream) {
  auto* const own = dynamic_cast<CudaSpan*>(&span);
  if (own == nullptr || !own->is_of(*this)) {
    throw Error(ErrorCode::invalid, "end_span: the span was begun on another queue: end it there");
  }
  if (own->has_ended()) throw Error(ErrorCode::invalid, "end_span: the span has ended: begin a new one");
  context_.check(context_.driver().cuEventRecord(own->events().ended, stream), "recording an event");
  own->set_ended();
}

bool CudaSpans::take(Events& events) {
  const std::lock_guard lock(mutex_);
  if (!idle_.empty()) {
    events = idle_.back();
    idle_.pop_back();
    return true;
  }
  if (made_ == GpuSpan::max_per_queue) return false;
  idle_.reserve(GpuSpan::max_per_queue);  // so that giving back cannot fail
  const auto& driver = context_.driver();
  context_.check(driver.cuEventCreate(&events.began, CU_EVENT_DEFAULT), "creating an event");
  if (const CUresult result = driver.cuEventCreate(&events.ended, CU_EVENT_DEFAULT); result != CUDA_SUCCESS) {
    driver.cuEventDestroy(events.began);
    context_.check(result, "creating an event");
  }
  ++made_;
  return true;
}

void CudaSpans::give_back(const Events& events) noexcept {
  const std::lock_guard lock(mutex_);
  idle_.push_back(events);
}

}  // namespace gpumap
