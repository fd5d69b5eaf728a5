// SPDX-License-Identifier: MIT
// memory:VulkanImage and memory:VulkanBuffer to and from GStreamer's own Vulkan elements: the same pixels come out as
// went in, with one copy on the GPU, or through the host where the two have no memory in common.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <vulkan/vulkan.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include "gst/vulkan/gst_vulkan_context.hpp"
#include "pipeline.hpp"
#include "temporary_folder.hpp"
#include "test_frames.hpp"
#include "test_helpers.hpp"

namespace {

// lavapipe's submit thread still writes to a timeline semaphore after it has signalled the fence of the same submission
// (Mesa 22.3 to 25.0: vk_queue_submit_final() of src/vulkan/runtime installs the time point once the driver's submit
// has returned). GStreamer's Vulkan elements wait for the fence and free the image with its semaphore: about one run in
// twenty of a busy machine crashed or hung, with vulkanupload ! vulkandownload alone, too. A program that links this
// file takes libgstvulkan's call: what waits until the device is idle waits for that thread.

template <class Function>
Function vulkan(const char* name) {
  static void* const loader = dlopen("libvulkan.so.1", RTLD_NOW);
  return reinterpret_cast<Function>(dlsym(loader, name));
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void vkDestroySemaphore(VkDevice device, VkSemaphore semaphore,
                                                                  const VkAllocationCallbacks* pAllocator) {
  static const auto wait_idle = vulkan<PFN_vkDeviceWaitIdle>("vkDeviceWaitIdle");
  static const auto destroy = vulkan<PFN_vkDestroySemaphore>("vkDestroySemaphore");
  wait_idle(device);
  destroy(device, semaphore, pAllocator);
}

namespace {

/// What waits for fences of GStreamer's device finds none signalled while this is true; and how often that was so.
std::atomic<bool> gpu_is_stuck{false};
std::atomic<int> waits_of_stuck{0};

PFN_vkVoidFunction function_of(VkDevice device, const char* name) {
  static const auto get = vulkan<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr");
  return get(device, name);
}

VKAPI_ATTR VkResult VKAPI_CALL wait_for_fences(VkDevice device, std::uint32_t count, const VkFence* fences,
                                               VkBool32 all, std::uint64_t timeout) {
  if (!gpu_is_stuck) {
    return reinterpret_cast<PFN_vkWaitForFences>(function_of(device, "vkWaitForFences"))(device, count, fences, all,
                                                                                         timeout);
  }
  ++waits_of_stuck;
  std::this_thread::sleep_for(std::chrono::nanoseconds(timeout));
  return VK_TIMEOUT;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] PFN_vkVoidFunction vkGetDeviceProcAddr(VkDevice device, const char* pName) {
  if (std::string_view(pName) != "vkWaitForFences") return function_of(device, pName);
  return reinterpret_cast<PFN_vkVoidFunction>(wait_for_fences);
}

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* ours = "gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel name=kernel ";
constexpr const char* out = " ! appsink name=out sync=false";

class VulkanMemory : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"vulkanupload", "vulkandownload", "vulkancolorconvert"}) {
      const Element element(gst_element_factory_make(name, nullptr));
      if (!element) GTEST_SKIP() << name << " is missing: gstreamer1.0-plugins-bad has it";
    }
  }
};

struct Picture {
  const char* format;
  int width, height;
};

std::string raw_caps(const Picture& picture) {
  return std::string("video/x-raw,framerate=30/1,format=") + picture.format +
         ",width=" + std::to_string(picture.width) + ",height=" + std::to_string(picture.height);
}

/// Frames of random bytes through `elements`: what comes out is what went in.
void expect_unchanged(const std::string& elements, const Picture& picture, const char* copies, int frames = 3) {
  SCOPED_TRACE(elements + " of " + raw_caps(picture));
  Pipeline pipeline(on_new_channel("appsrc name=in format=time ! " + elements + out));
  const Caps caps = new_caps(raw_caps(picture));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::uint64_t before = 0;
  for (int i = 0; i < frames; ++i) {
    const Data data = random_data(frame_bytes(caps.get()), static_cast<std::uint64_t>(i) + 100);
    push(pipeline.appsrc(), new_buffer(data, static_cast<GstClockTime>(i) * GST_SECOND / 30));
    const Sample sample = pull(pipeline.appsink(), 20s);
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    const Sample expected(gst_sample_new(new_buffer(data).get(), caps.get(), nullptr, nullptr));
    ASSERT_EQ(pixels_of(sample.get()), pixels_of(expected.get())) << "frame " << i;
    EXPECT_EQ(GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())), static_cast<GstClockTime>(i) * GST_SECOND / 30);
    const std::uint64_t now = stat(pipeline.element("kernel"), copies);
    EXPECT_GT(now, before);
    before = now;
  }
}

const std::vector<Picture> pictures{
    {"RGBA", 1917, 1081}, {"BGRA", 63, 49}, {"RGBx", 64, 48}, {"BGRx", 1, 1}, {"NV12", 64, 49}};

TEST_F(VulkanMemory, DownloadGetsWhatWentIn) {
  for (const Picture& picture : pictures) {
    expect_unchanged(std::string(ours) + "kernel=identity ! video/x-raw(memory:VulkanImage) ! vulkandownload", picture,
                     "gpu-copies");
  }
}

// Whatever memory the input is in that goes on.
TEST_F(VulkanMemory, EachTransportPasses) {
  for (const char* transport : transports()) {
    expect_unchanged(
        on_transport(std::string(ours) + "kernel=identity ! video/x-raw(memory:VulkanImage) ! vulkandownload",
                     transport),
        pictures[1], "gpu-copies");
  }
}

// Without a capsfilter, too: what vulkandownload names is taken.
TEST_F(VulkanMemory, IsChosenByItself) {
  expect_unchanged(std::string(ours) + "kernel=identity ! vulkandownload", pictures[0], "gpu-copies");
  expect_unchanged(std::string(ours) + "kernel=identity ! queue ! vulkandownload", pictures[1], "gpu-copies");
}

// vulkanupload 1.22 wants a piece of memory for each plane, which an application's frames are not: see BuffersPass.
TEST_F(VulkanMemory, KernelGetsWhatWasUploaded) {
  for (const Picture& picture : pictures) {
    if (std::string_view(picture.format) == "NV12") continue;
    expect_unchanged("vulkanupload ! gpumapkernel name=kernel kernel=identity ! video/x-raw", picture, "gpu-copies");
  }
}

// Their own download and upload leave padding out: rows of 61 bytes are to be brought by ours alone.
TEST_F(VulkanMemory, RowsWithPaddingAreCopied) {
  for (const Picture& picture : {Picture{"NV12", 61, 49}, {"NV12", 3, 5}}) {
    expect_unchanged(std::string(ours) +
                         "kernel=identity ! video/x-raw(memory:VulkanImage) ! gpumapkernel kernel=identity ! "
                         "video/x-raw",
                     picture, "gpu-copies");
  }
}

TEST_F(VulkanMemory, BuffersPass) {
  for (const Picture& picture : {Picture{"RGBA", 1916, 1081}, {"NV12", 60, 49}, {"BGRx", 4, 4}}) {
    expect_unchanged(std::string(ours) +
                         "kernel=identity ! video/x-raw(memory:VulkanBuffer) ! gpumapkernel kernel=identity ! "
                         "video/x-raw",
                     picture, "gpu-copies");
    expect_unchanged(
        std::string(ours) + "kernel=identity ! video/x-raw(memory:VulkanBuffer) ! vulkanupload ! vulkandownload",
        picture, "gpu-copies");
  }
}

Data converted(const std::string& way, const Picture& picture) {
  Pipeline pipeline(on_new_channel("appsrc name=in format=time ! " + way + out));
  const Caps caps = new_caps(raw_caps(picture));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), new_buffer(random_data(frame_bytes(caps.get()), 7)));
  const Sample sample = pull(pipeline.appsink(), 20s);
  EXPECT_NE(sample, nullptr) << way << ": " << pipeline.wait(1ms);
  return sample ? pixels_of(sample.get()) : Data();
}

// A kernel that computes, before and behind elements that compute on images.
TEST_F(VulkanMemory, KernelsAndTheirElementsAgree) {
  const Picture nv12{"NV12", 128, 66};
  const Data reference = converted(std::string(ours) + "kernel=convert ! video/x-raw,format=RGBA", nv12);
  ASSERT_FALSE(reference.empty());
  EXPECT_EQ(converted(std::string(ours) + "kernel=convert ! video/x-raw(memory:VulkanImage),format=RGBA ! "
                                          "vulkandownload",
                      nv12),
            reference);
  const std::string uploaded =
      std::string(ours) + "kernel=identity ! video/x-raw(memory:VulkanBuffer) ! vulkanupload ! ";
  EXPECT_EQ(converted(uploaded + "gpumapkernel kernel=convert ! video/x-raw,format=RGBA", nv12), reference);
  EXPECT_EQ(converted(uploaded + "gpumapkernel kernel=convert ! video/x-raw(memory:VulkanImage),format=RGBA ! "
                                 "vulkandownload",
                      nv12),
            reference);
  const Picture rgba{"RGBA", 127, 65};
  EXPECT_EQ(converted(std::string(ours) + "kernel=identity ! vulkancolorconvert ! "
                                          "video/x-raw(memory:VulkanImage),format=BGRA ! vulkandownload",
                      rgba),
            converted("videoconvert ! video/x-raw,format=BGRA", rgba));
}

// A kernel without an output hands the image itself on; towards memory of ours, its copy.
TEST_F(VulkanMemory, WhatIsOnlyReadGoesOnAsItIs) {
  Pipeline pipeline(
      "videotestsrc num-buffers=4 pattern=snow ! video/x-raw,format=RGBA,width=67,height=33 ! vulkanupload ! tee "
      "name=t  t. ! queue ! vulkandownload ! appsink name=before sync=false  t. ! queue ! gpumapkernel name=kernel "
      "kernel=checksum ! video/x-raw(memory:VulkanImage) ! vulkandownload ! appsink name=out sync=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::vector<std::uint64_t> sums;
  for (int i = 0; i < 4; ++i) {
    const Sample before = pull(pipeline.appsink("before"));
    const Sample after = pull(pipeline.appsink());
    ASSERT_TRUE(before && after) << pipeline.wait(1ms);
    const Data pixels = pixels_of(before.get());
    EXPECT_EQ(pixels_of(after.get()), pixels);
    sums.push_back(checksum_of(pixels));
  }
  EXPECT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(pipeline.results()[i].checksum, sums[i]);
}

TEST_F(VulkanMemory, NothingIsCopiedThatGoesOn) {
  Pipeline pipeline(
      "videotestsrc num-buffers=4 pattern=snow ! video/x-raw,format=RGBA,width=67,height=33 ! vulkanupload ! "
      "gpumapkernel name=kernel kernel=checksum ! vulkandownload ! fakesink");
  EXPECT_EQ(pipeline.run(), "eos");
  EXPECT_EQ(stat(pipeline.element("kernel"), "gpu-copies"), 4U) << "one each, for the kernel to read";
  EXPECT_EQ(stat(pipeline.element("kernel"), "host-copies"), 0U);
}

// A device that libgstvulkan made alone imports no memory.
GstVulkanDevice* device_of_others(GstVulkanInstance** instance) {
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  *instance = library.gst_vulkan_instance_new();
  EXPECT_TRUE(library.gst_vulkan_instance_open(*instance, nullptr));
  GstVulkanDevice* device = library.gst_vulkan_device_new_with_index(*instance, 0);
  EXPECT_TRUE(library.gst_vulkan_device_open(device, nullptr));
  return device;
}

void give(GstElement* pipeline, const char* type, gpointer object, GType of) {
  GstContext* context = gst_context_new(type, TRUE);
  gst_structure_set(gst_context_writable_structure(context), type, of, object, nullptr);
  gst_element_set_context(pipeline, context);
  gst_context_unref(context);
}

TEST_F(VulkanMemory, AnotherDeviceGetsItThroughTheHost) {
  for (const char* way : {"gpumapsink sync=false $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel name=kernel "
                          "kernel=convert ! video/x-raw(memory:VulkanImage),format=BGRA ! vulkandownload",
                          "vulkanupload ! gpumapkernel name=kernel kernel=convert ! video/x-raw,format=BGRA",
                          "vulkanupload ! gpumapkernel name=kernel kernel=convert ! "
                          "video/x-raw(memory:VulkanImage),format=BGRA ! vulkandownload"}) {
    SCOPED_TRACE(way);
    GstVulkanInstance* instance = nullptr;
    GstVulkanDevice* device = device_of_others(&instance);
    {
      Pipeline pipeline(on_new_channel(std::string("appsrc name=in format=time ! ") + way + out));
      give(pipeline.get(), vulkan_instance_type, instance, G_OBJECT_TYPE(instance));
      give(pipeline.get(), vulkan_device_type, device, G_OBJECT_TYPE(device));
      const Picture picture{"RGBA", 127, 65};
      const Caps caps = new_caps(raw_caps(picture));
      gst_app_src_set_caps(pipeline.appsrc(), caps.get());
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      const Data data = random_data(frame_bytes(caps.get()), 7);
      push(pipeline.appsrc(), new_buffer(data));
      const Sample sample = pull(pipeline.appsink(), 20s);
      ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
      EXPECT_EQ(pixels_of(sample.get()),
                converted(std::string(ours) + "kernel=convert ! video/x-raw,format=BGRA", picture));
      EXPECT_GT(stat(pipeline.element("kernel"), "host-copies"), 0U);
      EXPECT_EQ(stat(pipeline.element("kernel"), "gpu-copies"), 0U);
    }
    gst_object_unref(device);
    gst_object_unref(instance);
  }
}

TEST_F(VulkanMemory, NeighboursGetADeviceThatImports) {
  Pipeline pipeline(on_new_channel(std::string("videotestsrc ! video/x-raw,format=RGBA ! ") + ours +
                                   "kernel=identity ! vulkandownload name=down ! fakesink"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
  const GstVulkanLibrary& library = GstVulkanLibrary::get();
  const Pad pad(gst_element_get_static_pad(pipeline.element("down"), "sink"));
  GstQuery* query = gst_query_new_context(vulkan_device_type);
  ASSERT_TRUE(gst_pad_query(pad.get(), query));
  GstContext* context = nullptr;
  gst_query_parse_context(query, &context);
  GstVulkanDevice* device = nullptr;
  ASSERT_TRUE(library.gst_context_get_vulkan_device(context, &device));
  EXPECT_TRUE(library.gst_vulkan_device_is_extension_enabled(device, "VK_KHR_external_memory_fd"));
  gst_object_unref(device);
  gst_query_unref(query);
}

// Frames kept downstream are not written again; those that come back are.
TEST_F(VulkanMemory, FramesThatAreKeptStay) {
  Pipeline pipeline(on_new_channel(std::string("appsrc name=in format=time ! ") + ours +
                                   "kernel=identity ! video/x-raw(memory:VulkanImage) ! tee name=t  t. ! queue "
                                   "max-size-buffers=0 max-size-time=0 max-size-bytes=0 name=held ! valve name=valve "
                                   "drop=false ! vulkandownload ! appsink name=out sync=false max-buffers=1 "
                                   " t. ! queue ! fakesink sync=false async=false"));
  const Caps caps = new_caps(raw_caps({"RGBA", 65, 33}));
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  constexpr int frames = 40;
  for (int i = 0; i < frames; ++i) {
    push(pipeline.appsrc(), new_buffer(random_data(frame_bytes(caps.get()), static_cast<std::uint64_t>(i))));
  }
  for (int i = 0; i < frames; ++i) {
    const Sample sample = pull(pipeline.appsink());
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    ASSERT_EQ(pixels_of(sample.get()), random_data(frame_bytes(caps.get()), static_cast<std::uint64_t>(i))) << i;
  }
}

// Between two of ours: vulkandownload 1.22 stays with the caps that came first.
TEST_F(VulkanMemory, CapsChangeAndRestart) {
  for (const char* memory : {"VulkanImage", "VulkanBuffer"}) {
    SCOPED_TRACE(memory);
    Pipeline pipeline(on_new_channel(std::string("appsrc name=in format=time ! ") + ours +
                                     "kernel=identity ! video/x-raw(memory:" + memory +
                                     ") ! gpumapkernel kernel=identity ! video/x-raw" + out));
    for (int round = 0; round < 3; ++round) {
      for (const Picture& picture : {Picture{"RGBA", 64, 31}, {"NV12", 128, 33}, {"BGRA", 60, 32}}) {
        const Caps caps = new_caps(raw_caps(picture));
        gst_app_src_set_caps(pipeline.appsrc(), caps.get());
        ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
        const Data data = random_data(frame_bytes(caps.get()), static_cast<std::uint64_t>(round) + 3);
        push(pipeline.appsrc(), new_buffer(data));
        const Sample sample = pull(pipeline.appsink(), 20s);
        ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
        const Sample expected(gst_sample_new(new_buffer(data).get(), caps.get(), nullptr, nullptr));
        EXPECT_EQ(pixels_of(sample.get()), pixels_of(expected.get())) << picture.format;
      }
      pipeline.stop();
    }
  }
}

TEST_F(VulkanMemory, FlushesAndPauses) {
  Pipeline pipeline(on_new_channel(std::string("videotestsrc pattern=snow ! "
                                               "video/x-raw,format=RGBA,width=67,height=35,framerate=100/1 ! ") +
                                   ours + "kernel=identity ! vulkandownload ! fakesink name=end sync=true"));
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    g_usleep(60'000);
    ASSERT_TRUE(gst_element_seek_simple(pipeline.get(), GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH, 5 * GST_SECOND));
    ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING)) << pipeline.error();
    gint64 at = 0;
    EXPECT_TRUE(eventually(
        [&] { return gst_element_query_position(pipeline.get(), GST_FORMAT_TIME, &at) != 0 && at >= 5 * GST_SECOND; }));
    pipeline.stop();
  }
}

// A copy on GStreamer's device that does not end keeps nobody waiting who stops, and goes on where it ends after all.
TEST_F(VulkanMemory, IsStoppedWhileACopyDoesNotEnd) {
  for (const char* elements : {"gpumapupload ! gpumapkernel kernel=identity ! video/x-raw(memory:VulkanImage)",
                               "vulkanupload ! gpumapkernel kernel=identity ! video/x-raw"}) {
    SCOPED_TRACE(elements);
    Pipeline pipeline(std::string("appsrc name=in format=time ! ") + elements + out);
    const Caps caps = new_caps(raw_caps({"RGBA", 64, 48}));
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const Data data = random_data(frame_bytes(caps.get()), 1);
    push(pipeline.appsrc(), new_buffer(data));
    ASSERT_TRUE(pull(pipeline.appsink(), 20s));
    waits_of_stuck = 0;
    gpu_is_stuck = true;
    push(pipeline.appsrc(), new_buffer(data));
    ASSERT_TRUE(eventually([] { return waits_of_stuck > 0; }));
    // A flush gives the frame up, and what comes behind it waits for what is under way.
    ASSERT_TRUE(gst_element_send_event(pipeline.element("in"), gst_event_new_flush_start()));
    std::this_thread::sleep_for(500ms);
    ASSERT_TRUE(gst_element_send_event(pipeline.element("in"), gst_event_new_flush_stop(FALSE)));
    gpu_is_stuck = false;
    push(pipeline.appsrc(), new_buffer(data));
    EXPECT_TRUE(pull(pipeline.appsink(), 20s)) << pipeline.wait(1ms);
    waits_of_stuck = 0;
    gpu_is_stuck = true;
    push(pipeline.appsrc(), new_buffer(data));
    EXPECT_TRUE(eventually([] { return waits_of_stuck > 0; }));
    EXPECT_LT(pipeline.stop(), at_once);
    gpu_is_stuck = false;
  }
}

TEST_F(VulkanMemory, NothingIsLeftBehind) {
  const auto once = [] {
    expect_unchanged(std::string(ours) + "kernel=identity ! video/x-raw(memory:VulkanImage) ! vulkandownload",
                     {"RGBA", 512, 512}, "gpu-copies", 6);
    expect_unchanged("vulkanupload ! gpumapkernel name=kernel kernel=identity ! video/x-raw", {"RGBA", 512, 512},
                     "gpu-copies", 6);
  };
  // The allocator's heaps of the first threads grow for a while. One image lost by each pipeline would be 40 MiB.
  for (int i = 0; i < 5; ++i) once();
  const std::size_t descriptors = open_descriptors();
  const std::size_t bytes = resident_bytes();
  for (int i = 0; i < 20; ++i) once();
  EXPECT_TRUE(no_more_descriptors_than(descriptors));
  if (!sanitized) {
    EXPECT_TRUE(eventually([&] { return resident_bytes() < bytes + (20U << 20U); }, 10s)) << resident_bytes();
  }
}

TEST_F(VulkanMemory, FramesOfOtherMemoryAreRefused) {
  Pipeline pipeline(
      "appsrc name=in format=time caps=video/x-raw(memory:VulkanImage),format=RGBA,width=64,height=48,framerate=30/1 ! "
      "gpumapkernel name=kernel ! fakesink sync=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), new_buffer(random_data(12288, 1)));
  EXPECT_THAT(pipeline.wait(), HasSubstr("not in Vulkan memory"));
  EXPECT_EQ(pipeline.culprit(), "kernel");
}

/// What the validation layer says of GStreamer's device while this program runs `tests` once more. (Of gpumap's own
/// device each program counts it.)
std::string validation_of(const std::string& tests) {
  const TemporaryFolder folder;
  const std::string log = folder.path() / "log";
  std::ofstream(folder.path() / "vk_layer_settings.txt")
      << "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\nkhronos_validation.report_flags = error,warn\n"
         "khronos_validation.log_filename = "
      << log << '\n';
  const std::string command =
      "VK_LAYER_SETTINGS_PATH=" + folder.path().string() + " VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation " +
      std::filesystem::read_symlink("/proc/self/exe").string() + " --gtest_filter='" + tests + "' >/dev/null 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::stringstream said;
  said << std::ifstream(log).rdbuf();
  return said.str();
}

TEST_F(VulkanMemory, ValidationLayerIsSilent) {
  EXPECT_EQ(validation_of("VulkanMemory.NothingIsCopiedThatGoesOn:VulkanMemory.CapsChangeAndRestart:"
                          "VulkanMemory.AnotherDevice*"),
            "");
}

TEST(VulkanCaps, OfferWhatItsElementsKnow) {
  const auto offered = [](const char* text) {
    const Caps made(offer_vulkan(gst_caps_from_string(text)));
    gchar* shown = gst_caps_to_string(made.get());
    std::string copy = shown;
    g_free(shown);
    return copy;
  };
  EXPECT_EQ(offered("video/x-raw(memory:GPUMap),format=NV12,width=6;video/x-raw(memory:CUDAMemory),format=NV12;"
                    "video/x-raw,format=NV12"),
            "video/x-raw(memory:GPUMap), format=(string)NV12, width=(int)6; "
            "video/x-raw(memory:CUDAMemory), format=(string)NV12; "
            "video/x-raw(memory:VulkanImage), format=(string)NV12, width=(int)6; video/x-raw, format=(string)NV12");
  EXPECT_THAT(offered("video/x-raw(memory:GPUMap),format=RGBA,width=8"), HasSubstr("VulkanBuffer"));
  for (const char* other :
       {"video/x-raw(memory:GPUMap),format=v210", "video/x-raw(memory:GPUMap),format=GRAY8",
        "video/x-raw(memory:GPUMap),format=P010_10LE", "video/x-raw(memory:GPUMap,format:Interlaced),format=NV12",
        "audio/x-raw(memory:GPUMap),format=F32LE", "application/x-tensor(memory:GPUMap),type=float32"}) {
    EXPECT_THAT(offered(other), Not(HasSubstr("Vulkan"))) << other;
  }
  EXPECT_EQ(offered("ANY"), "ANY");
}

TEST(VulkanCaps, IsFoundInCaps) {
  EXPECT_TRUE(is_vulkan_caps(new_caps("video/x-raw(memory:VulkanImage)").get()));
  EXPECT_TRUE(is_vulkan_caps(new_caps("video/x-raw(memory:VulkanBuffer)").get()));
  for (const char* other : {"video/x-raw", "video/x-raw(ANY)", "ANY", "EMPTY", "video/x-raw(memory:GPUMap)"}) {
    EXPECT_FALSE(is_vulkan_caps(new_caps(other).get())) << other;
  }
}

}  // namespace
}  // namespace gpumap::gst::test
