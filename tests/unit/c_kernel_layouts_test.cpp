// SPDX-License-Identifier: MIT
// How a kernel of gpumap.h finds what it reads, and what it writes: layouts of the caller, of the kernel's file and of
// built-in kernels.
#include "c_kernel.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace gpumap::test {
namespace {

TEST_F(CKernel, AnOutputMayBeginBehindTheStartOfItsMemory) {
  gpumap_kernel kernel = builtin("convert");
  auto in = GPUMAP_INIT(gpumap_layout);
  auto out = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_RGBA, 67, 35, &in));
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_BGRA, 67, 35, &out));
  const std::uint64_t picture = out.bytes, before = 5'000'012;
  out.offset[0] = before;
  out.bytes += before;
  gpumap_memory input = this->memory(in.bytes);
  const auto sent = random_frame(in.bytes, 8);
  ASSERT_OK(gpumap_memory_write(input, 0, sent.data(), sent.size()));
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  run.layout = &in;
  run.out = &out;
  for (const std::uint32_t to_host : {0U, 1U}) {
    run.to_host = to_host;
    gpumap_memory output = nullptr;
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
    const auto got = content_of_memory(output);
    ASSERT_EQ(got.size(), before + picture);
    for (std::size_t at = 0; at < sent.size(); at += 4) {
      for (const std::size_t color : {0U, 1U, 2U}) {
        ASSERT_EQ(got[before + at + color], sent[at + 2 - color]) << at << ' ' << color;
      }
    }
    EXPECT_OK(gpumap_memory_free(output));
  }
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

// CUDA ends a context where a kernel reads a number that does not begin at a multiple of its size.
TEST_F(CKernel, SamplesMayBeginAnywhereInTheirMemory) {
  const std::string name = folder_.path() / "where";
  const std::string lines = "// gpumap: results at=u64\n";
  std::ofstream(name + ".cu") << "#include <gpumap/kernel.h>\n"
                              << lines
                              << "extern \"C\" __global__ void where(gpumap_frame frame) {\n"
                                 "  *(gpumap_u64*)frame.result = 8 + frame.in.plane[0] % 8;\n}\n";
  std::ofstream(name + ".comp") << "#version 460\n#include <gpumap.glsl>\n"
                                << lines
                                << "void main() { store_u64(frame.result, 8ul + frame.in_view.plane[0] % 8ul); }\n";
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = name.c_str();
  gpumap_kernel where = open(options), floats = builtin("iq-to-f32");
  const auto sent = random_frame(10'007, 1);
  gpumap_memory input = this->memory(sent.size());
  ASSERT_OK(gpumap_memory_write(input, 0, sent.data(), sent.size()));
  auto layout = GPUMAP_INIT(gpumap_layout);
  layout.format = GPUMAP_FORMAT_F32;
  layout.channels = 2;
  layout.rate = 48000;
  for (const std::uint64_t offset : {0, 1, 6, 8}) {
    auto run = GPUMAP_INIT(gpumap_run_options);
    run.memory = input;
    run.layout = &layout;
    run.offset = offset;
    run.bytes = 4000;
    gpumap_memory output = nullptr;
    ASSERT_OK(gpumap_kernel_run(where, &run, &output));
    EXPECT_OK(gpumap_memory_free(output));
    std::vector<std::uint64_t> words(GPUMAP_RESULT_WORDS);
    ASSERT_OK(gpumap_kernel_result(where, words.data(), GPUMAP_RESULT_WORDS, long_ns));
    EXPECT_EQ(words[0], 8U) << offset;
    ASSERT_OK(gpumap_kernel_run(floats, &run, &output));
    const auto begin = sent.begin() + static_cast<std::ptrdiff_t>(offset);
    EXPECT_EQ(content_of_memory(output), std::vector<unsigned char>(begin, begin + 4000)) << offset;
    EXPECT_OK(gpumap_memory_free(output));
  }
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(where));
  EXPECT_OK(gpumap_kernel_close(floats));
}

TEST_F(CKernel, ConvertsAPictureWhoseLayoutComesWithIt) {
  gpumap_kernel kernel = builtin("convert");
  constexpr std::uint32_t width = 66;
  constexpr std::uint32_t height = 34;
  auto in = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_NV12, width, height, &in));
  gpumap_ring ring = this->ring(in.bytes, 3);
  ASSERT_OK(gpumap_ring_set_caps(ring, "video/x-raw,format=NV12,width=66,height=34"));
  std::vector<unsigned char> gray(in.bytes, 128);  // chroma in the middle: no colour
  for (std::size_t at = 0; at < in.offset[1]; ++at) gray[at] = static_cast<unsigned char>(16 + at % 220);
  send(ring, gray);
  auto out = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_RGBA, width, height, &out));
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.out = &out;
  ASSERT_OK(gpumap_ring_take(ring, 0, &run.slot));
  gpumap_memory output = nullptr;
  ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
  const auto got = content_of_memory(output);
  ASSERT_EQ(got.size(), out.bytes);
  for (std::uint32_t y = 0; y < height; ++y) {
    for (std::uint32_t x = 0; x < width; ++x) {
      const int luma = gray[y * static_cast<std::uint32_t>(in.stride[0]) + x];
      const unsigned char* const pixel = &got[std::size_t{y * width + x} * 4];
      ASSERT_NEAR(pixel[0], (luma - 16) * 255.0 / 219, 1.0) << x << ',' << y;
      ASSERT_NEAR(pixel[1], pixel[0], 1);
      ASSERT_NEAR(pixel[2], pixel[0], 1);
      ASSERT_EQ(pixel[3], 255);
    }
  }
  EXPECT_OK(gpumap_memory_free(output));
  EXPECT_OK(gpumap_slot_release(run.slot, nullptr));
  EXPECT_OK(gpumap_ring_close(ring));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

// Chroma before luma is as good as behind it.
TEST_F(CKernel, TheFirstPlaneOfAnOutputMayLieLast) {
  gpumap_kernel kernel = builtin("convert");
  constexpr std::uint32_t size = 64;
  auto in = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_RGBA, size, size, &in));
  auto out = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_NV12, size, size, &out));
  gpumap_memory input = this->memory(in.bytes);
  const auto picture = random_frame(in.bytes, 5);
  ASSERT_OK(gpumap_memory_write(input, 0, picture.data(), picture.size()));
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  run.layout = &in;
  run.out = &out;
  const auto converted = [&] {
    gpumap_memory output = nullptr;
    EXPECT_OK(gpumap_kernel_run(kernel, &run, &output));
    auto content = content_of_memory(output);
    EXPECT_OK(gpumap_memory_free(output));
    return content;
  };
  auto usual = converted();
  ASSERT_EQ(usual.size(), out.bytes);
  std::rotate(usual.begin(), usual.begin() + static_cast<std::ptrdiff_t>(out.offset[1]), usual.end());
  out.offset[0] = out.bytes - out.offset[1];
  out.offset[1] = 0;
  EXPECT_EQ(converted(), usual);
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

TEST_F(CKernel, AnInputLineIsCheckedAgainstTheLayout) {
  const auto picture = [](std::uint32_t format, std::uint32_t width, std::uint32_t height) {
    auto layout = GPUMAP_INIT(gpumap_layout);
    EXPECT_OK(gpumap_layout_of_picture(format, width, height, &layout));
    return layout;
  };
  const auto samples = [](std::uint32_t channels, std::uint32_t rate) {
    auto layout = GPUMAP_INIT(gpumap_layout);
    layout.format = GPUMAP_FORMAT_S16;
    layout.channels = channels;
    layout.rate = rate;
    return layout;
  };
  const gpumap_layout gray = picture(GPUMAP_FORMAT_GRAY8, 65, 33), nv12 = picture(GPUMAP_FORMAT_NV12, 64, 32),
                      bayer = picture(GPUMAP_FORMAT_BAYER8_RGGB, 64, 32), iq = samples(2, 48000), mono = samples(1, 0),
                      bytes = GPUMAP_INIT(gpumap_layout);
  const struct {
    const char* input;
    std::vector<const gpumap_layout*> taken, refused;
  } cases[] = {
      {"video/x-raw,format=GRAY8", {&gray, &bytes}, {&nv12, &bayer, &iq}},
      {"video/x-raw, format = (string) { NV12, \"GRAY8\" }, width=[ 1, 64 ]", {&nv12}, {&gray, &mono}},
      {"video/x-raw(memory:GPUMap, meta:x),height=33;audio/x-raw,channels={2,4}", {&gray, &iq}, {&nv12, &mono}},
      {"audio/x-raw,format=S16LE,rate=[44100,max]", {&iq, &mono}, {&gray}},
      {"audio/x-raw,rate=(int)44100;video/x-bayer", {&mono, &bayer}, {&iq, &nv12}},
      {"image/x-mine,width=7", {&gray, &iq}, {}},
  };
  gpumap_memory input = this->memory(8192);
  for (const auto& [line, taken, refused] : cases) {
    SCOPED_TRACE(line);
    const std::string file = adder("// gpumap: input " + std::string(line) + "\n");
    auto options = GPUMAP_INIT(gpumap_kernel_options);
    options.file = file.c_str();
    gpumap_kernel kernel = open(options);
    auto run = GPUMAP_INIT(gpumap_run_options);
    run.memory = input;
    gpumap_memory output = nullptr;
    for (const gpumap_layout* layout : refused) {
      run.layout = layout;
      expect_error(gpumap_kernel_run(kernel, &run, &output), GPUMAP_ERROR_INVALID, "is not one of them");
    }
    for (const gpumap_layout* layout : taken) {
      run.layout = layout;
      EXPECT_OK(gpumap_kernel_run(kernel, &run, &output));
      EXPECT_OK(gpumap_memory_free(output));
    }
    EXPECT_OK(gpumap_kernel_close(kernel));
  }
  EXPECT_OK(gpumap_memory_free(input));
}

// Rows of chroma by field may be one more than progressive ones: without room for them nothing behind the frame is
// read.
TEST_F(CKernel, FieldsWithoutRoomAreReadAsPictures) {
  gpumap_kernel kernel = builtin("convert");
  auto in = GPUMAP_INIT(gpumap_layout), out = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_caps("video/x-raw,format=I420,width=16,height=6,interlace-mode=interleaved", &in));
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_RGBA, 16, 6, &out));
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.bytes = in.bytes - 8;
  run.layout = &in;
  run.out = &out;
  auto content = random_frame(4096, 3);
  std::vector<std::vector<unsigned char>> seen;
  for (const auto behind : std::vector<unsigned char>{0, 255}) {
    std::fill(content.begin() + static_cast<std::ptrdiff_t>(run.bytes), content.end(), behind);
    run.memory = this->memory(content.size());
    ASSERT_OK(gpumap_memory_write(run.memory, 0, content.data(), content.size()));
    gpumap_memory output = nullptr;
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
    seen.push_back(content_of_memory(output));
    EXPECT_OK(gpumap_memory_free(output));
    EXPECT_OK(gpumap_memory_free(run.memory));
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_OK(gpumap_kernel_close(kernel));
}

TEST_F(CKernel, AnotherVersionIsCheckedAgainstTheLayoutToo) {
  const std::string file = adder("// gpumap: input video/x-raw,format=GRAY8\n");
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = file.c_str();
  options.flags = GPUMAP_KERNEL_RELOAD;
  gpumap_kernel kernel = open(options);
  auto gray = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_GRAY8, 33, 17, &gray));
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = this->memory(gray.bytes);
  run.layout = &gray;
  gpumap_memory output = nullptr;
  EXPECT_OK(gpumap_kernel_run(kernel, &run, &output));
  EXPECT_OK(gpumap_memory_free(output));
  static_cast<void>(adder("// gpumap: input video/x-raw,format=NV12\n"));
  gpumap_status status = GPUMAP_OK;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
       status == GPUMAP_OK && std::chrono::steady_clock::now() < end;) {
    status = gpumap_kernel_run(kernel, &run, &output);
    if (status == GPUMAP_OK) {
      EXPECT_OK(gpumap_memory_free(output));
    }
  }
  expect_error(status, GPUMAP_ERROR_INVALID, "is not one of them");
  expect_error(gpumap_kernel_run(kernel, &run, &output), GPUMAP_ERROR_INVALID, "is not one of them");
  auto nv12 = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_NV12, 16, 8, &nv12));
  run.layout = &nv12;
  EXPECT_OK(gpumap_kernel_run(kernel, &run, &output));
  EXPECT_OK(gpumap_memory_free(output));
  EXPECT_OK(gpumap_memory_free(run.memory));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

// An address that lies anywhere would be read.
TEST_F(CKernel, SamplesAndBytesHaveNoPlanes) {
  gpumap_memory input = this->memory(1001);
  gpumap_kernel samples = builtin("iq-to-f32");
  for (const std::uint32_t format : {GPUMAP_FORMAT_BYTES, GPUMAP_FORMAT_F32}) {
    auto layout = GPUMAP_INIT(gpumap_layout);
    layout.format = format;
    layout.channels = 2;
    layout.rate = 48000;
    layout.planes = 1;
    layout.offset[0] = std::uint64_t{1} << 40;
    auto run = GPUMAP_INIT(gpumap_run_options);
    run.memory = input;
    run.layout = &layout;
    gpumap_memory output = nullptr;
    expect_error(gpumap_kernel_run(samples, &run, &output), GPUMAP_ERROR_INVALID, "leave planes 0");
    gpumap_layout planeless = layout;
    planeless.format = GPUMAP_FORMAT_F32;
    planeless.planes = 0;
    run.layout = &planeless;
    run.out = &layout;
    expect_error(gpumap_kernel_run(samples, &run, &output), GPUMAP_ERROR_INVALID, "leave planes 0");
  }
  EXPECT_OK(gpumap_kernel_close(samples));
  EXPECT_OK(gpumap_memory_free(input));
}

TEST_F(CKernel, ABuiltInRefusesWhatItDoesNotTake) {
  const auto layout_of = [](std::uint32_t format) {
    auto layout = GPUMAP_INIT(gpumap_layout);
    if (gpumap_layout_of_picture(format, 64, 32, &layout) != GPUMAP_OK) layout.format = format;
    layout.channels = layout.rate = format == GPUMAP_FORMAT_S16 ? 2 : 0;
    return layout;
  };
  gpumap_memory input = this->memory(8192);
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  gpumap_memory output = nullptr;
  const std::pair<std::uint32_t, std::uint32_t> refused[] = {
      {GPUMAP_FORMAT_BYTES, GPUMAP_FORMAT_RGBA},  {GPUMAP_FORMAT_RGBA, GPUMAP_FORMAT_BYTES},
      {GPUMAP_FORMAT_BYTES, GPUMAP_FORMAT_BYTES}, {GPUMAP_FORMAT_S16, GPUMAP_FORMAT_RGBA},
      {GPUMAP_FORMAT_RGBA, GPUMAP_FORMAT_S16},    {GPUMAP_FORMAT_RGBA, GPUMAP_FORMAT_UYVY},
      {GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_BGR},    {GPUMAP_FORMAT_NV12, GPUMAP_FORMAT_V210},
      {GPUMAP_FORMAT_RGB_U8, GPUMAP_FORMAT_RGBA}};
  gpumap_kernel convert = builtin("convert");
  for (const auto& [from, to] : refused) {
    const gpumap_layout in = layout_of(from), out = layout_of(to);
    run.layout = &in;
    run.out = &out;
    expect_error(gpumap_kernel_run(convert, &run, &output), GPUMAP_ERROR_INVALID, "kernel convert: from");
  }
  // The next that it takes goes on.
  const gpumap_layout rgba = layout_of(GPUMAP_FORMAT_RGBA), gray = layout_of(GPUMAP_FORMAT_GRAY8);
  run.layout = &rgba;
  run.out = &gray;
  ASSERT_OK(gpumap_kernel_run(convert, &run, &output));
  EXPECT_EQ(gpumap_memory_bytes(output), gray.bytes);
  EXPECT_OK(gpumap_memory_free(output));
  EXPECT_OK(gpumap_kernel_close(convert));
  for (const char* name : {"iq-to-f32", "iq-power"}) {
    gpumap_kernel samples = builtin(name);
    for (const gpumap_layout* none : {static_cast<const gpumap_layout*>(nullptr), &rgba}) {
      run.layout = none;
      run.out = nullptr;
      expect_error(gpumap_kernel_run(samples, &run, &output), GPUMAP_ERROR_INVALID, "takes audio/x-raw,");
    }
    auto mono = layout_of(GPUMAP_FORMAT_S16);
    mono.channels = 1;
    run.layout = &mono;
    if (std::string_view(name) == "iq-power") {
      expect_error(gpumap_kernel_run(samples, &run, &output), GPUMAP_ERROR_INVALID, "with 1 channels");
    } else {
      EXPECT_OK(gpumap_kernel_run(samples, &run, &output));
      EXPECT_OK(gpumap_memory_free(output));
    }
    EXPECT_OK(gpumap_kernel_close(samples));
  }
  EXPECT_OK(gpumap_memory_free(input));
}

// Where the caller does not say how the output lies, the kernel does.
TEST_F(CKernel, AnOutputIsAsTheKernelDeclaresIt) {
  const std::vector<unsigned char> sent{255, 0, 0, 255, 128, 127, 1, 254};
  gpumap_memory input = memory(sent.size());
  ASSERT_OK(gpumap_memory_write(input, 0, sent.data(), sent.size()));
  auto samples = GPUMAP_INIT(gpumap_layout);
  samples.format = GPUMAP_FORMAT_U8;
  samples.channels = 2;
  samples.rate = 48000;
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  run.layout = &samples;
  run.to_host = 1;
  for (const auto& [name, values] : {std::pair{"iq-to-f32", sent.size()}, {"iq-power", sent.size() / 2}}) {
    gpumap_kernel kernel = builtin(name);
    gpumap_memory output = nullptr;
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
    ASSERT_EQ(gpumap_memory_bytes(output), values * sizeof(float)) << name;
    float last = 0;
    EXPECT_OK(gpumap_memory_read(output, (values - 1) * sizeof last, &last, sizeof last));
    const float quadrature = (254 - 127.5F) / 127.5F, in_phase = (1 - 127.5F) / 127.5F;
    EXPECT_FLOAT_EQ(last, values == sent.size() ? quadrature : in_phase * in_phase + quadrature * quadrature);
    EXPECT_OK(gpumap_memory_free(output));
    EXPECT_OK(gpumap_kernel_close(kernel));
  }
  const std::string name = adder("// gpumap: output video/x-raw,format=GRAY8,width={width/params.add},height=1\n");
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = name.c_str();
  gpumap_kernel kernel = open(options);
  auto gray = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_GRAY8, 4, 2, &gray));
  run.layout = &gray;
  gpumap_memory output = nullptr;
  ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
  EXPECT_EQ(gpumap_memory_bytes(output), 4U);
  EXPECT_OK(gpumap_memory_free(output));
  for (const auto& [params, words] : {std::pair{"add=0", "division by zero"}, {"add=5", "width=(int)0"}}) {
    ASSERT_OK(gpumap_kernel_set_params(kernel, params));
    run.out = nullptr;
    expect_error(gpumap_kernel_run(kernel, &run, &output), GPUMAP_ERROR_INVALID, words);
    // Where the caller says how it lies, the line does not count.
    run.out = &gray;
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
    EXPECT_EQ(gpumap_memory_bytes(output), gray.bytes) << params;
    EXPECT_OK(gpumap_memory_free(output));
  }
  EXPECT_OK(gpumap_kernel_close(kernel));
  EXPECT_OK(gpumap_memory_free(input));
}

// As in GStreamer: what the line leaves open is the input's, and it is as large as its caps say.
TEST_F(CKernel, WhatADeclaredOutputLeavesOpenIsTheInputs) {
  const std::string name = folder_.path() / "made";
  const auto write = [&name](const std::string& output) {
    const std::string lines =
        "// gpumap: output " + output + "\n// gpumap: results format=u64,width=u64,height=u64,channels=u64,rate=u64\n";
    std::ofstream(name + ".cu") << "#include <gpumap/kernel.h>\n"
                                << lines
                                << "extern \"C\" __global__ void made(gpumap_frame frame) {\n"
                                   "  if (blockIdx.x != 0 || threadIdx.x != 0) return;\n"
                                   "  gpumap_u64* told = (gpumap_u64*)frame.result;\n"
                                   "  told[0] = frame.out.format;\n  told[1] = frame.out.width;\n"
                                   "  told[2] = frame.out.height;\n  told[3] = frame.out.channels;\n"
                                   "  told[4] = frame.out.rate;\n}\n";
    std::ofstream(name + ".comp") << "#version 460\n#include <gpumap.glsl>\n"
                                  << lines
                                  << "void main() {\n  if (gpumap_thread() != 0) return;\n"
                                     "  const gpumap_view made = frame.out_view;\n"
                                     "  store_u64(frame.result, uint64_t(made.format));\n"
                                     "  store_u64(frame.result + 8ul, uint64_t(made.width));\n"
                                     "  store_u64(frame.result + 16ul, uint64_t(made.height));\n"
                                     "  store_u64(frame.result + 24ul, uint64_t(made.channels));\n"
                                     "  store_u64(frame.result + 32ul, uint64_t(made.rate));\n}\n";
  };
  auto bytes = GPUMAP_INIT(gpumap_layout), gray = bytes, tensor = bytes, iq = bytes;
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_GRAY8, 8, 4, &gray));
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_RGB_U8, 2, 3, &tensor));
  iq.format = GPUMAP_FORMAT_S16;
  iq.channels = 2;
  iq.rate = 48000;
  using Told = std::vector<std::uint64_t>;
  const struct {
    const char* output;
    const gpumap_layout* in;
    std::size_t bytes;
    Told told;
  } cases[] = {
      {"audio/x-raw,format=F32LE,channels={channels},channel-mask=,rate={rate}",
       &iq,
       64,
       {GPUMAP_FORMAT_F32, 0, 0, 2, 48000}},
      {"audio/x-raw,format=F32LE", &iq, 64, {GPUMAP_FORMAT_F32, 0, 0, 2, 48000}},
      {"audio/x-raw,channels=1,rate=[1,max];", &iq, 16, {GPUMAP_FORMAT_S16, 0, 0, 1, 48000}},
      {"audio/x-raw,channels=1,rate=(int)[1,44100]", &iq, 16, {GPUMAP_FORMAT_S16, 0, 0, 1, 0}},
      {"audio/x-raw,format=F32LE,channels={channels}", &bytes, 32, {GPUMAP_FORMAT_BYTES, 0, 0, 0, 0}},
      {"application/x-spectrum,format=F32LE,bins=5,rate={rate}", &iq, 160, {GPUMAP_FORMAT_F32, 0, 0, 5, 0}},
      {"application/x-tensor,dims=(int)<1,1000>,type=float32", &gray, 4000, {GPUMAP_FORMAT_BYTES, 0, 0, 0, 0}},
      {"application/x-tensor,type=int16,dims=(int)<2,{height}>", &gray, 16, {GPUMAP_FORMAT_BYTES, 0, 0, 0, 0}},
      {"application/x-tensor,dims=<2,{width}>,type=uint8", &gray, 16, {GPUMAP_FORMAT_BYTES, 0, 0, 0, 0}},
      {"application/x-tensor,dims=<7>", &bytes, 28, {GPUMAP_FORMAT_BYTES, 0, 0, 0, 0}},
      {"application/x-tensor,type=float32,width={width*2}", &tensor, 144, {GPUMAP_FORMAT_RGB_F32, 4, 3, 0, 0}},
      {"video/x-raw,format=RGBA", &gray, 128, {GPUMAP_FORMAT_RGBA, 8, 4, 0, 0}},
      {"video/x-raw,width={width/2}", &gray, 16, {GPUMAP_FORMAT_GRAY8, 4, 4, 0, 0}},
      {"video/x-raw,\twidth ={width/2},\theight={height/2};", &gray, 8, {GPUMAP_FORMAT_GRAY8, 4, 2, 0, 0}},
      {"video/x-raw,format=RGBA,width=", &gray, 32, {GPUMAP_FORMAT_GRAY8, 8, 4, 0, 0}},
      {"video/x-raw,format=RGBA", &iq, 32, {GPUMAP_FORMAT_S16, 0, 0, 2, 48000}},
      {"application/x-mine,width=3", &gray, 32, {GPUMAP_FORMAT_BYTES, 0, 0, 0, 0}},
      {"video/x-raw,format=GRAY8,width={widht/2},height={height}", &gray, 0, {}},
      {"video/x-raw,format=NONE", &gray, 0, {}},
      {"video/x-raw,format=RGBA,width=[16,4096]", &gray, 0, {}},
      {"video/x-raw,format", &gray, 0, {}},
      {"application/x-tensor,dims=<1,0>", &gray, 0, {}},
      {"application/x-tensor,dims=7", &gray, 0, {}},
  };
  gpumap_memory input = this->memory(32);
  for (const auto& [output_caps, in, size, told] : cases) {
    SCOPED_TRACE(output_caps);
    write(output_caps);
    auto options = GPUMAP_INIT(gpumap_kernel_options);
    options.file = name.c_str();
    gpumap_kernel kernel = open(options);
    auto run = GPUMAP_INIT(gpumap_run_options);
    run.memory = input;
    run.layout = in;
    gpumap_memory output = nullptr;
    if (told.empty()) {
      expect_error(gpumap_kernel_run(kernel, &run, &output), GPUMAP_ERROR_INVALID, "its output caps \"");
      expect_error(gpumap_kernel_run(kernel, &run, &output), GPUMAP_ERROR_INVALID, "`out` of gpumap_run_options");
    } else {
      EXPECT_OK(gpumap_kernel_run(kernel, &run, &output));
      EXPECT_EQ(gpumap_memory_bytes(output), size);
      EXPECT_OK(gpumap_memory_free(output));
      Told words(GPUMAP_RESULT_WORDS);
      EXPECT_OK(gpumap_kernel_result(kernel, words.data(), GPUMAP_RESULT_WORDS, long_ns));
      words.resize(told.size());
      EXPECT_EQ(words, told);
    }
    EXPECT_OK(gpumap_kernel_close(kernel));
  }
  // The built-in that was refused its own output.
  gpumap_kernel ddc = builtin("ddc", "rate=24000");
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  run.layout = &iq;
  gpumap_memory output = nullptr;
  EXPECT_OK(gpumap_kernel_run(ddc, &run, &output));
  EXPECT_OK(gpumap_memory_free(output));
  EXPECT_OK(gpumap_kernel_close(ddc));
  EXPECT_OK(gpumap_memory_free(input));
}

}  // namespace
}  // namespace gpumap::test
