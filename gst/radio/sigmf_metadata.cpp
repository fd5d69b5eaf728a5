// SPDX-License-Identifier: MIT
#include "gst/radio/sigmf_metadata.hpp"

#include <fmt/format.h>
#include <gst/gst.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/file.hpp"
#include "gpumap/printable.hpp"
#include "gst/ptr.hpp"

namespace gpumap::gst {

namespace {

using nlohmann::json;

constexpr std::uint64_t most_whole = std::numeric_limits<std::int64_t>::max();  // as the specification says
constexpr unsigned most_numbers = 65536;                                        // of a sample: an array's
constexpr std::uint64_t most_metadata_bytes = std::uint64_t{1} << 30U;

/// One object of the metadata: its fields, and how to say where it is.
class Fields {
 public:
  Fields(const json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object_.is_object()) fail("", fmt::format("{} instead of an object", shown(object_)), "write {…} there");
  }

  [[noreturn]] void fail(std::string_view key, const std::string& cause, const std::string& remedy) const {
    throw Error(ErrorCode::invalid, fmt::format("{}{}{} is {}", place_, key.empty() ? "" : ": ", key, cause), remedy);
  }

  [[nodiscard]] const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found != object_.end() && !found->is_null() ? &*found : nullptr;
  }

  [[nodiscard]] std::optional<double> number(const char* key) const {
    const json* found = find(key);
    if (found == nullptr) return {};
    if (!found->is_number()) fail(key, shown(*found), "give a number");
    return found->get<double>();
  }

  /// From 0 to 2^63 - 1; some programs write 0.0 for 0.
  [[nodiscard]] std::optional<std::uint64_t> whole(const char* key) const {
    const json* found = find(key);
    if (found == nullptr) return {};
    if (found->is_number_unsigned() && found->get<std::uint64_t>() <= most_whole) return found->get<std::uint64_t>();
    const double value = found->is_number_float() ? found->get<double>() : -1.0;
    if (value < 0.0 || value >= 0x1p63 || value != std::floor(value)) {
      fail(key, shown(*found), fmt::format("give a whole number from 0 to {}", most_whole));
    }
    return static_cast<std::uint64_t>(value);
  }

  [[nodiscard]] std::string text(const char* key) const {
    const json* found = find(key);
    if (found == nullptr) return {};
    if (!found->is_string()) fail(key, shown(*found), "give a text in quotes");
    return found->get<std::string>();
  }

  [[nodiscard]] bool flag(const char* key) const {
    const json* found = find(key);
    if (found != nullptr && !found->is_boolean()) fail(key, shown(*found), "give true or false");
    return found != nullptr && found->get<bool>();
  }

  /// Call `take` with each value of the list, and where it is.
  template <typename Take>
  void each(const char* key, const char* one, Take take) const {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_array()) fail(key, shown(*found), "give a list in []");
    std::size_t number = 0;
    for (const json& value : *found) take(Fields(value, fmt::format("{}: {} {}", place_, one, number++)));
  }

  [[nodiscard]] const std::string& place() const { return place_; }

  /// Its beginning, for a message.
  [[nodiscard]] static std::string shown(const json& value) {
    if (value.is_array()) return fmt::format("a list of {} values", value.size());
    if (value.is_object()) return fmt::format("an object of {} fields", value.size());
    return printable(value.dump(), {}, 40);
  }

 private:
  const json& object_;
  std::string place_;
};

/// 2024-05-06T07:08:09.123456789Z as ns since 1970; GLib reads microseconds. Times before that have no
/// GstClockTime: they are left out.
std::optional<std::uint64_t> read_datetime(const Fields& fields) {
  std::string text = fields.text("core:datetime");
  if (text.empty()) return {};
  const std::string written = text;
  std::uint64_t fraction = 0;
  if (const std::size_t point = text.find('.'); point != text.npos) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789", point + 1), text.size());
    for (std::size_t digit = 0; digit < 9; ++digit) {
      const std::size_t at = point + 1 + digit;
      fraction = fraction * 10 + (at < end ? static_cast<std::uint64_t>(text[at] - '0') : 0);
    }
    text.erase(point, end - point);
  }
  const Ptr<GTimeZone> utc(g_time_zone_new_utc());
  const Ptr<GDateTime> time(g_date_time_new_from_iso8601(text.c_str(), utc.get()));
  if (!time) {
    fields.fail("core:datetime", '"' + printable(written, {}, 40) + '"', "give a time as 2024-05-06T07:08:09.123Z");
  }
  const gint64 seconds = g_date_time_to_unix(time.get());
  constexpr gint64 last = std::numeric_limits<gint64>::max() / GST_SECOND;
  if (seconds < 0 || seconds >= last) return {};
  return static_cast<std::uint64_t>(seconds) * GST_SECOND + fraction;
}

std::string text_of_datetime(std::uint64_t ns) {
  const Ptr<GDateTime> time(g_date_time_new_from_unix_utc(static_cast<gint64>(ns / GST_SECOND)));
  const Ptr<gchar> seconds(g_date_time_format(time.get(), "%Y-%m-%dT%H:%M:%S"));
  return fmt::format("{}.{:09}Z", seconds.get(), ns % GST_SECOND);
}

void read_datatype(const Fields& global, SigmfMetadata& metadata) {
  const std::string name = global.text("core:datatype");
  constexpr const char* remedy = "give one of the specification, as cf32_le, ci16_le, cu8 or rf32_le";
  if (name.empty()) throw Error(ErrorCode::invalid, global.place() + " has no core:datatype", remedy);
  const auto* const found = std::find_if(sigmf_datatypes.begin(), sigmf_datatypes.end(),
                                         [&](const SigmfDatatype& one) { return one.name == name.substr(1); });
  if ((name[0] != 'c' && name[0] != 'r') || found == sigmf_datatypes.end()) {
    global.fail("core:datatype", '"' + printable(name, {}, 40) + '"', remedy);
  }
  metadata.complex = name[0] == 'c';
  metadata.datatype = *found;
}

void read_rate(const Fields& global, SigmfMetadata& metadata) {
  const auto rate = global.number("core:sample_rate");
  constexpr double most = std::numeric_limits<gint>::max();
  if (!rate) {
    throw Error(ErrorCode::invalid, global.place() + " has no core:sample_rate", "add it, in samples a second");
  }
  if (!(*rate >= 1.0) || *rate > most) {
    global.fail("core:sample_rate", fmt::format("{}", *rate), fmt::format("caps have rates from 1 to {}", most));
  }
  metadata.sample_rate = *rate;
}

void read_global(const Fields& global, SigmfMetadata& metadata) {
  read_datatype(global, metadata);
  read_rate(global, metadata);
  const std::uint64_t channels = global.whole("core:num_channels").value_or(1);
  const std::uint64_t most = most_numbers / (metadata.complex ? 2 : 1);
  if (channels < 1 || channels > most) {
    global.fail("core:num_channels", fmt::format("{}", channels), fmt::format("give 1 to {}", most));
  }
  metadata.channels = static_cast<unsigned>(channels);
  metadata.offset = global.whole("core:offset").value_or(0);
  metadata.trailing_bytes = global.whole("core:trailing_bytes").value_or(0);
  metadata.metadata_only = global.flag("core:metadata_only");
  metadata.dataset = global.text("core:dataset");
  // A recording from elsewhere may not name files of other folders.
  if (metadata.dataset.find('/') != std::string::npos || metadata.dataset == "." || metadata.dataset == ".." ||
      metadata.dataset.find('\0') != std::string::npos) {
    global.fail("core:dataset", '"' + printable(metadata.dataset, {}, 80) + '"',
                "give the name alone, of a file in the folder of the metadata");
  }
  metadata.description = global.text("core:description");
  metadata.author = global.text("core:author");
  metadata.license = global.text("core:license");
  metadata.hardware = global.text("core:hw");
  metadata.recorder = global.text("core:recorder");
  global.each("core:extensions", "extension", [&](const Fields& extension) {
    if (extension.find("optional") == nullptr || extension.flag("optional")) return;
    throw Error(ErrorCode::not_supported,
                fmt::format("{} says that nobody can read the samples without the extension \"{}\"", global.place(),
                            printable(extension.text("name"), {}, 40)),
                "where it is not needed, set its field optional to true");
  });
}

SigmfCapture read_capture(const Fields& fields, const SigmfMetadata& metadata) {
  SigmfCapture capture;
  capture.sample_start = fields.whole("core:sample_start").value_or(metadata.offset);
  const std::uint64_t least = metadata.captures.empty() ? metadata.offset : metadata.captures.back().sample_start;
  if (capture.sample_start < least) {
    fields.fail("core:sample_start",
                fmt::format("{}, and {} of the {} before", capture.sample_start, least,
                            metadata.captures.empty() ? "core:offset" : "capture"),
                "sort captures by it");
  }
  capture.header_bytes = fields.whole("core:header_bytes").value_or(0);
  capture.frequency = fields.number("core:frequency");
  capture.gain = fields.number("gpumap:gain");
  capture.datetime = read_datetime(fields);
  return capture;
}

SigmfAnnotation read_annotation(const Fields& fields) {
  SigmfAnnotation annotation;
  const auto start = fields.whole("core:sample_start");
  if (!start) throw Error(ErrorCode::invalid, fields.place() + " has no core:sample_start", "add it, or leave it out");
  annotation.sample_start = *start;
  annotation.sample_count = fields.whole("core:sample_count");
  annotation.freq_lower_edge = fields.number("core:freq_lower_edge");
  annotation.freq_upper_edge = fields.number("core:freq_upper_edge");
  annotation.label = fields.text("core:label");
  annotation.comment = fields.text("core:comment");
  annotation.generator = fields.text("core:generator");
  annotation.uuid = fields.text("core:uuid");
  return annotation;
}

/// Without the library's "[json.exception.parse_error.101] ".
std::string reason_of(const json::exception& error) {
  const std::string_view text = error.what();
  const std::size_t end = text.find("] ");
  return printable(text.substr(end == text.npos ? 0 : end + 2), {}, 200);
}

}  // namespace

SigmfMetadata parse_sigmf(std::string_view text, const std::string& name) {
  try {
    const json root = json::parse(text);
    const Fields file(root, name);
    const json* const global = file.find("global");
    if (global == nullptr) {
      throw Error(ErrorCode::invalid, name + " has no object \"global\"", "give the .sigmf-meta of a recording");
    }
    SigmfMetadata metadata;
    read_global(Fields(*global, name + ": global"), metadata);
    file.each("captures", "capture",
              [&](const Fields& one) { metadata.captures.push_back(read_capture(one, metadata)); });
    if (metadata.captures.empty()) metadata.captures.push_back({.sample_start = metadata.offset});
    file.each("annotations", "annotation",
              [&](const Fields& one) { metadata.annotations.push_back(read_annotation(one)); });
    std::stable_sort(metadata.annotations.begin(), metadata.annotations.end(),
                     [](const auto& one, const auto& other) { return one.sample_start < other.sample_start; });
    return metadata;
  } catch (const json::exception& error) {
    throw Error(ErrorCode::invalid, fmt::format("{} is no JSON: {}", name, reason_of(error)),
                "give the .sigmf-meta of a recording, or mend it");
  }
}

SigmfMetadata read_sigmf(const std::string& path) {
  std::error_code problem;
  const bool is_file = std::filesystem::is_regular_file(path, problem);
  const std::uint64_t bytes = is_file ? std::filesystem::file_size(path, problem) : 0;
  if (!is_file || problem) {
    throw Error(ErrorCode::not_found,
                fmt::format("{}: {}", path, problem ? problem.message() : std::string("no ordinary file")),
                "set location to the .sigmf-meta of a recording");
  }
  if (bytes > most_metadata_bytes) {
    throw Error(ErrorCode::invalid, fmt::format("{} has {} bytes", path, bytes),
                fmt::format("metadata of at most {} is read", most_metadata_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  const std::optional<std::string> text = read_to_end(file);
  if (!text) throw Error(ErrorCode::open_read, path + " cannot be read", "see to its permissions and the disk");
  return parse_sigmf(*text, path);
}

// In 2^-20 Hz a rate is exact where it is whole, and has room in 64 bits.
std::uint64_t SigmfMetadata::time_of(std::uint64_t samples) const {
  return gst_util_uint64_scale_round(samples, GST_SECOND << 20U,
                                     static_cast<std::uint64_t>(std::llround(sample_rate * 0x1p20)));
}

std::uint64_t SigmfMetadata::samples_in(std::uint64_t time) const {
  return gst_util_uint64_scale_round(time, static_cast<std::uint64_t>(std::llround(sample_rate * 0x1p20)),
                                     GST_SECOND << 20U);
}

std::optional<std::uint64_t> SigmfMetadata::datetime_of(const SigmfCapture& capture, std::uint64_t at) const {
  if (!capture.datetime) return {};
  return *capture.datetime + time_of(at - capture.sample_start);
}

bool SigmfMetadata::continues(const SigmfCapture& before, const SigmfCapture& behind, std::uint64_t allowed) const {
  if (before.frequency != behind.frequency) return false;
  const auto expected = datetime_of(before, behind.sample_start);
  if (!expected || !behind.datetime) return true;
  return std::max(*expected, *behind.datetime) - std::min(*expected, *behind.datetime) <= allowed;
}

std::string to_json(const SigmfMetadata& metadata) {
  using Json = nlohmann::ordered_json;
  const auto set = [](Json& object, const char* key, const auto& value) {
    if (value) object[key] = *value;
  };
  const auto set_text = [](Json& object, const char* key, const std::string& text) {
    if (!text.empty()) object[key] = text;
  };
  // Whole numbers as such.
  const auto number = [](double value) {
    const bool whole = value == std::floor(value) && std::abs(value) < 0x1p53;
    return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
  };
  Json global{{"core:version", "1.2.0"},
              {"core:datatype", (metadata.complex ? "c" : "r") + std::string(metadata.datatype.name)},
              {"core:sample_rate", number(metadata.sample_rate)},
              {"core:num_channels", metadata.channels}};
  set_text(global, "core:description", metadata.description);
  set_text(global, "core:author", metadata.author);
  set_text(global, "core:license", metadata.license);
  set_text(global, "core:hw", metadata.hardware);
  set_text(global, "core:recorder", metadata.recorder);
  set_text(global, "core:sha512", metadata.sha512);
  Json captures = Json::array();
  bool has_gain = false;
  for (const SigmfCapture& one : metadata.captures) {
    Json capture{{"core:sample_start", one.sample_start}};
    if (one.frequency) capture["core:frequency"] = number(*one.frequency);
    if (one.datetime) capture["core:datetime"] = text_of_datetime(*one.datetime);
    set(capture, "gpumap:gain", one.gain);
    has_gain = has_gain || one.gain;
    captures.push_back(std::move(capture));
  }
  if (has_gain) {
    global["core:extensions"] = Json::array({{{"name", "gpumap"}, {"version", GPUMAP_VERSION}, {"optional", true}}});
  }
  Json annotations = Json::array();
  for (const SigmfAnnotation& one : metadata.annotations) {
    Json annotation{{"core:sample_start", one.sample_start}};
    set(annotation, "core:sample_count", one.sample_count);
    set(annotation, "core:freq_lower_edge", one.freq_lower_edge);
    set(annotation, "core:freq_upper_edge", one.freq_upper_edge);
    set_text(annotation, "core:label", one.label);
    set_text(annotation, "core:comment", one.comment);
    set_text(annotation, "core:generator", one.generator);
    set_text(annotation, "core:uuid", one.uuid);
    annotations.push_back(std::move(annotation));
  }
  const Json root{
      {"global", std::move(global)}, {"captures", std::move(captures)}, {"annotations", std::move(annotations)}};
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

const SigmfSection& SigmfLayout::section_of(std::uint64_t at) const {
  const auto behind =
      std::upper_bound(sections.begin(), sections.end(), at,
                       [](std::uint64_t sample, const SigmfSection& one) { return sample < one.first; });
  return *std::prev(behind);
}

SigmfLayout lay_out(const SigmfMetadata& metadata, std::uint64_t file_bytes, const std::string& name) {
  const std::uint64_t frame = metadata.frame_bytes();
  const std::uint64_t end = file_bytes - std::min(file_bytes, metadata.trailing_bytes);
  SigmfLayout layout;
  std::uint64_t at = 0;  // of the file; never behind its end
  std::optional<std::size_t> capture;
  const auto add = [&](std::uint64_t samples) {
    if (samples != 0) layout.sections.push_back({layout.samples, samples, at, capture});
    layout.samples += samples;
    at += samples * frame;
  };
  for (std::size_t i = 0; i < metadata.captures.size(); ++i) {
    const SigmfCapture& next = metadata.captures[i];
    const std::uint64_t before = next.sample_start - metadata.offset - layout.samples;
    const std::uint64_t room = (end - at) / frame;
    if (before > room) {
      layout.late_capture = i;
      break;
    }
    add(before);
    if (next.header_bytes > end - at) {
      layout.late_capture = i;
      at = end;
      break;
    }
    at += next.header_bytes;
    capture = i;
  }
  add((end - at) / frame);
  layout.cut_bytes = end - at;
  if (!layout.late_capture && !layout.sections.empty() && layout.sections.back().capture != capture) {
    layout.late_capture = capture;  // it begins where the samples end
  }
  if (layout.samples == 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("{} has {} bytes, and a sample of {}{} takes {}", name, file_bytes,
                            metadata.complex ? "c" : "r", metadata.datatype.name, frame),
                "give a file with samples");
  }
  return layout;
}

std::string sigmf_base(std::string_view location) {
  const auto refuse = [&](const char* what, const char* remedy) {
    throw Error(ErrorCode::not_supported, fmt::format("{} is {}", location, what), remedy);
  };
  if (location.ends_with(".sigmf"))
    refuse("an archive", "unpack it with tar xf, and give the .sigmf-meta of a recording");
  if (location.ends_with(".sigmf-collection")) refuse("a collection", "give the .sigmf-meta of one of its recordings");
  for (const std::string_view suffix : {".sigmf-meta", ".sigmf-data"}) {
    if (location.ends_with(suffix)) location.remove_suffix(suffix.size());
  }
  return std::string(location);
}

}  // namespace gpumap::gst
