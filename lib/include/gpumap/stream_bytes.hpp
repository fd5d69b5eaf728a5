// SPDX-License-Identifier: MIT
// The kinds of what crosses a link beside the frames: which numbers say what. They are part of what two processes of
// different versions understand: never renumber.
#pragma once

#include <cstdint>

namespace gpumap {

/// The first byte of a message.
enum class StreamMessage : std::uint8_t { event = 1, layout = 2, no_layout = 3, time = 4 };

/// The kind of a value of a structure or of caps. Its length and its bytes follow.
enum class StreamValue : std::uint8_t {
  boolean = 1,
  signed_char,
  unsigned_char,
  integer,
  unsigned_integer,
  long_integer,
  unsigned_long,
  int64,
  uint64,
  real,
  double_real,
  string,
  no_string,
  enumeration,
  flags,
  flag_set,
  fraction,
  int_range,
  int64_range,
  double_range,
  fraction_range,
  bitmask,
  list,
  array,
  date,
  date_time,
  bytes,
  type,
  caps,
  features,
  structure,
  tags,
  segment,
  buffer,
  sample,
};

}  // namespace gpumap
