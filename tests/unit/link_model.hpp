// SPDX-License-Identifier: MIT
// The link's own templates under a scheduler that lets one actor make one step at a time: a step is an access to a word
// that two processes share. An actor that dies is simply never scheduled again. What is explored are the orders of
// sequentially consistent steps, which is what the templates ask of the hardware; that the hardware does so, and plain
// memory in between, is ThreadSanitizer's business.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

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
  void store(std::uint64_t to) {
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
