#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/printable.h"

namespace tidemill {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  MappedFile file;
  file.name_ = printable(path.filename().native(), 200);
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.fd < 0) return error("{}: cannot be opened: {}", file.name_, std::strerror(errno));
  struct stat status = {};
  if (::fstat(descriptor.fd, &status) != 0) return error("{}: cannot be read: {}", file.name_, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return error("{}: is not a regular file", file.name_);
  file.size_bytes_ = static_cast<uint64_t>(status.st_size);
  file.changed_ns_ = static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (file.size_bytes_ == 0) return file;
  void* data = ::mmap(nullptr, file.size_bytes_, PROT_READ, MAP_SHARED, descriptor.fd, 0);
  if (data == MAP_FAILED) {
    file.size_bytes_ = 0;
    return error("{}: cannot be mapped: {}", file.name_, std::strerror(errno));
  }
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      changed_ns_(other.changed_ns_),
      name_(std::move(other.name_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(changed_ns_, other.changed_ns_);
  std::swap(name_, other.name_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

void MappedFile::will_read(uint64_t offset_bytes, uint64_t size_bytes) const {
  advise(offset_bytes, size_bytes, MADV_WILLNEED, false);
}

void MappedFile::release(uint64_t offset_bytes, uint64_t size_bytes) const {
  advise(offset_bytes, size_bytes, MADV_DONTNEED, true);
}

// inner: only machine pages that lie wholly inside; otherwise every one that is touched. Advice is allowed to fail.
void MappedFile::advise(uint64_t offset_bytes, uint64_t size_bytes, int advice, bool inner) const {
  const auto granule = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (offset_bytes >= size_bytes_) return;
  const uint64_t end = offset_bytes + std::min(size_bytes, size_bytes_ - offset_bytes);
  const uint64_t first = inner ? (offset_bytes + granule - 1) / granule * granule : offset_bytes / granule * granule;
  const uint64_t last = inner && end != size_bytes_ ? end / granule * granule : end;
  if (first >= last) return;
  ::madvise(const_cast<std::byte*>(data_) + first, last - first, advice);
}

}  // namespace tidemill
