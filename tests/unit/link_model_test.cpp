// SPDX-License-Identifier: MIT
// The link's protocol in many thousand orders of its steps, with few slots, tickets that wrap, flushes, clients that
// join, say goodbye with a frame in their hands, and die between any two steps: no slot is two things at once, no frame
// is read that is not whole or was flushed, nothing is lost and nobody sleeps for ever. Variants that are broken on
// purpose have to be caught, so it looks where it should.
// GPUMAP_MODEL_ROUNDS and GPUMAP_LINK_SEED change how many and which.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "link/fan_out.hpp"
#include "link_model.hpp"
#include "sanitizers.hpp"

namespace gpumap {
namespace {

using namespace test;  // NOLINT: the tests' own words
using Tickets = link::TicketArithmetic<6>;

/// In which order a client says that it sleeps, and looks for the last time.
enum class Sleeping { says_then_looks, looks_then_says };

struct Setting {
  std::uint32_t slots = 2;
  std::uint32_t clients = 2;
  std::uint64_t frames = 8;
  std::uint64_t first_ticket = 0;
  Sleeping sleeping = Sleeping::says_then_looks;
};

/// One run. The producer, which is the server, is one actor; each client is one.
template <typename Word>
class Model {
 public:
  Model(const Setting& setting, std::uint64_t seed)
      : setting_(setting),
        scheduler_(seed),
        fan_(setting.slots, 1, Free{this}),
        contents_(setting.slots, 0),
        readers_(setting.slots, 0),
        free_(setting.slots, true) {}

  /// Empty, or what went wrong.
  std::string run() {
    clients_.resize(setting_.clients);
    for (std::uint32_t index = 0; index < setting_.clients; ++index) begin_client(index);
    const std::size_t producer = scheduler_.add([this] { produce(); });
    auto& random = scheduler_.random();
    while (trouble_.empty()) {
      if (random() % 64 == 0) disturb(static_cast<std::uint32_t>(random() % setting_.clients));
      // A death is heard of in the end.
      if (!scheduler_.step() && !hear_of_a_death() && (scheduler_.runs(producer) || !end_if_quiet())) break;
      if (scheduler_.steps() > 100'000) return "it does not end";
    }
    if (!trouble_.empty()) return trouble_;
    if (scheduler_.runs(producer)) return "the producer waits for ever";
    for (std::uint32_t index = 0; index < setting_.clients; ++index) {
      Client& client = *clients_[index];
      if (!scheduler_.runs(client.actor) || client.gone) continue;
      return "client " + std::to_string(index) + " sleeps, and " + std::to_string(setting_.frames) +
             " frames were published, of which it saw " + std::to_string(client.last);
    }
    for (std::uint32_t index = 0; index < setting_.clients; ++index) hang_up(index);
    for (std::uint32_t slot = 0; slot < setting_.slots; ++slot) {
      if (!free_[slot]) return "slot " + std::to_string(slot) + " is lost";
    }
    return {};
  }

 private:
  struct Free {
    Model* model;
    void operator()(std::uint32_t slot) const { model->set_free(slot); }
  };
  struct Client {
    std::unique_ptr<link::BasicClientBlock<Word>> block;
    std::unique_ptr<link::Claims<Word, Tickets>> claims;
    LinkLeak leak = LinkLeak::no;
    std::size_t actor = 0;
    bool woken = false;       ///< a message is in its socket
    bool server_end = false;  ///< the server has said that nothing comes any more
    bool gone = false;        ///< dead, and the server has heard of it
    bool dead = false;
    bool said_bye = false;  ///< and the server knows
    std::uint64_t last = 0;
    std::vector<std::uint32_t> reading;
  };

  void fail(std::string what) {
    if (trouble_.empty()) trouble_ = std::move(what);
  }
  void set_free(std::uint32_t slot) {
    if (free_[slot]) fail("slot " + std::to_string(slot) + " became free twice");
    free_[slot] = true;
  }

  void begin_client(std::uint32_t index) {
    auto& random = scheduler_.random();
    auto fresh = std::make_shared<Client>();
    fresh->block = std::make_unique<link::BasicClientBlock<Word>>();
    fresh->claims =
        std::make_unique<link::Claims<Word, Tickets>>(*fresh->block, setting_.slots, 100, setting_.first_ticket);
    fresh->leak = static_cast<LinkLeak>(random() % 3);
    // A client of a mutex: here the server's calls are whole, but for the steps in them.
    clients_[index] = fresh;
    joins_.push_back(index);
    fresh->actor = scheduler_.add([this, fresh, index] { consume(*fresh, index); });
  }

  /// A client dies, or its death is heard of and another takes its place.
  void disturb(std::uint32_t index) {
    Client& client = *clients_[index];
    if (!client.dead) {
      if (scheduler_.random()() % 4 != 0) return;
      client.dead = true;
      scheduler_.kill(client.actor);
      for (const std::uint32_t slot : client.reading) --readers_[slot];
      client.reading.clear();
    } else {
      hear_of_a_death();
    }
  }
  bool hear_of_a_death() {
    for (std::uint32_t index = 0; index < setting_.clients; ++index) {
      Client& client = *clients_[index];
      if (!client.dead || client.gone) continue;
      hangups_.push_back(index);
      client.gone = true;
      return true;
    }
    return false;
  }
  void hang_up(std::uint32_t index) { fan_.leave(index); }

  /// What the service thread does, under the server's mutex.
  void serve() {
    join_all();
    for (const std::uint32_t index : std::exchange(byes_, {})) {
      fan_.stop_offering(index);
      clients_[index]->said_bye = true;
    }
    while (!hangups_.empty()) {
      const std::uint32_t index = hangups_.back();
      hangups_.pop_back();
      hang_up(index);
      begin_client(index);
    }
    join_all();
  }
  void join_all() {
    while (!joins_.empty()) {
      const std::uint32_t index = joins_.back();
      joins_.pop_back();
      Client& client = *clients_[index];
      fan_.join(index, *client.block, client.leak, setting_.first_ticket);
    }
  }
  void collect() {
    for (std::uint32_t index = 0; index < setting_.clients; ++index) {
      if (fan_.client(index) && !fan_.reclaim(index, false)) fail("an honest client was taken for a liar");
    }
  }
  [[nodiscard]] std::optional<std::uint32_t> take_free() {
    for (std::uint32_t slot = 0; slot < setting_.slots; ++slot) {
      if (free_[slot]) return slot;
    }
    return std::nullopt;
  }

  /// The producer's LinkServer::acquire() and publish().
  void produce() {
    for (std::uint64_t n = 1; n <= setting_.frames; ++n) {
      serve();
      collect();
      if (scheduler_.random()() % 8 == 0) {
        fan_.withdraw_all();
        flushed_ = n - 1;
      }
      std::optional<std::uint32_t> slot;
      while (!(slot = take_free())) {
        if (!trouble_.empty()) return;
        if (fan_.make_room(false)) continue;
        fan_.want_returns();
        collect();
        if (take_free()) continue;
        // Woken by a client, or by a death: there is no second look here, so that a lost wake-up is seen.
        Scheduler::wait([this] { return producer_woken_ || !hangups_.empty() || !byes_.empty(); });
        producer_woken_ = false;
        serve();
        collect();
      }
      free_[*slot] = false;
      if (readers_[*slot] != 0) fail("slot " + std::to_string(*slot) + " is written while somebody reads it");
      contents_[*slot] = 0;  // half a frame
      Scheduler::yield();
      contents_[*slot] = n;
      FrameInfo info;
      info.sequence = n;
      info.bytes = n;
      const link::Shown shown{info, 0, 0, {}};
      fan_.publish(
          *slot, [&](std::uint32_t) -> const link::Shown& { return shown; },
          [this](std::uint32_t index) { clients_[index]->woken = true; });
      for (std::uint32_t index = 0; index < setting_.clients; ++index) {
        if (!clients_[index]->said_bye || !fan_.client(index)) continue;
        if (fan_.client(index)->queue.withdraw()) fail("a client that said goodbye was shown a frame");
      }
    }
    serve();
  }
  /// All sleep. Once: nobody may sleep on a frame; then the server says that it ends.
  bool end_if_quiet() {
    if (std::exchange(ended_, true)) return false;
    for (std::uint32_t index = 0; index < setting_.clients; ++index) {
      Client& client = *clients_[index];
      if (client.dead || !fan_.client(index)) continue;
      if (fan_.client(index)->queue.withdraw()) fail("client " + std::to_string(index) + " sleeps on a frame");
    }
    for (auto& client : clients_) client->server_end = true;
    return true;
  }

  /// The oldest frame that is offered. Returns within the step in which the client's claim counts.
  [[nodiscard]] std::optional<link::Claimed> take(Client& self) {
    link::Claimed frame;
    const link::Claim claim = self.claims->claim(frame);
    if (claim == link::Claim::lie) fail("an honest server was taken for a liar");
    if (claim != link::Claim::got) return std::nullopt;
    const std::uint64_t n = frame.shown.info.sequence;
    if (n <= self.last) fail("frame " + std::to_string(n) + " after " + std::to_string(self.last));
    if (n <= flushed_) fail("frame " + std::to_string(n) + " was flushed, and is taken");
    if (frame.shown.info.bytes != n) fail("frame " + std::to_string(n) + " has another one's length");
    self.last = n;
    ++readers_[frame.slot];
    self.reading.push_back(frame.slot);
    return frame;
  }
  void read(Client& self, const link::Claimed& frame) {
    const std::uint64_t n = frame.shown.info.sequence;
    for (int look = 0; look < 2; ++look) {
      if (contents_[frame.slot] != n) {
        fail("frame " + std::to_string(n) + " is torn: " + std::to_string(contents_[frame.slot]));
      }
      Scheduler::yield();
    }
    --readers_[frame.slot];
    self.reading.clear();
    if (self.claims->give_back(frame.slot)) {
      Scheduler::yield();  // it may die between taking the word and sending the message
      producer_woken_ = true;
    }
  }
  /// As a consumer that ends while a lease of its lives on. The server hears of the end of that as of a death.
  void leave(Client& self, std::uint32_t index) {
    const auto last = take(self);
    byes_.push_back(index);
    Scheduler::yield();
    if (last) read(self, *last);
    self.dead = true;
  }

  void consume(Client& self, std::uint32_t index) {
    const auto claim_and_read = [&] {
      const auto frame = take(self);
      if (frame) read(self, *frame);
      return frame.has_value();
    };
    while (trouble_.empty()) {
      if (claim_and_read()) {
        if (scheduler_.random()() % 16 == 0) return leave(self, index);
        continue;
      }
      if (setting_.sleeping == Sleeping::says_then_looks) {
        self.block->asleep.store(1);
        if (claim_and_read()) continue;
      } else {
        if (claim_and_read()) continue;
        self.block->asleep.store(1);
      }
      Scheduler::wait([&] { return self.woken || self.server_end; });
      self.woken = false;
      if (!self.server_end) continue;
      // As hang-up: what was offered to the last.
      while (claim_and_read()) {
      }
      return;
    }
  }

  const Setting setting_;
  Scheduler scheduler_;
  link::FanOut<Word, Free, Tickets> fan_;
  std::vector<std::shared_ptr<Client>> clients_;
  std::vector<std::uint32_t> joins_, byes_, hangups_;
  std::vector<std::uint64_t> contents_;
  std::vector<int> readers_;
  std::vector<bool> free_;
  std::uint64_t flushed_ = 0;  ///< frames up to this one
  bool producer_woken_ = false;
  bool ended_ = false;
  std::string trouble_;
};

std::uint64_t rounds() {
  const char* text = std::getenv("GPUMAP_MODEL_ROUNDS");
  return text != nullptr ? std::stoull(text) : 2000;
}
std::uint64_t first_seed() {
  const char* text = std::getenv("GPUMAP_LINK_SEED");
  return text != nullptr ? std::stoull(text) : 1;
}

/// The sanitizers lose their way where stacks are switched; and one thread makes no races.
struct LinkModel : testing::Test {
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "the actors have stacks of their own";
  }
};

/// The first trouble of many runs, with its seed.
template <typename Word>
std::string explore(const Setting& setting, std::uint64_t runs = rounds()) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + runs; ++seed) {
    const std::string trouble = std::make_unique<Model<Word>>(setting, seed)->run();
    if (!trouble.empty()) return "seed " + std::to_string(seed) + ": " + trouble;
  }
  return {};
}

TEST_F(LinkModel, TicketsWrap) {
  EXPECT_EQ(Tickets::next(63), 0U);
  EXPECT_EQ(Tickets::ahead(1, 62), 3);
  EXPECT_EQ(Tickets::ahead(62, 1), -3);
  EXPECT_EQ(link::TicketArithmetic<54>::ahead(0, link::TicketArithmetic<54>::mask), 1);
}

TEST_F(LinkModel, TwoSlots) {
  EXPECT_EQ(explore<ModelWord>({.slots = 2, .clients = 1, .frames = 12}), "");
  EXPECT_EQ(explore<ModelWord>({.slots = 2, .clients = 3, .frames = 8}), "");
}

TEST_F(LinkModel, ThreeSlots) {
  EXPECT_EQ(explore<ModelWord>({.slots = 3, .clients = 2, .frames = 10}), "");
  EXPECT_EQ(explore<ModelWord>({.slots = 3, .clients = 4, .frames = 8}), "");
}

TEST_F(LinkModel, TicketsThatWrapOnTheWay) {
  for (const std::uint64_t first : {60U, 62U, 63U}) {
    EXPECT_EQ(explore<ModelWord>({.slots = 2, .clients = 2, .frames = 10, .first_ticket = first}), "");
    EXPECT_EQ(explore<ModelWord>({.slots = 3, .clients = 2, .frames = 10, .first_ticket = first}), "");
  }
}

TEST_F(LinkModel, FiveSlotsInEightEntries) {
  EXPECT_EQ(explore<ModelWord>({.slots = 5, .clients = 3, .frames = 16, .first_ticket = 57}), "");
}

TEST_F(LinkModel, CompareAndSwapInTwoStepsIsCaught) {
  const std::string trouble = explore<TwoStepWord>({.slots = 3, .clients = 2, .frames = 10}, 20'000);
  std::printf("%s\n", trouble.c_str());
  EXPECT_NE(trouble, "");
}

TEST_F(LinkModel, LookingBeforeSayingThatOneSleepsIsCaught) {
  const std::string trouble =
      explore<ModelWord>({.slots = 3, .clients = 2, .frames = 10, .sleeping = Sleeping::looks_then_says}, 20'000);
  std::printf("%s\n", trouble.c_str());
  EXPECT_NE(trouble, "");
}

}  // namespace
}  // namespace gpumap
