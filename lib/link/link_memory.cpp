// SPDX-License-Identifier: MIT
#include "link/link_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "gpumap/error.hpp"
#include "gpumap/file.hpp"
#include "memory/gpu_mapping.hpp"

// Linux 5.1; the headers of Debian 12 have it, older ones may not.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace gpumap::link {
namespace {

constexpr int sealed_size = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void fail(const char* what, std::uint64_t bytes) {
  const int cause = errno;
  throw Error(code_of_errno(cause), fmt::format("{} of {} bytes for a link: {}", what, bytes, std::strerror(cause)),
              "raise the limits on open files, on their size and on memory (ulimit -n, -f, -v)");
}

struct Memfd {
  UniqueFd fd;
  void* memory = nullptr;
};

/// A new memfd, mapped and sealed. The mapping stays writable even when the seals forbid new writable mappings.
Memfd make_memfd(const char* name, std::uint64_t bytes, int seals) {
  const FileSizeErrors instead_of_a_signal;
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fail("a memfd", bytes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) fail("a mapping", bytes);
  if (fcntl(fd.get(), F_ADD_SEALS, seals) != 0) {
    const int cause = errno;
    munmap(memory, bytes);
    errno = cause;
    fail("seals on a memfd", bytes);
  }
  return {std::move(fd), memory};
}

/// Checks that another process's memfd is as large as it said, and that its size is sealed.
void check_sealed(const UniqueFd& fd, std::uint64_t bytes, const char* what) {
  struct stat found {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd.get(), &found) != 0 || found.st_size < 0 ||
      static_cast<std::uint64_t>(found.st_size) < bytes) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("the server's {} is not sealed or has less than {} bytes: it is not to be trusted", what, bytes));
  }
}

/// Host memory in a memfd. The process that made it writes; processes that import it read.
class LinkMapping final : public Mapping {
 public:
  explicit LinkMapping(std::size_t bytes) : bytes_(bytes) {
    Memfd made = make_memfd("gpumap-slots", bytes, sealed_size | F_SEAL_FUTURE_WRITE);
    memory_ = made.memory;
    fd_ = std::move(made.fd);
  }
  LinkMapping(UniqueFd fd, std::size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {
    check_sealed(fd_, bytes, "memory");
    memory_ = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd_.get(), 0);
    if (memory_ == MAP_FAILED) fail("a mapping", bytes);
  }
  ~LinkMapping() override { munmap(memory_, bytes_); }

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] Placement placement() const noexcept override { return Placement::host; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] std::byte* host() const noexcept override { return static_cast<std::byte*>(memory_); }
  [[nodiscard]] std::uint64_t address(Backend) const noexcept override { return 0; }
  [[nodiscard]] bool cpu_readable() const noexcept override { return true; }
  [[nodiscard]] bool coherent() const noexcept override { return true; }
  void flush(std::size_t offset, std::size_t bytes) const override { check_range(offset, bytes); }
  void invalidate(std::size_t offset, std::size_t bytes) const override { check_range(offset, bytes); }
  [[nodiscard]] Fence upload(std::size_t offset, std::size_t bytes) const override {
    check_range(offset, bytes);
    return {};
  }
  void download(std::size_t offset, std::span<std::byte> to) const override {
    check_range(offset, to.size());
    if (!to.empty()) std::memcpy(to.data(), host() + offset, to.size());
  }

 private:
  void check_range(std::size_t offset, std::size_t bytes) const {
    if (offset <= bytes_ && bytes <= bytes_ - offset) return;
    throw Error(ErrorCode::invalid,
                fmt::format("{} bytes at offset {} leave a link's memory of {} bytes", bytes, offset, bytes_));
  }

  UniqueFd fd_;
  std::size_t bytes_;
  void* memory_ = nullptr;
};

/// The same file, opened again where that is possible. Descriptors that crossed a socket share one file position with
/// the server and its other clients. A software driver's import reads from that position, so one of two clients that
/// import at once would miss the header. A hardware driver's descriptor is no regular file and stays as it is.
UniqueFd with_own_position(UniqueFd fd) {
  struct stat status {};
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return fd;
  // With no more rights than the peer gave: opened again, a descriptor for reading could become writable.
  const int flags = fcntl(fd.get(), F_GETFL);
  if (flags < 0 || (flags & (O_ACCMODE | O_PATH)) != O_RDWR) return fd;
  UniqueFd own(open(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), O_RDWR | O_CLOEXEC));
  return own ? std::move(own) : std::move(fd);
}

}  // namespace

MemoryOffer describe(const Mapping& mapping, UniqueFd& fd) {
  MemoryOffer offer;
  offer.bytes = mapping.bytes();
  if (const auto* host = dynamic_cast<const LinkMapping*>(&mapping)) {
    offer.kind = static_cast<std::uint32_t>(MemoryKind::memfd);
    offer.allocation_bytes = offer.bytes;
    fd = UniqueFd(fcntl(host->fd(), F_DUPFD_CLOEXEC, 0));
    if (!fd) fail("a descriptor", offer.bytes);
    return offer;
  }
  if (const auto* gpu = dynamic_cast<const GpuMapping*>(&mapping)) {
    MemoryExport memory = gpu->export_memory();
    offer.kind = static_cast<std::uint32_t>(MemoryKind::opaque);
    offer.memory_type = memory.memory_type;
    offer.allocation_bytes = memory.allocation_bytes;
    offer.buffer_bytes = memory.buffer_bytes;
    offer.base = memory.base;
    offer.device = gpu->device().info().uuid;
    fd = std::move(memory.fd);
    return offer;
  }
  throw Error(ErrorCode::not_supported,
              "the ring's memory (transport=pageable) cannot be passed to another process: use transport=bar, or "
              "make_link_memory()");
}

std::shared_ptr<Mapping> import_memory(Device& device, const MemoryOffer& offer, UniqueFd fd) {
  if (offer.kind == static_cast<std::uint32_t>(MemoryKind::memfd)) {
    return std::make_shared<LinkMapping>(std::move(fd), offer.bytes);
  }
  auto* const gpu = dynamic_cast<GpuDevice*>(&device);
  if (gpu == nullptr || device.info().uuid != offer.device) {
    throw Error(ErrorCode::not_supported,
                fmt::format("the server's memory is on GPU {}, this side has {} ({}): choose the same device",
                            to_string(offer.device), to_string(device.info().uuid), device.info().name));
  }
  return import_vulkan(
      gpu->self(), offer.bytes,
      {with_own_position(std::move(fd)), offer.allocation_bytes, offer.buffer_bytes, offer.base, offer.memory_type});
}

BlockMemory::BlockMemory(std::uint32_t slots, std::uint64_t generation) : bytes_(link::block_bytes(slots)) {
  Memfd made = make_memfd("gpumap-link", bytes_, sealed_size);
  block_ = new (made.memory) ClientBlock{};
  fd_ = std::move(made.fd);
  block_->magic = block_magic;
  block_->version = block_version;
  block_->slots = slots;
  block_->block_bytes = bytes_;
  block_->generation = generation;
}

BlockMemory::BlockMemory(UniqueFd fd, std::uint32_t slots, std::uint64_t generation)
    : fd_(std::move(fd)), bytes_(link::block_bytes(slots)) {
  check_sealed(fd_, bytes_, "control block");
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) fail("a mapping", bytes_);
  block_ = static_cast<ClientBlock*>(memory);
  if (block_->magic != block_magic || block_->version != block_version || block_->slots != slots ||
      block_->block_bytes != bytes_ || block_->generation != generation) {
    munmap(memory, bytes_);
    throw Error(ErrorCode::invalid, "the server's control block is of another version or time: restart both sides");
  }
}

BlockMemory::~BlockMemory() {
  munmap(block_, bytes_);
}

}  // namespace gpumap::link

namespace gpumap {

std::shared_ptr<Mapping> make_link_memory(std::size_t bytes) {
  if (bytes == 0) throw Error(ErrorCode::invalid, "a link's memory of 0 bytes was asked for");
  return std::make_shared<link::LinkMapping>(bytes);
}

}  // namespace gpumap
