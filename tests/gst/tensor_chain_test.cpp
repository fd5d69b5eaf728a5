// SPDX-License-Identifier: MIT
// Tensors that stay in GPU memory from kernel to kernel, beside branches that take them on the CPU: each byte is what
// the same arithmetic gives here.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <string>

#include "gst/memory/gpumap_memory.hpp"
#include "kernel_file.hpp"
#include "tensor_pictures.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::HasSubstr;

/// Of GRAY8 three planes of floats.
const std::string before = R"(
// gpumap: input video/x-raw,format=GRAY8
// gpumap: output application/x-tensor,type=float32,layout=chw,channels=3,width={width},height={height}
void main() {
  gpumap_view to = frame.out_view;
  uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;
  if (x >= to.width || y >= to.height) return;
  uint value = load_u8(frame.in_view.plane[0] + uint64_t(y) * frame.in_view.stride[0] + x);
  for (uint c = 0u; c < 3u; ++c) {
    store_f32(to.plane[c] + uint64_t(y) * to.stride[c] + 4ul * x, float(3u * value + c) / 8.0);
  }
}
)";
/// Of these the sums of each column, in dimensions instead of a picture.
const std::string network = R"(
// gpumap: input application/x-tensor,type=float32,layout=chw
// gpumap: output application/x-tensor,type=float32,dims=(int)<1,{width}>
void main() {
  gpumap_view from = frame.in_view;
  for (uint64_t x = gpumap_thread(); x < uint64_t(from.width); x += gpumap_thread_count()) {
    float sum = 0.0;
    for (uint i = 0u; i < 3u * from.height; ++i) {
      sum += load_f32(from.plane[i % 3u] + uint64_t(i / 3u) * from.stride[i % 3u] + 4ul * x);
    }
    store_f32(frame.out_view.plane[0] + 4ul * x, sum);
  }
}
)";

/// Of those the doubles. It sees bytes.
const std::string doubles = R"(
// gpumap: input application/x-tensor,type=float32
// gpumap: output application/x-tensor,type=float64
// gpumap: bytes 2*bytes
void main() {
  for (uint64_t i = gpumap_thread(); i < frame.in_view.bytes / 4ul; i += gpumap_thread_count()) {
    store_f64(frame.out_view.plane[0] + 8ul * i, 2.0lf * double(load_f32(frame.in_view.plane[0] + 4ul * i)));
  }
}
)";

constexpr const char* on_gpu = "application/x-tensor(memory:GPUMap)";

class TensorChain : public testing::Test {
 protected:
  [[nodiscard]] std::string made() const { return "gpumapkernel name=before location=" + before_.path(); }
  [[nodiscard]] std::string summed() const { return "gpumapkernel name=network location=" + network_.path(); }
  [[nodiscard]] std::string doubled() const { return "gpumapkernel name=doubles location=" + doubles_.path(); }
  static std::string from_app(const std::string& rest) {
    return "appsrc name=in format=time ! gpumapupload name=up ! " + rest;
  }
  static void send(Pipeline& pipeline, const Picture& picture, std::uint64_t number) {
    ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(picture.data(), number * GST_SECOND / 30)));
  }
  /// The next one is `expected`.
  static void expect(Pipeline& pipeline, const Data& expected, const char* sink = "out") {
    const Sample sample = pull(pipeline.appsink(sink));
    ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
    GstBuffer* buffer = gst_sample_get_buffer(sample.get());
    ASSERT_EQ(gst_buffer_get_size(buffer), expected.size()) << text_of(gst_sample_get_caps(sample.get()));
    ASSERT_TRUE(data_of(buffer) == expected) << text_of(gst_sample_get_caps(sample.get()));
  }

 private:
  const KernelFile before_{before}, network_{network}, doubles_{doubles};
};

/// What went into `element`: how many frames that lay on the GPU, and the last one's memory.
class Watch {
 public:
  explicit Watch(GstElement* element, const char* pad = "sink")
      : pad_(gst_element_get_static_pad(element, pad)),
        probe_(gst_pad_add_probe(
            pad_.get(), GST_PAD_PROBE_TYPE_BUFFER,
            [](GstPad*, GstPadProbeInfo* info, gpointer watch) {
              static_cast<Watch*>(watch)->note(GST_PAD_PROBE_INFO_BUFFER(info));
              return GST_PAD_PROBE_OK;
            },
            this, nullptr)) {}
  ~Watch() { gst_pad_remove_probe(pad_.get(), probe_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  [[nodiscard]] unsigned frames() const { return frames_; }
  [[nodiscard]] bool all_on_gpu() const { return on_gpu_ == frames_; }
  [[nodiscard]] GstMemory* last() const { return last_; }
  [[nodiscard]] std::string caps() const { return text_of(Caps(gst_pad_get_current_caps(pad_.get())).get()); }

 private:
  void note(GstBuffer* buffer) {
    last_ = gst_buffer_peek_memory(buffer, 0);
    const FrameMemory* frame = frame_memory(last_);
    ++frames_;
    if (frame != nullptr && !frame->is_host()) ++on_gpu_;
  }

  Pad pad_;
  gulong probe_;
  std::atomic<unsigned> frames_{0}, on_gpu_{0};
  std::atomic<GstMemory*> last_{nullptr};
};

TEST_F(TensorChain, GoesFromKernelToKernelInGpuMemory) {
  for (const char* through : {on_gpu, "identity", "queue"}) {
    const std::string between = through;
    for (const Size& size : tensor_sizes) {
      SCOPED_TRACE(testing::Message() << between << ' ' << size.width << 'x' << size.height);
      Pipeline pipeline(
          from_app(fmt::format("{0} ! {1} ! {2} ! {1} ! {3} ! application/x-tensor ! appsink name=out sync=false",
                               made(), between, summed(), doubled())));
      const Watch first(pipeline.element("network")), second(pipeline.element("doubles"));
      gst_app_src_set_caps(pipeline.appsrc(), gray(size).get());
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      for (std::uint64_t i = 0; i < 5; ++i) {
        const Picture picture(size, 10 * i + static_cast<std::uint64_t>(size.width));
        send(pipeline, picture, i);
        expect(pipeline, picture.doubled_sums());
      }
      for (const Watch* watch : {&first, &second}) {
        EXPECT_EQ(watch->frames(), 5U);
        EXPECT_TRUE(watch->all_on_gpu());
        EXPECT_THAT(watch->caps(), HasSubstr("application/x-tensor(memory:GPUMap)"));
      }
      EXPECT_THAT(second.caps(), HasSubstr("dims=(int)< 1, " + std::to_string(size.width) + " >"));
      for (const char* gone : {"width", "layout", "channels"}) {
        EXPECT_EQ(second.caps().find(gone), std::string::npos) << second.caps();
      }
    }
  }
}

// A kernel that only looks hands on the very memory that the one before it wrote.
TEST_F(TensorChain, NothingIsCopied) {
  Pipeline pipeline(from_app(made() + " ! " + on_gpu + " ! gpumapkernel name=look kernel=checksum ! " + on_gpu +
                             " ! appsink name=out sync=false"));
  const Watch came(pipeline.element("look")), went(pipeline.element("look"), "src");
  gst_app_src_set_caps(pipeline.appsrc(), gray(tensor_sizes[0]).get());
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Picture picture(tensor_sizes[0], 3);
  send(pipeline, picture, 0);
  expect(pipeline, picture.tensor());
  EXPECT_NE(came.last(), nullptr);
  EXPECT_EQ(came.last(), went.last());
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.results().size(), 1U);
  EXPECT_EQ(pipeline.results()[0].checksum, checksum_of(picture.tensor()));
}

// One branch is a kernel, one names system memory, one downloads by DMA, and one takes anything.
TEST_F(TensorChain, ATeeFeedsKernelsAndTheCpu) {
  for (const char* plain : {"application/x-tensor ! appsink name=cpu sync=false", "appsink name=cpu sync=false",
                            "gpumapdownload ! application/x-tensor ! appsink name=cpu sync=false"}) {
    SCOPED_TRACE(plain);
    Pipeline pipeline(from_app(made() + " ! tee name=t ! queue ! " + summed() + " ! appsink name=out sync=false t. ! " +
                               "queue ! " + plain));
    const Watch kernel(pipeline.element("network"));
    gst_app_src_set_caps(pipeline.appsrc(), gray(tensor_sizes[0]).get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (std::uint64_t i = 0; i < 8; ++i) {
      const Picture picture(tensor_sizes[0], 100 + i);
      send(pipeline, picture, i);
      expect(pipeline, picture.tensor(), "cpu");
      expect(pipeline, picture.sums());
    }
    EXPECT_EQ(kernel.frames(), 8U);
    EXPECT_TRUE(kernel.all_on_gpu());
  }
}

// Tensors of other elements go in, and tensors come out, by the elements that bring them to the GPU and back.
TEST_F(TensorChain, UploadAndDownloadTakeThem) {
  struct Case {
    const char* fields;
    std::size_t bytes;
  };
  for (const Case& one :
       {Case{"type=float32,dims=(int)<1,7,3>", 84}, Case{"type=uint8,layout=hwc,channels=3,width=5,height=3", 45},
        Case{"type=float16,layout=chw,channels=7,width=5,height=3", 210}}) {
    SCOPED_TRACE(one.fields);
    const std::string caps = std::string("application/x-tensor,") + one.fields;
    Pipeline pipeline("appsrc name=in format=time caps=\"" + caps + "\" ! gpumapupload name=up ! " + on_gpu +
                      " ! gpumapkernel kernel=checksum ! " + on_gpu + " ! gpumapdownload name=down ! " +
                      "application/x-tensor ! appsink name=out sync=false");
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (std::uint64_t i = 0; i < 4; ++i) {
      const Data data = random_data(one.bytes, i);
      ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(data, i * GST_MSECOND)));
      const Sample sample = pull(pipeline.appsink());
      ASSERT_NE(sample, nullptr) << pipeline.wait(1ms);
      EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data);
      EXPECT_TRUE(gst_caps_is_equal(gst_sample_get_caps(sample.get()), new_caps(caps).get()))
          << text_of(gst_sample_get_caps(sample.get()));
    }
    gst_app_src_end_of_stream(pipeline.appsrc());
    ASSERT_EQ(pipeline.wait(), "eos");
    EXPECT_EQ(pipeline.results().size(), 4U);
    EXPECT_EQ(stat(pipeline.element("up"), "frames"), 4U);
    EXPECT_EQ(stat(pipeline.element("down"), "frames") + stat(pipeline.element("down"), "passed-frames"), 4U);
  }
}

// Fewer bytes than the dimensions take would be read from behind the tensor.
TEST_F(TensorChain, AShortTensorIsLeftOut) {
  Pipeline pipeline(
      "appsrc name=in format=time caps=\"application/x-tensor,type=float64,dims=(int)<3,5>\" ! "
      "gpumapupload ! gpumapkernel kernel=checksum ! appsink name=out sync=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const Data whole = random_data(120, 1);
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(119, 2), 0)));
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(whole, GST_MSECOND)));
  expect(pipeline, whole);
  gst_app_src_end_of_stream(pipeline.appsrc());
  ASSERT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(pipeline.warnings().size(), 1U);
  EXPECT_THAT(pipeline.warnings()[0], HasSubstr("a frame of 119 bytes where the caps say 120"));
}

TEST_F(TensorChain, CapsChange) {
  Pipeline pipeline(
      from_app(made() + " ! " + on_gpu + " ! " + summed() + " ! " + on_gpu + " ! appsink name=out sync=false"));
  const Watch kernel(pipeline.element("network"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  std::uint64_t number = 0;
  for (int round = 0; round < 2; ++round) {
    for (const Size& size : tensor_sizes) {
      SCOPED_TRACE(testing::Message() << round << ' ' << size.width << 'x' << size.height);
      gst_app_src_set_caps(pipeline.appsrc(), gray(size).get());
      for (int i = 0; i < 3; ++i) {
        const Picture picture(size, number);
        send(pipeline, picture, number++);
        expect(pipeline, picture.sums());
      }
    }
  }
  EXPECT_TRUE(kernel.all_on_gpu());
}

// What was on its way goes, and what comes afterwards is whole, from the start on: also after a restart.
TEST_F(TensorChain, FlushesAndRestarts) {
  Pipeline pipeline(from_app(made() + " ! " + on_gpu + " ! queue ! " + summed() + " ! " + on_gpu +
                             " ! queue ! appsink name=out sync=false"));
  for (int start = 0; start < 3; ++start) {
    gst_app_src_set_caps(pipeline.appsrc(), gray(tensor_sizes[0]).get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (std::uint64_t round = 0; round < 4; ++round) {
      SCOPED_TRACE(testing::Message() << "start " << start << ", round " << round);
      const Picture picture(tensor_sizes[0], 7 * round);
      send(pipeline, picture, 0);
      expect(pipeline, picture.sums());
      for (std::uint64_t i = 1; i < 4; ++i) send(pipeline, Picture(tensor_sizes[0], i), i);
      ASSERT_TRUE(gst_element_send_event(pipeline.element("in"), gst_event_new_flush_start()));
      ASSERT_TRUE(gst_element_send_event(pipeline.element("in"), gst_event_new_flush_stop(TRUE)));
      while (const Sample old = pull(pipeline.appsink(), 1ms)) continue;
    }
    pipeline.stop();
  }
}

// A seek to a picture that the chain saw before gives the same sums.
TEST_F(TensorChain, ASeekGivesTheSameTensors) {
  Pipeline pipeline(
      "videotestsrc num-buffers=60 pattern=ball animation-mode=frames ! "
      "video/x-raw,format=GRAY8,width=64,height=48,framerate=30/1 ! gpumapupload ! " +
      made() + " ! " + on_gpu + " ! " + summed() + " ! " + on_gpu + " ! appsink name=out sync=false");
  const auto tensor_at = [&](GstClockTime time) {
    EXPECT_TRUE(gst_element_seek_simple(pipeline.get(), GST_FORMAT_TIME,
                                        static_cast<GstSeekFlags>(GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_ACCURATE),
                                        static_cast<gint64>(time)));
    EXPECT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
    const Sample sample(gst_app_sink_try_pull_preroll(pipeline.appsink(), 40 * GST_SECOND));
    EXPECT_NE(sample, nullptr);
    return sample ? data_of(gst_sample_get_buffer(sample.get())) : Data();
  };
  ASSERT_TRUE(pipeline.reach(GST_STATE_PAUSED)) << pipeline.error();
  std::vector<Data> seen;
  for (const GstClockTime time : {0, 10, 25, 40}) seen.push_back(tensor_at(time * GST_SECOND / 30));
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_NE(seen[2], seen[3]);
  EXPECT_EQ(tensor_at(25 * GST_SECOND / 30), seen[2]);
  EXPECT_EQ(tensor_at(10 * GST_SECOND / 30), seen[1]);
  EXPECT_EQ(tensor_at(40 * GST_SECOND / 30), seen[3]);
}

}  // namespace
}  // namespace gpumap::gst::test
