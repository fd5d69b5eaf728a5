// SPDX-License-Identifier: MIT
// What crosses a link beside the frames and against their direction: questions and answers, messages that overtake,
// frames that a flush takes back. A server that does not answer costs a client its patience and no more.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "link_raw.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words

/// Holds a thread at its next poll() until it is opened.
struct SleepDoor {
  std::atomic<bool> reached{false}, open{false};
  std::atomic<bool> was_awake{false};  ///< what it was to wait for was there
  static thread_local SleepDoor* mine;
};
thread_local SleepDoor* SleepDoor::mine = nullptr;

/// A server whose questions are answered in another thread: with the same text, backwards; "wait" is not, and "no!" is
/// not even taken.
struct Answering {
  Answering()
      : served(4, {.on_question =
                       [this](LinkQuestion& question) {
                         if (text_of(question.text) == "no!") return false;
                         const std::lock_guard lock(mutex);
                         questions.push_back(std::move(question));
                         came.notify_all();
                         return true;
                       }}),
        thread([this] { answer(); }) {}
  ~Answering() {
    ends = true;
    thread.join();
    served.server.reset();
  }
  void answer() {
    while (!ends) {
      std::unique_lock lock(mutex);
      if (!came.wait_for(lock, 1ms, [this] { return !questions.empty(); })) continue;
      const LinkQuestion question = std::move(questions.front());
      questions.pop_front();
      const std::string text = text_of(question.text);
      if (question.number == 0) last_told = text;
      lock.unlock();
      if (text != "wait") served.server->answer(question, bytes_of({text.rbegin(), text.rend()}));
    }
  }
  std::string told() {
    const std::lock_guard lock(mutex);
    return last_told;
  }
  std::mutex mutex;
  std::condition_variable came;
  std::deque<LinkQuestion> questions;
  std::string last_told;
  std::atomic<bool> ends{false};
  Served served;
  std::thread thread;
};

std::optional<std::string> ask(LinkConsumer& consumer, const std::string& text, Deadline deadline = soon()) {
  std::vector<std::byte> answer;
  if (!consumer.ask(bytes_of(text), answer, deadline)) return std::nullopt;
  return text_of(answer);
}

TEST(LinkQuestions, AreAnsweredFromAnyNumberOfThreads) {
  Answering answering;
  const auto consumer = answering.served.consumer();
  EXPECT_EQ(ask(*consumer, "abc"), "cba") << "nobody calls next()";
  std::atomic<bool> ends{false};
  std::atomic<bool> all_sent{false};  // until then the writer may wait for the reader
  std::thread reader([&] {
    std::uint64_t n = 0;
    while (!all_sent) {
      const std::string next = next_of(*consumer);
      if (next == "interrupted") continue;
      EXPECT_EQ(next, std::to_string(n));
      ++n;
    }
  });
  std::thread writer([&] {
    for (std::uint64_t n = 0; !ends; ++n) answering.served.send(n);
  });
  std::vector<std::thread> askers;
  for (int asker = 0; asker < 4; ++asker) {
    askers.emplace_back([&consumer, asker] {
      for (int n = 0; n < 100; ++n) {
        std::string text = std::to_string(asker) + " asks " + std::to_string(n);
        const std::string backwards(text.rbegin(), text.rend());
        EXPECT_EQ(ask(*consumer, text), backwards);
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
  ends = true;
  writer.join();
  all_sent = true;
  consumer->interrupt();
  reader.join();
}

// Who sleeps in next() must not miss what the thread that waits for an answer has read: its sleep begins here once that
// is so.
TEST(LinkQuestions, LeaveFramesAndMessagesToWhoWaitsForThem) {
  Answering answering;
  const auto consumer = answering.served.consumer();
  for (const bool is_frame : {true, false}) {
    SleepDoor door;
    std::thread reader([&] {
      SleepDoor::mine = &door;
      EXPECT_EQ(next_of(*consumer), is_frame ? "7" : "'message'");
    });
    EXPECT_TRUE(comes_true([&] { return door.reached.load(); }));
    if (is_frame) {
      EXPECT_EQ(answering.served.send(7), RingStatus::ok);  // and a message that wakes
    } else {
      answering.served.server->send(bytes_of("message"));
    }
    EXPECT_EQ(ask(*consumer, "xy"), "yx");
    door.open = true;
    reader.join();
    EXPECT_TRUE(door.was_awake) << "only its second look woke it";
  }
}

TEST(LinkQuestions, ToldIsToldAndHasNoAnswer) {
  Answering answering;
  const auto consumer = answering.served.consumer();
  ASSERT_TRUE(consumer->tell(bytes_of("hear this")));
  EXPECT_EQ(ask(*consumer, "a"), "a");
  EXPECT_EQ(answering.told(), "hear this");
}

TEST(LinkQuestions, WithoutAnAnswerAreWaitedForUntilTheDeadlineOrTheEnd) {
  auto answering = std::make_unique<Answering>();
  const auto consumer = answering->served.consumer();
  const Deadline began = Clock::now();
  EXPECT_EQ(ask(*consumer, "wait", began + 50ms), std::nullopt);
  EXPECT_GE(Clock::now() - began, 50ms);
  EXPECT_EQ(ask(*consumer, "ab"), "ba") << "a late answer is nobody's";
  std::thread asker([&] { EXPECT_EQ(ask(*consumer, "wait"), std::nullopt); });
  std::this_thread::sleep_for(20ms);
  answering.reset();
  asker.join();
  EXPECT_EQ(ask(*consumer, "ab"), std::nullopt);
  EXPECT_FALSE(consumer->tell(bytes_of("ab")));
  EXPECT_LT(Clock::now() - began, patience);
}

TEST(LinkQuestions, AreBounded) {
  Answering answering;
  const auto consumer = answering.served.consumer();
  const std::string longest(max_link_question, 'x');
  EXPECT_EQ(ask(*consumer, longest), longest);
  error_text([&] { (void)ask(*consumer, longest + "x"); }, ErrorCode::invalid);
  error_text([&] { (void)consumer->tell(bytes_of(longest + "x")); }, ErrorCode::invalid);
  // A client that asks and asks is not answered more often than it could wait for.
  RawClient greedy(answering.served.path);
  greedy.join();
  for (std::uint64_t n = 1; n <= 1000; ++n) {
    static_cast<void>(link::send_message(greedy.fd(), link::encode_ask(greedy.generation(), {n}, bytes_of("wait"))));
  }
  EXPECT_EQ(ask(*consumer, "ab"), "ba");
  greedy.send(link::encode_ask(greedy.generation(), {0}, bytes_of("done")));
  EXPECT_TRUE(comes_true([&] { return ask(*consumer, "ab") == "ba" && answering.told() == "done"; }));
}

TEST(LinkQuestions, ThatAreNotTakenHaveAnEmptyAnswer) {
  Answering answering;
  const auto consumer = answering.served.consumer();
  // More than a client may have unanswered: each of them counts as answered.
  for (int n = 0; n < 200; ++n) {
    ASSERT_EQ(ask(*consumer, "no!"), "");
    ASSERT_TRUE(consumer->tell(bytes_of("no!")));
  }
  EXPECT_EQ(ask(*consumer, "ab"), "ba");
}

TEST(LinkQuestions, AMessageAtOnceOvertakesFramesAndIsHeardWithoutThem) {
  Answering answering;
  const auto consumer = answering.served.consumer();
  answering.served.send(1);
  answering.served.server->send(bytes_of("in order"));
  answering.served.server->send_at_once(bytes_of("at once"));
  LinkFrame frame;
  ASSERT_EQ(consumer->hear(frame, soon()), LinkNext::message);
  EXPECT_EQ(text_of(frame.message), "at once");
  EXPECT_EQ(consumer->hear(frame, Clock::now() + 20ms), LinkNext::timeout);
  answering.served.server->send_at_once(bytes_of("again"));
  EXPECT_TRUE(comes_true([&] { return ask(*consumer, "") == ""; }));
  EXPECT_EQ(next_of(*consumer), "'again'");
  EXPECT_EQ(next_of(*consumer), "1");
  EXPECT_EQ(next_of(*consumer), "'in order'");
}

// The consumer meets a frame first, and then reads what was sent before it.
TEST(LinkQuestions, AMessageAtOnceOvertakesWhatIsReadWithIt) {
  Answering answering;
  const auto consumer = answering.served.consumer();
  LinkFrame frame;
  ReadLease lease;
  ASSERT_EQ(consumer->next(lease, frame, Clock::now() + 20ms), LinkNext::timeout) << "it knows its socket to be empty";
  answering.served.server->send_at_once(bytes_of("at once"));
  answering.served.server->send(bytes_of("in order"));
  answering.served.send(1);
  for (const char* const next : {"'at once'", "'in order'", "1"}) EXPECT_EQ(next_of(*consumer), next);
}

// Of one process some connections only look now and then, and ask nothing.
TEST(LinkQuestions, AMarkIsPassedByWhoAsksAndByOthersOfItsProcessThatDo) {
  LinkQuestion asked;
  std::atomic<int> came{0};
  Served served(4, {.on_question = [&](LinkQuestion& question) {
                  if (came == 0) asked = std::move(question);
                  ++came;
                  return true;
                }});
  const auto asker = served.consumer();
  const auto other = served.consumer();
  ASSERT_TRUE(asker->tell(bytes_of("x")));
  ASSERT_TRUE(comes_true([&] { return came == 1; }));
  served.server->send(bytes_of("end"));
  served.server->mark();
  EXPECT_FALSE(served.server->is_past_mark(asked));
  EXPECT_EQ(next_of(*asker), "'end'");
  EXPECT_FALSE(served.server->is_past_mark(asked)) << "it may still deal with that";
  EXPECT_EQ(at_once(*asker), "timeout");
  EXPECT_TRUE(served.server->is_past_mark(asked));
  ASSERT_TRUE(other->tell(bytes_of("y")));
  ASSERT_TRUE(comes_true([&] { return came == 2; }));
  EXPECT_FALSE(served.server->is_past_mark(asked));
  // Of a namespace that is not seen here, it may be anybody's.
  asked.who.pid = 0;
  EXPECT_TRUE(served.server->is_past_mark(asked));
}

// A client that may miss frames, and is paused beside an event with each of them: it keeps its connection, and asks.
TEST(LinkQuestions, WhoMayMissFramesMayMissWhatGoesWithThem) {
  Answering answering;
  LinkServer& server = *answering.served.server;
  for (const LinkLeak leak : {LinkLeak::oldest, LinkLeak::newest}) {
    const auto client = answering.served.consumer(leak);
    for (int n = 0; n < 20'000; ++n) server.send(bytes_of("x"), 0, LinkServer::Unread::skip);
    ASSERT_EQ(server.clients().size(), 1U);
    EXPECT_EQ(ask(*client, "ab"), "ba");
    server.send(bytes_of("last"));
    std::size_t got = 0;
    while (next_of(*client) == "'x'") ++got;
    EXPECT_GE(got, 256U);
    EXPECT_LT(got, 300U);
    ReadLease lease;
    EXPECT_EQ(next_of(*client, lease, Clock::now() + 1ms), "timeout");
    server.send(bytes_of("again"), 0, LinkServer::Unread::skip);
    EXPECT_EQ(next_of(*client), "'again'");
  }
  // Who may miss nothing is waited for instead.
  const auto careful = answering.served.consumer(LinkLeak::no);
  for (int n = 0; n < 400; ++n) server.send(bytes_of(std::to_string(n)), 0, LinkServer::Unread::skip);
  for (int n = 0; n < 400; ++n) ASSERT_EQ(next_of(*careful), "'" + std::to_string(n) + "'");
}

TEST(LinkQuestions, WhatIsWithdrawnIsNotSeenAndNotCounted) {
  Answering answering;
  const auto consumer = answering.served.consumer();
  ReadLease taken;
  for (std::uint64_t n = 0; n < 3; ++n) answering.served.send(n);
  ASSERT_EQ(next_of(*consumer, taken), "0");
  answering.served.server->withdraw_all();
  answering.served.server->send(bytes_of("flushed"));
  answering.served.send(7);
  EXPECT_EQ(answering.served.server->clients().at(0).dropped, 0U);
  EXPECT_EQ(answering.served.server->clients().at(0).slots, 2U);
  EXPECT_EQ(next_of(*consumer), "'flushed'");
  EXPECT_EQ(next_of(*consumer), "7");
}

}  // namespace
}  // namespace gpumap

/// In place of the C library's, also for the library under test.
extern "C" __attribute__((visibility("default"))) int poll(pollfd* fds, nfds_t nfds, int timeout) {
  if (auto* const door = std::exchange(gpumap::SleepDoor::mine, nullptr)) {
    door->reached = true;
    gpumap::test::comes_true([door] { return door->open.load(); });
    const timespec no_time{};
    const int ready = ppoll(fds, nfds, &no_time, nullptr);
    door->was_awake = ready > 0;
    if (ready != 0) return ready;
  }
  const timespec time{timeout / 1000, timeout % 1000 * 1'000'000L};
  return ppoll(fds, nfds, timeout < 0 ? nullptr : &time, nullptr);
}
