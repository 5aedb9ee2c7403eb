// Packed weights in a file, so that the next start maps them instead of packing again.
//
// One file holds all matrices of one model in the order in which they were loaded. It belongs to a key: a text that
// names everything on which the bytes depend (the model file's identity, the quantization, the layout's version). A
// file with another key, a wrong checksum or a wrong size is as good as none: it is not read, and replaced at the next
// occasion. Matrices are handed out only after their checksum was computed again.
// Files are written beside their final name and renamed, so nobody sees half of one. The folder is kept below a limit
// by removing the files that were used longest ago. One thread; the pool's threads help with checksums.
//
//   header   magic[8], version u32, num_matrices u32, key_bytes u64, file_bytes u64, checksum u64 of table and key
//   table    num_matrices x {shape u64, offset u64, size u64, checksum u64}, then the key
//   data     at multiples of 4096
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "compute/cpu/weight_memory.h"

namespace tidemill::cpu {

class PackedStore {
 public:
  // Reads the file, if there is one that fits the key; otherwise the store is empty.
  PackedStore(std::filesystem::path file, std::string key);

  // The next matrix is in the file, as far as can be told before its shape is known.
  bool has_next() const { return next_ < table_.size(); }
  // The next matrix, where the file has it in this shape and intact; nothing otherwise, and then for all that follow.
  // shape: any number that differs for matrices of different shapes.
  std::optional<WeightMemory> next(uint64_t shape, size_t size_bytes, ThreadPool& threads);

  // A matrix that was packed; kept alive until write().
  void note(uint64_t shape, WeightMemory memory);

  // Some matrix had to be packed, so that the file would be worth writing.
  bool incomplete() const { return num_packed_ > 0; }
  // Writes all matrices in order; the folder's files together stay below limit_bytes. An Error says what failed, or
  // that the file would be larger than the limit or than half of the room on the disk; then nothing is left behind.
  Result<void> write(uint64_t limit_bytes, ThreadPool& threads);

 private:
  struct Entry {
    uint64_t shape = 0;
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
    uint64_t checksum = 0;
  };
  struct Noted {
    uint64_t shape = 0;
    WeightMemory memory;
  };
  bool read_table();

  const std::filesystem::path file_;
  const std::string key_;
  std::shared_ptr<MappedFile> mapped_;
  std::vector<Entry> table_;
  size_t next_ = 0;
  std::vector<Noted> noted_;  // all matrices so far, mapped ones too
  size_t num_packed_ = 0;
};

}  // namespace tidemill::cpu
