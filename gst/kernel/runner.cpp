// SPDX-License-Identifier: MIT
#include "gst/kernel/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <tuple>
#include <utility>

#include "gpumap/error.hpp"
#include "gst/cuda/caps.hpp"
#include "gst/kernel/declared_caps.hpp"
#include "gst/kernel/inputs.hpp"
#include "gst/latency/report.hpp"
#include "gst/memory/caps.hpp"

namespace gpumap::gst {

namespace {

/// `call`; what goes wrong with the GPU meanwhile is said of this kernel.
template <typename Call>
auto naming(const std::string& kernel, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::device_lost) throw;
    throw Error(ErrorCode::device_lost, fmt::format("while running kernel {}: {}", kernel, error.what()));
  }
}

/// As gpumap_frame tells it.
std::pair<gpumap_u32, gpumap_u32> frame_rate_of(const GstCaps* caps) {
  gint rate = 0, scale = 1;
  gst_structure_get_fraction(gst_caps_get_structure(caps, 0), "framerate", &rate, &scale);
  if (rate <= 0 || scale <= 0) return {0, 1};
  return {static_cast<gpumap_u32>(rate), static_cast<gpumap_u32>(scale)};
}

}  // namespace

KernelRunner::KernelRunner(const KernelSettings& settings, std::shared_ptr<Device> device)
    : settings_(settings),
      device_(device ? std::move(device) : Device::open(settings.device)),
      backend_(Backend::vulkan) {
  KernelPlan plan = plan_of(settings, *device_);
  backend_ = backend_of(plan.source.language);
  name_ = plan.source.name;
  declared_ = caps_of(plan.declaration);
  auto program = plan.builtin != nullptr ? Program::load(device_, *plan.builtin, backend_)
                                         : Program::load(device_, plan.source, plan.declaration);
  program->set_params(settings.params);
  check_declared_caps(declared_, settings.params);
  auto tables = tables_of(plan, settings, device_);
  params_ = settings.params;
  queue_ = device_->create_queue(backend_);
  check_output_may(plan);
  adopt(std::move(plan), std::move(program), std::move(tables));
  if (settings.check_bounds) bounds_ = std::make_unique<BoundsCheck>(*device_, backend_);
  if (settings.reload) reload_ = std::make_unique<KernelReload>(device_, settings);
}

void KernelRunner::adopt(KernelPlan plan, std::unique_ptr<Program> program, std::unique_ptr<Tables> tables) {
  program_ = std::move(program);
  tables_ = std::move(tables);
  history_.reset();
  std::fill(std::begin(frame_.tables), std::end(frame_.tables), gpumap_table{});
  frame_.past_count = 0;
  const std::uint32_t history = plan.declaration.history;
  if (history != 0) history_ = std::make_unique<FrameHistory>(device_, backend_, history);
  // What ships with gpumap tells all that it finds out by name; a user's kernel may write words that have none.
  has_result_ =
      !plan.declaration.results.empty() || (plan.builtin == nullptr && KernelResult::may_name(plan.source, "result"));
  ResultRule rule{.kernel = name_,
                  .message = plan.declaration.message,
                  .fields = plan.declaration.results,
                  .words = plan.declaration.result_words};
  if (result_) {
    result_->change(std::move(rule));
  } else {
    result_ = std::make_unique<KernelResult>(device_, backend_, std::move(rule), settings_.late_results);
  }
  declaration_ = std::move(plan.declaration);
  note_params();
}

void KernelRunner::note_params() {
  of_params_.clear();
  if (declaration_.output_bytes.find("params.") == std::string::npos) return;
  const std::vector<Number> numbers = gpumap::numbers_of(declaration_, name_, params_);
  of_params_ = parameter_variables(declaration_.params, numbers, G_MAXINT64);
}

std::optional<std::string> KernelRunner::reload() {
  if (!reload_) return {};
  if (!news_) news_ = reload_->poll();
  if (!news_) return {};
  // What the old one launched uses its code and its state. Cancelled, this goes on with the next frame.
  if (!wait(last_)) return {};
  std::optional<KernelReload::News> news = std::exchange(news_, std::nullopt);
  if (!news->program) return news->problem;
  if (caps_of(news->plan.declaration) != declared_) {
    return fmt::format("kernel {}: it declares other caps: start the pipeline again", name_);
  }
  try {
    news->program->set_params(params_);
    check_output_may(news->plan);
  } catch (const Error& error) {
    return fmt::format("kernel {}: {}: the kernel of before goes on", name_, error.what());
  }
  adopt(std::move(news->plan), std::move(news->program), std::move(news->tables));
  begin();
  return std::string();
}

KernelRunner::~KernelRunner() {
  try {
    if (last_.wait(Clock::now() + patience_at_end) == WaitResult::ready) {
      queue_.reset();  // before what its launches use
      return;
    }
    std::fprintf(stderr, "gpumap: kernel %s still runs 5 s after its element's end: what it uses stays allocated\n",
                 name_.c_str());
    keep_for_good(std::shared_ptr<Program>(std::move(program_)));
    keep_for_good(device_pool_);
    keep_for_good(host_pool_);
    keep_for_good(packed_pool_);
    keep_for_good(std::shared_ptr<CudaLoans>(std::move(loans_)));
    keep_for_good(std::shared_ptr<Queue>(std::move(queue_)));
    keep_for_good(std::shared_ptr<KernelResult>(std::move(result_)));
    keep_for_good(std::shared_ptr<BoundsCheck>(std::move(bounds_)));
    keep_for_good(std::shared_ptr<Tables>(std::move(tables_)));
    keep_for_good(std::shared_ptr<FrameHistory>(std::move(history_)));
  } catch (const std::exception&) {
    // The device is lost: nothing runs on it any more.
  }
}

void KernelRunner::set_params(const std::string& params) {
  program_->set_params(params);
  const std::lock_guard lock(last_mutex_);
  params_ = params;
  note_params();
  settle_stream();
}

void KernelRunner::settle_stream() {
  if (!in_caps_) return;
  metas_ = meta_rule(crop_of(declared_, params_), keeps_layout() || in_place(), in_caps_.get(), out_caps_.get());
  const std::uint64_t rate = in_format_.view(0, 0, nullptr).rate;
  latency_ns_ = rate != 0 ? gst_util_uint64_scale_ceil(program_->gathers(), GST_SECOND, rate) : 0;
}

std::string KernelRunner::params() const {
  const std::lock_guard lock(last_mutex_);
  return params_;
}

void KernelRunner::set_caps(const GstCaps* in, const GstCaps* out) {
  cuda_input_ = is_cuda_caps(in);
  cuda_output_ = is_cuda_caps(out);
  cuda_pool_.reset();
  if (cuda_input_ || cuda_output_) {
    const std::string obstacle = cuda_obstacle();
    if (!obstacle.empty()) {
      throw Error(ErrorCode::not_supported,
                  fmt::format("memory:CUDAMemory cannot be {} here: {}", cuda_output_ ? "given" : "taken", obstacle));
    }
  }
  check_picture_size(in);
  check_picture_size(out);
  in_format_ = FrameFormat::from_caps(in);
  out_format_ = FrameFormat::from_caps(out);
  frame_.color = in_format_.color();
  std::tie(frame_.frame_rate, frame_.frame_rate_scale) = frame_rate_of(in);
  check_shortening(declaration_);
  gpu_output_ = is_gpu_caps(out);
  in_caps_.reset(gst_caps_copy(in));
  out_caps_.reset(gst_caps_copy(out));
  begin();
  settle_stream();
}

void KernelRunner::begin() {
  times_.forget();
  begun_anew_ = true;
  continuity_.break_off();
  if (history_) history_->forget();
  loans_->sweep();
  cuda_sequence_ = 0;
  if (!in_caps_) return;
  program_->begin(in_format_.view(0, in_format_.image_bytes(), nullptr),
                  out_format_.view(0, out_format_.image_bytes(), nullptr));
}

bool KernelRunner::wait(const Fence& fence) {
  return fence.wait(no_deadline, std::chrono::microseconds(50), &cancelled_) == WaitResult::ready;
}

GstStructure* KernelRunner::stats() const {
  std::unique_lock lock(last_mutex_);
  const std::uint64_t frames = frames_;
  const auto log = log_;
  lock.unlock();
  GstStructure* made = gst_structure_new("gpumapkernel-stats", "kernel", G_TYPE_STRING, name_.c_str(), "backend",
                                         G_TYPE_STRING, backend_ == Backend::cuda ? "cuda" : "vulkan", "frames",
                                         G_TYPE_UINT64, static_cast<guint64>(frames), nullptr);
  add_latency(made, log.get());
  return made;
}

void KernelRunner::drain() {
  naming(name_, [&] { (void)wait(last_); });
  result_->collect();
}

GstBuffer* KernelRunner::run(GstBuffer* in) {
  return naming(name_, [&] { return run_on(in); });
}

}  // namespace gpumap::gst
