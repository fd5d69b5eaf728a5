// SPDX-License-Identifier: MIT
#pragma once

#include <gst/gst.h>

#include <memory>
#include <mutex>
#include <optional>

namespace gpumap::gst {

/// Whether an encoder or a muxer follows a gpumapsrc, as far as that is known: alone where nothing shows the frames
/// beside, and all other sources of the pipeline are such gpumapsrcs, too; sole where there are none.
enum class Recorded { no, beside_others, alone, sole };
[[nodiscard]] Recorded recorded_of(GstElement* src);
/// Whether what comes of a gpumapsrc goes into a regular file, which a flush empties, as far as that is known.
[[nodiscard]] bool comes_to_file(GstElement* src);

/// The running time of a pipeline that takes many frames before it plays, because an encoder of video does, or a muxer
/// that waits for a key frame, or that records nothing but sound, which has no gap: all its gpumapsrcs count from one
/// moment, that of the first frame. Once the pipeline plays, they stay that much behind its own running time. Thread
/// safety: all functions, from any thread.
class PrerollClock {
 public:
  /// The one of the pipeline around `src`, a gpumapsrc; `may_begin`: a new one where there is none since the last seek
  /// of the whole pipeline, and so where `src`, its only source, `has_given` frames. Null: there is none, nothing that
  /// follows a gpumapsrc needs one, or a source is live or another element, which has a time of its own.
  [[nodiscard]] static std::shared_ptr<PrerollClock> join(GstElement* src, bool may_begin, bool has_given);

  /// It counts from `monotonic_ns`, and a little before that where frames of other sources may be earlier ones. The
  /// first call holds. Whether this is that of the only source, which may move it.
  [[nodiscard]] bool begin_at(GstClockTimeDiff monotonic_ns);
  void move_begin(GstClockTimeDiff by);
  /// At the moment `monotonic_ns`, at which the pipeline's running time is `own` if it `plays`.
  [[nodiscard]] GstClockTimeDiff running_time(GstClockTimeDiff monotonic_ns, GstClockTimeDiff own, bool plays);

 private:
  std::mutex mutex_;
  guint seek_ = 0;  ///< its number
  bool alone_ = true;
  std::optional<GstClockTimeDiff> begin_, lag_;  ///< lag_, empty: the pipeline has not played yet
};

}  // namespace gpumap::gst
