#include "bench/server_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/printable.h"

extern "C" {
extern char** environ;
}

namespace tidemill {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds poll_every{50};
constexpr size_t quoted_bytes = 600;

// "VmHWM:  1234 kB" of a process.
size_t peak_of(const std::filesystem::path& process) {
  std::ifstream in(process / "status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

struct ProcessState {
  char state = 'X';
  pid_t group = -1;
};

// The third and the fifth field of /proc/PID/stat; the second, the name in brackets, may hold anything.
ProcessState state_of(const std::filesystem::path& process) {
  std::ifstream in(process / "stat");
  std::string text;
  std::getline(in, text);
  const size_t end = text.rfind(')');
  ProcessState state;
  if (end == std::string::npos) return state;
  std::istringstream rest(text.substr(end + 1));
  pid_t parent = 0;
  rest >> state.state >> parent >> state.group;
  return state;
}

// The processes of a group that have not ended, as folders of /proc.
std::vector<std::filesystem::path> members_of(pid_t group) {
  std::vector<std::filesystem::path> members;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const ProcessState state = state_of(entry.path());
    if (state.group == group && state.state != 'Z' && state.state != 'X') members.push_back(entry.path());
  }
  return members;
}

}  // namespace

Result<std::unique_ptr<ServerProcess>> ServerProcess::start(const std::string& command,
                                                            const std::string& output_path) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  std::string shell = "sh", flag = "-c", text = command;
  std::array<char*, 4> arguments = {shell.data(), flag.data(), text.data(), nullptr};
  pid_t pid = 0;
  const int code = posix_spawn(&pid, "/bin/sh", &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (code != 0) return error("'{}' cannot be started: {}", printable(command), std::strerror(code));
  return std::unique_ptr<ServerProcess>(new ServerProcess(pid, output_path));
}

ServerProcess::~ServerProcess() {
  stop();
}

// It is not waited for before stop(), so that its number, which is the group's, is not given to anybody else.
bool ServerProcess::leader_ended() const {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

std::string ServerProcess::last_output() const {
  std::ifstream in(output_path_, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const size_t start = all.size() > quoted_bytes ? all.size() - quoted_bytes : 0;
  return printable(all.substr(start), quoted_bytes);
}

Result<void> ServerProcess::wait_healthy(const HttpUrl& url, milliseconds limit,
                                         const std::function<bool()>& should_stop) {
  const steady_clock::time_point end = steady_clock::now() + limit;
  const std::string models = url.path.ends_with("/v1") ? "/models" : "/v1/models";
  while (steady_clock::now() < end) {
    if (should_stop && should_stop()) return error("interrupted");
    if (leader_ended()) return error("the server ended before it answered; it said: {}", last_output());
    HttpUrl root = url;
    if (root.path.ends_with("/v1")) root.path.resize(root.path.size() - 3);
    Result<HttpAnswer> answer = http_call(root, {"GET", "/health", "", ""});
    if (answer && answer->status == 404) answer = http_call(url, {"GET", models, "", ""});
    if (answer && answer->status == 200) return {};
    std::this_thread::sleep_for(poll_every);
  }
  return error("the server did not get ready within {} s; it said: {}", limit.count() / 1000, last_output());
}

size_t ServerProcess::peak_resident_bytes() const {
  size_t total = 0;
  for (const std::filesystem::path& process : members_of(pid_)) total += peak_of(process);
  return total;
}

void ServerProcess::stop(milliseconds limit) {
  if (pid_ <= 0) return;
  const steady_clock::time_point end = steady_clock::now() + limit;
  kill(-pid_, SIGTERM);
  while (!members_of(pid_).empty()) {
    if (steady_clock::now() > end) kill(-pid_, SIGKILL);
    std::this_thread::sleep_for(milliseconds(10));
  }
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

bool answers(const HttpUrl& url) {
  return http_call(url, {"GET", "/health", "", ""}).ok();
}

uint16_t free_port() {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  uint16_t port = 0;
  if (descriptor >= 0 && bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    port = ntohs(address.sin_port);
  }
  if (descriptor >= 0) close(descriptor);
  return port;
}

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace tidemill
