// SPDX-License-Identifier: MIT
// Kernels that do not end for a while: the GPU waits before them for a timeline that the test raises.
#include <gmock/gmock.h>
#include <gst/check/gsttestclock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <future>
#include <thread>

#include "device/vulkan_device.hpp"
#include "gst/kernel/runner.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "result_stream.hpp"
#include "test_frames.hpp"
#include "watch.hpp"

namespace gpumap::gst::test {
namespace {

constexpr std::size_t frame_bytes = 4096;

/// Frames that are written when the test says so, each by a timeline of its own.
class Stall {
 public:
  Stall() : device_(std::dynamic_pointer_cast<GpuDevice>(Device::open())) {}
  ~Stall() { end(timelines_.size()); }
  Stall(const Stall&) = delete;
  Stall& operator=(const Stall&) = delete;

  Buffer frame(const Data& data = random_data(frame_bytes, 1)) {
    Buffer buffer = on_gpu(data);
    timelines_.push_back(std::make_shared<VulkanTimeline>(device_));
    frame_memory(gst_buffer_peek_memory(buffer.get(), 0))->set_written(Fence(timelines_.back(), 1));
    return buffer;
  }
  /// All up to frame `number`, from 1 on, are written.
  void end(std::uint64_t number) {
    for (; ended_ < number; ++ended_) {
      VulkanTimeline& timeline = *timelines_.at(ended_);
      timeline.context().device().signalSemaphore(vk::SemaphoreSignalInfo(timeline.semaphore(), 1));
    }
  }

 private:
  std::shared_ptr<GpuDevice> device_;
  std::vector<std::shared_ptr<VulkanTimeline>> timelines_;
  std::size_t ended_ = 0;
};

/// Plain bytes, each one more than it was.
class Stalled : public testing::Test {
 protected:
  Stalled() {
    std::ofstream(settings_.location) << "#version 460\n#include <gpumap.glsl>\nvoid main() {\n"
                                         "  uint64_t i = gpumap_thread();\n"
                                         "  if (i < frame.out_view.bytes)\n"
                                         "    store_u8(frame.out_view.plane[0] + i,\n"
                                         "             load_u8(frame.in_view.plane[0] + i) + 1u);\n}\n";
  }
  ~Stalled() override { (void)std::remove(settings_.location.c_str()); }

  [[nodiscard]] std::shared_ptr<KernelRunner> runner(bool check_bounds = false) const {
    KernelSettings settings = settings_;
    settings.check_bounds = check_bounds;
    auto made = std::make_shared<KernelRunner>(settings);
    const Caps caps = new_caps("application/x-bytes(memory:GPUMap)");
    made->set_caps(caps.get(), caps.get());
    return made;
  }

  [[nodiscard]] const KernelSettings& settings() const noexcept { return settings_; }

 private:
  KernelSettings settings_{.location = testing::TempDir() + "gpumap-stalled-" + std::to_string(getpid()) + ".comp"};
};

TEST_F(Stalled, WhatAKernelUsesOutlivesItsElement) {
  const std::vector<std::string> modes{"as it is", "with bounds checked"};  // 5 s each
  side_by_side(modes, [&](const std::string& mode) {
    const bool check_bounds = mode != modes[0];
    Stall stall;
    auto endless = runner(check_bounds);
    const Buffer frame = stall.frame();
    Buffer out;
    std::thread cancels([&] {
      (void)eventually([&] { return !endless->last_launched().signalled(); });
      endless->cancel(true);
    });
    out.reset(endless->run(frame.get()).buffer);
    cancels.join();
    EXPECT_EQ(out == nullptr, check_bounds) << "it waits for the frame only to look at it";
    const Fence launched = endless->last_launched();
    out.reset();
    endless.reset();
    ASSERT_FALSE(launched.signalled());
    // The validation layer tells of what is in use and freed.
    stall.end(1);
    EXPECT_EQ(launched.wait_for(patience), WaitResult::ready);
  });
}

TEST_F(Stalled, TheTimeOfOneFrameCounts) {
  constexpr std::uint32_t timeout_ms = 1000;
  GstClock* clock = gst_test_clock_new();
  gst_system_clock_set_default(clock);
  const Element element(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("gpumapkernel", "slow"))));
  GstBus* bus = gst_bus_new();
  gst_element_set_bus(element.get(), bus);
  Stall stall;
  const auto slow = runner();
  {
    const Watchdog watchdog(element.get(), slow, timeout_ms);
    constexpr std::size_t count = 6;
    std::vector<Buffer> frames, outputs;
    std::vector<Fence> launched;
    for (std::size_t i = 0; i < count; ++i) {
      frames.push_back(stall.frame());
      outputs.emplace_back(slow->run(frames.back().get()).buffer);
      launched.push_back(slow->last_launched());
    }
    const auto pass = [clock](int looks) {
      for (int i = 0; i < looks; ++i) ASSERT_TRUE(gst_test_clock_crank(GST_TEST_CLOCK(clock)));
    };
    // Each takes three quarters of the time, all together more than four times as much.
    for (std::size_t i = 0; i < count; ++i) {
      pass(3);
      stall.end(i + 1);
      ASSERT_EQ(launched[i].wait_for(patience), WaitResult::ready);
      ASSERT_EQ(gst_bus_peek(bus), nullptr) << i;
    }
    // With nothing to do no time runs out, and then one takes too long.
    pass(9);
    ASSERT_EQ(gst_bus_peek(bus), nullptr);
    frames.push_back(stall.frame());
    outputs.emplace_back(slow->run(frames.back().get()).buffer);
    pass(2);
    EXPECT_EQ(gst_bus_peek(bus), nullptr);
    // A process that is stopped for ten times as long looks once, and then at all that it has missed.
    gst_test_clock_advance_time(GST_TEST_CLOCK(clock), GstClockTimeDiff{10} * timeout_ms * GST_MSECOND);
    pass(38);
    EXPECT_EQ(gst_bus_peek(bus), nullptr);
    long owners = 0;
    const auto count_owners = [&] { owners = slow.use_count(); };
    gst_bus_set_sync_handler(
        bus,
        [](GstBus*, GstMessage*, gpointer counts) {
          (*static_cast<decltype(count_owners)*>(counts))();
          return GST_BUS_PASS;
        },
        const_cast<std::remove_const_t<decltype(count_owners)>*>(&count_owners), nullptr);
    pass(6);
    gst_bus_set_sync_handler(bus, nullptr, nullptr, nullptr);
    EXPECT_EQ(owners, 1) << "who hears of it may stop the element, which then waits for the kernel";
    GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    GError* error = nullptr;
    gst_message_parse_error(message, &error, nullptr);
    EXPECT_THAT(error->message, testing::HasSubstr("has not ended for 1000 ms"));
    g_error_free(error);
    gst_message_unref(message);
    stall.end(count + 1);
  }
  gst_element_set_bus(element.get(), nullptr);
  gst_object_unref(bus);
  gst_system_clock_set_default(nullptr);
  gst_object_unref(clock);
}

// Of kernels that follow on one another the last one waits for all: each may take its time.
TEST_F(Stalled, TheTimeOfKernelsBeforeDoesNotCount) {
  constexpr std::uint32_t timeout_ms = 1000;
  constexpr std::size_t count = 5;
  GstClock* clock = gst_test_clock_new();
  gst_system_clock_set_default(clock);
  GstBus* bus = gst_bus_new();
  Stall stall;
  {
    std::vector<Element> elements;
    std::vector<std::shared_ptr<KernelRunner>> kernels;
    std::vector<std::unique_ptr<Watchdog>> watchdogs;
    std::vector<Buffer> frames, outputs;
    for (std::size_t i = 0; i < count; ++i) {
      elements.emplace_back(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("gpumapkernel", nullptr))));
      gst_element_set_bus(elements.back().get(), bus);
      kernels.push_back(runner());
      watchdogs.push_back(std::make_unique<Watchdog>(elements.back().get(), kernels.back(), timeout_ms));
    }
    // The driver takes what was submitted in order, as if each frame came of the kernel before.
    for (const auto& kernel : kernels) {
      frames.push_back(stall.frame());
      outputs.emplace_back(kernel->run(frames.back().get()).buffer);
    }
    const auto pass = [clock](std::size_t looks) {
      for (std::size_t i = 0; i < looks * count; ++i) ASSERT_TRUE(gst_test_clock_crank(GST_TEST_CLOCK(clock)));
    };
    for (std::size_t i = 0; i < count; ++i) {
      pass(3);
      EXPECT_EQ(gst_bus_peek(bus), nullptr) << i;
      if (i + 1 == count) break;
      stall.end(i + 1);
      ASSERT_EQ(kernels[i]->last_launched().wait_for(patience), WaitResult::ready);
    }
    // The last one does not end.
    pass(3);
    GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_ERROR);
    ASSERT_NE(message, nullptr);
    EXPECT_EQ(GST_MESSAGE_SRC(message), GST_OBJECT_CAST(elements.back().get()));
    gst_message_unref(message);
    EXPECT_EQ(gst_bus_peek(bus), nullptr);
    stall.end(count);
    watchdogs.clear();
    for (const Element& element : elements) gst_element_set_bus(element.get(), nullptr);
  }
  gst_object_unref(bus);
  gst_system_clock_set_default(nullptr);
  gst_object_unref(clock);
}

// Also where one frame of a kernel before takes longer than the last one may. Only behind what was given up, or whose
// own time is over, the time counts: nobody else tells of that.
TEST_F(Stalled, AKernelBeforeHasATimeOfItsOwn) {
  constexpr std::uint32_t timeout_ms = 1000, longer_ms = 100'000;
  enum class Before { ended, given_up, told };
  for (const Before then : {Before::ended, Before::given_up, Before::told}) {
    SCOPED_TRACE(static_cast<int>(then));
    GstClock* clock = gst_test_clock_new();
    gst_system_clock_set_default(clock);
    GstBus* bus = gst_bus_new();
    Stall stall;
    {
      std::array<Element, 2> elements;
      for (Element& element : elements) {
        element.reset(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("gpumapkernel", nullptr))));
        gst_element_set_bus(element.get(), bus);
      }
      const std::array kernels{runner(), runner()};
      const Watchdog patient(elements[0].get(), kernels[0], then == Before::told ? timeout_ms : longer_ms),
          other(elements[1].get(), kernels[1], timeout_ms);
      std::vector<Buffer> frames, outputs;
      Fence before;
      // The first one has two frames, with the other's between them.
      for (const auto& kernel : {kernels[0], kernels[1], kernels[0]}) {
        frames.push_back(stall.frame());
        outputs.emplace_back(kernel->run(frames.back().get()).buffer);
        if (frames.size() == 1) before = kernel->last_launched();
      }
      const auto pass = [clock](int looks) {
        for (int i = 0; i < looks; ++i) ASSERT_TRUE(gst_test_clock_crank(GST_TEST_CLOCK(clock)));
      };
      const auto expect_error_of = [bus](const Element& element, const char* text) {
        GstMessage* message = gst_bus_pop_filtered(bus, GST_MESSAGE_ERROR);
        ASSERT_NE(message, nullptr);
        EXPECT_EQ(GST_MESSAGE_SRC(message), GST_OBJECT_CAST(element.get()));
        GError* error = nullptr;
        gst_message_parse_error(message, &error, nullptr);
        EXPECT_THAT(error->message, testing::HasSubstr(text));
        g_error_free(error);
        gst_message_unref(message);
      };
      pass(40);
      if (then == Before::told) {
        expect_error_of(elements[0], "does it loop");
      } else {
        EXPECT_EQ(gst_bus_peek(bus), nullptr);
        if (then == Before::given_up) {
          before.give_up("kernel before");
        } else {
          stall.end(1);
          ASSERT_EQ(before.wait_for(patience), WaitResult::ready);
        }
        pass(3);
        EXPECT_EQ(gst_bus_peek(bus), nullptr);
        pass(2);
      }
      expect_error_of(elements[1], then == Before::ended ? "does it loop" : "another kernel");
      stall.end(3);
      for (const auto& kernel : kernels) kernel->drain();
      for (const Element& element : elements) gst_element_set_bus(element.get(), nullptr);
    }
    gst_object_unref(bus);
    gst_system_clock_set_default(nullptr);
    gst_object_unref(clock);
  }
}

// A start is a change of state, which nothing ends but itself. Who was told may be wrong: some are only slow.
TEST_F(Stalled, AKernelWithATableWaitsForAWhileBehindOneThatWasToldOf) {
  const std::string table = testing::TempDir() + "gpumap-table-" + std::to_string(getpid());
  std::ofstream(table) << std::string(64, 'x');
  Stall stall;
  const auto endless = runner();
  const Buffer frame = stall.frame();
  const Buffer out(endless->run(frame.get()).buffer);
  const Fence launched = endless->last_launched();
  launched.timeline()->set_endless(launched.value());
  KernelSettings settings = this->settings();
  settings.declare = "table t=" + table;
  const auto began = Clock::now();
  try {
    const KernelRunner reader(settings);
    ADD_FAILURE() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), testing::HasSubstr("a kernel on it does not end"));
  }
  EXPECT_LT(Clock::now() - began, 30s);
  auto starts = std::async(std::launch::async, [&] { return std::make_unique<KernelRunner>(settings); });
  std::this_thread::sleep_for(500ms);
  stall.end(1);
  EXPECT_EQ(launched.wait_for(patience), WaitResult::ready);
  EXPECT_NO_THROW(static_cast<void>(starts.get()));
  (void)std::remove(table.c_str());
}

/// The elements, with frames that are stalled.
class SlowElement : public testing::Test {
 protected:
  /// Which counts the bytes 7.
  const ShaderFile kernel{
      "// gpumap: results sevens=u64\nvoid main() {\n"
      "  for (uint64_t i = gpumap_thread(); i < frame.in_view.bytes; i += gpumap_thread_count())\n"
      "    if (load_u8(frame.in_view.plane[0] + i) == 7u) atomic_add_u32(frame.result, 1u);\n}\n"};
  Stall stall;

  [[nodiscard]] std::string stream(const std::string& properties) const {
    return "appsrc name=in format=time caps=application/octet-stream(memory:GPUMap) ! gpumapkernel name=slow "
           "location=" +
           kernel.path() + ' ' + properties +
           " ! capsfilter caps=application/octet-stream(memory:GPUMap) ! appsink name=out sync=false";
  }
  /// The frame of this number, from 1 on, and how many bytes 7 it has.
  std::uint64_t push_stalled(const Pipeline& pipeline, std::uint64_t number) {
    const Data data = random_data(frame_bytes, number);
    Buffer buffer = stall.frame(data);
    GST_BUFFER_PTS(buffer.get()) = number;
    kept_.emplace_back(gst_buffer_ref(buffer.get()));
    EXPECT_TRUE(push(pipeline.appsrc(), std::move(buffer)));
    return static_cast<std::uint64_t>(std::count(data.begin(), data.end(), std::byte{7}));
  }
  /// The kernel of this frame has ended, or does so now.
  static void expect_ended(const Buffer& buffer) {
    GstMemory* memory = gst_buffer_peek_memory(buffer.get(), 0);
    EXPECT_EQ(frame_memory(memory)->written().wait_for(patience), WaitResult::ready);
  }

 private:
  std::vector<Buffer> kept_;  ///< until their kernels have ended: letting go of one waits for that
};

// Wherever its frame is meanwhile: where results are late it has gone on, and nothing runs in gpumapkernel's thread.
TEST_F(SlowElement, TellsOfAKernelThatDoesNotEnd) {
  std::uint64_t number = 0;
  for (const char* late : {"false", "true"}) {
    SCOPED_TRACE(late);
    SimulatedTime time;
    time.become_default();
    Pipeline pipeline(stream(std::string("timeout=400 late-results=") + late));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    push_stalled(pipeline, ++number);
    if (*late == 't') {
      ASSERT_TRUE(pull(pipeline.appsink())) << pipeline.wait(1ms);
    } else {
      EXPECT_FALSE(pull(pipeline.appsink(), 200ms));
    }
    time.pass(300ms);
    EXPECT_EQ(pipeline.wait(50ms), "timeout");
    std::string error;
    EXPECT_TRUE(eventually([&] {
      time.pass(100ms);
      return (error = pipeline.wait(0ms)) != "timeout";
    }));
    EXPECT_THAT(error,
                testing::AllOf(testing::HasSubstr(kernel.path()), testing::HasSubstr("has not ended for 400 ms")));
    EXPECT_EQ(pipeline.culprit(), "slow");
    stall.end(number);
    EXPECT_LT(pipeline.stop(), patience);
  }
}

// Who goes on behind the error hears of the next one, too.
TEST_F(SlowElement, TellsOfAKernelThatDoesNotEndBehindAFlush) {
  SimulatedTime time;
  time.become_default();
  Pipeline pipeline(stream("timeout=400"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  for (std::uint64_t number = 1; number <= 3; ++number) {
    push_stalled(pipeline, number);
    std::string error;
    EXPECT_TRUE(eventually([&] {
      time.pass(100ms);
      return (error = pipeline.wait(0ms)) != "timeout";
    })) << number;
    EXPECT_THAT(error, testing::HasSubstr("has not ended for 400 ms"));
    stall.end(number);
    GstElement* const source = pipeline.element("in");
    EXPECT_TRUE(gst_element_send_event(source, gst_event_new_flush_start()));
    EXPECT_TRUE(gst_element_send_event(source, gst_event_new_flush_stop(TRUE)));
  }
  EXPECT_LT(pipeline.stop(), patience);
}

// The end of a flush comes just when the element has begun to stop: nothing waits any more all the same.
TEST_F(SlowElement, AFlushThatEndsDoesNotUndoAStop) {
  Pipeline pipeline(stream("timeout=0"));
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const std::uint64_t sevens = push_stalled(pipeline, 1);
  stall.end(1);
  ASSERT_TRUE(pull(pipeline.appsink())) << pipeline.wait(1ms) << sevens;
  auto* slow = GST_BASE_TRANSFORM(pipeline.element("slow"));
  auto* klass = GST_BASE_TRANSFORM_GET_CLASS(slow);
  GstPad* pad = GST_BASE_TRANSFORM_SINK_PAD(slow);
  GST_PAD_STREAM_LOCK(pad);  // in the thread of the frames, which the stop waits for
  auto stopped = std::async(std::launch::async, [&] { return pipeline.set_state(GST_STATE_READY); });
  EXPECT_TRUE(eventually([&] { return GST_PAD_IS_FLUSHING(pad); }));
  (void)klass->sink_event(slow, gst_event_new_flush_stop(TRUE));
  const Buffer frame = stall.frame();
  slow->queued_buf = gst_buffer_ref(frame.get());
  auto ran = std::async(std::launch::async, [&] {
    GstBuffer* out = nullptr;
    const GstFlowReturn flow = klass->generate_output(slow, &out);
    if (out != nullptr) gst_buffer_unref(out);
    return flow;
  });
  EXPECT_EQ(ran.wait_for(10s), std::future_status::ready) << "it waits for a frame that nobody writes";
  stall.end(2);
  EXPECT_EQ(ran.get(), GST_FLOW_FLUSHING);
  GST_PAD_STREAM_UNLOCK(pad);
  EXPECT_NE(stopped.get(), GST_STATE_CHANGE_FAILURE);
}

/// Comes to 1 when the test says so: only the CPU can wait for it.
class Unwritten final : public Timeline {
 public:
  std::uint64_t completed() override {
    asked_ = true;
    return written_ ? 1 : 0;
  }
  void check() override {}
  void write() { written_ = true; }
  [[nodiscard]] bool asked() const { return asked_; }

 private:
  std::atomic<bool> asked_{false}, written_{false};
};

// The thread that closes a pad waits for the one that is in it, which waits for what fills the frame.
TEST(ClosedPad, EndsTheWaitForAFrame) {
  for (const std::string element : {"gpumapkernel timeout=0", "gpumapdownload"}) {
    SCOPED_TRACE(element);
    Pipeline pipeline("appsrc name=in format=time caps=application/octet-stream(memory:GPUMap) ! " + element +
                      " name=waits ! fakesink async=false");
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const auto unwritten = std::make_shared<Unwritten>();
    Buffer frame = on_gpu(random_data(frame_bytes, 1));
    frame_memory(gst_buffer_peek_memory(frame.get(), 0))->set_written(Fence(unwritten, 1));
    ASSERT_TRUE(push(pipeline.appsrc(), std::move(frame)));
    ASSERT_TRUE(eventually([&] { return unwritten->asked(); }));
    const Pad pad(gst_element_get_static_pad(pipeline.element("waits"), "sink"));
    auto closed = std::async(std::launch::async, [&] { return gst_pad_set_active(pad.get(), FALSE); });
    EXPECT_EQ(closed.wait_for(10s), std::future_status::ready) << "it waits for a frame that nobody writes";
    unwritten->write();
    EXPECT_TRUE(closed.get());
    EXPECT_LT(pipeline.stop(), patience);
  }
}

TEST_F(SlowElement, FramesGoOnBeforeTheirKernelHasEndedWhereResultsAreLate) {
  std::uint64_t number = 0;
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late);
    Pipeline pipeline(stream(late ? "late-results=true" : "late-results=false"));
    const Messages messages(pipeline);
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    const std::uint64_t sevens = push_stalled(pipeline, ++number);
    Sample sample = pull(pipeline.appsink(), late ? patience : 300ms);
    EXPECT_EQ(sample != nullptr, late) << pipeline.wait(1ms);
    EXPECT_EQ(messages.count(), 0U);
    if (late) {
      ASSERT_TRUE(sample);
      GstMemory* memory = gst_buffer_peek_memory(gst_sample_get_buffer(sample.get()), 0);
      EXPECT_FALSE(frame_memory(memory)->written().signalled());
    }
    stall.end(number);
    if (!late) {
      sample = pull(pipeline.appsink());
      ASSERT_TRUE(sample) << pipeline.wait(1ms);
      GstMemory* memory = gst_buffer_peek_memory(gst_sample_get_buffer(sample.get()), 0);
      EXPECT_TRUE(frame_memory(memory)->written().signalled());
      EXPECT_EQ(messages.count(), 1U);
    }
    gst_app_src_end_of_stream(pipeline.appsrc());
    EXPECT_EQ(pipeline.wait(), "eos");
    EXPECT_EQ(messages.numbers("sevens"), Numbers{sevens});
  }
}

TEST_F(SlowElement, LateResultsOfBeforeAFlushAreDropped) {
  Pipeline pipeline(stream("late-results=true"));
  const Messages messages(pipeline);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  // Not the samples: behind a flush appsink writes to the last one that it gave.
  std::vector<Buffer> frames;
  const auto take = [&] {
    const Sample sample = pull(pipeline.appsink());
    if (!sample) return testing::AssertionFailure() << pipeline.wait(1ms);
    frames.emplace_back(gst_buffer_ref(gst_sample_get_buffer(sample.get())));
    return testing::AssertionSuccess();
  };
  for (std::uint64_t number = 1; number <= 3; ++number) {
    push_stalled(pipeline, number);
    ASSERT_TRUE(take());
  }
  GstElement* source = pipeline.element("in");
  ASSERT_TRUE(gst_element_send_event(source, gst_event_new_flush_start()));
  ASSERT_TRUE(gst_element_send_event(source, gst_event_new_flush_stop(TRUE)));
  stall.end(3);
  Numbers sevens, late;
  const auto pass = [&](std::uint64_t number) {
    sevens.push_back(push_stalled(pipeline, number));
    if (number > 5) stall.end(number);
    ASSERT_TRUE(take());
    for (const std::uint64_t of : late_in(frames.back().get(), "pts")) late.push_back(of);
    if (number > 5) expect_ended(frames.back());
  };
  for (const std::uint64_t number : {4U, 5U}) ASSERT_NO_FATAL_FAILURE(pass(number));
  EXPECT_EQ(messages.count(), 0U);
  // The results come with frames, too, that are launched when the kernels have ended.
  stall.end(5);
  for (const Buffer& frame : frames) expect_ended(frame);
  std::uint64_t number = 5;
  EXPECT_TRUE(eventually([&] {
    pass(++number);
    return late.size() >= 2 || HasFailure();
  }));
  ASSERT_FALSE(HasFailure());
  gst_app_src_end_of_stream(pipeline.appsrc());
  EXPECT_EQ(pipeline.wait(), "eos");
  ASSERT_EQ(messages.count(), number - 3);
  for (std::uint64_t i = 0; i < messages.count(); ++i) EXPECT_EQ(messages.numbers("pts")[i], 4 + i);
  EXPECT_EQ(messages.numbers("sevens"), sevens);
  EXPECT_EQ(late[0], 4U);
  EXPECT_EQ(late[1], 5U);
}

// Who maps a frame that is not written waits no longer than the element that gave it: a sink that does so is told last,
// and the thread that tells it waits for that sink.
TEST(Map, EndsWithTheElementThatGaveTheFrame) {
  const ShaderFile kernel{"void main() {\n  store_u8(frame.out_view.plane[0], 7u);\n}\n"};
  const std::string kernel_line =
      "gpumapkernel location=" + kernel.path() + " timeout=0 ! capsfilter caps=application/octet-stream(memory:GPUMap)";
  const std::vector<std::string> givers{"gpumapdownload", kernel_line, "gpumapdownload ! queue"};
  for (const std::string& giver : givers) {
    for (const bool flushes : {true, false}) {
      SCOPED_TRACE(giver + (flushes ? " flushes" : " stops"));
      Stall stall;
      Pipeline pipeline("appsrc name=in caps=application/octet-stream(memory:GPUMap) ! " + giver +
                        " ! fakesink dump=true async=false");
      ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
      const Buffer frame = stall.frame();
      ASSERT_TRUE(push(pipeline.appsrc(), Buffer(gst_buffer_ref(frame.get()))));
      EXPECT_EQ(pipeline.wait(300ms), "timeout");
      const auto begin = std::chrono::steady_clock::now();
      if (flushes) {
        EXPECT_TRUE(gst_element_send_event(pipeline.element("in"), gst_event_new_flush_start()));
        EXPECT_TRUE(gst_element_send_event(pipeline.element("in"), gst_event_new_flush_stop(TRUE)));
        EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
        stall.end(1);
      }
      // 1 s, and what queue and memory of an element wait for at their end.
      EXPECT_LT(pipeline.stop(), 20s);
      stall.end(1);
    }
  }
}

// So do waits for many frames, one behind the other: together they last no longer than one.
TEST(Map, OfManyFramesEndsAsThatOfOne) {
  const ShaderFile kernel{"void main() {\n  store_u8(frame.out_view.plane[0], 7u);\n}\n"};
  constexpr int count = 50;
  const std::string queue =
      " ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=0 ! fakesink dump=true async=false";
  const std::string of_kernel = "gpumapkernel location=" + kernel.path() +
                                " timeout=0 ! capsfilter caps=application/octet-stream(memory:GPUMap)" + queue;
  for (const std::string& rest : {of_kernel, "gpumapupload slots=60" + queue}) {
    SCOPED_TRACE(rest);
    Stall stall;
    // Copies wait behind it as well.
    Pipeline before("appsrc name=in caps=application/octet-stream(memory:GPUMap) ! gpumapkernel timeout=0 location=" +
                    kernel.path() +
                    " ! capsfilter caps=application/octet-stream(memory:GPUMap) ! fakesink async=false");
    ASSERT_NE(before.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    std::vector<Buffer> frames;  // whose memory would wait for its readers, each of its own
    frames.push_back(stall.frame());
    ASSERT_TRUE(push(before.appsrc(), Buffer(gst_buffer_ref(frames.back().get()))));
    EXPECT_EQ(before.wait(300ms), "timeout");
    const bool on_gpu = rest == of_kernel;
    Pipeline pipeline(std::string("appsrc name=in caps=application/octet-stream") + (on_gpu ? "(memory:GPUMap)" : "") +
                      " ! " + rest);
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    for (int i = 0; i < count; ++i) {
      frames.push_back(on_gpu ? stall.frame() : new_buffer(random_data(frame_bytes, 2)));
      ASSERT_TRUE(push(pipeline.appsrc(), Buffer(gst_buffer_ref(frames.back().get()))));
    }
    EXPECT_EQ(pipeline.wait(300ms), "timeout");
    EXPECT_LT(pipeline.stop(), 25s);
    stall.end(on_gpu ? count + 1 : 1);
  }
}

// GStreamer maps what it could not map once more, to copy it.
TEST(Map, WaitsOnceForWhatDoesNotEnd) {
  const auto unwritten = std::make_shared<Unwritten>();
  const Data data = random_data(frame_bytes, 1);
  const Buffer frame = on_gpu(data);
  frame_memory(gst_buffer_peek_memory(frame.get(), 0))->set_written(Fence(unwritten, 1));
  const auto begin = std::chrono::steady_clock::now();
  GstMapInfo map;
  EXPECT_FALSE(gst_buffer_map(frame.get(), &map, GST_MAP_READ));
  const auto waited = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(waited, 29s);
  EXPECT_LT(waited, 45s);
  unwritten->write();
  EXPECT_EQ(data_of(frame.get()), data);
}

// GStreamer maps bytes under locks, as to compare caps: what holds another lock meanwhile may wait for those.
TEST(Map, WaitsForNoLock) {
  Pipeline pipeline("identity name=gives ! fakesink async=false");
  ASSERT_TRUE(pipeline.reach(GST_STATE_PLAYING));
  const Pad pad(gst_element_get_static_pad(pipeline.element("gives"), "sink"));
  for (const auto& locked :
       {GST_OBJECT_CAST(pipeline.get()), GST_OBJECT_CAST(pipeline.element("gives")), GST_OBJECT_CAST(pad.get())}) {
    const auto unwritten = std::make_shared<Unwritten>();
    const Data data = random_data(frame_bytes, 1);
    const Buffer frame = on_gpu(data);
    frame_memory(gst_buffer_peek_memory(frame.get(), 0))
        ->set_written(Fence(unwritten, 1), std::make_shared<const Giver>(pad.get()));
    GST_OBJECT_LOCK(locked);
    auto mapped = std::async(std::launch::async, [&] { return data_of(frame.get()); });
    EXPECT_EQ(mapped.wait_for(200ms), std::future_status::timeout);
    unwritten->write();
    EXPECT_EQ(mapped.wait_for(10s), std::future_status::ready) << GST_OBJECT_NAME(locked);
    GST_OBJECT_UNLOCK(locked);
    EXPECT_EQ(mapped.get(), data);
  }
}

// Elsewhere somebody asks what fills the frame, to put a kernel behind that.
TEST(Map, KeepsNobodyFromAskingWhatFillsTheFrame) {
  const ShaderFile kernel{"void main() {\n  store_u8(frame.out_view.plane[0], 7u);\n}\n"};
  Stall stall;
  Pipeline before("appsrc name=in caps=application/octet-stream(memory:GPUMap) ! gpumapkernel timeout=0 location=" +
                  kernel.path() + " ! capsfilter caps=application/octet-stream(memory:GPUMap) ! fakesink async=false");
  Pipeline pipeline(
      "appsrc name=in caps=application/octet-stream ! gpumapupload ! "
      "capsfilter caps=application/octet-stream(memory:GPUMap) ! appsink name=out sync=false");
  ASSERT_NE(before.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(random_data(frame_bytes, 2))));
  const Sample sample = pull(pipeline.appsink());
  ASSERT_TRUE(sample);
  GstBuffer* buffer = gst_sample_get_buffer(sample.get());
  ASSERT_TRUE(push(before.appsrc(), stall.frame()));
  EXPECT_EQ(before.wait(300ms), "timeout");
  std::atomic<bool> mapped{false};
  std::thread maps([&] {
    EXPECT_EQ(data_of(buffer), random_data(frame_bytes, 2));
    mapped = true;
  });
  g_usleep(100'000);
  EXPECT_TRUE(frame_memory(gst_buffer_peek_memory(buffer, 0))->written().signalled());
  EXPECT_FALSE(mapped) << "nothing waited";
  stall.end(1);
  maps.join();
}

// The GPU stands still, and a frame that downstream is to get as a copy has not come to it.
TEST(Upload, EndsWhileAFrameDoesNotReachTheGpu) {
  for (const char* way : {"gpumapupload name=up slots=2 transport=pinned",
                          "gpumapsink sync=false slots=2 transport=pinned $CHANNEL gpumapsrc name=up $CHANNEL"}) {
    SCOPED_TRACE(way);
    Stall stall;
    const Buffer frame = stall.frame();
    const auto device = Device::open();
    const auto memory = device->allocate({.placement = Placement::host, .bytes = 64});
    const auto queue = device->create_queue();
    const std::atomic<bool> never{false};
    EXPECT_EQ(queue->wait(frame_memory(gst_buffer_peek_memory(frame.get(), 0))->written(), never), WaitResult::ready);
    queue->clear(*memory, 0, 64);
    static_cast<void>(queue->submit());
    Pipeline pipeline(on_new_channel(std::string("videotestsrc ! video/x-raw,format=GRAY8,width=64,height=64 ! ") +
                                     way + " ! video/x-raw ! appsink name=out sync=false"));
    ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
    EXPECT_TRUE(eventually([&] {
      EXPECT_EQ(pipeline.wait(10ms), "timeout");
      return pipeline.warnings().size() == 1;
    })) << "nothing is kept";
    EXPECT_LT(pipeline.stop(), 20s);
    stall.end(1);
  }
}

// gpumapdownload hands frames on before the GPU has written them: only a map waits.
TEST(Download, SeveralFramesAreOnTheirWay) {
  constexpr std::size_t count = 3;
  Pipeline pipeline(
      "appsrc name=in caps=application/x-bytes(memory:GPUMap) ! gpumapdownload name=down ! appsink name=out");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  Stall stall;
  std::vector<Data> sent;
  std::vector<Buffer> kept;  // the end of their memory waits for the GPU
  for (std::size_t n = 0; n < count; ++n) {
    sent.push_back(random_data(frame_bytes, n));
    kept.push_back(stall.frame(sent.back()));
    ASSERT_TRUE(push(pipeline.appsrc(), Buffer(gst_buffer_ref(kept.back().get()))));
  }
  std::vector<Sample> samples;
  for (std::size_t n = 0; n < count; ++n) {
    samples.push_back(pull(pipeline.appsink()));
    ASSERT_TRUE(samples.back()) << n << ' ' << pipeline.error();
  }
  const auto data = [&](std::size_t n) { return data_of(gst_sample_get_buffer(samples[n].get())); };
  auto last = std::async(std::launch::async, data, count - 1);
  EXPECT_EQ(last.wait_for(50ms), std::future_status::timeout) << "it was read before it was written";
  stall.end(count);
  EXPECT_EQ(last.get(), sent.back());
  for (std::size_t n = 0; n < count; ++n) EXPECT_EQ(data(n), sent[n]) << n;
  EXPECT_EQ(stat(pipeline.element("down"), "frames"), count);
  EXPECT_EQ(stat(pipeline.element("down"), "bytes"), count * frame_bytes);

  // The CPU writes there as well, for the memory is nobody else's.
  GstBuffer* buffer = gst_sample_get_buffer(samples[0].get());
  const FrameMemory* memory = frame_memory(gst_buffer_peek_memory(buffer, 0));
  ASSERT_NE(memory, nullptr);
  const Ptr<GstMemory> writable(gst_memory_ref(gst_buffer_peek_memory(buffer, 0)));
  GstMapInfo map;
  ASSERT_TRUE(gst_memory_map(writable.get(), &map, GST_MAP_READWRITE));
  EXPECT_EQ(reinterpret_cast<std::byte*>(map.data), memory->mapping().host());
  gst_memory_unmap(writable.get(), &map);

  // What lies in system memory passes.
  const Data plain = random_data(77, 9);
  ASSERT_TRUE(push(pipeline.appsrc(), new_buffer(plain)));
  const Sample passed = pull(pipeline.appsink());
  ASSERT_TRUE(passed);
  EXPECT_EQ(data_of(gst_sample_get_buffer(passed.get())), plain);
  EXPECT_EQ(stat(pipeline.element("down"), "passed-frames"), 1U);
}

// Frames of two sizes by turns do not have memory freed each time; after many small ones it fits them.
TEST(Download, KeepsItsMemoryWhileSizesChange) {
  Pipeline pipeline(
      "appsrc name=in caps=application/x-bytes(memory:GPUMap) ! gpumapdownload ! appsink name=out sync=false");
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE);
  const auto room_for = [&](std::size_t bytes) {
    const Data data = random_data(bytes, bytes);
    EXPECT_TRUE(push(pipeline.appsrc(), on_gpu(data)));
    const Sample sample = pull(pipeline.appsink());
    if (!sample) return std::size_t{0};
    EXPECT_EQ(data_of(gst_sample_get_buffer(sample.get())), data);
    return frame_memory(gst_buffer_peek_memory(gst_sample_get_buffer(sample.get()), 0))->mapping().bytes();
  };
  EXPECT_EQ(room_for(10000), 10000U);
  for (int n = 0; n < 100; ++n) {
    EXPECT_EQ(room_for(1000), 10000U) << n;
    EXPECT_EQ(room_for(9000), 10000U) << n;
  }
  EXPECT_TRUE(eventually([&] { return room_for(1000) == 1000U; }));
}

}  // namespace
}  // namespace gpumap::gst::test
