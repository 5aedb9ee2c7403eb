// Runs a fuzz target without libFuzzer: random mutations of the seeds, for a bounded number of runs or seconds.
//
//   target [-max_total_time=S] [-runs=N] [-seed=N] [-max_len=N] FOLDER|FILE...
//
// Options are libFuzzer's, so that one command serves both; others that begin with '-' are ignored. Blind to coverage,
// it finds shallow faults only. Runs are determined by the seed; the input that ends the process is left in
// ./crash-input.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// There when a sanitizer is linked in.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

struct Options {
  double seconds = 5;
  uint64_t runs = ~uint64_t{0};
  uint64_t seed = 1;
  size_t max_len = 65536;
  std::vector<std::string> seeds;
};

std::string current_input;

void save_input() {
  const int fd = ::open("crash-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return;
  if (::write(fd, current_input.data(), current_input.size()) >= 0) {
    constexpr std::string_view note = "the input is in ./crash-input\n";
    [[maybe_unused]] const ssize_t ignored = ::write(2, note.data(), note.size());
  }
  ::close(fd);
}

void on_signal(int number) {
  save_input();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void add_seeds(const std::filesystem::path& path, std::vector<std::string>& seeds) {
  if (std::filesystem::is_directory(path)) {
    std::vector<std::filesystem::path> inside;
    for (const auto& entry : std::filesystem::directory_iterator(path)) inside.push_back(entry.path());
    std::sort(inside.begin(), inside.end());
    for (const auto& file : inside) add_seeds(file, seeds);
    return;
  }
  std::ifstream in(path, std::ios::binary);
  seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals), value = equals == std::string::npos ? "" : text.substr(equals + 1);
    if (name == "-max_total_time") options.seconds = std::atof(value.c_str());
    if (name == "-runs") options.runs = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "-seed") options.seed = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "-max_len") options.max_len = std::strtoull(value.c_str(), nullptr, 10);
    if (name[0] != '-') add_seeds(text, options.seeds);
  }
  if (options.seeds.empty()) options.seeds.emplace_back();
  return options;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& seeds, uint64_t seed) : seeds_(seeds), random_(seed) {}

  std::string next(size_t max_len) {
    std::string text = seeds_[below(seeds_.size())];
    for (uint64_t steps = 1 + below(4); steps > 0; --steps) mutate(text);
    text.resize(std::min(text.size(), max_len));
    return text;
  }

 private:
  uint64_t below(uint64_t limit) { return limit ? random_() % limit : 0; }

  void mutate(std::string& text) {
    switch (below(8)) {
      case 0:
        return flip(text);
      case 1:
        return number(text);
      case 2:
        return text.resize(below(text.size() + 1));
      case 3: {
        const size_t at = below(text.size() + 1);
        text.erase(at, below(32));
        return;
      }
      case 4: {
        const std::string& other = seeds_[below(seeds_.size())];
        const size_t from = below(other.size() + 1);
        text.insert(below(text.size() + 1), other.substr(from, below(256)));
        return;
      }
      case 5:
        return repeat(text);
      case 6: {
        text.insert(below(text.size() + 1), 1, static_cast<char>(below(256)));
        return;
      }
      default:
        return digits(text);
    }
  }

  void flip(std::string& text) {
    if (text.empty()) return;
    const size_t at = below(text.size());
    text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
  }

  // Writes a value at an edge of some integer type over 1 to 8 bytes.
  void number(std::string& text) {
    static constexpr uint64_t edges[] = {0,
                                         1,
                                         2,
                                         0x7F,
                                         0x80,
                                         0xFF,
                                         0x7FFF,
                                         0x8000,
                                         0xFFFF,
                                         0x7FFFFFFF,
                                         0x80000000,
                                         0xFFFFFFFF,
                                         uint64_t{1} << 61,
                                         uint64_t{1} << 62,
                                         (uint64_t{1} << 63) - 1,
                                         uint64_t{1} << 63,
                                         ~uint64_t{0},
                                         ~uint64_t{0} - 31};
    const uint64_t value = below(4) == 0 ? random_() : edges[below(std::size(edges))];
    const size_t width = size_t{1} << below(4);
    if (text.size() < width) return;
    std::memcpy(&text[below(text.size() - width + 1)], &value, width);
  }

  // Doubles a stretch, some times over: nesting and long lists.
  void repeat(std::string& text) {
    const size_t at = below(text.size() + 1);
    const std::string part = text.substr(at, 1 + below(16));
    std::string more;
    for (uint64_t times = 1 + below(below(20) == 0 ? 5000 : 20); times > 0; --times) more += part;
    text.insert(at, more);
  }

  // Replaces a decimal digit by a large, negative or fractional number.
  void digits(std::string& text) {
    static constexpr const char* numbers[] = {"-1",
                                              "4.5",
                                              "1e999",
                                              "9223372036854775808",
                                              "18446744073709551615",
                                              "99999999999999999999",
                                              "0",
                                              "4611686018427387904",
                                              "null",
                                              "\"\\ud800\""};
    std::vector<size_t> places;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] >= '0' && text[i] <= '9') places.push_back(i);
    }
    if (!places.empty()) text.replace(places[below(places.size())], 1, numbers[below(std::size(numbers))]);
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_;
};

void run_one(const std::string& input) {
  current_input = input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current_input.data()), current_input.size());
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  for (int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(number, on_signal);
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(save_input);
  for (const std::string& seed : options.seeds) run_one(seed);
  Mutator mutator(options.seeds, options.seed);
  const auto start = std::chrono::steady_clock::now();
  uint64_t runs = 0;
  while (runs < options.runs &&
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < options.seconds) {
    run_one(mutator.next(options.max_len));
    ++runs;
  }
  std::printf("%zu seeds and %llu mutations of them ran without a fault\n", options.seeds.size(),
              static_cast<unsigned long long>(runs));
  return 0;
}
