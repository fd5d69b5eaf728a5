// SPDX-License-Identifier: MIT
// Parameters that are integers and doubles get to a kernel of the user's without rounding, while it plays too.
#include <gmock/gmock.h>
#include <gst/controller/gstdirectcontrolbinding.h>
#include <gst/controller/gstinterpolationcontrolsource.h>

#include <utility>

#include "kernel_file.hpp"

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
  pts_ = 20 * GST_SECOND - GST_SECOND / 30;
  EXPECT_NEAR(static_cast<double>(told(frames).big), 20e6, 1);
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

}  // namespace
}  // namespace gpumap::gst::test
