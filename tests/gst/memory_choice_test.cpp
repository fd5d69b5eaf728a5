// SPDX-License-Identifier: MIT
// Who gets GPU memory: an element that names it. One that takes anything gets ordinary memory, without padding.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <fstream>

#include "gpumap/cuda.hpp"
#include "gpumap/device.hpp"
#include "gpumap/error.hpp"
#include "gst/cuda/gst_cuda_context.hpp"
#include "gst/cuda/gst_cuda_memory.hpp"
#include "gst/memory/frame_format.hpp"
#include "gst/memory/memory_caps.hpp"
#include "pipeline.hpp"
#include "temporary_folder.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

/// Whether what is behind `name` in `description` names memory:GPUMap for these caps.
bool names(const std::string& description, const char* caps) {
  Pipeline pipeline("identity name=before ! " + description);
  pipeline.set_state(GST_STATE_PAUSED);  // before that a kernel takes anything, so that it can be linked
  const Pad pad(gst_element_get_static_pad(pipeline.element("before"), "src"));
  return peer_names_gpu_memory(pad.get(), new_caps(caps).get());
}

constexpr const char* video = "video/x-raw,format=NV12,width=33,height=7,framerate=30/1";

TEST(MemoryChoice, KernelsNameIt) {
  const TemporaryFolder folder;
  const std::string own = folder.path() / "own.comp";
  std::ofstream(own) << "#version 460\n#include <gpumap.glsl>\nvoid main() {}\n";
  for (const std::string& kernel :
       {std::string("kernel=identity"), std::string("kernel=checksum"), std::string("kernel=convert"),
        "location=" + own, "location=" + own + " declare=\"output video/x-raw,format=GRAY8\""}) {
    for (const char* way : {"", "queue ! ", "identity ! ", "capsfilter caps=video/x-raw(ANY) ! ", "tee ! queue ! "}) {
      for (const char* end : {"", " ! fakesink", " ! video/x-raw ! fakesink"}) {
        const std::string description = std::string(way) + "gpumapkernel " + kernel + end;
        EXPECT_TRUE(names(description, video)) << description;
      }
    }
  }
  for (const char* kernel : {"kernel=identity", "kernel=checksum", "kernel=iq-power", "kernel=magnitude"}) {
    const std::string description = std::string("gpumapkernel ") + kernel + " ! fakesink";
    EXPECT_TRUE(names(description, "audio/x-raw,format=S16LE,layout=interleaved,channels=2,rate=48000")) << description;
  }
  EXPECT_TRUE(names("gpumapkernel kernel=checksum ! fakesink", "application/octet-stream"));
}

TEST(MemoryChoice, WhoeverTakesItByNameNamesIt) {
  for (const char* description :
       {"capsfilter caps=video/x-raw(memory:GPUMap) ! fakesink", "appsink caps=video/x-raw(memory:GPUMap)",
        "queue ! capsfilter caps=video/x-raw(memory:GPUMap);video/x-raw ! queue ! filesink location=/dev/null"}) {
    EXPECT_TRUE(names(description, video)) << description;
  }
}

TEST(MemoryChoice, WhoeverTakesAnythingDoesNot) {
  for (const char* description :
       {"fakesink", "filesink location=/dev/null", "appsink", "queue ! fakesink", "tee ! queue ! fakesink",
        "identity ! fakesink", "capsfilter caps=video/x-raw(ANY) ! fakesink", "videocrop ! fakesink",
        "video/x-raw ! fakesink", "jpegenc ! fakesink", "appsink caps=audio/x-raw(memory:GPUMap)",
        "tee name=t ! queue ! gpumapkernel ! fakesink t. ! queue ! jpegenc ! fakesink"}) {
    EXPECT_FALSE(names(description, video)) << description;
  }
  const Pipeline alone("identity name=before");
  const Pad pad(gst_element_get_static_pad(alone.element("before"), "src"));
  EXPECT_FALSE(peer_names_gpu_memory(pad.get(), new_caps(video).get()));
}

/// The sample that `end`, an appsink named out, gets of a frame behind gpumapkernel.
Sample sample_at(const std::string& kernel, const std::string& end, const Data& data) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! "
                     "gpumapkernel name=kernel " +
                     kernel + " ! " + end));
  gst_app_src_set_caps(pipeline.appsrc(), new_caps(video).get());
  EXPECT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push(pipeline.appsrc(), new_buffer(data));
  Sample sample = pull(pipeline.appsink());
  EXPECT_NE(sample, nullptr) << pipeline.wait(1ms);
  return sample;
}

TEST(MemoryChoice, AKernelGivesOrdinaryMemoryToAnyone) {
  const Data data = random_data(frame_bytes(new_caps(video).get()), 5);
  for (const char* kernel : {"kernel=identity", "kernel=checksum"}) {
    for (const char* end :
         {"appsink name=out sync=false", "queue ! appsink name=out sync=false",
          "tee name=t ! queue ! appsink name=out sync=false t. ! queue ! fakesink", "video/x-raw ! appsink name=out"}) {
      const Sample sample = sample_at(kernel, end, data);
      ASSERT_NE(sample, nullptr) << end;
      EXPECT_TRUE(is_system_caps(gst_sample_get_caps(sample.get()))) << kernel << " ! " << end;
      EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data) << kernel << " ! " << end;
    }
  }
  const Sample sample = sample_at("kernel=identity", "appsink name=out caps=video/x-raw(memory:GPUMap)", data);
  ASSERT_NE(sample, nullptr);
  EXPECT_TRUE(is_gpu_caps(gst_sample_get_caps(sample.get())));
  EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data);
}

// A tee leaves the caps that all of its branches take: plain ones, of frames that lie in GPU memory all the same.
TEST(MemoryChoice, OneTeeFeedsAKernelAndAnElementOnTheCpu) {
  for (const char* kernel : {"kernel=identity", "kernel=checksum"}) {
    Pipeline pipeline(on_new_channel(
        std::string("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! tee name=t ! queue ! "
                    "gpumapkernel name=kernel ") +
        kernel + " ! appsink name=out sync=false t. ! queue ! jpegenc ! appsink name=jpeg sync=false"));
    const Caps caps = new_caps("video/x-raw,format=I420,width=34,height=8,framerate=30/1");
    gst_app_src_set_caps(pipeline.appsrc(), caps.get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (std::uint64_t i = 0; i < 20; ++i) {
      const Data data = random_data(frame_bytes(caps.get()), i);
      push(pipeline.appsrc(), new_buffer(data, i * GST_MSECOND));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << kernel << ": " << pipeline.wait(1ms);
      EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data);
      EXPECT_NE(pull(pipeline.appsink("jpeg")), nullptr);
    }
  }
}

// So behind a kernel: what it gives stays on the GPU for the second one, and the CPU fetches it.
TEST(MemoryChoice, OneTeeBehindAKernelFeedsAKernelAndAnElementOnTheCpu) {
  for (const auto& [kernel, format] : {std::pair{"identity", "I420"}, {"convert ! video/x-raw,format=RGBA", "NV12"}}) {
    SCOPED_TRACE(kernel);
    const auto made = [&, kernel = std::string(kernel)](const std::string& after) {
      return on_new_channel(fmt::format(
          "appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel kernel={} ! {}", kernel,
          after));
    };
    Pipeline pipeline(
        made("tee name=t ! queue ! gpumapkernel name=second kernel=checksum ! fakesink sync=false async=false "
             "t. ! queue ! video/x-raw ! appsink name=out sync=false"));
    Pipeline alone(made("appsink name=out sync=false"));
    const Caps caps = video_caps(format, 322, 8);
    for (Pipeline* one : {&pipeline, &alone}) {
      gst_app_src_set_caps(one->appsrc(), caps.get());
      ASSERT_NE(one->set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    }
    std::vector<std::uint64_t> checksums;
    for (std::uint64_t i = 0; i < 20; ++i) {
      const Data data = random_data(frame_bytes(caps.get()), i);
      for (Pipeline* one : {&pipeline, &alone}) push(one->appsrc(), new_buffer(data, i * GST_MSECOND));
      const Sample sample = pull(pipeline.appsink());
      const Sample wanted = pull(alone.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
      ASSERT_NE(wanted, nullptr) << alone.wait(1ms);
      EXPECT_TRUE(is_system_caps(gst_sample_get_caps(sample.get())));
      const Data seen = data_of(gst_sample_get_buffer(sample.get()));
      EXPECT_EQ(seen, data_of(gst_sample_get_buffer(wanted.get()))) << i;
      checksums.push_back(checksum_of(seen));
    }
    gst_app_src_end_of_stream(pipeline.appsrc());
    ASSERT_EQ(pipeline.wait(), "eos");
    std::vector<std::uint64_t> results;
    for (const Result& result : pipeline.results()) results.push_back(result.checksum);
    EXPECT_EQ(results, checksums);
  }
}

void push_padded(const Pipeline& pipeline) {
  const Caps caps = video_caps("RGB", 33, 7);
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  gint stride[] = {128};
  gsize offset[] = {64};
  Buffer buffer = new_buffer(random_data(64 + 7 * 128, 3));
  gst_buffer_add_video_meta_full(buffer.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_RGB, 33, 7, 1, offset,
                                 stride);
  push(pipeline.appsrc(), std::move(buffer));
}

// Padded rows are for those that know GstVideoMeta: where a branch does not, that is an error, and no wrong picture.
TEST(MemoryChoice, PaddedRowsBehindATeeGoToNoOneWhoDoesNotReadThem) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel name=first ! "
                     "tee name=t ! queue ! gpumapkernel name=kernel kernel=checksum ! fakesink sync=false async=false "
                     "t. ! queue ! video/x-raw ! appsink name=out sync=false"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push_padded(pipeline);
  EXPECT_THAT(pipeline.wait(), ::testing::HasSubstr("put videoconvert first in that branch"));
}

// An element that listens to caps would begin anew at each change of a branch.
TEST(MemoryChoice, CapsForATeeDoNotGoToAndFro) {
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! tee name=t ! queue ! "
                     "gpumapkernel ! fakesink sync=false async=false t. ! queue ! "
                     "fakesink name=out sync=false async=false"));
  const Pad tee(gst_element_get_static_pad(pipeline.element("t"), "sink"));
  struct Seen {
    std::atomic<int> gpu{0}, frames{0};
  } seen;
  gst_pad_add_probe(
      tee.get(),
      static_cast<GstPadProbeType>(static_cast<unsigned>(GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM) |
                                   GST_PAD_PROBE_TYPE_BUFFER),
      [](GstPad*, GstPadProbeInfo* info, gpointer user) {
        auto* self = static_cast<Seen*>(user);
        GstCaps* caps = nullptr;
        if ((info->type & GST_PAD_PROBE_TYPE_BUFFER) != 0) {
          ++self->frames;
        } else if (GST_EVENT_TYPE(GST_PAD_PROBE_INFO_EVENT(info)) == GST_EVENT_CAPS) {
          gst_event_parse_caps(GST_PAD_PROBE_INFO_EVENT(info), &caps);
          if (is_gpu_caps(caps)) ++self->gpu;
        }
        return GST_PAD_PROBE_OK;
      },
      &seen, nullptr);
  const Caps caps = video_caps("I420", 34, 8);
  gst_app_src_set_caps(pipeline.appsrc(), caps.get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (int i = 1; i <= 6; ++i) {
    push(pipeline.appsrc(), new_buffer(random_data(frame_bytes(caps.get()), 2)));
    ASSERT_TRUE(eventually([&] { return seen.frames == i; })) << pipeline.wait(1ms);
    EXPECT_LE(seen.gpu, 1) << "frame " << i;
    const Caps now(gst_pad_get_current_caps(tee.get()));
    EXPECT_TRUE(is_system_caps(now.get()));
    gst_pad_push_event(tee.get(), gst_event_new_reconfigure());
  }
}

TEST(MemoryChoice, AloneAKernelGetsGpuMemory) {
  Pipeline pipeline(
      on_new_channel("videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=33,height=7 ! "
                     "gpumapsink $CHANNEL gpumapsrc $CHANNEL ! queue ! gpumapkernel name=first ! "
                     "tee ! queue ! gpumapkernel name=second ! fakesink"));
  ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
  for (const char* name : {"first", "second"}) {
    const Pad pad(gst_element_get_static_pad(pipeline.element(name), "sink"));
    const Caps caps(gst_pad_get_current_caps(pad.get()));
    ASSERT_NE(caps, nullptr) << name;
    EXPECT_TRUE(is_gpu_caps(caps.get())) << name;
  }
}

TEST(MemoryChoice, FramesInOrdinaryMemoryAreAnError) {
  Pipeline pipeline("videotestsrc ! video/x-raw,format=RGB,width=33,height=7 ! gpumapkernel name=kernel ! fakesink");
  EXPECT_THAT(pipeline.run(), ::testing::HasSubstr("put gpumapupload before it"));
  EXPECT_EQ(pipeline.culprit(), "kernel");
}

/// Counts the frames that leave the element `kernel` with padded rows, and the others.
struct Rows {
  explicit Rows(const Pipeline& pipeline) : pad(gst_element_get_static_pad(pipeline.element("kernel"), "src")) {
    const auto look = [](GstPad* of, GstPadProbeInfo* info, gpointer self) {
      auto* rows = static_cast<Rows*>(self);
      GstVideoInfo packed;
      const Caps caps(gst_pad_get_current_caps(of));
      if (!gst_video_info_from_caps(&packed, caps.get())) return GST_PAD_PROBE_OK;
      const GstVideoMeta* meta = gst_buffer_get_video_meta(GST_PAD_PROBE_INFO_BUFFER(info));
      ++(meta != nullptr && meta->stride[0] != packed.stride[0] ? rows->padded : rows->tight);
      return GST_PAD_PROBE_OK;
    };
    gst_pad_add_probe(pad.get(), GST_PAD_PROBE_TYPE_BUFFER, look, this, nullptr);
  }
  std::atomic<int> padded{0}, tight{0};
  Pad pad;
};

// An element that cannot answer before it has its caps is asked after them, and again where another takes its place.
TEST(MemoryChoice, WhoReadsVideoMetaIsAskedAnewWhenLinked) {
  Watch watch;
  Pipeline pipeline(
      on_new_channel("appsrc name=in format=time ! gpumapsink $CHANNEL gpumapsrc $CHANNEL ! gpumapkernel name=kernel ! "
                     "videoconvert name=after ! video/x-raw,format=BGR ! fakesink name=out sync=false async=false"));
  Rows rows(pipeline);
  watch.on(pipeline.element("out"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  push_padded(pipeline);
  // Behind the link, too: one that is cut while the frame is on its way there is an error.
  ASSERT_TRUE(eventually([&] { return watch.count() == 1; })) << pipeline.wait(1ms);
  EXPECT_EQ(rows.padded + rows.tight, 1);
  EXPECT_EQ(rows.padded, 1);
  GstElement* fakesink = gst_element_factory_make("fakesink", nullptr);
  g_object_set(fakesink, "async", FALSE, nullptr);
  gst_bin_add(GST_BIN(pipeline.get()), fakesink);
  gst_element_unlink(pipeline.element("kernel"), pipeline.element("after"));
  ASSERT_TRUE(gst_element_link(pipeline.element("kernel"), fakesink));
  ASSERT_TRUE(gst_element_sync_state_with_parent(fakesink));
  push_padded(pipeline);
  ASSERT_TRUE(eventually([&] { return rows.padded + rows.tight == 2; })) << pipeline.wait(1ms);
  EXPECT_EQ(rows.tight, 1);
}

// memory:CUDAMemory where there is no CUDA: never offered; an element that asks for it gets an error that names what is
// missing. What it does where there is a GPU is in tests/gpu.

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* frames =
    "videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=48 ! gpumapsink sync=false $CHANNEL "
    "gpumapsrc $CHANNEL ! gpumapkernel name=kernel ";

/// The cause and the remedy.
const auto helpful = AllOf(HasSubstr("memory:CUDAMemory"), HasSubstr("use an NVIDIA GPU"));

std::string caps_of(const Pipeline& pipeline, const char* pad_name) {
  const Pad pad(gst_element_get_static_pad(pipeline.element("kernel"), pad_name));
  const Caps caps(gst_pad_query_caps(pad.get(), nullptr));
  gchar* text = gst_caps_to_string(caps.get());
  std::string copy = text;
  g_free(text);
  return copy;
}

/// Whether this GStreamer's libgstcuda can be lent memory, as tensors are.
bool lends_tensors() {
  guint major = 0, minor = 0, micro = 0, nano = 0;
  gst_version(&major, &minor, &micro, &nano);
  return major > 1 || minor >= 24;
}

class NoCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (Device::open()->has(Backend::cuda)) GTEST_SKIP() << "this GPU has CUDA";
  }
};

TEST_F(NoCuda, WhoAsksForItIsToldWhatIsMissing) {
  for (const char* kernel : {"kernel=identity", "kernel=convert", "kernel=checksum", "kernel=convert backend=vulkan"}) {
    SCOPED_TRACE(kernel);
    Pipeline pipeline(
        on_new_channel(std::string(frames) + kernel + " ! video/x-raw(memory:CUDAMemory) ! fakesink sync=false"));
    EXPECT_THAT(pipeline.run(), helpful);
    EXPECT_EQ(pipeline.culprit(), "kernel");
  }
}

TEST_F(NoCuda, WhoSendsItIsToldWhatIsMissing) {
  for (const char* caps : {"video/x-raw(memory:CUDAMemory),format=NV12,width=64,height=48,framerate=30/1",
                           "application/x-tensor(memory:CUDAMemory),type=uint8,dims=(int)<64,72>"}) {
    SCOPED_TRACE(caps);
    Pipeline pipeline("appsrc name=in format=time caps=\"" + std::string(caps) +
                      "\" ! gpumapkernel name=kernel ! fakesink sync=false");
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push(pipeline.appsrc(), new_buffer(random_data(4608, 1)));
    EXPECT_THAT(pipeline.wait(), helpful);
    EXPECT_EQ(pipeline.culprit(), "kernel");
  }
}

TEST_F(NoCuda, WhoAsksForTensorsInItIsToldWhatIsMissing) {
  for (const char* before : {"gpumapkernel name=kernel kernel=convert",
                             "gpumapkernel kernel=convert ! application/x-tensor(memory:GPUMap) ! "
                             "gpumapkernel name=kernel",
                             "gpumapkernel kernel=convert ! application/x-tensor ! gpumapupload name=kernel"}) {
    if (!lends_tensors() && std::string(before).find("gpumapupload name") != std::string::npos) continue;  // no link
    SCOPED_TRACE(before);
    Pipeline pipeline(std::string("videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=48 ! "
                                  "gpumapupload ! ") +
                      before + " ! application/x-tensor(memory:CUDAMemory) ! fakesink sync=false");
    EXPECT_THAT(pipeline.run(), helpful);
    EXPECT_EQ(pipeline.culprit(), "kernel");
  }
}

TEST_F(NoCuda, IsNotOffered) {
  for (const char* kernel : {"kernel=identity", "kernel=convert", "kernel=convert backend=vulkan"}) {
    SCOPED_TRACE(kernel);
    Pipeline pipeline(on_new_channel(std::string(frames) + kernel + " ! fakesink sync=false"));
    ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    EXPECT_THAT(caps_of(pipeline, "src"), AllOf(HasSubstr("memory:GPUMap"), Not(HasSubstr("CUDA"))));
    EXPECT_THAT(caps_of(pipeline, "sink"), Not(HasSubstr("CUDA")));
  }
}

TEST_F(NoCuda, NoContextIsGiven) {
  Pipeline pipeline(on_new_channel(std::string(frames) + " ! fakesink sync=false"));
  const Pad pad(gst_element_get_static_pad(pipeline.element("kernel"), "src"));
  for (const GstState state : {GST_STATE_NULL, GST_STATE_PAUSED}) {
    ASSERT_TRUE(pipeline.reach(state)) << pipeline.error();
    GstQuery* query = gst_query_new_context("gst.cuda.context");
    EXPECT_FALSE(gst_pad_query(pad.get(), query));
    gst_query_unref(query);
  }
}

TEST_F(NoCuda, ThereAreNoHandles) {
  const auto device = Device::open();
  EXPECT_EQ(cuda_handles(*device).context, nullptr);
  const auto queue = device->create_queue(Backend::vulkan);
  EXPECT_THROW(static_cast<void>(cuda_stream(*queue)), Error);
  EXPECT_THROW(wait_for_cuda_stream(*queue, nullptr), Error);
  EXPECT_THROW(let_cuda_stream_wait(*queue, nullptr), Error);
}

// Upstream may need its only buffer back before it can send another frame.
TEST(CudaLoans, GoBackWithoutAnotherFrame) {
  GstBufferPool* pool = gst_buffer_pool_new();
  GstStructure* config = gst_buffer_pool_get_config(pool);
  gst_buffer_pool_config_set_params(config, nullptr, 64, 0, 1);
  ASSERT_TRUE(gst_buffer_pool_set_config(pool, config));
  ASSERT_TRUE(gst_buffer_pool_set_active(pool, TRUE));
  CudaLoans loans;
  for (int frame = 0; frame < 20; ++frame) {
    GstBuffer* buffer = nullptr;
    ASSERT_EQ(gst_buffer_pool_acquire_buffer(pool, &buffer, nullptr), GST_FLOW_OK);  // waits for the one that there is
    GstMapInfo map;
    ASSERT_TRUE(gst_memory_map(gst_buffer_peek_memory(buffer, 0), &map, GST_MAP_READ));
    loans.keep(CudaFrame(buffer, map, GstVideoMeta{}), Fence());
  }
  gst_buffer_pool_set_active(pool, FALSE);
  gst_object_unref(pool);
}

TEST(CudaCaps, OfferWhatTheAllocatorLaysOut) {
  const auto offered = [](const char* text) {
    GstCaps* caps = gst_caps_from_string(text);
    const Caps made(offer_cuda(caps));
    gchar* shown = gst_caps_to_string(made.get());
    std::string copy = shown;
    g_free(shown);
    return copy;
  };
  EXPECT_EQ(offered("video/x-raw(memory:GPUMap),format=NV12;video/x-raw,format=NV12"),
            "video/x-raw(memory:GPUMap), format=(string)NV12; video/x-raw(memory:CUDAMemory), format=(string)NV12; "
            "video/x-raw, format=(string)NV12");
  // It ends the process for these.
  for (const char* other :
       {"video/x-raw(memory:GPUMap),format=GRAY8", "video/x-raw(memory:GPUMap),format=v210",
        "video/x-raw(memory:GPUMap,format:Interlaced),format=NV12", "audio/x-raw(memory:GPUMap),format=F32LE",
        "application/x-other(memory:GPUMap),type=float32", "video/x-bayer(memory:GPUMap),format=rggb"}) {
    EXPECT_THAT(offered(other), Not(HasSubstr("CUDA"))) << other;
  }
  EXPECT_THAT(offered("video/x-raw(memory:GPUMap),format=I420,height=7"), Not(HasSubstr("CUDA")));
  EXPECT_THAT(offered("video/x-raw(memory:GPUMap),format=I420,height=8"), HasSubstr("CUDA"));
  EXPECT_THAT(offered("video/x-raw(memory:GPUMap),format={GRAY8,RGBA,RGB}"),
              HasSubstr("(memory:CUDAMemory), format=(string){ RGBA, RGB }"));
  EXPECT_EQ(offered("application/x-tensor(memory:GPUMap),type=float32;application/x-tensor,type=float32"),
            "application/x-tensor(memory:GPUMap), type=(string)float32; " +
                std::string(lends_tensors() ? "application/x-tensor(memory:CUDAMemory), type=(string)float32; " : "") +
                "application/x-tensor, type=(string)float32");
  // What GStreamer 1.28 says of tensors beside a frame.
  EXPECT_THAT(
      offered("video/x-raw(memory:GPUMap),format=RGBA,tensors=(structure)\"tensorgroups\\,\\ a\\=\\(int\\)1\\;\""),
      HasSubstr("(memory:CUDAMemory), format=(string)RGBA, tensors=(structure)"));
  EXPECT_EQ(offered("ANY"), "ANY");
}

// Of what downstream names: one that takes anything gets system memory.
TEST(CudaCaps, NearestMemoryIsTaken) {
  const auto nearest = [](const std::string& taken, const char* offered) {
    const Pipeline pipeline("identity name=before ! capsfilter caps=\"" + taken + "\" ! fakesink");
    const Pad pad(gst_element_get_static_pad(pipeline.element("before"), "src"));
    const Caps made(nearest_memory(pad.get(), gst_caps_from_string(offered)));
    gchar* features = gst_caps_features_to_string(gst_caps_get_features(made.get(), 0));
    const std::string memory = features;
    g_free(features);
    return std::pair(memory, gst_caps_get_size(made.get()));
  };
  constexpr const char* every = "video/x-raw;video/x-raw(memory:CUDAMemory);video/x-raw(memory:GPUMap)";
  constexpr const char* cuda = "video/x-raw(memory:CUDAMemory);video/x-raw";
  EXPECT_EQ(nearest(every, cuda), std::pair(std::string("memory:CUDAMemory"), 1U));
  EXPECT_EQ(nearest(every, every), std::pair(std::string("memory:GPUMap"), 1U));
  EXPECT_EQ(nearest("video/x-raw;video/x-bayer", "video/x-raw;video/x-bayer"),
            std::pair(std::string("memory:SystemMemory"), 2U));
  for (const char* anything : {"ANY", "video/x-raw(ANY)"}) {
    EXPECT_EQ(nearest(anything, every), std::pair(std::string("memory:SystemMemory"), 1U)) << anything;
  }
}

TEST(CudaCaps, SystemMemoryIsLeftOutBesideCuda) {
  const auto left = [](const char* text) {
    const Caps made(without_system_memory(new_caps(text).get()));
    return made ? gst_caps_get_size(made.get()) : 0;
  };
  // Of a gpumapkernel, whose tee may feed an element on the CPU, too.
  EXPECT_EQ(left("video/x-raw(memory:GPUMap);video/x-raw(memory:CUDAMemory);video/x-raw"), 0U);
  EXPECT_EQ(left("video/x-raw(memory:CUDAMemory);video/x-raw"), 1U);
  EXPECT_EQ(left("video/x-raw(memory:GPUMap);video/x-raw"), 0U);
  EXPECT_EQ(left("video/x-raw"), 0U);
  EXPECT_EQ(left("ANY"), 0U);
}

TEST(CudaCaps, OnlyMeansOnly) {
  EXPECT_TRUE(is_cuda_only(new_caps("video/x-raw(memory:CUDAMemory)").get()));
  EXPECT_FALSE(is_cuda_only(new_caps("video/x-raw(memory:CUDAMemory);video/x-raw").get()));
  EXPECT_FALSE(is_cuda_only(new_caps("video/x-raw(ANY)").get()));
  EXPECT_FALSE(is_cuda_only(new_caps("ANY").get()));
  EXPECT_FALSE(is_cuda_only(new_caps("EMPTY").get()));
}

TEST(CudaCaps, PlanesAreMeasuredWithoutTheirPadding) {
  const auto extents = [](const char* format) {
    GstVideoInfo info;
    EXPECT_TRUE(gst_video_info_from_caps(&info, video_caps(format, 1917, 1081).get()));
    std::vector<std::pair<std::size_t, std::size_t>> all;
    for (guint plane = 0; plane < GST_VIDEO_INFO_N_PLANES(&info); ++plane) {
      const PlaneExtent extent = plane_extent(info, plane);
      EXPECT_LE(extent.row_bytes, static_cast<std::size_t>(info.stride[plane]));
      all.emplace_back(extent.row_bytes, extent.rows);
    }
    return all;
  };
  using Extents = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(extents("NV12"), (Extents{{1917, 1081}, {1918, 541}}));
  EXPECT_EQ(extents("I420"), (Extents{{1917, 1081}, {959, 541}, {959, 541}}));
  EXPECT_EQ(extents("P010_10LE"), (Extents{{3834, 1081}, {3836, 541}}));
  EXPECT_EQ(extents("YUY2"), (Extents{{3836, 1081}}));
  EXPECT_EQ(extents("RGB"), (Extents{{5751, 1081}}));
  EXPECT_EQ(extents("RGB10A2_LE"), (Extents{{7668, 1081}}));
  EXPECT_EQ(extents("GBRA"), (Extents{{1917, 1081}, {1917, 1081}, {1917, 1081}, {1917, 1081}}));
  EXPECT_EQ(extents("Y42B"), (Extents{{1917, 1081}, {959, 1081}, {959, 1081}}));
}

}  // namespace
}  // namespace gpumap::gst::test
