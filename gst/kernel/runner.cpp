// SPDX-License-Identifier: MIT
#include "gst/kernel/runner.hpp"

#include <fmt/format.h>

#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/printable.hpp"
#include "gst/cuda/cuda_caps.hpp"
#include "gst/latency/latency_report.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/vulkan/vulkan_caps.hpp"

namespace gpumap::gst {

namespace {

/// As gpumap_frame tells it.
std::pair<gpumap_u32, gpumap_u32> frame_rate_of(const GstCaps* caps) {
  gint rate = 0, scale = 1;
  gst_structure_get_fraction(gst_caps_get_structure(caps, 0), "framerate", &rate, &scale);
  if (rate <= 0 || scale <= 0) return {0, 1};
  return {static_cast<gpumap_u32>(rate), static_cast<gpumap_u32>(scale)};
}

FramesIn frames_in(const GstCaps* caps) {
  if (is_cuda_caps(caps)) return FramesIn::cuda;
  if (is_vulkan_caps(caps)) return FramesIn::vulkan;
  return is_gpu_caps(caps) ? FramesIn::ours : FramesIn::host;
}

/// And what caps the kernel `declares`.
std::unique_ptr<KernelLauncher> load(const KernelSettings& settings, std::shared_ptr<Device> device,
                                     DeclaredCaps& declares) {
  const auto declared = std::make_shared<std::optional<DeclaredCaps>>();
  // A later version of the file is checked in a thread of its own: what it shares with this is written once, before.
  const PlanCheck check = [declared, params = settings.params, late = settings.late_results](const KernelPlan& plan) {
    DeclaredCaps caps = caps_of(plan.declaration, plan.builtin != nullptr);
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
  auto launcher = std::make_unique<KernelLauncher>(settings, std::move(device), check);
  declares = **declared;
  return launcher;
}

}  // namespace

KernelRunner::KernelRunner(const KernelSettings& settings, std::shared_ptr<Device> device)
    : launcher_(load(settings, std::move(device), declared_)),
      result_(settings.late_results),
      cuda_(*launcher_),
      vulkan_(*launcher_) {
  result_.change(result_rule());
}

KernelRunner::~KernelRunner() {
  if (!launcher_->end()) cuda_.leave();
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
  input_ = frames_in(in);
  output_ = frames_in(out);
  cuda_.drop_pool();
  if (meets_cuda_elements()) {
    const std::string obstacle = cuda_obstacle();
    if (!obstacle.empty()) {
      throw Error(ErrorCode::not_supported, fmt::format("memory:CUDAMemory cannot be {} here: {}",
                                                        output_ == FramesIn::cuda ? "given" : "taken", obstacle));
    }
  }
  vulkan_.set_caps(in, out);
  check_picture_size(in);
  check_picture_size(out);
  check_chroma_site(declared_, in, out);
  in_format_ = FrameFormat::from_caps(in);
  out_format_ = FrameFormat::from_caps(out);
  const gchar* tensor_id = gst_structure_get_string(gst_caps_get_structure(out, 0), "tensor-id");
  tensor_id_ = tensor_id != nullptr ? tensor_id : "gpumap-picture";
  const auto [rate, scale] = frame_rate_of(in);
  launcher_->set_stream(in_format_.layout(), out_format_.layout(), in_format_.color(), rate, scale,
                        out_format_.color_from_rgb());
  in_caps_.reset(gst_caps_copy(in));
  out_caps_.reset(gst_caps_copy(out));
  begin();
  follow_params();
}

void KernelRunner::begin() {
  times_.forget();
  continuity_.begin();
  cuda_.sweep();
  foreign_sequence_ = 0;
  launcher_->begin();
}

GstStructure* KernelRunner::stats() const {
  std::unique_lock lock(log_mutex_);
  const auto log = log_;
  lock.unlock();
  const KernelLauncher::How how = launcher_->how();
  GstStructure* made = gst_structure_new(
      "gpumapkernel-stats", "kernel", G_TYPE_STRING, printable(name()).c_str(), "backend", G_TYPE_STRING,
      value_name(launcher_->backend()), "frames", G_TYPE_UINT64, static_cast<guint64>(launcher_->frames()),
      "gpu-copies", G_TYPE_UINT64, static_cast<guint64>(vulkan_.gpu_copies()), "host-copies", G_TYPE_UINT64,
      static_cast<guint64>(vulkan_.host_copies()), "multiprocessors", G_TYPE_UINT, multiprocessors(), "mode",
      G_TYPE_STRING, how.resident ? "resident" : "launch", "mode-reason", G_TYPE_STRING, printable(how.why).c_str(),
      nullptr);
  add_latency(made, log.get());
  return made;
}

void KernelRunner::drain() {
  launcher_->drain();
  cuda_.sweep();
  result_.collect(*launcher_);
}

}  // namespace gpumap::gst
