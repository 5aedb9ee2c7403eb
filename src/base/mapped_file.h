// A file mapped read-only into memory.
//
// The bytes are there as long as the object lives; moving the object does not move them. Nothing is read until it is
// touched. Any thread may read. A file that another process shortens while it is mapped ends this process with SIGBUS,
// as for every program that maps files; model files are replaced by renaming, not by writing in place.
// Errors name the file without its folder, so that they may be shown to anybody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace tidemill {

class MappedFile {
 public:
  // A regular file only. An empty file gives an empty span.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  uint64_t size_bytes() const { return size_bytes_; }
  // The file's name without its folder, fit to be printed.
  const std::string& name() const { return name_; }
  // When the file's content was last changed, in nanoseconds of the system's clock.
  int64_t changed_ns() const { return changed_ns_; }

  // Says that [offset, offset + size) will be read soon, front to back.
  void will_read(uint64_t offset_bytes, uint64_t size_bytes) const;
  // Gives the memory of whole machine pages inside [offset, offset + size) back; reading them again brings them back.
  void release(uint64_t offset_bytes, uint64_t size_bytes) const;

 private:
  MappedFile() = default;
  void advise(uint64_t offset_bytes, uint64_t size_bytes, int advice, bool inner) const;

  const std::byte* data_ = nullptr;
  uint64_t size_bytes_ = 0;
  int64_t changed_ns_ = 0;
  std::string name_;
};

}  // namespace tidemill
