// SPDX-License-Identifier: MIT
// examples/adsb against a demodulator for the CPU, and against what was sent.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "adsb/mode_s.hpp"
#include "example.hpp"

namespace gpumap::gst::test {
namespace {

using Iq = std::vector<std::uint8_t>;
using Bytes = std::vector<std::uint8_t>;
/// Where the preamble begins, and what follows.
using Found = std::pair<std::int64_t, Bytes>;

/// As receivers on the CPU do it, one sample after the other: a preamble by the ten relations of its samples and by how
/// quiet the gaps are, no bit corrected, and after a message on with what follows it. Where the parity is wrong it
/// tries once more as dump1090 does: each bit makes the first half of the next one seem larger or smaller.
class CpuDemodulator {
 public:
  explicit CpuDemodulator(const Iq& iq) {
    for (std::size_t i = 0; i + 1 < iq.size(); i += 2) level_.push_back(std::hypot(iq[i] - 127.5, iq[i + 1] - 127.5));
  }

  std::vector<Found> demodulate() {
    std::vector<Found> found;
    for (std::size_t at = 0; at + 16 + 112 <= level_.size(); ++at) {
      if (!preamble(at)) continue;
      Bytes message = bytes(at + 16, false);
      if (message.empty() || !valid(message)) message = bytes(at + 16, true);
      if (message.empty() || !valid(message)) continue;
      found.emplace_back(at, message);
      at += 16 + 16 * message.size() - 1;
    }
    return found;
  }

 private:
  [[nodiscard]] bool preamble(std::size_t at) const {
    const double* m = &level_[at];
    const bool shape = m[0] > m[1] && m[1] < m[2] && m[2] > m[3] && m[3] < m[0] && m[4] < m[0] && m[5] < m[0] &&
                       m[6] < m[0] && m[7] > m[8] && m[8] < m[9] && m[9] > m[6];
    const double high = (m[0] + m[2] + m[7] + m[9]) / 6;
    return shape && m[4] < high && m[5] < high && m[11] < high && m[12] < high && m[13] < high && m[14] < high;
  }

  /// Empty where the signal ends first.
  [[nodiscard]] Bytes bytes(std::size_t at, bool corrected) const {
    const bool is_long = level_[at] > level_[at + 1];
    const std::size_t bits = is_long ? 112 : 56;
    if (at + 2 * bits > level_.size()) return {};
    Bytes made(bits / 8);
    double by = 1;
    for (std::size_t i = 0; i < bits; ++i) {
      const bool one = by * level_[at + 2 * i] > level_[at + 2 * i + 1];
      if (one) made[i / 8] |= static_cast<std::uint8_t>(1U << (7 - i % 8));
      if (corrected) by = one ? 1.25 : 0.8;
    }
    return made;
  }

  /// What is left of the message, as a polynomial, divided by the generator.
  static std::uint32_t remainder(const Bytes& message) {
    constexpr std::uint32_t generator = 0x1FFF409;
    std::vector<int> bits;
    for (const std::uint8_t byte : message) {
      for (int bit = 7; bit >= 0; --bit) bits.push_back(byte >> bit & 1);
    }
    for (std::size_t i = 0; i + 24 < bits.size(); ++i) {
      if (bits[i] == 0) continue;
      for (std::size_t j = 0; j <= 24; ++j) bits[i + j] ^= static_cast<int>(generator >> (24 - j) & 1);
    }
    std::uint32_t left = 0;
    for (std::size_t i = bits.size() - 24; i < bits.size(); ++i) left = left << 1 | static_cast<std::uint32_t>(bits[i]);
    return left;
  }

  bool valid(const Bytes& message) {
    const std::uint32_t left = remainder(message);
    const std::uint32_t address = message[1] << 16 | message[2] << 8 | message[3];
    switch (message[0] >> 3) {
      case 17:
      case 18:
        if (left == 0) known_.insert(address);
        return left == 0;
      case 11:
        if (left == 0) known_.insert(address);
        return left == 0 || (left < 80 && known_.contains(address));
      case 0:
      case 4:
      case 5:
      case 16:
      case 20:
      case 21:
        return known_.contains(left);
      default:
        return false;
    }
  }

  std::vector<double> level_;
  std::set<std::uint32_t> known_;
};

class Adsb : public Example {
 protected:
  /// What the kernel finds in `iq`, cut into blocks of these many samples, again and again. One that is
  /// found twice shows: nothing is sorted out here.
  static std::vector<Found> found_in(const Iq& iq, const std::vector<std::size_t>& blocks) {
    Pipeline pipeline(
        on_new_channel("appsrc name=in format=time caps=audio/x-raw,format=U8,layout=interleaved,rate=2000000,"
                       "channels=2 ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel location=" +
                       kernel("adsb/adsb") + " ! application/x-mode-s,rate=2000000 ! appsink name=out sync=false"));
    EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    adsb::Aircraft aircraft;
    std::vector<Found> found;
    std::size_t block = 0;
    for (std::size_t at = 0; at < iq.size(); ++block) {
      const std::size_t bytes = std::min(2 * blocks[block % blocks.size()], iq.size() - at);
      const auto* data = reinterpret_cast<const std::byte*>(iq.data()) + at;
      push(pipeline.appsrc(), new_buffer(Data(data, data + bytes), block));
      const Sample sample = pull(pipeline.appsink());
      if (!sample) {
        ADD_FAILURE() << pipeline.wait(1ms);
        return found;
      }
      const auto records = records_of(gst_sample_get_buffer(sample.get()));
      for (adsb::Message& message : aircraft.messages(records, static_cast<std::int64_t>(at / 2))) {
        found.emplace_back(message.first_sample, std::move(message.bytes));
      }
      at += bytes;
    }
    // Messages are told in the order in which they end.
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  static std::vector<adsb::Record> records_of(GstBuffer* buffer) {
    GstCustomMeta* meta = gst_buffer_get_custom_meta(buffer, "GpumapResult");
    guint64 count = 0;
    EXPECT_TRUE(meta != nullptr && gst_structure_get_uint64(gst_custom_meta_get_structure(meta), "records", &count));
    std::vector<adsb::Record> records(count);
    if (records.empty()) return records;
    const std::size_t bytes = count * sizeof(adsb::Record);
    EXPECT_EQ(gst_buffer_extract(buffer, 0, records.data(), bytes), bytes) << "records without room";
    return records;
  }
};

/// 64 KiB as filesrc reads them; the whole; less than a message, so that one lies in several blocks; and sizes that
/// have nothing to do with those of messages.
std::vector<std::vector<std::size_t>> block_sizes(std::size_t samples) {
  return {{32768}, {samples}, {100}, {1000, 1, 239, 240, 37, 241, 4099}};
}

TEST_P(Adsb, FindsWhatWasSentWhateverTheBlocks) {
  const adsb::Signal signal = adsb::make_signal(60);
  std::vector<Found> sent;
  for (const auto& message : signal.sent) sent.emplace_back(message.first_sample, message.bytes);
  EXPECT_EQ(CpuDemodulator(signal.iq).demodulate(), sent);
  for (const auto& blocks : block_sizes(signal.iq.size() / 2)) {
    EXPECT_EQ(found_in(signal.iq, blocks), sent) << "blocks of " << testing::PrintToString(blocks);
  }
}

// Pulses near the middle between two samples, each of which may then be called the first, but never both. In the very
// middle noise hides the preamble.
TEST_P(Adsb, FindsWhatLiesBetweenTwoSamples) {
  for (const double late : {0.36, 0.40, 0.42, 0.44, 0.56, 0.58, 0.60, 0.64}) {
    const adsb::Signal signal = adsb::make_signal(200, late, late);
    const std::vector<Found> found = found_in(signal.iq, {32768, 1000});
    std::ptrdiff_t right = 0;
    for (const auto& sent : signal.sent) {
      const auto times = std::count_if(found.begin(), found.end(), [&](const Found& one) {
        return (one.first == sent.first_sample || one.first == sent.first_sample + 1) && one.second == sent.bytes;
      });
      EXPECT_LE(times, 1) << "late " << late << ", sample " << sent.first_sample;
      right += times;
    }
    EXPECT_GE(right, 165) << "late " << late;
    // An all-call reply in which one of the last bits is wrong may pass.
    EXPECT_LE(static_cast<std::ptrdiff_t>(found.size()) - right, 2) << "late " << late;
  }
}

// Every cut through one message, with the last sample of the signal that of the message.
TEST_P(Adsb, FindsAMessageCutAnywhere) {
  adsb::Signal signal = adsb::make_signal(1);
  const adsb::Signal::Sent& sent = signal.sent.front();
  const auto first = static_cast<std::size_t>(sent.first_sample);
  const std::size_t samples = 16 + 16 * sent.bytes.size();
  signal.iq.resize(2 * (first + samples));
  for (std::size_t cut = 1; cut < samples; cut += 5) {
    EXPECT_THAT(found_in(signal.iq, {first + cut, samples - cut}),
                testing::ElementsAre(Found(sent.first_sample, sent.bytes)))
        << cut;
  }
}

TEST_P(Adsb, FindsNoLessThanTheCpuOffTheAir) {
  std::ifstream file(GPUMAP_RECORDING, std::ios::binary);
  if (!file) GTEST_SKIP() << "no " GPUMAP_RECORDING;
  const Iq iq((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::vector<Found> by_cpu = CpuDemodulator(iq).demodulate();
  EXPECT_GT(by_cpu.size(), 270U);
  std::vector<Found> before;
  for (const auto& blocks : block_sizes(iq.size() / 2)) {
    const std::vector<Found> found = found_in(iq, blocks);
    EXPECT_TRUE(std::includes(found.begin(), found.end(), by_cpu.begin(), by_cpu.end()));
    EXPECT_GE(found.size(), 323U);
    EXPECT_TRUE(before.empty() || found == before) << "blocks of " << testing::PrintToString(blocks);
    before = found;
  }
  std::printf("by the CPU %zu, by the kernel %zu\n", by_cpu.size(), before.size());
}

// Noise as loud as it gets is no message.
TEST_P(Adsb, FindsNothingInNoise) {
  Iq iq(400'000);
  std::mt19937 random(7);
  for (std::uint8_t& byte : iq) byte = static_cast<std::uint8_t>(random());
  EXPECT_THAT(found_in(iq, {50'000}), testing::IsEmpty());
}

// DF 17 messages that others decoded: Sun, "The 1090 Megahertz Riddle".
TEST(ModeS, SaysWhatMessagesSay) {
  const auto content = [](Bytes bytes) {
    return adsb::content({.first_sample = 0, .bytes = std::move(bytes), .address = 0, .level_db = 0});
  };
  EXPECT_EQ(content({0x8D, 0x48, 0x40, 0xD6, 0x20, 0x2C, 0xC3, 0x71, 0xC3, 0x2C, 0xE0, 0x57, 0x60, 0x98}),
            "callsign KLM1023");
  EXPECT_EQ(content({0x8D, 0x40, 0x62, 0x1D, 0x58, 0xC3, 0x82, 0xD6, 0x90, 0xC8, 0xAC, 0x28, 0x63, 0xA7}),
            "altitude 38000 ft, CPR even 93000 51372");
  EXPECT_EQ(content({0x8D, 0x48, 0x50, 0x20, 0x99, 0x44, 0x09, 0x94, 0x08, 0x38, 0x17, 0x5B, 0x28, 0x4F}),
            "159 kt, track 183");
}

GPUMAP_BOTH_LANGUAGES(Adsb);

}  // namespace
}  // namespace gpumap::gst::test
