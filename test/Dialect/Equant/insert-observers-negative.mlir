// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --equant-insert-observers="sites=up"
// RUN: not easyquant-opt %s --split-input-file --equant-insert-observers="statistics=median" 2>&1 | FileCheck %s

// CHECK: unknown statistic 'median'; legal are absmax, minmax, mean_abs, moments, histogram, hessian, ema, sinks, inliers

// expected-error @below {{sites pattern 'up' matches no site}}
module {
  func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x8xf32> {
    %y = lm.linear %x, %w {site = "q"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }
}

// -----

// expected-error @below {{module is observed already: it has equant.observe ops}}
module {
  func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x8xf32> {
    equant.observe %x {sites = ["up"], statistics = ["absmax"]} : tensor<?x8xf32>
    %y = lm.linear %x, %w {site = "up"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }
}

// -----

// Offsets that no router gives say nothing of tokens.
module {
  func.func @f(%x: tensor<?x8xf32>, %w: tensor<32x8xf32>, %offsets: tensor<5xi32>) -> tensor<?x8xf32> {
    // expected-error @below {{site 'up': its experts cannot be observed: no lm.route gives their rows}}
    %y = lm.linear %x, %w experts(%offsets) {site = "up"} : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<5xi32>) -> tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }
}
