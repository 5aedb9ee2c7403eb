#include "bench/machine.h"

#include <openssl/evp.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/printable.h"

namespace tidemill {
namespace {

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return printable(line.substr(colon + 2));
  }
  return "unknown";
}

std::string utc_now() {
  const time_t now = time(nullptr);
  tm parts = {};
  gmtime_r(&now, &parts);
  std::array<char, 32> text;
  return {text.data(), strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string sha256_of(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace

MachineInfo this_machine() {
  MachineInfo machine;
  machine.cpu = cpu_name();
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) machine.num_cores = CPU_COUNT(&cores);
  struct sysinfo memory = {};
  if (sysinfo(&memory) == 0) machine.memory_bytes = uint64_t{memory.totalram} * memory.mem_unit;
  utsname system = {};
  if (uname(&system) == 0) machine.system = printable(fmt::format("{} {}", system.sysname, system.release));
  return machine;
}

Result<std::vector<FileDigest>> digest_model(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, code)) {
      const std::string ending = entry.path().extension().string();
      if (ending == ".gguf" || ending == ".safetensors") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  std::vector<FileDigest> digests;
  for (const std::filesystem::path& file : files) {
    const Result<MappedFile> mapped = MappedFile::open(file);
    if (!mapped) return mapped.error();
    digests.push_back({mapped->name(), mapped->size_bytes(), sha256_of(mapped->bytes())});
  }
  return digests;
}

nlohmann::ordered_json result_head(const RunInfo& info) {
  const MachineInfo machine = this_machine();
  nlohmann::ordered_json head;
  head["tool"] = "tidemill";
  head["version"] = info.version;
  head["command"] = info.command;
  head["flags"] = nlohmann::ordered_json::array();
  for (const std::string& flag : info.flags) head["flags"].push_back(printable(flag, 500));
  head["time"] = utc_now();
  head["machine"] = {{"cpu", machine.cpu},
                     {"cores", machine.num_cores},
                     {"memory_bytes", machine.memory_bytes},
                     {"system", machine.system}};
  return head;
}

nlohmann::ordered_json json_of(const std::vector<FileDigest>& files) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const FileDigest& file : files) {
    list.push_back({{"name", file.name}, {"bytes", file.size_bytes}, {"sha256", file.sha256}});
  }
  return list;
}

std::string machine_text(const MachineInfo& machine) {
  return fmt::format("{}, {} cores, {:.1f} GB, {}", machine.cpu, machine.num_cores,
                     static_cast<double>(machine.memory_bytes) / 1e9, machine.system);
}

Result<void> write_json(const std::string& path, const nlohmann::ordered_json& result) {
  return write_text(path, result.dump(1) + "\n");
}

Result<void> write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return error("{} cannot be written", printable(path));
  return {};
}

}  // namespace tidemill
