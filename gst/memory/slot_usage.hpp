// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace gpumap::gst {

/// Counts the slots of a ring that downstream of a gpumapsrc holds. Thread safety: every member from any thread.
class Loans {
 public:
  [[nodiscard]] std::uint32_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  /// Wait until one has come back since `returned` of them had; false when the time is up.
  [[nodiscard]] bool wait_for_return(std::uint64_t returned, std::chrono::milliseconds limit) {
    ++waiting_;
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, limit, [&] { return this->returned() != returned; });
    --waiting_;
    return came;
  }
  [[nodiscard]] std::uint64_t returned() const noexcept { return returned_.load(); }
  /// The producer, in another process, waited too long for what is lent, and writes there anew: who reads it, or has
  /// just read it, may have read another frame.
  [[nodiscard]] bool recalled() const {
    return recalled_.load(std::memory_order_relaxed) || (asks_whether_recalled_ && asks_whether_recalled_());
  }
  void recall() noexcept { recalled_ = true; }
  /// Before the first loan. From any thread, as recalled().
  void ask_whether_recalled(std::function<bool()> asks) { asks_whether_recalled_ = std::move(asks); }

  /// The producer, in another process, gives only some of the slots, fewer with each client that comes, and no frame
  /// once all of those are lent. Before the first loan; the question from any thread.
  void make_scarce() noexcept { scarce_ = true; }
  [[nodiscard]] bool scarce() const noexcept { return scarce_; }

  /// While it lives, one more is lent.
  class Loan {
   public:
    Loan() = default;
    explicit Loan(std::shared_ptr<Loans> loans) : loans_(std::move(loans)) {
      if (loans_) loans_->count_.fetch_add(1, std::memory_order_relaxed);
    }
    Loan(Loan&& other) noexcept = default;
    Loan& operator=(Loan&& other) noexcept {
      std::swap(loans_, other.loans_);
      return *this;
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() {
      if (loans_) loans_->end();
    }
    [[nodiscard]] bool recalled() const { return loans_ && loans_->recalled(); }

   private:
    std::shared_ptr<Loans> loans_;
  };

 private:
  void end() {
    count_.fetch_sub(1, std::memory_order_relaxed);
    returned_.fetch_add(1);
    if (waiting_.load() == 0) return;
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint64_t> returned_{0};
  std::atomic<int> waiting_{0};
  std::atomic<bool> recalled_{false};
  bool scarce_ = false;
  std::function<bool()> asks_whether_recalled_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace gpumap::gst
