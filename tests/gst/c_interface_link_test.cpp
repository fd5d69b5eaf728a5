// SPDX-License-Identifier: MIT
// gpumap.h at a socket of the elements': a client in C of a gpumapsink, a server in C of a gpumapsrc. And what the
// interface knows about caps and pictures without GStreamer, as GStreamer knows it.
#include <gmock/gmock.h>
#include <gst/audio/audio.h>

#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpumap/gpumap.h"
#include "link_sides.hpp"

namespace gpumap::gst::test {
namespace {

constexpr std::int64_t long_ns = 40'000'000'000;

std::string said(gpumap_status status) {
  return std::string(gpumap_status_name(status)) + (status < 0 ? gpumap_last_error() : "");
}
#define EXPECT_OK(call) EXPECT_EQ(said(call), "GPUMAP_OK")
#define ASSERT_OK(call) ASSERT_EQ(said(call), "GPUMAP_OK")

struct CInterfaceLink : LinkSides {
  void SetUp() override { ASSERT_OK(gpumap_device_open("auto", 0, &device)); }
  void TearDown() override { EXPECT_OK(gpumap_device_close(device)); }

  [[nodiscard]] gpumap_ring connect() const {
    auto options = GPUMAP_INIT(gpumap_connect_options);
    options.timeout_ns = long_ns;
    options.leaky = GPUMAP_LEAKY_NO;
    gpumap_ring made = nullptr;
    EXPECT_OK(gpumap_ring_connect(path.c_str(), &options, &made));
    return made;
  }
  [[nodiscard]] gpumap_ring ring(std::size_t slot_bytes) const {
    auto options = GPUMAP_INIT(gpumap_ring_options);
    options.slot_bytes = slot_bytes;
    options.transport = GPUMAP_TRANSPORT_BAR;
    gpumap_ring made = nullptr;
    EXPECT_OK(gpumap_ring_create(device, &options, &made));
    return made;
  }
  static void send(gpumap_ring ring, const Data& data, const gpumap_frame_info& info) {
    gpumap_slot slot = nullptr;
    ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &slot));
    ASSERT_OK(gpumap_slot_write(slot, 0, data.data(), data.size()));
    ASSERT_OK(gpumap_slot_publish(slot, &info, nullptr, 0));
  }
  static Data content_of(gpumap_slot slot) {
    auto info = GPUMAP_INIT(gpumap_frame_info);
    EXPECT_OK(gpumap_slot_get_frame(slot, &info));
    Data got(info.bytes);
    EXPECT_OK(gpumap_slot_read(slot, 0, got.data(), got.size()));
    return got;
  }

  gpumap_device device = nullptr;
};

TEST_F(CInterfaceLink, AClientInCReadsWhatASinkShows) {
  const Caps caps = video_caps("NV12", 66, 34);
  // As decoders have them: a value whose type is GStreamer's own.
  gst_caps_set_simple(caps.get(), "multiview-flags", GST_TYPE_VIDEO_MULTIVIEW_FLAGSET, 0U, GST_FLAG_SET_MASK_EXACT,
                      nullptr);
  const std::size_t bytes = frame_bytes(caps.get());
  Pipeline producer(from_appsrc());
  gst_app_src_set_caps(producer.appsrc(), caps.get());
  start(producer);
  push_frame(producer, 0, bytes);
  gpumap_ring far = connect();
  for (std::uint64_t number = 1; number < 20; ++number) {
    push_frame(producer, number, bytes);
    gpumap_slot slot = nullptr;
    ASSERT_OK(gpumap_ring_take(far, long_ns, &slot));
    auto info = GPUMAP_INIT(gpumap_frame_info);
    ASSERT_OK(gpumap_slot_get_frame(slot, &info));
    // The first one may have come before the client, or not.
    ASSERT_GE(info.pts, 0);
    EXPECT_EQ(content_of(slot), random_data(bytes, static_cast<std::uint64_t>(info.pts) / GST_MSECOND));
    const Caps got = new_caps(gpumap_slot_caps(slot));
    EXPECT_TRUE(gst_caps_is_equal(got.get(), caps.get())) << gpumap_slot_caps(slot);
    auto layout = GPUMAP_INIT(gpumap_layout);
    ASSERT_OK(gpumap_slot_get_layout(slot, &layout));
    EXPECT_EQ(layout.format, static_cast<std::uint32_t>(GPUMAP_FORMAT_NV12));
    EXPECT_EQ(layout.bytes, bytes);
    ASSERT_OK(gpumap_slot_release(slot, nullptr));
  }
  push_eos(producer);
  gpumap_slot slot = nullptr;
  gpumap_status status = GPUMAP_OK;
  while ((status = gpumap_ring_take(far, long_ns, &slot)) == GPUMAP_OK) EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_EQ(said(status), "GPUMAP_END");
  EXPECT_OK(gpumap_ring_close(far));
}

// Frames that grow are a new ring, which a client follows. What it holds of the last one stays.
TEST_F(CInterfaceLink, AClientInCFollowsToTheNextRing) {
  Pipeline producer(from_appsrc());
  const Caps small = video_caps("GRAY8", 64, 16);
  const Caps large = video_caps("GRAY8", 640, 480);
  gst_app_src_set_caps(producer.appsrc(), small.get());
  start(producer);
  push_frame(producer, 0, std::size_t{64} * 16);
  gpumap_ring far = connect();
  ASSERT_TRUE(eventually([&] { return clients(producer) == 1; }));
  push_frame(producer, 1, std::size_t{64} * 16);
  gpumap_slot held = nullptr;
  ASSERT_OK(gpumap_ring_take(far, long_ns, &held));
  const Data before = content_of(held);
  gst_app_src_set_caps(producer.appsrc(), large.get());
  push_frame(producer, 2, std::size_t{640} * 480);
  gpumap_slot slot = nullptr;
  auto info = GPUMAP_INIT(gpumap_frame_info);
  do {
    EXPECT_OK(gpumap_slot_release(slot, nullptr));  // null at first
    ASSERT_OK(gpumap_ring_take(far, long_ns, &slot));
    ASSERT_OK(gpumap_slot_get_frame(slot, &info));
  } while (info.pts != 2 * GST_MSECOND);
  EXPECT_EQ(content_of(slot), random_data(std::size_t{640} * 480, 2));
  auto layout = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_slot_get_layout(slot, &layout));
  EXPECT_EQ(layout.width, 640U);
  EXPECT_EQ(content_of(held), before);
  auto said_of = GPUMAP_INIT(gpumap_ring_info);
  ASSERT_OK(gpumap_ring_get_info(far, &said_of));
  EXPECT_EQ(said_of.rings, 2U);
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_slot_release(held, nullptr));
  EXPECT_OK(gpumap_ring_close(far));
}

TEST_F(CInterfaceLink, ASrcShowsWhatAServerInCPublishes) {
  gpumap_ring out = ring(100'000);
  ASSERT_OK(gpumap_ring_set_caps(out, "video/x-raw,format=RGBA,width=61,height=37,framerate=25/1"));
  gpumap_server server = nullptr;
  ASSERT_OK(gpumap_ring_serve(out, path.c_str(), nullptr, &server));
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  constexpr std::size_t bytes = std::size_t{61} * 4 * 37;
  for (std::uint64_t number = 0; number < 10; ++number) {
    auto layout = GPUMAP_INIT(gpumap_layout);
    if (number == 5) {
      ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_RGBA, 61, 37, &layout));
      layout.stride[0] = 256;
      layout.offset[0] = 64;
      ASSERT_OK(gpumap_ring_set_layout(out, &layout));
    }
    const std::size_t all = number < 5 ? bytes : 64 + std::size_t{256} * 37;
    const Data sent = random_data(all, number);
    gpumap_frame_info info = gpumap_frame_of(all);
    info.pts = static_cast<std::int64_t>(number * 40 * GST_MSECOND);
    info.duration = 40 * GST_MSECOND;
    info.offset = number;
    if (number == 3) info.flags = GST_BUFFER_FLAG_DISCONT;
    send(out, sent, info);
    const Sample sample = pull(consumer.appsink());
    ASSERT_TRUE(sample);
    GstBuffer* const buffer = gst_sample_get_buffer(sample.get());
    // An appsink takes no GstVideoMeta: the src brings rows that lie otherwise to where the caps have them.
    Data rows(sent.begin(), sent.begin() + bytes);
    for (std::size_t y = 0; y < 37 && number >= 5; ++y) {
      std::copy_n(sent.begin() + static_cast<std::ptrdiff_t>(64 + y * 256), 61 * 4,
                  rows.begin() + static_cast<std::ptrdiff_t>(y * 61 * 4));
    }
    EXPECT_EQ(data_of(buffer) == rows, true) << number;
    EXPECT_EQ(GST_BUFFER_DURATION(buffer), 40 * GST_MSECOND);
    EXPECT_EQ(GST_BUFFER_OFFSET(buffer), number);
    EXPECT_EQ(GST_BUFFER_FLAG_IS_SET(buffer, GST_BUFFER_FLAG_DISCONT) != 0, number == 0 || number == 3);
    const Caps wanted = new_caps("video/x-raw,format=RGBA,width=61,height=37,framerate=25/1");
    EXPECT_TRUE(gst_caps_can_intersect(gst_sample_get_caps(sample.get()), wanted.get()));
  }
  EXPECT_OK(gpumap_ring_end(out));
  EXPECT_EQ(consumer.wait(), "eos");
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(out));
}

// A frame of pts 0 is due when the server says that its times begin.
TEST_F(CInterfaceLink, TimesOfAServerInCBeginWhereItSays) {
  gpumap_ring out = ring(1000);
  ASSERT_OK(gpumap_ring_set_caps(out, "application/x-thing"));
  auto options = GPUMAP_INIT(gpumap_serve_options);
  // The src's pipeline starts later: its running time is smaller.
  options.base_time_ns = g_get_monotonic_time() * 1000 - 1000 * GST_SECOND;
  gpumap_server server = nullptr;
  ASSERT_OK(gpumap_ring_serve(out, path.c_str(), &options, &server));
  Pipeline consumer(to_appsink());
  ASSERT_TRUE(consumer.set_state(GST_STATE_PLAYING) != GST_STATE_CHANGE_FAILURE);
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  gpumap_frame_info info = gpumap_frame_of(100);
  info.pts = 2000 * GST_SECOND;
  send(out, random_data(100, 1), info);
  const Sample sample = pull(consumer.appsink());
  ASSERT_TRUE(sample);
  const GstSegment* const segment = gst_sample_get_segment(sample.get());
  const Pad pad(gst_element_get_static_pad(consumer.element("out"), "sink"));
  const GstClockTime running =
      gst_segment_to_running_time(segment, GST_FORMAT_TIME, GST_BUFFER_PTS(gst_sample_get_buffer(sample.get())));
  const auto due = static_cast<GstClockTimeDiff>(running + gst_element_get_base_time(consumer.get()) +
                                                 static_cast<GstClockTime>(gst_pad_get_offset(pad.get())));
  const auto wanted = static_cast<GstClockTimeDiff>(options.base_time_ns) + static_cast<GstClockTimeDiff>(info.pts);
  EXPECT_LT(std::llabs(due - wanted), 60 * GST_SECOND) << "neither 1000 s nor 2000 s beside";
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(out));
}

/// As gpumap.h writes caps that it was given.
std::string written(gpumap_ring ring, const std::string& caps) {
  EXPECT_OK(gpumap_ring_set_caps(ring, caps.c_str())) << caps;
  gpumap_slot slot = nullptr;
  EXPECT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &slot));
  EXPECT_OK(gpumap_slot_publish(slot, nullptr, nullptr, 0));
  EXPECT_OK(gpumap_ring_take(ring, long_ns, &slot));
  std::string text = gpumap_slot_caps(slot);
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  return text;
}

TEST_F(CInterfaceLink, CapsAreReadAsGStreamerReadsThem) {
  gpumap_ring own = ring(10);
  const std::string others = R"~(a/b,codec_data=(buffer)00ff7e,empty=(string)"",utf=(string)"café",)~"
                             "big=5000000000.0,path=/tmp/a.b:c";
  for (
      const std::string& text : std::initializer_list<std::string>{
          "video/x-raw",
          "video/x-raw(memory:GPUMap),format=NV12",
          "video/x-raw(memory:CUDAMemory, meta:GstVideoOverlayComposition), width=5",
          "video/x-raw, format=(string)NV12, width=(int)1920, height=(int)1080, framerate=(fraction)30000/1001",
          "audio/x-raw,rate=48000,channels=2,layout=interleaved,channel-mask=(bitmask)0x3",
          R"~(a/b,x=1.5,y=-3,z=1/2,t=true,n=no,w=word,q=(string)"two words",e=(string)"say \"so\"",u=(uint)4000000000)~",
          "a/b,i=(gint64)-9000000000,j=(guint64)18000000000000000000,f=(float)0.25,d=(double)1e300",
          "a/b,arr=(int)<1,2,3>,nest=<<1,2>,<3>>,words=(string)<a,\"b c\">",
          others,
          "a/b, spaces = (int) 7 ,  last = end",
          "a/b,hex=0x10,octal=010,negative=-0x1F,all=0xffffffff,no=08,part=0x,plus=+5,long=99999999999",
          "a/b,t=t,f=F,yes=Yes,one=(boolean)1,none=NULL,text=\"NULL\",mask=(bitmask)10,u=(uint)0x10,l=(guint64)010",
          "a/b,inf=inf,less=-inf,typed=(double)infinity,small=.5,hex=0x1p3,big=1e5",
      }) {
    const Caps wanted = new_caps(text);
    ASSERT_TRUE(wanted) << text;
    const std::string made = written(own, text);
    const Caps got = new_caps(made);
    ASSERT_TRUE(got) << made;
    EXPECT_TRUE(gst_caps_is_equal(got.get(), wanted.get())) << text << '\n' << made;
    // What it writes it reads.
    EXPECT_EQ(written(own, made), made);
  }
  for (const char* const text :
       {"video", "1video/x-raw", "video/x-raw,", "video/x-raw,width", "video/x-raw,width=", "video/x-raw,width=[1,5]",
        "video/x-raw,format={NV12,I420}", "a/b;c/d", "a/b,x=(int)y", "a/b,x=(int)3000000000", "a/b,x=(strange)1",
        "a/b,x=1,x=2", "a/b,x=max", "a/b,x=LITTLE_ENDIAN", "a/b,x=\"open", "a/b,x=\"open\\", "a/b,x=\xff",
        "a/b,x=<1,b>", "a/b,f=(fraction)1/0"}) {
    const gpumap_status status = gpumap_ring_set_caps(own, text);
    if (std::string(text) == "video") {
      EXPECT_OK(status);
    } else {
      EXPECT_EQ(gpumap_status_name(status), std::string("GPUMAP_ERROR_INVALID")) << text;
    }
  }
  EXPECT_OK(gpumap_ring_close(own));
}

// Through the bytes of the link, in both directions.
TEST_F(CInterfaceLink, CapsOfEveryKindCross) {
  const std::string text =
      "application/"
      "x-thing,i=(int)-5,u=(uint)7,l=(gint64)-9,m=(guint64)9,f=(float)0.5,d=(double)0.1,b=true,s=(string)\"a b\","
      "r=(fraction)-3/4,k=(bitmask)0xff,a=<1,2>,data=(buffer)0102";
  const Caps wanted = new_caps(text);
  Pipeline producer(from_appsrc());
  gst_app_src_set_caps(producer.appsrc(), wanted.get());
  start(producer);
  push_frame(producer, 0);
  gpumap_ring far = connect();
  push_frame(producer, 1);
  gpumap_slot slot = nullptr;
  ASSERT_OK(gpumap_ring_take(far, long_ns, &slot));
  const std::string crossed = gpumap_slot_caps(slot);
  EXPECT_TRUE(gst_caps_is_equal(new_caps(crossed).get(), wanted.get())) << crossed;
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  // Of what has no text the rest crosses.
  const Caps other = new_caps("application/x-other,width=7");
  gst_caps_set_simple(other.get(), "lines", G_TYPE_STRING, "one\ntwo", nullptr);
  gst_app_src_set_caps(producer.appsrc(), other.get());
  push_frame(producer, 2);
  ASSERT_OK(gpumap_ring_take(far, long_ns, &slot));
  EXPECT_EQ(gpumap_slot_caps(slot), std::string("application/x-other, width=(int)7"));
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_close(far));
  producer.stop();

  gpumap_ring out = ring(100);
  ASSERT_OK(gpumap_ring_set_caps(out, crossed.c_str()));
  gpumap_server server = nullptr;
  ASSERT_OK(gpumap_ring_serve(out, path.c_str(), nullptr, &server));
  Pipeline consumer(to_appsink());
  start(consumer);
  ASSERT_OK(gpumap_server_wait_for_client(server, long_ns));
  send(out, random_data(100, 1), gpumap_frame_of(100));
  const Sample sample = pull(consumer.appsink());
  ASSERT_TRUE(sample);
  EXPECT_TRUE(gst_caps_is_equal(gst_sample_get_caps(sample.get()), wanted.get()));
  EXPECT_OK(gpumap_server_close(server));
  EXPECT_OK(gpumap_ring_close(out));
}

TEST_F(CInterfaceLink, PicturesLieAsGStreamerLaysThem) {
  std::mt19937 random(1);
  constexpr std::array formats{"NV12",      "I420", "YUY2", "UYVY",      "RGB",       "BGR",
                               "RGBA",      "BGRA", "v210", "P010_10LE", "Y210",      "GRAY8",
                               "GRAY16_LE", "Y42B", "Y444", "I420_10LE", "Y444_10LE", "P016_LE"};
  for (const char* const name : formats) {
    for (int turn = 0; turn < 50; ++turn) {
      const int width = static_cast<int>(random() % (turn < 25 ? 20 : 2000)) + 1;
      const int height = static_cast<int>(random() % (turn < 25 ? 20 : 2000)) + 1;
      constexpr std::array modes{"progressive", "interleaved", "mixed"};
      const std::string caps = std::string("video/x-raw,format=") + name + ",width=" + std::to_string(width) +
                               ",height=" + std::to_string(height) +
                               ",interlace-mode=" + modes[random() % modes.size()];
      GstVideoInfo wanted;
      ASSERT_TRUE(gst_video_info_from_caps(&wanted, new_caps(caps).get())) << caps;
      auto layout = GPUMAP_INIT(gpumap_layout);
      ASSERT_OK(gpumap_layout_of_caps(caps.c_str(), &layout));
      ASSERT_EQ(layout.planes, GST_VIDEO_INFO_N_PLANES(&wanted)) << caps;
      EXPECT_EQ(layout.bytes, wanted.size) << caps;
      for (guint plane = 0; plane < layout.planes; ++plane) {
        ASSERT_EQ(layout.stride[plane], wanted.stride[plane]) << caps;
        ASSERT_EQ(layout.offset[plane], wanted.offset[plane]) << caps;
      }
    }
  }
  auto layout = GPUMAP_INIT(gpumap_layout);
  for (const char* const unknown : {"video/x-raw,format=AYUV64,width=5,height=5",
                                    "video/x-raw,format=NV12,width=5,height=5,interlace-mode=alternate",
                                    "audio/x-raw,format=S16LE,channels=2,rate=44100,layout=non-interleaved"}) {
    EXPECT_EQ(gpumap_layout_of_caps(unknown, &layout), GPUMAP_ERROR_NOT_SUPPORTED) << unknown;
  }
  ASSERT_OK(gpumap_layout_of_caps("video/x-bayer,format=rggb12le,width=5,height=4", &layout));
  EXPECT_EQ(layout.stride[0], 16);
  EXPECT_EQ(layout.bytes, 64U);
  ASSERT_OK(gpumap_layout_of_caps("application/x-tensor,width=5,height=4,type=float16,layout=hwc", &layout));
  EXPECT_EQ(layout.stride[0], 30);
  ASSERT_OK(gpumap_layout_of_caps("application/x-tensor,width=5,height=4", &layout));
  EXPECT_EQ(layout.planes, 3U);
  EXPECT_EQ(layout.offset[2], 160U);
  ASSERT_OK(gpumap_layout_of_caps("audio/x-raw,format=S16LE,channels=2,rate=44100", &layout));
  EXPECT_EQ(layout.channels, 2U);
  EXPECT_EQ(gpumap_layout_of_picture(GPUMAP_FORMAT_NV12, 0, 5, &layout), GPUMAP_ERROR_INVALID);
  EXPECT_EQ(gpumap_layout_of_picture(GPUMAP_FORMAT_U8, 5, 5, &layout), GPUMAP_ERROR_INVALID);
}

// Colours, depth and fields are as the caps say: what a kernel makes of a frame is what gpumapkernel makes of it.
TEST_F(CInterfaceLink, PicturesAreReadAsGpumapkernelReadsThem) {
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.builtin = "convert";
  gpumap_kernel kernel = nullptr;
  ASSERT_OK(gpumap_kernel_open(device, &options, &kernel));
  const struct {
    std::string caps, out;
    std::uint64_t highest;  ///< value of 16 bits; 0: any byte
  } cases[] = {
      {"video/x-raw,format=NV12,width=68,height=34", "RGBA", 0},
      {"video/x-raw,format=NV12,width=68,height=34,colorimetry=bt709", "RGBA", 0},
      {"video/x-raw,format=I420,width=68,height=34,colorimetry=(string)1:4:0:0", "RGB", 0},
      {"video/x-raw,format=I420,width=68,height=34,colorimetry=(string)1:0:0:0", "RGB", 0},
      {"video/x-raw,format=NV12,width=68,height=600,colorimetry=bt601", "RGBA", 0},
      {"video/x-raw,format=YUY2,width=68,height=34,colorimetry=smpte240m", "RGBA", 0},
      {"video/x-raw,format=Y42B,width=68,height=34,colorimetry=(string)2:2:5:3", "RGBA", 0},
      {"video/x-raw,format=UYVY,width=68,height=34,colorimetry=bt2100-pq", "RGBA", 0},
      {"video/x-raw,format=Y444,width=68,height=34,colorimetry=sRGB", "RGBA", 0},
      {"video/x-raw,format=GRAY8,width=68,height=34,colorimetry=(string)2:4:0:0", "RGBA", 0},
      {"video/x-raw,format=RGB,width=68,height=34,colorimetry=(string)2:1:7:1", "RGBA", 0},
      {"video/x-raw,format=GRAY8,width=68,height=34,colorimetry=(string)2:1:0:0", "RGBA", 0},
      {"video/x-raw,format=RGBA,width=68,height=34,colorimetry=bt709", "GRAY8", 0},
      {"video/x-raw,format=RGBA,width=68,height=34,colorimetry=(string)2:6:0:0", "BGRA", 0},
      {"video/x-raw,format=RGB,width=68,height=34", "NV12,colorimetry=(string)1:3:5:1", 0},
      {"video/x-raw,format=P010_10LE,width=68,height=34,colorimetry=bt2020-10", "RGBA", 0},
      {"video/x-raw,format=NV12,width=68,height=34,interlace-mode=interleaved", "RGBA", 0},
      {"video/x-raw,format=I420,width=68,height=36,interlace-mode=interleaved", "RGBA", 0},
      {"video/x-raw,format=NV12,width=68,height=36,interlace-mode=mixed", "RGBA", 0},
      {"video/x-bayer,format=rggb10le,width=68,height=34", "RGBA", 1023},
      {"video/x-bayer,format=gbrg12le,width=68,height=34", "RGBA", 4095},
      {"video/x-bayer,format=bggr16le,width=68,height=34", "RGBA", 65535},
  };
  for (const auto& [caps, out, highest] : cases) {
    SCOPED_TRACE(testing::Message() << caps << " to " << out);
    auto in = GPUMAP_INIT(gpumap_layout), made = GPUMAP_INIT(gpumap_layout);
    ASSERT_OK(gpumap_layout_of_caps(caps.c_str(), &in));
    std::string out_caps = "video/x-raw,format=" + out + ",width=68,height=" + std::to_string(in.height);
    if (in.interlace != 0) out_caps += caps.substr(caps.rfind(",interlace-mode"));
    ASSERT_OK(gpumap_layout_of_caps(out_caps.c_str(), &made));
    Data data = random_data(in.bytes, in.bytes);
    for (std::size_t at = 0; highest != 0 && at < data.size(); at += 2) {
      const unsigned value = (std::to_integer<unsigned>(data[at]) + 256 * std::to_integer<unsigned>(data[at + 1])) %
                             static_cast<unsigned>(highest + 1);
      data[at] = static_cast<std::byte>(value % 256);
      data[at + 1] = static_cast<std::byte>(value / 256);
    }
    Pipeline pipeline("appsrc name=in format=time ! gpumapupload ! gpumapkernel kernel=convert ! " + out_caps +
                      " ! appsink name=out sync=false");
    gst_app_src_set_caps(pipeline.appsrc(), new_caps(caps + ",framerate=30/1").get());
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push(pipeline.appsrc(), new_buffer(data));
    const Sample sample = pull(pipeline.appsink());
    ASSERT_TRUE(sample) << pipeline.wait();

    gpumap_memory input = nullptr, output = nullptr;
    ASSERT_OK(gpumap_memory_alloc(device, data.size(), nullptr, &input));
    ASSERT_OK(gpumap_memory_write(input, 0, data.data(), data.size()));
    auto run = GPUMAP_INIT(gpumap_run_options);
    run.memory = input;
    run.layout = &in;
    run.out = &made;
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
    Data got(gpumap_memory_bytes(output));
    EXPECT_OK(gpumap_memory_read(output, 0, got.data(), got.size()));
    EXPECT_TRUE(got == data_of(gst_sample_get_buffer(sample.get())));
    EXPECT_OK(gpumap_memory_free(output));
    EXPECT_OK(gpumap_memory_free(input));
  }
  EXPECT_OK(gpumap_kernel_close(kernel));
}

// The layout that a producer of GStreamer's says beside its caps tells nothing of colours.
TEST_F(CInterfaceLink, AClientInCHearsOfColoursAndFields) {
  const Caps caps = new_caps(
      "video/x-raw,format=NV12,width=66,height=36,framerate=30/"
      "1,colorimetry=(string)1:3:5:1,interlace-mode=interleaved");
  Pipeline producer(from_appsrc());
  gst_app_src_set_caps(producer.appsrc(), caps.get());
  start(producer);
  GstVideoInfo lies;
  ASSERT_TRUE(gst_video_info_from_caps(&lies, caps.get()));
  const std::size_t bytes = lies.size + 640;
  for (std::uint64_t number = 0; number < 3; ++number) {
    Buffer frame(new_buffer(random_data(bytes, number)));
    std::array<gsize, GST_VIDEO_MAX_PLANES> offset{0, lies.offset[1] + 640};
    std::array<gint, GST_VIDEO_MAX_PLANES> stride{lies.stride[0], lies.stride[1]};
    gst_buffer_add_video_meta_full(frame.get(), GST_VIDEO_FRAME_FLAG_NONE, GST_VIDEO_FORMAT_NV12, 66, 36, 2,
                                   offset.data(), stride.data());
    push(producer.appsrc(), std::move(frame));
  }
  gpumap_ring far = connect();
  push(producer.appsrc(), new_buffer(random_data(bytes, 3)));
  gpumap_slot slot = nullptr;
  ASSERT_OK(gpumap_ring_take(far, long_ns, &slot));
  auto layout = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_slot_get_layout(slot, &layout));
  EXPECT_EQ(layout.matrix, static_cast<std::uint32_t>(GST_VIDEO_COLOR_MATRIX_BT709));
  EXPECT_EQ(layout.range, static_cast<std::uint32_t>(GST_VIDEO_COLOR_RANGE_0_255));
  EXPECT_EQ(layout.interlace, static_cast<std::uint32_t>(GST_VIDEO_INTERLACE_MODE_INTERLEAVED));
  EXPECT_OK(gpumap_slot_release(slot, nullptr));
  EXPECT_OK(gpumap_ring_close(far));
}

}  // namespace
}  // namespace gpumap::gst::test
