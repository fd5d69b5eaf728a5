// SPDX-License-Identifier: MIT
#include "gpumap/kernel_launcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <iterator>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/patience.hpp"
#include "gpumap/sample_format.hpp"
#include "kernel/kernel_memory.hpp"
#include "kernel/output_size.hpp"
#include "memory/gpu_mapping.hpp"
#include "queue/queues.hpp"

namespace gpumap {
namespace {

std::size_t words_of(std::size_t bytes) {
  return (bytes + 3) / 4 * 4;
}

/// Of samples: CUDA ends a context where a kernel reads a number elsewhere. Those of 12 and 24 bits are read by bytes.
std::uint64_t alignment_of(std::uint32_t format) {
  const std::uint32_t bytes = sample_bits(format) / CHAR_BIT;
  return std::has_single_bit(bytes) ? bytes : 1;
}

}  // namespace

// What a KernelLauncher does with one frame.

/// A frame on its way.
struct KernelLauncher::Job {
  FrameInput in;           ///< as the kernel sees it
  const FrameInput& came;  ///< as it came, and goes on where the kernel leaves it unchanged
  const FrameTarget& target;
  gpumap_view in_view{}, out_view{};    ///< as pictures or samples, whatever the kernel sees
  std::optional<gpumap_view> unpacked;  ///< where the input lay before it was packed
  LentBlock joined, packed, block, host;
  FrameTensors::Room tensors;
  bool is_joined = false;  ///< the frame as it came begins within a sample, or where none can be read
  std::size_t rest = 0;    ///< bytes behind those that the kernel sees, for the next frame
  bool of_others = false;  ///< the input lay in memory of others
  std::size_t bytes = 0;   ///< of the output
  bool hands_on = false;   ///< the input itself goes on
  bool straight = false;   ///< the kernel writes into memory of others
  bool gives = true;
  bool sized_by_program = false;
  bool checks_bounds = false;

  [[nodiscard]] std::array<LentBlock*, 6> blocks() noexcept {
    return {&joined, &packed, &block, &host, &tensors.outputs, &tensors.copied};
  }
  [[nodiscard]] bool to_host() const noexcept { return target.place == FrameTarget::Place::host; }
  [[nodiscard]] bool to_others() const noexcept { return gives && target.place == FrameTarget::Place::others; }
  /// Into memory of others, where the kernel did not write there and it does not lie there already.
  [[nodiscard]] bool is_copied_out() const noexcept { return to_others() && !straight && !(hands_on && of_others); }
};

bool KernelLauncher::gives(const FrameInput& in) const {
  const auto [whole, rest] = samples_of(in);
  return (whole != 0 || rest == 0 || declaration_.unchanged) && program_->output_bytes(whole) != std::size_t{0};
}

/// Memory of others is copied as pictures only.
bool KernelLauncher::keeps_rest(const FrameInput& in) const {
  return in_->bytes_per_sample > 1 && !declaration_.on_bytes && in.mapping != nullptr;
}

KernelLauncher::Samples KernelLauncher::samples_of(const FrameInput& in) const {
  // Of samples, whole ones only: the output has room for no more.
  const std::size_t sample = declaration_.on_bytes || in_->bytes_per_sample == 0 ? 1 : in_->bytes_per_sample;
  const std::size_t bytes = in.bytes + (keeps_rest(in) ? rest_bytes_ : 0);
  return {bytes / sample * sample, bytes % sample};
}

/// For the next frame, behind what the kernel does with this one.
void KernelLauncher::keep_rest(const Job& job) {
  if (!keeps_rest(job.in)) return;
  if (job.rest != 0) {
    static_cast<void>(rest_->ready(*queue_, in_->bytes_per_sample));
    queue_->copy(*job.in.mapping, job.in.offset + job.in.bytes, *rest_->memory(), 0, job.rest);
  }
  rest_bytes_ = job.rest;
}

bool KernelLauncher::take(std::shared_ptr<BlockPool>& pool, Placement placement, std::size_t bytes, LentBlock& block) {
  block = BlockPool::lend(pool, device_, backend_, placement, bytes, cancelled_);
  return static_cast<bool>(block);
}

/// Of a frame in memory of others in its usual layout.
std::size_t KernelLauncher::usual_bytes(const FrameInput& in) const noexcept {
  return in_->view.bytes != 0 ? in_->view.bytes : in.bytes;
}

/// Memory for all that comes of the frame. False when cancelled.
bool KernelLauncher::make_room(Job& job) {
  FrameInput& in = job.in;
  if (job.is_joined) {
    if (!take(joined_pool_, Placement::device, words_of(in.bytes + job.rest), job.joined)) return false;
    in.mapping = &job.joined.mapping();
    in.address = in.mapping->address(backend_);
    in.offset = 0;
    in.view = moved(in.view, in.view.plane[0], in.address, in.bytes);
  }
  const bool of_others = job.of_others = in.mapping == nullptr;
  const bool to_others = job.target.place == FrameTarget::Place::others;
  job.hands_on = declaration_.unchanged && (!of_others || to_others);
  // A picture of others is copied within the GPU before the kernel sees it where the kernel knows bytes only, and the
  // padding of rows is none of them, or where the copy is what goes on.
  if (of_others && (declaration_.on_bytes || (declaration_.unchanged && !to_others))) {
    const std::size_t bytes = usual_bytes(in);
    if (!take(packed_pool_, Placement::device, words_of(bytes), job.packed)) return false;
    job.unpacked = in.view;
    in.mapping = &job.packed.mapping();
    in.address = in.mapping->address(backend_);
    in.offset = 0;
    in.bytes = bytes;
    in.picture_bytes = in_->view.bytes;
    in.view = moved(in_->view, 0, in.address, bytes);
  }
  const auto known = program_->output_bytes(in.bytes);
  job.sized_by_program = known.has_value();
  job.gives = known != std::size_t{0};
  // What goes on goes on whole, wherever its samples begin.
  job.bytes = job.hands_on && !job.of_others ? job.came.bytes : size_->of(in, *in_, *out_, known);
  sized_.bytes = in.bytes;
  sized_.picture_bytes = in.picture_bytes;
  sized_.view = in.view;
  if ((has_result_ || decides()) && !results_->take(cancelled_)) return false;
  if (tensors_ && !tensors_->take(in.tensors, cancelled_, job.tensors)) return false;
  if (!job.gives) return true;
  job.straight = to_others && !declaration_.unchanged && !keeps_layout() && !declaration_.on_bytes && !bounds_;
  const std::size_t guard = bounds_ ? BoundsCheck::guard_bytes : 0;
  if (declaration_.unchanged && !job.hands_on) {
    job.block = std::move(job.packed);
  } else if (!job.hands_on && !job.straight && !take(device_pool_, Placement::device, job.bytes + guard, job.block)) {
    return false;
  }
  if (job.is_copied_out() && !job.target.copy) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: the output goes to memory that is not gpumap's: set FrameTarget::copy", name_));
  }
  return !job.to_host() || take(host_pool_, Placement::host, job.bytes, job.host);
}

/// What the kernel is to see.
void KernelLauncher::show(Job& job) {
  const FrameInput& in = job.in;
  job.in_view = in.view;
  const std::uint64_t address = job.block ? job.block.mapping().address(backend_) : 0;
  if (declaration_.unchanged) {
    job.out_view = job.in_view;
  } else if (job.straight) {
    job.out_view = job.target.view;
  } else if (keeps_layout()) {
    job.out_view = moved(in.view, in.address, address, job.bytes);
  } else {
    job.out_view = moved(out_->view, 0, address, job.bytes);
  }
  frame_.in = declaration_.on_bytes ? bytes_view(in.address, in.bytes) : job.in_view;
  frame_.out = declaration_.unchanged  ? frame_.in
               : declaration_.on_bytes ? bytes_view(address, job.bytes)
                                       : job.out_view;
  frame_.sequence = in.sequence;
  frame_.pts = in.pts;
  frame_.duration = in.duration;
  frame_.flags = in.gap ? GPUMAP_FRAME_GAP : 0;
  if (tables_) tables_->lend(frame_);
  if (history_) {
    if (in.gap) history_->forget();
    history_->lend(frame_);
  }
  if (tensors_) tensors_->show(job.in.tensors, job.tensors, *queue_, frame_);
  results_->show(frame_);
}

/// The frame behind the beginning of its first sample, which came with the frame before, if it did.
void KernelLauncher::join(const Job& job) {
  if (!job.is_joined) return;
  const FrameInput& came = job.came;
  if (rest_bytes_ != 0) queue_->copy(*rest_->memory(), 0, *job.in.mapping, 0, rest_bytes_);
  queue_->copy(*came.mapping, came.offset, *job.in.mapping, rest_bytes_, came.bytes);
}

/// A frame in which no sample ends.
FrameOutput KernelLauncher::gather(const FrameInput& in, std::size_t rest) {
  try {
    static_cast<void>(rest_->ready(*queue_, in_->bytes_per_sample));
    queue_->copy(*in.mapping, in.offset, *rest_->memory(), rest_bytes_, in.bytes);
  } catch (const QueueCancelled&) {
    return {};
  }
  rest_bytes_ = rest;
  rest_gap_ = rest_gap_ || in.gap;
  Fence done = queue_->submit();
  if (in.holder != nullptr) in.holder->add_read_fence(done);
  FrameOutput made;
  made.outcome = FrameOutput::Outcome::remembered;
  made.sized_by_program = program_->output_bytes(0).has_value();
  made.done = done;
  const std::lock_guard lock(mutex_);
  last_ = std::move(done);
  return made;
}

void KernelLauncher::pack(const Job& job) {
  if (!job.unpacked) return;
  // The padding of the usual layout counts as bytes of the frame: it is to be the same each time.
  queue_->clear(*job.in.mapping, 0, words_of(job.in.bytes));
  job.in.copy(*queue_, *job.unpacked, job.in_view);
}

void KernelLauncher::run_program(bool by_field) {
  if (!by_field) {
    program_->run(*queue_, frame_);
    return;
  }
  gpumap_frame part = frame_;
  for (gpumap_u32 field = 0; field < std::min<gpumap_u32>(frame_.in.height, 2); ++field) {
    part.in = field_of(frame_.in, field);
    for (gpumap_u32 i = 0; i < frame_.past_count; ++i) part.past[i] = field_of(frame_.past[i], field);
    part.out = field_of(frame_.out, field);
    program_->run(*queue_, part);
  }
}

/// For the frames after this.
void KernelLauncher::remember(const Job& job) {
  if (!history_) return;
  const FrameInput& in = job.in;
  if (in.mapping != nullptr) {
    queue_->copy(*in.mapping, in.offset, *history_->room(in.bytes), 0, in.bytes);
    history_->add(frame_.in, in.address);
    return;
  }
  // Rows in memory of others lie wherever its allocator put them: the copy has the usual layout.
  const std::size_t bytes = usual_bytes(in);
  const std::uint64_t address = history_->room(bytes)->address(backend_);
  const gpumap_view copied = moved(in_->view, 0, address, bytes);
  in.copy(*queue_, in.view, copied);
  history_->add(copied, address);
}

void KernelLauncher::submit(const Job& job) {
  // Not under the lock: this may wait, and the watchdog asks for the last one meanwhile.
  Fence done = queue_->submit();
  {
    const std::lock_guard lock(mutex_);
    last_ = std::move(done);
  }
  results_->launched(last_);
  if (job.in.holder != nullptr) job.in.holder->add_read_fence(last_);
  for (const TensorInput& tensor : job.in.tensors) {
    if (tensor.holder != nullptr) tensor.holder->add_read_fence(last_);
  }
}

FrameOutput KernelLauncher::launch_on(const FrameInput& in, const FrameTarget& target) {
  check(in);
  if (!queue_) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: there was no queue for it before: see that error, and start anew", name_));
  }
  const bool by_streams = in.mapping == nullptr || target.place == FrameTarget::Place::others;
  if (resident_ && by_streams && !launch_instead()) return {};
  const Queue::Current current(*queue_);
  // Before anything is taken: where the frame came by another back end, the CPU waits here.
  if (queue_->wait(in.written, cancelled_) != WaitResult::ready) return {};
  for (const TensorInput& tensor : in.tensors) {
    if (queue_->wait(tensor.written, cancelled_) != WaitResult::ready) return {};
  }
  Job job{.in = in, .came = in, .target = target};
  if (!keeps_rest(in)) realign();  // another version of the kernel kept one
  const auto [whole, rest] = samples_of(in);
  if (whole == 0 && rest != 0 && keeps_rest(in) && !declaration_.unchanged) return gather(in, rest);
  job.is_joined = rest_bytes_ != 0 || (keeps_rest(in) && in.view.plane[0] % alignment_of(in_->view.format) != 0);
  if (job.is_joined || whole != in.bytes) {
    job.in.bytes = job.in.view.bytes = whole;
    job.rest = rest;
  }
  if (!make_room(job)) return {};
  if (std::exchange(rest_gap_, false)) job.in.gap = true;

  try {
    show(job);
    if (in.trace) {
      const std::int64_t now = monotonic_ns();
      in.trace->stamp(Stamp::launched, now);
      if (in.holder != nullptr) in.holder->stamp(Stamp::launched, now);
    }
    record(job);
    return finish(job);
  } catch (const QueueCancelled&) {
    submit_rest(job);
    return {};
  } catch (...) {
    submit_rest(job);
    throw;
  }
}

/// All that the kernel may write to.
std::vector<BoundsCheck::Range> KernelLauncher::ranges_of(const Job& job) {
  std::vector<BoundsCheck::Range> ranges;
  if (job.gives && !declaration_.unchanged) {
    ranges.push_back({.memory = &job.block.mapping(),
                      .end = job.bytes,
                      .bytes = job.bytes,
                      .what = "its output",
                      .remedy = "frame.out's width, height and bytes"});
  }
  if (has_result_ || decides()) ranges.push_back(results_->range());
  if (tensors_) std::ranges::move(tensors_->ranges(job.tensors), std::back_inserter(ranges));
  std::ranges::move(program_->guarded(*queue_, frame_), std::back_inserter(ranges));
  return ranges;
}

/// The launch, and what lies around it on the queue.
void KernelLauncher::record(Job& job) {
  const FrameInput& in = job.in;
  FrameTrace* const trace = in.trace.get();
  join(job);
  pack(job);
  if (bounds_) {
    std::vector<BoundsCheck::Range> guarded = ranges_of(job);
    job.checks_bounds = !guarded.empty();
    bounds_->write_guards(*queue_, std::move(guarded));
  }
  const std::shared_ptr<GpuSpan> span = trace != nullptr ? queue_->begin_span() : nullptr;
  run_program(declaration_.per_field && in.by_field);
  if (span) {
    queue_->end_span(*span);
    trace->add_span(span);
  }
  if (job.checks_bounds) bounds_->read_guards(*queue_);
  remember(job);
  keep_rest(job);
  const std::lock_guard lock(mutex_);
  ++frames_;
}

/// What was recorded before something went wrong runs all the same: the lender of its memory is told until when.
void KernelLauncher::submit_rest(Job& job) noexcept {
  try {
    submit(job);
    for (LentBlock* block : job.blocks()) block->add_read_fence(last_);
  } catch (const std::exception&) {
    // The device is lost: nothing runs on it any more.
  }
}

/// What a frame that was given up has left on the queue, even if the GPU only waits for the frame.
void KernelLauncher::hand_over() noexcept {
  if (!queue_) return;
  try {
    Fence done = queue_->submit();
    const std::lock_guard lock(mutex_);
    last_ = std::move(done);
  } catch (const std::exception&) {
    // The device is lost: nothing runs on it any more.
  }
}

/// Throws Error(invalid) for a frame that the caller has described wrongly.
void KernelLauncher::check(const FrameInput& in) const {
  if (!in_) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: a frame came before its stream's layout: call set_stream() first", name_));
  }
  if (in.mapping != nullptr && (in.offset > in.mapping->bytes() || in.bytes > in.mapping->bytes() - in.offset)) {
    throw Error(ErrorCode::invalid, fmt::format("kernel {}: a frame of {} bytes at offset {} ends behind its mapping "
                                                "of {}: change FrameInput::offset or bytes",
                                                name_, in.bytes, in.offset, in.mapping->bytes()));
  }
  // Its address means nothing here, or somebody else's memory: for CUDA that is the end of the whole context.
  const auto check_device = [this](const Mapping* mapping) {
    const auto* own = dynamic_cast<const GpuMapping*>(mapping);
    if (own == nullptr || &own->device() == device_.get()) return;
    throw Error(
        ErrorCode::invalid,
        fmt::format("kernel {}: a frame or a tensor lies in the memory of {}, and the kernel runs on {}: run it "
                    "where its frames are, or copy these through host memory",
                    name_, name_of(own->device().info()), name_of(device_->info())));
  };
  check_device(in.mapping);
  for (const TensorInput& tensor : in.tensors) check_device(tensor.mapping);
  if (in.mapping == nullptr && !in.copy) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: the frame is in memory that is not gpumap's: set FrameInput::copy", name_));
  }
}

FrameOutput KernelLauncher::finish(Job& job) {
  const FrameInput& in = job.in;
  FrameOutput made;
  made.in_place = job.hands_on;
  made.bytes = job.bytes;
  made.packed = job.unpacked.has_value();
  made.sized_by_program = job.sized_by_program;
  const auto end = [&](FrameOutput::Outcome outcome) {
    made.outcome = outcome;
    made.done = last_;
    // Those that go no further are used until then.
    for (LentBlock* block : job.blocks()) block->add_read_fence(last_);
    return std::move(made);
  };
  if (!job.gives) {
    submit(job);
    if (job.checks_bounds) {
      if (!wait(last_)) return end(FrameOutput::Outcome::cancelled);
      bounds_->verify(name_);
    }
    return end(FrameOutput::Outcome::remembered);
  }
  if (decides()) {
    submit(job);
    if (!wait(last_)) return end(FrameOutput::Outcome::cancelled);
    if (job.checks_bounds) bounds_->verify(name_);
    const auto given = size_->given(results_->given(), job.bytes, out_->bytes_per_sample);
    if (!given) {
      if (has_result_) results_->keep();
      return end(FrameOutput::Outcome::dropped);
    }
    made.bytes = *given;
    made.shortened = *given != job.bytes;
  }
  const bool copies_out = job.is_copied_out();
  if (copies_out) job.target.copy(*queue_, job.hands_on ? job.in_view : job.out_view, job.target.view);
  if (job.to_host()) {
    if (job.hands_on) {
      queue_->copy(*job.came.mapping, job.came.offset, job.host.mapping(), 0, made.bytes);
    } else {
      queue_->copy(job.block.mapping(), 0, job.host.mapping(), 0, made.bytes);
    }
  }
  if (!decides() || job.to_host() || copies_out) submit(job);

  // Others order their memory by no fence of ours: where the caller does not see to it, they get it, and get it back,
  // when the kernel is done with it.
  const bool waits_for_others = (job.of_others && !in.ordered) || (job.to_others() && !job.target.ordered);
  const bool looks = (has_result_ && !settings_.late_results) || job.to_host() || job.checks_bounds || waits_for_others;
  if (looks && !wait(last_)) return end(FrameOutput::Outcome::cancelled);
  if (looks && in.trace) {
    const std::int64_t now = monotonic_ns();
    in.trace->stamp(Stamp::visible, now);
    if (in.holder != nullptr) in.holder->stamp(Stamp::visible, now);
  }
  if (job.checks_bounds && !decides()) bounds_->verify(name_);
  if (has_result_) results_->keep();
  if (job.to_host()) {
    job.host.mapping().invalidate(0, made.bytes);
    made.host = std::move(job.host);
  } else if (job.target.place == FrameTarget::Place::device) {
    job.block.add_read_fence(last_);  // it may be let go before the kernel has written it
    made.block = std::move(job.block);
  }
  job.tensors.outputs.add_read_fence(last_);  // likewise
  made.tensors = std::move(job.tensors.outputs);
  return end(FrameOutput::Outcome::given);
}

FrameOutput KernelLauncher::launch(const FrameInput& in, const FrameTarget& target) {
  return naming([&] {
    try {
      FrameOutput made = launch_on(in, target);
      if (made.outcome == FrameOutput::Outcome::cancelled) hand_over();
      return made;
    } catch (...) {
      hand_over();
      throw;
    }
  });
}

}  // namespace gpumap
