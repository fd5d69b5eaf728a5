// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "device/cuda_driver.hpp"
#include "gpumap/fence.hpp"

namespace gpumap {

/// The kernels of one CUDA context that stay on its GPU (queue/queues.hpp). Two things make them leave (and
/// NewMemory): a call of the driver that waits until the GPU runs nothing, and another one that comes when there might
/// be no multiprocessor left for it: a kernel that waits for one that cannot start would wait for ever. As long as all
/// blocks together are fewer than there are multiprocessors, there is one without any for each that comes, and for what
/// is launched, where one is enough for that and any will do (see Demand). A kernel that was told to leave counts until
/// it has left: it may wait on the GPU for just that. Thread safety: every member.
class Residents {
 public:
  class Guest {
   public:
    /// As soon as what was asked of it is done, and before anything that is asked of it from now on. It may only take
    /// note here, and call nothing of this class. It begins no wait on the GPU any more until it has come again.
    virtual void ask_to_leave() noexcept = 0;
    /// Until then its kernels may wait on the GPU. Likewise.
    [[nodiscard]] virtual Fence waits() const = 0;
    /// All that was told to leave has left the GPU. Likewise.
    [[nodiscard]] virtual bool has_left() const noexcept = 0;

   protected:
    ~Guest() = default;
  };

  explicit Residents(std::uint32_t multiprocessors);

  /// What a guest that comes finds.
  enum class Room {
    free,      ///< it may stay, and wait on the GPU for others
    crowded,   ///< it may stand where others have to run: it may stay, and does not wait on the GPU for anybody
    demanded,  ///< crowded, and a Demand needs what it stands on: it leaves behind each submission, for what is
               ///< launched behind its frames can begin only then
  };
  /// Before a guest's kernel is launched, on so many multiprocessors at most, which can all be its own when it is
  /// alone; `shares` where they are those of a share. Waits while an Absence lasts, for 10 s at most. Where there is
  /// not room for all, because together they leave no multiprocessor free or because of a Demand, asks the others to
  /// leave. Empty, and it does not come, where the wait is `given_up`.
  [[nodiscard]] std::optional<Room> come(Guest& guest, std::uint32_t multiprocessors, bool shares,
                                         const std::function<bool()>& given_up = nullptr, std::uint32_t priority = 0);
  /// For a kernel that came crowded: where those that were there before may wait on the GPU. It is to begin behind
  /// that, for the first of its blocks may take the last multiprocessor, and wait for the rest.
  [[nodiscard]] std::vector<Fence> waits_of_others(const Guest& guest) const;
  /// Likewise: one of another priority came before it and has not left. It is to begin behind that, too: of two such
  /// kernels the GPU may begin some blocks each, which wait for the rest of them on each other's multiprocessors.
  [[nodiscard]] bool is_behind_other_priorities(const Guest& guest) const;
  /// It was told to leave, or was not launched. From here on nobody asks it, and it counts until it has_left().
  void leave(Guest& guest) noexcept;
  /// It is no more, and nobody is asked for it.
  void forget(Guest& guest) noexcept;

  /// While one lives, there may be launches that one free multiprocessor is not enough for, or not any one.
  enum class Needs {
    share,    ///< certain ones. Guests of other shares are not in their way
    cluster,  ///< several near each other
  };
  class Demand {
   public:
    Demand(Residents& residents, Needs needs);
    ~Demand();
    Demand(const Demand&) = delete;
    Demand& operator=(const Demand&) = delete;

   private:
    Residents& residents_;
    const Needs needs_;
  };

  /// While one lives, those that are there leave, and none comes. For calls of the driver that wait for an empty GPU:
  /// cuMemFree, cuMemFreeHost, cuMemHostUnregister, cuDestroyExternalMemory, cuModuleLoadData(Ex), cuModuleUnload.
  class Absence {
   public:
    explicit Absence(Residents& residents);
    ~Absence();
    Absence(const Absence&) = delete;
    Absence& operator=(const Absence&) = delete;

   private:
    Residents& residents_;
  };

  /// While one lives, memory becomes the GPU's. Kernels that are there may use it, so nothing is done but under
  /// compute-sanitizer: its memcheck knows the memory that there was when a kernel was launched, and calls all other
  /// out of bounds. There they leave, and those that come know it.
  class NewMemory {
   public:
    explicit NewMemory(Residents& residents) {
      if (residents.watched_) absence_.emplace(residents);
    }

   private:
    std::optional<Absence> absence_;
  };

 private:
  struct Present {
    Guest* guest;
    std::uint32_t multiprocessors;
    bool shares;
    std::uint32_t priority;
    bool leaves = false;  ///< it was told to
  };
  void ask_all_to_leave() const noexcept;  ///< with the lock
  [[nodiscard]] unsigned& demands(Needs needs) noexcept { return needs == Needs::share ? shares_ : clusters_; }

  const std::uint32_t multiprocessors_;
  const bool watched_;  ///< by compute-sanitizer
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Present> present_;
  unsigned absences_ = 0;
  unsigned shares_ = 0, clusters_ = 0;  ///< demands
};

/// For calls of the driver that wait until the GPU runs nothing (Residents::Absence), in destructors: kernels that stay
/// leave for them, and all that was submitted before is waited for, for patience_at_end at most. False where some of it
/// still runs, and where the context is lost: then what was to be freed stays. Never throws.
class CudaFreeScope {
 public:
  explicit CudaFreeScope(const CudaContext& context) noexcept
      : absence_(context.residents()), scope_(settled(context)) {}
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(scope_); }

 private:
  /// Work that does not end is given up, by which the scope is false.
  static const CudaContext& settled(const CudaContext& context) noexcept {
    static_cast<void>(context.settles(patience_at_end));
    return context;
  }

  const Residents::Absence absence_;
  const CudaContext::CleanupScope scope_;
};

/// Page-locked memory of CUDA's; null: none. Where work that was given up runs, it stays.
inline void free_page_locked(const CudaContext& context, void* memory) noexcept {
  if (memory == nullptr) return;
  // Ends: what was submitted before has ended, or is given up.
  if (const CudaFreeScope scope(context); scope) context.driver().cuMemFreeHost(memory);
}

}  // namespace gpumap
