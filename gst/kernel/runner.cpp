// SPDX-License-Identifier: MIT
#include "gst/kernel/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpumap/error.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/printable.hpp"
#include "gpumap/thread_schedule.hpp"
#include "gst/analytics/analytics_metas.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/gst_error.hpp"
#include "gst/latency/latency_report.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "gst/memory/memory_caps.hpp"
#include "gst/ptr.hpp"
#include "gst/radio/radio_metas.hpp"
#include "gst/vulkan/gst_vulkan_context.hpp"

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
      vulkan_(*launcher_),
      asked_params_(settings.params) {
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
  launcher_->set_params(with_center(params));
  asked_params_ = params;
  follow_params();
}

bool KernelRunner::propose_params(const std::string& params) {
  if (params == asked_params_) return false;
  static_cast<void>(gpumap::numbers_of(launcher_->declaration(), name(), params));
  const std::lock_guard lock(proposed_mutex_);
  proposed_ = params;
  return true;
}

std::optional<std::string> KernelRunner::proposed_params() const {
  const std::lock_guard lock(proposed_mutex_);
  return proposed_;
}

std::optional<std::string> KernelRunner::take_proposed() {
  const std::lock_guard lock(proposed_mutex_);
  return std::exchange(proposed_, std::nullopt);
}

std::string KernelRunner::params_for_caps() const {
  const std::optional<std::string> proposed = proposed_params();
  return proposed ? *proposed : params();
}

bool KernelRunner::follows_center(GstBuffer* in) {
  if (!declared_.tuning) return false;
  const std::optional<double> told = radio_of(in).center_frequency;
  if (!told || told == center_) return false;
  center_ = told;
  return true;
}

/// A kernel that tunes gets the centre frequency of its input, unless `params` say it themselves. As long as nobody has
/// said it, what is asked of the sky is taken for it: the first frame may tell.
std::string KernelRunner::with_center(const std::string& params) const {
  if (!declared_.tuning || says_center(params)) return params;
  const double sky = tuning_of(declared_, params).sky;
  if (!center_ && sky == 0.0) return params;
  NamedNumbers all = parse_parameters(params);
  all.emplace_back(declared_.tuning->center, std::vector<Number>{center_.value_or(sky)});
  return format_parameters(all);
}

bool KernelRunner::says_center(const std::string& params) const {
  const NamedNumbers all = parse_parameters(params);
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.first == declared_.tuning->center; });
}

/// Throws Error(invalid) where the sky is asked for and nobody has said where the band is.
void KernelRunner::check_center() const {
  if (!declared_.tuning || center_ || tuning_.sky == 0.0 || says_center(asked_params_)) return;
  throw Error(
      ErrorCode::invalid,
      fmt::format("kernel {}: {}={}, and neither caps nor frames say the centre frequency of the band: put "
                  "capssetter caps=audio/x-raw,center-frequency=(double)HERTZ before it, or set the parameter {}",
                  name(), declared_.tuning->sky, tuning_.sky, declared_.tuning->center));
}

/// What follows for buffers from the parameters, once there are caps.
void KernelRunner::follow_params() {
  if (!in_caps_) return;
  metas_ =
      meta_rule(crop_of(declared_, params()), launcher_->keeps_layout() || in_place(), in_caps_.get(), out_caps_.get());
  tuning_ = tuning_of(declared_, params());
  const std::uint64_t rate = in_format_.rate();
  latency_ns_ = rate != 0 ? gst_util_uint64_scale_ceil(launcher_->gathers(), GST_SECOND, rate) : 0;
}

void KernelRunner::set_caps(const GstCaps* in, const GstCaps* out) {
  const std::optional<std::string> proposed = proposed_params();
  try {
    begin_stream(in, out, proposed);
  } catch (const std::exception&) {
    // Those before may be said again with the parameters in force, and GStreamer hands on no caps that are the same.
    if (proposed && in_caps_) begin_stream(in_caps_.get(), out_caps_.get(), {});
    throw;
  }
  static_cast<void>(take_proposed());
}

void KernelRunner::begin_stream(const GstCaps* in, const GstCaps* out, const std::optional<std::string>& proposed) {
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
  if (!declared_.output.empty()) check_output_shape(out);
  check_chroma_site(declared_, in, out);
  in_format_ = FrameFormat::from_caps(in);
  out_format_ = FrameFormat::from_caps(out);
  const gchar* tensor_id = gst_structure_get_string(gst_caps_get_structure(out, 0), "tensor-id");
  const bool by_dims = out_format_.format() == GPUMAP_FORMAT_BYTES;
  tensor_id_ = tensor_id != nullptr ? tensor_id : by_dims ? "gpumap-tensor" : "gpumap-picture";
  center_ = center_frequency_of(gst_caps_get_structure(in, 0));
  const std::string asked = proposed.value_or(asked_params_);
  std::optional<std::string> params;
  if (proposed || declared_.tuning) params = with_center(asked);
  const auto [rate, scale] = frame_rate_of(in);
  launcher_->set_stream(in_format_.layout(), out_format_.layout(), in_format_.color(), rate, scale,
                        out_format_.color_from_rgb(), params);
  asked_params_ = asked;
  if (in != in_caps_.get()) {
    in_caps_.reset(gst_caps_copy(in));
    out_caps_.reset(gst_caps_copy(out));
  }
  begin();
  follow_params();
}

void KernelRunner::begin() {
  times_.forget();
  untold_.reset();
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

// What a KernelRunner launches on: buffers that came in.
namespace {

std::int64_t time_or_none(GstClockTime time) {
  return GST_CLOCK_TIME_IS_VALID(time) ? static_cast<std::int64_t>(time) : -1;
}

}  // namespace

std::optional<KernelRunner::Input> KernelRunner::input_of(GstBuffer* in) {
  std::optional<Input> made(std::in_place);
  switch (input_) {
    case FramesIn::host:
    case FramesIn::ours:
      find_ours(*made, in);
      break;
    case FramesIn::cuda:
      if (!map_cuda(*made, in)) return {};
      break;
    case FramesIn::vulkan:
      if (!copy_vulkan(*made, in)) return {};
      break;
  }
  FrameInput& frame = made->frame;
  if (!launcher_->declaration().input_tensors.empty()) {
    made->tensors = MappedTensors(in, *launcher_, cuda_);
    if (made->tensors.cancelled()) return {};
    frame.tensors = made->tensors.take();
  }
  frame.pts = time_or_none(GST_BUFFER_PTS(in));
  frame.duration = time_or_none(GST_BUFFER_DURATION(in));
  frame.by_field = in_format_.has_chroma_by_field(in);
  if (declared_.converted) {
    frame.by_field = (frame.by_field || out_format_.has_chroma_by_field(in)) && out_format_.has_room_by_field();
  }
  frame.trace = trace_of(in);
  return made;
}

void KernelRunner::find_ours(Input& input, GstBuffer* in) const {
  GstMemory* memory = gst_buffer_n_memory(in) == 1 ? gst_buffer_peek_memory(in, 0) : nullptr;
  FrameMemory* holder = frame_memory(memory);
  if (memory == nullptr || holder == nullptr) {
    throw Error(ErrorCode::invalid,
                "a frame that is not in GPU memory reached gpumapkernel: put gpumapupload before it (or gpumapsink and "
                "gpumapsrc), with nothing between the two that changes frames on the CPU");
  }
  const Backend backend = launcher_->backend();
  FrameInput& frame = input.frame;
  frame.mapping = &holder->mapping();
  frame.holder = holder;
  frame.written = holder->written();
  frame.sequence = holder->sequence();
  frame.offset = holder->offset() + memory->offset;
  frame.bytes = memory->size;
  frame.address = frame.mapping->address(backend);
  if (frame.address == 0) {
    const auto* reaches = std::ranges::find_if(
        backends, [&](const BackendTraits& traits) { return frame.mapping->address(traits.backend) != 0; });
    throw Error(
        ErrorCode::invalid,
        fmt::format("{} runs {}, which does not reach the page-locked memory of transport=zero-copy on {}: use "
                    "{}transport=pinned on gpumapsink",
                    name(), to_string(backend), name_of(device().info()),
                    reaches == backends.end() ? std::string()
                                              : fmt::format("backend={} on gpumapkernel, or ", reaches->value)));
  }
  frame.address += frame.offset;
  input.meta = in_format_.is_video() ? gst_buffer_get_video_meta(in) : nullptr;
  const GstVideoMeta* shown = input.meta;
  // Where the bytes stay as they are, so does what is said of them.
  std::optional<GstVideoMeta> part;
  if (input.meta != nullptr && !launcher_->keeps_layout() && !in_place()) part = cut_out(in, in_format_.video());
  if (part) {
    shown = &*part;
    input.is_cut = true;
  }
  frame.picture_bytes = shown != nullptr ? in_format_.check(*shown, frame.bytes) : in_format_.image_bytes();
  frame.view = in_format_.view(frame.address, frame.bytes, shown);
}

bool KernelRunner::map_cuda(Input& input, GstBuffer* in) {
  const bool picture = in_format_.is_video();
  input.cuda = picture ? cuda_.map(in, in_format_.video()) : cuda_.map_bytes(in);
  if (!input.cuda) return false;
  input.meta = picture ? &input.cuda.layout() : nullptr;
  FrameInput& frame = input.frame;
  frame.bytes = input.cuda.bytes();
  frame.address = input.cuda.address();
  frame.picture_bytes = picture ? in_format_.check(*input.meta, frame.bytes) : in_format_.image_bytes();
  frame.view = in_format_.view(frame.address, frame.bytes, input.meta);
  frame.copy = picture ? cuda_.copier(in_format_.video()) : cuda_.copier_of_bytes();
  frame.ordered = orders_by_stream(input.cuda);  // and kept until the kernel is done with it
  frame.sequence = foreign_sequence_++;
  return true;
}

bool KernelRunner::copy_vulkan(Input& input, GstBuffer* in) {
  input.block = vulkan_.copy_in(in, in_format_);
  if (!input.block) return false;
  FrameInput& frame = input.frame;
  frame.mapping = &input.block.mapping();
  frame.bytes = frame.picture_bytes = in_format_.image_bytes();
  frame.address = frame.mapping->address(launcher_->backend());
  frame.view = in_format_.view(frame.address, frame.bytes, nullptr);
  frame.sequence = foreign_sequence_++;
  return true;
}

std::string KernelRunner::shortfall(GstBuffer* in) const {
  const FrameMemory* frame = gst_buffer_n_memory(in) == 1 ? frame_memory(gst_buffer_peek_memory(in, 0)) : nullptr;
  if (frame != nullptr && frame->recalled()) return taken_back;
  const std::size_t bytes = gst_buffer_get_size(in);
  const std::size_t wanted = in_format_.image_bytes();
  // Where planes and strides are told, these are checked instead.
  const bool is_told = bytes != 0 && in_format_.is_video() && gst_buffer_get_video_meta(in) != nullptr;
  const bool tells_itself = input_ == FramesIn::vulkan || (input_ == FramesIn::cuda && in_format_.is_video());
  if (bytes >= wanted || is_told || tells_itself) return {};
  return fmt::format(
      "a frame of {} bytes where the caps say {} is left out, and so are others like it: see what upstream sends",
      bytes, wanted);
}

// What a KernelRunner does with one buffer.

using Outcome = FrameOutput::Outcome;

namespace {

GstMemory* wrap_host(LentBlock lent, std::size_t bytes) {
  std::byte* data = lent.mapping().host();
  auto* loan = new LentBlock(std::move(lent));
  return gst_memory_new_wrapped(static_cast<GstMemoryFlags>(0), data, bytes, 0, bytes, loan,
                                [](gpointer returned) { delete static_cast<LentBlock*>(returned); });
}

/// The first `bytes` of a block that `done` fills.
GstMemory* wrap_device(const std::shared_ptr<Device>& device, LentBlock& lent, std::size_t bytes, const Fence& done,
                       std::uint64_t sequence, const std::shared_ptr<const Giver>& giver) {
  auto memory = std::make_unique<FrameMemory>(device, lent.release(), bytes, lent.pool());
  memory->set_written(done, giver);
  memory->set_sequence(sequence);
  return memory_new(wrapping_allocator(), std::move(memory), bytes, GST_MEMORY_FLAG_READONLY);
}

}  // namespace

void KernelRunner::count(const FrameTrace* trace) {
  if (trace == nullptr) return;
  const std::lock_guard lock(log_mutex_);
  if (log_ != trace->log()) log_ = trace->log();
}

void KernelRunner::keep_result(const GstBuffer* in, const Input& input, std::uint64_t bytes) {
  if (!launcher_->has_result()) return;
  result_.keep(
      {.bytes = bytes, .sequence = input.frame.sequence, .offset = GST_BUFFER_OFFSET(in), .pts = GST_BUFFER_PTS(in)});
  result_.collect(*launcher_);
}

KernelRunner::Ran KernelRunner::run(GstBuffer* in) {
  // Where only the GPU waits, a fault of an earlier frame may show anywhere.
  return launcher_->naming([&] { return run_on(in); });
}

KernelRunner::Ran KernelRunner::run_on(GstBuffer* in) {
  if (lacks_vulkan_pool()) return {};  // the source pad was switched off meanwhile: it has no caps any more
  check_center();
  const bool gap = continuity_.breaks_at(in);
  if (begins_anew_at(in)) begin();
  if (GST_BUFFER_IS_DISCONT(in)) launcher_->realign();
  cuda_.sweep();
  std::optional<Input> input = input_of(in);
  if (!input) return {};
  input->frame.gap = gap;
  const gpumap_u32 rate = in_format_.rate();
  continuity_.add(in, rate != 0 ? input->frame.bytes / in_format_.bytes_per_sample() : 0, rate);
  std::optional<Target> target = target_of(*input);
  if (!target) return {};
  FrameOutput made = launch(*input, *target);
  if (made.outcome == Outcome::cancelled) return {};
  count(input->frame.trace.get());
  if (made.sized_by_program) times_.add(in);
  if (made.sized_by_program && made.outcome != Outcome::given) {
    if (!untold_) untold_.reset(gst_buffer_new());
    copy_annotations(untold_.get(), in);
  }
  Ptr<GstBuffer> out;
  if (made.outcome == Outcome::given) {
    out.reset(buffer_of(in, *input, made, *target));
  } else if (made.outcome == Outcome::dropped) {
    keep_result(in, *input, 0);
    result_.drop_found();
  }
  if (input->cuda && !cuda_.give_back(std::move(input->cuda), made.done)) out.reset();
  if (made.outcome == Outcome::given && !out) return {};
  return {made.outcome, out.release()};
}

std::optional<KernelRunner::Target> KernelRunner::target_of(const Input& input) {
  using Place = FrameTarget::Place;
  std::optional<Target> made(std::in_place);
  FrameTarget& to = made->to;
  switch (output_) {
    case FramesIn::host:
      to.place = kernel_behind_ ? Place::device : Place::host;
      break;
    case FramesIn::ours:
      to.place = Place::device;
      break;
    case FramesIn::vulkan:
      to.place = vulkan_.imports_output() ? Place::device : Place::host;
      break;
    case FramesIn::cuda:
      to.place = lends_to_cuda() && !(in_place() && input.cuda) ? Place::device : Place::others;
      to.ordered = in_place() && input.frame.ordered;  // what goes on is the input
      if (to.place == Place::device || (in_place() && input.cuda) || !launcher_->gives(input.frame)) break;
      made->cuda = cuda_.take(out_format_.video());
      if (!made->cuda) return {};
      to.view = out_format_.view(made->cuda.address(), made->cuda.bytes(), &made->cuda.layout());
      to.copy = cuda_.copier(out_format_.video());
      to.ordered = orders_by_stream(made->cuda);
      break;
  }
  return made;
}

FrameOutput KernelRunner::launch(Input& input, Target& target) {
  const auto keep_all = [&] {
    const Fence last = launcher_->last_launched();
    cuda_.keep(std::move(input.cuda), last);
    cuda_.keep(std::move(target.cuda), last);
    for (CudaFrame& tensor : input.tensors.take_lent()) cuda_.keep(std::move(tensor), last);
    input.block.add_read_fence(last);
  };
  FrameOutput made;
  try {
    made = launcher_->launch(input.frame, target.to);
  } catch (...) {
    keep_all();
    throw;
  }
  if (made.outcome == Outcome::cancelled) {
    keep_all();
    return made;
  }
  if (target.cuda) hand_over(launcher_->queue(), target.cuda);
  input.block.add_read_fence(made.done);
  for (CudaFrame& tensor : input.tensors.take_lent()) cuda_.keep(std::move(tensor), made.done);
  return made;
}

/// Null when cancelled.
GstBuffer* KernelRunner::buffer_of(GstBuffer* in, Input& input, FrameOutput& made, Target& target) {
  const bool to_vulkan = output_ == FramesIn::vulkan;
  const bool to_host = made.host && !to_vulkan;
  const bool to_others = target.cuda || (to_vulkan && !vulkan_.hands_on());
  Ptr<GstBuffer> out;
  if (made.in_place && input.block && !made.host && !target.cuda && !vulkan_.hands_on()) {
    made.block = std::move(input.block);  // what goes on is the copy
    made.in_place = false;
  }
  if (made.in_place && !to_host && !to_others) {
    out.reset(gst_buffer_copy(in));
  } else {
    out.reset(new_buffer(input, made, target));
    if (!out) return nullptr;
    describe(out.get(), in, input, made);
  }
  if (input.frame.trace) refresh_latency_meta(out.get());
  if (made.shortened) set_times_of_shortened(out.get(), made.bytes);
  keep_result(in, input, gst_buffer_get_size(out.get()));
  if (launcher_->has_result()) result_.put_on(out.get());
  if (output_ == FramesIn::host) out.reset(as_downstream_reads(out.release()));
  if (lends_to_cuda()) out.reset(cuda_.lend(out.release()));
  if (!out) return nullptr;
  tell_tensors(out.get(), in, made, input.frame.sequence);
  return out.release();
}

GstBuffer* KernelRunner::as_downstream_reads(GstBuffer* out) const {
  if (!default_layout_only_ || !out_format_.is_video()) return out;
  GstBuffer* read = in_default_layout(out, out_format_.video());
  if (kernel_behind_ && frame_memory(gst_buffer_peek_memory(read, 0)) == nullptr) {
    gst_buffer_unref(read);
    throw Error(
        ErrorCode::not_supported,
        "rows of this frame are padded, and of the branches behind a tee one has a gpumapkernel, which needs it "
        "in GPU memory, and another an element that does not read GstVideoMeta: put videoconvert first in that "
        "branch, or gpumapkernel kernel=convert before the tee");
  }
  return read;
}

/// With the memory in which the output lies. Null when cancelled.
GstBuffer* KernelRunner::new_buffer(const Input& input, FrameOutput& made, Target& target) {
  if (target.cuda) return target.cuda.release();
  if (output_ == FramesIn::vulkan) return vulkan_.copy_out(input.frame, made, out_format_, kept_layout(input, made));
  GstBuffer* out = gst_buffer_new();
  if (made.block) {
    gst_buffer_append_memory(
        out, wrap_device(launcher_->shared_device(), made.block, made.bytes, made.done, input.frame.sequence, giver_));
  } else if (made.host) {
    gst_buffer_append_memory(out, wrap_host(std::move(made.host), made.bytes));
  }
  return out;
}

GstVideoMeta* KernelRunner::kept_layout(const Input& input, const FrameOutput& made) const noexcept {
  return launcher_->keeps_layout() && !made.packed ? input.meta : nullptr;
}

/// As `in` is described, as far as that holds of `out`, which has its memory.
void KernelRunner::describe(GstBuffer* out, GstBuffer* in, const Input& input, const FrameOutput& made) {
  gst_buffer_copy_into(out, in, copy_flags_and_times, 0, static_cast<gsize>(-1));
  copy_metas(out, in, metas_);
  if (input.is_cut) remove_crop_meta(out);
  const bool in_ours = output_ == FramesIn::host || output_ == FramesIn::ours;
  if (GstVideoMeta* meta = in_ours ? kept_layout(input, made) : nullptr) {
    gst_buffer_add_video_meta_full(out, meta->flags, meta->format, meta->width, meta->height, meta->n_planes,
                                   meta->offset, meta->stride);
  }
  if (!in_place()) remove_result_meta(out);
  if (const auto center = declared_.tuning ? radio_of(out).center_frequency : std::nullopt) {
    retune(out, *tuning_.behind(center));
  }
  if (!made.sized_by_program) return;
  times_.give(out);
  if (GST_BUFFER_PTS_IS_VALID(in) && GST_BUFFER_PTS(out) < GST_BUFFER_PTS(in)) {
    move_reference_times(out, GST_CLOCK_DIFF(GST_BUFFER_PTS(in), GST_BUFFER_PTS(out)));
  }
  if (untold_) copy_annotations(out, untold_.get());
  untold_.reset();
}

/// Last: a copy of the buffer may leave them behind.
void KernelRunner::tell_tensors(GstBuffer* out, GstBuffer* in, FrameOutput& made, std::uint64_t sequence) {
  copy_tensors(out, in);
  if (made.tensors) {
    const std::size_t bytes = made.tensors.mapping().bytes();
    const auto in_memory_of_frame = [this](GstMemory* tensor) {
      return output_ == FramesIn::cuda ? cuda_.lend(tensor) : tensor;
    };
    put_tensors(out, wrap_device(launcher_->shared_device(), made.tensors, bytes, made.done, sequence, giver_),
                *launcher_, in_memory_of_frame);
  }
  if (!in_place() && out_format_.tensor()) put_tensor(out, *out_format_.tensor(), tensor_id_);
}

void KernelRunner::set_times_of_shortened(GstBuffer* out, std::size_t given) const {
  GST_BUFFER_OFFSET_END(out) = GST_BUFFER_OFFSET_NONE;
  const gpumap_u32 rate = out_format_.rate();
  if (rate == 0) return;
  // Samples last as long as there are.
  GST_BUFFER_DURATION(out) = gst_util_uint64_scale(given / out_format_.bytes_per_sample(), GST_SECOND, rate);
}

/// What the clock's thread looks at; it may do so once more when the watchdog is gone.
struct Watchdog::Watched {
  void look() {
    std::string kernel;
    auto ahead = WorkAhead::none;
    bool resident = false;
    GstElement* teller = nullptr;
    {
      const std::lock_guard lock(mutex);
      if (!runner) return;
      const GstClockTime now = gst_clock_get_time(clock);
      // Longer than that it did not look: the process was stopped, and on a software device so was the kernel.
      if (now - looked > period()) since += now - looked - period();
      looked = now;
      if (launched.signalled()) {
        launched = runner->last_launched();
        since = now;
      }
      // What waits behind other frames takes as long as these do: it hangs only where none of them ends either. Other
      // kernels have a time of their own, until theirs is over.
      const auto& timeline = launched.timeline();
      const std::uint64_t reached = timeline ? timeline->completed() : 0;
      if (std::exchange(ended, reached) != reached) since = now;
      if (timeline) ahead = timeline->ahead_of(launched.value());
      if (ahead == WorkAhead::awaited) since = now;
      if (now - since < timeout_ms * GST_MSECOND) return;
      kernel = runner->name();
      resident = runner->is_resident();
      if (timeline) timeline->set_endless(launched.value());
      runner->cancel(true);
      // Now: it ends with its element, which waits for it, and not in this thread.
      runner.reset();
      teller = GST_ELEMENT_CAST(gst_object_ref(element));
    }
    // Without the lock: who hears of it may stop the element at once.
    const std::string told =
        ahead == WorkAhead::endless
            ? fmt::format(
                  "kernel {} has not ended for {} ms: it waits for another kernel on its GPU that does not end, "
                  "as was told before: mend that one, and start the process again",
                  kernel, timeout_ms)
            : fmt::format(
                  "kernel {} has not ended for {} ms: does it loop for ever{}? Where it only takes long, raise "
                  "timeout",
                  kernel, timeout_ms,
                  resident
                      ? ", or wait for threads of its block that do not come there, which with mode=launch may work"
                      : "");
    post_error(teller,
               FiguredError(Error(ErrorCode::device_lost, told), {{"kernel", kernel}, {"timeout-ms", timeout_ms}}));
    gst_object_unref(teller);
  }

  Watched() = default;
  ~Watched() { gst_object_unref(clock); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  /// From look to look.
  [[nodiscard]] GstClockTime period() const noexcept { return timeout_ms * GST_MSECOND / 4; }

  GstClock* const clock = gst_system_clock_obtain();
  std::mutex mutex;
  GstElement* element = nullptr;         ///< outlives the watchdog
  std::shared_ptr<KernelRunner> runner;  ///< null: nothing to look at any more
  std::uint32_t timeout_ms = 0;
  Fence launched;
  std::uint64_t ended = 0;  ///< completed() of the timeline of `launched`
  GstClockTime since = gst_clock_get_time(clock), looked = since;
};

Watchdog::Watchdog(GstElement* element, std::shared_ptr<KernelRunner> runner, std::uint32_t timeout_ms) {
  if (timeout_ms == 0) return;
  watched_ = std::make_shared<Watched>();
  watched_->element = element;
  watched_->runner = std::move(runner);
  watched_->timeout_ms = timeout_ms;
  GstClock* clock = watched_->clock;
  const GstClockTime period = watched_->period();
  alarm_ = gst_clock_new_periodic_id(clock, gst_clock_get_time(clock) + period, period);
  const GstClockReturn looks = gst_clock_id_wait_async(
      alarm_,
      [](GstClock* /*clock*/, GstClockTime /*time*/, GstClockID /*id*/, gpointer data) -> gboolean {
        (*static_cast<std::shared_ptr<Watched>*>(data))->look();
        return TRUE;
      },
      new std::shared_ptr<Watched>(watched_),
      [](gpointer data) { delete static_cast<std::shared_ptr<Watched>*>(data); });
  if (looks == GST_CLOCK_OK) return;
  gst_clock_id_unref(alarm_);
  throw no_thread("timeout, in GStreamer's clock", std::make_error_code(std::errc::resource_unavailable_try_again));
}

bool Watchdog::has_told() const {
  if (!watched_) return false;
  const std::lock_guard lock(watched_->mutex);
  return !watched_->runner;
}

Watchdog::~Watchdog() {
  if (alarm_ == nullptr) return;
  {
    const std::lock_guard lock(watched_->mutex);
    // GStreamer's clock may keep what it was given for a while.
    watched_->runner.reset();
    watched_->launched = {};
  }
  gst_clock_id_unschedule(alarm_);
  gst_clock_id_unref(alarm_);
}

}  // namespace gpumap::gst
