// The disk tier's bytes: records of sealed blocks in one file, written and read by a thread of its own.
//
//   header  [4096]    magic, version, identity of what the records depend on, the key of the block names
//   records           slot s of the nth size class that is used at 4096 + n * region + s * record bytes of the class;
//                     the file is sparse
//   record            [header with tokens, to a multiple of 64][the block's bytes, as they lie in the pool][padding]
//
// A record's header carries checksums of itself and of the bytes, so damage of any kind is found when a block is read:
// the load fails, and the record is wiped. A file that belongs to another model, format or version is begun anew; one
// that is not ours at all is left alone, and so is one that another process uses (both are Errors of open). The file is
// readable by its owner only: it holds what users wrote, and the key that keeps names of blocks secret.
//
// After some failed writes in a row (a full or broken disk) no more are tried; reading goes on. Nothing is flushed: a
// crash of the machine may cost records, which the checksums show.
//
// begin() and take_ends() are for one thread, the engine's. The memory of a store or load must stay as it is until its
// end was taken, or this object is destroyed, which waits for all of them.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/executor.h"
#include "engine/step_plan.h"

namespace tidemill {

struct DiskFileOptions {
  std::filesystem::path path;
  size_t budget_bytes = 0;            // at most max_budget_bytes
  std::string identity;               // of all that a block's bytes depend on besides its tokens
  std::vector<size_t> payload_bytes;  // by size class; 0 = the class is not used
  std::vector<int32_t> groups;        // by size class: the layer group of its blocks
  int32_t block_size_tokens = 0;
};

class DiskFile {
 public:
  static constexpr size_t max_budget_bytes = size_t{1} << 40;

  // An Error says in one sentence why there can be no disk tier; nothing is lost by going on without.
  static Result<std::unique_ptr<DiskFile>> open(DiskFileOptions options);
  // Bytes of a record, by size class; 0 = the class is not used.
  static std::vector<size_t> record_bytes(std::span<const size_t> payload_bytes, int32_t block_size_tokens);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  // The key with which the blocks here were named, from the file or new with it.
  const HashKey& hash_key() const { return hash_key_; }
  // What the file held when it was opened; once.
  std::vector<Executor::StoredBlock> take_stored_blocks() { return std::exchange(stored_, {}); }

  // memory: of the block in the pool, [payload bytes]; unused for drop.
  void begin(const DiskMove& move, std::span<std::byte> memory);
  void take_ends(std::vector<DiskEnd>& ends);
  void await(std::chrono::milliseconds most);

 private:
  struct Order {
    DiskMove move;
    std::span<std::byte> memory;
  };
  explicit DiskFile(DiskFileOptions options);
  Result<void> open_file();
  Result<void> begin_anew();
  void scan();
  void scan_class(uint8_t size_class, uint64_t file_bytes);
  uint64_t offset(BlockPlace disk) const;
  std::vector<std::byte> header_of(const DiskMove& move, std::span<const std::byte> memory) const;
  void run();
  DiskEnd carry_out(const Order& order);
  bool store(const Order& order);
  bool load(const Order& order);
  void wipe(BlockPlace disk);

  DiskFileOptions options_;
  std::vector<size_t> record_bytes_;
  std::vector<uint64_t> regions_;  // by size class: where its records begin
  size_t header_bytes_ = 0;        // of a record
  HashKey hash_key_{};
  int file_ = -1;
  std::vector<Executor::StoredBlock> stored_;
  int32_t num_failed_writes_ = 0;  // in a row; the thread's

  std::mutex mutex_;
  std::condition_variable ordered_, ended_;
  std::deque<Order> orders_;
  std::vector<DiskEnd> ends_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace tidemill
