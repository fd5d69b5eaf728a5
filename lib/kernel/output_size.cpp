// SPDX-License-Identifier: MIT
#include "kernel/output_size.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "gpumap/error.hpp"
#include "gpumap/result_blocks.hpp"

namespace gpumap {
namespace {

/// Room for what is put behind an output stays countable.
constexpr std::uint64_t max_output_bytes = std::uint64_t{1} << 62U;

}  // namespace

OutputSize::OutputSize(const Declaration& declaration, bool keeps_layout, std::string name)
    : name_(std::move(name)),
      declared_(declaration.output_bytes),
      may_(declaration.output_may),
      unchanged_(declaration.unchanged),
      keeps_layout_(keeps_layout) {}

void OutputSize::set_params(const Declaration& declaration, const std::string& params) {
  params_.clear();
  sized_.reset();
  if (declared_.find("params.") == std::string::npos) return;
  const std::vector<Number> numbers = numbers_of(declaration, name_, params);
  params_ = parameter_variables(declaration.params, numbers, std::numeric_limits<std::int64_t>::max());
}

/// By the line `bytes`. Frames of a stream are alike as a rule, and to read the expression takes longer than to look.
std::uint64_t OutputSize::declared(const FrameInput& in) {
  const std::array<std::uint64_t, 6> of{in.bytes,          in.view.width, in.view.height,
                                        in.view.stride[0], in.view.rate,  in.view.channels};
  if (!sized_ || sized_->of != of) {
    std::vector<std::pair<std::string_view, std::uint64_t>> variables{
        {"bytes", of[0]}, {"width", of[1]}, {"height", of[2]}, {"stride", of[3]}, {"rate", of[4]}, {"channels", of[5]}};
    variables.insert(variables.end(), params_.begin(), params_.end());
    try {
      sized_ = {of, evaluate(declared_, variables)};
    } catch (const Error& error) {
      throw Error(error.code(),
                  fmt::format("kernel {}: its line bytes has no value for a frame of {} bytes, {}x{}: {}: "
                              "change that line",
                              name_, of[0], of[1], of[2], error.what()));
    }
  }
  return sized_->bytes;
}

std::size_t OutputSize::of(const FrameInput& in, const FrameLayout& in_layout, const FrameLayout& out_layout,
                           std::optional<std::size_t> known) {
  if (unchanged_) return in.bytes;
  if (known) return *known;
  if (!declared_.empty()) {
    const std::uint64_t bytes = declared(in);
    // A kernel that keeps to the format and the size that it is told writes as much as these take.
    const std::uint64_t needed = keeps_layout_ ? in.picture_bytes : out_layout.view.bytes;
    if (needed > bytes) {
      throw Error(
          ErrorCode::invalid,
          fmt::format("kernel {}: an output of {} bytes (\"{}\") has no room for the picture that its caps say, "
                      "which takes {}: leave the line bytes out",
                      name_, bytes, declared_, needed));
    }
    if (bytes > max_output_bytes) {
      throw Error(ErrorCode::invalid, fmt::format("kernel {}: an output of {} bytes (\"{}\"): no memory has room for "
                                                  "it: lower the line bytes",
                                                  name_, bytes, declared_));
    }
    return bytes;
  }
  if (keeps_layout_) return in.bytes;
  if (out_layout.view.bytes != 0) return out_layout.view.bytes;
  if (out_layout.view.format == GPUMAP_FORMAT_BYTES) return in.bytes;
  const std::size_t samples = in.bytes / std::max<std::size_t>(in_layout.bytes_per_sample, 1);
  return samples * std::max<std::size_t>(out_layout.bytes_per_sample, 1);
}

std::optional<std::size_t> OutputSize::given(std::uint64_t said, std::size_t bytes, std::size_t sample) const {
  const auto given = bytes_given(may_, name_, said, bytes);
  if (given && *given != bytes && sample > 1 && *given % sample != 0) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("kernel {}: wrote {} to frame.given, no multiple of the {} bytes of a sample: have it write "
                    "whole samples",
                    name_, *given, sample));
  }
  return given;
}

void check_output_may(const KernelPlan& plan, bool late_results, const std::optional<FrameLayout>& out) {
  const OutputMay& may = plan.declaration.output_may;
  if (!may) return;
  if (!ResultBlocks::may_name(plan.source, "given")) {
    throw Error(ErrorCode::invalid, fmt::format("kernel {}: it declares output-may and never writes to frame.given, so "
                                                "that nothing would ever come out: write there, or leave output-may "
                                                "out",
                                                plan.source.name));
  }
  if (late_results) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: declares output-may, for which each frame is waited for, and "
                            "late-results is true: leave one of them out",
                            plan.source.name));
  }
  check_shortening(plan.declaration, plan.source.name, out);
}

void check_shortening(const Declaration& declaration, const std::string& name, const std::optional<FrameLayout>& out) {
  if (!declaration.output_may.shorten) return;
  if (declaration.unchanged) {
    throw Error(ErrorCode::invalid, fmt::format("kernel {}: an output that is unchanged cannot be shortened: leave "
                                                "shorten or unchanged out",
                                                name));
  }
  if (const std::size_t fixed = out ? out->view.bytes : 0; fixed != 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("kernel {}: its output cannot be shortened, for every frame of these caps has {} bytes: "
                            "leave shorten out, or declare an output whose size may vary",
                            name, fixed));
  }
}

}  // namespace gpumap
