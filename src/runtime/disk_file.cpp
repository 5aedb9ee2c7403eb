#include "runtime/disk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"

namespace tidemill {
namespace {

constexpr size_t unit_bytes = 4096;  // of records and of the file's header
constexpr uint64_t region_bytes = uint64_t{1} << 40;
constexpr std::array<char, 8> file_magic = {'t', 'i', 'd', 'e', 'm', 'i', 'l', 'k'};
constexpr uint32_t file_version = 2;
constexpr uint64_t record_magic = 0x6B6C42764B6D6474u;
constexpr int32_t most_failed_writes = 3;

struct FileHeader {
  std::array<char, 8> magic = file_magic;
  uint32_t version = file_version;
  int32_t block_size_tokens = 0;
  uint64_t identity = 0;  // checksum of the text
  HashKey hash_key{};
  uint64_t checksum = 0;  // of all before it
};

struct RecordHeader {
  uint64_t magic = record_magic;
  uint64_t checksum = 0;  // of the header, with 0 here, and the tokens
  uint64_t payload_checksum = 0;
  BlockHash hash;
  int32_t group = 0;
  uint32_t size_class = 0;
  uint32_t owner = 0;
  uint32_t unused = 0;  // no byte of the header is left open
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

size_t record_header_bytes(int32_t block_size_tokens) {
  return round_up(sizeof(RecordHeader) + static_cast<size_t>(block_size_tokens) * sizeof(TokenId), 64);
}

uint64_t file_checksum(const FileHeader& header) {
  return checksum_of(bytes_of(header).first(offsetof(FileHeader, checksum)));
}

bool read_all(int file, uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = pread(file, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    offset += static_cast<uint64_t>(got);
    into = into.subspan(static_cast<size_t>(got));
  }
  return true;
}

bool write_all(int file, uint64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t put = pwrite(file, from.data(), from.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    offset += static_cast<uint64_t>(put);
    from = from.subspan(static_cast<size_t>(put));
  }
  return true;
}

// The header of a record as read, with its tokens; nothing where it is none, or damaged.
std::optional<RecordHeader> checked_header(std::span<const std::byte> bytes, int32_t block_size_tokens,
                                           std::vector<TokenId>& tokens) {
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != record_magic) return std::nullopt;
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  std::memset(copy.data() + offsetof(RecordHeader, checksum), 0, sizeof(header.checksum));
  if (checksum_of(copy) != header.checksum) return std::nullopt;
  tokens.resize(static_cast<size_t>(block_size_tokens));
  std::memcpy(tokens.data(), bytes.data() + sizeof(header), tokens.size() * sizeof(TokenId));
  return header;
}

}  // namespace

std::vector<size_t> DiskFile::record_bytes(std::span<const size_t> payload_bytes, int32_t block_size_tokens) {
  std::vector<size_t> records;
  for (size_t bytes : payload_bytes)
    records.push_back(bytes == 0 ? 0 : round_up(record_header_bytes(block_size_tokens) + bytes, unit_bytes));
  return records;
}

DiskFile::DiskFile(DiskFileOptions options)
    : options_(std::move(options)),
      record_bytes_(record_bytes(options_.payload_bytes, options_.block_size_tokens)),
      header_bytes_(record_header_bytes(options_.block_size_tokens)) {
  TM_CHECK(options_.groups.size() == options_.payload_bytes.size(), "every size class has a layer group");
  uint64_t begin = unit_bytes;
  for (const size_t bytes : record_bytes_) {
    regions_.push_back(begin);
    if (bytes > 0) begin += region_bytes;
  }
}

Result<std::unique_ptr<DiskFile>> DiskFile::open(DiskFileOptions options) {
  std::unique_ptr<DiskFile> file(new DiskFile(std::move(options)));
  if (Result<void> opened = file->open_file(); !opened) return opened.error();
  file->scan();
  file->thread_ = std::thread([raw = file.get()] { raw->run(); });
  return file;
}

Result<void> DiskFile::open_file() {
  const std::string name = options_.path.string();
  file_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0) return error("{} cannot be opened: {}", name, strerror(errno));
  struct stat status {};
  if (fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) return error("{} is not a regular file", name);
  if (flock(file_, LOCK_EX | LOCK_NB) != 0) return error("{} is used by another process", name);
  FileHeader header;
  const bool whole = read_all(file_, 0, std::as_writable_bytes(std::span(&header, 1)));
  if (status.st_size > 0 && (!whole || header.magic != file_magic)) return error("{} is not a KV cache file", name);
  // It may have been copied here by somebody with other habits.
  if (fchmod(file_, 0600) != 0) return error("{} cannot be made private: {}", name, strerror(errno));
  const bool ours = whole && header.version == file_version && header.checksum == file_checksum(header) &&
                    header.block_size_tokens == options_.block_size_tokens &&
                    header.identity == checksum_of(std::as_bytes(std::span(options_.identity)));
  if (!ours) return begin_anew();
  hash_key_ = header.hash_key;
  return {};
}

Result<void> DiskFile::begin_anew() {
  FileHeader header;
  header.block_size_tokens = options_.block_size_tokens;
  header.identity = checksum_of(std::as_bytes(std::span(options_.identity)));
  header.hash_key = hash_key_ = random_hash_key();
  header.checksum = file_checksum(header);
  if (ftruncate(file_, 0) != 0 || !write_all(file_, 0, bytes_of(header)))
    return error("{} cannot be written: {}", options_.path.string(), strerror(errno));
  return {};
}

DiskFile::~DiskFile() {
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    ordered_.notify_one();
    thread_.join();
  }
  if (file_ >= 0) close(file_);
}

uint64_t DiskFile::offset(BlockPlace disk) const {
  TM_CHECK(disk.size_class < record_bytes_.size() && record_bytes_[disk.size_class] > 0, "a record has a size class");
  const uint64_t in_region = uint64_t{disk.slot} * record_bytes_[disk.size_class];
  TM_CHECK(in_region + record_bytes_[disk.size_class] <= region_bytes, "a record lies in its region");
  return regions_[disk.size_class] + in_region;
}

// --- What is there at the start.

void DiskFile::scan() {
  struct stat status {};
  if (fstat(file_, &status) != 0) return;
  for (size_t c = 0; c < record_bytes_.size(); ++c) {
    if (record_bytes_[c] > 0) scan_class(static_cast<uint8_t>(c), static_cast<uint64_t>(status.st_size));
  }
}

void DiskFile::scan_class(uint8_t size_class, uint64_t file_bytes) {
  const size_t num_slots = options_.budget_bytes / record_bytes_[size_class];
  std::vector<std::byte> bytes(header_bytes_);
  uint64_t begin = regions_[size_class];
  const uint64_t end = std::min(file_bytes, begin + num_slots * record_bytes_[size_class]);
  const uint64_t first = begin;
  while (begin < end) {
    // The next that is no hole.
    const off_t data = lseek(file_, static_cast<off_t>(begin), SEEK_DATA);
    if (data < 0) return;
    const uint64_t index = (std::max(begin, static_cast<uint64_t>(data)) - first) / record_bytes_[size_class];
    begin = first + index * record_bytes_[size_class];
    if (begin >= end) return;
    Executor::StoredBlock block;
    if (read_all(file_, begin, bytes)) {
      const auto header = checked_header(bytes, options_.block_size_tokens, block.tokens);
      if (header && header->size_class == size_class) {
        block.hash = header->hash;
        block.group = header->group;
        block.owner = header->owner;
        block.disk = {static_cast<uint32_t>(index), size_class};
        if (block.group == options_.groups[size_class]) stored_.push_back(std::move(block));
      }
    }
    begin += record_bytes_[size_class];
  }
}

// --- Orders.

void DiskFile::begin(const DiskMove& move, std::span<std::byte> memory) {
  TM_CHECK(move.kind == DiskMoveKind::drop || memory.size() == options_.payload_bytes[move.disk.size_class],
           "a record holds one block");
  {
    std::lock_guard lock(mutex_);
    orders_.push_back({move, memory});
  }
  ordered_.notify_one();
}

void DiskFile::take_ends(std::vector<DiskEnd>& ends) {
  std::lock_guard lock(mutex_);
  ends.insert(ends.end(), ends_.begin(), ends_.end());
  ends_.clear();
}

void DiskFile::await(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, most, [this] { return !ends_.empty(); });
}

void DiskFile::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ordered_.wait(lock, [this] { return stopped_ || !orders_.empty(); });
    if (orders_.empty()) return;
    const Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    const DiskEnd end = carry_out(order);
    lock.lock();
    if (order.move.kind == DiskMoveKind::drop) continue;
    ends_.push_back(end);
    ended_.notify_one();
  }
}

DiskEnd DiskFile::carry_out(const Order& order) {
  const auto begin = std::chrono::steady_clock::now();
  DiskEnd end;
  switch (order.move.kind) {
    case DiskMoveKind::store:
      end.ok = store(order);
      break;
    case DiskMoveKind::load:
      end.ok = load(order);
      break;
    case DiskMoveKind::drop:
      wipe(order.move.disk);
      break;
  }
  end.bytes = end.ok ? order.memory.size() : 0;
  end.duration_ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  return end;
}

std::vector<std::byte> DiskFile::header_of(const DiskMove& move, std::span<const std::byte> memory) const {
  std::vector<std::byte> bytes(header_bytes_);
  RecordHeader header;
  header.payload_checksum = checksum_of(memory);
  header.hash = move.hash;
  header.group = move.group;
  header.size_class = move.disk.size_class;
  header.owner = move.owner;
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), move.tokens.data(), move.tokens.size() * sizeof(TokenId));
  header.checksum = checksum_of(bytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

bool DiskFile::store(const Order& order) {
  if (num_failed_writes_ >= most_failed_writes) return false;
  const std::vector<std::byte> header = header_of(order.move, order.memory);
  const uint64_t begin = offset(order.move.disk);
  const bool done = write_all(file_, begin, header) && write_all(file_, begin + header_bytes_, order.memory);
  num_failed_writes_ = done ? 0 : num_failed_writes_ + 1;
  if (!done) wipe(order.move.disk);
  return done;
}

bool DiskFile::load(const Order& order) {
  std::vector<std::byte> bytes(header_bytes_);
  std::vector<TokenId> tokens;
  const uint64_t begin = offset(order.move.disk);
  if (read_all(file_, begin, bytes)) {
    const auto header = checked_header(bytes, options_.block_size_tokens, tokens);
    if (header && header->hash == order.move.hash && header->group == order.move.group && tokens == order.move.tokens &&
        read_all(file_, begin + header_bytes_, order.memory) && header->payload_checksum == checksum_of(order.memory)) {
      return true;
    }
  }
  wipe(order.move.disk);
  return false;
}

// Nothing finds the record again, and its space goes back where the file system can do that.
void DiskFile::wipe(BlockPlace disk) {
  const uint64_t begin = offset(disk);
  const auto bytes = static_cast<off_t>(record_bytes_[disk.size_class]);
  if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin), bytes) == 0) return;
  const std::vector<std::byte> zeros(sizeof(RecordHeader));
  static_cast<void>(write_all(file_, begin, zeros));
}

}  // namespace tidemill
