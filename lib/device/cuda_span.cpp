// SPDX-License-Identifier: MIT
#include "device/cuda_span.hpp"

#include <fmt/format.h>
#include <utility>

#include "device/cuda_clock.hpp"
#include "gpumap/error.hpp"

namespace gpumap {

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
