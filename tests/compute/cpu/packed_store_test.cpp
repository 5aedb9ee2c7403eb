// Packed weights on disk: taken where they fit, packed again where they do not.
#include "compute/cpu/packed_store.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/checksum.h"
#include "compute/backend.h"
#include "compute/cpu/random_weights.h"
#include "test_data.h"

namespace tidemill::cpu {
namespace {

namespace fs = std::filesystem;

class PackedStoreTest : public ::testing::Test {
 protected:
  PackedStoreTest() : folder_(temporary_.path() / "packed") {}

  fs::path file() const { return folder_ / "a.packed"; }
  WeightMemory memory_of(const std::vector<std::byte>& bytes) { return {nullptr, bytes.data(), bytes.size()}; }

  static std::vector<std::byte> bytes_of(size_t size, unsigned seed) {
    std::vector<std::byte> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed + i / 251);
    return bytes;
  }
  void write_two(const std::string& key, uint64_t limit = 1 << 30) {
    PackedStore store(file(), key);
    store.note(1, memory_of(first_));
    store.note(2, memory_of(second_));
    const Result<void> written = store.write(limit, threads_);
    ASSERT_TRUE(written) << written.error().message;
  }
  size_t num_files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_;
  ThreadPool threads_{2};
  const std::vector<std::byte> first_ = bytes_of(3 << 20, 7), second_ = bytes_of(100, 9);
};

TEST_F(PackedStoreTest, GivesBackWhatWasNoted) {
  write_two("key");
  EXPECT_EQ(num_files(), 1u);
  PackedStore store(file(), "key");
  ASSERT_TRUE(store.has_next());
  const std::optional<WeightMemory> first = store.next(1, first_.size(), threads_);
  ASSERT_TRUE(first);
  EXPECT_TRUE(std::ranges::equal(first->bytes(), first_));
  const std::optional<WeightMemory> second = store.next(2, second_.size(), threads_);
  ASSERT_TRUE(second);
  EXPECT_TRUE(std::ranges::equal(second->bytes(), second_));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second->data) % 64, 0u);
  EXPECT_FALSE(store.has_next());
  EXPECT_FALSE(store.incomplete());
}

TEST_F(PackedStoreTest, AnotherKeyShapeOrSizeIsPackedAgain) {
  write_two("key");
  EXPECT_FALSE(PackedStore(file(), "yek").has_next());
  EXPECT_FALSE(PackedStore(file(), "key of another length").has_next());
  PackedStore shape(file(), "key");
  EXPECT_FALSE(shape.next(2, first_.size(), threads_));
  EXPECT_FALSE(shape.has_next());
  EXPECT_FALSE(PackedStore(file(), "key").next(1, first_.size() - 1, threads_));
}

TEST_F(PackedStoreTest, EveryDamageIsNoticed) {
  write_two("key");
  std::ifstream in(file(), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  // Header, table, key, both matrices; the last bytes before each 4096 are filling that nobody reads.
  for (const size_t at : {size_t{0}, size_t{9}, size_t{13}, size_t{17}, size_t{24}, size_t{33}, size_t{41}, size_t{60},
                          size_t{104}, size_t{4096}, size_t{4096} + (2 << 20), size_t{4096} + (3 << 20) + 50}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(file(), std::ios::binary) << damaged;
    PackedStore store(file(), "key");
    const bool intact = store.next(1, first_.size(), threads_) && store.next(2, second_.size(), threads_);
    EXPECT_FALSE(intact) << "byte " << at;
  }
  for (const size_t size : {size_t{0}, size_t{10}, size_t{45}, size_t{4096}, whole.size() - 1}) {
    std::ofstream(file(), std::ios::binary) << whole.substr(0, size);
    EXPECT_FALSE(PackedStore(file(), "key").has_next()) << size;
  }
}

TEST_F(PackedStoreTest, TheFolderStaysBelowItsLimit) {
  write_two("key");
  const auto size = fs::file_size(file());
  fs::rename(file(), folder_ / "old.packed");
  fs::last_write_time(folder_ / "old.packed", fs::file_time_type::clock::now() - std::chrono::hours(2));
  std::ofstream(folder_ / "x.unfinished") << "x";
  fs::last_write_time(folder_ / "x.unfinished", fs::file_time_type::clock::now() - std::chrono::hours(2));
  std::ofstream(folder_ / "other.gguf") << "x";
  write_two("key", 2 * size);
  EXPECT_EQ(num_files(), 3u);  // a, old, other.gguf
  fs::rename(file(), folder_ / "b.packed");
  write_two("key", 2 * size);
  EXPECT_FALSE(fs::exists(folder_ / "old.packed"));
  EXPECT_TRUE(fs::exists(folder_ / "b.packed"));
  PackedStore store(file(), "key");
  store.note(1, memory_of(first_));
  EXPECT_FALSE(store.write(1000, threads_));
  EXPECT_TRUE(fs::exists(file()));
}

TEST_F(PackedStoreTest, AFolderThatCannotBeWritten) {
  std::ofstream(folder_.native() + "_file") << "x";
  PackedStore store(folder_.native() + "_file/a.packed", "key");
  store.note(1, memory_of(first_));
  EXPECT_FALSE(store.write(1 << 30, threads_));
  fs::remove(folder_.native() + "_file");
}

// A backend computes the same from a kept matrix as from a fresh one.
TEST_F(PackedStoreTest, BackendsShareAFile) {
  std::vector<float> values(64 * 96), input(96), answers[3];
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 37) - 18.0f;
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 5) - 2.0f;
  for (int run = 0; run < 3; ++run) {
    CpuOptions options{.num_threads = 2, .kernels = "scalar"};
    options.packed_cache = PackedCache::on;
    options.packed_folder = folder_;
    options.packed_key = run < 2 ? "model" : "another model";
    auto backend = make_cpu_backend(options);
    ASSERT_TRUE(backend);
    EXPECT_EQ((*backend)->wants_weights(), run != 1);
    // The second run's file is not looked at: what it holds does not matter.
    const std::vector<float> zeros(values.size());
    const WeightPart part{.type = DType::f32,
                          .data = reinterpret_cast<const std::byte*>(run == 1 ? zeros.data() : values.data()),
                          .rows = 64,
                          .cols = 96};
    auto matrix = (*backend)->load_matrix({&part, 1}, MatrixLayout::stacked);
    ASSERT_TRUE(matrix);
    ASSERT_TRUE((*backend)->end_loading());
    answers[run].resize(64);
    (*backend)->product(
        {.input = {input.data(), 1, 96}, .matrix = matrix->get(), .output = {answers[run].data(), 1, 64}});
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(answers[0], answers[2]);
  EXPECT_NE(answers[0], std::vector<float>(64));
  EXPECT_EQ(num_files(), 2u);
}

TEST(Checksum, DependsOnEveryByteAndTheLength) {
  std::vector<std::byte> bytes(75, std::byte{3});
  const uint64_t whole = checksum_of(bytes);
  for (std::byte& byte : bytes) {
    byte ^= std::byte{1};
    EXPECT_NE(checksum_of(bytes), whole);
    byte ^= std::byte{1};
  }
  EXPECT_NE(checksum_of(std::vector<std::byte>(32)), checksum_of(std::vector<std::byte>(33)));
  EXPECT_NE(checksum_of({}), checksum_of(std::vector<std::byte>(1)));
  EXPECT_EQ(checksum_of(bytes), whole);
}

}  // namespace
}  // namespace tidemill::cpu
