// SPDX-License-Identifier: MIT
// Kernels of gpumap.h, on memory and on slots: in CUDA where the device has it, else in Vulkan.
#include "c_kernel.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpumap/device.hpp"
#include "gpumap/fence.hpp"
#include "gpumap/kernel.hpp"
#include "gpumap/queue.hpp"

namespace gpumap::test {
namespace {

using namespace std::chrono_literals;

TEST_F(CKernel, RunsAFileOnMemoryAndOnSlots) {
  const std::string file = adder();
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = file.c_str();
  options.params = "add=5";
  gpumap_kernel kernel = open(options);
  auto info = GPUMAP_INIT(gpumap_kernel_info);
  ASSERT_OK(gpumap_kernel_get_info(kernel, &info));
  EXPECT_NE(info.backend, 0U);
  const auto sent = random_frame(10'007, 1);
  gpumap_memory input = this->memory(sent.size());
  ASSERT_OK(gpumap_memory_write(input, 0, sent.data(), sent.size()));
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  gpumap_memory output = nullptr;
  ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
  ASSERT_NE(output, nullptr);
  EXPECT_OK(gpumap_memory_wait(output, nullptr, long_ns));
  EXPECT_EQ(content_of_memory(output), plus(sent, 5));
  // What came out goes in, though it is given back at once and another kernel's memory.
  run.memory = output;
  gpumap_memory second = nullptr;
  ASSERT_OK(gpumap_kernel_set_params(kernel, "add=100"));
  ASSERT_OK(gpumap_kernel_run(kernel, &run, &second));
  EXPECT_OK(gpumap_memory_free(output));
  EXPECT_EQ(content_of_memory(second), plus(sent, 105));
  EXPECT_OK(gpumap_memory_free(second));
  // A part, to host memory.
  run.memory = input;
  run.offset = 101;
  run.bytes = 500;
  run.to_host = 1;
  ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
  auto at = GPUMAP_INIT(gpumap_memory_info);
  ASSERT_OK(gpumap_memory_get_info(output, &at));
  EXPECT_EQ(at.bytes, 500U);
  EXPECT_EQ(at.cpu_readable, 1U);
  const auto* const host = static_cast<const unsigned char*>(at.host);
  EXPECT_EQ(std::vector<unsigned char>(host, host + 500), plus({sent.begin() + 101, sent.begin() + 601}, 100));
  EXPECT_OK(gpumap_memory_free(output));
  run.offset = 9'600;
  expect_error(gpumap_kernel_run(kernel, &run, &output), GPUMAP_ERROR_INVALID, "ends behind");
  EXPECT_EQ(output, nullptr);
  // A slot is free when the kernel is done with it.
  gpumap_ring ring = this->ring(3000, 2);
  for (unsigned number = 0; number < 20; ++number) {
    const auto frame = random_frame(3000 - number, number);
    send(ring, frame);
    auto of_slot = GPUMAP_INIT(gpumap_run_options);
    ASSERT_OK(gpumap_ring_take(ring, 0, &of_slot.slot));
    of_slot.offset = number;
    ASSERT_OK(gpumap_kernel_run(kernel, &of_slot, &output));
    EXPECT_OK(gpumap_slot_release(of_slot.slot, nullptr));
    EXPECT_EQ(content_of_memory(output), plus({frame.begin() + number, frame.end()}, 100));
    EXPECT_OK(gpumap_memory_free(output));
  }
  ASSERT_OK(gpumap_kernel_get_info(kernel, &info));
  EXPECT_EQ(info.frames, 23U);
  EXPECT_EQ(info.result_words, 0U);
  EXPECT_OK(gpumap_ring_close(ring));
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

TEST_F(CKernel, TellsResultsInOrder) {
  gpumap_kernel kernel = builtin("checksum");
  auto info = GPUMAP_INIT(gpumap_kernel_info);
  ASSERT_OK(gpumap_kernel_get_info(kernel, &info));
  ASSERT_GT(info.result_words, 1U);
  std::vector<std::uint64_t> words(info.result_words);
  expect_error(gpumap_kernel_result(kernel, words.data(), info.result_words, 0), GPUMAP_ERROR_INVALID, "run it first");
  std::vector<std::uint64_t> wanted;
  for (const std::size_t bytes : {1000, 77, 5000}) {
    const auto sent = random_frame(bytes, static_cast<unsigned>(bytes));
    wanted.push_back(checksum(std::as_bytes(std::span(sent))));
    gpumap_memory input = this->memory(bytes);
    ASSERT_OK(gpumap_memory_write(input, 0, sent.data(), bytes));
    auto run = GPUMAP_INIT(gpumap_run_options);
    run.memory = input;
    gpumap_memory output = nullptr;
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
    EXPECT_EQ(output, nullptr) << "it leaves its input as it is";
    EXPECT_OK(gpumap_memory_free(input));
  }
  for (const std::uint64_t one : wanted) {
    ASSERT_OK(gpumap_kernel_result(kernel, words.data(), info.result_words, long_ns));
    EXPECT_EQ(words[0], one);
  }
  expect_error(gpumap_kernel_result(kernel, words.data(), 1, 0), GPUMAP_ERROR_INVALID, "room");
  expect_error(gpumap_kernel_result(kernel, nullptr, info.result_words, 0), GPUMAP_ERROR_INVALID, "words are to go");
  EXPECT_OK(gpumap_kernel_close(kernel));
  kernel = builtin("identity");
  expect_error(gpumap_kernel_result(kernel, nullptr, 0, 0), GPUMAP_ERROR_INVALID, "identity tells no results");
  expect_error(gpumap_kernel_result(kernel, words.data(), 1, 0), GPUMAP_ERROR_INVALID, "identity tells no results");
  EXPECT_OK(gpumap_kernel_close(kernel));
}

// Those of the last launches, so that memory does not grow where none is asked for.
TEST_F(CKernel, ForgetsOldResultsThatNobodyAsksFor) {
  gpumap_kernel kernel = builtin("checksum");
  auto info = GPUMAP_INIT(gpumap_kernel_info);
  ASSERT_OK(gpumap_kernel_get_info(kernel, &info));
  constexpr std::size_t runs = 1500, kept = 1024, under_way = 64;
  const auto sent = random_frame(8 * runs + 64, 7);
  gpumap_memory input = this->memory(sent.size());
  ASSERT_OK(gpumap_memory_write(input, 0, sent.data(), sent.size()));
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  run.bytes = 64;
  std::vector<std::uint64_t> wanted, got, words(info.result_words);
  for (std::size_t i = 0; i < runs; ++i) {
    run.offset = 8 * i;
    wanted.push_back(checksum(std::as_bytes(std::span(sent).subspan(run.offset, run.bytes))));
    gpumap_memory output = nullptr;
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
  }
  while (gpumap_kernel_result(kernel, words.data(), info.result_words, long_ns) == GPUMAP_OK) got.push_back(words[0]);
  expect_error(gpumap_kernel_result(kernel, words.data(), info.result_words, 0), GPUMAP_ERROR_INVALID, "run it first");
  ASSERT_GE(got.size(), kept);
  ASSERT_LE(got.size(), kept + under_way);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.end() - static_cast<std::ptrdiff_t>(got.size())));
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

// What a kernel keeps from frame to frame is as new where a stream begins, or some of it is missing.
TEST_F(CKernel, WhereFramesDoNotFollowAllBeginsAnew) {
  const std::string name = folder_.path() / "follows";
  const auto write = [&name](const std::string& version) {
    const std::string lines =
        "// gpumap: state 16\n// gpumap: history 1\n// gpumap: results count=u64,flags=u64,past=u64,version=u64\n";
    std::ofstream(name + ".cu") << "#include <gpumap/kernel.h>\n"
                                << lines
                                << "extern \"C\" __global__ void follows(gpumap_frame frame) {\n"
                                   "  if (blockIdx.x != 0 || threadIdx.x != 0) return;\n"
                                   "  gpumap_u64* told = (gpumap_u64*)frame.result;\n"
                                   "  told[0] = ++*(gpumap_u64*)frame.state;\n  told[1] = frame.flags;\n"
                                   "  told[2] = frame.past_count;\n  told[3] = " +
                                       version + ";\n}\n";
    std::ofstream(name + ".comp") << "#version 460\n#include <gpumap.glsl>\n"
                                  << lines
                                  << "void main() {\n  if (gpumap_thread() != 0) return;\n"
                                     "  const uint64_t count = load_u64(frame.state) + 1ul;\n"
                                     "  store_u64(frame.state, count);\n  store_u64(frame.result, count);\n"
                                     "  store_u64(frame.result + 8ul, uint64_t(frame.flags));\n"
                                     "  store_u64(frame.result + 16ul, uint64_t(frame.past_count));\n"
                                     "  store_u64(frame.result + 24ul, " +
                                         version + "ul);\n}\n";
  };
  write("1");
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = name.c_str();
  options.flags = GPUMAP_KERNEL_RELOAD;
  gpumap_kernel kernel = open(options);
  const auto told = [&](const gpumap_run_options& run) {
    gpumap_memory output = nullptr;
    EXPECT_OK(gpumap_kernel_run(kernel, &run, &output));
    EXPECT_OK(gpumap_memory_free(output));
    std::vector<std::uint64_t> words(GPUMAP_RESULT_WORDS);
    EXPECT_OK(gpumap_kernel_result(kernel, words.data(), GPUMAP_RESULT_WORDS, long_ns));
    words.resize(4);
    return words;
  };
  using Words = std::vector<std::uint64_t>;
  const Words first{1, GPUMAP_FRAME_GAP, 0, 1}, second{2, 0, 1, 1};
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = this->memory(64);
  EXPECT_EQ(told(run), first);
  EXPECT_EQ(told(run), second);
  run.gap = 1;
  EXPECT_EQ(told(run), first) << "a gap";
  run.gap = 0;
  EXPECT_EQ(told(run), second);
  auto layout = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_GRAY8, 8, 8, &layout));
  run.layout = &layout;
  EXPECT_EQ(told(run), first) << "another layout";
  EXPECT_EQ(told(run), second);
  gpumap_ring ring = this->ring(64, 3);
  auto of_slot = GPUMAP_INIT(gpumap_run_options);
  of_slot.layout = &layout;
  for (const std::uint32_t flags : {64U, 0U}) {
    gpumap_slot slot = nullptr;
    ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
    gpumap_frame_info info = gpumap_frame_of(64);
    info.flags = flags;
    ASSERT_OK(gpumap_slot_publish(slot, &info, nullptr, 0));
    ASSERT_OK(gpumap_ring_take(ring, 0, &of_slot.slot));
    EXPECT_EQ(told(of_slot), flags != 0 ? first : second) << "a slot with flags " << flags;
    EXPECT_OK(gpumap_slot_release(of_slot.slot, nullptr));
  }
  EXPECT_OK(gpumap_ring_close(ring));
  write("2");
  Words words;
  const auto end = std::chrono::steady_clock::now() + 60s;
  do words = told(run);
  while (words[3] != 2 && std::chrono::steady_clock::now() < end);
  EXPECT_EQ(words, (Words{1, GPUMAP_FRAME_GAP, 0, 2})) << "loaded again";
  EXPECT_EQ(told(run), (Words{2, 0, 1, 2}));
  EXPECT_OK(gpumap_memory_free(run.memory));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

TEST_F(CKernel, ATableIsLoadedAgainWhenItsFileChanges) {
  const std::string name = folder_.path() / "table", file = folder_.path() / "table.bin";
  const auto put = [&](const std::string& content) {
    std::ofstream(file + ".new") << content;
    std::filesystem::rename(file + ".new", file);
  };
  put("a");
  const std::string lines = "// gpumap: table letters uint8\n// gpumap: results first=u64,count=u64\n";
  std::ofstream(name + ".cu") << "#include <gpumap/kernel.h>\n"
                              << lines
                              << "extern \"C\" __global__ void table(gpumap_frame frame) {\n"
                                 "  if (blockIdx.x != 0 || threadIdx.x != 0) return;\n"
                                 "  gpumap_u64* told = (gpumap_u64*)frame.result;\n"
                                 "  told[0] = *(const unsigned char*)frame.tables[0].address;\n"
                                 "  told[1] = frame.tables[0].count;\n}\n";
  std::ofstream(name + ".comp") << "#version 460\n#include <gpumap.glsl>\n"
                                << lines
                                << "void main() {\n  if (gpumap_thread() != 0) return;\n"
                                   "  store_u64(frame.result, uint64_t(load_u8(frame.tables[0].address)));\n"
                                   "  store_u64(frame.result + 8ul, frame.tables[0].count);\n}\n";
  const std::string declare = "table letters=" + file;
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = name.c_str();
  options.declare = declare.c_str();
  gpumap_kernel kernel = open(options);
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = this->memory(64);
  gpumap_memory output = nullptr;
  const auto told = [&] {
    EXPECT_OK(gpumap_kernel_run(kernel, &run, &output));
    EXPECT_OK(gpumap_memory_free(output));
    std::vector<std::uint64_t> words(GPUMAP_RESULT_WORDS);
    EXPECT_OK(gpumap_kernel_result(kernel, words.data(), GPUMAP_RESULT_WORDS, long_ns));
    return std::pair(words[0], words[1]);
  };
  const std::pair before(std::uint64_t{'a'}, std::uint64_t{1}), after(std::uint64_t{'b'}, std::uint64_t{2});
  EXPECT_EQ(told(), before);
  put("bc");
  auto now = before;
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (now == before && std::chrono::steady_clock::now() < end) now = told();
  EXPECT_EQ(now, after);
  // A table that cannot be used fails one call.
  put("");
  gpumap_status status = GPUMAP_OK;
  while (status == GPUMAP_OK && std::chrono::steady_clock::now() < end) {
    status = gpumap_kernel_run(kernel, &run, &output);
    if (status != GPUMAP_OK) break;
    EXPECT_OK(gpumap_memory_free(output));
  }
  expect_error(status, GPUMAP_ERROR_INVALID, "is empty");
  std::vector<std::uint64_t> words(GPUMAP_RESULT_WORDS);
  while (gpumap_kernel_result(kernel, words.data(), GPUMAP_RESULT_WORDS, long_ns) == GPUMAP_OK) {
  }
  EXPECT_EQ(told(), after) << "the previous one stays";
  EXPECT_OK(gpumap_memory_free(run.memory));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

TEST_F(CKernel, AGapLeavesOutTheSampleThatWasCutOff) {
  gpumap_kernel kernel = builtin("iq-to-f32");
  auto samples = GPUMAP_INIT(gpumap_layout);
  samples.format = GPUMAP_FORMAT_F32;
  samples.channels = 1;
  samples.rate = 48000;
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.layout = &samples;
  run.memory = memory(8);
  const std::string sent = "abcdefgh";
  ASSERT_OK(gpumap_memory_write(run.memory, 0, sent.data(), sent.size()));
  struct Frame {
    std::uint64_t bytes;
    std::uint32_t gap;
    std::string given;
  };
  const Frame frames[] = {{6, 0, "abcd"}, {8, 0, "efabcdef"}, {8, 1, "abcdefgh"}, {4, 0, "abcd"}};
  for (const auto& [bytes, gap, given] : frames) {
    run.bytes = bytes;
    run.gap = gap;
    gpumap_memory output = nullptr;
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
    const auto got = content_of_memory(output);
    EXPECT_EQ(std::string(got.begin(), got.end()), given);
    EXPECT_OK(gpumap_memory_free(output));
  }
  EXPECT_OK(gpumap_memory_free(run.memory));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

TEST_F(CKernel, WaitsForWhatFillsItsInput) {
  const std::string file = adder();
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = file.c_str();
  gpumap_kernel kernel = open(options);
  gpumap_memory input = this->memory(1000);
  alignas(8) std::uint64_t reached = 0;
  const gpumap_fence filled = gpumap_counter_fence(&reached, 1);
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  run.after = &filled;
  run.timeout_ns = 1'000'000;
  gpumap_memory output = nullptr;
  EXPECT_EQ(gpumap_kernel_run(kernel, &run, &output), GPUMAP_TIMEOUT);
  const auto sent = random_frame(1000, 1);
  run.timeout_ns = long_ns;
  auto waits = std::async(std::launch::async, [&] { return gpumap_kernel_run(kernel, &run, &output); });
  std::this_thread::sleep_for(50ms);
  // Others have the kernel meanwhile.
  auto info = GPUMAP_INIT(gpumap_kernel_info);
  EXPECT_OK(gpumap_kernel_get_info(kernel, &info));
  EXPECT_OK(gpumap_kernel_set_params(kernel, ""));
  EXPECT_NE(waits.wait_for(0s), std::future_status::ready);
  EXPECT_OK(gpumap_memory_write(input, 0, sent.data(), sent.size()));
  __atomic_store_n(&reached, 1, __ATOMIC_RELEASE);
  ASSERT_OK(waits.get());
  EXPECT_EQ(content_of_memory(output), plus(sent, 1));
  EXPECT_OK(gpumap_memory_free(output));
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

// A slot that one thread gives back while another one launches on it is free when that kernel has read it.
TEST_F(CKernel, ASlotIsKeptForACallThatIsUnderWay) {
  gpumap_kernel kernel = builtin("identity");
  gpumap_ring ring = this->ring(3000, 2);
  const auto sent = random_frame(3000, 1);
  send(ring, sent);
  alignas(8) std::uint64_t reached = 0;
  const gpumap_fence filled = gpumap_counter_fence(&reached, 1);
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.after = &filled;
  run.timeout_ns = long_ns;
  ASSERT_OK(gpumap_ring_take(ring, 0, &run.slot));
  gpumap_memory output = nullptr;
  std::thread runs([&] { EXPECT_OK(gpumap_kernel_run(kernel, &run, &output)); });
  std::this_thread::sleep_for(100ms);  // it waits for what fills the slot
  EXPECT_OK(gpumap_slot_release(run.slot, nullptr));
  expect_error(gpumap_slot_release(run.slot, nullptr), GPUMAP_ERROR_INVALID, "given back");
  gpumap_slot other = nullptr, same = nullptr;
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &other));
  EXPECT_EQ(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &same), GPUMAP_FULL);
  __atomic_store_n(&reached, 1, __ATOMIC_RELEASE);
  runs.join();
  EXPECT_EQ(content_of_memory(output), sent);
  EXPECT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, long_ns, &same));
  EXPECT_OK(gpumap_memory_free(output));
  EXPECT_OK(gpumap_slot_release(other, nullptr));
  EXPECT_OK(gpumap_slot_release(same, nullptr));
  EXPECT_OK(gpumap_ring_close(ring));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

// What one thread gives back unpublished, another one that comes meanwhile does not publish.
TEST_F(CKernel, ASlotThatIsGivenBackIsNotPublished) {
  gpumap_ring ring = this->ring(100, 2);
  gpumap_slot slot = nullptr;
  ASSERT_OK(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, 0, &slot));
  alignas(8) std::uint64_t reached = 0;
  const gpumap_fence filled = gpumap_counter_fence(&reached, 1);
  std::thread gives([&] { EXPECT_OK(gpumap_slot_release(slot, &filled)); });
  std::this_thread::sleep_for(100ms);  // it waits for what fills the slot
  std::thread publishes([&] { EXPECT_EQ(gpumap_slot_publish(slot, nullptr, nullptr, long_ns), GPUMAP_ERROR_INVALID); });
  std::this_thread::sleep_for(100ms);  // it waits for the other call
  __atomic_store_n(&reached, 1, __ATOMIC_RELEASE);
  gives.join();
  publishes.join();
  gpumap_slot taken = nullptr;
  EXPECT_EQ(gpumap_ring_take(ring, 0, &taken), GPUMAP_TIMEOUT);
  EXPECT_OK(gpumap_ring_close(ring));
}

// The kernel does not end until the CPU says so.
/// A kernel that waits until the first byte of its input is not 0. The name without its extension.
std::string write_waiting(const std::filesystem::path& folder, bool has_result = true) {
  std::string name = folder / "waits";
  // lavapipe leaves a loop after 65535 turns: millions of threads take minutes all the same.
  const std::string lines = "// gpumap: block 256\n// gpumap: grid 65535\n";
  std::ofstream(name + ".cu") << "#include <gpumap/kernel.h>\n"
                              << lines
                              << "extern \"C\" __global__ void waits(gpumap_frame frame) {\n"
                                 "  while (*(const volatile unsigned char*)frame.in.plane[0] == 0) {}\n"
                              << (has_result ? "  *(volatile gpumap_u64*)frame.result = 3;\n}\n" : "}\n");
  std::ofstream(name + ".comp") << "#version 460\n#include <gpumap.glsl>\n"
                                << lines
                                << "layout(buffer_reference, scalar) volatile buffer Word { uint value; };\n"
                                   "void main() {\n  Word word = Word(frame.in_view.plane[0]);\n"
                                   "  for (uint i = 0u; i < 65000u && atomicOr(word.value, 0u) == 0u; ++i) {}\n"
                                << (has_result ? "  Word(frame.result).value = 3u;\n}\n" : "}\n");
  return name;
}

TEST_F(CKernel, AnswersInTimeWhereTheKernelDoesNotEnd) {
  const std::string name = write_waiting(folder_.path());
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = name.c_str();
  gpumap_kernel kernel = open(options);
  gpumap_memory input = this->memory(1000);
  const std::vector<unsigned char> zeros(1000);
  EXPECT_OK(gpumap_memory_write(input, 0, zeros.data(), zeros.size()));
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  run.timeout_ns = 50'000'000;
  gpumap_memory output = nullptr;
  for (const std::uint32_t to_host : {1U, 0U}) {  // the CPU waits for results as well
    run.to_host = to_host;
    EXPECT_EQ(gpumap_kernel_run(kernel, &run, &output), GPUMAP_TIMEOUT) << to_host;
    EXPECT_EQ(output, nullptr);
  }
  // The wait for another thread's call counts: each answers within its own timeout.
  std::vector<std::uint64_t> told(32);
  const auto result = [&](std::int64_t timeout_ns) {
    return gpumap_kernel_result(kernel, told.data(), static_cast<std::uint32_t>(told.size()), timeout_ns);
  };
  std::thread other([&] {
    auto long_run = run;
    gpumap_memory made = nullptr;
    long_run.timeout_ns = long_ns;
    EXPECT_OK(gpumap_kernel_run(kernel, &long_run, &made));
    EXPECT_OK(gpumap_memory_free(made));
  });
  std::this_thread::sleep_for(50ms);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(gpumap_kernel_run(kernel, &run, &output), GPUMAP_TIMEOUT);
    EXPECT_EQ(result(10'000'000), GPUMAP_TIMEOUT);
  }
  static_cast<unsigned char*>(gpumap_memory_host(input))[0] = 1;
  EXPECT_OK(gpumap_memory_flush(input, 0, 1));
  other.join();
  run.timeout_ns = long_ns;
  ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
  EXPECT_OK(gpumap_kernel_result(kernel, told.data(), static_cast<std::uint32_t>(told.size()), long_ns));
  EXPECT_EQ(told[0], 3U);
  EXPECT_OK(gpumap_memory_free(output));
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

/// Work that waits behind all that was launched before, in Vulkan, where kernels run one after the other.
class Behind {
 public:
  Behind() {
    queue_->copy(*from_, 0, *to_, 0, bytes);
    fence_ = queue_->submit();
  }
  [[nodiscard]] WorkAhead ahead() const { return fence_.timeline()->ahead_of(fence_.value()); }
  [[nodiscard]] bool ends() const { return fence_.wait_for(60s) == WaitResult::ready; }

 private:
  static constexpr std::size_t bytes = 64;
  std::shared_ptr<Device> device_ = Device::open();
  std::shared_ptr<Mapping> from_ = device_->allocate({.placement = Placement::host, .bytes = bytes}, Backend::vulkan);
  std::shared_ptr<Mapping> to_ = device_->allocate({.placement = Placement::host, .bytes = bytes}, Backend::vulkan);
  std::shared_ptr<Queue> queue_ = device_->create_queue(Backend::vulkan);
  Fence fence_;
};

/// A kernel that waits, in Vulkan, and its inputs.
class CWaitingKernel : public CKernel {
 protected:
  gpumap_kernel open_waiting(bool has_result) {
    const std::string name = write_waiting(folder_.path(), has_result);
    auto options = GPUMAP_INIT(gpumap_kernel_options);
    options.file = name.c_str();
    options.backend = GPUMAP_BACKEND_VULKAN;
    return open(options);
  }
  gpumap_memory holding() {
    gpumap_memory input = this->memory(1000);
    const std::vector<unsigned char> zeros(1000);
    EXPECT_OK(gpumap_memory_write(input, 0, zeros.data(), zeros.size()));
    return input;
  }
  static void let_go(gpumap_memory input) {
    static_cast<unsigned char*>(gpumap_memory_host(input))[0] = 1;
    EXPECT_OK(gpumap_memory_flush(input, 0, 1));
  }
};

// Others wait in silence for what a call still waits for.
TEST_F(CWaitingKernel, ThatOutlastsItsCallIsToldOf) {
  gpumap_kernel kernel = open_waiting(true);
  gpumap_memory input = holding();
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  run.timeout_ns = 1;
  gpumap_memory output = nullptr;
  ASSERT_EQ(gpumap_kernel_run(kernel, &run, &output), GPUMAP_TIMEOUT);
  const Behind behind;
  const Deadline patience = Clock::now() + 60s;
  while (behind.ahead() != WorkAhead::endless && Clock::now() < patience) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(behind.ahead(), WorkAhead::endless);
  let_go(input);
  EXPECT_TRUE(behind.ends());
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

TEST_F(CWaitingKernel, ThatIsAwaitedForEverIsNotToldOf) {
  gpumap_kernel kernel = open_waiting(false);
  const std::array inputs{holding(), holding()};
  std::array<gpumap_memory, 2> outputs{};
  auto run = GPUMAP_INIT(gpumap_run_options);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    run.memory = inputs.at(i);
    run.timeout_ns = i == 0 ? 1 : GPUMAP_FOREVER;
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &outputs.at(i)));
  }
  const Behind behind;
  let_go(inputs[0]);
  std::this_thread::sleep_for(2500ms);
  EXPECT_EQ(behind.ahead(), WorkAhead::awaited);
  let_go(inputs[1]);
  EXPECT_TRUE(behind.ends());
  for (gpumap_memory memory : outputs) EXPECT_OK(gpumap_memory_free(memory));
  for (gpumap_memory memory : inputs) EXPECT_OK(gpumap_memory_free(memory));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

// A file that is changed meanwhile: another version comes when the one that runs has ended, and nobody waits for it.
TEST_F(CKernel, AnswersInTimeWhereAChangedKernelDoesNotEnd) {
  const std::string name = folder_.path() / "holds";
  const auto write = [&name](const std::string& gives) {
    // lavapipe leaves a loop after 65535 turns: a million threads take long all the same.
    const std::string lines = "// gpumap: view bytes\n// gpumap: block 256\n// gpumap: grid 4096\n";
    std::ofstream(name + ".cu") << "#include <gpumap/kernel.h>\n"
                                << lines
                                << "extern \"C\" __global__ void holds(gpumap_frame frame) {\n"
                                   "  while (*(const volatile unsigned char*)frame.in.plane[0] == 0) {}\n"
                                   "  *(volatile unsigned char*)frame.out.plane[0] = " +
                                       gives + ";\n}\n";
    std::ofstream(name + ".comp") << "#version 460\n#include <gpumap.glsl>\n"
                                  << lines
                                  << "layout(buffer_reference, scalar) volatile buffer Word { uint value; };\n"
                                     "void main() {\n  Word word = Word(frame.in_view.plane[0]);\n"
                                     "  for (uint i = 0u; i < 65000u && atomicOr(word.value, 0u) == 0u; ++i) {}\n"
                                     "  store_u8(frame.out_view.plane[0], " +
                                         gives + "u);\n}\n";
  };
  write("3");
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = name.c_str();
  options.flags = GPUMAP_KERNEL_RELOAD;
  gpumap_kernel kernel = open(options);
  gpumap_memory input = this->memory(1000);
  const std::vector<unsigned char> zeros(1000);
  EXPECT_OK(gpumap_memory_write(input, 0, zeros.data(), zeros.size()));
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  run.to_host = 1;
  run.timeout_ns = 50'000'000;
  gpumap_memory output = nullptr;
  ASSERT_EQ(gpumap_kernel_run(kernel, &run, &output), GPUMAP_TIMEOUT);
  write("4");
  for (int i = 0; i < 30; ++i) ASSERT_EQ(gpumap_kernel_run(kernel, &run, &output), GPUMAP_TIMEOUT);
  static_cast<unsigned char*>(gpumap_memory_host(input))[0] = 1;
  EXPECT_OK(gpumap_memory_flush(input, 0, 1));
  run.timeout_ns = long_ns;
  unsigned char gave = 0;
  for (const auto end = std::chrono::steady_clock::now() + 60s; gave != 4 && std::chrono::steady_clock::now() < end;) {
    ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
    gave = content_of_memory(output)[0];
    EXPECT_OK(gpumap_memory_free(output));
  }
  EXPECT_EQ(gave, 4);
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

TEST_F(CKernel, ThreadsShareOne) {
  const std::string file = adder();
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = file.c_str();
  gpumap_kernel kernel = open(options);
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 3; ++number) {
    threads.emplace_back([&, number] {
      gpumap_memory input = this->memory(700);
      for (unsigned turn = 0; turn < 30; ++turn) {
        const auto sent = random_frame(700, number * 100 + turn);
        ASSERT_OK(gpumap_memory_write(input, 0, sent.data(), sent.size()));
        auto run = GPUMAP_INIT(gpumap_run_options);
        run.memory = input;
        gpumap_memory output = nullptr;
        ASSERT_OK(gpumap_kernel_run(kernel, &run, &output));
        ASSERT_EQ(content_of_memory(output), plus(sent, 1));
        ASSERT_OK(gpumap_memory_free(output));
      }
      EXPECT_OK(gpumap_memory_free(input));
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_OK(gpumap_kernel_close(kernel));
}

TEST_F(CKernel, WhatIsWrongIsSaid) {
  gpumap_kernel kernel = nullptr;
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  expect_error(gpumap_kernel_open(device_, &options, &kernel), GPUMAP_ERROR_INVALID, "one of the two");
  options.builtin = "nothing-like-this";
  expect_error(gpumap_kernel_open(device_, &options, &kernel), GPUMAP_ERROR_INVALID, "nothing-like-this");
  options.builtin = "identity";
  options.flags = 4;
  expect_error(gpumap_kernel_open(device_, &options, &kernel), GPUMAP_ERROR_INVALID, "flags");
  options.flags = 0;
  options.backend = 7;
  expect_error(gpumap_kernel_open(device_, &options, &kernel), GPUMAP_ERROR_INVALID, "back end");
  const std::string broken = folder_.path() / "broken.comp";
  std::ofstream(broken) << "#version 460\n#include <gpumap.glsl>\nvoid main() { this is no GLSL; }\n";
  options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = broken.c_str();
  expect_error(gpumap_kernel_open(device_, &options, &kernel), GPUMAP_ERROR_COMPILE, "broken.comp");
  options.file = "/nowhere/at/all.comp";
  EXPECT_LT(gpumap_kernel_open(device_, &options, &kernel), 0);
  kernel = builtin("identity");
  auto run = GPUMAP_INIT(gpumap_run_options);
  gpumap_memory output = nullptr;
  expect_error(gpumap_kernel_run(kernel, &run, &output), GPUMAP_ERROR_INVALID, "one of the two");
  EXPECT_EQ(gpumap_kernel_set_params(kernel, "gain=2"), GPUMAP_ERROR_INVALID);
  gpumap_memory input = this->memory(100);
  auto layout = GPUMAP_INIT(gpumap_layout);
  ASSERT_OK(gpumap_layout_of_picture(GPUMAP_FORMAT_GRAY8, 100, 100, &layout));
  run.memory = input;
  run.layout = &layout;
  expect_error(gpumap_kernel_run(kernel, &run, &output), GPUMAP_ERROR_INVALID, "leaves a frame of 100 bytes");
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

TEST_F(CKernel, AKernelThatWritesBehindItsMemoryIsFound) {
  const std::string name = folder_.path() / "behind";
  std::ofstream(name + ".cu") << "#include <gpumap/kernel.h>\n// gpumap: view bytes\n// gpumap: params none\n"
                                 "extern \"C\" __global__ void behind(gpumap_frame frame) {\n"
                                 "  if (blockIdx.x == 0 && threadIdx.x == 0) ((unsigned "
                                 "char*)frame.out.plane[0])[frame.out.bytes + 3] = 1;\n}\n";
  std::ofstream(name + ".comp") << "#version 460\n#include <gpumap.glsl>\n// gpumap: view bytes\n"
                                   "// gpumap: params none\nvoid main() {\n  if (gpumap_thread() == 0) "
                                   "store_u8(frame.out_view.plane[0] + frame.out_view.bytes + 3, 1u);\n}\n";
  auto options = GPUMAP_INIT(gpumap_kernel_options);
  options.file = name.c_str();
  options.flags = GPUMAP_KERNEL_CHECK_BOUNDS;
  gpumap_kernel kernel = open(options);
  gpumap_memory input = this->memory(100);
  auto run = GPUMAP_INIT(gpumap_run_options);
  run.memory = input;
  gpumap_memory output = nullptr;
  expect_error(gpumap_kernel_run(kernel, &run, &output), GPUMAP_ERROR_INVALID, "behind");
  EXPECT_OK(gpumap_memory_free(input));
  EXPECT_OK(gpumap_kernel_close(kernel));
}

}  // namespace
}  // namespace gpumap::test
