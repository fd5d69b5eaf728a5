// SPDX-License-Identifier: MIT
#include "gst/kernel/runner.hpp"

#include <fmt/format.h>

#include <utility>

#include "gpumap/error.hpp"
#include "gst/cuda/caps.hpp"
#include "gst/latency/report.hpp"
#include "gst/memory/caps.hpp"

namespace gpumap::gst {

namespace {

/// As gpumap_frame tells it.
std::pair<gpumap_u32, gpumap_u32> frame_rate_of(const GstCaps* caps) {
  gint rate = 0, scale = 1;
  gst_structure_get_fraction(gst_caps_get_structure(caps, 0), "framerate", &rate, &scale);
  if (rate <= 0 || scale <= 0) return {0, 1};
  return {static_cast<gpumap_u32>(rate), static_cast<gpumap_u32>(scale)};
}

}  // namespace

KernelRunner::KernelRunner(const KernelSettings& settings, std::shared_ptr<Device> device)
    : result_(settings.late_results) {
  const auto declared = std::make_shared<std::optional<DeclaredCaps>>();
  // A later version of the file is checked in a thread of its own: what it shares with this is written once, before.
  const PlanCheck check = [declared, params = settings.params, late = settings.late_results](const KernelPlan& plan) {
    DeclaredCaps caps = caps_of(plan.declaration);
    check_declared_caps(caps, params);
    check_analytics(plan.source.name, plan.declaration, late);
    if (!*declared) {
      *declared = std::move(caps);
    } else if (caps != **declared) {
      throw Error(
          ErrorCode::invalid,
          fmt::format("kernel {}: it declares other caps: start the pipeline again for them", plan.source.name));
    }
  };
  launcher_ = std::make_unique<KernelLauncher>(settings, std::move(device), check);
  declared_ = **declared;
  result_.change(result_rule());
}

KernelRunner::~KernelRunner() {
  if (!launcher_->end()) keep_for_good(std::shared_ptr<CudaLoans>(std::move(loans_)));
}

ResultRule KernelRunner::result_rule() const {
  const Declaration& declaration = launcher_->declaration();
  return {.kernel = launcher_->name(),
          .message = declaration.message,
          .fields = declaration.results,
          .analytics = declaration.analytics};
}

std::optional<std::string> KernelRunner::reload() {
  auto outcome = launcher_->reload();
  if (!outcome || !outcome->empty()) return outcome;
  result_.collect(*launcher_);  // those of the previous version, which has ended
  result_.change(result_rule());
  begin();
  return outcome;
}

void KernelRunner::set_params(const std::string& params) {
  launcher_->set_params(params);
  follow_params();
}

/// What follows for buffers from the parameters, once there are caps.
void KernelRunner::follow_params() {
  if (!in_caps_) return;
  metas_ =
      meta_rule(crop_of(declared_, params()), launcher_->keeps_layout() || in_place(), in_caps_.get(), out_caps_.get());
  const std::uint64_t rate = in_format_.rate();
  latency_ns_ = rate != 0 ? gst_util_uint64_scale_ceil(launcher_->gathers(), GST_SECOND, rate) : 0;
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
  set_vulkan_caps(in, out);
  check_picture_size(in);
  check_picture_size(out);
  in_format_ = FrameFormat::from_caps(in);
  out_format_ = FrameFormat::from_caps(out);
  gpu_output_ = is_gpu_caps(out);
  const gchar* tensor_id = gst_structure_get_string(gst_caps_get_structure(out, 0), "tensor-id");
  tensor_id_ = tensor_id != nullptr ? tensor_id : "gpumap-picture";
  const auto [rate, scale] = frame_rate_of(in);
  launcher_->set_stream(in_format_.layout(), out_format_.layout(), in_format_.color(), rate, scale);
  in_caps_.reset(gst_caps_copy(in));
  out_caps_.reset(gst_caps_copy(out));
  begin();
  follow_params();
}

void KernelRunner::begin() {
  times_.forget();
  begun_anew_ = true;
  continuity_.break_off();
  loans_->sweep();
  foreign_sequence_ = 0;
  launcher_->begin();
}

GstStructure* KernelRunner::stats() const {
  std::unique_lock lock(log_mutex_);
  const auto log = log_;
  lock.unlock();
  const KernelLauncher::How how = launcher_->how();
  GstStructure* made = gst_structure_new(
      "gpumapkernel-stats", "kernel", G_TYPE_STRING, name().c_str(), "backend", G_TYPE_STRING,
      value_name(launcher_->backend()), "frames", G_TYPE_UINT64, static_cast<guint64>(launcher_->frames()),
      "gpu-copies", G_TYPE_UINT64, static_cast<guint64>(gpu_copies_), "host-copies", G_TYPE_UINT64,
      static_cast<guint64>(host_copies_), "multiprocessors", G_TYPE_UINT, multiprocessors(), "mode", G_TYPE_STRING,
      how.resident ? "resident" : "launch", "mode-reason", G_TYPE_STRING, how.why.c_str(), nullptr);
  add_latency(made, log.get());
  return made;
}

void KernelRunner::drain() {
  launcher_->drain();
  loans_->sweep();
  result_.collect(*launcher_);
}

}  // namespace gpumap::gst
