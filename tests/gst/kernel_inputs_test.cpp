// SPDX-License-Identifier: MIT
// Files of numbers for a kernel, which change while it runs.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <deque>
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

// A kernel sees the frames before the one at hand.

using ::testing::HasSubstr;

/// How many there are and, of each and of the frame itself, its bytes and a sum over them in which each place counts.
constexpr const char* tells =
    "uint64_t sum_of(gpumap_view view) {\n"
    "  uint64_t sum = 0ul;\n"
    "  for (uint i = 0u; i < uint(view.bytes); ++i) sum += uint64_t(load_u8(view.plane[0] + i)) * uint64_t(i + 1u);\n"
    "  return sum;\n"
    "}\n"
    "void main() {\n"
    "  uint64_t i = gpumap_thread();\n"
    "  uint64_t to = frame.out_view.plane[0];\n"
    "  if (i == 0ul) {\n"
    "    store_u64(to, uint64_t(frame.past_count));\n"
    "    store_u64(to + 8ul, frame.in_view.bytes);\n"
    "    store_u64(to + 16ul, sum_of(frame.in_view));\n"
    "  } else if (i <= uint64_t(frame.past_count)) {\n"
    "    gpumap_view view = frame.past[uint(i) - 1u];\n"
    "    store_u64(to + 8ul + 16ul * i, view.bytes);\n"
    "    store_u64(to + 16ul + 16ul * i, sum_of(view));\n"
    "  }\n"
    "}\n";

std::uint64_t sum_of(const Data& data) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < data.size(); ++i) sum += std::to_integer<std::uint64_t>(data[i]) * (i + 1);
  return sum;
}

class KernelHistory : public testing::Test {
 protected:
  /// Frames of at least what the kernel tells take.
  Data random_frame() { return random_data(160 + random_() % 5000, random_()); }

  /// Run on one more frame, which sees those of `past_`.
  void expect_past(Frames& frames, const std::string& what, bool discont = false) {
    const Data frame = random_frame();
    const Data told = frames.run(frame, pts_ += GST_SECOND / 50, discont);
    ASSERT_FALSE(told.empty()) << what;
    ASSERT_EQ(value_at<std::uint64_t>(told, 0), past_.size()) << what;
    past_.push_front(frame);
    for (std::size_t i = 0; i < past_.size(); ++i) {
      ASSERT_EQ(value_at<std::uint64_t>(told, 8 + 16 * i), past_[i].size()) << what << ": " << i;
      ASSERT_EQ(value_at<std::uint64_t>(told, 16 + 16 * i), sum_of(past_[i])) << what << ": " << i;
    }
    if (past_.size() > max_past_) past_.resize(max_past_);
  }

  std::size_t max_past_ = 3;
  std::deque<Data> past_;
  std::mt19937_64 random_{17};
  GstClockTime pts_ = 0;
};

TEST_F(KernelHistory, OfBlocksOfAnySize) {
  const KernelFile file(std::string("// gpumap: history 3\n") + tells);
  Frames frames("location=" + file.path(), "application/octet-stream", "slots=2");
  for (int i = 0; i < 40; ++i) expect_past(frames, std::to_string(i));
}

TEST_F(KernelHistory, ThePropertyComesBeforeTheFile) {
  const KernelFile file(std::string("// gpumap: history 3\n") + tells);
  Frames frames("declare=\"history 8\" location=" + file.path());
  max_past_ = 8;
  for (int i = 0; i < 20; ++i) expect_past(frames, std::to_string(i));
}

TEST_F(KernelHistory, BeginsAnew) {
  const KernelFile file(std::string("// gpumap: history 3\n") + tells);
  Frames frames("location=" + file.path());
  const auto begin = [&](const char* after, bool discont = false) {
    past_.clear();
    for (int i = 0; i < 5; ++i) expect_past(frames, std::string("after ") + after, discont && i == 0);
  };
  begin("the start");
  begin("a frame that is marked DISCONT", true);
  ASSERT_TRUE(gst_element_send_event(frames.pipeline().element("in"), gst_event_new_flush_start()));
  ASSERT_TRUE(gst_element_send_event(frames.pipeline().element("in"), gst_event_new_flush_stop(TRUE)));
  begin("a flush");
  const Pad pad(gst_element_get_static_pad(frames.pipeline().element("sink"), "sink"));
  ASSERT_TRUE(gst_pad_send_event(pad.get(), gst_event_new_gap(pts_ + GST_SECOND / 50, GST_SECOND)));
  begin("a gap");
  gst_app_src_set_caps(frames.pipeline().appsrc(),
                       new_caps("audio/x-raw,format=U8,rate=8000,channels=1,layout=interleaved").get());
  // Samples are due where the last ones ended: these follow on nothing.
  past_.clear();
  expect_past(frames, "other caps");
}

TEST_F(KernelHistory, AnotherVersionOfTheKernelLooksBackOnItsOwn) {
  const KernelFile file(std::string("// gpumap: history 3\n") + tells);
  Frames frames("reload=true location=" + file.path());
  for (int i = 0; i < 5; ++i) expect_past(frames, std::to_string(i));
  file.write(std::string("// another\n") + tells);
  EXPECT_TRUE(eventually([&] {
    const Data told = frames.run(random_frame(), pts_ += GST_SECOND / 50);
    return value_at<std::uint64_t>(told, 0) == 0;
  })) << "and may have none";
  file.write(std::string("// gpumap: history 1\n") + tells);
  EXPECT_TRUE(eventually([&] {
    const Data told = frames.run(random_frame(), pts_ += GST_SECOND / 50);
    return value_at<std::uint64_t>(told, 0) == 1;
  }));
}

// Pictures keep their planes and strides; two of them are all that the ring has, and nobody waits.
TEST_F(KernelHistory, OfPictures) {
  const KernelFile file(
      "// gpumap: history 2\n"
      "// gpumap: output application/octet-stream\n"
      "// gpumap: bytes 3*8\n"
      "uint64_t sum_of(gpumap_view view) {\n"
      "  uint64_t sum = 0ul;\n"
      "  for (uint y = 0u; y < view.height + (view.height + 1u) / 2u; ++y) {\n"
      "    bool luma = y < view.height;\n"
      "    uint64_t row = luma ? view.plane[0] + uint64_t(y) * view.stride[0]\n"
      "                        : view.plane[1] + uint64_t(y - view.height) * view.stride[1];\n"
      "    uint width = luma ? view.width : (view.width + 1u) / 2u * 2u;\n"
      "    for (uint x = 0u; x < width; ++x) sum += uint64_t(load_u8(row + x)) * uint64_t(y * 64u + x + 1u);\n"
      "  }\n"
      "  return sum;\n"
      "}\n"
      "void main() {\n"
      "  uint i = uint(gpumap_thread());\n"
      "  if (i > 2u) return;\n"
      "  uint64_t told = 0ul;\n"
      "  if (i == 0u) told = sum_of(frame.in_view);\n"
      "  if (i > 0u && i <= frame.past_count) told = sum_of(frame.past[i - 1u]);\n"
      "  store_u64(frame.out_view.plane[0] + 8u * i, told);\n"
      "}\n");
  constexpr int width = 33, height = 17, stride = 36;
  const auto expected = [&](const Data& data) {
    std::uint64_t sum = 0;
    for (int y = 0; y < height + (height + 1) / 2; ++y) {
      // GStreamer's default layout: planes of an even number of rows.
      const std::size_t row = y < height ? static_cast<std::size_t>(y) * stride
                                         : static_cast<std::size_t>(height + 1 + (y - height)) * stride;
      for (int x = 0; x < (y < height ? width : width + 1); ++x) {
        sum += std::to_integer<std::uint64_t>(data[row + static_cast<std::size_t>(x)]) *
               static_cast<std::uint64_t>(y * 64 + x + 1);
      }
    }
    return sum;
  };
  Frames frames("location=" + file.path(), "video/x-raw,format=NV12,width=33,height=17,framerate=50/1", "slots=2");
  const std::size_t bytes = frame_bytes(video_caps("NV12", width, height).get());
  ASSERT_EQ(bytes, std::size_t{stride} * (18 + 9));
  std::deque<std::uint64_t> sums{0, 0, 0};
  for (int i = 0; i < 12; ++i) {
    const Data picture = random_data(bytes, 100U + static_cast<std::uint64_t>(i));
    const Data told = frames.run(picture, pts_ += GST_SECOND / 50);
    sums.push_front(expected(picture));
    for (std::size_t k = 0; k < 3; ++k) ASSERT_EQ(value_at<std::uint64_t>(told, 8 * k), sums[k]) << i << ": " << k;
  }
}

// A kernel that changes nothing looks back too, many frames in flight.
TEST_F(KernelHistory, OfFramesThatGoOnAsTheyCame) {
  const KernelFile file(
      "// gpumap: history 1\n"
      "// gpumap: output unchanged\n"
      "// gpumap: results now=u64,before=u64,count=u64\n"
      "void main() {\n"
      "  if (gpumap_thread() != 0ul) return;\n"
      "  store_u64(frame.result, uint64_t(load_u32(frame.in_view.plane[0])));\n"
      "  if (frame.past_count == 1u) store_u64(frame.result + 8ul, uint64_t(load_u32(frame.past[0].plane[0])));\n"
      "  store_u64(frame.result + 16ul, uint64_t(frame.past_count));\n"
      "}\n");
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time caps=application/octet-stream ! gpumapsink slots=2 "
                     "sync=false $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel location=" +
                     file.path() + " ! fakesink sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<std::uint32_t> firsts;
  for (int i = 0; i < 60; ++i) {
    const Data data = random_data(4 + random_() % 3000, random_());
    firsts.push_back(value_at<std::uint32_t>(data, 0));
    push(pipeline.appsrc(), new_buffer(data, static_cast<GstClockTime>(i) * GST_MSECOND));
  }
  gst_app_src_end_of_stream(pipeline.appsrc());
  GstBus* bus = gst_element_get_bus(pipeline.get());
  std::size_t frame = 0;
  while (frame < firsts.size()) {
    GstMessage* message = gst_bus_timed_pop_filtered(
        bus, 20 * GST_SECOND, static_cast<GstMessageType>(GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR | GST_MESSAGE_EOS));
    ASSERT_NE(message, nullptr);
    const GstStructure* result = gst_message_get_structure(message);
    ASSERT_TRUE(gst_structure_has_name(result, "gpumap-result")) << gst_structure_get_name(result);
    guint64 now = 0, before = 0, count = 0;
    gst_structure_get(result, "now", G_TYPE_UINT64, &now, "before", G_TYPE_UINT64, &before, "count", G_TYPE_UINT64,
                      &count, nullptr);
    EXPECT_EQ(now, firsts[frame]);
    EXPECT_EQ(count, frame == 0 ? 0U : 1U);
    EXPECT_EQ(before, frame == 0 ? 0U : firsts[frame - 1]) << frame;
    ++frame;
    gst_message_unref(message);
  }
  gst_object_unref(bus);
}

// Where a field is a picture of its own, so is each of those before; and all functions see the same past.
TEST_F(KernelHistory, OfFieldsAndForEachFunction) {
  const KernelFile file(
      "// gpumap: history 1\n"
      "// gpumap: launch per-field\n"
      "// gpumap: output unchanged\n"
      "// gpumap: functions one,other\n"
      "void tell() {\n"
      "  if (gpumap_thread() != 0ul) return;\n"
      "  uint64_t launches = load_u64(frame.result);\n"
      "  store_u64(frame.result, launches + 1ul);\n"
      "  uint64_t sum = 0ul;\n"
      "  for (uint i = 0u; i < frame.past_count; ++i) {\n"
      "    for (uint y = 0u; y < frame.past[i].height; ++y) {\n"
      "      uint64_t row = frame.past[i].plane[0] + uint64_t(y) * frame.past[i].stride[0];\n"
      "      for (uint x = 0u; x < frame.past[i].width; ++x) sum += uint64_t(load_u8(row + x) * (x + 1u)) * (y + 1u);\n"
      "    }\n"
      "  }\n"
      "  store_u64(frame.result + 8ul + 8ul * launches, sum);\n"
      "}\n"
      "void one() { tell(); }\n"
      "void other() { tell(); }\n");
  constexpr std::size_t width = 34, height = 20, stride = 36;
  const auto sum_of_field = [](const Data& data, std::size_t field) {
    std::uint64_t sum = 0;
    for (std::size_t y = field; y < height; y += 2) {
      for (std::size_t x = 0; x < width; ++x) {
        sum += std::to_integer<std::uint64_t>(data[y * stride + x]) * (x + 1) * (y / 2 + 1);
      }
    }
    return sum;
  };
  Frames frames("location=" + file.path(),
                "video/x-raw,format=NV12,width=34,height=20,framerate=50/1,interlace-mode=interleaved");
  GstBus* bus = gst_element_get_bus(frames.pipeline().get());
  Data before;
  for (std::uint64_t i = 0; i < 5; ++i) {
    const Data picture = random_data(stride * 30, 50 + i);
    ASSERT_FALSE(frames.run(picture, pts_ += GST_SECOND / 50).empty());
    GstMessage* message = gst_bus_timed_pop_filtered(bus, 20 * GST_SECOND, GST_MESSAGE_ELEMENT);
    ASSERT_NE(message, nullptr);
    const GValue* words = gst_structure_get_value(gst_message_get_structure(message), "words");
    ASSERT_NE(words, nullptr);
    const auto word = [&](guint at) { return g_value_get_uint64(gst_value_array_get_value(words, at)); };
    EXPECT_EQ(word(0), 4U);
    for (guint launch = 0; launch < 4; ++launch) {
      EXPECT_EQ(word(1 + launch), before.empty() ? 0 : sum_of_field(before, launch / 2)) << i << ": " << launch;
    }
    before = picture;
    gst_message_unref(message);
  }
  gst_object_unref(bus);
}

TEST(KernelHistoryErrors, AreToldAtTheStart) {
  const KernelFile file(std::string("// gpumap: history 9\n") + tells);
  EXPECT_THAT(start_error("location=" + file.path()),
              HasSubstr("a history of 9 frames: a kernel sees at most 8; keep what it needs of more in its state"));
  EXPECT_THAT(start_error("kernel=identity declare=\"history 2\""),
              HasSubstr("declare=history 2 is for a kernel of yours"));
}

}  // namespace
}  // namespace gpumap::gst::test
