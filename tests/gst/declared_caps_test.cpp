// SPDX-License-Identifier: MIT
// Caps of kernels that declare them with parameters, or to be converted; and kernels that see bytes alone.
#include <gmock/gmock.h>
#include <gst/video/video.h>

#include "gst/kernel/kernel_caps.hpp"
#include "gst/kernel/kernel_metas.hpp"
#include "kernel_file.hpp"
#include "result_stream.hpp"

namespace gpumap::gst::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

DeclaredCaps declared(const std::string& lines) {
  DeclaredCaps caps = caps_of(parse_declaration(lines));
  check_declared_caps(caps, "");
  return caps;
}

/// The first structure on the other side of `caps`, as text; "EMPTY" where there is none.
std::string other_side(const DeclaredCaps& kernel, GstPadDirection direction, const char* caps,
                       const std::string& params = "") {
  GstCaps* from = gst_caps_from_string(caps);
  GstCaps* made = transform_kernel_caps(kernel, params, direction, from);
  gst_caps_unref(from);
  std::string text = "EMPTY";
  if (gst_caps_is_any(made)) text = "ANY";
  if (!gst_caps_is_any(made) && !gst_caps_is_empty(made)) {
    gchar* first = gst_structure_to_string(gst_caps_get_structure(made, 0));
    text = first;
    g_free(first);
  }
  gst_caps_unref(made);
  return text;
}

std::string output_of(const DeclaredCaps& kernel, const char* caps, const std::string& params = "") {
  return other_side(kernel, GST_PAD_SINK, caps, params);
}
std::string input_of(const DeclaredCaps& kernel, const char* caps) {
  return other_side(kernel, GST_PAD_SRC, caps);
}

TEST(DeclaredCaps, HangOnParameters) {
  const DeclaredCaps kernel = declared(
      "// gpumap: params size=16,decibel=0,cut=[1,2]\n"
      "// gpumap: output application/x-rows,bins={params.size+params.cut[1]},unit={params.decibel ? decibel : power},"
      "rate={params.size/100 ? : {rate}}\n");
  const char* in = "audio/x-raw,rate=48000";
  EXPECT_THAT(output_of(kernel, in),
              AllOf(HasSubstr("bins=(int)18"), HasSubstr("unit=(string)power"), HasSubstr("rate=(int)48000")));
  EXPECT_THAT(output_of(kernel, in, "size=100,decibel=1,cut[1]=0"),
              AllOf(HasSubstr("bins=(int)100"), HasSubstr("unit=(string)decibel"), Not(HasSubstr("rate"))));
  EXPECT_THAT(output_of(kernel, in, "speed=1"), HasSubstr("bins=(int)18")) << "refused when it starts";
  EXPECT_TRUE(declared("// gpumap: params size=16\n// gpumap: output video/x-raw,width={width}\n").params.empty())
      << "others may change with the file";
}

/// What is said of such a line; empty: nothing.
std::string refusal_of(const std::string& line) {
  try {
    static_cast<void>(declared("// gpumap: " + line + "\n"));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// Frames lie in any memory that a kernel reads: which one is not the kernel's to say.
TEST(DeclaredCaps, AnInputOfOneMemoryAloneIsRefused) {
  EXPECT_THAT(refusal_of("input video/x-raw(memory:CUDAMemory),format=NV12"), HasSubstr("without (memory:CUDAMemory)"));
  EXPECT_THAT(refusal_of("input video/x-raw(format:Interlaced, memory:GPUMap)"), HasSubstr("without (memory:GPUMap)"));
  for (const char* fine : {"video/x-raw(memory:SystemMemory),format=NV12", "video/x-raw(ANY),format=NV12",
                           "video/x-raw(format:Interlaced)", "video/x-raw(memory:GPUMap);video/x-raw", "ANY"}) {
    EXPECT_EQ(refusal_of("input " + std::string(fine)), "") << fine;
  }
}

// GStreamer's parser calls itself for each bracket, those in the quotes of a structure or caps too.
TEST(DeclaredCaps, BracketsThatNestTooDeepAreRefused) {
  const auto many = [](const std::string& text, int count = 21'000) {
    std::string made;
    for (int i = 0; i < count; ++i) made += text;
    return made;
  };
  for (const std::string& line :
       {"input video/x-raw,width=" + many("{"), "input video/x-raw,width=" + many("<"),
        "input video/x-raw,width=" + many("["), "input video/x-raw,width=" + many("{1,"),
        "input video/x-raw,of=(GstCaps)\"video/x-raw,width=" + many("<") + '"',
        "input video/x-raw,of=(GstCaps)\"video/x-raw,name=\\\"}}\\\",width=" + many("<") + '"',
        "input video/x-raw,of=(GstCaps)\"video/x-raw,width=" + many("\\{") + '"',
        "output video/x-raw,width=" + many("<"), "output video/x-raw,width=" + many("["),
        "output video/x-raw,of=(GstCaps)\"video/x-raw,width=" + many("<") + '"'}) {
    EXPECT_THAT(refusal_of(line), HasSubstr("brackets in brackets")) << line.substr(0, 80);
  }
  const std::string list = "{ (int)[ 1, 2 ], 7 }";
  EXPECT_EQ(refusal_of("input video/x-raw,width=" + list + many(";video/x-raw,width=" + list, 100)), "");
  EXPECT_EQ(refusal_of("input x/y,a=" + many("<", 20) + "1" + many(">", 20)), "");
  EXPECT_EQ(refusal_of("input x/y,a=\"" + many("{", 20) + "\",b=\"" + many("{", 20) + '"'), "");
  EXPECT_EQ(refusal_of("output x/y,a=" + many("<", 20) + "{width*(1+(2))}" + many(">", 20)), "");
}

TEST(DeclaredCaps, WhatTheOutputHasOfTheInputIsAskedOfIt) {
  const DeclaredCaps iq = declared(
      "// gpumap: input audio/x-raw,format={U8,S16LE},channels=2\n"
      "// gpumap: output audio/x-raw,format=F32LE,channels=1\n");
  EXPECT_THAT(input_of(iq, "audio/x-raw,format=F32LE,channels=1,rate=48000,channel-mask=(bitmask)4"),
              AllOf(HasSubstr("rate=(int)48000"), HasSubstr("channels=(int)2"), HasSubstr("{ U8, S16LE }"),
                    Not(HasSubstr("channel-mask"))));
  EXPECT_THAT(output_of(iq, "audio/x-raw,format=U8,channels=2,rate=[1,9],channel-mask=(bitmask)3"),
              AllOf(HasSubstr("rate=(int)[ 1, 9 ]"), Not(HasSubstr("channel-mask"))));
  const DeclaredCaps pair = declared("// gpumap: output audio/x-raw,format=F32LE,channels=2\n");
  EXPECT_THAT(output_of(pair, "audio/x-raw,channels=2,channel-mask=(bitmask)3"), HasSubstr("channel-mask"));
  EXPECT_THAT(output_of(pair, "audio/x-raw,channels=3,channel-mask=(bitmask)7"), Not(HasSubstr("channel-mask")));
  const DeclaredCaps without = declared("// gpumap: output audio/x-raw,channel-mask=,channels={channels}\n");
  EXPECT_THAT(output_of(without, "audio/x-raw,channels=3,channel-mask=(bitmask)7"),
              AllOf(HasSubstr("channels=(int)3"), Not(HasSubstr("channel-mask"))));
  EXPECT_EQ(input_of(iq, "video/x-raw,width=3"), "EMPTY");
  EXPECT_THAT(input_of(iq, "ANY"), HasSubstr("channels=(int)2"));
  const DeclaredCaps rows = declared(
      "// gpumap: input audio/x-raw,rate=[1,1000]\n"
      "// gpumap: output application/x-rows,pace={rate},half={rate/2}\n");
  EXPECT_THAT(input_of(rows, "application/x-rows,pace=[900,2000],half=3"), HasSubstr("rate=(int)[ 900, 1000 ]"));
  EXPECT_EQ(input_of(rows, "application/x-rows,pace=2000"), "EMPTY");
  EXPECT_THAT(output_of(rows, "audio/x-raw,rate=[5,2000]"),
              AllOf(HasSubstr("pace=(int)[ 5, 1000 ]"), Not(HasSubstr("half"))));
}

TEST(DeclaredCaps, AFrameRateIsAskedOfPicturesAlone) {
  const DeclaredCaps drawing = declared(
      "// gpumap: input audio/x-raw,format=S16LE\n"
      "// gpumap: output video/x-raw,format=GRAY8,width=64,height=64\n");
  EXPECT_THAT(input_of(drawing, "video/x-raw,framerate=30/1"), Not(HasSubstr("framerate")));
  const DeclaredCaps smaller = declared(
      "// gpumap: input video/x-raw,format=GRAY8\n"
      "// gpumap: output video/x-raw,width={width/2}\n");
  EXPECT_THAT(input_of(smaller, "video/x-raw,framerate=30/1"), HasSubstr("framerate=(fraction)30/1"));
}

// However the line says how many channels there are.
TEST(DeclaredCaps, AMaskOfAsManyChannelsStays) {
  for (const char* six : {"6", "(int)6", "{ channels }", "{max(channels,1)}", "{params.n}", "{params.one ? 1 : 6}"}) {
    SCOPED_TRACE(six);
    const DeclaredCaps kernel =
        declared("// gpumap: params n=6,one=0\n// gpumap: output audio/x-raw,channels=" + std::string(six) + "\n");
    EXPECT_THAT(output_of(kernel, "audio/x-raw,channels=6,channel-mask=(bitmask)0x3f"), HasSubstr("channel-mask"));
    const bool by_parameters = std::string_view(six).find("params") != std::string_view::npos;
    const std::string other = output_of(kernel, "audio/x-raw,channels=6,channel-mask=(bitmask)0x3f", "n=5,one=1");
    EXPECT_EQ(other.find("channel-mask") == std::string::npos, by_parameters) << other;
  }
}

// It is the caps that come of the line that count, not how it is written.
TEST(DeclaredCaps, FieldsThatAreMadeAreNotTheInputs) {
  const char* in = "video/x-raw,format=NV12,width=320,height=240,framerate=25/1";
  EXPECT_THAT(output_of(declared("// gpumap: output video/x-raw,\twidth={width/2},\theight ={height/2}\n"), in),
              AllOf(HasSubstr("width=(int)160"), HasSubstr("height=(int)120"), HasSubstr("NV12")));
  const DeclaredCaps whole =
      declared("// gpumap: params gray=1\n// gpumap: output video/x-raw,{params.gray ? format=GRAY8 : format=RGBA}\n");
  EXPECT_THAT(output_of(whole, in), HasSubstr("GRAY8"));
  EXPECT_THAT(output_of(whole, in, "gray=0"), HasSubstr("RGBA"));
  EXPECT_THAT(output_of(declared("// gpumap: output video/x-raw;\n"), in),
              AllOf(HasSubstr("width=(int)320"), HasSubstr("NV12")));
  const DeclaredCaps type = declared(
      "// gpumap: params t=0\n// gpumap: input video/x-raw,format=GRAY8\n"
      "// gpumap: output {params.t ? application/x-tensor : video/x-raw},format=GRAY8\n");
  EXPECT_THAT(input_of(type, "video/x-raw,width=7"), AllOf(HasSubstr("GRAY8"), HasSubstr("width=(int)7")));
  EXPECT_EQ(input_of(type, "application/x-tensor"), "EMPTY");
}

TEST(DeclaredCaps, AreCheckedWithTheParametersThatAreGiven) {
  const KernelFile divided(
      "// gpumap: params n=0 in [0,8]\n// gpumap: output application/x-rows,bins={8/params.n}\nvoid main() {}\n");
  EXPECT_EQ(start_error("params=n=2 location=" + divided.path()), "");
  EXPECT_THAT(start_error("location=" + divided.path()), HasSubstr("division by zero"));
  EXPECT_THAT(start_error("params=n=9 location=" + divided.path()), HasSubstr("'n'"));
  const KernelFile typo(
      "// gpumap: params t=1\n// gpumap: output application/x-rows,bins={params.t ? 32 : {params.typo}}\n"
      "void main() {}\n");
  EXPECT_THAT(start_error("location=" + typo.path()), HasSubstr("no variable 'params.typo'"));
}

// Such a count would make bytes of the output, as large as the input, without a word.
TEST(DeclaredCaps, OfNoSizeAreRefused) {
  constexpr const char* audio = "audio/x-raw,format=F32LE,rate=48000,layout=interleaved,channels=";
  const auto check = [](const std::string& text) -> std::string {
    const Caps caps = new_caps(text);
    try {
      check_output_shape(caps.get());
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  for (const char* fine : {"application/x-tensor,type=float32,dims=(int)<1,1001>", "application/x-tensor,dims=(int)<7>",
                           "application/x-tensor,width=3,height=5,channels=3", "application/x-spectrum,bins=1001",
                           "video/x-raw,channels=0", "application/x-tensor,type=any"}) {
    EXPECT_EQ(check(fine), "") << fine;
  }
  for (const char* fine : {"1", "2", "6,channel-mask=(bitmask)0x3f", "1001,channel-mask=(bitmask)0x0"}) {
    EXPECT_EQ(check(audio + std::string(fine)), "") << fine;
  }
  const std::pair<const char*, const char*> shapes[] = {
      {"dims=(int)<0,1>", "dims=< (int)0, (int)1 >"},
      {"dims=(int)<3,-1>", "dims=< (int)3, (int)-1 >"},
      {"dims=(int)5", "dims=5"},
      {"dims=(int)<2147483647,2147483647,9>", "dims=< (int)2147483647, (int)2147483647, (int)9 >"},
      {"channels=(int)0", "channels=0"}};
  for (const auto& [shape, shown] : shapes) {
    EXPECT_THAT(check("application/x-tensor,type=float32," + std::string(shape)),
                AllOf(HasSubstr(shown), HasSubstr("line output")));
  }
  for (const char* channels : {"0", "-3", "2147483647,channel-mask=(bitmask)0x0"}) {
    EXPECT_THAT(check(audio + std::string(channels)), HasSubstr("channels=" + std::string(channels).substr(0, 2)));
  }
  EXPECT_THAT(check(audio + std::string("5")), HasSubstr("channel-mask=(bitmask)0x0"));
  EXPECT_THAT(check("application/x-spectrum,bins=0"), HasSubstr("bins=0"));
}

TEST(DeclaredCaps, OfNoSizeAreAnErrorOfTheElement) {
  const ShaderFile file(
      "// gpumap: output application/x-tensor,type=uint8,"
      "dims=(int)<{width-33},1>\nvoid main() {}\n");
  Pipeline pipeline(
      "videotestsrc num-buffers=2 ! video/x-raw,format=GRAY8,width=33,height=7 ! gpumapupload ! "
      "gpumapkernel location=" +
      file.path() + " ! fakesink");
  EXPECT_THAT(pipeline.run(), AllOf(HasSubstr("dims=< (int)0, (int)1 >"), HasSubstr("line output")));
}

TEST(DeclaredCaps, AreTheSameWhateverOtherParametersBeginWith) {
  const auto of = [](const std::string& params, const std::string& output) {
    return declared("// gpumap: params " + params + "\n// gpumap: output " + output + "\n");
  };
  EXPECT_EQ(of("gain=1", "converted"), of("gain=2 in [0,3]", "converted"));
  EXPECT_NE(of("crop=[0,0,0,0]", "converted"), of("crop=[0,0,8,8]", "converted"));
  EXPECT_NE(of("gain=1", "converted"), of("other=1", "converted"));
  EXPECT_EQ(of("a=1,b=2", "x/y,n={params.b}"), of("a=7,b=2", "x/y,n={params.b}"));
  EXPECT_NE(of("a=1,b=2", "x/y,n={params.b}"), of("a=1,b=3", "x/y,n={params.b}"));
}

// The same as the lists of formats and parameters of before.
TEST(DeclaredCaps, OfBuiltIns) {
  const auto of = [](const char* name) { return declared_caps({.kernel = name}); };
  const char* iq = "audio/x-raw,format=S8,layout=interleaved,channels=2,rate=2000000,channel-mask=(bitmask)3";
  EXPECT_EQ(output_of(of("identity"), "video/x-raw,format=NV12"), "video/x-raw, format=(string)NV12;");
  EXPECT_THAT(output_of(of("iq-to-f32"), iq),
              AllOf(HasSubstr("format=(string)F32LE"), HasSubstr("channels=(int)2"), HasSubstr("channel-mask")));
  EXPECT_THAT(output_of(of("magnitude"), iq), AllOf(HasSubstr("channels=(int)1"), Not(HasSubstr("channel-mask"))));
  EXPECT_THAT(output_of(of("ddc"), iq),
              AllOf(HasSubstr("rate=(int)[ 1, 2147483647 ]"), Not(HasSubstr("channel-mask"))));
  EXPECT_THAT(output_of(of("ddc"), iq, "rate=48000"), HasSubstr("rate=(int)48000"));
  EXPECT_THAT(output_of(of("spectrum"), iq, "size=64,db=1"),
              AllOf(HasSubstr("bins=(int)64"), HasSubstr("unit=(string)decibel"), HasSubstr("rate=(int)2000000")));
  EXPECT_THAT(output_of(of("channelizer"), iq, "channels=3,oversample=2"), HasSubstr("rate=(fraction)4000000/3"));
  EXPECT_THAT(output_of(of("channelizer"), "audio/x-raw,rate=1500000000,format=U8,channels=2", "oversample=2"),
              AllOf(HasSubstr("channels=(int)16"), Not(HasSubstr("rate"))))
      << "no fraction of 32 bits";
  EXPECT_THAT(input_of(of("spectrum"), "application/x-spectrum,rate=7,bins=1024"),
              AllOf(HasSubstr("rate=(int)7"), HasSubstr("channels=(int){ 2, 1 }")));
  EXPECT_THAT(input_of(of("ddc"), "audio/x-raw,rate=7,channel-mask=(bitmask)3"),
              AllOf(Not(HasSubstr("rate")), Not(HasSubstr("channel-mask"))));
  EXPECT_EQ(input_of(of("channelizer"), "application/x-spectrum,rate=7"), "EMPTY");
  EXPECT_TRUE(declared_caps({.kernel = "no such kernel"}).empty());
}

// Else those upstream would be asked for other input.
TEST(DeclaredCaps, OfWhatIsNeverMadeThereIsNoInput) {
  const auto of = [](const char* name) { return declared_caps({.kernel = name}); };
  EXPECT_EQ(input_of(of("spectrum"), "application/x-spectrum,rate=7,bins=3"), "EMPTY");
  EXPECT_EQ(input_of(of("fm"), "audio/x-raw,channels=2"), "EMPTY");
  EXPECT_EQ(input_of(of("ddc"), "audio/x-raw,format={S16LE,S32LE}"), "EMPTY");
  EXPECT_THAT(input_of(of("ddc"), "audio/x-raw,format={S16LE,F32LE}"), HasSubstr("audio/x-raw"));
  EXPECT_EQ(other_side(of("ddc"), GST_PAD_SRC, "audio/x-raw,rate=16000", "rate=8000"), "EMPTY");
  EXPECT_THAT(other_side(of("ddc"), GST_PAD_SRC, "audio/x-raw,rate=16000", "rate=16000"), HasSubstr("audio/x-raw"));
  EXPECT_EQ(input_of(of("convert"), "video/x-raw,format={BGR,BGRx}"), "EMPTY");
  EXPECT_THAT(input_of(of("convert"), "video/x-raw,format={BGR,RGB}"), HasSubstr("NV12"));
  EXPECT_EQ(input_of(of("convert"), "application/x-tensor,type=int8"), "EMPTY");
  EXPECT_THAT(input_of(of("convert"), "application/x-tensor,type=uint8"), HasSubstr("NV12"));
}

// Every format that the headers for kernels load, at any size, is what the built-in convert has by the same line.
constexpr const char* mean_of_corners =
    "// gpumap: params crop=[0,0,0,0]\n"
    "// gpumap: output converted\n"
    "#include <gpumap_pixels.glsl>\n#include <gpumap_color.glsl>\n#include <gpumap_tensors.glsl>\n"
    "void main() {\n"
    "  uint x = 4 * gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;\n"
    "  if (x >= frame.out_view.width || y >= frame.out_view.height) return;\n"
    "  vec4 pixel[4];\n"
    "  gpumap_load_pixels(frame.in_view, frame.in_view.format, 0u, 0u, 1u, pixel);\n"
    "  vec4 first = gpumap_in_rgb(frame.color, pixel[0]);\n"
    "  for (uint i = 0u; i < 4u; ++i) pixel[i] = first;\n"
    "  gpumap_store_pixels(frame.out_view, frame.out_view.format, x, y, min(4u, frame.out_view.width - x), pixel,\n"
    "                      vec3(0), vec3(1));\n"
    "}\n";

TEST(DeclaredCaps, AUsersKernelMayConvert) {
  const KernelFile file(mean_of_corners);
  for (const auto& [format, after, bytes] : {std::tuple{"RGB", "video/x-raw,format=GRAY8,width=8,height=3", 24U},
                                             {"NV12", "video/x-raw,format=RGBA,width=5,height=[1,2000]", 5U * 8 * 4},
                                             {"GRAY8", "application/x-tensor,type=uint8", 3U * 10 * 8}}) {
    SCOPED_TRACE(after);
    Frames frames("location=" + file.path() + " ! " + after,
                  std::string("video/x-raw,format=") + format + ",width=10,height=8,framerate=1/1");
    const Data out = frames.run(Data(320, std::byte{128}));
    EXPECT_EQ(out.size(), bytes);
  }
}

TEST(DeclaredCaps, AUsersKernelMakesYuvAsConvertDoes) {
  const KernelFile file(
      "// gpumap: output video/x-raw,format=NV12\n"
      "#include <gpumap_color.glsl>\n#include <gpumap_components.glsl>\n#include <gpumap_pixels.glsl>\n"
      "void main() {\n"
      "  uint x = 4 * gl_GlobalInvocationID.x, y = 2 * gl_GlobalInvocationID.y;\n"
      "  if (x >= frame.out_view.width || y >= frame.out_view.height) return;\n"
      "  uint count = min(4u, frame.out_view.width - x), rows = min(2u, frame.out_view.height - y);\n"
      "  vec4 pixel[2][4];\n"
      "  for (uint row = 0u; row < rows; ++row) {\n"
      "    gpumap_load_pixels(frame.in_view, frame.in_view.format, x, y + row, count, pixel[row]);\n"
      "    for (uint i = 0u; i < 4u; ++i) {\n"
      "      pixel[row][i] = gpumap_of_rgb(frame.out_color, gpumap_in_rgb(frame.color, pixel[row][i]));\n"
      "    }\n"
      "  }\n"
      "  gpumap_store_components(frame.out_view, frame.out_view.format, x, y, count, rows, pixel[0], pixel[1]);\n"
      "}\n");
  const std::string caps = "video/x-raw,format=RGB,width=11,height=7,framerate=1/1";
  const Data in = random_data(std::size_t{36} * 7, 12);
  Frames own("location=" + file.path(), caps);
  Frames convert("kernel=convert ! video/x-raw,format=NV12", caps);
  const Data made = own.run(in);
  EXPECT_EQ(made.size(), std::size_t{12} * (8 + 4));
  // What lies between the rows is no one's.
  const auto picture = [](Data bytes) {
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      const bool luma = at < std::size_t{12} * 8;
      if ((luma && at % 12 >= 11) || (luma && at >= std::size_t{12} * 7)) bytes[at] = std::byte{0};
    }
    return bytes;
  };
  EXPECT_EQ(picture(made), picture(convert.run(in)));
}

TEST(DeclaredCaps, ACropIsWhatAKernelThatConvertsShows) {
  const DeclaredCaps kernel = declared("// gpumap: params gain=1,crop=[0,0,8,0]\n// gpumap: output converted\n");
  EXPECT_EQ(crop_of(kernel, "gain=2")->width.shown_of(20), 8);
  EXPECT_EQ(crop_of(kernel, "crop=[1,2,3,4]")->height.start, 2);
  EXPECT_EQ(crop_of(kernel, "crop[2]=5")->width.length, 5);
  EXPECT_TRUE(crop_of(kernel, "crop=[-1,0,0,0]")->width.is_all());
  EXPECT_FALSE(crop_of(declared("// gpumap: params crop=[1,2,3,4]\n"), ""));
  EXPECT_THAT(output_of(kernel, "video/x-raw,format=RGB,width=20,height=10"),
              AllOf(HasSubstr("width=(int)8"), HasSubstr("height=(int)10")));
  const DeclaredCaps gray = declared("// gpumap: input video/x-raw,format=GRAY8\n// gpumap: output converted\n");
  EXPECT_EQ(output_of(gray, "video/x-raw,format=RGB,width=20,height=10"), "EMPTY");
  EXPECT_THAT(input_of(gray, "video/x-raw,format=RGBA,width=20,height=10"), HasSubstr("format=(string)GRAY8"));
  const DeclaredCaps bayer = declared("// gpumap: input video/x-bayer,format=rggb\n// gpumap: output converted\n");
  EXPECT_THAT(output_of(bayer, "ANY"), HasSubstr("format=(string){ RGBA")) << "of any";
}

// Of a picture whose rows are padded: all bytes, no width.
TEST(DeclaredCaps, AKernelMaySeeBytesAlone) {
  const KernelFile file(
      "// gpumap: view bytes\n"
      "void main() {\n"
      "  uint seen = frame.in_view.width + frame.in_view.height + frame.in_view.stride[0] + frame.in_view.format;\n"
      "  for (uint64_t i = gpumap_thread(); i < frame.out_view.bytes; i += gpumap_thread_count()) {\n"
      "    store_u8(frame.out_view.plane[0] + i, 7u + seen);\n"
      "  }\n}\n");
  Frames frames("location=" + file.path(), "video/x-raw,format=GRAY8,width=5,height=3,framerate=1/1");
  const Data out = frames.run(Data(24));
  EXPECT_EQ(out.size(), 24U);
  EXPECT_THAT(out, Each(std::byte{7 + GPUMAP_FORMAT_BYTES}));
}

// The size of an output whose caps do not tell it, by a parameter.
TEST(DeclaredCaps, BytesHangOnParameters) {
  const KernelFile file(
      "// gpumap: params more:u32=4\n"
      "// gpumap: output application/x-more\n"
      "// gpumap: bytes bytes+params.more\n"
      "void main() {}\n");
  EXPECT_EQ(Frames("location=" + file.path()).run(Data(10)).size(), 14U);
  Frames frames("location=" + file.path() + " params=more=90");
  EXPECT_EQ(frames.run(Data(10)).size(), 100U);
  g_object_set(frames.kernel(), "params", "more=1", nullptr);
  EXPECT_EQ(frames.run(Data(10)).size(), 11U);
}

// What follows a ';' would be dropped in silence.
TEST(DeclaredCaps, AnOutputHasOneKind) {
  for (const char* more : {";audio/x-raw", "; video/x-raw,format=RGBA", ";\tapplication/x-other , a = 5"}) {
    const KernelFile file(std::string("// gpumap: output video/x-raw,format=GRAY8") + more + "\nvoid main() {}\n");
    EXPECT_THAT(start_error("location=" + file.path()), HasSubstr("there is more behind the ';'")) << more;
  }
  for (const char* fine : {"", ";", " ; "}) {
    const KernelFile file(std::string("// gpumap: output video/x-raw,format=GRAY8") + fine + "\nvoid main() {}\n");
    EXPECT_EQ(start_error("location=" + file.path()), "") << fine;
  }
}

// Each kernel of a row asks the next one: were what comes of several inputs, or in several memories, there as often,
// the third one would take a minute.
TEST(DeclaredCaps, DoNotGrowFromKernelToKernel) {
  const DeclaredCaps kernels[] = {caps_of(declaration_of(*find_builtin("convert")), true),
                                  {},
                                  declared("// gpumap: output video/x-raw,width={width/2},height={height/2}\n")};
  for (const DeclaredCaps& kernel : kernels) {
    for (const GstPadDirection direction : {GST_PAD_SINK, GST_PAD_SRC}) {
      for (const char* of : {"video/x-raw", "video/x-raw,format=NV12,width=40,height=12,framerate=30/1"}) {
        Caps caps = new_caps(of);
        for (int row = 1; row <= 5; ++row) {
          caps.reset(transform_kernel_caps(kernel, "", direction, caps.get()));
          ASSERT_LE(gst_caps_get_size(caps.get()), 40U) << of << ", kernel " << row;
        }
        EXPECT_FALSE(gst_caps_is_empty(caps.get())) << of;
      }
    }
  }
  std::string row = "videotestsrc num-buffers=2 ! video/x-raw,format=NV12,width=41,height=13 ! gpumapupload ! ";
  for (int i = 0; i < 6; ++i) row += "gpumapkernel kernel=convert ! ";
  EXPECT_EQ(Pipeline(row + "fakesink").run(), "eos");
}

TEST(DeclaredCaps, AKernelMayTakeNoParameters) {
  const KernelFile none("// gpumap: params none\nvoid main() {}\n"), any("void main() {}\n");
  EXPECT_THAT(start_error("params=gain=1 location=" + none.path()), HasSubstr("no parameter 'gain': it takes none"));
  EXPECT_EQ(start_error("params=gain=1 location=" + any.path()), "");
}

}  // namespace
}  // namespace gpumap::gst::test
