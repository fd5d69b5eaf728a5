// SPDX-License-Identifier: MIT
#include "gpumap/kernel_launcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "device/gpu_device.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gpumap/patience.hpp"
#include "kernel/kernel_memory.hpp"
#include "kernel/load_kernel.hpp"
#include "kernel/output_size.hpp"
#include "queue/queues.hpp"

namespace gpumap {

KernelLauncher::KernelLauncher(const KernelSettings& settings, std::shared_ptr<Device> device, PlanCheck check)
    : settings_(settings),
      check_(std::move(check)),
      device_(device ? std::move(device) : Device::open(settings.device)) {
  watch_file(settings);
  KernelPlan plan = plan_of(settings, *device_);
  backend_ = backend_of(plan.source.language);
  name_ = plan.source.name;
  auto program = Program::load(device_, plan, settings.mode);
  program->set_params(settings.params);
  if (check_) check_(plan);
  auto tables = tables_of(plan, device_);
  params_ = settings.params;
  check_output_may(plan, settings_.late_results, out_);
  adopt(std::move(plan), std::move(program), std::move(tables));
  rest_ = std::make_unique<WorkMemory>(device_, backend_);
  if (settings.check_bounds) bounds_ = std::make_unique<BoundsCheck>(device_, backend_);
}

/// Before it is read: a change that comes while it compiles is one.
void KernelLauncher::watch_file(const KernelSettings& settings) {
  if (settings.reload) reload_ = std::make_unique<KernelReload>(device_, settings, check_);
}

void KernelLauncher::choose_queue(const KernelPlan& plan) {
  if (!queue_ || resident_ != plan.resident) {
    // Its share of the GPU is to be the new one's. It has nothing to do: its frames were waited for.
    if (settings_.sm_share != 0) queue_.reset();
    queue_ = create_queue(plan.resident);
    multiprocessors_ = queue_->multiprocessors();
  }
  const std::lock_guard lock(mutex_);
  resident_ = plan.resident;
  why_ = plan.resident ? doorbell_of(*queue_) : plan.why_launched;
}

std::unique_ptr<Queue> KernelLauncher::create_queue(bool resident) {
  auto queue = open_queue(resident);
  queue->set_wait([this](const Fence& fence) { return wait_for_queue(fence); }, [this] { return cancelled_.load(); });
  return queue;
}

std::unique_ptr<Queue> KernelLauncher::open_queue(bool resident) {
  if (resident) {
    return create_resident_queue(std::dynamic_pointer_cast<GpuDevice>(device_),
                                 {.blocks = settings_.resident_blocks,
                                  .idle = std::chrono::milliseconds(settings_.resident_idle_ms),
                                  .cuda = {.priority = settings_.priority, .sm_share = settings_.sm_share}});
  }
  if (settings_.priority == 0 && settings_.sm_share == 0) return device_->create_queue(backend_);
  if (!traits_of(backend_).shares) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {}: priority and sm-share are CUDA's, and this runs in {}: leave them out, or "
                            "give a kernel for CUDA",
                            name_, to_string(backend_)));
  }
  return create_cuda_queue(*device_, {.priority = settings_.priority, .sm_share = settings_.sm_share});
}

/// For frames that a kernel which stays on the GPU cannot reach: they are ordered by streams.
bool KernelLauncher::launch_instead() {
  if (settings_.mode == KernelMode::resident) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {} stays on the GPU, and CUDA's streams order the frames that come or go: use "
                            "mode=launch, or mode=auto, or have frames in memory of gpumap's own",
                            name_));
  }
  if (!wait(last_)) return false;
  // What runs, and not what the file may be by now: its results, parameters and caps are those that the caller knows.
  KernelPlan plan = *staying_;
  plan.resident = false;
  plan.why_launched = "CUDA's streams order the frames that come or go";
  auto program = Program::load(device_, plan, KernelMode::launch);
  program->set_params(params());
  if (reload_) {
    news_.reset();  // it would stay
    KernelSettings settings = settings_;
    settings.mode = KernelMode::launch;
    auto reload = std::make_unique<KernelReload>(device_, settings, check_);
    reload->follow(*reload_);
    reload_ = std::move(reload);
  }
  choose_queue(plan);  // may throw, with the tables still there
  auto tables = std::move(tables_);
  adopt(std::move(plan), std::move(program), std::move(tables));
  begin();
  return true;
}

KernelLauncher::~KernelLauncher() {
  end();
}

bool KernelLauncher::end() noexcept {
  if (std::exchange(ended_, true)) return all_done_;
  try {
    // Without one the launcher was to have another, and there was none.
    if (!queue_) return all_done_ = last_.signalled();
    const auto done = [end = Clock::now() + patience_of_ends(*device_)](const Fence& fence) {
      const std::atomic<bool> never{false};
      return fence.wait(never, end) == WaitResult::ready;
    };
    queue_->set_wait(done);
    // All that its queue has, submitted or not: a frame that was given up may have left a wait for what fills it.
    const Fence all = queue_->submit();
    if (done(last_) && done(all)) {
      queue_.reset();  // before what its launches use
      return all_done_ = true;
    }
    for (const Fence& fence : {last_, all}) fence.give_up("kernel " + name_);
    keep_for_good(std::shared_ptr<Program>(std::move(program_)));
    keep_for_good(device_pool_);
    keep_for_good(host_pool_);
    keep_for_good(packed_pool_);
    keep_for_good(joined_pool_);
    keep_for_good(std::shared_ptr<WorkMemory>(std::move(rest_)));
    keep_for_good(std::shared_ptr<Queue>(std::move(queue_)));
    keep_for_good(std::shared_ptr<ResultBlocks>(std::move(results_)));
    keep_for_good(std::shared_ptr<BoundsCheck>(std::move(bounds_)));
    keep_for_good(std::shared_ptr<Tables>(std::move(tables_)));
    keep_for_good(std::shared_ptr<FrameHistory>(std::move(history_)));
    keep_for_good(std::shared_ptr<FrameTensors>(std::move(tensors_)));
    return false;
  } catch (const std::exception&) {
    // The device is lost, and nothing runs on it any more; or a call failed, and the queue waits for what it has.
    queue_.reset();
    return all_done_ = !device_->lost().empty() || last_.signalled();
  }
}

/// Null where it declares none.
std::unique_ptr<FrameTensors> KernelLauncher::tensors_of(const Declaration& declaration) const {
  if (declaration.input_tensors.empty() && declaration.output_tensors.empty()) return nullptr;
  return std::make_unique<FrameTensors>(device_, backend_, name_, declaration.input_tensors, declaration.output_tensors,
                                        settings_.check_bounds);
}

void KernelLauncher::adopt(KernelPlan plan, std::unique_ptr<Program> program, std::unique_ptr<Tables> tables) {
  choose_queue(plan);
  staying_.reset();
  if (plan.resident) staying_ = plan;
  program_ = std::move(program);
  tables_ = std::move(tables);
  history_.reset();
  std::fill(std::begin(frame_.tables), std::end(frame_.tables), gpumap_table{});
  std::fill(std::begin(frame_.in_tensors), std::end(frame_.in_tensors), gpumap_tensor{});
  std::fill(std::begin(frame_.out_tensors), std::end(frame_.out_tensors), gpumap_tensor{});
  frame_.past_count = 0;
  const std::uint32_t history = plan.declaration.history;
  if (history != 0) history_ = std::make_unique<FrameHistory>(device_, backend_, history);
  tensors_ = tensors_of(plan.declaration);
  // What ships with gpumap tells all that it finds out by name; a user's kernel may write words that have none.
  has_result_ =
      !plan.declaration.results.empty() || (plan.builtin == nullptr && ResultBlocks::may_name(plan.source, "result"));
  if (results_) {
    results_->change(plan.declaration.result_words);
  } else {
    results_ = std::make_unique<ResultBlocks>(device_, backend_, plan.declaration.result_words, settings_.check_bounds);
  }
  // Built-ins keep to the limit.
  loop_risk_ = plan.builtin == nullptr ? loop_risk_of(plan.source, device_->info()) : std::string();
  declaration_ = std::move(plan.declaration);
  size_ = std::make_unique<OutputSize>(declaration_, keeps_layout(), name_);
  size_->set_params(declaration_, params_);
}

void KernelLauncher::set_params(const std::string& params) {
  program_->set_params(params);
  note_params(params);
}

void KernelLauncher::note_params(const std::string& params) {
  const std::lock_guard lock(mutex_);
  params_ = params;
  size_->set_params(declaration_, params_);
}

std::string KernelLauncher::params() const {
  const std::lock_guard lock(mutex_);
  return params_;
}

Fence KernelLauncher::last_launched() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::uint64_t KernelLauncher::frames() const {
  const std::lock_guard lock(mutex_);
  return frames_;
}

KernelLauncher::How KernelLauncher::how() const {
  const std::lock_guard lock(mutex_);
  return {resident_, why_};
}

std::optional<std::string> KernelLauncher::reload() {
  if (!reload_) return {};
  if (!news_) news_ = reload_->poll();
  if (!news_) return {};
  // What the old one launched uses its code and its state. Cancelled, this goes on with the next frame.
  if (!wait(last_)) return {};
  std::optional<KernelReload::News> news = std::exchange(news_, std::nullopt);
  if (!news->program) return news->problem;
  try {
    news->program->set_params(params_);
    check_output_may(news->plan, settings_.late_results, out_);
    check_input_tensors(news->plan.declaration);
    if (const auto tensors = tensors_of(news->plan.declaration); tensors && in_) tensors->begin(in_->view);
    check_output_size(news->plan.declaration);
  } catch (const Error& error) {
    return fmt::format("{}: keeping the previous kernel", error.what());
  }
  adopt(std::move(news->plan), std::move(news->program), std::move(news->tables));
  reload_->adopted();
  begin();
  return std::string();
}

/// Throws Error(invalid) where a kernel takes a tensor that this one does not: who gives the frames knows nothing of
/// it.
void KernelLauncher::check_input_tensors(const Declaration& declaration) const {
  for (const DeclaredTensor& tensor : declaration.input_tensors) {
    if (std::ranges::find(declaration_.input_tensors, tensor) != declaration_.input_tensors.end()) continue;
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: it takes another tensor \"{}\" than before, or did not take "
                            "one: start anew for that",
                            name_, tensor.id));
  }
}

/// Throws Error(invalid) where a frame as the last one, or as the stream's are, would have no room for its output.
void KernelLauncher::check_output_size(const Declaration& declaration) const {
  if (sized_.bytes == 0) return;
  OutputSize size(declaration, declaration.output.empty() && !declaration.converted, name_);
  size.set_params(declaration, params_);
  static_cast<void>(size.of(sized_, *in_, *out_, {}));
}

std::string KernelLauncher::refresh_tables() {
  return tables_ ? tables_->refresh(last_) : std::string();
}

void KernelLauncher::set_stream(const FrameLayout& in, const FrameLayout& out, const gpumap_color& color,
                                std::uint32_t frame_rate, std::uint32_t frame_rate_scale, const gpumap_color& out_color,
                                const std::optional<std::string>& params) {
  in_ = in;
  out_ = out;
  sized_ = {};
  sized_.bytes = sized_.picture_bytes = in.view.bytes;
  sized_.view = in.view;
  frame_.color = color;
  frame_.out_color = out_color;
  frame_.frame_rate = frame_rate;
  frame_.frame_rate_scale = frame_rate_scale;
  check_shortening(declaration_, name_, out_);
  // Else a queue of small frames would hold as many of the largest that came before.
  for (const auto* pool : {&device_pool_, &host_pool_, &packed_pool_, &joined_pool_}) {
    if (*pool) (*pool)->begin();
  }
  realign();
  if (!params) {
    begin();
    return;
  }
  forget();
  program_->begin_with(*params, in.view, out.view);
  note_params(*params);
}

/// But for what the program keeps.
void KernelLauncher::forget() {
  if (history_) history_->forget();
  if (tensors_ && in_) tensors_->begin(in_->view);
}

void KernelLauncher::begin() {
  forget();
  if (in_) program_->begin(in_->view, out_->view);
}

std::span<const TensorOutput> KernelLauncher::tensors() const noexcept {
  return tensors_ ? std::span<const TensorOutput>(tensors_->outputs()) : std::span<const TensorOutput>();
}

bool KernelLauncher::wait(const Fence& fence) {
  return fence.wait(cancelled_) == WaitResult::ready;
}

/// In the middle of a frame, which is not submitted yet: until then this is what the watchdog looks at.
bool KernelLauncher::wait_for_queue(const Fence& fence) {
  {
    const std::lock_guard lock(mutex_);
    if (last_.signalled()) last_ = fence;
  }
  return wait(fence);
}

void KernelLauncher::drain() {
  naming([&] { return wait(last_); });
}

FrameHolder::~FrameHolder() = default;

}  // namespace gpumap
