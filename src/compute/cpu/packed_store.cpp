#include "compute/cpu/packed_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/checksum.h"
#include "base/printable.h"

namespace tidemill::cpu {
namespace {

namespace fs = std::filesystem;

constexpr char magic[8] = {'T', 'M', 'P', 'A', 'C', 'K', 'E', 'D'};
constexpr uint32_t file_version = 1;
constexpr size_t data_alignment = 4096;
constexpr size_t checksum_piece = size_t{1} << 20;
constexpr auto stale_after = std::chrono::hours(1);  // of a file that somebody began to write

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t num_matrices;
  uint64_t key_bytes;
  uint64_t file_bytes;
  uint64_t checksum;
};

// Pieces are summed up on all threads; what they come to is combined in their order.
uint64_t checksum_on(std::span<const std::byte> bytes, ThreadPool& threads) {
  std::vector<uint64_t> sums((bytes.size() + checksum_piece - 1) / checksum_piece);
  std::atomic<size_t> next = 0;
  threads.run([&](int32_t) {
    for (size_t i = next++; i < sums.size(); i = next++) {
      const size_t begin = i * checksum_piece;
      sums[i] = checksum_of(bytes.subspan(begin, std::min(checksum_piece, bytes.size() - begin)));
    }
  });
  return checksum_of(std::as_bytes(std::span(sums)));
}

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

class OutputFile {
 public:
  explicit OutputFile(const fs::path& path)
      : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)) {}
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool is_open() const { return fd_ >= 0; }
  bool put(std::span<const std::byte> bytes, uint64_t offset) {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(written));
      offset += static_cast<uint64_t>(written);
    }
    return true;
  }

 private:
  const int fd_;
};

// Removes packed files, the one that was used longest ago first, until `room` more bytes keep the folder in its limit;
// and what somebody began to write long ago.
void make_room(const fs::path& folder, uint64_t room, uint64_t limit_bytes) {
  struct Old {
    fs::path path;
    fs::file_time_type time;
    uint64_t bytes;
  };
  std::vector<Old> files;
  std::error_code failed;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    std::error_code unread;
    if (!entry->is_regular_file(unread)) continue;
    const Old file{entry->path(), entry->last_write_time(unread), entry->file_size(unread)};
    if (unread) continue;
    if (file.path.extension() == ".packed") files.push_back(file);
    if (file.path.extension() == ".unfinished" && now - file.time > stale_after) fs::remove(file.path, unread);
  }
  std::sort(files.begin(), files.end(), [](const Old& a, const Old& b) { return a.time < b.time; });
  uint64_t total = room;
  for (const Old& file : files) total += file.bytes;
  for (const Old& file : files) {
    if (total <= limit_bytes) return;
    if (fs::remove(file.path, failed)) total -= file.bytes;
  }
}

}  // namespace

PackedStore::PackedStore(fs::path file, std::string key) : file_(std::move(file)), key_(std::move(key)) {
  Result<MappedFile> mapped = MappedFile::open(file_);
  if (!mapped) return;
  mapped_ = std::make_shared<MappedFile>(*std::move(mapped));
  if (!read_table()) {
    mapped_ = nullptr;
    table_.clear();
    return;
  }
  std::error_code ignored;  // the time of the last use decides who is removed first
  fs::last_write_time(file_, fs::file_time_type::clock::now(), ignored);
}

bool PackedStore::read_table() {
  const std::span<const std::byte> bytes = mapped_->bytes();
  Header header;
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, magic, sizeof(magic)) != 0 || header.version != file_version) return false;
  if (header.file_bytes != bytes.size() || header.key_bytes != key_.size()) return false;
  const uint64_t table_bytes = uint64_t{header.num_matrices} * sizeof(Entry);
  if (table_bytes > bytes.size() - sizeof(header) || key_.size() > bytes.size() - sizeof(header) - table_bytes) {
    return false;
  }
  if (checksum_of(bytes.subspan(sizeof(header), table_bytes + key_.size())) != header.checksum) return false;
  if (std::memcmp(bytes.data() + sizeof(header) + table_bytes, key_.data(), key_.size()) != 0) return false;
  table_.resize(header.num_matrices);
  std::memcpy(table_.data(), bytes.data() + sizeof(header), table_bytes);
  return std::all_of(table_.begin(), table_.end(), [&](const Entry& entry) {
    return entry.offset % data_alignment == 0 && entry.offset <= bytes.size() &&
           entry.size_bytes <= bytes.size() - entry.offset;
  });
}

std::optional<WeightMemory> PackedStore::next(uint64_t shape, size_t size_bytes, ThreadPool& threads) {
  if (next_ >= table_.size()) return {};
  const Entry& entry = table_[next_];
  const bool fits = entry.shape == shape && entry.size_bytes == size_bytes;
  if (fits) mapped_->will_read(entry.offset, entry.size_bytes);
  if (!fits || checksum_on(mapped_->bytes().subspan(entry.offset, size_bytes), threads) != entry.checksum) {
    table_.clear();
    return {};
  }
  ++next_;
  WeightMemory memory{mapped_, mapped_->bytes().data() + entry.offset, size_bytes};
  noted_.push_back({shape, memory});
  return memory;
}

void PackedStore::note(uint64_t shape, WeightMemory memory) {
  noted_.push_back({shape, std::move(memory)});
  ++num_packed_;
}

Result<void> PackedStore::write(uint64_t limit_bytes, ThreadPool& threads) {
  std::vector<Entry> table;
  uint64_t at = round_up(sizeof(Header) + noted_.size() * sizeof(Entry) + key_.size(), data_alignment);
  for (const Noted& noted : noted_) {
    table.push_back({noted.shape, at, noted.memory.size_bytes, checksum_on(noted.memory.bytes(), threads)});
    at = round_up(at + noted.memory.size_bytes, data_alignment);
  }
  std::error_code failed;
  fs::create_directories(file_.parent_path(), failed);
  const fs::space_info disk = fs::space(file_.parent_path(), failed);
  if (failed) return error("packed weights are not kept: {}", failed.message());
  if (at > limit_bytes || at > disk.available / 2) {
    return error("packed weights are not kept: {} bytes are more than the limit of {}", at,
                 std::min<uint64_t>(limit_bytes, disk.available / 2));
  }
  make_room(file_.parent_path(), at, limit_bytes);

  std::vector<std::byte> table_and_key(table.size() * sizeof(Entry) + key_.size());
  std::memcpy(table_and_key.data(), table.data(), table.size() * sizeof(Entry));
  std::memcpy(table_and_key.data() + table.size() * sizeof(Entry), key_.data(), key_.size());
  Header header = {.magic = {},
                   .version = file_version,
                   .num_matrices = static_cast<uint32_t>(table.size()),
                   .key_bytes = key_.size(),
                   .file_bytes = at,
                   .checksum = checksum_of(table_and_key)};
  std::memcpy(header.magic, magic, sizeof(magic));
  fs::path unfinished = file_;
  unfinished += "." + std::to_string(::getpid()) + ".unfinished";
  bool written = false;
  {
    OutputFile out(unfinished);
    written =
        out.is_open() && out.put(std::as_bytes(std::span(&header, 1)), 0) && out.put(table_and_key, sizeof(header));
    for (size_t i = 0; written && i < table.size(); ++i) written = out.put(noted_[i].memory.bytes(), table[i].offset);
    const std::byte end{};
    if (written && !table.empty() && table.back().offset + table.back().size_bytes < at) {
      written = out.put({&end, 1}, at - 1);
    }
  }
  const int fault = errno;
  if (written) fs::rename(unfinished, file_, failed);
  noted_.clear();
  if (written && !failed) return {};
  const std::string reason = failed ? failed.message() : std::strerror(fault);
  fs::remove(unfinished, failed);
  return error("packed weights are not kept: {}: {}", printable(file_.filename().native(), 200), reason);
}

}  // namespace tidemill::cpu
