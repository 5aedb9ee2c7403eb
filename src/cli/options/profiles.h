// Profiles: one word that sets several options, each of which may still be given by itself and then counts.
//
// A profile is a list of option names and texts, so it can say nothing that a person could not, and the help, the start
// and docs/ show the same table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemill {

struct Profile {
  std::string_view name;
  std::string_view purpose;                                  // what it is for, half a sentence
  std::vector<std::pair<std::string, std::string>> options;  // main name without dashes, value
};

std::span<const Profile> profiles();
const Profile* find_profile(std::string_view name);  // nullptr = there is none

// "--max-num-seqs 256 --itl-multiple 0": as one would type them.
std::string profile_options_text(const Profile& profile);
// All of them, a line each and more, for the end of --help.
std::string profiles_help();

}  // namespace tidemill
