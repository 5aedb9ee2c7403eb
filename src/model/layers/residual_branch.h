// What attention and feed-forward share: a branch that reads the residual stream and adds to it.
#pragma once

#include <cstdint>
#include <memory>

#include "compute/backend.h"
#include "model/model.h"

namespace tidemill {

// The numbers of a weight that a layer may lack.
inline const float* data_or_null(const std::unique_ptr<Buffer>& buffer) {
  return buffer ? buffer->data() : nullptr;
}

// Memory for the rows of one step, sized by Decoder::reserve. Rows have the widths of the model's widest layer.
struct Scratch {
  float* query_key_value = nullptr;
  float* attended = nullptr;
  float* inner = nullptr;
  float* branch = nullptr;  // [rows, width], used by layers with a norm behind the branch
};

// How a branch's last product joins the residual stream: residual += scale * post_norm(product).
struct ResidualJoin {
  bool has_post_norm = false;
  Norm post_norm;
  float scale = 1.0f;

  // `product` lacks its scale and output; residual is [rows, width].
  void run(Backend& backend, Product product, Rows residual, const Scratch& scratch) const {
    if (!has_post_norm) {
      product.scale = scale;
      product.accumulate = true;
      product.output = residual;
      backend.product(product);
      return;
    }
    product.output = Rows{scratch.branch, residual.num_rows, residual.width};
    backend.product(product);
    backend.normalize(product.output, post_norm, scale, true, residual);
  }
};

}  // namespace tidemill
