// SPDX-License-Identifier: MIT
#include "gpumap/kernel_launcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string_view>

#include "device/cuda_driver.hpp"
#include "device/gpu_device.hpp"
#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"
#include "kernel/grid.hpp"
#include "kernel/kernel_memory.hpp"
#include "kernel/output_size.hpp"
#include "queue/queues.hpp"

namespace gpumap {
namespace {

/// A word of `code`, before the parenthesis that a loop has behind it. By hand, for code of any length.
bool has_loop(std::string_view code) {
  constexpr std::string_view name = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  for (const std::string_view word : {"for", "while"}) {
    for (std::size_t at = code.find(word); at != code.npos; at = code.find(word, at + 1)) {
      if (at != 0 && name.find(code[at - 1]) != name.npos) continue;
      const std::size_t next = code.find_first_not_of(" \t\r\n", at + word.size());
      if (next != code.npos && code[next] == '(') return true;
    }
  }
  return false;
}

/// Built-ins keep to the limit.
std::string loop_risk_of(const KernelPlan& plan, const DeviceInfo& device) {
  const bool may_be_cut = device.software && plan.builtin == nullptr && plan.source.language == Language::glsl;
  if (!may_be_cut || !has_loop(plan.source.code)) return {};
  return fmt::format(
      "kernel {} has a loop, and {} may end the loops of a thread after {} turns, those of all its loops "
      "together, without a word: give large work many threads, or several functions",
      plan.source.name, device.name, max_loop_turns);
}

}  // namespace

KernelLauncher::KernelLauncher(const KernelSettings& settings, std::shared_ptr<Device> device, PlanCheck check)
    : settings_(settings),
      check_(std::move(check)),
      device_(device ? std::move(device) : Device::open(settings.device)) {
  KernelPlan plan = plan_of(settings, *device_);
  backend_ = backend_of(plan.source.language);
  name_ = plan.source.name;
  auto program = Program::load(device_, plan, settings.mode);
  program->set_params(settings.params);
  if (check_) check_(plan);
  auto tables = tables_of(plan, device_);
  params_ = settings.params;
  check_output_may(plan);
  adopt(std::move(plan), std::move(program), std::move(tables));
  rest_ = std::make_unique<WorkMemory>(device_, backend_);
  if (settings.check_bounds) bounds_ = std::make_unique<BoundsCheck>(device_, backend_);
  if (settings.reload) reload_ = std::make_unique<KernelReload>(device_, settings, check_);
}

void KernelLauncher::choose_queue(const KernelPlan& plan) {
  if (queue_ && resident_ == plan.resident) return;
  queue_ = create_queue(plan.resident);
  multiprocessors_ = queue_->multiprocessors();
  const std::lock_guard lock(mutex_);
  resident_ = plan.resident;
  why_ = plan.resident ? doorbell_of(*queue_) : plan.why_launched;
}

std::unique_ptr<Queue> KernelLauncher::create_queue(bool resident) {
  auto queue = open_queue(resident);
  queue->set_wait([this](const Fence& fence) { return wait_for_queue(fence); });
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
  if (backend_ != Backend::cuda) {
    throw Error(ErrorCode::not_supported,
                fmt::format("kernel {}: priority and sm-share are CUDA's, and this runs in Vulkan: leave them out, or "
                            "give a kernel for CUDA",
                            name_));
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
  KernelSettings settings = settings_;
  settings.mode = KernelMode::launch;
  KernelPlan plan = plan_of(settings, *device_);
  plan.why_launched = "CUDA's streams order the frames that come or go";
  check_output_may(plan);
  if (check_) check_(plan);
  auto program = Program::load(device_, plan, settings.mode);
  program->set_params(params());
  auto tables = tables_of(plan, device_);
  adopt(std::move(plan), std::move(program), std::move(tables));
  if (settings_.reload) reload_ = std::make_unique<KernelReload>(device_, settings, check_);
  begin();
  return true;
}

KernelLauncher::~KernelLauncher() {
  end();
}

bool KernelLauncher::end() noexcept {
  if (std::exchange(ended_, true)) return all_done_;
  try {
    const auto done = [end = Clock::now() + patience_at_end](const Fence& fence) {
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

void KernelLauncher::adopt(KernelPlan plan, std::unique_ptr<Program> program, std::unique_ptr<Tables> tables) {
  choose_queue(plan);
  program_ = std::move(program);
  tables_ = std::move(tables);
  history_.reset();
  std::fill(std::begin(frame_.tables), std::end(frame_.tables), gpumap_table{});
  std::fill(std::begin(frame_.in_tensors), std::end(frame_.in_tensors), gpumap_tensor{});
  std::fill(std::begin(frame_.out_tensors), std::end(frame_.out_tensors), gpumap_tensor{});
  frame_.past_count = 0;
  const std::uint32_t history = plan.declaration.history;
  if (history != 0) history_ = std::make_unique<FrameHistory>(device_, backend_, history);
  tensors_.reset();
  if (!plan.declaration.input_tensors.empty() || !plan.declaration.output_tensors.empty()) {
    tensors_ = std::make_unique<FrameTensors>(device_, backend_, name_, plan.declaration.input_tensors,
                                              plan.declaration.output_tensors, settings_.check_bounds);
  }
  // What ships with gpumap tells all that it finds out by name; a user's kernel may write words that have none.
  has_result_ =
      !plan.declaration.results.empty() || (plan.builtin == nullptr && ResultBlocks::may_name(plan.source, "result"));
  if (results_) {
    results_->change(plan.declaration.result_words);
  } else {
    results_ = std::make_unique<ResultBlocks>(device_, backend_, plan.declaration.result_words, settings_.check_bounds);
  }
  loop_risk_ = loop_risk_of(plan, device_->info());
  declaration_ = std::move(plan.declaration);
  size_ = std::make_unique<OutputSize>(declaration_, keeps_layout(), name_);
  size_->set_params(declaration_, params_);
}

void KernelLauncher::set_params(const std::string& params) {
  program_->set_params(params);
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
    check_output_may(news->plan);
  } catch (const Error& error) {
    return fmt::format("kernel {}: {}: keeping the previous kernel", name_, error.what());
  }
  adopt(std::move(news->plan), std::move(news->program), std::move(news->tables));
  begin();
  return std::string();
}

std::string KernelLauncher::refresh_tables() {
  return tables_ ? tables_->refresh(last_) : std::string();
}

void KernelLauncher::set_stream(const FrameLayout& in, const FrameLayout& out, const gpumap_color& color,
                                std::uint32_t frame_rate, std::uint32_t frame_rate_scale,
                                const gpumap_color& out_color) {
  in_ = in;
  out_ = out;
  frame_.color = color;
  frame_.out_color = out_color;
  frame_.frame_rate = frame_rate;
  frame_.frame_rate_scale = frame_rate_scale;
  check_shortening(declaration_);
  realign();
  begin();
}

void KernelLauncher::begin() {
  if (history_) history_->forget();
  if (tensors_ && in_) tensors_->begin(in_->view);
  if (in_) program_->begin(in_->view, out_->view);
}

std::span<const TensorOutput> KernelLauncher::tensors() const noexcept {
  return tensors_ ? std::span<const TensorOutput>(tensors_->outputs()) : std::span<const TensorOutput>();
}

void KernelLauncher::check_output_may(const KernelPlan& plan) const {
  const OutputMay& may = plan.declaration.output_may;
  if (!may) return;
  if (!ResultBlocks::may_name(plan.source, "given")) {
    throw Error(ErrorCode::invalid, fmt::format("kernel {}: it declares output-may and never writes to frame.given, so "
                                                "that nothing would ever come out: write there, or leave output-may "
                                                "out",
                                                plan.source.name));
  }
  if (settings_.late_results) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: declares output-may, for which each frame is waited for, and "
                            "late-results is true: leave one of them out",
                            plan.source.name));
  }
  check_shortening(plan.declaration);
}

void KernelLauncher::check_shortening(const Declaration& declaration) const {
  if (!declaration.output_may.shorten) return;
  if (declaration.unchanged) {
    throw Error(ErrorCode::invalid, fmt::format("kernel {}: an output that is unchanged cannot be shortened: leave "
                                                "shorten or unchanged out",
                                                name_));
  }
  if (const std::size_t fixed = out_ ? out_->view.bytes : 0; fixed != 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: its output cannot be shortened, for every frame of these caps has {} bytes: "
                            "leave shorten out, or declare an output whose size may vary",
                            name_, fixed));
  }
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

}  // namespace gpumap
