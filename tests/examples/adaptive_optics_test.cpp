// SPDX-License-Identifier: MIT
// examples/adaptive-optics: the kernels against float64. What that float64 is worth, adaptive_optics_parts_test.cpp
// says.
#include "adaptive_optics.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "example.hpp"

namespace gpumap::gst::test {
namespace {

using adaptive_optics::Finding;
using adaptive_optics::odd_size;
using adaptive_optics::random_pixels;
using adaptive_optics::random_tables;
using adaptive_optics::Tables;

class AdaptiveOptics : public Example {
 protected:
  void SetUp() override {
    Example::SetUp();
    char name[] = "/tmp/gpumap-adaptive-optics-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  template <typename T>
  std::string file(const char* name, const std::vector<T>& numbers) const {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(sizeof(T) * numbers.size()));
    return fmt::format("table {}={}", name, path.string());
  }
  /// The pipeline that the example runs; with `grid` 0 as many blocks as the file says.
  [[nodiscard]] std::string line(const Tables& tables, std::size_t grid) const {
    return on_new_channel(fmt::format(
        "appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel location={} "
        "declare=\"{};{};{}{}\" params=actuators={} ! application/x-mirror-commands ! appsink name=out sync=false",
        kernel("adaptive-optics/commands"), file("pixels", tables.pixels),
        file("reconstructor", tables.reconstructor.numbers), file("modes", tables.modes.numbers),
        grid == 0 ? "" : fmt::format(";grid {}", grid), tables.modes.rows));
  }

  std::filesystem::path folder_;
};

TEST_P(AdaptiveOptics, GivesTheCommandsThatFloat64Gives) {
  // More blocks than rows, as many, and fewer: then a block takes several rows.
  for (const auto& [size, grid] : {std::pair(odd_size, 0U),
                                   {odd_size, 1U},
                                   {adaptive_optics::small_size, 49U},
                                   {adaptive_optics::small_size, 5U},
                                   {adaptive_optics::extreme_size, 0U}}) {
    SCOPED_TRACE(testing::Message() << size.measurements << " measurements, grid " << grid);
    const Tables tables = random_tables(size, 3);
    Pipeline pipeline(line(tables, grid));
    gst_app_src_set_caps(pipeline.appsrc(), video_caps("GRAY16_LE", size.width(), size.height()).get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (std::uint32_t frame = 0; frame < 3; ++frame) {
      const std::vector<std::uint16_t> pixels = random_pixels(size, frame);
      Data data(2 * pixels.size());
      std::memcpy(data.data(), pixels.data(), data.size());
      push(pipeline.appsrc(), new_buffer(data));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
      const Data out = data_of(gst_sample_get_buffer(sample.get()));
      std::vector<float> commands(tables.modes.rows);
      ASSERT_EQ(out.size(), sizeof(float) * commands.size());
      std::memcpy(commands.data(), out.data(), out.size());
      const Finding found = check_commands(tables, size.width(), pixels, commands);
      EXPECT_LE(found.error_of_bound, 1) << "command " << found.command << ": " << found.value << ", not "
                                         << found.expected;
    }
  }
}

GPUMAP_BOTH_LANGUAGES(AdaptiveOptics);

}  // namespace
}  // namespace gpumap::gst::test
