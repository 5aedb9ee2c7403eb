// Streams the changes of the KV cache to any number of clients, as server-sent events.
//
// One thread, which lives while there are clients, takes the changes from the engine's bounded feed a few times a
// second, writes them once, and hands the bytes to all. The engine waits for nobody; a client that reads too slowly
// fills its connection's bounded buffer and is cut off there.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "server/http/exchange.h"

namespace tidemill {

class CacheEvents {
 public:
  ~CacheEvents() { stop(); }

  // I/O thread. The engine must outlive stop().
  void subscribe(Engine& engine, const std::shared_ptr<Exchange>& exchange);
  void unsubscribe(const Exchange& exchange);
  // Ends all streams; later ones end at once.
  void stop();

 private:
  void run(Engine& engine);
  void send(const std::string& bytes, bool last);

  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> clients_;
  bool running_ = false;  // the thread takes care of clients_
  bool stopping_ = false;
  Engine* engine_ = nullptr;
  std::thread thread_;
};

}  // namespace tidemill
