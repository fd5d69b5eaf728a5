// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "gpumap/export.hpp"
#include "gpumap/kernel.h"

//
// What a kernel declares, in comment lines of its source or by the property `declare`:
//
//   // gpumap: params gain=1,taps=[0.25,0.5,0.25]     names and initial values, in the order of frame.params
//   // gpumap: params count:u32=5 in [1,100],at:f64=0 types and limits of such
//   // gpumap: params none                            it takes none
//   // gpumap: functions blur,sharpen                 run one after the other, each on what the one before wrote
//   // gpumap: table weights float32 256              a file of so many numbers (left out: of any number)
//   // gpumap: table weights float32 256=/a/file      the same, and which one it is
//   // gpumap: history 3                              the last frames before, at frame.past
//   // gpumap: block 32x8                             threads of a block (workgroup), else chosen
//   // gpumap: grid 120x68                            blocks, else enough to give each pixel, sample or byte a thread
//   // gpumap: work quad                              what a thread takes, else one pixel, sample or byte
//   // gpumap: shared 4096                            bytes of dynamic shared memory (CUDA)
//   // gpumap: state 65536                            bytes at frame.state, kept from frame to frame
//   // gpumap: state 16 self-clearing                 the same, zero again after each launch: nothing is kept
//   // gpumap: view bytes                             it sees frames as bytes, whatever their caps
//   // gpumap: output video/x-raw,format=GRAY8,width={width/2},height={height/2}
//   // gpumap: output unchanged                       the frame goes on as it came: the kernel only looks at it
//   // gpumap: output converted                       any picture that can be loaded to any that can be stored
//   // gpumap: launch per-field                       interlaced pictures with chroma by field come as two
//   // gpumap: input video/x-raw,format={NV12,GRAY8}  caps that it takes, else any
//   // gpumap: bytes bytes/2                          of an output whose caps do not tell its size
//   // gpumap: input-tensor ID float32 1x?x4          a tensor that comes with the frame; `?`: of any size
//   // gpumap: output-tensor ID float32 1x100?x4      one that goes with it; `100?`: announced as of any size
//   // gpumap: tensor-group ID                        the group under which these are announced, else the first's ID
//   // gpumap: output-may drop,shorten                by what the kernel writes at frame.given: one of them, or both
//   // gpumap: results sharpness=f32,count=u64        names for the words of the result block, from the first on
//   // gpumap: analytics classification              results are told as GstAnalytics metas, too: as levels of classes
//   // gpumap: analytics detections person,car        or as regions, of such classes
//   // gpumap: tune frequency,sky,center           parameters in Hz by which it moves the band: see DeclaredTuning
//   // gpumap: message my-sharpness                   the name under which results are told, else gpumap-result
//   // gpumap: result-words 1024                      as many as the block has, else GPUMAP_RESULT_WORDS

namespace gpumap {

/// A number as it was written: a double or, where it was written without a point and an exponent, all the digits of a
/// whole one of 64 bits. A value.
class Number {
 public:
  Number() = default;
  template <std::floating_point Value>
  Number(Value value) : value_(static_cast<double>(value)) {}  // NOLINT(google-explicit-constructor)
  template <std::signed_integral Value>
  Number(Value value) : value_(static_cast<std::int64_t>(value)) {}  // NOLINT(google-explicit-constructor)

  /// The nearest double.
  [[nodiscard]] double value() const noexcept {
    const auto* whole = std::get_if<std::int64_t>(&value_);
    return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value_);
  }
  /// Exactly; empty for a fraction, for a double beyond 2^53 (what was written may be another number), and NaN.
  [[nodiscard]] GPUMAP_API std::optional<std::int64_t> whole() const noexcept;

  friend bool operator==(const Number& one, const Number& other) noexcept {
    const auto whole = one.whole();
    return whole || other.whole() ? whole == other.whole() : one.value() == other.value();
  }

 private:
  std::variant<double, std::int64_t> value_ = 0.0;
};

/// Text that parses as the same number.
[[nodiscard]] GPUMAP_API std::string to_string(const Number& number);

/// What a parameter or an element of a table is.
enum class NumberType { u8, i8, u16, i16, u32, i32, u64, i64, f16, f32, f64 };

[[nodiscard]] GPUMAP_API std::size_t bytes_of(NumberType type) noexcept;
[[nodiscard]] GPUMAP_API std::string_view to_string(NumberType type) noexcept;  ///< "u8", "f32"
/// The inverse; "uint8" and "float32" are the same. Throws Error(invalid).
[[nodiscard]] GPUMAP_API NumberType parse_number_type(std::string_view text);

/// How much of a frame one thread takes: the grid that is chosen has threads for all of it.
enum class Work {
  item,   ///< one pixel, sample or byte
  quad,   ///< four neighbouring pixels of a row
  chunk,  ///< many bytes, in a loop
};

/// What a word of the result block holds; a 32-bit one lies in its lower half.
enum class ResultType { u64, i64, f32, f64 };

/// One of the line `params`: one number, or a list.
struct DeclaredParameter {
  std::string name;
  NumberType type = NumberType::f32;                ///< f32, f64, i32, u32 or i64
  std::vector<Number> values;                       ///< initial
  std::optional<std::pair<Number, Number>> limits;  ///< the least and the most that are taken
  [[nodiscard]] bool operator==(const DeclaredParameter&) const = default;
};

/// A line `table`.
struct DeclaredTable {
  std::string name;
  NumberType type = NumberType::u8;
  std::optional<std::uint64_t> count;  ///< of elements; empty: as many as the file has
  std::string path;                    ///< empty: not said
  [[nodiscard]] bool operator==(const DeclaredTable&) const = default;
};

/// One dimension of a declared tensor.
struct DeclaredDimension {
  std::string size;   ///< an expression of the input's width, height, rate and channels; empty: any
  bool open = false;  ///< in caps of any size, as decoders ask for it
  [[nodiscard]] bool operator==(const DeclaredDimension&) const = default;
};

/// A line `input-tensor` or `output-tensor`.
struct DeclaredTensor {
  std::string id;
  NumberType type = NumberType::f32;
  std::vector<DeclaredDimension> dims;  ///< outermost first; 1 to GPUMAP_MAX_TENSOR_DIMS
  [[nodiscard]] bool operator==(const DeclaredTensor&) const = default;
};

/// A line `analytics`: how words of the result block go on as GStreamer's own metas.
struct DeclaredAnalytics {
  enum class Kind {
    none,
    classification,  ///< each named result is the level of a class of that name
    detections,      ///< word 0 is their number; of each `detection_words` words: x and y, width and height (i32), then
                     ///< the confidence (f32) and the class (u32)
  } kind = Kind::none;
  std::vector<std::string> labels;  ///< of the classes of detections; may be none
  [[nodiscard]] explicit operator bool() const noexcept { return kind != Kind::none; }
  [[nodiscard]] bool operator==(const DeclaredAnalytics&) const = default;
};
inline constexpr std::size_t detection_words = 3;

/// A line `tune`: names of parameters in hertz. The output's centre frequency is the input's plus `shift` or, where
/// that is not 0, `sky`.
struct DeclaredTuning {
  std::string shift, sky;
  std::string center;  ///< the input's centre frequency, which the caller sets where it is known
  [[nodiscard]] bool operator==(const DeclaredTuning&) const = default;
};

/// What a kernel may do with a frame's output beyond filling it; it says so at frame.given.
struct OutputMay {
  bool drop = false;
  bool shorten = false;
  [[nodiscard]] explicit operator bool() const noexcept { return drop || shorten; }
  [[nodiscard]] bool operator==(const OutputMay&) const = default;
};

struct Declaration {
  std::vector<DeclaredParameter> params;
  bool takes_none = false;  ///< no parameter. Else, where `params` is empty, those that are given count in their order
  std::vector<DeclaredTable> tables;
  std::uint32_t history = 0;  ///< frames, to GPUMAP_MAX_HISTORY
  std::vector<std::string> functions;
  std::array<std::uint32_t, 3> block{};  ///< 0: chosen
  std::array<std::uint32_t, 3> grid{};   ///< 0: chosen
  Work work = Work::item;
  std::uint32_t shared_bytes = 0;
  std::uint64_t state_bytes = 0;
  bool self_clearing = false;  ///< the state is zero after each launch: nothing is remembered
  bool on_bytes = false;       ///< sees frames as bytes alone, whatever their format
  std::string input;           ///< caps; empty: any
  std::string output;          ///< caps, with expressions in braces; empty: as the input
  bool unchanged = false;      ///< writes no output: the input is handed on
  bool converted = false;      ///< any picture that gpumap_load_pixels() takes to any that gpumap_store_pixels() makes
  bool per_field = false;      ///< a launch for each field of an interlaced picture whose chroma is kept by field
  std::string output_bytes;    ///< an expression; empty: as the caps say
  OutputMay output_may;
  std::vector<DeclaredTensor> input_tensors, output_tensors;  ///< to GPUMAP_MAX_TENSORS each
  std::string tensor_group;                                   ///< empty: the first output tensor's id
  std::vector<std::pair<std::string, ResultType>> results;    ///< no more than result_words
  std::uint32_t result_words = GPUMAP_RESULT_WORDS;           ///< to GPUMAP_MAX_RESULT_WORDS
  DeclaredAnalytics analytics;
  std::optional<DeclaredTuning> tuning;  ///< empty: the band stays where it is
  std::string message;                   ///< the results' name; empty: the usual one
  [[nodiscard]] bool operator==(const Declaration&) const = default;
};

/// By name: letters, '_' and '.', and digits but at the start; "params.taps[1]" also has an index.
using Variables = std::span<const std::pair<std::string_view, std::uint64_t>>;

/// What the source `code` declares, and lines of the same kind in `declare`, as in "output unchanged; state 4096".
/// There, a line end separates them, or a ';' outside quotes with a word of letters and '-', then a blank or the end,
/// behind it: so the ';' between caps does not. Such a line replaces that of the source with the same word; of words
/// that may repeat (`table`, `input-tensor`, `output-tensor`) with the same name, too. "table NAME=PATH" leaves the
/// type that the source declares, and is of bytes where the source declares no table. Thread-safe, as all that follows.
/// Throws Error(invalid) naming the line and the column or the words that are known.
[[nodiscard]] GPUMAP_API Declaration parse_declaration(std::string_view code, std::string_view declare = {});

/// How many bytes of an output of `bytes` go on, where the kernel wrote `said` to frame.given; empty: none, the frame
/// is dropped. Throws Error(invalid), which names `kernel`, for what `may` does not allow.
[[nodiscard]] GPUMAP_API std::optional<std::size_t> bytes_given(const OutputMay& may, std::string_view kernel,
                                                                std::uint64_t said, std::size_t bytes);

/// How large each dimension of `tensor` is, for an input as `variables` say; 0: any. Throws Error(invalid), which names
/// the tensor, for what has no value, a size of 0 or one beyond 2^31 - 1, and for a tensor beyond 2^32 bytes.
[[nodiscard]] GPUMAP_API std::vector<std::uint64_t> dims_of(const DeclaredTensor& tensor, Variables variables);
/// "1x100x4"; `?` for 0.
[[nodiscard]] GPUMAP_API std::string dims_text(std::span<const std::uint64_t> dims);

/// "one,other". Throws Error(invalid) for an empty name.
[[nodiscard]] GPUMAP_API std::vector<std::string> parse_names(std::string_view text);
/// "blur<5,2>,sharpen": the arguments of a template are not names of their own. Throws as parse_names().
[[nodiscard]] GPUMAP_API std::vector<std::string> parse_functions(std::string_view text);

/// An expression of whole numbers, `variables`, + - * / %, min(a,b), max(a,b) and parentheses. Throws Error(invalid)
/// for what is none, for an unknown variable, a division by zero and a result below zero or beyond 64 bits.
[[nodiscard]] GPUMAP_API std::uint64_t evaluate(std::string_view expression, Variables variables);
/// `text` with each {expression} replaced by its value, and each {expression ? text : other} by the first text,
/// expanded in turn, where the expression is not 0, else by the other. Throws as evaluate().
[[nodiscard]] GPUMAP_API std::string expand(std::string_view text, Variables variables);
/// The variables that expand(text) may ask for. A word of a text that is none may be among them.
[[nodiscard]] GPUMAP_API std::vector<std::string_view> variables_in(std::string_view text);

/// The numbers of all parameters in the order of frame.params, those that `text` gives over the initial values.
/// `kernel` is for messages. Throws as apply_declared().
[[nodiscard]] GPUMAP_API std::vector<Number> numbers_of(const Declaration& declaration, std::string_view kernel,
                                                        std::string_view text);
/// The same for expressions, by names as in "params.rate" and "params.taps[1]": whole numbers from 0 to `most`, what is
/// below, between and above cut off.
[[nodiscard]] GPUMAP_API std::vector<std::pair<std::string, std::uint64_t>> parameter_variables(
    std::span<const DeclaredParameter> params, std::span<const Number> numbers, std::uint64_t most);

/// Lay values out as a declaration orders them, over its initial values; without a declaration, in the order in which
/// they are given. `params` gets the nearest floats and `numbers` the words of gpumap_frame::numbers, both as long as
/// that has them. `kernel` is for messages. Throws as apply_parameters(), and Error(invalid) for a number that its type
/// or its limits do not allow; then both stay as they were.
GPUMAP_API void apply_declared(const Declaration& declaration, std::string_view kernel, std::string_view text,
                               std::span<float> params, std::span<std::uint64_t> numbers);

/// What the line `params` says: "gain=1.5,count:u32=5 in [0,100],taps=[1,2,3]". Throws Error(invalid).
[[nodiscard]] GPUMAP_API std::vector<DeclaredParameter> parse_declared_parameters(std::string_view text);

}  // namespace gpumap
