// SPDX-License-Identifier: MIT
// Parameters that are integers and doubles get to a kernel of the user's without rounding, while it plays too.
#include <gmock/gmock.h>
#include <gst/controller/gstdirectcontrolbinding.h>
#include <gst/controller/gstinterpolationcontrolsource.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "kernel_file.hpp"
#include "own_kernel.hpp"
#include "pipeline.hpp"
#include "test_frames.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* declared =
    "// gpumap: params count:u32=5 in [1,4000000000], at:f64=0.1, big:i64=-3, gain=1.5, ids:i32=[7,-8]\n";
/// What the kernel reads, as words: three exact ones, two of the nearest floats, and one of a list.
constexpr const char* tells =
    "void main() {\n"
    "  if (gpumap_thread() != 0ul) return;\n"
    "  uint64_t to = frame.out_view.plane[0];\n"
    "  store_u64(to, uint64_t(param_i64(0)));\n"
    "  store_f64(to + 8ul, param_f64(1) * 2.0);\n"
    "  store_u64(to + 16ul, uint64_t(param_i64(2)));\n"
    "  store_f32(to + 24ul, frame.params[0]);\n"
    "  store_f32(to + 28ul, frame.params[3]);\n"
    "  store_u64(to + 32ul, uint64_t(param_i64(5) * 2l));\n"
    "}\n";

struct Told {
  std::uint64_t count;
  double at_twice;
  std::int64_t big;
  float nearest_count, gain;
  std::int64_t id_twice;
};

class KernelParams : public testing::Test {
 protected:
  explicit KernelParams(std::string options = "")
      : file_(std::string(declared) + tells), options_(std::move(options)) {}
  Told told(Frames& frames) { return value_at<Told>(frames.run(random_data(61, seed_++), pts_ += GST_SECOND / 30), 0); }
  [[nodiscard]] std::string location() const { return "location=" + file_.path(); }
  KernelFile file_;
  std::string options_;
  std::uint64_t seed_ = 1;
  GstClockTime pts_ = 0;
};

TEST_F(KernelParams, AreExact) {
  Frames frames(location() +
                " params=\"count=3999999999,at=123456789.015625,big=-9007199254740993,ids[1]=-2147483648\"");
  const Told first = told(frames);
  EXPECT_EQ(first.count, 3999999999U) << "no float is";
  EXPECT_EQ(first.at_twice, 2 * 123456789.015625);
  EXPECT_EQ(first.big, -9007199254740993) << "no double is";
  EXPECT_EQ(first.nearest_count, 4e9F);
  EXPECT_EQ(first.gain, 1.5F);
  EXPECT_EQ(first.id_twice, 2 * -2147483648LL);
}

TEST_F(KernelParams, ChangeWhileItPlays) {
  Frames frames(location());
  EXPECT_EQ(told(frames).count, 5U);
  EXPECT_EQ(told(frames).at_twice, 0.2);
  g_object_set(frames.kernel(), "params", "count=16777217,big=9223372036854775807", nullptr);
  EXPECT_EQ(told(frames).count, 16777217U);
  EXPECT_EQ(told(frames).big, std::numeric_limits<std::int64_t>::max());
  std::size_t warned = 0;
  for (const auto& [wrong, why] : {std::pair{"count=2.5", "'count' of kernel"},
                                   {"count=0", "0 is not a whole number from 1 to 4000000000 (u32)"},
                                   {"big=1e19", "is not a whole number from"},
                                   {"gain=1e39", "not a finite 32-bit float"}}) {
    g_object_set(frames.kernel(), "params", wrong, nullptr);
    EXPECT_EQ(told(frames).count, 16777217U) << wrong;
    EXPECT_EQ(frames.pipeline().wait(1ms), "timeout");
    ASSERT_EQ(frames.pipeline().warnings().size(), ++warned) << wrong;
    EXPECT_THAT(frames.pipeline().warnings().back(),
                testing::AllOf(HasSubstr(why), HasSubstr("keeping the previous parameters")));
  }
  g_object_set(frames.kernel(), "params", "at=1e300", nullptr);
  EXPECT_EQ(told(frames).at_twice, 2e300);
}

TEST_F(KernelParams, AreChildrenOfTheirType) {
  Frames frames(location() + " big::value=9007199254740993 at::value=1e-3");
  EXPECT_EQ(told(frames).big, 9007199254740993);
  EXPECT_EQ(told(frames).at_twice, 2e-3);
  auto* proxy = GST_CHILD_PROXY(frames.kernel());
  gst_child_proxy_set(proxy, "count::value", gint64{4000000000}, "ids[1]::value", gint64{-5}, nullptr);
  EXPECT_EQ(told(frames).count, 4000000000U);
  EXPECT_EQ(told(frames).id_twice, -10);
  g_object_set(proxy, "params", "ids=[1,2],big=4", nullptr);
  EXPECT_EQ(told(frames).id_twice, -10) << "a child's value holds over params";
  gint64 shown = 0;
  gst_child_proxy_get(proxy, "ids[0]::value", &shown, nullptr);
  EXPECT_EQ(shown, 1);
  gdouble gain = 0;
  gst_child_proxy_get(proxy, "gain::value", &gain, nullptr);
  EXPECT_EQ(gain, 1.5);
  gst_child_proxy_set(proxy, "count::value", gint64{-1}, nullptr);
  EXPECT_EQ(told(frames).count, 4000000000U) << "what its type does not allow does not count";
  EXPECT_EQ(frames.pipeline().wait(1ms), "timeout");
  ASSERT_EQ(frames.pipeline().warnings().size(), 1U);
  EXPECT_THAT(frames.pipeline().warnings().back(), HasSubstr("-1 is not a whole number"));
}

/// A handler of a program's that asks the element for its children, in another thread, so that a lock shows.
struct Asking {
  GstElement* kernel;
  int answered = 0, unanswered = 0;

  static void ask(GObject* /*object*/, GParamSpec* /*what*/, gpointer data) {
    auto& self = *static_cast<Asking*>(data);
    const auto told = std::make_shared<std::promise<void>>();
    std::thread([told, kernel = Ptr<GstElement>(GST_ELEMENT_CAST(gst_object_ref(self.kernel)))] {
      static_cast<void>(gst_child_proxy_get_children_count(GST_CHILD_PROXY(kernel.get())));
      told->set_value();
    }).detach();
    ++(told->get_future().wait_for(5s) == std::future_status::ready ? self.answered : self.unanswered);
  }
};

TEST_F(KernelParams, AnIntegerFollowsAControlSource) {
  Frames frames(location());
  EXPECT_EQ(told(frames).big, -3);
  GObject* child = gst_child_proxy_get_child_by_name(GST_CHILD_PROXY(frames.kernel()), "big");
  ASSERT_NE(child, nullptr);
  GstControlSource* source = gst_interpolation_control_source_new();
  g_object_set(source, "mode", GST_INTERPOLATION_MODE_LINEAR, nullptr);
  gst_timed_value_control_source_set(GST_TIMED_VALUE_CONTROL_SOURCE(source), 0, 0);
  gst_timed_value_control_source_set(GST_TIMED_VALUE_CONTROL_SOURCE(source), 100 * GST_SECOND, 100'000'000);
  gst_object_add_control_binding(GST_OBJECT(child),
                                 gst_direct_control_binding_new_absolute(GST_OBJECT(child), "value", source));
  Asking asking{.kernel = frames.kernel()};
  const gulong handler = g_signal_connect(child, "notify::value", G_CALLBACK(Asking::ask), &asking);
  pts_ = 20 * GST_SECOND - GST_SECOND / 30;
  EXPECT_NEAR(static_cast<double>(told(frames).big), 20e6, 1);
  EXPECT_EQ(asking.answered, 1);
  EXPECT_EQ(asking.unanswered, 0);
  g_signal_handler_disconnect(child, handler);
  pts_ = 67 * GST_SECOND - GST_SECOND / 30;
  EXPECT_NEAR(static_cast<double>(told(frames).big), 67e6, 1);
  gst_object_unref(source);
  g_object_unref(child);
}

TEST_F(KernelParams, AnotherVersionOfTheFileMayHaveOtherTypes) {
  Frames frames("reload=true params=count=7 " + location());
  EXPECT_EQ(told(frames).count, 7U);
  file_.write(std::string("// gpumap: params at:f64=2, count:i64=-1,big:i64=1,gain=1,x:i32=[1,2]\n") + tells);
  // Words change their places: `at`, a double, is the first one now.
  EXPECT_TRUE(eventually([&] { return told(frames).count == std::bit_cast<std::uint64_t>(2.0); }));
  g_object_set(frames.kernel(), "params", "count=-9223372036854775808", nullptr);
  const Data data = frames.run(random_data(64, 3), pts_ += GST_SECOND / 30);
  EXPECT_EQ(value_at<std::uint64_t>(data, 8), std::bit_cast<std::uint64_t>(-0.0)) << "-2^63, read as a double";
}

TEST(KernelParamsErrors, AreToldAtTheStart) {
  const KernelFile file(std::string(declared) + tells);
  EXPECT_THAT(start_error("params=count=0 location=" + file.path()),
              HasSubstr("0 is not a whole number from 1 to 4000000000 (u32): give one that is"));
  const KernelFile wrong(std::string("// gpumap: params n:u64=1\n") + tells);
  EXPECT_THAT(start_error("location=" + wrong.path()),
              testing::AllOf(HasSubstr("line 3:"), HasSubstr("a parameter cannot be a u64: choose f32, f64, i32")));
}

TEST(KernelParamsErrors, ABuiltInTakesDoublesAsBefore) {
  EXPECT_THAT(start_error("kernel=convert params=mean=[1,2,1e39]"),
              testing::AllOf(HasSubstr("not a finite 32-bit float"), testing::Not(HasSubstr("declare "))));
}

// The parameters of a kernel as children of its element.

using ::testing::ElementsAre;

constexpr const char* shows_gain = "uint(frame.params[0])";

TEST(OwnKernel, ParametersAreChildren) {
  const ShaderFile file(gray("// gpumap: params gain=3,taps=[1,2]\n", "uint(frame.params[0] * 10 + frame.params[2])"));
  Own own("location=" + file.path() + " params=taps=[4,5] gain::value=7");
  const auto first = [&own] {
    const Data data = own.bytes();
    return data.empty() ? -1 : std::to_integer<int>(data[0]);
  };
  EXPECT_EQ(first(), 75);
  auto* proxy = GST_CHILD_PROXY(own.pipeline().element("kernel"));
  gst_child_proxy_set(proxy, "taps[1]::value", 9.0, nullptr);
  EXPECT_EQ(first(), 79);
  g_object_set(proxy, "params", "gain=1", nullptr);
  EXPECT_EQ(first(), 79) << "a child's value holds over params";
  gst_child_proxy_set(proxy, "gain::value", 2.0, nullptr);
  EXPECT_EQ(first(), 29);
  EXPECT_EQ(gst_child_proxy_get_children_count(proxy), 3U);
}

// `location` and `declare` count from the next start on: until then the kernel that runs keeps what it was given.
TEST(OwnKernel, AnotherLocationWhilePlayingLeavesTheValuesOfTheKernelThatRuns) {
  const ShaderFile file(gray("// gpumap: params gain=3,taps=[1,2]\n", "uint(frame.params[0] * 10 + frame.params[2])"));
  const ShaderFile other(gray("// gpumap: params speed=6\n", "uint(frame.params[0] + 100)"));
  Own own("location=" + file.path() + " gain::value=7");
  const auto first = [&own] {
    const Data data = own.bytes();
    return data.empty() ? -1 : std::to_integer<int>(data[0]);
  };
  EXPECT_EQ(first(), 72);
  auto* proxy = GST_CHILD_PROXY(own.pipeline().element("kernel"));
  GObject* gain = gst_child_proxy_get_child_by_name(proxy, "gain");
  g_object_set(proxy, "location", other.path().c_str(), nullptr);
  EXPECT_EQ(first(), 72);
  g_object_set(proxy, "params", "taps=[4,5]", nullptr);
  EXPECT_EQ(first(), 75) << "the value of the child that has gone holds";
  // Those of the kernel that comes are there to be set, and nothing to the one that runs.
  gst_child_proxy_set(proxy, "speed::value", 9.0, nullptr);
  g_object_set(gain, "value", 8.0, nullptr);
  g_object_set(proxy, "params", "taps=[4,6]", nullptr);
  EXPECT_EQ(first(), 86);
  // With the file of before its children are back.
  g_object_set(proxy, "location", file.path().c_str(), nullptr);
  GObject* back = gst_child_proxy_get_child_by_name(proxy, "gain");
  EXPECT_EQ(back, gain);
  gst_child_proxy_set(proxy, "gain::value", 9.0, nullptr);
  EXPECT_EQ(first(), 96);
  g_object_unref(back);
  g_object_unref(gain);
  // From the next start on the other one counts.
  g_object_set(proxy, "location", other.path().c_str(), "params", "", nullptr);
  gst_child_proxy_set(proxy, "speed::value", 5.0, nullptr);
  EXPECT_EQ(first(), 92);
  EXPECT_EQ(own.pipeline().wait(1ms), "timeout");
  EXPECT_TRUE(own.pipeline().warnings().empty());
  own.pipeline().set_state(GST_STATE_NULL);
  EXPECT_EQ(first(), 105);
}

double value_of(GstElement* kernel, const char* name) {
  gdouble value = -1;
  gst_child_proxy_get(GST_CHILD_PROXY(kernel), name, &value, nullptr);
  return value;
}

TEST(OwnKernel, AsManyChildrenAsThereAreNumbersBesideParams) {
  std::string ones = "1", twos = "2";
  for (int i = 1; i < 40; ++i) {
    ones += ",1";
    twos += ",2";
  }
  const ShaderFile file(
      gray("// gpumap: params taps=[" + ones + "],gain=1\n",
           "uint(frame.params[0] + frame.params[24] * 5 + frame.params[25] * 25 + frame.params[40])"));
  const std::string at = "location=" + file.path() + " params=\"";
  for (const auto& [params, last] :
       {std::pair{"taps=[" + twos + "]", 2}, {"taps[25]=9,gain=1,taps=[" + twos + "]", 2}, {"taps[25]=4", 4}}) {
    Own own(at + params + "\"");
    for (int i = 0; i < 25; ++i) {
      gst_child_proxy_set(GST_CHILD_PROXY(own.pipeline().element("kernel")),
                          ("taps[" + std::to_string(i) + "]::value").c_str(), 3.0, nullptr);
    }
    const Data data = own.bytes();
    ASSERT_FALSE(data.empty()) << params << own.pipeline().wait(1s);
    EXPECT_EQ(std::to_integer<int>(data[0]), 3 + 3 * 5 + last * 25 + 1) << params;
    EXPECT_THAT(own.pipeline().warnings(), testing::IsEmpty());
  }
}

TEST(OwnKernel, ChildrenAreTheParametersThatThereAre) {
  const ShaderFile file(gray("// gpumap: params gain=3,taps=[1,2]\n", "0u"));
  const Element kernel(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("gpumapkernel", nullptr))));
  auto* proxy = GST_CHILD_PROXY(kernel.get());
  std::vector<std::string> added;
  g_signal_connect(proxy, "child-added",
                   G_CALLBACK(+[](GstChildProxy*, GObject*, const gchar* name, std::vector<std::string>* names) {
                     names->emplace_back(name);
                   }),
                   &added);
  g_object_set(proxy, "location", file.path().c_str(), nullptr);
  EXPECT_THAT(added, ElementsAre("gain", "taps[0]", "taps[1]"));
  for (const char* unknown : {"speed", "taps", "taps[2]", "taps[x]", "gain[", "", "["}) {
    EXPECT_EQ(gst_child_proxy_get_child_by_name(proxy, unknown), nullptr) << unknown;
  }
  EXPECT_EQ(gst_child_proxy_get_children_count(proxy), 3U);
  // They show what holds.
  EXPECT_EQ(value_of(kernel.get(), "gain::value"), 3);
  g_object_set(proxy, "params", "gain=2.5,taps[1]=7", nullptr);
  EXPECT_EQ(value_of(kernel.get(), "gain::value"), 2.5);
  EXPECT_EQ(value_of(kernel.get(), "taps[0]::value"), 1);
  EXPECT_EQ(value_of(kernel.get(), "taps[1]::value"), 7);
  g_object_set(proxy, "params", "taps=[8,9]", nullptr);
  EXPECT_EQ(value_of(kernel.get(), "taps[1]::value"), 9);
  // Those of the property `declare` are there instead.
  g_object_set(proxy, "declare", "params speed=4", nullptr);
  EXPECT_EQ(value_of(kernel.get(), "speed::value"), 4);
  EXPECT_EQ(gst_child_proxy_get_children_count(proxy), 1U);
  g_object_set(proxy, "declare", nullptr, "params", nullptr, nullptr);
  // And those of another kernel are others.
  g_object_set(proxy, "location", nullptr, "kernel", "spectrum", nullptr);
  EXPECT_EQ(gst_child_proxy_get_child_by_name(proxy, "gain"), nullptr);
  EXPECT_EQ(gst_child_proxy_get_children_count(proxy), 6U);
  g_object_set(proxy, "params", nullptr, nullptr);
  EXPECT_EQ(value_of(kernel.get(), "size::value"), 1024);
}

TEST(OwnKernel, AMistakeInParamsWhilePlayingIsAWarning) {
  const ShaderFile file(gray("// gpumap: params gain=3\n", shows_gain));
  Own own("location=" + file.path());
  ASSERT_FALSE(own.bytes().empty());
  std::size_t told = 0;
  for (const char* wrong : {"gian=4", "gain=", "gain=[1,2]"}) {
    g_object_set(own.pipeline().element("kernel"), "params", wrong, nullptr);
    const Data data = own.bytes();
    ASSERT_FALSE(data.empty()) << wrong;
    EXPECT_EQ(data[0], std::byte{3}) << wrong;
    EXPECT_EQ(own.pipeline().wait(1ms), "timeout");
    ASSERT_EQ(own.pipeline().warnings().size(), ++told) << wrong;
    EXPECT_THAT(own.pipeline().warnings().back(), HasSubstr("keeping the previous parameters"));
  }
  g_object_set(own.pipeline().element("kernel"), "params", "gain=5", nullptr);
  const Data data = own.bytes();
  ASSERT_FALSE(data.empty());
  EXPECT_EQ(data[0], std::byte{5});
}

/// Gives a kernel other parameters, and then a frame under other caps, which they are for.
class ParamsBeforeCaps : public testing::Test {
 protected:
  explicit ParamsBeforeCaps(const std::string& kernel)
      : pipeline_("appsrc name=in format=time ! gpumapupload ! gpumapkernel name=kernel " + kernel +
                  " ! appsink name=out sync=false") {}
  void SetUp() override { ASSERT_NE(pipeline_.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE); }
  Sample run(const std::string& params, const std::string& caps, const Data& data) {
    g_object_set(pipeline_.element("kernel"), "params", params.c_str(), nullptr);
    gst_app_src_set_caps(pipeline_.appsrc(), new_caps(caps).get());
    EXPECT_TRUE(push(pipeline_.appsrc(), new_buffer(data)));
    Sample sample = pull(pipeline_.appsink());
    EXPECT_NE(sample, nullptr) << pipeline_.wait(1ms);
    return sample;
  }
  [[nodiscard]] std::size_t warnings() {
    EXPECT_EQ(pipeline_.wait(1ms), "timeout");
    return pipeline_.warnings().size();
  }
  Pipeline pipeline_;
};

class CropBeforeCaps : public ParamsBeforeCaps {
 protected:
  CropBeforeCaps() : ParamsBeforeCaps("kernel=convert ! video/x-raw,format=RGBA") {}
  static std::string caps(std::size_t width, std::size_t height) {
    return "video/x-raw,format=RGBA,framerate=30/1,width=" + std::to_string(width) +
           ",height=" + std::to_string(height);
  }
  /// Opaque.
  static Data picture(std::size_t width, std::size_t height, std::uint64_t seed) {
    Data data = random_data(4 * width * height, seed);
    for (std::size_t i = 3; i < data.size(); i += 4) data[i] = std::byte{0xFF};
    return data;
  }
  /// Whether of `data`, a picture `width` pixels wide, the part at (x, y) is `sample`.
  static void expect_part(const Sample& sample, const Data& data, std::size_t width, std::size_t x, std::size_t y,
                          std::size_t part_width, std::size_t part_height) {
    ASSERT_NE(sample, nullptr);
    Data part;
    for (std::size_t row = y; row < y + part_height; ++row) {
      const auto begin = data.begin() + static_cast<std::ptrdiff_t>(4 * (row * width + x));
      part.insert(part.end(), begin, begin + static_cast<std::ptrdiff_t>(4 * part_width));
    }
    EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), part);
  }
};

TEST_F(CropBeforeCaps, IsOfThePicturesThatTheseBegin) {
  const Data small = picture(61, 47, 1), large = picture(321, 239, 2);
  expect_part(run("", caps(61, 47), small), small, 61, 0, 0, 61, 47);
  expect_part(run("crop=[70,200,23,31]", caps(321, 239), large), large, 321, 70, 200, 23, 31);
  // And back, where the one before would not go with them.
  expect_part(run("crop=[7,3,21,0]", caps(61, 47), small), small, 61, 7, 3, 21, 44);
  EXPECT_EQ(warnings(), 0U);
}

TEST_F(CropBeforeCaps, LeavesTheOneBeforeWhereItDoesNotGoWithThem) {
  const Data small = picture(61, 47, 1), large = picture(321, 239, 2);
  expect_part(run("crop=[5,6,7,8]", caps(61, 47), small), small, 61, 5, 6, 7, 8);
  expect_part(run("crop=[400,0,0,0]", caps(321, 239), large), large, 321, 5, 6, 7, 8);
  ASSERT_EQ(warnings(), 1U);
  EXPECT_THAT(pipeline_.warnings()[0], HasSubstr("outside the picture of 321"));
  expect_part(run("corp=[1,2,3,4]", caps(61, 47), small), small, 61, 5, 6, 7, 8);
  ASSERT_EQ(warnings(), 2U);
  expect_part(run("crop=[1,2,3,4]", caps(321, 239), large), large, 321, 1, 2, 3, 4);
  EXPECT_EQ(warnings(), 2U);
}

// The same caps come again where a pad is linked anew.
TEST_F(CropBeforeCaps, LeavesTheOneBeforeUnderTheSameCaps) {
  const Data small = picture(61, 47, 1);
  expect_part(run("crop=[5,6,7,8]", caps(61, 47), small), small, 61, 5, 6, 7, 8);
  const Pad pad(gst_element_get_static_pad(pipeline_.element("kernel"), "sink"));
  const Caps same(gst_pad_get_current_caps(pad.get()));
  for (std::size_t refused = 1; refused <= 2; ++refused) {
    const char* params = refused == 1 ? "crop=[100,0,0,0]" : "crop=[0,40,60,10]";
    g_object_set(pipeline_.element("kernel"), "params", params, nullptr);
    EXPECT_TRUE(gst_pad_send_event(pad.get(), gst_event_new_caps(same.get())));
    EXPECT_TRUE(push(pipeline_.appsrc(), new_buffer(small)));
    const Sample sample = pull(pipeline_.appsink());
    ASSERT_TRUE(sample) << pipeline_.wait(1ms);
    expect_part(sample, small, 61, 5, 6, 7, 8);
    ASSERT_EQ(warnings(), refused);
    EXPECT_THAT(pipeline_.warnings().back(), HasSubstr("outside the picture of "));
  }
}

class RateBeforeCaps : public ParamsBeforeCaps {
 protected:
  explicit RateBeforeCaps(const std::string& kernel) : ParamsBeforeCaps(kernel) {}
  int rate_of(const std::string& params, int in_rate) {
    const std::string caps = "audio/x-raw,format=F32LE,layout=interleaved,channels=2,channel-mask=(bitmask)3,rate=";
    // Halves of numbers below 2: no NaN among them.
    Data data = random_data(std::size_t{8} * 4001, static_cast<std::uint64_t>(in_rate));
    for (std::size_t i = 3; i < data.size(); i += 4) data[i] &= std::byte{0x3F};
    const Sample sample = run(params, caps + std::to_string(in_rate), data);
    int rate = 0;
    if (sample) gst_structure_get_int(gst_caps_get_structure(gst_sample_get_caps(sample.get()), 0), "rate", &rate);
    return rate;
  }
};

class DdcBeforeCaps : public RateBeforeCaps {
 protected:
  DdcBeforeCaps() : RateBeforeCaps("kernel=ddc") {}
};

TEST_F(DdcBeforeCaps, GivesAnotherRate) {
  EXPECT_EQ(rate_of("rate=10000", 100000), 10000);
  EXPECT_EQ(rate_of("rate=25000,frequency=90000", 200000), 25000);
  EXPECT_EQ(rate_of("rate=5000,frequency=-20000", 50000), 5000);
  EXPECT_EQ(warnings(), 0U);
  EXPECT_EQ(rate_of("rate=8000,frequency=90000", 64000), 5000);
  EXPECT_EQ(warnings(), 1U);
}

class FmBeforeCaps : public RateBeforeCaps {
 protected:
  FmBeforeCaps() : RateBeforeCaps("kernel=fm params=rate=48000") {}
};

TEST_F(FmBeforeCaps, GivesAnotherRate) {
  EXPECT_EQ(rate_of("rate=48000", 480000), 48000);
  EXPECT_EQ(rate_of("rate=8000,highest=3000,deviation=2000", 64000), 8000);
  EXPECT_EQ(rate_of("rate=32000,highest=12000", 320000), 32000);
  EXPECT_EQ(warnings(), 0U);
}

/// Binds the parameter `gain` to a control source: from 0 at the start to 100 after a second.
void raise_gain(Own& own) {
  GObject* child = gst_child_proxy_get_child_by_name(GST_CHILD_PROXY(own.pipeline().element("kernel")), "gain");
  GstControlSource* source = gst_interpolation_control_source_new();
  g_object_set(source, "mode", GST_INTERPOLATION_MODE_LINEAR, nullptr);
  gst_object_add_control_binding(GST_OBJECT_CAST(child),
                                 gst_direct_control_binding_new_absolute(GST_OBJECT_CAST(child), "value", source));
  auto* timed = GST_TIMED_VALUE_CONTROL_SOURCE(source);
  EXPECT_TRUE(gst_timed_value_control_source_set(timed, 0, 0));
  EXPECT_TRUE(gst_timed_value_control_source_set(timed, GST_SECOND, 100));
  gst_object_unref(source);
  g_object_unref(child);
}

TEST(OwnKernel, ParametersFollowAControlSource) {
  const ShaderFile file(gray("// gpumap: params gain=3\n", shows_gain));
  Own own("location=" + file.path() + " gain::value=0");
  raise_gain(own);
  for (const int percent : {0, 25, 50, 100}) {
    const Data data = own.bytes(10 * GST_MSECOND * static_cast<GstClockTime>(percent));
    ASSERT_FALSE(data.empty());
    EXPECT_EQ(std::to_integer<int>(data[0]), percent);
  }
}

// With each frame it says something else that is wrong: who does not read the bus is not to drown.
TEST(OwnKernel, WhatAControlSourceSaysWrongIsToldOnceASecond) {
  const ShaderFile file(gray("// gpumap: params gain=3 in [0,10]\n", shows_gain));
  Own own("location=" + file.path() + " gain::value=1");
  raise_gain(own);
  const auto start = std::chrono::steady_clock::now();
  for (GstClockTime i = 0; i <= 100; ++i) ASSERT_FALSE(own.bytes(10 * GST_MSECOND * i).empty());
  const auto seconds = (std::chrono::steady_clock::now() - start) / 1s;
  EXPECT_EQ(own.pipeline().wait(1ms), "timeout");
  EXPECT_GE(own.pipeline().warnings().size(), 1U);
  EXPECT_LE(own.pipeline().warnings().size(), static_cast<std::size_t>(seconds) + 1);
  // The last word is told, too, once it is its turn.
  std::this_thread::sleep_for(1100ms);
  ASSERT_FALSE(own.bytes(GST_SECOND).empty());
  EXPECT_EQ(own.pipeline().wait(1ms), "timeout");
  EXPECT_THAT(own.pipeline().warnings().back(), HasSubstr("100 is not from 0 to 10"));
}

// What gpumapkernel reports while it runs.

struct Stats {
  std::string name, kernel, backend;
  guint64 frames = 0, followed = 0;
};

Stats stats_of(GstElement* kernel) {
  GstStructure* raw = nullptr;
  g_object_get(kernel, "stats", &raw, nullptr);
  const Ptr<GstStructure> stats(raw);
  const auto text = [&](const char* field) {
    const gchar* value = gst_structure_get_string(raw, field);
    return std::string(value != nullptr ? value : "");
  };
  Stats made{.name = gst_structure_get_name(raw), .kernel = text("kernel"), .backend = text("backend")};
  gst_structure_get_uint64(raw, "frames", &made.frames);
  GstStructure* latency = nullptr;
  if (gst_structure_get(raw, "latency", GST_TYPE_STRUCTURE, &latency, nullptr)) {
    gst_structure_get_uint64(latency, "frames", &made.followed);
    gst_structure_free(latency);
  }
  return made;
}

TEST(KernelStats, CountSinceTheStart) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=9 ! video/x-raw,format=NV12,width=65,height=33 ! gpumapsink "
                     "stamps=true $CHANNEL   gpumapsrc $CHANNEL ! gpumapkernel kernel=checksum name=first ! "
                     "gpumapkernel name=second ! fakesink enable-last-sample=false"));
  GstElement* const first = pipeline.element("first");
  EXPECT_EQ(stats_of(first).name, "gpumapkernel-stats") << "before the start";
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_EQ(pipeline.run(), "eos");
    for (const auto& [name, kernel] : {std::pair{"first", "checksum"}, {"second", "identity"}}) {
      // A frame counts once the times of its kernels are known, for which busy cores that play a GPU take a while.
      GstElement* const element = pipeline.element(name);
      EXPECT_TRUE(eventually([&] { return stats_of(element).followed == 9; })) << name;
      const Stats stats = stats_of(element);
      EXPECT_EQ(stats.kernel, kernel);
      EXPECT_THAT(stats.backend, testing::AnyOf("vulkan", "cuda"));
      EXPECT_EQ(stats.frames, 9U) << name;
      EXPECT_EQ(stats.followed, 9U) << name;
    }
    pipeline.stop();
    EXPECT_EQ(stats_of(first).frames, 0U);
  }
}

// A path may be any bytes, a field of a structure only text.
TEST(KernelStats, NameAKernelWhosePathIsNoText) {
  const KernelFile file(gray("", "1u"));
  const std::string path = file.beside("odd\xff.comp");
  std::filesystem::copy_file(file.path(), path);
  Own own("");
  g_object_set(own.pipeline().element("kernel"), "location", path.c_str(), nullptr);
  ASSERT_TRUE(own.frame());
  EXPECT_THAT(stats_of(own.pipeline().element("kernel")).kernel, testing::HasSubstr("odd\\xff"));
}

TEST(KernelStats, HaveNoLatencyOfFramesThatNobodyFollows) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=32 ! gpumapsink $CHANNEL   "
                     "gpumapsrc $CHANNEL ! gpumapkernel name=kernel ! fakesink enable-last-sample=false"));
  ASSERT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(stats_of(pipeline.element("kernel")).frames, 3U);
  EXPECT_EQ(stats_of(pipeline.element("kernel")).followed, 0U);
}

// What GST_DEBUG=gpumapkernel:6 tells: how caps were agreed on, the way of a frame, and why one was left out.

using ::testing::AllOf;
using ::testing::Contains;

TEST(KernelLog, FollowsANegotiationAFrameAndADrop) {
  const DebugLog log("gpumapkernel", GST_LEVEL_LOG);
  Pipeline pipeline(
      "appsrc name=in format=time caps=video/x-raw(memory:GPUMap),format=NV12,width=34,height=8,framerate=30/1 ! "
      "gpumapkernel kernel=convert ! fakesink sync=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), on_gpu(random_data(std::size_t{36} * 12, 1)));
  push(pipeline.appsrc(), on_gpu(random_data(7, 1)));
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  pipeline.stop();
  const auto lines = log.lines();
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("for video/x-raw(memory:GPUMap)"), HasSubstr("downstream takes"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("chose video/x-raw"), HasSubstr("format=(string)RGBA"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("convert runs on video/x-raw(memory:GPUMap)"), HasSubstr("gives"))));
  EXPECT_THAT(lines, Contains(HasSubstr("downstream gets frames without padding")));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr(" gave buffer: "), HasSubstr("size 1088"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("dropped buffer: "), HasSubstr("a frame of 7 bytes"))));
}

}  // namespace
}  // namespace gpumap::gst::test
