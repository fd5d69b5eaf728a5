// SPDX-License-Identifier: MIT
//
// A radio that is made up, as a driver of SoapySDR's: linked into a test, or a module that SoapySDR loads. Its samples
// tell which they are. Arguments of the device: driver=made-up and
//   native=CS16     the native format          formats=CF32+CS8   others that it converts to
//   channels=2      to receive                 step=1             its rates are multiples of this
//   paced=1         samples come by the clock  clock=1            reads have a time: sample number / rate + 1 s
//   tone=100.3e6    a carrier, in place of samples that tell which they are
//   unit=1021       samples of one read
//   repeat=1        the first `period` samples over and over, from a table, at any rate; where reads fall behind the
//                   clock by more than 100 ms, what is missed is lost in an overflow
//   report=1        a line on stderr when the stream stops: time, samples, overflows, CPU time of the process
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpumap::gst::test {

/// What a test tells the radio, and sees of it. Of the process: a test begins with reset().
struct MadeUpRadio {
  std::atomic<int> overflows{0};         ///< so many of the next reads say that they lost `lost` samples
  std::atomic<std::uint64_t> lost{0};    ///< samples
  std::atomic<int> abrupt{0};            ///< so many reads give samples and say that `lost` are missing behind them
  std::atomic<std::uint64_t> unsaid{0};  ///< samples that the next read loses without a word
  std::atomic<std::uint64_t> jump_s{0};  ///< its clock is ahead by so many seconds
  std::atomic<bool> gone{false};         ///< pulled out: calls throw
  std::atomic<int> calls{0};             ///< of the driver
  std::atomic<int> failing_call{-1};     ///< the number of the one that throws; -1: none
  std::atomic<bool> wordless{false};     ///< it throws a number
  std::atomic<bool> garbled{false};      ///< its label is no text
  std::atomic<int> code{0};              ///< what a read returns instead
  std::atomic<bool> silent{false};       ///< no sample comes
  std::atomic<bool> empty{false};        ///< nor does a read wait for one
  std::atomic<std::uint64_t> reads{0}, opened{0}, starts{0}, tunes{0};
  std::atomic<double> frequency{0.0}, bandwidth{0.0}, gain{0.0}, lna{0.0}, correction{0.0};
  std::atomic<bool> automatic{false}, bias{false};
  std::atomic<char> antenna{'-'}, clock_source{'-'}, time_source{'-'};  ///< first letters

  void reset();
};
[[nodiscard]] MadeUpRadio& made_up_radio();

/// What a driver says of a radio that is gone.
inline constexpr const char* pulled_out = "the cable was pulled out, error -99";

/// Samples until they repeat, with repeat=1.
inline constexpr std::size_t period = 1U << 18U;

/// Element number `index` of `channel`, as the radio gives it in a format of SoapySDR's; appends its bytes.
void append_sample(const std::string& format, std::uint64_t index, std::size_t channel, std::vector<std::byte>& to);

}  // namespace gpumap::gst::test
