// SPDX-License-Identifier: MIT
// The plugin's file, as a user's GStreamer sees it.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "gpumap/kernel.hpp"
#include "gst/elements.hpp"
#include "gst/runtime_library.hpp"
#include "pipeline.hpp"
#include "test_helpers.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

std::string output_of(const std::string& command, int& status) {
  std::string text;
  std::array<char, 4096> part{};
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), got);
  status = WEXITSTATUS(pclose(pipe));
  return text;
}

TEST(PluginFile, InspectListsTheElements) {
  const char* path = std::getenv("GPUMAP_PLUGIN");
  if (path == nullptr) GTEST_SKIP() << "GPUMAP_PLUGIN names no file";
  if (sanitized) GTEST_SKIP() << "a plugin with a sanitizer does not load into a gst-inspect-1.0 without";
  int status = -1;
  const std::string text = output_of("gst-inspect-1.0 " + std::string(path) + " 2>&1", status);
  EXPECT_EQ(status, 0) << text;
  for (const char* expected : {"gpumapsink", "gpumapsrc", "gpumapkernel", "gpumapupload", "gpumapdownload", "sigmfsrc",
                               "sigmfsink", "gpumaplatency", "8 features", "MIT", "gpumap"}) {
    EXPECT_THAT(text, HasSubstr(expected));
  }
  EXPECT_THAT(text, testing::ContainsRegex("License +MIT"));
  EXPECT_THAT(text, testing::ContainsRegex("Source module +gpumap"));
  EXPECT_THAT(text, testing::ContainsRegex("Binary package +gpumap"));
  EXPECT_THAT(text, testing::ContainsRegex("Version +" GPUMAP_VERSION));
  EXPECT_THAT(text, testing::Not(HasSubstr("Unknown package origin")));
}

// An error, as wherever there are some more.
TEST(PluginFile, WithoutDescriptorsAnErrorEndsNoProcess) {
  const char* path = std::getenv("GPUMAP_PLUGIN");
  if (path == nullptr) GTEST_SKIP() << "GPUMAP_PLUGIN names no file";
  if (sanitized) GTEST_SKIP() << "a plugin with a sanitizer does not load into a gst-launch-1.0 without";
  for (const int descriptors : {6, 7, 8, 9, 10}) {
    int status = -1;
    const std::string text =
        output_of("exec 2>&1; ulimit -n " + std::to_string(descriptors) + "; exec gst-launch-1.0 " +
                      "--gst-plugin-load=" + path + " fakesrc num-buffers=1 ! gpumapupload device=mine ! fakesink",
                  status);
    EXPECT_THAT(text, testing::Not(HasSubstr("terminate called"))) << descriptors;
  }
}

// What gst-inspect-1.0 shows of params.
TEST(PluginFile, ParamsNamesWhatEachKernelKnows) {
  const Element element(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("gpumapkernel", nullptr))));
  const std::string blurb =
      g_param_spec_get_blurb(g_object_class_find_property(G_OBJECT_GET_CLASS(element.get()), "params"));
  EXPECT_THAT(blurb, HasSubstr("convert: mean[3], scale[3], crop[4]; "));
  EXPECT_THAT(blurb, HasSubstr("spectrum: size, overlap, average, window, db"));
  for (const Builtin& builtin : builtins()) {
    for (const DeclaredParameter& parameter : declaration_of(builtin).params) {
      EXPECT_THAT(blurb, HasSubstr(parameter.name)) << builtin.name;
    }
  }
}

TEST(PluginFile, ElementsRegisterOneByOne) {
  EXPECT_TRUE(GST_ELEMENT_REGISTER(gpumapkernel, nullptr));
  EXPECT_TRUE(GST_ELEMENT_REGISTER(gpumapsink, nullptr));
  EXPECT_TRUE(GST_ELEMENT_REGISTER(gpumapsrc, nullptr));
  EXPECT_NE(gst_meta_get_info("GpumapResult"), nullptr);
}

TEST(PluginFile, ElementsDescribeTheirProperties) {
  for (const auto& [name, properties] :
       {std::pair<const char*, std::vector<const char*>>{
            "gpumapsink",
            {"channel", "device", "slots", "slot-size", "leaky", "busy-poll", "sync", "stamps", "latency-interval",
             "stats", "socket-path", "wait-for-connection", "num-clients", "stall-limit", "allowed-users",
             "socket-mode"}},
        {"gpumapsrc",
         {"channel", "timeout", "is-live", "busy-poll", "stats", "socket-path", "on-lost", "leaky", "allowed-users"}},
        {"gpumapkernel",
         {"kernel", "location", "function", "params", "declare", "backend", "device", "include-path", "defines",
          "reload", "check-bounds", "timeout", "priority", "sm-share"}}}) {
    const Element element(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make(name, nullptr))));
    for (const char* property : properties) {
      GParamSpec* spec = g_object_class_find_property(G_OBJECT_GET_CLASS(element.get()), property);
      ASSERT_NE(spec, nullptr) << name << " " << property;
      EXPECT_NE(std::string(g_param_spec_get_blurb(spec)), "") << name << " " << property;
      // Whatever is there can be read in the NULL state.
      GValue value = G_VALUE_INIT;
      g_object_get_property(G_OBJECT(element.get()), property, &value);
      EXPECT_NE(G_VALUE_TYPE(&value), G_TYPE_INVALID);
      if (G_VALUE_TYPE(&value) != G_TYPE_INVALID) g_value_unset(&value);
    }
  }
}

/// Values that are none of their defaults, each another one.
class OtherValue {
 public:
  OtherValue(GParamSpec* spec, guint number) {
    g_value_init(&value_, spec->value_type);
    g_param_value_set_default(spec, &value_);
    const guint step = number + 1;
    if (G_VALUE_HOLDS_STRING(&value_)) g_value_take_string(&value_, g_strdup_printf("text %u", number));
    if (G_VALUE_HOLDS_BOOLEAN(&value_)) g_value_set_boolean(&value_, g_value_get_boolean(&value_) == 0 ? TRUE : FALSE);
    if (G_VALUE_HOLDS_UINT(&value_)) g_value_set_uint(&value_, g_value_get_uint(&value_) ^ step);
    if (G_VALUE_HOLDS_UINT64(&value_)) g_value_set_uint64(&value_, (guint64{step} << 33U) + number);
    if (G_VALUE_HOLDS_INT(&value_)) g_value_set_int(&value_, static_cast<gint>(step));
    if (G_VALUE_HOLDS_DOUBLE(&value_)) g_value_set_double(&value_, 1.0 / (step + 1));
    if (G_VALUE_HOLDS_ENUM(&value_)) g_value_set_enum(&value_, 2);
    g_param_value_validate(spec, &value_);  // within its limits
  }
  ~OtherValue() { g_value_unset(&value_); }
  OtherValue(const OtherValue&) = delete;
  OtherValue& operator=(const OtherValue&) = delete;
  [[nodiscard]] const GValue* get() const { return &value_; }

 private:
  GValue value_ = G_VALUE_INIT;
};

std::string text_of_property(GstElement* element, GParamSpec* spec) {
  GValue value = G_VALUE_INIT;
  g_object_get_property(G_OBJECT(element), spec->name, &value);
  gchar* text = g_strdup_value_contents(&value);
  std::string made = text;
  g_free(text);
  g_value_unset(&value);
  return made;
}

// All are set before any is read: two that shared a member would show the same.
TEST(PluginFile, PropertiesKeepWhatTheyAreSetToAndNullIsTheDefault) {
  const std::pair<const char*, std::size_t> elements[] = {
      {"gpumapsink", 16}, {"gpumapsrc", 8}, {"gpumapkernel", 17}, {"gpumapupload", 8}, {"gpumapdownload", 0}};
  for (const auto& [name, least] : elements) {
    const Element element(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make(name, nullptr))));
    const Element fresh(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make(name, nullptr))));
    guint count = 0;
    GParamSpec** specs = g_object_class_list_properties(G_OBJECT_GET_CLASS(element.get()), &count);
    std::vector<GParamSpec*> own;
    for (guint i = 0; i < count; ++i) {
      if (specs[i]->owner_type != G_OBJECT_TYPE(element.get()) || (specs[i]->flags & G_PARAM_WRITABLE) == 0) continue;
      if (g_str_equal(specs[i]->name, "name") == 0) own.push_back(specs[i]);
    }
    g_free(specs);
    EXPECT_GE(own.size(), least) << name;
    for (guint i = 0; i < own.size(); ++i) {
      g_object_set_property(G_OBJECT(element.get()), own[i]->name, OtherValue(own[i], i).get());
    }
    for (guint i = 0; i < own.size(); ++i) {
      const OtherValue set(own[i], i);
      gchar* wanted = g_strdup_value_contents(set.get());
      EXPECT_EQ(text_of_property(element.get(), own[i]), wanted) << name << " " << own[i]->name;
      EXPECT_NE(text_of_property(fresh.get(), own[i]), wanted) << name << " " << own[i]->name;
      g_free(wanted);
      if (own[i]->value_type != G_TYPE_STRING) continue;
      g_object_set(element.get(), own[i]->name, nullptr, nullptr);
      EXPECT_EQ(text_of_property(element.get(), own[i]), text_of_property(fresh.get(), own[i])) << own[i]->name;
    }
  }
}

TEST(RuntimeLibraries, SayWhyTheyAreNotThere) {
  EXPECT_EQ(RuntimeLibrary("libgstnone.so.0").problem("gstreamer1.0-none", "9.0"),
            "libgstnone.so.0 was not found: install gstreamer1.0-none");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto open_without_descriptors = [] {
    const int next = dup(0);
    const rlimit limit{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
    if (next < 0 || close(next) != 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
    const std::string told = RuntimeLibrary("libgstnet-1.0.so.0").problem("packages", "1.22");
    _exit(told.find("raise ulimit -n") == told.npos ? 1 : 0);
  };
  EXPECT_EXIT(open_without_descriptors(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpumap::gst::test
