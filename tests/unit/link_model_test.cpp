// SPDX-License-Identifier: MIT
// The link's protocol in many thousand orders of its steps, with few slots, tickets that wrap, flushes, clients that
// join, say goodbye with a frame in their hands, and die between any two steps: no slot is two things at once, no frame
// is read that is not whole or was flushed, nothing is lost and nobody sleeps for ever. Variants that are broken on
// purpose have to be caught, so it looks where it should.
// GPUMAP_MODEL_ROUNDS and GPUMAP_LINK_SEED change how many and which.
#include <gtest/gtest.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "link/fan_out.hpp"
#include "test_helpers.hpp"

// The link's own templates under a scheduler that lets one actor make one step at a time: a step is an access to a word
// that two processes share. An actor that dies is simply never scheduled again. What is explored are the orders of
// sequentially consistent steps, which is what the templates ask of the hardware; that the hardware does so, and plain
// memory in between, is ThreadSanitizer's business.
namespace gpumap::test {

class Scheduler {
 public:
  static constexpr std::size_t stack_bytes = std::size_t{128} * 1024;
  explicit Scheduler(std::uint64_t seed) : random_(seed) { current() = this; }
  ~Scheduler() { current() = nullptr; }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  std::size_t add(std::function<void()> work) {
    auto actor = std::make_unique<Actor>();
    actor->stack.resize(stack_bytes);
    actor->work = std::move(work);
    getcontext(&actor->context);
    actor->context.uc_stack.ss_sp = actor->stack.data();
    actor->context.uc_stack.ss_size = actor->stack.size();
    actor->context.uc_link = &home_;
    makecontext(&actor->context, reinterpret_cast<void (*)()>(&Scheduler::enter), 0);
    actors_.push_back(std::move(actor));
    return actors_.size() - 1;
  }
  void kill(std::size_t actor) { actors_[actor]->alive = false; }
  [[nodiscard]] bool runs(std::size_t actor) const { return actors_[actor]->alive && !actors_[actor]->done; }
  [[nodiscard]] std::mt19937_64& random() { return random_; }

  /// One step of an actor that can make one; false when none can.
  bool step() {
    std::vector<std::size_t> able;
    for (std::size_t at = 0; at < actors_.size(); ++at) {
      if (runs(at) && (!actors_[at]->blocked || actors_[at]->blocked())) able.push_back(at);
    }
    if (able.empty()) return false;
    running_ = able[random_() % able.size()];
    actors_[running_]->blocked = nullptr;
    swapcontext(&home_, &actors_[running_]->context);
    ++steps_;
    return true;
  }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

  /// In an actor: let others in. In the scheduler's own thread of control: nothing.
  static void yield() {
    Scheduler* const self = current();
    if (self != nullptr && self->running_ != nobody) self->leave();
  }
  /// In an actor: not again before `ready`.
  static void wait(std::function<bool()> ready) {
    Scheduler* const self = current();
    self->actors_[self->running_]->blocked = std::move(ready);
    self->leave();
  }

 private:
  struct Actor {
    ucontext_t context{};
    std::vector<char> stack;
    std::function<void()> work;
    std::function<bool()> blocked;
    bool alive = true, done = false;
  };
  static constexpr std::size_t nobody = ~std::size_t{0};

  static Scheduler*& current() {
    static thread_local Scheduler* one = nullptr;
    return one;
  }
  static void enter() {
    Scheduler* const self = current();
    Actor& actor = *self->actors_[self->running_];
    actor.work();
    actor.done = true;
    self->running_ = nobody;
  }
  void leave() {
    const std::size_t me = std::exchange(running_, nobody);
    swapcontext(&actors_[me]->context, &home_);
  }

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Actor>> actors_;
  ucontext_t home_{};
  std::size_t running_ = nobody;
  std::uint64_t steps_ = 0;
};

/// A word as std::atomic<std::uint64_t>, each access to which is a step.
struct ModelWord {
  std::uint64_t value = 0;
  [[nodiscard]] std::uint64_t load() const {
    Scheduler::yield();
    return value;
  }
  void store(std::uint64_t to, std::memory_order = std::memory_order_seq_cst) {
    Scheduler::yield();
    value = to;
  }
  std::uint64_t exchange(std::uint64_t to) {
    Scheduler::yield();
    return std::exchange(value, to);
  }
  bool compare_exchange_strong(std::uint64_t& expected, std::uint64_t to) {
    Scheduler::yield();
    if (value != expected) {
      expected = value;
      return false;
    }
    value = to;
    return true;
  }
};

/// Broken on purpose: compares, and then writes, in two steps.
struct TwoStepWord : ModelWord {
  bool compare_exchange_strong(std::uint64_t& expected, std::uint64_t to) {
    const std::uint64_t seen = load();
    if (seen != expected) {
      expected = seen;
      return false;
    }
    store(to);
    return true;
  }
};

}  // namespace gpumap::test

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
