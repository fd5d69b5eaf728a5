// SPDX-License-Identifier: MIT
// What the tests of chains of tensors share: pictures, and what the kernels of a chain make of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "pipeline.hpp"

namespace gpumap::gst::test {

struct Size {
  int width, height;
};
inline constexpr Size tensor_sizes[] = {{37, 23}, {1, 1}, {641, 3}, {5, 333}, {64, 48}};

/// An element of a first tensor, three planes of floats: exact, and so are their sums.
inline float before_at(std::uint8_t value, unsigned c) {
  return static_cast<float>(3U * value + c) / 8.0F;
}

/// Pictures of GRAY8, whose rows GStreamer pads to 4 bytes.
class Picture {
 public:
  Picture(const Size& size, std::uint64_t seed)
      : size_(size), stride_((static_cast<std::size_t>(size.width) + 3) / 4 * 4) {
    data_ = random_data(stride_ * static_cast<std::size_t>(size.height), seed);
  }
  [[nodiscard]] const Data& data() const { return data_; }
  [[nodiscard]] Data tensor() const {
    std::vector<float> made;
    for (unsigned c = 0; c < 3; ++c) {
      each([&](int, std::uint8_t value) { made.push_back(before_at(value, c)); });
    }
    return bytes_of(made);
  }
  [[nodiscard]] Data sums() const { return bytes_of(columns()); }
  [[nodiscard]] Data doubled_sums() const {
    std::vector<double> made;
    for (const float sum : columns()) made.push_back(2.0 * sum);
    return bytes_of(made);
  }

 private:
  template <typename Value>
  static Data bytes_of(const std::vector<Value>& values) {
    Data data(values.size() * sizeof(Value));
    std::memcpy(data.data(), values.data(), data.size());
    return data;
  }
  [[nodiscard]] std::vector<float> columns() const {
    std::vector<float> made(static_cast<std::size_t>(size_.width));
    each([&](int x, std::uint8_t value) {
      for (unsigned c = 0; c < 3; ++c) made[static_cast<std::size_t>(x)] += before_at(value, c);
    });
    return made;
  }
  void each(const std::function<void(int x, std::uint8_t value)>& call) const {
    for (int y = 0; y < size_.height; ++y) {
      const std::byte* row = data_.data() + static_cast<std::size_t>(y) * stride_;
      for (int x = 0; x < size_.width; ++x) call(x, std::to_integer<std::uint8_t>(row[x]));
    }
  }

  Size size_;
  std::size_t stride_;
  Data data_;
};

inline Caps gray(const Size& size) {
  return new_caps("video/x-raw,format=GRAY8,framerate=30/1,width=" + std::to_string(size.width) +
                  ",height=" + std::to_string(size.height));
}

inline std::string text_of(const GstCaps* caps) {
  const Ptr<gchar> text(gst_caps_to_string(caps));
  return text.get();
}

}  // namespace gpumap::gst::test
