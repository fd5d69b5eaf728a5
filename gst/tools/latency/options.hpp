// SPDX-License-Identifier: MIT
// gpumap-latency: what the user asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "figures.hpp"

namespace latency {

using bench::UsageError;

/// One size of frames.
struct FrameKind {
  std::string name;  ///< as asked for: "64KiB", "1080p"; "pipeline" for the frames of the user's own line
  std::size_t bytes = 0;
  int width = 0, height = 0;  ///< 0: no video
  [[nodiscard]] bool is_video() const noexcept { return width != 0; }
};

/// "64", "64B", "4KiB", "1MiB", "2kB", "1080p", "4K" or "640x480", which are NV12. Throws UsageError.
[[nodiscard]] FrameKind parse_frame(const std::string& text);

/// Caps of that kind: NV12 at `rate`, pairs of 16-bit samples, or bytes where the size is no multiple of four.
[[nodiscard]] std::string caps_of(const FrameKind& kind, double rate);
/// RGBA video of as many bytes, for elements that take nothing but video. Empty: no multiple of four.
[[nodiscard]] std::string as_rgba(const FrameKind& kind, double rate);

struct Options {
  std::vector<std::string> frames, transports, fences, modes, kernels, processes;
  std::string upstream = "in-place";
  std::string output;    ///< gpu, host or caps; empty: by the kernel
  std::string pipeline;  ///< the user's line; empty: one of our own
  std::string device = "auto";
  std::size_t count = 0;  ///< of each case, all rounds together; 0: by the device
  std::size_t warmup = 20;
  unsigned rounds = 5;
  double rate = 0;     ///< frames a second; 0: as fast as they go
  int in_flight = -1;  ///< 0: any number; -1: one when free-running, else any
  unsigned load = 0;   ///< processes that keep a CPU busy beside
  unsigned slots = 8;
  unsigned spin_us = 1000;
  unsigned src_late_ms = 0;
  double timeout_s = 10;
  std::string html_file, json_file, csv_file, hgrm_folder, from_file, commit;
  bool brief = false;
  bool stamps = true;  ///< else frames are only counted
  bool as_producer = false;

  [[nodiscard]] bool paced() const noexcept { return rate > 0; }
  [[nodiscard]] unsigned frames_in_flight() const noexcept {
    return in_flight >= 0 ? static_cast<unsigned>(in_flight) : paced() ? 0 : 1;
  }
};

/// GStreamer's own element, in the place of gpumapsink and gpumapsrc.
inline constexpr const char* rival_name = "cudaupload";
/// gpumapupload, in the same place.
inline constexpr const char* upload_name = "upload";
/// Those of gpumap, but for auto, which is one of them.
[[nodiscard]] std::vector<std::string> transport_names();

/// One line of the comparison.
struct Case {
  FrameKind frame;
  std::string transport;  ///< of gpumapsink, or upload_name, or the rival's name
  bool spin = false;
  bool resident = false;            ///< the kernels stay on the GPU
  std::string kernel = "checksum";  ///< a built-in, a file, gst:ELEMENT, several of these with + between, or none
  bool names_kernel = false;        ///< there are others
  unsigned processes = 1;           ///< 2: gpumapsink and what is before it have one of their own
  [[nodiscard]] bool is_rival() const noexcept { return transport == rival_name; }
  [[nodiscard]] bool is_upload() const noexcept { return transport == upload_name; }
  /// gpumapsink and gpumapsrc.
  [[nodiscard]] bool has_ring() const noexcept { return !is_rival() && !is_upload(); }
  /// Without folders and endings.
  [[nodiscard]] std::string kernel_title() const;
  /// As it is told: the rival has no ring whose sides could sleep or spin, but what feeds it spins until a frame is
  /// due.
  [[nodiscard]] const char* fence() const noexcept { return spin ? "spin" : is_rival() ? "" : "sleep"; }
  [[nodiscard]] std::string title() const {
    return transport + (spin ? ", spin" : "") + (resident ? ", resident" : "") +
           (names_kernel ? ", " + kernel_title() : "") + (processes == 2 ? ", 2 processes" : "");
  }
};

/// What was not asked for and depends on the rest: sizes, transports, modes, numbers of processes, files.
void fill_in_defaults(Options& options);
/// All that is asked for, frame sizes outermost. Throws UsageError.
[[nodiscard]] std::vector<Case> cases_of(const Options& options);

/// Throws UsageError, with an example, where the line has not one {sink} and one {src}.
void check_placeholders(const std::string& line);
/// What each of two processes gets of a line: what stands before {src}, and the rest.
struct SplitLine {
  std::string producer, consumer;
};
/// Throws UsageError where {sink} does not stand before {src}.
[[nodiscard]] SplitLine split(const std::string& line);
/// The line for gst-launch: placeholders replaced by the elements, which meet on that channel, or at that socket where
/// there are two processes.
[[nodiscard]] std::string expand(const std::string& line, const Case& which, const Options& options,
                                 const std::string& meeting);
/// Our own line, with placeholders.
[[nodiscard]] std::string own_line(const Case& which, const Options& options, std::size_t frames);

}  // namespace latency
