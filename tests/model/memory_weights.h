// A weight file in memory: another file's tensors, copied, which a test may rename, change, add to and take away.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/weight_file.h"

namespace tidemill::testing {

class MemoryWeights : public WeightFile {
 public:
  static std::unique_ptr<MemoryWeights> copy_of(const WeightFile& file) {
    auto copy = std::make_unique<MemoryWeights>();
    for (const TensorInfo& tensor : file.tensors()) {
      const auto bytes = file.bytes(tensor);
      copy->tensors_.push_back(tensor);
      copy->bytes_[tensor.name].assign(bytes.begin(), bytes.end());
    }
    return copy;
  }

  void add_floats(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
    TensorInfo tensor{.name = name, .type = DType::f32, .shape = std::move(shape), .size_bytes = values.size() * 4};
    tensors_.push_back(std::move(tensor));
    bytes_[name].resize(values.size() * 4);
    std::memcpy(bytes_[name].data(), values.data(), values.size() * 4);
  }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const TensorInfo& tensor) { return tensor.name == name; });
  }
  void rename(const std::string& from, const std::string& to) {
    for (TensorInfo& tensor : tensors_) {
      if (tensor.name == from) tensor.name = to;
    }
    bytes_[to] = std::move(bytes_[from]);
  }
  TensorInfo& tensor(const std::string& name) { return const_cast<TensorInfo&>(*find(name)); }
  std::vector<float> floats(const std::string& name) const {
    std::vector<float> values(find(name)->num_values());
    std::memcpy(values.data(), bytes_.at(name).data(), values.size() * 4);
    return values;
  }
  void set_floats(const std::string& name, const std::vector<float>& values) {
    std::memcpy(bytes_.at(name).data(), values.data(), values.size() * 4);
  }

  const Metadata& metadata() const override { return metadata_; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override {
    for (const TensorInfo& tensor : tensors_) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  std::span<const std::byte> bytes(const TensorInfo& tensor) const override { return bytes_.at(tensor.name); }
  void will_read(const TensorInfo&) const override {}
  void release(const TensorInfo& tensor) const override { released_.push_back(tensor.name); }
  std::string_view format() const override { return "memory"; }
  uint32_t num_shards() const override { return 1; }
  uint64_t file_bytes() const override { return 0; }

  const std::vector<std::string>& released() const { return released_; }

 private:
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::vector<std::byte>> bytes_;
  mutable std::vector<std::string> released_;
};

}  // namespace tidemill::testing
