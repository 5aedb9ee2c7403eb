#include "cli/options/profiles.h"

#include <fmt/format.h>

#include <algorithm>

namespace tidemill {

std::span<const Profile> profiles() {
  static const std::vector<Profile> all = {
      {"throughput",
       "most tokens per second; streams may stutter",
       {{"max-num-seqs", "256"},
        {"max-num-batched-tokens", "512"},
        {"itl-multiple", "0"},
        {"memory-utilization", "0.8"}}},
      {"long-context",
       "few long documents",
       {{"max-num-seqs", "16"},
        {"max-num-batched-tokens", "512"},
        {"itl-multiple", "4"},
        {"block-size", "64"},
        {"memory-utilization", "0.8"},
        {"max-model-len", "auto"}}},
      {"edge",
       "a small machine that does other things, too",
       {{"max-num-seqs", "4"},
        {"max-num-batched-tokens", "128"},
        {"block-size", "16"},
        {"memory-utilization", "0.25"},
        {"max-model-len", "auto"},
        {"max-num-queued-reqs", "32"}}},
      {"realtime",
       "a strict time between tokens",
       {{"max-num-seqs", "16"},
        {"max-num-batched-tokens", "256"},
        {"itl-multiple", "1.5"},
        {"max-num-queued-reqs", "64"}}},
  };
  return all;
}

const Profile* find_profile(std::string_view name) {
  const auto found = std::ranges::find(profiles(), name, &Profile::name);
  return found == profiles().end() ? nullptr : &*found;
}

std::string profile_options_text(const Profile& profile) {
  std::string text;
  for (const auto& [name, value] : profile.options)
    text += fmt::format("{}--{} {}", text.empty() ? "" : " ", name, value);
  return text;
}

std::string profiles_help() {
  std::string text = "Profiles (--profile NAME) set these options where they are not given by themselves:\n";
  for (const Profile& profile : profiles()) {
    text += fmt::format("  {:<13} {}:\n", profile.name, profile.purpose);
    std::string line;
    for (const auto& [name, value] : profile.options) {
      const std::string word = fmt::format(" --{} {}", name, value);
      if (line.size() + word.size() > 62) {
        text += "               " + line + "\n";
        line.clear();
      }
      line += word;
    }
    text += "               " + line + "\n";
  }
  return text;
}

}  // namespace tidemill
