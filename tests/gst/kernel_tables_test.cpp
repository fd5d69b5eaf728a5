// SPDX-License-Identifier: MIT
// Files of numbers for a kernel, which change while it runs.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <numeric>
#include <random>
#include <thread>

#include "kernel_file.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The number of elements, and as many of them as there is room for.
constexpr const char* shows_first =
    "void main() {\n"
    "  for (uint64_t i = gpumap_thread(); i < frame.out_view.bytes / 4ul; i += gpumap_thread_count()) {\n"
    "    uint value = uint(frame.tables[0].count);\n"
    "    if (i > 0ul) value = load_u32(frame.tables[0].address + 4ul * ((i - 1ul) % frame.tables[0].count));\n"
    "    store_u32(frame.out_view.plane[0] + 4ul * i, value);\n"
    "  }\n"
    "}\n";

std::vector<std::uint32_t> random_table(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> table(count);
  std::generate(table.begin(), table.end(), [&] { return static_cast<std::uint32_t>(random()); });
  return table;
}

void replace_table(const std::string& path, const std::vector<std::uint32_t>& table) {
  replace_file(path, table.data(), table.size() * sizeof table[0]);
}

/// Whether a frame shows the whole of `table` and nothing else.
bool shows(const Data& frame, const std::vector<std::uint32_t>& table) {
  if (frame.size() < 8 || value_at<std::uint32_t>(frame, 0) != table.size()) return false;
  for (std::size_t i = 1; i < frame.size() / 4; ++i) {
    if (value_at<std::uint32_t>(frame, 4 * i) != table[(i - 1) % table.size()]) return false;
  }
  return true;
}

class KernelTables : public testing::Test {
 protected:
  KernelTables() : file_(std::string("// gpumap: table weights uint32\n") + shows_first) {}
  [[nodiscard]] std::string weights() const {
    return file_.beside("weights=a;b,c.u32");
  }  // a name with what separates others
  [[nodiscard]] std::string options() const {
    return "location=" + file_.path() + " declare=\"table weights=" + weights() + "\"";
  }
  /// The next warning while frames go on.
  std::string warning(Frames& frames) {
    const std::size_t before = frames.pipeline().warnings().size();
    const bool told = eventually([&] {
      (void)frames.run(random_data(40, 1));
      (void)frames.pipeline().wait(1ms);
      return frames.pipeline().warnings().size() > before;
    });
    return told ? frames.pipeline().warnings().back() : "none";
  }
  static bool comes_to_show(Frames& frames, const std::vector<std::uint32_t>& table) {
    return eventually([&] { return shows(frames.run(random_data(4 * table.size() + 11, 2)), table); });
  }
  KernelFile file_;
};

TEST_F(KernelTables, AreLoadedAndLoadedAgain) {
  auto table = random_table(1013, 1);
  replace_table(weights(), table);
  Frames frames(options());
  ASSERT_TRUE(shows(frames.run(random_data(9001, 1)), table));
  for (const std::size_t count : {7U, 1013U, 1U, 100003U}) {
    table = random_table(count, 2 + count);
    replace_table(weights(), table);
    EXPECT_TRUE(comes_to_show(frames, table)) << count;
  }
  // Written over, in place.
  table = random_table(5000, 77);
  std::ofstream(weights(), std::ios::binary)
      .write(reinterpret_cast<const char*>(table.data()), static_cast<std::streamsize>(4 * table.size()));
  EXPECT_TRUE(comes_to_show(frames, table));
  (void)frames.pipeline().wait(1ms);
  EXPECT_TRUE(frames.pipeline().warnings().empty());
}

TEST_F(KernelTables, WhatIsWrongLeavesThePreviousTable) {
  const auto table = random_table(33, 5);
  replace_table(weights(), table);
  Frames frames(options());
  ASSERT_TRUE(shows(frames.run(random_data(999, 1)), table));
  const auto expect_before = [&] { EXPECT_TRUE(shows(frames.run(random_data(999, 1)), table)); };
  // Half a file.
  std::ofstream(weights(), std::ios::binary) << "abcdefghij";
  EXPECT_THAT(warning(frames), AllOf(HasSubstr("table weights"), HasSubstr(weights()), HasSubstr("has 10 bytes"),
                                     HasSubstr("the 4 that a u32 takes"), HasSubstr("keeping the previous table")));
  expect_before();
  std::ofstream(weights(), std::ios::trunc).close();
  EXPECT_THAT(warning(frames), AllOf(HasSubstr("is empty"), HasSubstr("keeping the previous table")));
  expect_before();
  std::filesystem::remove(weights());
  std::filesystem::create_directory(weights());
  EXPECT_THAT(warning(frames), AllOf(HasSubstr("is a directory"), HasSubstr("keeping the previous table")));
  expect_before();
  std::filesystem::remove(weights());
  for (int i = 0; i < 5; ++i) {
    expect_before();
    std::this_thread::sleep_for(60ms);
  }
  ASSERT_EQ(mkfifo(weights().c_str(), 0600), 0);
  EXPECT_THAT(warning(frames), AllOf(HasSubstr("is a pipe"), HasSubstr("keeping the previous table")));
  expect_before();
  (void)frames.pipeline().wait(1ms);
  EXPECT_EQ(frames.pipeline().warnings().size(), 4U) << "each told once, and a file that is gone not at all";
  std::filesystem::remove(weights());
  const auto last = random_table(34, 6);
  replace_table(weights(), last);
  EXPECT_TRUE(comes_to_show(frames, last));
}

// Every frame is of one table, whole, and the tables come in their order.
TEST_F(KernelTables, ReloadUnderLoad) {
  constexpr std::size_t count = 20011;
  constexpr std::uint32_t versions = 12;
  const auto version = [&](std::uint32_t number) {
    std::vector<std::uint32_t> table(count);
    std::mt19937 random(number);
    for (std::uint32_t& value : table) value = (number << 24) | (random() & 0xffffffU);
    return table;
  };
  std::vector<std::vector<std::uint32_t>> tables;
  for (std::uint32_t i = 0; i < versions; ++i) tables.push_back(version(i));
  replace_table(weights(), tables[0]);
  Frames frames(options(), "application/octet-stream", "slots=4");
  ASSERT_NE(frames.pipeline().set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::atomic<bool> over{false};
  std::atomic<std::uint32_t> shown{0};
  std::thread writer([&] {
    for (std::uint32_t i = 1; i < versions && !over; ++i) {
      replace_table(weights(), tables[i]);
      // Some are seen, others are replaced before that.
      if (i % 3 == 0) {
        for (int wait = 0; wait < 2000 && shown < i && !over; ++wait) std::this_thread::sleep_for(10ms);
      } else {
        std::this_thread::sleep_for(30ms * (i % 4));
      }
    }
  });
  std::thread feeder([&] {
    const Data data = random_data(4 * count + 4, 9);
    for (GstClockTime pts = 0; !over; pts += GST_MSECOND) {
      if (!push(frames.pipeline().appsrc(), new_buffer(data, pts))) break;
      while (!over && gst_app_src_get_current_level_buffers(frames.pipeline().appsrc()) > 4) {
        std::this_thread::sleep_for(1ms);
      }
    }
  });
  std::uint32_t last = 0;
  const auto end = std::chrono::steady_clock::now() + patience;
  while (last + 1 < versions && std::chrono::steady_clock::now() < end) {
    const Sample sample = pull(frames.pipeline().appsink());
    if (!sample) break;
    const Data data = data_of(gst_sample_get_buffer(sample.get()));
    const std::uint32_t now = value_at<std::uint32_t>(data, 4) >> 24;
    EXPECT_GE(now, last);
    if (now >= versions || !shows(data, tables[now])) {
      ADD_FAILURE() << "a frame of two tables, at " << now;
      break;
    }
    shown = last = now;
  }
  over = true;
  EXPECT_EQ(last + 1, versions);
  writer.join();
  frames.pipeline().stop();
  feeder.join();
}

TEST_F(KernelTables, SeveralOfAllTypesAndFixedLengths) {
  const KernelFile file(
      "// gpumap: table bytes uint8\n"
      "// gpumap: table halves f16 3\n"
      "// gpumap: table shorts int16\n"
      "// gpumap: table reals float64 5\n"
      "void main() {\n"
      "  if (gpumap_thread() != 0ul) return;\n"
      "  uint64_t to = frame.out_view.plane[0];\n"
      "  for (uint i = 0u; i < 4u; ++i) store_u64(to + 8ul * i, frame.tables[i].count);\n"
      "  store_u32(to + 32ul, load_u8(frame.tables[0].address + frame.tables[0].count - 1ul));\n"
      "  store_f32(to + 36ul, load_f16(frame.tables[1].address + 4ul));\n"
      "  store_u32(to + 40ul, uint(int(load_i16(frame.tables[2].address + 2ul))));\n"
      "  store_f64(to + 48ul, load_f64(frame.tables[3].address + 32ul));\n"
      "}\n");
  const auto bytes = random_data(4097, 3);
  const std::uint16_t halves[] = {0x3c00, 0x4000, 0x4248};  // 1, 2, 3.140625
  const std::int16_t shorts[] = {-3, -30000, 5, 6, 7};
  const double reals[] = {1, 2, 3, 4, 1e-300 / 3};
  replace_file(file.beside("b"), bytes.data(), bytes.size());
  replace_file(file.beside("h"), halves, sizeof halves);
  replace_file(file.beside("s"), shorts, sizeof shorts);
  replace_file(file.beside("r"), reals, sizeof reals);
  // In any order: the file's counts.
  const std::string tables = "table shorts=" + file.beside("s") + "; table reals=" + file.beside("r") +
                             ";table bytes=" + file.beside("b") + ";table halves=" + file.beside("h");
  Frames frames("location=" + file.path() + " declare=\"" + tables + "\"");
  const Data data = frames.run(random_data(77, 4));
  EXPECT_EQ(value_at<std::uint64_t>(data, 0), 4097U);
  EXPECT_EQ(value_at<std::uint64_t>(data, 8), 3U);
  EXPECT_EQ(value_at<std::uint64_t>(data, 16), 5U);
  EXPECT_EQ(value_at<std::uint64_t>(data, 24), 5U);
  EXPECT_EQ(value_at<std::uint32_t>(data, 32), std::to_integer<std::uint32_t>(bytes.back()));
  EXPECT_EQ(value_at<float>(data, 36), 3.140625F);
  EXPECT_EQ(value_at<std::int32_t>(data, 40), -30000);
  EXPECT_EQ(value_at<double>(data, 48), 1e-300 / 3);
}

TEST_F(KernelTables, OfAFileThatDeclaresNoneAreBytes) {
  const KernelFile file(shows_first);
  const auto table = random_table(100, 8);
  replace_table(file.beside("any"), table);
  Frames frames("location=" + file.path() + " declare=\"table other=" + file.beside("any") + "\"");
  EXPECT_EQ(value_at<std::uint32_t>(frames.run(random_data(64, 4)), 0), 400U);
}

// The kernel's next version has its own.
TEST_F(KernelTables, GoWithTheirKernel) {
  // Frames so short that the kernel stays within the table, whatever its elements are.
  const auto table = random_table(12, 8);
  replace_table(weights(), table);
  Frames frames("reload=true " + options());
  ASSERT_TRUE(shows(frames.run(random_data(40, 1)), table));
  file_.write(std::string("// gpumap: table weights uint16\n") + shows_first);
  EXPECT_TRUE(eventually([&] { return value_at<std::uint32_t>(frames.run(random_data(40, 1)), 0) == 24; }));
  file_.write(std::string("// gpumap: table weights uint16\n// gpumap: table more u8\n") + shows_first);
  EXPECT_THAT(warning(frames),
              AllOf(HasSubstr("its table 'more' has no file"), HasSubstr("keeping the previous kernel")));
  EXPECT_EQ(value_at<std::uint32_t>(frames.run(random_data(40, 1)), 0), 24U);
  replace_table(weights(), random_table(13, 9));
  EXPECT_TRUE(eventually([&] { return value_at<std::uint32_t>(frames.run(random_data(40, 1)), 0) == 26; }));
}

TEST_F(KernelTables, ErrorsAtTheStart) {
  EXPECT_THAT(start_error("location=" + file_.path()),
              HasSubstr("its table 'weights' has no file: set declare=\"table weights=/path/of/file\""));
  EXPECT_THAT(start_error(options()), AllOf(HasSubstr("No such file"), HasSubstr("check the path in the line table")));
  ASSERT_EQ(mkfifo(weights().c_str(), 0600), 0);
  EXPECT_THAT(start_error(options()), HasSubstr("is a pipe or a device: name a file"));
  std::filesystem::remove(weights());
  std::filesystem::create_directory(weights());
  EXPECT_THAT(start_error(options()), HasSubstr("is a directory: name a file"));
  std::filesystem::remove(weights());
  std::ofstream(weights()) << "1234567";
  EXPECT_THAT(start_error(options()), HasSubstr("has 7 bytes, no multiple of the 4 that a u32 takes"));
  std::filesystem::resize_file(weights(), (std::uintmax_t{1} << 30U) + 4);  // a hole: it takes no room
  EXPECT_THAT(start_error(options()), HasSubstr("has 1073741828 bytes, and a table has at most 1073741824"));
  EXPECT_THAT(start_error(options() + " kernel=identity declare=\"table weights=" + weights() + ";table speed=/x\""),
              HasSubstr("declare: the kernel has no table \"speed\": name one of weights"));
  EXPECT_THAT(start_error("kernel=identity declare=\"table a=/x\""),
              HasSubstr("declare=table a=/x is for a kernel of yours"));
  const KernelFile fixed(std::string("// gpumap: table weights f32 8\n") + shows_first);
  replace_table(fixed.beside("w"), random_table(7, 1));
  EXPECT_THAT(start_error("location=" + fixed.path() + " declare=\"table weights=" + fixed.beside("w") + "\""),
              HasSubstr("has 7 elements of 4 bytes (f32), and 8 are declared"));
}

}  // namespace
}  // namespace gpumap::gst::test
