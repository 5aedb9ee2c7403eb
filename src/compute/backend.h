// The transformer's steps as fused operations on one device.
//
// Every operation ends with one barrier of the device's workers and takes effect on all rows of a step at once: prefill
// and decode rows go through the same product and the same attention, so a row's result depends on its own inputs and
// position only, never on the number of rows, their neighbours or the thread count: bit for bit.
//
// Called from the engine thread only (it is compute worker 0). Matrices are immutable after loading and shared
// read-only. Rows are float32, row-major and contiguous. Nothing here allocates after the largest step was seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/cpu_topology.h"
#include "base/result.h"
#include "base/step_trace.h"
#include "base/token.h"
#include "compute/dtype.h"
#include "compute/paged_kv.h"

namespace tidemill {

// A view of float activations [num_rows, width].
struct Rows {
  float* data = nullptr;
  int32_t num_rows = 0;
  int32_t width = 0;
  float* row(int32_t i) const { return data + static_cast<int64_t>(i) * width; }
};

// Weights as they lie in a file: [rows, cols], each row of whole blocks of its type. rows = outputs, cols = inputs.
struct WeightPart {
  DType type = DType::f32;
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  // Output row r of the loaded matrix is file row row_order[r]; empty = as in the file.
  std::span<const int32_t> row_order{};
};

enum class MatrixLayout {
  stacked,  // the parts' rows one after the other (query, key, value)
  gated,    // two parts of equal shape, gate and up, laid so that one pass gives activation(gate) * up
};

// A weight matrix in the layout that the chosen kernels want. Thread-safe, immutable.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual int64_t rows() const = 0;  // outputs; for gated: of gate plus up
  virtual int64_t cols() const = 0;  // inputs
  virtual size_t size_bytes() const = 0;
};

// Device memory for activations.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual float* data() = 0;
};

// Root-mean-square norm: x * weight / sqrt(mean(x^2) + epsilon). An offset of the weight (Gemma's +1) is already in it.
struct Norm {
  const float* weight = nullptr;  // [width]; nullptr = no norm at all
  float epsilon = 0;
};

enum class Activation { silu, gelu_tanh, gelu_erf, relu };

// output = [residual +] cap(scale * (matrix * norm(input) + bias)). For a gated matrix
// output = [residual +] scale * activation(gate * norm(input) + bias_gate) * (up * norm(input) + bias_up), with
// rows()/2 columns.
struct Product {
  Rows input{};  // [n, cols]
  Norm norm{};   // applied to the input first
  const Matrix* matrix = nullptr;
  const float* bias = nullptr;               // [rows] or nullptr
  Activation activation = Activation::silu;  // gated matrices only
  float scale = 1.0f;
  float softcap = 0.0f;     // 0 = none: x becomes cap * tanh(x / cap); not for gated matrices
  bool accumulate = false;  // add to what output holds (the residual)
  Rows output{};            // [n, rows], or [n, rows / 2] for a gated matrix
  // The backend's next product, of this matrix and without a norm, is the only reader of output. What it reads may then
  // lie elsewhere, in the layout that its kernels take; output's memory holds anything.
  const Matrix* reader = nullptr;
  TraceLabel label{.name = "product"};
};

// Rotary embedding. Pairs are (i, i + rotary_dim/2) ("neox"), or (2i, 2i + 1) where interleaved.
struct Rotary {
  int32_t rotary_dim = 0;  // 0 = this layer does not rotate
  bool interleaved = false;
  const float* inverse_frequencies = nullptr;  // [rotary_dim / 2], scaling already applied
  float attention_factor = 1.0f;               // multiplies cos and sin (yarn, longrope)
};

// Takes the rows of query, key and value, normalizes and rotates queries and keys in place, and writes keys and values
// (rounded to tail precision) into their blocks. Then encodes the blocks that are full now, as far as rows of this step
// read them in their stored form.
struct RotateAndStore {
  Rows qkv{};  // [n, num_heads*head_dim + num_kv_heads*(head_dim + value_dim)]
  int32_t num_heads = 0;
  Norm query_norm{};  // weight [head_dim], or [num_heads * head_dim] where norm_whole_row
  Norm key_norm{};
  bool norm_whole_row = false;
  Rotary rotary{};
  std::span<const int32_t> positions{};  // [n]
  int32_t layer_in_group = 0;
  const KvGroupView* kv = nullptr;
  TraceLabel label{.name = "rotate and store"};
};

// Causal attention of every row over the keys of its own sequence, block-causal as docs/architecture.md describes: a
// row reads its own block in tail precision and those before it as they are stored. Where blocks are encoded, it
// follows the rotate_and_store of the same layer and view.
struct Attention {
  Rows qkv{};  // queries are the first num_heads * head_dim columns
  int32_t num_heads = 0;
  float scale = 1.0f;            // of the scores
  float softcap = 0.0f;          // 0 = none: scores become cap * tanh(score / cap)
  int32_t window = 0;            // 0 = none: a query at position p sees keys at positions > p - window
  const float* sinks = nullptr;  // [num_heads] or nullptr: a logit per head that only joins the softmax's sum
  int32_t layer_in_group = 0;
  const KvGroupView* kv = nullptr;
  Rows output{};  // [n, num_heads * value_dim]
  TraceLabel label{.name = "attention"};
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;     // "cpu"
  virtual std::string_view kernels() const = 0;  // "scalar", "avx2", "avx512", "amx"
  virtual int32_t num_threads() const = 0;

  // Repacks file weights. All parts have equal cols; gated takes two parts of equal rows. The source may be unmapped
  // afterwards. An Error names a shape that no kernel takes.
  virtual Result<std::unique_ptr<Matrix>> load_matrix(std::span<const WeightPart> parts, MatrixLayout layout) = 0;
  // False where the next matrix's weights are most likely not looked at, since the backend kept what it made of them.
  virtual bool wants_weights() const { return true; }
  // All matrices of a model are loaded. The backend may keep what it made of them for the next start; an Error says why
  // it could not, which is no fault of the model.
  virtual Result<void> end_loading() { return {}; }
  // num_floats floats, aligned for the widest vectors.
  virtual std::unique_ptr<Buffer> allocate(size_t num_floats) = 0;

  // output[i] = scale * row tokens[i] of the table, as floats.
  virtual void embed(const Matrix& table, std::span<const TokenId> tokens, float scale, Rows output) = 0;
  virtual void product(const Product& args) = 0;
  virtual void rotate_and_store(const RotateAndStore& args) = 0;
  virtual void attention(const Attention& args) = 0;
  // Encodes full blocks from tail into storage slots.
  virtual void seal(const KvSeals& args) = 0;
  // x = norm(x) where input is x itself; accumulate adds: output = [output +] scale * norm(input).
  virtual void normalize(Rows input, Norm norm, float scale, bool accumulate, Rows output) = 0;
  // output[i] = input[row_ids[i]]
  virtual void gather_rows(Rows input, std::span<const int32_t> row_ids, Rows output) = 0;

  // Calls work(i, worker) for i = 0 .. count - 1, shared out over the device's host threads, 0 <= worker <
  // num_threads(): for what is done on the host with the rows of a step. `name` is a literal, for the trace.
  template <typename Work>
  void share(const char* name, int32_t count, Work&& work) {
    using Plain = std::remove_reference_t<Work>;
    share_work(
        name, count, [](void* argument, int32_t i, int32_t worker) { (*static_cast<Plain*>(argument))(i, worker); },
        const_cast<void*>(static_cast<const void*>(&work)));
  }

 protected:
  virtual void share_work(const char* name, int32_t count, void (*work)(void*, int32_t, int32_t), void* argument) = 0;
};

// Whether packed weights are kept on disk for the next start.
enum class PackedCache : uint8_t {
  automatic,  // where packing takes more than a second
  on,
  off,
};

struct CpuOptions {
  int32_t num_threads = 0;        // 0 = every core that the process may use
  std::string_view kernels = "";  // "" = the best that this machine has; an impossible choice is an Error
  CoreBinding binding = CoreBinding::automatic;
  StepTrace* trace = nullptr;  // outlives the backend; null = no trace
  PackedCache packed_cache = PackedCache::off;
  // The folder of all models' packed weights, and what names this one's: the identity of its file, and whatever else
  // its matrices depend on. Without a key nothing is kept.
  std::filesystem::path packed_folder = {};
  std::string packed_key = "";
  uint64_t packed_limit_bytes = uint64_t{32} << 30;  // of the folder
};

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);

}  // namespace tidemill
