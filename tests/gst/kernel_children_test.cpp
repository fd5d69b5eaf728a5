// SPDX-License-Identifier: MIT
// The parameters of a kernel as children of its element.
#include <gmock/gmock.h>
#include <gst/controller/gstdirectcontrolbinding.h>
#include <gst/controller/gstinterpolationcontrolsource.h>

#include "own_kernel.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(OwnKernel, ParametersFollowAControlSource) {
  const ShaderFile file(gray("// gpumap: params gain=3\n", shows_gain));
  Own own("location=" + file.path() + " gain::value=0");
  GObject* child = gst_child_proxy_get_child_by_name(GST_CHILD_PROXY(own.pipeline().element("kernel")), "gain");
  GstControlSource* source = gst_interpolation_control_source_new();
  g_object_set(source, "mode", GST_INTERPOLATION_MODE_LINEAR, nullptr);
  gst_object_add_control_binding(GST_OBJECT_CAST(child),
                                 gst_direct_control_binding_new_absolute(GST_OBJECT_CAST(child), "value", source));
  auto* timed = GST_TIMED_VALUE_CONTROL_SOURCE(source);
  EXPECT_TRUE(gst_timed_value_control_source_set(timed, 0, 0));
  EXPECT_TRUE(gst_timed_value_control_source_set(timed, GST_SECOND, 100));
  for (const int percent : {0, 25, 50, 100}) {
    const Data data = own.bytes(10 * GST_MSECOND * static_cast<GstClockTime>(percent));
    ASSERT_FALSE(data.empty());
    EXPECT_EQ(std::to_integer<int>(data[0]), percent);
  }
  gst_object_unref(source);
  g_object_unref(child);
}

}  // namespace
}  // namespace gpumap::gst::test
