// SPDX-License-Identifier: MIT
// SigMF (https://sigmf.org): a recording is samples in one file, and JSON beside it that says what they are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpumap::gst {

/// A core:datatype, and what caps call it. A value.
struct SigmfDatatype {
  std::string_view name;    ///< behind "c" or "r"
  std::string_view format;  ///< of audio/x-raw
  unsigned bytes;           ///< of one number; a complex sample is two
};
inline constexpr std::array sigmf_datatypes{
    SigmfDatatype{"f32_le", "F32LE", 4}, SigmfDatatype{"f32_be", "F32BE", 4}, SigmfDatatype{"f64_le", "F64LE", 8},
    SigmfDatatype{"f64_be", "F64BE", 8}, SigmfDatatype{"i32_le", "S32LE", 4}, SigmfDatatype{"i32_be", "S32BE", 4},
    SigmfDatatype{"i16_le", "S16LE", 2}, SigmfDatatype{"i16_be", "S16BE", 2}, SigmfDatatype{"u32_le", "U32LE", 4},
    SigmfDatatype{"u32_be", "U32BE", 4}, SigmfDatatype{"u16_le", "U16LE", 2}, SigmfDatatype{"u16_be", "U16BE", 2},
    SigmfDatatype{"i8", "S8", 1},        SigmfDatatype{"u8", "U8", 1},
};

/// From sample_start on. Samples are counted as core:sample_start does, from core:offset on.
struct SigmfCapture {
  std::uint64_t sample_start = 0;
  std::uint64_t header_bytes = 0;         ///< before the first sample, which are no samples
  std::optional<double> frequency;        ///< Hz, of the band's centre
  std::optional<double> gain;             ///< dB; SigMF has none: gpumap:gain
  std::optional<std::uint64_t> datetime;  ///< of the first sample: ns since 1970 in UTC
};

struct SigmfAnnotation {
  std::uint64_t sample_start = 0;
  std::optional<std::uint64_t> sample_count;  ///< empty: it is known where it begins
  std::optional<double> freq_lower_edge, freq_upper_edge;
  std::string label, comment, generator, uuid;  ///< empty: none
};

struct SigmfMetadata {
  bool complex = true;
  SigmfDatatype datatype = sigmf_datatypes[0];
  unsigned channels = 1;  ///< of complex samples, or of real ones
  double sample_rate = 0;
  std::uint64_t offset = 0;  ///< what the first sample in the file is counted as
  std::uint64_t trailing_bytes = 0;
  std::string dataset;  ///< the file's name where it is no .sigmf-data; else empty
  bool metadata_only = false;
  std::string description, author, license, hardware, recorder;  ///< empty: none
  std::string sha512;                                            ///< only written; empty: none
  std::vector<SigmfCapture> captures;                            ///< in their order
  std::vector<SigmfAnnotation> annotations;                      ///< ordered by sample_start

  /// Numbers that one sample of all channels is made of: the channels of audio/x-raw.
  [[nodiscard]] unsigned numbers() const { return channels * (complex ? 2U : 1U); }
  [[nodiscard]] std::uint64_t frame_bytes() const { return std::uint64_t{numbers()} * datatype.bytes; }
  /// Of `samples`, in ns, and samples in that time; rounded.
  [[nodiscard]] std::uint64_t time_of(std::uint64_t samples) const;
  [[nodiscard]] std::uint64_t samples_in(std::uint64_t time) const;
  /// When sample `at`, which belongs to that capture, was taken; empty: not known.
  [[nodiscard]] std::optional<std::uint64_t> datetime_of(const SigmfCapture& capture, std::uint64_t at) const;
  /// Whether samples on both sides belong together: the band stays, and times, where they are known, are off by no more
  /// than `allowed` ns.
  [[nodiscard]] bool continues(const SigmfCapture& before, const SigmfCapture& behind, std::uint64_t allowed) const;
};

/// Of `text`, which is JSON; `name` is the file's, for the text of errors. Throws Error(invalid).
[[nodiscard]] SigmfMetadata parse_sigmf(std::string_view text, const std::string& name);
/// Of the file at `path`. Throws Error.
[[nodiscard]] SigmfMetadata read_sigmf(const std::string& path);

/// As a .sigmf-meta has it.
[[nodiscard]] std::string to_json(const SigmfMetadata& metadata);

/// Samples in a row in the file.
struct SigmfSection {
  std::uint64_t first = 0, count = 0;  ///< of samples, counted from the file's first one on
  std::uint64_t offset = 0;            ///< of the first one, in bytes of the file
  std::optional<std::size_t> capture;  ///< whose they are; empty: they lie before the first one
};

/// Where samples lie in a file of a given size.
struct SigmfLayout {
  std::vector<SigmfSection> sections;       ///< none is empty
  std::uint64_t samples = 0;                ///< of all sections
  std::uint64_t cut_bytes = 0;              ///< behind them, fewer than a sample takes
  std::optional<std::size_t> late_capture;  ///< the first capture that begins behind them

  /// That has sample `at`, which there is.
  [[nodiscard]] const SigmfSection& section_of(std::uint64_t at) const;
};
/// Throws Error(invalid) where there is no room for one sample; `name` is the data file's.
[[nodiscard]] SigmfLayout lay_out(const SigmfMetadata& metadata, std::uint64_t file_bytes, const std::string& name);

/// "x" of x.sigmf-meta, x.sigmf-data and x. Throws Error(not_supported) for an archive or a collection.
[[nodiscard]] std::string sigmf_base(std::string_view location);

}  // namespace gpumap::gst
