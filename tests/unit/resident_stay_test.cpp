// SPDX-License-Identifier: MIT
// When a kernel that stays on the GPU comes and leaves: idle, there for long, for another, for who waits until the GPU
// runs nothing; how much of the GPU it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/resident_registry.hpp"
#include "made_up_resident.hpp"
#include "queue/queues.hpp"
#include "test_helpers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

TEST_F(ResidentOrder, AnotherKernelComesWhenTheFirstHasLeft) {
  const MadeUpKernel first(body()), second(body());
  const auto resident = queue();
  for (std::uint64_t n = 0; n < 6; ++n) put(*resident, n % 2 == 0 ? first : second, n);
  put(*resident, second, 6, 3);  // more blocks than it came with
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(launches, 7);
}

TEST_F(ResidentOrder, LeavesWhenIdleAndComesBack) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2, 10ms);
  for (std::uint64_t n = 0; n < 3; ++n) {
    put(*resident, kernel, n);
    ASSERT_TRUE(done(resident->submit()));
    for (const Deadline end = Clock::now() + patience; present != 0 && Clock::now() < end;)
      std::this_thread::sleep_for(1ms);
    EXPECT_EQ(present, 0);
  }
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(launches, 3);
}

// A frame that takes longer than the time that is idle: the kernel stays.
TEST_F(ResidentOrder, StaysWhileAFrameIsRun) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2, 5ms);
  gate = 0;
  put(*resident, kernel, 0);
  const Fence fence = resident->submit();
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(fence.signalled());
  put(*resident, kernel, 1);
  gate = 2;
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(launches, 1);
}

// Its calls that wait for an empty GPU find one soon, however long the kernels would stay, and those come back.
TEST_F(ResidentOrder, LeavesForWhatTheDriverWaitsWith) {
  const MadeUpKernel kernel(body()), other_kernel(body());
  const auto resident = queue(2), other = queue(2);
  for (std::uint64_t n = 0; n < 5; ++n) {
    put(*resident, kernel, n);
    put(*other, other_kernel, 100 + n);
    ASSERT_TRUE(done(resident->submit()));
    ASSERT_TRUE(done(other->submit()));
    EXPECT_EQ(present, 2);
    device_->allocate({.placement = Placement::host, .bytes = 64}, Backend::cuda).reset();
    EXPECT_EQ(present, 0);
  }
  EXPECT_EQ(launches, 10);
}

// Memory that the driver gives and does not map is freed again.
TEST_F(ResidentOrder, LeavesForMemoryThatIsNotMapped) {
  cuda::Driver& driver = fake_cuda::table();
  const auto map = driver.cuMemHostGetDevicePointer;
  const MadeUpKernel kernel(body());
  const auto resident = queue(2);
  put(*resident, kernel, 0);
  ASSERT_TRUE(done(resident->submit()));
  for (const bool of_a_queue : {false, true}) {
    put(*resident, kernel, 1);
    ASSERT_TRUE(done(resident->submit()));
    EXPECT_EQ(present, 1);
    driver.cuMemHostGetDevicePointer = [](CUdeviceptr*, void*, unsigned) { return CUDA_ERROR_OUT_OF_MEMORY; };
    if (of_a_queue) {
      EXPECT_THROW(static_cast<void>(create_cuda_queue(device_)), Error);
    } else {
      EXPECT_THROW(static_cast<void>(device_->allocate({.placement = Placement::host, .bytes = 64}, Backend::cuda)),
                   Error);
    }
    driver.cuMemHostGetDevicePointer = map;
    EXPECT_EQ(present, 0);
  }
}

/// As compute-sanitizer starts its programs.
struct Watch {
  static constexpr const char* variable = "NV_SANITIZER_INJECTION_PORT_BASE";
  Watch() {
    if (!was_there) setenv(variable, "49152", 1);
  }
  ~Watch() {
    if (!was_there) unsetenv(variable);
  }
  const bool was_there = std::getenv(variable) != nullptr;
};
class Watched : Watch, public ResidentOrder {};

TEST_F(ResidentOrder, StaysWhereMemoryIsAllocated) {
  if (std::getenv(Watch::variable) != nullptr) GTEST_SKIP() << "compute-sanitizer watches";
  const MadeUpKernel kernel(body());
  const auto resident = queue(2);
  std::vector<std::shared_ptr<Mapping>> kept;
  for (std::uint64_t n = 0; n < 5; ++n) {
    put(*resident, kernel, n);
    ASSERT_TRUE(done(resident->submit()));
    kept.push_back(device_->allocate({.placement = Placement::host, .bytes = 64}, Backend::cuda));
  }
  const auto other = create_cuda_queue(device_, {});  // another fence's word
  put(*resident, kernel, 5);
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(launches, 1);
}

// Nor does one that was there before run the frame behind the allocation.
TEST_F(Watched, NoneKnowsTooLittleMemory) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2);
  std::vector<std::shared_ptr<Mapping>> kept;
  for (std::uint64_t n = 0; n < 5; ++n) {
    put(*resident, kernel, n);
    ASSERT_TRUE(done(resident->submit()));
    kept.push_back(device_->allocate({.placement = Placement::host, .bytes = 64}, Backend::cuda));
  }
  EXPECT_EQ(launches, 5);
  put(*resident, kernel, 5);
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(launches, 6);
  const auto other = create_cuda_queue(device_, {});  // whose fence's word it may wait for
  put(*resident, kernel, 6);
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(launches, 7);
}

// Frames go on meanwhile: none comes in between.
TEST_F(ResidentOrder, NobodyComesWhileTheDriverWaits) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2);
  std::atomic<bool> ends{false};
  std::thread frames([&] {
    for (std::uint64_t n = 0; !ends; ++n) {
      put(*resident, kernel, n);
      EXPECT_TRUE(done(resident->submit()));
    }
  });
  for (int i = 0; i < 50; ++i) {
    const Residents::Absence absence(device_->cuda()->residents());
    const int before = launches;
    std::this_thread::sleep_for(1ms);
    const Deadline end = Clock::now() + patience;
    while (present != 0 && Clock::now() < end) std::this_thread::yield();
    EXPECT_LT(Clock::now(), end);
    EXPECT_LE(launches, before + 1) << "one may have been on its way";
  }
  ends = true;
  frames.join();
}

// Who stops waits no longer for what the driver waits with, though that may take 10 s.
TEST_F(ResidentOrder, IsGivenUpWhileTheDriverWaits) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2);
  std::atomic<bool> given_up{false};
  resident->set_wait(nullptr, [&given_up] { return given_up.load(); });
  {
    const Residents::Absence absence(device_->cuda()->residents());
    std::thread stops([&given_up] {
      std::this_thread::sleep_for(30ms);
      given_up = true;
    });
    EXPECT_THROW(put(*resident, kernel, 0), QueueCancelled);
    stops.join();
    EXPECT_EQ(launches, 0);
  }
  given_up = false;
  put(*resident, kernel, 1);
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{1}));
}

// What another library calls is not known here: with frames that come without a pause, it still has its turn.
TEST_F(ResidentOrder, DoesNotStayForGood) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(2, 10min, 20ms);
  const Deadline end = Clock::now() + patience;
  for (std::uint64_t n = 0; launches < 3 && Clock::now() < end; ++n) {
    put(*resident, kernel, n);
    ASSERT_TRUE(done(resident->submit()));
  }
  EXPECT_EQ(launches, 3);
}

// The GPU has five multiprocessors. Of three kernels of two blocks the third one may find none free, and the first two
// may then be asked to wait for it.
TEST_F(ResidentOrder, MakesRoomForAThirdOne) {
  const MadeUpKernel kernels[] = {MadeUpKernel(body()), MadeUpKernel(body()), MadeUpKernel(body())};
  const std::unique_ptr<Queue> queues[] = {queue(2), queue(2), queue(2)};
  Fence last;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t n = 0; n < 30; ++n) {
    Queue& next = *queues[n % 3];
    if (n != 0) {
      EXPECT_EQ(next.wait(last, never), WaitResult::ready);
    }
    put(next, kernels[n % 3], n);
    last = next.submit();
    expected.push_back(n);
  }
  ASSERT_TRUE(done(last));
  EXPECT_EQ(order(), expected);
  EXPECT_EQ(launches, 30) << "each made the two before it leave";
}

/// What is launched, and begins when a multiprocessor is free.
class Launched {
 public:
  explicit Launched(const std::shared_ptr<GpuDevice>& device) : queue_(create_cuda_queue(device)) {}
  Fence launch() {
    fake_cuda::of(stream_of(*queue_)).push([this] {
      for (const Deadline end = Clock::now() + patience; Clock::now() < end; std::this_thread::yield()) {
        if (held >= multiprocessors) continue;
        ++began_;
        return;
      }
    });
    return queue_->submit();
  }
  /// The same, behind other work of its stream, which goes on until `ends`.
  Fence launch_behind(const std::atomic<bool>& ends) {
    fake_cuda::of(stream_of(*queue_)).push([&ends] {
      while (!ends) std::this_thread::yield();
    });
    return launch();
  }
  [[nodiscard]] int began() const { return began_; }

 private:
  std::atomic<int> began_{0};
  std::unique_ptr<Queue> queue_;
};

// A kernel that has all multiprocessors must not stay to wait for what cannot begin beside it.
TEST_F(ResidentOrder, HoldsNoMultiprocessorThatItWaitsFor) {
  const MadeUpKernel kernel(body());
  Launched launched(device_);
  const auto resident = queue(100);
  std::vector<std::uint64_t> expected;
  for (std::uint64_t n = 0; n < 6; ++n) {
    EXPECT_EQ(resident->wait(launched.launch(), never), WaitResult::ready);
    if (n % 3 != 2) {  // else a wait alone
      put(*resident, kernel, n, multiprocessors);
      expected.push_back(n);
    }
    ASSERT_TRUE(done(resident->submit()));
    ASSERT_EQ(launched.began(), static_cast<int>(n) + 1);
  }
  EXPECT_EQ(order(), expected);
}

class Notes final : public Residents::Guest {
 public:
  void ask_to_leave() noexcept override { ++asked; }
  [[nodiscard]] Fence waits() const override { return {}; }
  [[nodiscard]] bool has_left() const noexcept override { return left; }
  int asked = 0;
  bool left = true;
};

// One free multiprocessor is not enough for all that may be launched: who needs certain ones, or several, is not waited
// for on the GPU by kernels that may stand there.
TEST(ResidentsTest, MakesRoomForSharesAndClusters) {
  Residents residents(132);
  Notes one, other;
  using Room = Residents::Room;
  EXPECT_EQ(Room::free, residents.come(one, 131, false));
  {
    const Residents::Demand share(residents, Residents::Needs::share);
    EXPECT_EQ(one.asked, 1) << "from now on it may stand where the share is";
    residents.leave(one);
    EXPECT_EQ(Room::demanded, residents.come(one, 1, false));
    residents.leave(one);
    // Guests of shares have theirs, and are in nobody's way.
    EXPECT_EQ(Room::free, residents.come(one, 9, true));
    EXPECT_EQ(Room::free, residents.come(other, 100, true));
    residents.leave(other);
    // One without makes it leave: their multiprocessors may be the same.
    EXPECT_EQ(Room::demanded, residents.come(other, 2, false));
    EXPECT_EQ(one.asked, 2);
    residents.leave(one);
    EXPECT_EQ(Room::crowded, residents.come(one, 9, true));
    EXPECT_EQ(other.asked, 1);
    residents.leave(one);
    residents.leave(other);
    EXPECT_EQ(Room::crowded, residents.come(one, 132, true)) << "a share of all of them";
    residents.leave(one);
  }
  EXPECT_EQ(Room::free, residents.come(one, 120, false));
  {
    const Residents::Demand cluster(residents, Residents::Needs::cluster);
    EXPECT_EQ(one.asked, 3);
    EXPECT_EQ(Room::demanded, residents.come(other, 1, true));
    residents.leave(other);
    residents.leave(one);
    EXPECT_EQ(Room::demanded, residents.come(one, 120, false));
    residents.leave(one);
  }
  EXPECT_EQ(Room::free, residents.come(one, 120, false));
  EXPECT_EQ(Room::free, residents.come(other, 11, false));
  residents.leave(other);
  EXPECT_EQ(Room::crowded, residents.come(other, 12, false));
}

// One that was told to leave may wait on the GPU yet. Nobody asks it again, and its guest's next kernel comes behind
// it.
TEST(ResidentsTest, CountsThoseThatAreStillToLeave) {
  Residents residents(132);
  Notes one, other;
  using Room = Residents::Room;
  EXPECT_EQ(Room::free, residents.come(one, 70, false));
  one.left = false;
  residents.leave(one);
  EXPECT_EQ(Room::crowded, residents.come(other, 70, false));
  EXPECT_EQ(one.asked, 0);
  residents.leave(other);
  EXPECT_EQ(Room::free, residents.come(one, 131, false));
  residents.leave(one);
  EXPECT_EQ(Room::crowded, residents.come(other, 1, false));
  residents.leave(other);
  one.left = true;
  EXPECT_EQ(Room::free, residents.come(other, 131, false));
  residents.leave(other);
  other.left = false;
  residents.forget(other);
  EXPECT_EQ(Room::free, residents.come(one, 131, false));
}

// One without a share, before what is launched on a share: that needs multiprocessors that it stands on, and begins
// behind its frames. It is not to stay there until it is idle.
TEST_F(ResidentOrder, LeavesBehindEachSubmissionWhereAShareNeedsRoom) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(multiprocessors - 1);
  put(*resident, kernel, 0, 2);
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(present, 1) << "nobody needs room yet";
  auto share = std::make_unique<Residents::Demand>(device_->cuda()->residents(), Residents::Needs::share);
  // What is launched on the share begins once no kernel stays.
  const auto launched = create_cuda_queue(device_);
  std::atomic<int> began{0};
  for (std::uint64_t n = 1; n < 6; ++n) {
    put(*resident, kernel, n, 2);
    EXPECT_EQ(launched->wait(resident->submit(), never), WaitResult::ready);
    fake_cuda::of(stream_of(*launched)).push([&began] {
      for (const Deadline end = Clock::now() + patience; Clock::now() < end; std::this_thread::yield()) {
        if (held != 0) continue;
        ++began;
        return;
      }
    });
    ASSERT_TRUE(done(launched->submit()));
    ASSERT_EQ(began, static_cast<int>(n));
  }
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
  share.reset();
  put(*resident, kernel, 6, 2);
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(present, 1) << "nobody needs room any more";
}

// Nor two that have all of them together, where the second waits for the first.
TEST_F(ResidentOrder, LeavesAMultiprocessorForWhatIsLaunched) {
  const MadeUpKernel kernel(body()), other_kernel(body());
  Launched launched(device_);
  const auto first = queue(3), second = queue(multiprocessors - 3);
  std::vector<std::uint64_t> expected;
  for (std::uint64_t n = 0; n < 6; ++n) {
    EXPECT_EQ(first->wait(launched.launch(), never), WaitResult::ready);
    put(*first, kernel, 2 * n, 3);
    EXPECT_EQ(second->wait(first->submit(), never), WaitResult::ready);
    put(*second, other_kernel, 2 * n + 1);
    ASSERT_TRUE(done(second->submit()));
    ASSERT_EQ(launched.began(), static_cast<int>(n) + 1);
    expected.insert(expected.end(), {2 * n, 2 * n + 1});
  }
  EXPECT_EQ(order(), expected);
}

// The first two are asked to leave when the third comes, and still wait where they are, for what is launched: a fourth
// must not take the multiprocessor that this needs.
TEST_F(ResidentOrder, LeavesAMultiprocessorWhereOthersAreStillToLeave) {
  const MadeUpKernel kernels[] = {MadeUpKernel(body()), MadeUpKernel(body()), MadeUpKernel(body()),
                                  MadeUpKernel(body())};
  Launched launched(device_);
  const std::unique_ptr<Queue> queues[] = {queue(2), queue(2), queue(2), queue(2)};
  std::atomic<bool> ends{false};
  Fence last = launched.launch_behind(ends);
  std::vector<std::thread> others;
  for (std::uint64_t n = 0; n < 4; ++n) {
    EXPECT_EQ(queues[n]->wait(last, never), WaitResult::ready);
    const auto run = [&, n] {
      put(*queues[n], kernels[n], n);
      return queues[n]->submit();
    };
    if (n < 2) {
      last = run();
    } else {
      others.emplace_back([run] { EXPECT_TRUE(done(run())); });
    }
    std::this_thread::sleep_for(20ms);  // those that were asked are told
  }
  ends = true;
  for (std::thread& other : others) other.join();
  EXPECT_EQ(launched.began(), 1);
  EXPECT_THAT(order(), testing::AnyOf(testing::ElementsAre(0, 1, 2, 3), testing::ElementsAre(0, 1, 3, 2)));
}

// Nor one of another pipeline, for which there is room for some of its blocks only: these would wait for the rest.
TEST_F(ResidentOrder, ComesBehindWhatOthersWaitForWhereThereIsNoRoom) {
  const MadeUpKernel kernels[] = {MadeUpKernel(body()), MadeUpKernel(body()), MadeUpKernel(body())};
  Launched launched(device_);
  const std::unique_ptr<Queue> queues[] = {queue(2), queue(2), queue(2)};
  std::atomic<bool> ends{false};
  Fence last = launched.launch_behind(ends);
  for (std::uint64_t n = 0; n < 2; ++n) {
    EXPECT_EQ(queues[n]->wait(last, never), WaitResult::ready);
    put(*queues[n], kernels[n], n);
    last = queues[n]->submit();
  }
  std::thread other([&] {
    put(*queues[2], kernels[2], 2);
    EXPECT_TRUE(done(queues[2]->submit()));
  });
  std::this_thread::sleep_for(20ms);  // what of it has room begins
  ends = true;
  ASSERT_TRUE(done(last));
  other.join();
  EXPECT_EQ(launched.began(), 1);
}

// That may be a kernel that never ends, of another pipeline: who stops does not wait for it, nor does anybody once it
// was given up.
TEST_F(ResidentOrder, IsGivenUpWhileOthersWaitForWhatDoesNotEnd) {
  const MadeUpKernel kernels[] = {MadeUpKernel(body()), MadeUpKernel(body()), MadeUpKernel(body())};
  Launched launched(device_);
  const std::unique_ptr<Queue> queues[] = {queue(2), queue(2), queue(1, 10min, 20ms)};
  std::atomic<bool> ends{false}, given_up{false};
  const Fence hangs = launched.launch_behind(ends);
  Fence last = hangs;
  for (std::uint64_t n = 0; n < 2; ++n) {
    EXPECT_EQ(queues[n]->wait(last, never), WaitResult::ready);
    put(*queues[n], kernels[n], n);
    last = queues[n]->submit();
  }
  queues[2]->set_wait(nullptr, [&given_up] { return given_up.load(); });
  std::thread stops([&] {
    std::this_thread::sleep_for(30ms);
    given_up = true;
  });
  EXPECT_THROW(put(*queues[2], kernels[2], 2), QueueCancelled);
  stops.join();
  given_up = false;
  std::thread gives_up([&] {
    std::this_thread::sleep_for(30ms);
    hangs.give_up("what the test launched");
  });
  put(*queues[2], kernels[2], 3);
  EXPECT_TRUE(done(queues[2]->submit()));
  gives_up.join();
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{3}));
  ends = true;
  ASSERT_TRUE(done(last));
}

// The GPU gives a multiprocessor that becomes free to the more urgent kernel, also while the rest of another one waits
// for it: of both there would be a part for ever.
TEST_F(ResidentOrder, TakesTurnsWithKernelsOfAnotherPriority) {
  const MadeUpKernel urgent_kernel(body()), kernel(body());
  const auto queue_of = [this](std::uint32_t blocks, std::uint32_t priority) {
    return create_resident_queue(
        device_, {.blocks = blocks, .idle = 10min, .stay = 10min, .cuda = {.priority = priority, .sm_share = 0}});
  };
  const auto urgent = queue_of(3, 1), other = queue_of(4, 0);
  put(*urgent, urgent_kernel, 0, 3);
  ASSERT_TRUE(done(urgent->submit()));
  held += 2;  // by something that is launched
  put(*other, kernel, 1, 4);
  const Fence last = other->submit();
  for (const Deadline end = Clock::now() + patience; (held != multiprocessors || launches != 2) && Clock::now() < end;)
    std::this_thread::yield();  // all but one block of it
  std::thread again([&] {
    put(*urgent, urgent_kernel, 2, 3);
    EXPECT_TRUE(done(urgent->submit()));
  });
  std::this_thread::sleep_for(20ms);  // what of it has room begins
  held -= 2;
  EXPECT_TRUE(done(last));
  again.join();
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0, 1, 2}));
}

// What was given up may never end: who waits for that keeps no other one from coming.
TEST_F(ResidentOrder, ComesBesideThoseThatWaitForWhatWasGivenUp) {
  const MadeUpKernel kernels[] = {MadeUpKernel(body()), MadeUpKernel(body()), MadeUpKernel(body())};
  Launched launched(device_);
  const std::unique_ptr<Queue> queues[] = {queue(2), queue(2), queue(1, 10min, 20ms)};
  std::atomic<bool> ends{false};
  Fence last = launched.launch_behind(ends);
  last.give_up("what the test launched");
  for (std::uint64_t n = 0; n < 2; ++n) {
    EXPECT_EQ(queues[n]->wait(last, never), WaitResult::ready);
    put(*queues[n], kernels[n], n);
    last = queues[n]->submit();
  }
  put(*queues[2], kernels[2], 2);
  EXPECT_EQ(queues[2]->submit().wait_for(5s), WaitResult::ready);
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{2}));
  ends = true;
  ASSERT_TRUE(done(last));
}

// From then on it waits for nothing on the GPU: it leaves, and what it is to wait for comes before the next one.
TEST_F(ResidentOrder, DoesNotWaitWhereItIsAskedToLeaveAsItComes) {
  static decltype(cuda::Driver::cuLaunchCooperativeKernel) launch = nullptr;
  static Residents* residents = nullptr;
  cuda::Driver& table = fake_cuda::table();
  launch = table.cuLaunchCooperativeKernel;
  residents = &device_->cuda()->residents();
  table.cuLaunchCooperativeKernel = [](CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                                       unsigned threads_y, unsigned threads_z, unsigned shared_bytes, CUstream stream,
                                       void** arguments) {
    if (launches == 0) const Residents::Absence asks(*residents);
    return launch(function, x, y, z, threads_x, threads_y, threads_z, shared_bytes, stream, arguments);
  };
  const MadeUpKernel kernel(body());
  Launched launched(device_);
  const auto resident = queue(2);
  std::atomic<bool> ends{false};
  EXPECT_EQ(resident->wait(launched.launch_behind(ends), never), WaitResult::ready);
  put(*resident, kernel, 0);
  const Fence last = resident->submit();
  for (const Deadline end = Clock::now() + patience; present != 0 && Clock::now() < end;) std::this_thread::yield();
  EXPECT_EQ(present, 0) << "the second one has not begun";
  EXPECT_FALSE(last.signalled());
  ends = true;
  ASSERT_TRUE(done(last));
  EXPECT_EQ(launches, 2);
  EXPECT_EQ(order(), (std::vector<std::uint64_t>{0}));
}

// The driver may answer nobody while one of its calls waits for an empty GPU. Who waits for a slot asks it.
TEST_F(ResidentOrder, LeavesWhileItsRingIsFull) {
  static std::mutex driver;
  static std::atomic<int> asked{0}, kept_waiting{0};
  asked = kept_waiting = 0;
  cuda::Driver& table = fake_cuda::table();
  const auto query = table.cuStreamQuery;
  static decltype(table.cuMemFreeHost) free_host = nullptr;
  free_host = table.cuMemFreeHost;
  table.cuStreamQuery = [](CUstream stream) {
    ++asked;
    std::unique_lock lock(driver, std::try_to_lock);
    if (!lock) {
      ++kept_waiting;
      lock.lock();
    }
    return fake_cuda::of(stream).empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  table.cuMemFreeHost = [](void* memory) {
    const std::lock_guard lock(driver);
    return free_host(memory);
  };
  {
    const MadeUpKernel kernel(body());
    const auto resident = queue(2);
    void* memory = nullptr;
    ASSERT_EQ(table.cuMemHostAlloc(&memory, 64, 0), CUDA_SUCCESS);
    gate = 0;
    std::thread frames([&] {
      for (std::uint64_t n = 0; n < 100; ++n) put(*resident, kernel, n);
      EXPECT_TRUE(done(resident->submit()));
    });
    while (asked == 0 || present == 0) std::this_thread::yield();  // it waits for a slot
    std::thread frees_it([&] {
      const Residents::Absence absence(device_->cuda()->residents());
      table.cuMemFreeHost(memory);
    });
    while (kept_waiting == 0) std::this_thread::yield();
    gate = ~std::uint64_t{0};
    frees_it.join();
    frames.join();
    EXPECT_EQ(order().size(), 100U);
  }
  table.cuStreamQuery = query;
}

// Of kernels, as a GPU with a display has it: however long it is to stay, it leaves in time.
TEST_F(ResidentOrder, KnowsATimeLimit) {
  const MadeUpKernel kernel(body());
  EXPECT_EQ(doorbell_of(*queue()).find("limits"), std::string::npos);
  time_limit = 1;
  const auto resident = queue();
  const std::string told = doorbell_of(*resident);
  EXPECT_EQ(told.substr(told.find(';') + 2),
            "made-up GPU limits the time of kernels, as one with a display does: it leaves after 200 ms");
  const Deadline end = Clock::now() + patience;
  for (std::uint64_t n = 0; launches < 2 && Clock::now() < end; ++n) {
    put(*resident, kernel, n);
    ASSERT_TRUE(done(resident->submit()));
  }
  EXPECT_EQ(launches, 2);
  EXPECT_NE(doorbell_of(*queue(2, 10min, 20ms)).find("it leaves after 20 ms"), std::string::npos);
}

// A turn waits for all blocks. Of these a multiprocessor takes one.
TEST_F(ResidentOrder, HasNoMoreBlocksThanTheGpuTakes) {
  const MadeUpKernel kernel(body());
  const auto resident = queue(100);
  for (std::uint64_t n = 0; n < 3; ++n) put(*resident, kernel, n, 100);
  ASSERT_TRUE(done(resident->submit()));
  EXPECT_EQ(blocks_there, multiprocessors);
  EXPECT_EQ(launches, 1);
}

}  // namespace
}  // namespace gpumap
