// A server that a benchmark starts for one run and ends again.
//
// The command runs through /bin/sh in a process group of its own, so that ending the group ends whatever the command
// started. Its output goes to a file, of which the last lines are quoted where it fails. The destructor ends the group
// and waits for it: nothing is left behind. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http/http_client.h"

namespace tidemill {

class ServerProcess {
 public:
  static Result<std::unique_ptr<ServerProcess>> start(const std::string& command, const std::string& output_path);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Until GET /health (or /v1/models, where there is no /health) answers 200. An Error where the process ends, the time
  // is up or should_stop turns true.
  Result<void> wait_healthy(const HttpUrl& url, std::chrono::milliseconds limit,
                            const std::function<bool()>& should_stop = {});
  // The most memory that the processes of the group held resident, together; of those that still run.
  size_t peak_resident_bytes() const;
  // SIGTERM to the group, SIGKILL after the time limit.
  void stop(std::chrono::milliseconds limit = std::chrono::seconds(15));
  pid_t group() const { return pid_; }

 private:
  ServerProcess(pid_t pid, std::string output_path) : pid_(pid), output_path_(std::move(output_path)) {}
  bool leader_ended() const;
  std::string last_output() const;

  pid_t pid_;  // of the shell, and of the group
  std::string output_path_;
};

// Whether something answers HTTP there now.
bool answers(const HttpUrl& url);
// A TCP port of 127.0.0.1 that nobody listened on a moment ago; 0 where there is none.
uint16_t free_port();
// A text as one word of a shell command.
std::string shell_quoted(const std::string& text);

}  // namespace tidemill
