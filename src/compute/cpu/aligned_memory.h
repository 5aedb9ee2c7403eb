// A piece of memory for weights or activations: aligned for the widest vectors, in huge pages where it is large.
//
// Move-only owner. Contents are zero. A large piece takes no memory before it is touched, and then on the node of the
// thread that touches it first. Allocation failure gives an empty piece (data() == nullptr), for the caller to report.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace tidemill::cpu {

class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(size_t size_bytes);

  std::byte* data() const { return data_.get(); }
  size_t size_bytes() const { return data_.get_deleter().size_bytes; }

 private:
  struct Free {
    size_t size_bytes;
    size_t mapped_bytes;  // 0: from the heap
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_{nullptr, Free{0, 0}};
};

// Memory that only grows, for the scratch of a step; growing loses the contents.
template <typename T>
class Scratch {
 public:
  T* reserve(size_t count) {
    if (count > count_) {
      memory_ = AlignedMemory();
      memory_ = AlignedMemory(count * sizeof(T));
      if (!memory_.data()) std::abort();
      count_ = count;
    }
    return data();
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }

 private:
  AlignedMemory memory_;
  size_t count_ = 0;
};

}  // namespace tidemill::cpu
