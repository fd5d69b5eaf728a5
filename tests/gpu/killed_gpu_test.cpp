// SPDX-License-Identifier: MIT
// Processes with a kernel that stays on the GPU, ended at any moment: by Ctrl-C, by SIGKILL, and with a kernel that
// never ends, or stopped by SIGSTOP. The next one starts at once and gives the right bytes. The processes are
// gst-launch-1.0 where it and the plugin are there, and this program itself, which plays a pipeline when it is told to.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

#include "../unit/test_helpers.hpp"
#include "mode_pipeline.hpp"

namespace gpumap::gst::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t block = 1009;

/// The plugin that gst-launch-1.0 is to load: GPUMAP_PLUGIN, or the one beside this program. Empty: none.
std::string plugin_folder() {
  if (const char* named = std::getenv("GPUMAP_PLUGIN")) return std::filesystem::path(named).parent_path();
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& folder : {here, here / "gstreamer-1.0"}) {
    if (exists(folder / "libgstgpumap.so")) return folder;
  }
  return {};
}

/// A process that plays a pipeline. Killed at the latest with its owner.
class Process {
 public:
  Process(const std::string& player, const std::string& description, const std::string& log) {
    // To a file: what a player counts as failed, such as the watchdog's error, is not a failure of this program.
    std::string command = "exec >'" + log + "' 2>&1 ";
    if (player == "gst-launch-1.0") {
      command += "env G_DEBUG= GST_PLUGIN_PATH='" + plugin_folder() + "' gst-launch-1.0 -q " + description;
    } else {
      setenv("GPUMAP_TEST_PLAYS", description.c_str(), 1);
      command += std::filesystem::read_symlink("/proc/self/exe").string() +
                 " --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter=Peer.DISABLED_Plays";
    }
    std::vector<char*> argv{const_cast<char*>("sh"), const_cast<char*>("-c"), command.data(), nullptr};
    if (posix_spawnp(&pid_, "sh", nullptr, nullptr, argv.data(), environ) != 0) throw std::runtime_error("no sh");
  }
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) const { kill(pid_, number); }
  /// "exit 0", "signal 9", or "runs" where it does not end.
  std::string wait(Time limit = patience) {
    int status = 0;
    if (pid_ > 0 && !eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, limit)) return "runs";
    pid_ = -1;
    return WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status))
                             : "signal " + std::to_string(WTERMSIG(status));
  }

 private:
  pid_t pid_ = -1;
};

/// A mode and who plays.
class Killed : public GpuPipeline, public testing::WithParamInterface<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    GpuPipeline::SetUp();
    if (IsSkipped()) return;
    cuda_ = device_->has(Backend::cuda);
    const std::string mode = std::get<0>(GetParam());
    if (mode == "resident" && !cuda_) GTEST_SKIP() << "no kernel stays without CUDA: " << device_->info().name;
    if (player() == "gst-launch-1.0") {
      if (sanitized) GTEST_SKIP() << "gst-launch-1.0 has no sanitizer's run time";
      if (std::system("gst-launch-1.0 --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no gst-launch-1.0";
      if (plugin_folder().empty()) GTEST_SKIP() << "no plugin beside this program: GPUMAP_PLUGIN may name one";
    }
    device_.reset();  // this process shall not hold what the others are to have
    input_ = random_data(std::size_t{8} << 20U, 4711);
    std::ofstream(in_path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(input_.data()), static_cast<std::streamsize>(input_.size()));
    Mixed mixed;
    for (std::size_t at = 0; at < input_.size(); at += block) {
      const Data out =
          mixed.next(Data(input_.begin() + static_cast<std::ptrdiff_t>(at),
                          input_.begin() + static_cast<std::ptrdiff_t>(std::min(at + block, input_.size()))));
      expected_.insert(expected_.end(), out.begin(), out.end());
    }
    kernel_ = folder_.add(cuda_ ? "kernel.cu" : "kernel.comp", text_of(mixing, cuda_));
  }
  [[nodiscard]] std::string player() const { return std::get<1>(GetParam()); }
  [[nodiscard]] std::string in_path() const { return at_ + ".in"; }
  [[nodiscard]] std::string out_path() const { return out_; }
  [[nodiscard]] std::string log_path() const { return at_ + ".log"; }
  void TearDown() override {
    if (HasFailure()) std::cout << "the last player said:\n" << std::ifstream(log_path()).rdbuf() << std::endl;
    GpuPipeline::TearDown();
  }

  /// Some thousand frames a second, for seconds, or on a CPU that others want, too, some hundred for longer; or the
  /// first ones as fast as they go.
  [[nodiscard]] std::string line(const std::string& kernel, unsigned frames = 0) const {
    return "filesrc location=" + in_path() + " blocksize=" + std::to_string(block) +
           (frames != 0 ? " num-buffers=" + std::to_string(frames) : std::string()) + " ! application/octet-stream ! " +
           (frames != 0 ? ""
            : software_ ? "identity sleep-time=2000 ! "
                        : "identity sleep-time=300 ! ") +
           "gpumapsink sync=false channel=killed gpumapsrc channel=killed ! gpumapkernel mode=" +
           std::get<0>(GetParam()) + " resident-idle=3600000 " + kernel +
           " ! application/octet-stream ! filesink buffer-mode=unbuffered location=" + out_path();
  }
  [[nodiscard]] std::size_t written() const {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(out_path(), none);
    return none ? 0 : bytes;
  }
  /// What was written is how it should begin.
  void expect_begins_right() const {
    std::ifstream file(out_path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    ASSERT_LE(text.size(), expected_.size());
    EXPECT_EQ(std::memcmp(text.data(), expected_.data(), text.size()), 0);
  }
  void expect_next_is_right(double* ms) const {
    std::filesystem::remove(out_path());
    constexpr unsigned frames = 200;
    const auto began = Clock::now();
    Process next(player(), line("location=" + kernel_, frames), log_path());
    EXPECT_TRUE(eventually([&] { return written() != 0; }));
    *ms = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
    EXPECT_EQ(next.wait(), "exit 0");
    EXPECT_EQ(written(), frames * block);
    expect_begins_right();
  }

  bool cuda_ = false;
  Data input_, expected_;
  const std::string at_ = folder_.add("at", "");
  std::string out_ = at_ + ".out";
  std::string kernel_;
};
INSTANTIATE_TEST_SUITE_P(Gpu, Killed,
                         testing::Combine(testing::Values("launch", "resident"),
                                          testing::Values("gst-launch-1.0", "this program")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) +
                                  (std::get<1>(test.param)[0] == 'g' ? "_gst_launch" : "_alone");
                         });

/// Not a test: what another process of this program does.
TEST(Peer, DISABLED_Plays) {
  const char* description = std::getenv("GPUMAP_TEST_PLAYS");
  if (description == nullptr) GTEST_SKIP() << "nobody asked";
  static volatile std::sig_atomic_t interrupted = 0;
  (void)std::signal(SIGINT, [](int /*number*/) { interrupted = 1; });
  Pipeline pipeline(description);
  ASSERT_NE(pipeline.set_state(GST_STATE_PLAYING), GST_STATE_CHANGE_FAILURE) << pipeline.wait(1s);
  std::string verdict;
  do {
    verdict = pipeline.wait(10ms);
  } while (verdict == "timeout" && interrupted == 0);
  EXPECT_TRUE(interrupted != 0 || verdict == "eos") << verdict;
  EXPECT_LT(pipeline.stop(), patience);
}

TEST_P(Killed, TheNextStartsAtOnceAndIsRight) {
  std::mt19937 random(1);
  for (const int number : {SIGINT, SIGKILL}) {
    double slowest = 0, ended = 0;
    for (unsigned round = 0; round < times(5, 2); ++round) {
      std::filesystem::remove(out_path());
      Process process(player(), line("location=" + kernel_), log_path());
      // Under way, and somewhere in a frame or between two.
      ASSERT_TRUE(eventually([&] { return written() > 20 * block; })) << process.wait(1ms);
      g_usleep(random() % 50'000);
      const auto began = Clock::now();
      process.signal(number);
      EXPECT_EQ(process.wait(), number == SIGKILL ? "signal 9" : "exit 0");
      ended = std::max(ended, std::chrono::duration<double, std::milli>(Clock::now() - began).count());
      ASSERT_LT(written(), expected_.size()) << "it was over before";
      expect_begins_right();
      double ms = 0;
      expect_next_is_right(&ms);
      slowest = std::max(slowest, ms);
    }
    std::printf("signal %d: gone after %.0f ms, the next one's first frame after %.0f ms at most\n", number, ended,
                slowest);
    EXPECT_LT(ended, 40'000);
    EXPECT_LT(slowest, 40'000);
  }
}

// A process that is stopped leaves its kernel where it stays: others run beside it, and it continues where it was.
TEST_P(Killed, OneThatIsStoppedKeepsNobodyAndContinues) {
  Process process(player(), line("timeout=2000 location=" + kernel_), log_path());
  ASSERT_TRUE(eventually([&] { return written() > 20 * block; })) << process.wait(1ms);
  process.signal(SIGSTOP);
  const auto until = Clock::now() + 3s;
  const std::string own = std::exchange(out_, at_ + ".other");
  double ms = 0;
  expect_next_is_right(&ms);
  std::printf("beside one that is stopped: the first frame after %.0f ms\n", ms);
  out_ = own;
  std::this_thread::sleep_until(until);
  const auto before = written();
  process.signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return written() > before + 20 * block || written() == expected_.size(); }));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), "exit 0");
  expect_begins_right();
}

// The watchdog's error ends the process, though the kernel never would.
TEST_P(Killed, AKernelThatNeverEndsEndsWithItsProcess) {
  if (!cuda_) GTEST_SKIP() << "a software driver's threads end before their process does";
  const std::string body =
      std::string("  if (frame.sequence > 50) while (*(volatile U32*)frame.in.plane[0] != 1u || true) {}\n") +
      mixing.body;
  const std::string endless = folder_.add("endless.cu", text_of({mixing.declarations, body.c_str()}, true));
  for (const int number : {0, SIGINT, SIGKILL}) {
    std::filesystem::remove(out_path());
    Process process(player(), line("timeout=" + std::to_string(number == 0 ? 500 : 60'000) + " location=" + endless),
                    log_path());
    ASSERT_TRUE(eventually([&] { return written() > 20 * block; })) << process.wait(1ms);
    if (number != 0) {
      g_usleep(300'000);  // it is in that frame by then
      process.signal(number);
    }
    const auto began = Clock::now();
    EXPECT_THAT(process.wait(), testing::AnyOf("exit 1", "exit 0", "signal 9")) << number;
    std::printf("signal %d: gone after %.0f ms\n", number,
                std::chrono::duration<double, std::milli>(Clock::now() - began).count());
    expect_begins_right();
    double ms = 0;
    expect_next_is_right(&ms);
  }
}

}  // namespace
}  // namespace gpumap::gst::test
