// SPDX-License-Identifier: MIT
// What a kernel says of its output, frame by frame: that it is dropped, or shorter.
#include <fmt/format.h>

#include "gpumap/error.hpp"
#include "gst/kernel/runner.hpp"

namespace gpumap::gst {

void KernelRunner::check_output_may(const KernelPlan& plan) const {
  const OutputMay& may = plan.declaration.output_may;
  if (!may) return;
  if (!KernelResult::may_name(plan.source, "given")) {
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

void KernelRunner::check_shortening(const Declaration& declaration) const {
  if (!declaration.output_may.shorten) return;
  if (declaration.unchanged) {
    throw Error(ErrorCode::invalid, fmt::format("kernel {}: an output that is unchanged cannot be shortened: leave "
                                                "shorten or unchanged out",
                                                name_));
  }
  if (const std::size_t fixed = out_format_.image_bytes(); fixed != 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: its output cannot be shortened, for every frame of these caps has {} bytes: "
                            "leave shorten out, or declare an output whose size may vary",
                            name_, fixed));
  }
}

std::optional<std::size_t> KernelRunner::given_of(std::size_t bytes) const {
  const auto given = bytes_given(declaration_.output_may, name_, result_->given(), bytes);
  const std::size_t sample = out_format_.bytes_per_sample();
  if (given && *given != bytes && sample > 1 && *given % sample != 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: gives {} bytes, which are no whole samples of {}: have it write a multiple to "
                            "frame.given",
                            name_, *given, sample));
  }
  return given;
}

void KernelRunner::drop(GstBuffer* in) {
  dropped_ = true;
  if (!has_result_) return;
  result_->keep({.bytes = 0, .sequence = frame_.sequence, .offset = GST_BUFFER_OFFSET(in), .pts = GST_BUFFER_PTS(in)});
  result_->collect();
  result_->drop_found();
}

void KernelRunner::set_times_of_shortened(GstBuffer* out, std::size_t given) const {
  GST_BUFFER_OFFSET_END(out) = GST_BUFFER_OFFSET_NONE;
  const gpumap_u32 rate = out_format_.view(0, 0, nullptr).rate;
  if (rate == 0) return;
  // Samples last as long as there are.
  GST_BUFFER_DURATION(out) = gst_util_uint64_scale(given / out_format_.bytes_per_sample(), GST_SECOND, rate);
}

}  // namespace gpumap::gst
