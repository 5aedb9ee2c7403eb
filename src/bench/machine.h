// What a result must say beside its numbers: the machine, the program, the flags and the model's files.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace tidemill {

struct MachineInfo {
  std::string cpu;        // the model's name as the system gives it
  int32_t num_cores = 0;  // that this process may use
  uint64_t memory_bytes = 0;
  std::string system;  // kernel and its release
};
MachineInfo this_machine();

// A model's weights: the file, or all GGUF and safetensors files of a folder, in the order of their names.
struct FileDigest {
  std::string name;  // without its folder
  uint64_t size_bytes = 0;
  std::string sha256;  // hexadecimal
};
Result<std::vector<FileDigest>> digest_model(const std::filesystem::path& path);

// Who measured, when, on what.
struct RunInfo {
  std::string version;             // of this program
  std::vector<std::string> flags;  // as given on the command line
  std::string command;             // "bench latency"
};

// {"tool", "version", "command", "flags", "time", "machine": {...}}; each command adds its results.
nlohmann::ordered_json result_head(const RunInfo& info);
nlohmann::ordered_json json_of(const std::vector<FileDigest>& files);
// One line for people.
std::string machine_text(const MachineInfo& machine);

// Writes a result where the path is not empty.
Result<void> write_json(const std::string& path, const nlohmann::ordered_json& result);
Result<void> write_text(const std::string& path, const std::string& text);

}  // namespace tidemill
