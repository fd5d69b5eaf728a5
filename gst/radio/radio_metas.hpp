// SPDX-License-Identifier: MIT
// What says what samples are: their caps, and what buffers carry beside them, as metas that other plugins read by name;
// gst/radio/SIGMF.md has the fields. And how sources get memory for samples.
#pragma once

#include <gst/gst.h>

#include <optional>
#include <string>
#include <vector>

#include "gst/radio/sigmf_metadata.hpp"

namespace gpumap::gst {

/// Hertz, a double: in caps where it is the same for the whole stream, and in GpumapRadio.
inline constexpr const char* center_frequency_field = "center-frequency";
/// Bytes, a guint64, in an ALLOCATION query: downstream puts buffers together to frames of so many.
inline constexpr const char* gathered_bytes_field = "gpumap-gathered-bytes";

/// That field; empty: there is none.
[[nodiscard]] std::optional<double> center_frequency_of(const GstStructure* fields);
void set_center_frequency(GstStructure* fields, const std::optional<double>& center);

/// Caps of interleaved samples, each of `numbers` numbers of all channels; media is audio/x-raw or application/x-iq
/// (transfer full).
[[nodiscard]] GstStructure* samples_of(const char* media, const std::string& format, unsigned numbers, bool complex,
                                       gint rate);
/// Of a source's ALLOCATION query: buffers of downstream's pools get room for `bytes`. An allocator makes each as large
/// as is asked.
void make_pools_hold(GstQuery* query, guint bytes);

/// Samples of all that SigMF has (transfer full).
[[nodiscard]] GstCaps* sigmf_caps();

/// How the receiver was set at a buffer's first sample. A value.
struct RadioSetting {
  std::optional<double> center_frequency;  ///< Hz
  std::optional<double> gain;              ///< dB
};

/// Register GpumapRadio and SigmfAnnotation, once in a process.
void register_radio_metas();

void add_radio(GstBuffer* buffer, const RadioSetting& setting);
/// Of its GpumapRadio; empty fields where there is none.
[[nodiscard]] RadioSetting radio_of(GstBuffer* buffer);

/// Of a buffer that has a GpumapRadio with a centre frequency.
void retune(GstBuffer* buffer, double center_frequency);

/// `to` has those of `from`, too.
void copy_annotations(GstBuffer* to, GstBuffer* from);
void drop_annotations(GstBuffer* buffer);
/// Its samples are counted at `rate`.
void add_annotation(GstBuffer* buffer, const SigmfAnnotation& annotation, double rate);
/// Counted as when they were added, but for the count, which is in samples at `rate`. Starts of another rate are those
/// of `buffer`, whose offset counts other samples.
[[nodiscard]] std::vector<SigmfAnnotation> annotations_of(GstBuffer* buffer, double rate);

/// A GstReferenceTimestampMeta with the caps timestamp/x-unix: `ns` since 1970 in UTC.
void add_unix_time(GstBuffer* buffer, GstClockTime ns, GstClockTime duration);
[[nodiscard]] std::optional<GstClockTime> unix_time_of(GstBuffer* buffer);
/// All reference timestamps of `buffer` become those of `ns` later, or earlier; they hold for its duration.
void move_reference_times(GstBuffer* buffer, GstClockTimeDiff ns);

}  // namespace gpumap::gst
