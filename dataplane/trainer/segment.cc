// segment.cc - memory that is shared with a trainer: a memfd of fixed size and its mapping (control thread)
#include "dataplane/trainer/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace gradlane {
namespace {

[[noreturn]] void fail(size_t bytes, int error) {
  throw SetupError("cannot get shared memory of " + std::to_string(bytes) + " bytes: " + std::strerror(error));
}

}  // namespace

size_t page_bytes() noexcept { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

Segment::Segment(const char* name, size_t bytes) : fd_(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!fd_ || ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail(bytes, errno);
  }
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (mapped == MAP_FAILED) fail(bytes, errno);
  base_ = static_cast<uint8_t*>(mapped);
  bytes_ = bytes;
  // For leases, the kernel counts descriptors of open(), but not those of memfd_create().
  const std::string path = "/proc/self/fd/" + std::to_string(fd_.get());
  FileDescriptor trainers(open(path.c_str(), O_RDWR | O_CLOEXEC));
  watch_ = SharedFile(trainers ? open(path.c_str(), O_RDONLY | O_CLOEXEC) : -1);
  if (!watch_ || fchmod(fd_.get(), 0) != 0) {
    const int error = errno;
    munmap(base_, bytes_);
    throw SetupError("cannot prepare shared memory, " + path + ": " + std::strerror(error));
  }
  fd_ = std::move(trainers);
  // Asks for huge pages, for fewer TLB misses. The kernel may ignore this.
  (void)madvise(base_, bytes_, MADV_HUGEPAGE);
}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)),
      watch_(std::move(other.watch_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      filled_(std::exchange(other.filled_, 0)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  Segment taken(std::move(other));
  std::swap(fd_, taken.fd_);
  std::swap(watch_, taken.watch_);
  std::swap(base_, taken.base_);
  std::swap(bytes_, taken.bytes_);
  std::swap(filled_, taken.filled_);
  return *this;
}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

void Segment::fill(size_t at_most) {
  const size_t bytes = std::min(at_most, bytes_ - filled_);
  if (bytes == 0) return;
  // Populating comes first, because fallocate() ignores the request for huge pages. It may fail, and always does on
  // kernels before 5.14. Then fallocate() decides whether the memory is there.
  (void)madvise(base_ + filled_, bytes, MADV_POPULATE_WRITE);
  if (fallocate(fd_.get(), 0, static_cast<off_t>(filled_), static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) return;  // interrupted by a signal; the next step tries again
    fail(bytes_, errno);
  }
  filled_ += bytes;
}

}  // namespace gradlane
